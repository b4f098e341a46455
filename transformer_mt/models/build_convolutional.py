"""Builder of convolutional models from their settings."""

from transformer_mt.config.convolutional import ConvolutionalSettings
from transformer_mt.models.convolutional import ConvolutionalDecoder, ConvolutionalEncoder
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.models.tying import tied
from transformer_mt.nn.convolution import (
    ConvolutionalAttention,
    ConvolutionalDecoderLayer,
    ConvolutionalEncoderLayer,
    GatedConvolution,
)
from transformer_mt.nn.initialization import gehring2017
from transformer_mt.nn.layers import TokenEmbedding
from transformer_mt.nn.linear import OutputProjection
from transformer_mt.nn.positional_encoding import LearnedEncoding


def build_convolutional(
    settings: ConvolutionalSettings, src_vocab_size: int, tgt_vocab_size: int
) -> Seq2Seq:
    """Build a convolutional model with fresh weights; see `models.build.build_model`."""
    d_model, kernel_size, dropout = settings.d_model, settings.kernel_size, settings.dropout

    def embedding(vocab_size: int) -> TokenEmbedding:
        """Make the embedding of a side."""
        positions = LearnedEncoding(settings.positions.max_length, d_model)
        return TokenEmbedding(vocab_size, d_model, positions=positions, dropout=dropout, scale=1.0)

    def convolution() -> GatedConvolution:
        """Make the block of a layer."""
        return GatedConvolution(d_model, kernel_size, dropout=dropout)

    encoder = ConvolutionalEncoder(
        embedding(src_vocab_size),
        [ConvolutionalEncoderLayer(convolution()) for _ in range(settings.num_encoder_layers)],
        kernel_size=kernel_size,
        dilations=settings.dilations,
    )
    decoder = ConvolutionalDecoder(
        embedding(tgt_vocab_size),
        [
            ConvolutionalDecoderLayer(convolution(), ConvolutionalAttention(d_model))
            for _ in range(settings.num_decoder_layers)
        ],
        kernel_size=kernel_size,
        dilations=settings.dilations,
        output=OutputProjection(d_model, tgt_vocab_size),
    )
    model = tied(encoder, decoder, which=settings.tie_embeddings)
    gehring2017(model, dropout=dropout)
    return model

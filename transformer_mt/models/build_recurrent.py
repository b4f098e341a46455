"""Builder of recurrent models from their settings."""

from transformer_mt.config.recurrent import RecurrentSettings
from transformer_mt.models.recurrent import InputFeedingDecoder, RecurrentDecoder, RecurrentEncoder
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.models.tying import tied
from transformer_mt.nn.initialization import bahdanau2015, luong2015, saxe2014
from transformer_mt.nn.layers import TokenEmbedding
from transformer_mt.nn.linear import OutputProjection
from transformer_mt.nn.positional_encoding import PositionalEncoding
from transformer_mt.nn.recurrent import CELLS, Bridge, RecurrentLayer
from transformer_mt.nn.recurrent_attention import SCORES, GlobalAttention

INITS = {"saxe2014": saxe2014, "bahdanau2015": bahdanau2015, "luong2015": luong2015}


def build_recurrent(
    settings: RecurrentSettings, src_vocab_size: int, tgt_vocab_size: int
) -> Seq2Seq:
    """Build a recurrent model with fresh weights; see `models.build.build_model`."""
    d_model, cell = settings.d_model, CELLS[settings.cell]

    def embedding(vocab_size: int) -> TokenEmbedding:
        """Make the embedding of a side."""
        return TokenEmbedding(
            vocab_size, d_model, positions=PositionalEncoding(), dropout=settings.dropout
        )

    def layers(
        number: int, *, d_input: int = d_model, bidirectional: bool = False
    ) -> list[RecurrentLayer]:
        """Make a stack; the first layer may have a wider input."""
        return [
            RecurrentLayer(
                cell,
                d_model if index else d_input,
                d_model,
                bidirectional=bidirectional,
                residual=settings.residual and index > 0,
                dropout=settings.dropout,
            )
            for index in range(number)
        ]

    attention = None
    if settings.attention != "none":
        attention = GlobalAttention(d_model, SCORES[settings.attention](d_model))
    encoder = RecurrentEncoder(
        embedding(src_vocab_size),
        layers(settings.num_encoder_layers, bidirectional=settings.bidirectional),
        from_right=settings.reverse_source,
    )
    feeds = settings.input_feeding
    decoder = (InputFeedingDecoder if feeds else RecurrentDecoder)(
        embedding(tgt_vocab_size),
        layers(settings.num_decoder_layers, d_input=2 * d_model if feeds else d_model),
        bridge=Bridge(
            d_model,
            settings.num_decoder_layers,
            cell=cell,
            num_forward_channels=0
            if settings.reverse_source
            else d_model // (2 if settings.bidirectional else 1),
        ),
        attention=attention,
        output=OutputProjection(d_model, tgt_vocab_size),
    )
    model = tied(encoder, decoder, which=settings.tie_embeddings)
    INITS[settings.init](model)
    return model

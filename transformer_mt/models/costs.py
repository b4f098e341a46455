"""Cost of a model: parameters, floating-point operations, memory of training.

torch counts while the model reads sentences on the meta device, where tensors have shapes and no
values: nothing is computed. The backward pass takes twice the operations of the forward pass.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.packing import Segments, blank_rows

FORWARD_AND_BACKWARD = 3
BYTES_FP32 = 4
_NUM_SENTENCES = 2
_PRODUCTS = (torch.ops.aten.mm, torch.ops.aten.addmm)


@dataclass(frozen=True)
class TokenCosts:
    """Cost of training for one source token and one target token; no layer is dropped.

    Attributes:
        source: Operations, forward and backward, of the products with weights for a source token:
            encoder, and keys and values of cross-attention.
        target: The same for a target token: decoder and output projection.
        source_attention: Operations of attention in the encoder for a source token; grows with the
            length. Masked scores count, as they are computed.
        target_attention: The same in the decoder for a target token; a decoder-only model has all
            of its attention here.
        activations: Bytes in fp32 that the forward pass keeps for the backward pass, for one token
            of either side together. Attention computes as on a CPU, but padded; the loss keeps
            little and is not counted.
    """

    source: int
    target: int
    source_attention: int
    target_attention: int
    activations: float

    @property
    def pair(self) -> int:
        """Operations of the products with weights for one source and one target token."""
        return self.source + self.target

    def training(self, num_src_tokens: float, num_tgt_tokens: float) -> float:
        """Return the operations of training on N source and N target tokens, attention included."""
        source = (self.source + self.source_attention) * num_src_tokens
        return source + (self.target + self.target_attention) * num_tgt_tokens


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Return the number of parameters of each part; a matrix with several uses counts once."""
    uses: dict[int, list[str]] = {}
    sizes: dict[int, int] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        uses.setdefault(id(parameter), []).append(_part(name))
        sizes[id(parameter)] = parameter.numel()
    counts: dict[str, int] = {}
    for key, parts in uses.items():
        part = " = ".join(dict.fromkeys(parts))
        counts[part] = counts.get(part, 0) + sizes[key]
    return counts


def _part(name: str) -> str:
    """Return the side and the block of a parameter, such as `encoder.feed_forward`."""
    side, block, *_ = (part for part in name.split(".") if part != "layers" and not part.isdigit())
    return f"{side}.norms" if block.endswith("_norm") else f"{side}.{block}"


def count_costs(model: Seq2Seq, *, length: int) -> TokenCosts:
    """Return the cost of training on a token in sentences of a length.

    Args:
        model: Loses its weights: it is moved to the meta device.
        length: Tokens of the sentences of both sides.
    """
    model.to("meta").train()
    try:
        return _count(model, length, "meta")
    except NotImplementedError:  # a recurrent model reads the lengths
        onednn = torch.backends.mkldnn.enabled
        torch.backends.mkldnn.enabled = False  # type: ignore[assignment] # its LSTM is not counted
        try:
            return _count(model.to_empty(device="cpu"), length, "cpu")
        finally:
            torch.backends.mkldnn.enabled = onednn


def _count(model: Seq2Seq, length: int, device: str) -> TokenCosts:
    # The products with weights are the same at any length. What acts once for each sentence is in
    # all three passes and cancels out.
    once, more_source, more_target = (
        _Pass(model, lengths, device).products for lengths in ((1, 1), (2, 1), (1, 2))
    )
    at_length = _Pass(model, (length, length), device)
    num_tokens = _NUM_SENTENCES * length
    encoder, decoder = at_length.attention
    return TokenCosts(
        source=FORWARD_AND_BACKWARD * (more_source - once) // _NUM_SENTENCES,
        target=FORWARD_AND_BACKWARD * (more_target - once) // _NUM_SENTENCES,
        source_attention=FORWARD_AND_BACKWARD * encoder // num_tokens,
        target_attention=FORWARD_AND_BACKWARD * decoder // num_tokens,
        activations=at_length.kept_bytes / num_tokens,
    )


class _Pass:
    """Counts of a forward pass over a few sentences of equal lengths.

    Attributes:
        products: Operations of the products with weights.
        attention: Other operations: of the encoder, and of the decoder.
        kept_bytes: Memory kept for the backward pass, weights left out, each block once.
    """

    def __init__(self, model: Seq2Seq, lengths: tuple[int, int], device: str) -> None:
        src, tgt = (Segments.of([n] * _NUM_SENTENCES).to(device) for n in lengths)
        weights = {weight.untyped_storage()._cdata for weight in model.parameters()}
        kept: dict[int, torch.UntypedStorage] = {}

        def keep(tensor: Tensor) -> Tensor:
            # Floats, and the int8 of dropout; other integers are places, which all layers share.
            block = tensor.untyped_storage()
            counts = tensor.is_floating_point() or tensor.dtype == torch.int8
            if counts and block._cdata not in weights:
                kept[block._cdata] = block
            return tensor

        of_encoder, of_decoder = (FlopCounterMode(display=False) for _ in range(2))
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            with of_encoder:
                rows = blank_rows(src.num_tokens, model.encoder.patch_size, device)
                memory = model.encode(rows, src)
            with of_decoder:
                states = model.decoder(blank_rows(tgt.num_tokens, None, device), tgt, memory)
                F.linear(states, *model.decoder.output_weight())
        counts = [mode.get_flop_counts().get("Global", {}) for mode in (of_encoder, of_decoder)]
        self.products = sum(of_side.get(op, 0) for of_side in counts for op in _PRODUCTS)
        self.attention = [
            sum(n for op, n in of_side.items() if op not in _PRODUCTS) for of_side in counts
        ]
        self.kept_bytes = sum(block.nbytes() for block in kept.values())

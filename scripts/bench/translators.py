"""Beam search of other programs with our weights, from ids to ids.

Each takes the command line of `decode_engines`, loads the model, and returns the setups to try and
a function that prepares one of them. They import their program themselves: CTranslate2's process
imports no torch, as its users' do not.
"""

import argparse
import importlib
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from transformer_mt.config.loading import load_config
from transformer_mt.text.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.text.tokenizer import Tokenizers

if TYPE_CHECKING:
    from torch import Tensor

PRECISIONS = {
    "Hugging Face": ("fp32", "bf16"),
    "CTranslate2": ("fp32", "int8"),
}
"""Precisions on a CPU."""
PACKAGES = {"Hugging Face": "transformers", "CTranslate2": "ctranslate2"}

Setup = dict[str, Any]
Translate = Callable[[Sequence[list[int]]], list[list[int]]]
"""From sources without eos to targets without eos."""
Ready = Callable[[Setup, int], Translate]
"""From a setup and the beam size."""


def hugging_face(options: argparse.Namespace) -> tuple[list[Setup], Ready]:
    """Load the model; return the setups to try, and a function that prepares one of them."""
    import torch
    from peer_models import plain_transformer, to_hugging_face

    from transformer_mt.bundle import load_bundle

    settings = load_config(options.model / "config.yaml")
    architecture = plain_transformer(settings.model)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[options.precision]
    model = to_hugging_face(load_bundle(options.model).model, architecture).to(dtype)
    # Fused attention is slow in bf16 on CPUs (see `gpu_peers.fastest_attention`).
    attentions = ("sdpa", "eager") if options.precision == "bf16" else ("sdpa",)
    setups = [
        {"batch": batch, "attention": attention}
        for batch, attention in itertools.product(options.batches, attentions)
    ]

    @torch.inference_mode()
    def translate_batch(sources: Sequence[list[int]], beam_size: int) -> list[list[int]]:
        """Translate sentences of similar length."""
        src = _padded(sources, pad_id=PAD_ID, eos_id=EOS_ID)
        output = model.generate(
            input_ids=src,
            attention_mask=(src != PAD_ID).long(),
            num_beams=beam_size,
            do_sample=False,
            early_stopping=False,
            length_penalty=settings.decoding.length_penalty if beam_size > 1 else 1.0,
            max_new_tokens=_limit(settings.decoding, sources),
            suppress_tokens=[PAD_ID, UNK_ID, BOS_ID],
        )
        return [_until_eos(row[1:]) for row in output.tolist()]

    def ready(setup: Setup, beam_size: int) -> Translate:
        """Return a translator with some settings."""
        model.set_attn_implementation(setup["attention"])

        return _in_batches(translate_batch, beam_size, setup["batch"])

    return setups, ready


def ctranslate2(options: argparse.Namespace) -> tuple[list[Setup], Ready]:
    """Load the converted model; see `hugging_face`."""
    engine = importlib.import_module("ctranslate2")
    decoding = load_config(options.model / "config.yaml").decoding
    tokenizers = Tokenizers.load(options.model)
    ids = tokenizers.tgt.ids
    # Several sentences at once on one thread each, or one after another on all threads.
    setups = [
        {"batch": batch, "workers": workers}
        for batch, workers in itertools.product(options.batches, sorted({1, options.threads}))
    ]
    loaded: dict[int, Any] = {}

    def ready(setup: Setup, beam_size: int) -> Translate:
        """Return a translator with some settings."""
        workers = setup["workers"]
        if workers not in loaded:
            loaded.clear()  # never two copies of the weights
            loaded[workers] = engine.Translator(
                str(options.converted),
                device="cpu",
                compute_type={"fp32": "float32", "int8": "int8"}[options.precision],
                inter_threads=workers,
                intra_threads=max(1, options.threads // workers),
            )

        def translate(sources: Sequence[list[int]]) -> list[list[int]]:
            """Translate sentences; the engine makes the batches."""
            results = loaded[workers].translate_batch(
                [tokenizers.src.pieces(source) for source in sources],
                beam_size=beam_size,
                length_penalty=decoding.length_penalty,
                max_batch_size=setup["batch"],
                max_decoding_length=_limit(decoding, sources),
                suppress_sequences=[[tokenizers.tgt.pieces([i])[0]] for i in (PAD_ID, BOS_ID)],
                disable_unk=True,
            )
            return [[ids[piece] for piece in result.hypotheses[0]] for result in results]

        return translate

    return setups, ready


def _in_batches(
    translate_batch: Callable[[Sequence[list[int]], int], list[list[int]]],
    beam_size: int,
    num_sentences: int,
) -> Translate:
    """Return a translator that makes batches of similar length, and keeps the order."""

    def translate(sources: Sequence[list[int]]) -> list[list[int]]:
        """Translate sentences."""
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        found: list[list[int]] = [[] for _ in sources]
        for start in range(0, len(order), num_sentences):
            rows = order[start : start + num_sentences]
            targets = translate_batch([sources[i] for i in rows], beam_size)
            for i, target in zip(rows, targets, strict=True):
                found[i] = target
        return found

    return translate


def _padded(sources: Sequence[list[int]], *, pad_id: int, eos_id: int) -> "Tensor":
    import torch

    rows = [torch.tensor([*source, eos_id]) for source in sources]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad_id)


def _until_eos(row: list[int]) -> list[int]:
    return list(itertools.takewhile(lambda i: i != EOS_ID, row))


def _limit(decoding: Any, sources: Sequence[Sequence[int]]) -> int:
    longest = 1 + max(len(source) for source in sources)
    return int(longest * decoding.max_length_factor) + int(decoding.max_length_offset)


LOADERS: dict[str, Callable[[argparse.Namespace], tuple[list[Setup], Ready]]] = {
    "Hugging Face": hugging_face,
    "CTranslate2": ctranslate2,
}

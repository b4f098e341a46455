"""Sequences that the model has never seen are reversed without a mistake."""

from pathlib import Path

import pytest
import torch

from transformer_mt.bundle import load_bundle
from transformer_mt.config.sources import ReverseSource
from transformer_mt.data.sources import open_source, read_pairs
from transformer_mt.training.trainer import train
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.translator import Translator


def pairs_of(**settings):
    source = open_source(
        ReverseSource(**{"type": "reverse"} | settings), src_lang="a", tgt_lang="b"
    )
    return list(zip(*read_pairs(source), strict=True))


@pytest.mark.parametrize(
    ("reverse_target", "num_steps"),
    [(False, 500), pytest.param(True, 300, marks=pytest.mark.slow)],
)
def test_reversing_digits_reaches_exact_match(run_config, reverse_target, num_steps):
    known = {"type": "reverse", "num_pairs": 10_000, "max_length": 5}
    config = run_config(
        data__reverse_target=reverse_target,
        data__train=[known],
        data__valid={"type": "reverse", "num_pairs": 50, "max_length": 5, "seed": 2},
        model={
            "d_model": 64,
            "d_ff": 128,
            "num_heads": 4,
            "num_encoder_layers": 1,
            "num_decoder_layers": 1,
            "dropout": 0.0,
        },
        training__max_tokens=512,
        training__lr=0.005,
        training__schedule={"type": "linear", "warmup_steps": 100},
        training__label_smoothing=0.0,
        training__max_steps=num_steps,
        training__log_every_steps=50,
        training__validation={"every_steps": num_steps, "num_samples": 0, "beam_size": 1},
    )
    result = train(config)
    seen = set(pairs_of(**known))
    unseen = [pair for pair in pairs_of(num_pairs=500, max_length=5, seed=3) if pair not in seen]
    assert len(unseen) > 100
    sources, references = map(list, zip(*unseen, strict=True))
    bundle = load_bundle(Path(result.run_dir) / "best", device=torch.device("cpu"))
    translations = Translator(bundle, SearchOptions.from_settings(config.decoding)).translate(
        sources
    )
    wrong = [
        (source, translation.text)
        for source, reference, translation in zip(sources, references, translations, strict=True)
        if translation.text != reference
    ]
    # None was wrong with seeds 4 to 6 and the kernels of a processor with SSE4.1 alone.
    assert len(wrong) <= 1, wrong

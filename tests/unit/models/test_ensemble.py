"""Ensembles on the command line; what they compute is in the contracts of decoders."""

import json
import math

import pytest
import torch
from typer.testing import CliRunner

from transformer_mt.bundle import load_bundle, save_bundle, weights_of
from transformer_mt.cli.main import app
from transformer_mt.models.build import build_model
from transformer_mt.text.tokenizer_training import train_tokenizers


@pytest.fixture(scope="module")
def other(tiny_bundle, tmp_path_factory):
    """A bundle with the vocabulary of the tiny one and other weights."""
    bundle = load_bundle(tiny_bundle)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = build_model(bundle.config.model, src_vocab_size=400, tgt_vocab_size=400)
    folder = tmp_path_factory.mktemp("other") / "bundle"
    save_bundle(
        folder,
        config=bundle.config,
        tokenizers=bundle.tokenizers,
        state_dict=weights_of(model),
        scores={},
    )
    return folder


@pytest.fixture
def score(tmp_path, tiny_text):
    def run(*arguments):
        files = []
        for side, lines in zip(("src", "tgt"), tiny_text, strict=True):
            (tmp_path / side).write_text("".join(f"{line}\n" for line in lines))
            files += [f"--{side}", str(tmp_path / side)]
        result = CliRunner().invoke(app, ["score", *files, "--json", *map(str, arguments)])
        assert result.exit_code == 0, result.stderr
        return [json.loads(line)["token_log_probs"] for line in result.stdout.splitlines()]

    return run


def test_scores_of_an_ensemble_are_mean_probabilities(tiny_bundle, other, score):
    first, second = score("--model", tiny_bundle), score("--model", other)
    both = score("--model", tiny_bundle, "--model", other, "--ensemble-weights", "1,3")
    for a, b, mean in zip(first, second, both, strict=True):
        expected = [
            math.log(math.exp(x) / 4 + 3 * math.exp(y) / 4) for x, y in zip(a, b, strict=True)
        ]
        assert mean == pytest.approx(expected, abs=1e-4)


def test_models_of_other_vocabularies_are_refused(tiny_bundle, tiny_text, tmp_path):
    bundle = load_bundle(tiny_bundle)
    tokenizers = train_tokenizers(*tiny_text, joint=True, type="bpe", vocab_size=350)
    model = build_model(bundle.config.model, src_vocab_size=350, tgt_vocab_size=350)
    save_bundle(
        tmp_path / "bundle",
        config=bundle.config,
        tokenizers=tokenizers,
        state_dict=weights_of(model),
        scores={},
    )
    arguments = ["translate", "--model", str(tiny_bundle), "--model", str(tmp_path / "bundle")]
    result = CliRunner().invoke(app, arguments, input="dog\n")
    assert result.exit_code == 4
    assert "has another vocabulary than" in result.stderr

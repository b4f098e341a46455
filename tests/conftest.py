"""What tests of many modules use: a small text, and a model bundle with random weights."""

import logging
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transformer_mt.config.schema import Config

WORDS = {
    "dog": "Hund", "cat": "Katze", "house": "Haus", "tree": "Baum", "man": "Mann", "car": "Auto",
    "red": "rot", "big": "gross", "old": "alt", "sees": "sieht", "runs": "läuft", "has": "hat",
    "a": "ein", "the": "das", "and": "und", "in": "in", "near": "nahe", "quickly": "schnell",
}  # fmt: skip


def small_text(num_lines: int, *, seed: int = 0) -> tuple[list[str], list[str]]:
    """Lines of an invented English, and the same word by word in an invented German."""
    rng = random.Random(seed)
    sources, targets = [], []
    for _ in range(num_lines):
        words = rng.choices(list(WORDS), k=rng.randint(2, 10))
        sources.append(" ".join(words).capitalize() + ".")
        targets.append(" ".join(WORDS[word] for word in words).capitalize() + ".")
    return sources, targets


def pytest_configure() -> None:
    """Start alike everywhere.

    A shell in the background tells its children not to listen to Ctrl-C; pytest-xdist tells its
    workers the width of its own terminal.
    """
    os.environ.pop("COLUMNS", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="there is no CUDA device"))


@pytest.fixture(autouse=True)
def _plain_logging() -> None:
    """Undo how a command, of another test or of a fixture for many tests, has set up logging."""
    package = logging.getLogger("transformer_mt")
    package.handlers, package.propagate = [], True
    for name in ("transformer_mt", "transformer_mt.translation"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle directory: a tokenizer of 400 pieces, a random Transformer of 2 + 2 small layers.

    Its config has the test sets `first` and `second` of 12 and 7 lines, and 9 for validation.
    """
    import torch

    from transformer_mt.bundle import save_bundle, weights_of
    from transformer_mt.models.build import build_model
    from transformer_mt.text.tokenizer_training import train_tokenizers

    folder = tmp_path_factory.mktemp("tiny")
    text = small_text(400)
    tokenizers = train_tokenizers(*text, joint=True, type="bpe", vocab_size=400)
    sets = {}
    for name, size in {"train": 20, "valid": 9, "first": 12, "second": 7}.items():
        sets[name] = {"type": "text"}
        for side, lines in zip(("src", "tgt"), small_text(size, seed=size), strict=True):
            path = folder / f"{name}.{side}"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            sets[name][side] = str(path)
    config = Config.model_validate(
        {
            "name": "tiny",
            "data": {
                "src_lang": "en",
                "tgt_lang": "de",
                "train": [sets["train"]],
                "valid": sets["valid"],
                "test": {name: sets[name] for name in ("first", "second")},
            },
            "model": {
                "d_model": 32,
                "d_ff": 64,
                "num_heads": 4,
                "num_encoder_layers": 2,
                "num_decoder_layers": 2,
                "tie_embeddings": "none",
            },
            "tokenizer": {"vocab_size": 400},
            "training": {"max_steps": 1},
            "decoding": {"max_length_offset": 8},
        }
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = build_model(
            config.model,
            src_vocab_size=tokenizers.src.vocab_size,
            tgt_vocab_size=tokenizers.tgt.vocab_size,
        )
    # Sharper than fresh weights, so that candidates are never nearly equal.
    weights = {
        name: 6 * weight if name == "decoder.output.weight" else weight
        for name, weight in weights_of(model).items()
    }
    save_bundle(
        folder / "bundle", config=config, tokenizers=tokenizers, state_dict=weights, scores={}
    )
    return folder / "bundle"


@pytest.fixture(scope="session")
def tagged_bundle(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle directory: a random model of one vocabulary, from en and fr to de and fr."""
    import torch

    from transformer_mt.bundle import load_bundle, save_bundle, weights_of
    from transformer_mt.models.build import build_model

    one = load_bundle(tiny_bundle)
    values = one.config.model_dump()
    first = values["data"]["train"][0]
    from_french = first | {"src_lang": "fr"}
    values["data"] |= {
        "language_tags": {"target": True, "languages": ["fr"]},
        "train": [first, from_french],
        "valid": {"type": "joined", "sources": [first, from_french]},
    }
    values["model"]["tie_embeddings"] = "all"
    config = Config.model_validate(values)
    tokenizers = one.tokenizers.with_control_symbols(config.data.tags())
    size = tokenizers.src.vocab_size
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = build_model(config.model, src_vocab_size=size, tgt_vocab_size=size)
    folder = tmp_path_factory.mktemp("tagged") / "bundle"
    weights = weights_of(model)
    save_bundle(folder, config=config, tokenizers=tokenizers, state_dict=weights, scores={})
    return folder


@pytest.fixture(scope="session")
def tiny_text() -> tuple[list[str], list[str]]:
    """30 sources that `tiny_bundle` has pieces for, and their targets."""
    return small_text(30, seed=7)


@pytest.fixture
def quick_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes of devices start from one that has imported torch, and not from nothing."""
    import multiprocessing

    from transformer_mt.translation import workers

    multiprocessing.set_forkserver_preload([workers.__name__])
    context = multiprocessing.get_context("forkserver")
    monkeypatch.setattr(workers, "get_context", lambda method: context)


@pytest.fixture(scope="session")
def corpus_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where runs of all tests keep their tokenized texts, so that equal ones are made once."""
    return tmp_path_factory.mktemp("corpora")


@pytest.fixture
def learning_curves() -> None:
    """Let runs of `run_config` draw their learning curves, which takes half of their time."""


@pytest.fixture
def run_config(
    tmp_path: Path,
    corpus_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Callable[..., Config]:
    """Make settings of a small run in this test's folder: see `tiny_runs.tiny_config`."""
    from tests.tiny_runs import tiny_config

    if "learning_curves" not in request.fixturenames:
        monkeypatch.setattr(
            "transformer_mt.training.reporting.draw_learning_curves", lambda *_: None
        )

    def make(folder: str = "", **changes: Any) -> Config:
        return tiny_config(tmp_path / folder, corpus_dir=corpus_dir, **changes)

    return make

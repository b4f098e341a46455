"""Worker processes that are killed or fail: the run continues, with the same data."""

import errno
import io
import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import small_text
from tests.tiny_runs import metrics_without_times, tiny_config
from transformer_mt.data import tokenization
from transformer_mt.data.filters import Filters
from transformer_mt.data.tokenization import encode_pairs
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.text.tokenizer_training import train_tokenizers
from transformer_mt.training.run_directory import RunDirectory
from transformer_mt.training.trainer import train


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    return train_tokenizers(*small_text(400), joint=True, type="bpe", vocab_size=400)


def test_processes_that_tokenize_are_killed_and_the_tokens_are_the_same(
    tokenizers, monkeypatch, caplog
):
    monkeypatch.setattr(tokenization, "_CHUNK_PAIRS", 50)
    pairs = list(zip(*small_text(20_000), strict=True))

    def murderous() -> Iterator[tuple[str, str]]:
        victims = 0
        for number, pair in enumerate(pairs):
            yield pair
            # The first is killed before it is up, the second at work.
            if number in (1_000, 15_000) and (children := multiprocessing.active_children()):
                os.kill(children[0].pid or 0, signal.SIGKILL)
                victims += 1
        assert victims == 2

    def tokens(texts: Iterator[tuple[str, str]], num_workers: int) -> list[list[int]]:
        filters = Filters(drop_duplicates=False)
        chunks = encode_pairs(texts, tokenizers, filters=filters, num_workers=num_workers)
        return [chunk.src.tolist() + chunk.tgt.tolist() for chunk in chunks]

    found = tokens(murderous(), num_workers=2)
    assert caplog.text.count("a process that tokenizes was killed: starting new ones") >= 1
    assert found == tokens(iter(pairs), num_workers=1)


class ClosedTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise OSError(errno.EIO, "Input/output error")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    folder = tmp_path_factory.mktemp("undisturbed")
    return metrics_without_times(Path(train(tiny_config(folder, corpus_dir=folder)).run_dir))


@pytest.mark.parametrize(
    "part",
    [
        "tracker opens",
        "tracker writes",
        "tracker closes",
        "samples",
        "picture",
        "terminal",
        "clock",
    ],
)
def test_failing_trackers_and_pictures_do_not_change_the_run(
    run_config, undisturbed, monkeypatch, caplog, part
):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    if part.startswith("tracker"):
        method = {"opens": "__init__", "writes": "add_scalar", "closes": "close"}[part.split()[1]]
        monkeypatch.setattr(f"torch.utils.tensorboard.SummaryWriter.{method}", fail)
    elif part == "terminal":  # was closed, and the run outlives it
        monkeypatch.setattr("transformer_mt.training.reporting.sys.stderr", ClosedTerminal())
    elif part == "clock":  # jumps by a day, back and forth
        days = itertools.cycle((0, 1, -1))
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + 86400 * next(days))
    elif part == "picture":
        monkeypatch.setattr("transformer_mt.training.reporting.draw_learning_curves", fail)
    else:
        original = RunDirectory.write_samples

        def write_samples(self, *arguments):
            with monkeypatch.context() as patch:
                patch.setattr("transformer_mt.storage.folders.claimed_file", fail)
                original(self, *arguments)

        monkeypatch.setattr(RunDirectory, "write_samples", write_samples)
    result = train(run_config(training__tensorboard=part.startswith("tracker")))
    assert metrics_without_times(Path(result.run_dir)) == undisturbed
    warning = {
        "tracker": "training.tensorboard: left out from here on: OSError",
        "terminal": "",
        "clock": "",
        "samples": "no samples of step",
        "picture": "no learning curve: OSError",
    }[part.split()[0]]
    assert warning in caplog.text

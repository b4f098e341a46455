"""Programs that die at any moment: the same command finishes as if nothing had happened."""

import os
import random
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.faults.dying import DEAD, dies_at, run_in_child
from tests.tiny_runs import metrics_without_times, tiny_config, weights_at
from transformer_mt.bundle import load_bundle, weights_of
from transformer_mt.config.loading import RECIPES, load_config
from transformer_mt.config.schema import Config
from transformer_mt.data.lexicon import Lexicon
from transformer_mt.errors import TmtError
from transformer_mt.text.tokenizer_directory import load_tokenizers, save_tokenizers
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.training.averaging import average_run
from transformer_mt.training.checkpoint import list_checkpoints, step_of
from transformer_mt.training.run_directory import RunDirectory
from transformer_mt.training.trainer import train

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def outcome(run: Path, step: int) -> tuple[dict[str, Tensor], list[dict], dict[str, Tensor]]:
    best = load_bundle(run / "best").model.state_dict()
    return weights_at(run, step), metrics_without_times(run), best


def assert_same_outcome(run: Path, expected: Path, step: int) -> None:
    for found, wanted in zip(outcome(run, step), outcome(expected, step), strict=True):
        if isinstance(found, dict):
            assert found.keys() == wanted.keys()
            assert all(torch.equal(tensor, wanted[name]) for name, tensor in found.items())
        else:
            assert found == wanted
    assert leftovers(run.parents[1]) == []


def leftovers(folder: Path) -> list[Path]:
    ends = (".old", ".unfinished")
    return [p for p in folder.rglob("*") if ".tmp-" in p.name or p.name.endswith(ends)]


MULTI30K = Path("data/multi30k/train.en")


def multi30k(folder: Path, *, max_steps: int) -> Config:
    """Settings of the first updates of the recipe multi30k_tiny, scored by loss on 40 pairs."""
    if not MULTI30K.exists():
        pytest.skip(f"needs {MULTI30K} (scripts/get_corpus.py multi30k)")
    valid = {side: folder.parent / f"valid.{lang}" for side, lang in (("src", "en"), ("tgt", "de"))}
    for path in valid.values():
        lines = MULTI30K.with_name(f"val{path.suffix}").read_text(encoding="utf-8").split("\n")
        path.write_text("\n".join(lines[:40]) + "\n", encoding="utf-8")
    changes = {f"data.valid.{side}": path for side, path in valid.items()} | {
        "name": "tiny",
        "data.corpus_dir": folder.parent / "corpora",
        "training.max_minutes": "null",
        "training.max_steps": max_steps,
        "training.log_every_steps": 2,
        "training.runs_dir": folder / "runs",
        "training.checkpoints.keep_last": 1,
        "training.validation.every_steps": 4,
        "training.validation.metrics": "[]",
        "training.validation.select_by": "loss",
        "training.validation.num_samples": 1,
    }
    overrides = [f"{setting}={value}" for setting, value in changes.items()]
    return load_config(RECIPES / "multi30k_tiny.yaml", overrides)


def sweep(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.sweep)


@pytest.mark.parametrize(
    ("text", "fate", "every"),
    [
        sweep("digits", "killed", 1),
        sweep("digits", "power lost", 1),
        sweep("digits", "disk full", 2),
        sweep("multi30k", "killed", 8),
        sweep("multi30k", "power lost", 8),
        ("digits", "power lost", 81),
        ("digits", "disk full", 81),
    ],
)
def test_a_run_that_dies_at_any_write_is_finished_by_the_same_command(
    run_config, tmp_path, text, fate, every
):
    """Tokenizer, corpus, validations, best model, checkpoints, pruning, average, result."""
    if text == "multi30k":
        whole_settings, settings = (multi30k(tmp_path / n, max_steps=8) for n in ("whole", "dying"))
    else:
        changes = {"training__checkpoints__keep_last": 1, "training__max_steps": 8}
        whole_settings = run_config("whole", **changes)
        own = {"data__corpus_dir": str(tmp_path / "dying" / "corpora")}
        settings = run_config("dying", **changes, **own)
    whole = Path(train(whole_settings).run_dir)
    folder = Path(settings.training.runs_dir).parent

    def live_dangerously(number: int) -> None:
        dies_at(number, folder, fate)
        try:
            train(settings)
        except TmtError as error:
            is_clear = re.fullmatch(r"[^\n]*cannot write: no space left on [^\n]*", str(error))
            is_clear = is_clear and ".tmp-" not in str(error)
            raise SystemExit(DEAD if is_clear and fate == "disk full" else 1) from error

    number, num_points = 1 + every // 2, 0
    while (code := run_in_child(partial(live_dangerously, number))) == DEAD:
        if fate == "disk full":
            assert [p for p in leftovers(folder) if not p.name.endswith(".unfinished")] == []
        assert run_in_child(lambda: train(settings)) == 0, f"not finished after point {number}"
        assert_same_outcome(folder / "runs" / "tiny", whole, 8)
        shutil.rmtree(folder)
        number += every
        num_points += 1
    print(f"{num_points} points of {number - every}")
    assert code == 0, f"point {number}"
    assert num_points >= 2
    assert_same_outcome(folder / "runs" / "tiny", whole, 8)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    return Path(train(tiny_config(folder, corpus_dir=folder / "corpora")).run_dir)


def average(run: Path, output: Path, number: int) -> None:
    average_run(RunDirectory(run), output, which="last", number=number)


def sum_of_weights(model: torch.nn.Module) -> float:
    return sum(float(weight.sum()) for weight in weights_of(model).values())


def write_tokenizer(run: Path, output: Path, number: int) -> None:
    src = load_tokenizers(run / "tokenizer").src
    tgt = src if number == 1 else load_tokenizers(run / "tokenizer").src
    save_tokenizers(Tokenizers(src=src, tgt=tgt), output)  # one file, or two


def write_shortlist(run: Path, output: Path, number: int) -> None:
    tokenizers = load_tokenizers(run / "tokenizer")
    table = np.full((tokenizers.src.vocab_size, 2), number + 3, dtype=np.int32)
    Lexicon(table, table[0]).save(output, tokenizers)


def read_shortlist(run: Path, output: Path) -> list[int]:
    lexicon = Lexicon.load(output, load_tokenizers(run / "tokenizer"))
    return lexicon.candidates.ravel().tolist()


WRITERS: dict[str, tuple[Callable[[Path, Path, int], None], Callable[[Path, Path], object]]] = {
    "average": (average, lambda _, output: sum_of_weights(load_bundle(output).model)),
    "tokenizer": (write_tokenizer, lambda _, output: load_tokenizers(output).joint),
    "shortlist": (write_shortlist, read_shortlist),
}


@pytest.mark.parametrize("every", [sweep(1), 5])
@pytest.mark.parametrize("fate", ["killed", "power lost", "disk full"])
@pytest.mark.parametrize("kind", WRITERS)
def test_files_of_other_commands_are_whole_or_unchanged_after_a_crash(
    finished_run, tmp_path, kind, fate, every
):
    run = finished_run
    write, read = WRITERS[kind]
    folder = tmp_path / "written"
    versions = []
    for number in (1, 2):
        write(run, folder / "wanted", number)
        versions.append(read(run, folder / "wanted"))
    assert versions[0] != versions[1]

    def write_dangerously(number: int) -> None:
        dies_at(number, folder, fate)
        try:
            write(run, folder / "it", 2)
        except TmtError as error:
            is_clear = str(error).startswith(f"{folder / 'it'}: cannot write: no space left")
            raise SystemExit(DEAD if is_clear else 1) from error

    code, number, num_points = DEAD, 1 + every // 2, 0
    while code == DEAD:
        for there_before in (False, True):
            if there_before:
                write(run, folder / "it", 1)
            code = run_in_child(partial(write_dangerously, number))
            if code == DEAD and (there_before or (folder / "it").exists()):
                assert read(run, folder / "it") in versions
            write(run, folder / "it", 2)
            assert read(run, folder / "it") == versions[1]
            assert leftovers(folder) == []
            (folder / "it").rename(tmp_path / f"{number} {there_before}")
        number += every
        num_points += 1
    print(f"{num_points} points of {number - every}, with and without an older one")
    assert code == 0
    assert num_points >= 2


def test_a_run_that_is_put_aside_is_whole_in_one_of_two_folders(run_config, finished_run):
    settings = run_config()
    run = Path(settings.training.runs_dir) / "tiny"
    shutil.copytree(finished_run, run)
    names = {path.relative_to(run) for path in run.rglob("*")}

    def dies(number: int) -> None:
        dies_at(number, run.parent, "killed")
        RunDirectory(run).claim(settings, fresh=True)

    number = 1
    while run_in_child(partial(dies, number)) == DEAD:
        aside = run.with_name("tiny.old-1")
        found = aside if aside.exists() else run
        assert {path.relative_to(found) for path in found.rglob("*")} >= names
        assert load_bundle(found / "best")
        again = RunDirectory(run)
        again.claim(settings, fresh=True)
        again.release()
        assert leftovers(run.parent) == []
        shutil.rmtree(run.parent)
        shutil.copytree(finished_run, run)
        number += 1
    assert number > 3


@pytest.mark.parametrize("num_kills", [pytest.param(260, marks=pytest.mark.sweep), 4])
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_never_was(run_config, num_kills):
    changes = {"training__max_steps": 3 * num_kills, "training__validation__every_steps": 2}
    whole = Path(train(run_config("whole", **changes)).run_dir)
    settings = run_config("killed", **changes)
    checkpoints_dir = Path(settings.training.runs_dir) / "tiny" / "checkpoints"
    rng = random.Random(1)
    kills, code, seconds, before = 0, 1, 0.3, 0
    while code:
        code = run_in_child(lambda: train(settings), kill_after=rng.uniform(0.02, 2 * seconds))
        assert code in (0, -9)
        kills += code == -9
        # On a busy machine a run needs longer to come to its next checkpoint.
        step = max(map(step_of, list_checkpoints(checkpoints_dir)), default=0)
        seconds = seconds * 1.5 if step == before else max(0.3, seconds / 1.5)
        before = step
    print(f"{kills} kills")
    assert kills >= num_kills // 4
    assert_same_outcome(Path(settings.training.runs_dir) / "tiny", whole, 3 * num_kills)

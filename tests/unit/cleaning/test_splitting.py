"""Splits: sizes as asked for, and no relative of a held-out pair in training."""

from pathlib import Path

import numpy as np
import pytest

from tests.commands import tmt
from transformer_mt.cleaning.splitting import components

_LIST = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi"
GREEK = _LIST.split()


def pairs() -> list[tuple[str, str]]:
    """Sixty different pairs, some with a second translation or in other case."""
    rng = np.random.default_rng(1)
    some = [(" ".join(rng.choice(GREEK, 6)), f"Satz {i} {rng.choice(GREEK)}") for i in range(60)]
    again = [(src, f"anders {i}") for i, (src, _) in enumerate(some[:20])]
    return [*some, *again, *((src.upper() + "!", tgt.lower()) for src, tgt in some[20:30])]


def write(folder: Path, found: list[tuple[str, str]]) -> tuple[Path, Path]:
    paths = folder / "all.en", folder / "all.de"
    for path, side in zip(paths, zip(*found, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return paths


def read(folder: Path, name: str) -> list[tuple[str, str]]:
    sides = ((folder / f"{name}.{end}").read_text("utf-8").splitlines() for end in ("en", "de"))
    return list(zip(*sides, strict=True))


def test_sets_have_their_sizes_and_share_no_source_or_target(tmp_path):
    output = tmp_path / "sets"
    arguments = ("--valid", 5, "--test", 7, "--output", output)
    done = tmt("data", "split", *write(tmp_path, pairs()), *arguments)
    assert done.exit_code == 0, done.stderr
    sets = {name: read(output, name) for name in ("train", "valid", "test")}
    assert (len(sets["valid"]), len(sets["test"])) == (5, 7)
    assert set(sets["train"]) < set(pairs())
    for side in (0, 1):
        keys = {n: {p[side].lower().rstrip("!") for p in own} for n, own in sets.items()}
        assert keys["train"].isdisjoint(keys["valid"] | keys["test"])
        assert keys["valid"].isdisjoint(keys["test"])


def test_documents_stay_whole(tmp_path):
    some = pairs()[:60]
    for place in (48, 36, 24, 12):
        some.insert(place, ("", ""))
    output = tmp_path / "sets"
    done = tmt("data", "split", *write(tmp_path, some), "--documents", "--test", 13, "-o", output)
    assert done.exit_code == 0, done.stderr
    held = {some.index(pair) // 13 for pair in read(output, "test")}
    assert len(held) == 2
    assert all(some.index(pair) // 13 not in held for pair in read(output, "train") if pair[0])


@pytest.mark.parametrize(("test", "what"), [(100, "ask for fewer"), (60, "nothing is left")])
def test_more_than_there_is_cannot_be_held_out(tmp_path, test, what):
    files = write(tmp_path, pairs()[:60])
    done = tmt("data", "split", *files, "--test", test, "--output", tmp_path / "sets")
    assert done.exit_code == 3
    assert what in done.stderr
    assert not (tmp_path / "sets").exists()


def test_components_are_those_of_a_walk_over_the_edges():
    rng = np.random.default_rng(2)
    edges = rng.integers(0, 80, (60, 2))
    found = components(80, [(edges[:, 0], edges[:, 1])])
    expected = np.arange(80)
    for _ in range(80):
        for a, b in edges:
            expected[[a, b]] = expected[[a, b]].min()
    assert np.array_equal(found, expected)

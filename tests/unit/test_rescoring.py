"""N-best lists ranked again: `tmt rescore` against plain sums."""

from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from transformer_mt.bundle import load_bundle
from transformer_mt.cli.main import app
from transformer_mt.decoding.options import SearchOptions
from transformer_mt.decoding.rescoring import parse_entry, read_n_best
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import DataError


def run(command: str, *arguments: object) -> Result:
    return CliRunner().invoke(app, [command, *map(str, arguments)], env={"TMT_MODEL": None})


@pytest.fixture(scope="module")
def files(tiny_bundle, tiny_text, tmp_path_factory) -> tuple[Path, Path]:
    """Sources, one of them blank, and the list that the tiny model makes of them."""
    folder = tmp_path_factory.mktemp("lists")
    src, listed = folder / "src", folder / "list"
    src.write_text("".join(f"{line}\n" for line in ["", *tiny_text[0][:8]]), encoding="utf-8")
    made = run("translate", "--model", tiny_bundle, "--input", src, "--output", listed,
               "--n-best", 4)  # fmt: skip
    assert made.exit_code == 0, made.stderr
    return src, listed


def groups_of(text: str) -> list[list]:
    lines = text.splitlines()
    num_sources = int(lines[-1].partition(" ")[0]) + 1
    return list(read_n_best(lines, "list", num_sources=num_sources))


def test_scores_are_weighted_sums_and_fall(files, tiny_bundle):
    src, listed = files
    result = run("rescore", "--src", src, "--model", tiny_bundle, "--model", tiny_bundle,
                 "--input", listed, "--weights", "0.5,-2,0.25", "--n-best", 4)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    model = Translator(load_bundle(tiny_bundle), SearchOptions())
    sources = src.read_text().splitlines()
    changed = 0
    for old, new in zip(groups_of(listed.read_text()), groups_of(result.stdout), strict=True):
        wanted = []
        for entry in old:
            (forced,) = model.score([sources[entry.number]], [entry.text])
            score = forced.log_prob / ((5 + len(forced.tokens)) / 6) ** 0.6
            wanted.append((0.5 * entry.score - 2 * score + 0.25 * score, entry.text, score))
        wanted.sort(key=lambda candidate: -candidate[0])
        assert [entry.score for entry in new] == pytest.approx([w[0] for w in wanted], abs=1e-3)
        for entry, (_, text, score) in zip(new, wanted, strict=True):
            assert entry.text == text
            words = entry.features.split()
            assert words[::2] == ["LogProb=", "Model1=", "Model2="]
            assert [float(x) for x in words[3::2]] == pytest.approx([score, score], abs=1e-3)
        changed += [entry.text for entry in new] != [entry.text for entry in old]
    assert changed > 0


def test_by_its_own_scores_alone_a_list_gives_the_best_translations(files, tiny_bundle):
    src, listed = files
    result = run("rescore", "--src", src, "--model", tiny_bundle, "--input", listed,
                 "--weights", "1,0")  # fmt: skip
    firsts = [group[0].text for group in groups_of(listed.read_text())]
    assert result.stdout == "".join(f"{text}\n" for text in firsts)


def test_text_may_hold_the_separator():
    line = "3 ||| a ||| b ||| LogProb= -1.000000 ||| -0.500000"
    entry = parse_entry(line, "list:1")
    assert (entry.number, entry.text, entry.features, entry.score) == (
        3, "a ||| b", "LogProb= -1.000000", -0.5)  # fmt: skip
    assert str(entry) == line


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["0 ||| a ||| -1"], "list:1: expected NUMBER"),
        (["x ||| a ||| F= 1 ||| -1"], "list:1: expected NUMBER"),
        (["0 ||| a ||| F= 1 ||| nan"], "list:1: expected NUMBER"),
        ([""], "list:1: expected NUMBER"),
        (["1 ||| a ||| F= 1 ||| -1"], "list:1: expected a candidate of source 0"),
        (["0 ||| a |||  ||| -1", "2 ||| a |||  ||| -1"], "list:2: expected a candidate"),
        (["0 ||| a |||  ||| -1", "1 ||| a |||  ||| -1", "0 ||| a |||  ||| -1"], "list:3: expected"),
        (["0 ||| a |||  ||| -1"], "candidates for 1 lines; there are 2"),
        ([], "candidates for 0 lines; there are 2"),
    ],
)
def test_damaged_lists_are_refused_with_the_place(lines, words):
    with pytest.raises(DataError, match=words):
        list(read_n_best(lines, "list", num_sources=2))


@pytest.mark.parametrize("weights", ["1", "1,2,3", "a,b", "1,nan", ""])
def test_weights_that_do_not_fit_are_refused(files, tiny_bundle, weights):
    src, listed = files
    result = run("rescore", "--src", src, "--model", tiny_bundle, "--input", listed,
                 "--weights", weights)  # fmt: skip
    assert result.exit_code == 2
    assert "expected 2 numbers" in result.stderr

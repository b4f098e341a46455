"""Corpora of other tasks: what a source and its targets are, and splits that share nothing."""

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

import task_corpora
import task_scores
from task_corpora import Example, Task

TASK = Task(("x", "y"), lambda _: [], "none", num_valid=3, num_test=4, num_references=2)


def tree(text: str) -> tuple[str, str] | None:
    example = task_corpora.tree_example(ast.parse(text, mode="eval").body)
    return None if example is None else (example.src, *example.targets)


def test_a_tree_is_that_of_the_expression_and_names_are_letters() -> None:
    assert tree("path.join(root, name + 'x')") == (
        "a.b(c, d + 's')",
        "(Call (Attribute a b) c (BinOp d Add 's'))",
    )
    assert tree("not x[-12] if y else None") == (
        "not b[-0] if a else None",
        "(IfExp a (UnaryOp Not (Subscript b (UnaryOp USub 0))) None)",
    )
    assert tree("x") is None, "too small"
    assert tree("f(x, key=1)") is None, "of a rare kind"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(Call (Attribute a b) c (BinOp d Add 's'))", True),
        ("a", True),
        ("(Tuple)", True),
        ("(Call (Attribute a b) c", False),
        ("(Call a))", False),
        ("(BinOp a Add)", False),
        ("(Bin a Add b)", False),
        ("a b", False),
        ("", False),
    ],
)
def test_a_line_is_a_tree_if_its_brackets_close_and_its_nodes_are_whole(
    text: str, expected: bool
) -> None:
    assert task_scores.is_tree(text) == expected


def test_splits_share_no_group_and_have_one_of_each_in_valid_and_test() -> None:
    examples = [Example(f"s{i}", (f"t{i}",), i // 3) for i in range(60)]
    splits = task_corpora.split(examples, TASK)
    groups = {name: {example.group for example in rows} for name, rows in splits.items()}
    assert [len(splits[name]) for name in ("train", "valid", "test")] == [39, 3, 4]
    assert len(groups["valid"]) + len(groups["test"]) == 7
    assert sum(map(len, groups.values())) == len(set.union(*groups.values())) == 20
    assert task_corpora.split(reversed(examples), TASK) == splits


def test_every_right_target_is_a_pair_in_train_and_a_reference_in_test(tmp_path: Path) -> None:
    rows = [Example("a", ("1", "2"), "a"), Example("b", ("3",), "b")]
    task_corpora.write({"train": rows, "valid": rows, "test": rows}, TASK, tmp_path)
    read = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert (read["train.x"], read["train.y"]) == ("a\na\nb\n", "1\n2\n3\n")
    assert (read["test.x"], read["test.y"], read["test.y2"]) == ("a\nb\n", "1\n3\n", "2\n3\n")


def test_a_folder_that_is_no_corpus_and_one_without_texts_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/a.txt").write_text("mine")
    assert task_corpora.main(["trees", "--output", str(tmp_path / "full")]) == 3
    assert "is there but is no whole corpus" in capsys.readouterr().err
    (tmp_path / "few").mkdir()
    (tmp_path / "few/a.py").write_text("f(x, y)\n")
    few = ["trees", "--from", str(tmp_path / "few"), "--output", str(tmp_path / "out")]
    assert task_corpora.main(few) == 3
    assert "expected more than 3,000 examples" in capsys.readouterr().err
    none = ["summaries", "--from", str(tmp_path / "few"), "--output", str(tmp_path / "out")]
    assert task_corpora.main(none) == 3
    assert "expected files *_Translation-en" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()

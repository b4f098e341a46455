"""`tmt tokenizer`: text in, pieces out, and back."""

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.commands import imports_of
from transformer_mt.cli.main import app
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.text.tokenizer_pair import Tokenizers

ENGLISH = ["dog", "dogs", "house", "houses", "tree", "red", "runs", "running", "quickly", "the"]
GERMAN = ["Hund", "Hunde", "Haus", "Häuser", "Baum", "rot", "läuft", "gelaufen", "schnell", "der"]
TEXT = [
    "der Hund läuft",
    "",
    "  zwei  Leerzeichen ",
    "<s> </s> ▁",
    "x\ty",
    "ß 中文 👩‍👩‍👧",
    "a\u2028b",
]


def run(*arguments: object, text: str = "") -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], input=text.encode())


def joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two made-up texts of 200 lines."""
    folder = tmp_path_factory.mktemp("text")
    rng = random.Random(1)
    for name, words in (("train.en", ENGLISH), ("train.de.gz", GERMAN)):
        text = joined([" ".join(rng.choices(words, k=8)) for _ in range(200)]).encode()
        (folder / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    return folder / "train.en", folder / "train.de.gz"


@pytest.fixture(scope="module")
def joint(files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer") / "joint"
    result = run(
        *("tokenizer", "train", "--input", files[0], "--input", files[1], "--output", directory),
        *("--vocab-size", 330, "--user-symbol", "<2de>"),
    )
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{directory / 'joint.model'}\n"
    return directory


@pytest.fixture(scope="module")
def separate(files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tokenizer") / "separate"
    result = run(
        *("tokenizer", "train", "--src", files[0], "--tgt", files[1], "--output", directory),
        *("--vocab-size", 280, "--type", "unigram"),
    )
    assert result.exit_code == 0, result.output
    return directory


def write_config(path: Path, files: tuple[Path, Path], tokenizer: str) -> Path:
    path.write_text(
        f"""\
name: small
data:
  src_lang: en
  tgt_lang: de
  train: [{{type: text, src: {files[0]}, tgt: {files[1]}}}]
  valid: {{type: text, src: {files[0]}, tgt: {files[1]}}}
tokenizer: {tokenizer}
training: {{max_steps: 1}}
"""
    )
    return path


def test_train_makes_one_vocabulary_or_two(joint: Path, separate: Path) -> None:
    one, two = Tokenizers.load(joint), Tokenizers.load(separate)
    assert one.joint
    assert one.src.vocab_size == 330
    assert one.src.type == "bpe"
    assert one.src.user_symbols == ["<2de>"]
    assert not two.joint
    assert two.src.vocab_size == two.tgt.vocab_size == 280
    assert two.tgt.type == "unigram"


def test_train_on_the_data_of_a_config(
    files: tuple[Path, Path], joint: Path, tmp_path: Path
) -> None:
    settings = "{vocab_size: 400, user_symbols: [<2de>]}"
    config = write_config(tmp_path / "c.yaml", files, settings)
    arguments = ["tokenizer", "train", "--config", config, "--output", tmp_path / "made"]
    result = run(*arguments, "--set", "tokenizer.vocab_size=330")
    assert result.exit_code == 0, result.output
    assert Tokenizers.load(tmp_path / "made").fingerprint() == Tokenizers.load(joint).fingerprint()


@pytest.mark.parametrize("ids", [[], ["--ids"]])
def test_decode_gives_back_what_encode_got(joint: Path, ids: list[str]) -> None:
    encoded = run("tokenizer", "encode", joint, *ids, text=joined(TEXT))
    assert encoded.exit_code == 0, encoded.output
    assert encoded.stdout.count("\n") == len(TEXT)
    assert encoded.stdout.split("\n")[1] == ""
    tokenizer = Tokenizer.load(joint / "joint.model")
    numbers = tokenizer.encode(TEXT[0])
    first = " ".join(map(str, numbers) if ids else tokenizer.pieces(numbers))
    assert encoded.stdout.split("\n")[0] == first
    decoded = run("tokenizer", "decode", joint, *ids, text=encoded.stdout)
    assert decoded.stdout == joined(TEXT)


def test_a_side_is_needed_where_there_are_two(joint: Path, separate: Path) -> None:
    result = run("tokenizer", "encode", separate, text="Hund\n")
    assert result.exit_code == 2
    assert "has two vocabularies: give --side src or --side tgt" in result.stderr
    tokenizers = Tokenizers.load(separate)
    for side, tokenizer in (("src", tokenizers.src), ("tgt", tokenizers.tgt)):
        result = run("tokenizer", "encode", separate, "--side", side, text="Hund\n")
        assert result.stdout == " ".join(tokenizer.pieces(tokenizer.encode("Hund"))) + "\n"
    assert run("tokenizer", "encode", joint, "--side", "tgt", text="Hund\n").exit_code == 0


def test_decode_names_what_is_no_piece_or_id(joint: Path) -> None:
    result = run("tokenizer", "decode", joint, text="▁\n▁ qqq\n")
    assert (result.exit_code, result.stdout) == (3, "\n")
    assert "stdin:2: no such piece in the vocabulary: 'qqq'" in result.stderr
    for cell in ("330", "-1", "x", "²", "9" * 5000):
        result = run("tokenizer", "decode", joint, "--ids", text=f"5 {cell}\n")
        assert result.exit_code == 3
        assert f"stdin:1: expected ids from 0 to 329; got '{cell[:60]}'" in result.stderr


def test_a_line_feed_among_the_bytes_makes_no_line(joint: Path) -> None:
    result = run("tokenizer", "decode", joint, text="<0x61> <0x0A> <0x62>\n")
    assert result.stdout == "a b\n"


def test_inspect_counts_what_it_makes_of_a_text(joint: Path, tmp_path: Path) -> None:
    lines = ["der Hund", "ein 中 Hund 中", ""]
    (tmp_path / "text").write_text(joined(lines), encoding="utf-8")
    result = run("tokenizer", "inspect", joint, "--input", tmp_path / "text", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    tokenizer = Tokenizer.load(joint / "joint.model")
    assert found["tokenizer"]["type"] == "bpe"
    assert found["tokenizer"]["vocab_size"] == 330
    assert found["tokenizer"]["num_bytes"] == 256
    assert found["tokenizer"]["user_symbols"] == ["<2de>"]
    assert found["tokenizer"]["fingerprint"] == tokenizer.fingerprint()
    lengths = [len(piece) for piece in found["tokenizer"]["longest_pieces"]]
    assert lengths == sorted(lengths, reverse=True)
    text = found["text"]
    num_tokens = sum(len(tokenizer.encode(line)) for line in lines)
    assert (text["num_lines"], text["num_words"], text["num_tokens"]) == (3, 6, num_tokens)
    assert text["tokens_per_word"] == pytest.approx(num_tokens / 6)
    assert text["tokens_per_line"] == pytest.approx(num_tokens / 3)
    assert text["longest_line_tokens"] == len(tokenizer.encode(lines[1]))
    assert text["missing_characters"] == [["中", 2]]
    assert text["character_coverage"] == pytest.approx(1 - 2 / sum(map(len, lines)))
    assert text["byte_share"] == pytest.approx(6 / num_tokens)
    assert text["unknown_share"] == 0
    assert 0 < text["used_share"] < 1
    assert text["examples"] == [tokenizer.pieces(tokenizer.encode(line)) for line in lines]


def test_inspect_prints_for_people(joint: Path) -> None:
    result = run("tokenizer", "inspect", joint, text="der Hund\u200d 中\n")
    assert result.exit_code == 0, result.output
    assert "characters missing     U+200D x1 中 (U+4E2D) x1\n" in result.stdout
    assert "pieces                 330\n" in result.stdout
    assert "example                ▁der" in result.stdout
    empty = run("tokenizer", "inspect", joint, text="")
    assert "pieces                 330\n" in empty.stdout
    assert "tokens per word" not in empty.stdout  # of no text


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["--output", "OUT"], 2, "give --input, or --src and --tgt, or --config"),
        (["--output", "OUT", "--src", "EN"], 2, "give --input, or --src and --tgt, or --config"),
        (["--output", "OUT", "--input", "EN", "--config", "x"], 2, "give --input, or --src"),
        (["--output", "OUT", "--input", "EN", "--set", "seed=1"], 2, "--set needs --config"),
        (
            ["--output", "OUT", "--config", "x", "--vocab-size", "5"],
            2,
            "with --config, give --set tokenizer.vocab_size=.. instead",
        ),
        (["--output", "OLD", "--input", "EN"], 2, "holds a tokenizer already"),
        (["--output", "OUT", "--input", "EN", "--input", "missing"], 3, "missing: no such file"),
        (["--output", "OUT", "--input", "EN", "--vocab-size", "100000"], 3, "set tokenizer.vocab"),
        (["--output", "OUT", "--input", "EN", "--user-symbol", "a b"], 2, "user_symbols: 'a b'"),
        (["--output", "EN/x", "--input", "EN", "--vocab-size", "290"], 1, "a file is where"),
    ],
)
def test_train_refuses_in_one_line_and_writes_nothing(
    files: tuple[Path, Path],
    joint: Path,
    tmp_path: Path,
    arguments: list[str],
    exit_code: int,
    message: str,
) -> None:
    names = {"OUT": tmp_path / "out", "EN": files[0], "OLD": joint, "EN/x": files[0] / "x"}
    before = (joint / "joint.model").read_bytes()
    result = run("tokenizer", "train", *(names.get(word, word) for word in arguments))
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert message in result.stderr
    assert not (tmp_path / "out").exists()
    assert (joint / "joint.model").read_bytes() == before


def test_train_refuses_a_config_with_a_trained_tokenizer(
    files: tuple[Path, Path], joint: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path / "c.yaml", files, f"{{path: {joint}}}")
    result = run("tokenizer", "train", "--config", config, "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert "there is nothing to train" in result.stderr


def test_bad_input_and_damaged_tokenizers_are_named(joint: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["tokenizer", "encode", str(joint)], input=b"gut\n\xff\n")
    assert result.exit_code == 3
    assert result.stdout.count("\n") == 1
    assert "stdin:2: byte 1: not UTF-8" in result.stderr
    (tmp_path / "joint.model").write_bytes((joint / "joint.model").read_bytes()[:500])
    result = run("tokenizer", "encode", tmp_path, text="x\n")
    assert result.exit_code == 3
    assert "joint.model: not a whole SentencePiece model" in result.stderr


@pytest.mark.parametrize("command", ["train", "encode", "inspect"])
def test_torch_is_not_imported(
    files: tuple[Path, Path], joint: Path, tmp_path: Path, command: str
) -> None:
    arguments = {
        "train": [
            *("--config", str(write_config(tmp_path / "c.yaml", files, "{vocab_size: 330}"))),
            *("--output", str(tmp_path / "out")),
        ],
        "encode": [str(joint)],
        "inspect": [str(joint)],
    }[command]
    code, loaded, err = imports_of("tokenizer", command, *arguments, data=b"der Hund\n")
    assert code == 0, err
    assert not {"torch", "datasets", "sacrebleu"} & loaded


def test_a_closed_pipe_is_quiet(joint: Path) -> None:
    done = subprocess.run(
        f"yes 'der Hund' | head -200000 | {sys.executable} -m transformer_mt tokenizer encode "
        f"{joint} | head -1",
        shell=True,
        capture_output=True,
        timeout=300,
    )
    assert done.stderr == b""
    assert done.stdout.count(b"\n") == 1


def test_a_run_stands_for_its_tokenizer(joint: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "tokenizer").symlink_to(joint.resolve())
    assert (
        run("tokenizer", "encode", tmp_path, text="a dog\n").stdout
        == run("tokenizer", "encode", joint, text="a dog\n").stdout
    )

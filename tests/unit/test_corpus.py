import errno
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from transformer_mt.data import encoding
from transformer_mt.data.corpus import Corpus, prepare_corpus
from transformer_mt.data.filters import FilterReport, Filters
from transformer_mt.data.line_sources import TextPairs
from transformer_mt.data.pairs import pack_pairs, tokenize_pairs
from transformer_mt.errors import DataError, TmtError
from transformer_mt.text.tokenizer import EOS_ID, Tokenizers
from transformer_mt.text.tokenizer_training import train_tokenizers

WORDS = ["the", "a", "dog", "cat", "sees", "hears", "red", "green", "house", "runs", "old"]


class Pairs:
    """Pairs in memory, as a source."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.pairs = list(pairs)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self.pairs)

    def describe(self) -> str:
        return "pairs in memory"

    def fingerprint(self) -> str:
        return str(hash(tuple(self.pairs)))


def made_up(count: int, seed: int = 1) -> list[tuple[str, str]]:
    rng = np.random.default_rng(seed)
    lines = [" ".join(rng.choice(WORDS, rng.integers(1, 12))) for _ in range(2 * count)]
    return list(zip(lines[::2], lines[1::2], strict=True))


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    src, tgt = zip(*made_up(500), strict=True)
    return train_tokenizers(src, tgt, joint=False, type="bpe", vocab_size=320)


def prepare(
    source: object, tokenizers: Tokenizers, corpus_dir: Path, num_workers: int = 1, **limits: object
) -> Corpus:
    return prepare_corpus(
        source,  # type: ignore[arg-type]
        tokenizers,
        filters=Filters(**limits),  # type: ignore[arg-type]
        corpus_dir=corpus_dir,
        num_workers=num_workers,
    )


def tokens_of(corpus: Corpus) -> list[tuple[list[int], list[int]]]:
    pairs = (corpus.pair(i) for i in range(len(corpus)))
    return [(src.tolist(), tgt.tolist()) for src, tgt in pairs]


def encoded(
    pairs: list[tuple[str, str]], tokenizers: Tokenizers
) -> list[tuple[list[int], list[int]]]:
    return [
        ([*tokenizers.src.encode(src), EOS_ID], [*tokenizers.tgt.encode(tgt), EOS_ID])
        for src, tgt in pairs
    ]


def test_corpus_holds_the_tokens_of_every_pair_in_order(
    tmp_path: Path, tokenizers: Tokenizers
) -> None:
    pairs = made_up(5001)
    corpus = prepare(Pairs(pairs), tokenizers, tmp_path, drop_copies=False)
    expected = encoded(pairs, tokenizers)
    assert tokens_of(corpus) == expected
    assert corpus.num_src_tokens == sum(len(src) for src, _ in expected)
    assert corpus.num_tgt_tokens == sum(len(tgt) for _, tgt in expected)
    assert corpus.longest() == (max(len(s) for s, _ in expected), max(len(t) for _, t in expected))
    assert corpus.report == FilterReport(5001, {})
    index = corpus.longest_pair()
    assert max(map(len, expected[index])) == max(corpus.longest())


def test_many_pairs_are_gathered_at_once(tmp_path: Path, tokenizers: Tokenizers) -> None:
    corpus = prepare(Pairs(made_up(100)), tokenizers, tmp_path)
    rows = np.array([99, 0, 17, 16, 15, 17])
    src, tgt = corpus.gather(rows)
    one_by_one = [corpus.pair(row) for row in rows]
    assert src.tolist() == [token for s, _ in one_by_one for token in s]
    assert tgt.tolist() == [token for _, t in one_by_one for token in t]
    assert corpus.lengths(rows).tolist() == [[len(s), len(t)] for s, t in one_by_one]
    assert corpus.gather(np.array([], dtype=np.int64))[0].tolist() == []


def test_pairs_in_memory_answer_as_a_corpus_does(tmp_path: Path, tokenizers: Tokenizers) -> None:
    pairs = [*made_up(70), ("", "x"), ("y", "")]
    src, tgt = (list(side) for side in zip(*pairs, strict=True))
    in_memory = tokenize_pairs(src, tgt, tokenizers=tokenizers)
    corpus = prepare(Pairs(pairs[:-2]), tokenizers, tmp_path, drop_copies=False)
    assert len(in_memory) == 72
    for i in range(70):
        assert [side.tolist() for side in in_memory.pair(i)] == [
            side.tolist() for side in corpus.pair(i)
        ]
    assert in_memory.pair(70)[0].tolist() == [EOS_ID]
    assert in_memory.pair(71)[1].tolist() == [EOS_ID]
    with pytest.raises(ValueError, match="2 source and 1 target"):
        pack_pairs([[5], [6]], [[7]])


def test_a_pair_takes_two_bytes_a_token_and_little_more(
    tmp_path: Path, tokenizers: Tokenizers
) -> None:
    corpus = prepare(Pairs(made_up(4096)), tokenizers, tmp_path, drop_copies=False)
    sizes = {path.name: path.stat().st_size for path in corpus.directory.iterdir()}
    del sizes["manifest.json"]
    num_tokens = corpus.num_src_tokens + corpus.num_tgt_tokens
    assert sum(sizes.values()) == 2 * num_tokens + 5 * 4096
    assert corpus.src.dtype == np.uint16


def test_large_vocabularies_get_wider_numbers() -> None:
    assert encoding.token_type(65_536) == np.uint16
    assert encoding.token_type(65_537) == np.uint32


def test_workers_change_nothing(
    tmp_path: Path, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "_CHUNK_PAIRS", 50)
    pairs = made_up(1500) + [("", "x"), ("same", "same"), ("a " * 99, "b"), ("new", "y")] * 10
    limits = {"drop_duplicates": True, "max_length": 64, "max_length_ratio": 4.0}
    alone = prepare(Pairs(pairs), tokenizers, tmp_path / "alone", num_workers=1, **limits)
    together = prepare(Pairs(pairs), tokenizers, tmp_path / "together", num_workers=2, **limits)
    files = {path.name: path.read_bytes() for path in alone.directory.iterdir()}
    assert alone.directory.name == together.directory.name
    assert files == {path.name: path.read_bytes() for path in together.directory.iterdir()}


def test_every_dropped_pair_counts_under_one_reason(
    tmp_path: Path, tokenizers: Tokenizers, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = [
        ("the dog", "a cat"),
        (" ", "a cat"),
        ("a cat", "a cat"),
        ("the dog", "a cat"),
        ("the dog sees " * 40, "a cat " * 40),
        ("the dog sees a red house", "a"),
    ]
    caplog.set_level(logging.INFO, "transformer_mt")
    corpus = prepare(
        Pairs(pairs), tokenizers, tmp_path, drop_duplicates=True, max_length=60, max_length_ratio=3
    )
    reasons = ["empty", "copy", "duplicate", "too_long", "ratio"]
    assert corpus.report == FilterReport(6, dict.fromkeys(reasons, 1))
    assert tokens_of(corpus) == encoded(pairs[:1], tokenizers)
    assert Corpus.open(corpus.directory).report == corpus.report
    assert "duplicate  1  16.67%  came before" in caplog.text


def test_nothing_left_is_an_error_with_the_table(tmp_path: Path, tokenizers: Tokenizers) -> None:
    with pytest.raises(DataError) as caught:
        prepare(Pairs([("a", "a"), ("", "b")]), tokenizers, tmp_path)
    assert str(caught.value).splitlines() == [
        "pairs in memory: no pair is left to train on. What was read:",
        "pairs      2 100.00%",
        "kept       0   0.00%",
        "empty      1  50.00%  no text on a side",
        "copy       1  50.00%  target is exactly the source",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_limit_beyond_the_format_is_refused(tmp_path: Path, tokenizers: Tokenizers) -> None:
    with pytest.raises(DataError, match="max_length is 65536; the limit is 65535"):
        prepare(Pairs(made_up(1)), tokenizers, tmp_path, max_length=65_536)


# --- found again, or made again -------------------------------------------------------------------


def test_a_corpus_is_made_once(
    tmp_path: Path, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Pairs(made_up(20))
    first = prepare(source, tokenizers, tmp_path)
    monkeypatch.setattr(Pairs, "__iter__", None)
    assert prepare(source, tokenizers, tmp_path).directory == first.directory


def test_what_decides_the_content_decides_the_folder(
    tmp_path: Path, tokenizers: Tokenizers
) -> None:
    swapped = Tokenizers(src=tokenizers.tgt, tgt=tokenizers.src)
    pairs = made_up(20)
    folders = [
        prepare(Pairs(pairs), tokenizers, tmp_path),
        prepare(Pairs(pairs[:-1]), tokenizers, tmp_path),
        prepare(Pairs(pairs), swapped, tmp_path),
        prepare(Pairs(pairs), tokenizers, tmp_path, max_length=255),
    ]
    assert len({corpus.directory for corpus in folders}) == 4


def test_a_changed_file_is_noticed(tmp_path: Path, tokenizers: Tokenizers) -> None:
    src, tgt = tmp_path / "x.en", tmp_path / "x.de"
    src.write_text("the dog\n")
    tgt.write_text("a cat\n")
    times = (src.stat().st_atime, src.stat().st_mtime)
    prepare(TextPairs(src, tgt), tokenizers, tmp_path / "corpora")
    src.write_text("the cat\n")
    os.utime(src, times)
    corpus = prepare(TextPairs(src, tgt), tokenizers, tmp_path / "corpora")
    assert tokens_of(corpus) == encoded([("the cat", "a cat")], tokenizers)


def damage_tokens(folder: Path) -> None:
    content = bytearray((folder / "tgt.tokens").read_bytes())
    content[10] ^= 1
    (folder / "tgt.tokens").write_bytes(bytes(content))


def change_manifest(folder: Path, **changes: object) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, **changes}))


DAMAGES = {
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "half a manifest": lambda folder: (folder / "manifest.json").write_text('{"kind": "cor'),
    "short file": lambda folder: os.truncate(folder / "src.tokens", 6),
    "missing file": lambda folder: (folder / "lengths").unlink(),
    "changed bit": damage_tokens,
    "newer format": lambda folder: change_manifest(folder, format_version=99),
    "older format": lambda folder: change_manifest(folder, format_version=0),
    "other kind": lambda folder: change_manifest(folder, kind="bundle"),
    "wrong count": lambda folder: change_manifest(folder, num_pairs=19),
    "no counts": lambda folder: change_manifest(folder, longest=None),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_corpus_is_refused_and_made_again(
    damage: str, tmp_path: Path, tokenizers: Tokenizers, caplog: pytest.LogCaptureFixture
) -> None:
    source = Pairs(made_up(20))
    directory = prepare(source, tokenizers, tmp_path).directory
    whole = {path.name: path.read_bytes() for path in directory.iterdir()}
    DAMAGES[damage](directory)
    with pytest.raises(DataError, match=f"{directory}.*remove the folder and repeat the command"):
        Corpus.open(directory)
    again = prepare(source, tokenizers, tmp_path)
    assert "made again" in caplog.text
    assert str(directory) in caplog.text
    assert {path.name: path.read_bytes() for path in again.directory.iterdir()} == whole
    assert [path.name for path in tmp_path.iterdir()] == [directory.name]


def test_old_leftovers_are_removed_and_young_ones_stay(
    tmp_path: Path, tokenizers: Tokenizers
) -> None:
    old, young = tmp_path / ".abc.tmp-1", tmp_path / ".abc.tmp-2"
    for folder in (old, young):
        folder.mkdir()
        (folder / "src.tokens").write_bytes(b"x")
    long_ago = time.time() - 2 * 24 * 3600
    os.utime(old / "src.tokens", (long_ago, long_ago))
    os.utime(old, (long_ago, long_ago))
    prepare(Pairs(made_up(2)), tokenizers, tmp_path)
    assert not old.exists()
    assert young.exists()


# --- faults ---------------------------------------------------------------------------------------


def test_place_of_bad_text_passes_through_the_workers(
    tmp_path: Path, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "_CHUNK_PAIRS", 20)
    src, tgt = tmp_path / "x.en", tmp_path / "x.de"
    src.write_text("a dog\n" * 500)
    tgt.write_bytes(b"ein Hund\n" * 400 + b"ein\0Hund\n" + b"ein Hund\n" * 99)
    corpus_dir = tmp_path / "corpora"
    with pytest.raises(DataError, match=f"^{tgt}:401: byte 4: NUL"):
        prepare(TextPairs(src, tgt), tokenizers, corpus_dir, num_workers=2)
    assert list(corpus_dir.iterdir()) == []


def test_a_full_disk_is_one_line_and_leaves_nothing(
    tmp_path: Path, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: object) -> bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("transformer_mt.data.corpus._bytes", full)
    with pytest.raises(TmtError, match=f"^{tmp_path}/.*: cannot write: no space left"):
        prepare(Pairs(made_up(20)), tokenizers, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_corpus_dir_that_is_a_file_is_one_line(tmp_path: Path, tokenizers: Tokenizers) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(TmtError, match="cannot write"):
        prepare(Pairs(made_up(2)), tokenizers, tmp_path / "file")


def die(*_: object) -> None:
    os._exit(1)


def test_a_dead_worker_is_one_line(
    tmp_path: Path, tokenizers: Tokenizers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "_CHUNK_PAIRS", 5)
    monkeypatch.setattr(encoding, "_start_worker", die)
    with pytest.raises(DataError, match=r"ended unexpectedly.*data\.num_workers lower"):
        prepare(Pairs(made_up(100)), tokenizers, tmp_path, num_workers=2)
    assert list(tmp_path.iterdir()) == []


ENDLESS = """
    import sys
    from pathlib import Path
    from transformer_mt.data.corpus import prepare_corpus
    from transformer_mt.data.filters import Filters
    from transformer_mt.text.tokenizer import Tokenizers

    class Endless:
        def __iter__(self):
            number = 0
            while True:
                number += 1
                if number == 200_000:
                    print("at work", flush=True)
                yield f"the dog {number}", "a cat"
        def describe(self):
            return "endless"
        def fingerprint(self):
            return "0"

    if __name__ == "__main__":
        folder = Path(sys.argv[1])
        prepare_corpus(Endless(), Tokenizers.load(folder / "tok"), filters=Filters(),
                       corpus_dir=folder / "corpora", num_workers=2)
"""


@pytest.fixture
def endless(tmp_path: Path, tokenizers: Tokenizers) -> Iterator[subprocess.Popen[str]]:
    tokenizers.save(tmp_path / "tok")
    script = tmp_path / "endless.py"
    script.write_text(textwrap.dedent(ENDLESS))
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "at work\n", process.communicate()
    yield process
    with process:
        process.kill()


def test_ctrl_c_leaves_no_folder(endless: subprocess.Popen[str], tmp_path: Path) -> None:
    assert len(list((tmp_path / "corpora").iterdir())) == 1
    os.killpg(endless.pid, signal.SIGINT)
    _, stderr = endless.communicate(timeout=20)
    assert stderr.rstrip().endswith("KeyboardInterrupt")
    assert stderr.count("Traceback") == 1, "the workers are silent"
    assert list((tmp_path / "corpora").iterdir()) == []


def test_workers_end_when_their_parent_is_killed(endless: subprocess.Popen[str]) -> None:
    endless.kill()
    endless.communicate(timeout=20)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.killpg(endless.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.killpg(endless.pid, signal.SIGKILL)
    pytest.fail("workers outlived their parent")

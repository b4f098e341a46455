import errno
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from transformer_mt.data import corpus as corpus_module
from transformer_mt.data import corpus_writer, tokenization
from transformer_mt.data.corpus import Corpus, prepare_corpus
from transformer_mt.data.filters import FilterReport, Filters
from transformer_mt.data.line_sources import TextPairs
from transformer_mt.data.pairs import pack_pairs, tokenize_pairs
from transformer_mt.errors import DataError, TmtError
from transformer_mt.storage.folders import put_in_place
from transformer_mt.storage.hashes import NO_HASHES, FileHashes
from transformer_mt.storage.locks import claimed
from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.text.tokenizer_pair import Tokenizers
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

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        return str(hash(tuple(self.pairs)))


def made_up(count: int, seed: int = 1) -> list[tuple[str, str]]:
    rng = np.random.default_rng(seed)
    lines = [" ".join(rng.choice(WORDS, rng.integers(1, 12))) for _ in range(2 * count)]
    return list(zip(lines[::2], lines[1::2], strict=True))


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    src, tgt = zip(*made_up(500), strict=True)
    return train_tokenizers(src, tgt, joint=False, type="bpe", vocab_size=320)


@pytest.fixture(autouse=True)
def workers_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else small corpora are done before there are any."""
    monkeypatch.setattr(tokenization._Workers, "are_up", lambda self: bool(wait(self._starting)))


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


def test_corpus_holds_the_tokens_of_every_pair_in_order(tmp_path, tokenizers):
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


def test_many_pairs_are_gathered_at_once(tmp_path, tokenizers):
    corpus = prepare(Pairs(made_up(100)), tokenizers, tmp_path)
    rows = np.array([99, 0, 17, 16, 15, 17])
    src, tgt = corpus.gather(rows)
    one_by_one = [corpus.pair(row) for row in rows]
    assert src.tolist() == [token for s, _ in one_by_one for token in s]
    assert tgt.tolist() == [token for _, t in one_by_one for token in t]
    assert corpus.lengths(rows).tolist() == [[len(s), len(t)] for s, t in one_by_one]
    assert corpus.gather(np.array([], dtype=np.int64))[0].tolist() == []


def test_pairs_in_memory_answer_as_a_corpus_does(tmp_path, tokenizers):
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


def test_a_pair_takes_two_bytes_a_token_and_little_more(tmp_path, tokenizers):
    corpus = prepare(Pairs(made_up(4096)), tokenizers, tmp_path, drop_copies=False)
    sizes = {path.name: path.stat().st_size for path in corpus.directory.iterdir()}
    del sizes["manifest.json"]
    num_tokens = corpus.num_src_tokens + corpus.num_tgt_tokens
    assert sum(sizes.values()) == 2 * num_tokens + 5 * 4096
    assert corpus.src.dtype == np.uint16


def test_large_vocabularies_get_wider_numbers():
    assert tokenization.token_type(65_536) == np.uint16
    assert tokenization.token_type(65_537) == np.uint32


def test_workers_change_nothing(tmp_path, tokenizers, monkeypatch):
    monkeypatch.setattr(tokenization, "_CHUNK_PAIRS", 50)
    pairs = made_up(1500) + [("", "x"), ("same", "same"), ("a " * 99, "b"), ("new", "y")] * 10
    limits = {"drop_duplicates": True, "max_length": 64, "max_length_ratio": 4.0}
    alone = prepare(Pairs(pairs), tokenizers, tmp_path / "alone", num_workers=1, **limits)
    together = prepare(Pairs(pairs), tokenizers, tmp_path / "together", num_workers=2, **limits)
    files = {path.name: path.read_bytes() for path in alone.directory.iterdir()}
    assert alone.directory.name == together.directory.name
    assert files == {path.name: path.read_bytes() for path in together.directory.iterdir()}


def test_every_dropped_pair_counts_under_one_reason(tmp_path, tokenizers, caplog):
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


def test_nothing_left_is_an_error_with_the_table(tmp_path, tokenizers):
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


def test_a_limit_beyond_the_format_is_refused(tmp_path, tokenizers):
    with pytest.raises(DataError, match="max_length is 65536; the limit is 65535"):
        prepare(Pairs(made_up(1)), tokenizers, tmp_path, max_length=65_536)


# --- found again, or made again -------------------------------------------------------------------


def test_a_corpus_is_made_once(tmp_path, tokenizers, monkeypatch):
    source = Pairs(made_up(20))
    first = prepare(source, tokenizers, tmp_path)
    monkeypatch.setattr(Pairs, "__iter__", None)
    assert prepare(source, tokenizers, tmp_path).directory == first.directory


def test_the_folder_of_a_corpus_follows_from_all_that_decides_its_content(tmp_path, tokenizers):
    swapped = Tokenizers(src=tokenizers.tgt, tgt=tokenizers.src)
    pairs = made_up(20)
    folders = [
        prepare(Pairs(pairs), tokenizers, tmp_path),
        prepare(Pairs(pairs[:-1]), tokenizers, tmp_path),
        prepare(Pairs(pairs), swapped, tmp_path),
        prepare(Pairs(pairs), tokenizers, tmp_path, max_length=255),
    ]
    assert len({corpus.directory for corpus in folders}) == 4


def test_a_changed_file_is_noticed(tmp_path, tokenizers):
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
def test_a_damaged_corpus_is_refused_and_made_again(damage, tmp_path, tokenizers, caplog):
    source = Pairs(made_up(20))
    directory = prepare(source, tokenizers, tmp_path).directory
    whole = {path.name: path.read_bytes() for path in directory.iterdir()}
    DAMAGES[damage](directory)
    with pytest.raises(DataError, match=f"{directory}.*remove the folder and repeat the command"):
        Corpus.open(directory)
    again = prepare(source, tokenizers, tmp_path)
    assert "it is made again now" in caplog.text
    assert not re.search("remove the folder|upgrade", caplog.text)
    assert str(directory) in caplog.text
    assert {path.name: path.read_bytes() for path in again.directory.iterdir()} == whole
    assert [path.name for path in tmp_path.iterdir()] == [directory.name]


def test_a_damaged_corpus_that_another_process_has_made_again_is_taken_as_it_is(
    tmp_path, tokenizers, monkeypatch
):
    source = Pairs(made_up(20))
    directory = prepare(source, tokenizers, tmp_path).directory
    sound = shutil.copytree(directory, tmp_path / "sound")
    damage_tokens(directory)

    @contextmanager
    def claimed_after_another(unfinished: Path) -> Iterator[None]:
        with claimed(unfinished):
            put_in_place(sound, directory)
            inodes.append(directory.stat().st_ino)
            yield

    inodes: list[int] = []
    monkeypatch.setattr(corpus_module, "claimed", claimed_after_another)
    assert prepare(source, tokenizers, tmp_path).directory.stat().st_ino == inodes[0]
    assert list(tmp_path.iterdir()) == [directory]


def test_leftovers_are_removed_and_young_unfinished_corpora_stay(tmp_path, tokenizers):
    old, young = tmp_path / ".abc.unfinished", tmp_path / ".abd.unfinished"
    dead = tmp_path / ".abc.tmp-1"
    for folder in (old, young, dead):
        folder.mkdir()
        (folder / "src.tokens").write_bytes(b"x")
    long_ago = time.time() - 8 * 24 * 3600
    os.utime(old / "src.tokens", (long_ago, long_ago))
    os.utime(old, (long_ago, long_ago))
    prepare(Pairs(made_up(2)), tokenizers, tmp_path)
    assert not old.exists()
    assert not dead.exists()
    assert young.exists()


# --- faults ---------------------------------------------------------------------------------------


def test_place_of_bad_text_passes_through_the_workers(tmp_path, tokenizers, monkeypatch):
    monkeypatch.setattr(tokenization, "_CHUNK_PAIRS", 20)
    src, tgt = tmp_path / "x.en", tmp_path / "x.de"
    src.write_text("a dog\n" * 500)
    tgt.write_bytes(b"ein Hund\n" * 400 + b"ein\0Hund\n" + b"ein Hund\n" * 99)
    corpus_dir = tmp_path / "corpora"
    with pytest.raises(DataError, match=f"^{tgt}:401: byte 4: NUL"):
        prepare(TextPairs(src, tgt), tokenizers, corpus_dir, num_workers=2)
    assert list(corpus_dir.iterdir()) == []


# --- interrupted ----------------------------------------------------------------------------------


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenization, "_CHUNK_PAIRS", 10)
    monkeypatch.setattr(corpus_writer, "_PART_PAIRS", 40)


def in_a_child(act: Callable[[], object]) -> int:
    """Run something in a forked process; return its status, negative for a signal."""
    child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_at(monkeypatch: pytest.MonkeyPatch, module: object, name: str, call: int) -> None:
    """Kill this process (SIGKILL) at call N of a function."""
    original, calls = getattr(module, name), count(1)

    def mortal(*arguments: object, **others: object) -> object:
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **others)

    monkeypatch.setattr(module, name, mortal)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    ("name", "call", "num_done"),
    [
        ("write", 3, 0),
        ("fsync", 5, 0),  # the files are synced, but nothing counts them yet
        ("replace", 1, 0),
        ("write", 75, 160),
        ("replace", 6, 200),  # the last manifest is ready
        ("rename", 1, 205),
    ],
)
def test_after_a_kill_the_same_command_resumes_and_makes_the_same_bytes(
    name, call, num_done, tmp_path, tokenizers, monkeypatch
):
    limits = {"drop_duplicates": True, "max_length": 30}
    source = Pairs(made_up(200) + made_up(5))
    undisturbed = prepare(source, tokenizers, tmp_path / "undisturbed", **limits)
    whole = {path.name: path.read_bytes() for path in undisturbed.directory.iterdir()}

    def killed() -> None:
        place = {"write": (corpus_writer, "_bytes"), "fsync": (os, "fsync")}
        kill_at(monkeypatch, *place.get(name, (Path, name)), call)
        prepare(source, tokenizers, tmp_path / "killed", **limits)

    assert in_a_child(killed) == -signal.SIGKILL
    (left,) = (tmp_path / "killed").iterdir()
    if num_done < 205:  # nobody takes it for a corpus
        with pytest.raises(DataError, match="repeat the command that made it"):
            Corpus.open(left)
    num_encoded = 0
    encode = tokenization._Encoder.encode

    def counted(self: object, texts: list[object], report: FilterReport) -> object:
        nonlocal num_encoded
        num_encoded += report.num_pairs
        return encode(self, texts, report)  # type: ignore[arg-type]

    monkeypatch.setattr(tokenization._Encoder, "encode", counted)
    corpus = prepare(source, tokenizers, tmp_path / "killed", **limits)
    assert {path.name: path.read_bytes() for path in corpus.directory.iterdir()} == whole
    assert num_encoded == 205 - num_done
    assert [path.name for path in (tmp_path / "killed").iterdir()] == [corpus.directory.name]


@pytest.mark.usefixtures("small_parts")
def test_after_a_full_disk_finished_parts_are_kept(tmp_path, tokenizers, monkeypatch):
    source = Pairs(made_up(100))
    original, calls = corpus_writer._bytes, count()

    def full(array: NDArray[Any]) -> bytes:
        if next(calls) == 25:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(array)

    with monkeypatch.context() as patch:
        patch.setattr(corpus_writer, "_bytes", full)
        with pytest.raises(TmtError, match="cannot write: no space left"):
            prepare(source, tokenizers, tmp_path)
    (unfinished,) = tmp_path.iterdir()
    assert json.loads((unfinished / "manifest.json").read_text())["report"]["pairs"] == 40
    corpus = prepare(source, tokenizers, tmp_path)
    assert tokens_of(corpus) == encoded(source.pairs, tokenizers)


@pytest.mark.usefixtures("small_parts")
def test_a_damaged_unfinished_corpus_is_not_resumed(tmp_path, tokenizers):
    source = Pairs(made_up(100))
    whole = prepare(source, tokenizers, tmp_path)
    unfinished = tmp_path / f".{whole.directory.name}.unfinished"
    whole.directory.rename(unfinished)
    os.truncate(unfinished / "tgt.tokens", 100)
    corpus = prepare(source, tokenizers, tmp_path)
    assert tokens_of(corpus) == encoded(source.pairs, tokenizers)


def test_text_that_changes_while_it_is_read_is_refused(tmp_path, tokenizers):
    class Changing(Pairs):
        def __iter__(self) -> Iterator[tuple[str, str]]:
            yield from self.pairs
            self.pairs.append(("new", "y"))

    with pytest.raises(DataError, match="the text changed while it was read: repeat the command"):
        prepare(Changing(made_up(20)), tokenizers, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_processes_make_a_corpus_once(tmp_path, tokenizers):
    class Slow(Pairs):
        def __iter__(self) -> Iterator[tuple[str, str]]:
            (tmp_path / f"read by {os.getpid()}").touch()
            time.sleep(0.3)
            return iter(self.pairs)

    source = Slow(made_up(20))
    child = os.fork()
    if child == 0:
        prepare(source, tokenizers, tmp_path / "corpora")
        os._exit(0)
    corpus = prepare(source, tokenizers, tmp_path / "corpora")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(tmp_path.glob("read by *"))) == 1
    assert list((tmp_path / "corpora").iterdir()) == [corpus.directory]


def test_memory_does_not_grow_with_the_corpus(tmp_path, tokenizers, monkeypatch):
    monkeypatch.setattr(tokenization, "_CHUNK_PAIRS", 50)
    pair = made_up(1)[0]

    class Lazy(Pairs):
        def __iter__(self) -> Iterator[tuple[str, str]]:
            return ((f"{pair[0]} {i}", pair[1]) for i in range(self.pairs[0][0]))  # type: ignore

    def peak(num_pairs: int) -> int:
        tracemalloc.start()
        prepare(Lazy([(num_pairs, "")]), tokenizers, tmp_path)  # type: ignore[list-item]
        tracemalloc.stop()
        return peaks.pop()

    peaks: list[int] = []
    finish = corpus_module.finish_directory

    def finish_directory(*arguments: Any, **others: Any) -> None:
        peaks.append(tracemalloc.get_traced_memory()[1])  # hashing has a buffer of its own
        finish(*arguments, **others)

    monkeypatch.setattr(corpus_module, "finish_directory", finish_directory)
    monkeypatch.setattr("transformer_mt.data.word_cache._NUM_REMEMBERED", 100)
    peak(100)
    assert peak(10_000) < peak(1000) + 300_000  # the texts alone would take 2 MB


def test_a_corpus_dir_that_is_a_file_gives_a_one_line_error(tmp_path, tokenizers):
    (tmp_path / "file").write_text("x")
    with pytest.raises(TmtError, match="cannot write"):
        prepare(Pairs(made_up(2)), tokenizers, tmp_path / "file")


def die(*_: object) -> None:
    os._exit(1)


def test_a_dead_worker_gives_a_one_line_error(tmp_path, tokenizers, monkeypatch):
    monkeypatch.setattr(tokenization, "_CHUNK_PAIRS", 5)
    monkeypatch.setattr(tokenization, "_start_worker", die)
    with pytest.raises(DataError, match=r"end unexpectedly.*data\.num_workers lower"):
        prepare(Pairs(made_up(100)), tokenizers, tmp_path, num_workers=2)
    assert list(tmp_path.iterdir()) == []


ENDLESS = """
    import sys
    from pathlib import Path
    from transformer_mt.data.corpus import prepare_corpus
    from transformer_mt.data.filters import Filters
    from transformer_mt.text.tokenizer_pair import Tokenizers

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
        def fingerprint(self, hashes):
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
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "at work\n", process.communicate()
    yield process
    with process:
        process.kill()


def test_ctrl_c_leaves_no_folder(endless, tmp_path):
    assert len(list((tmp_path / "corpora").iterdir())) == 1
    os.killpg(endless.pid, signal.SIGINT)
    _, stderr = endless.communicate(timeout=300)
    assert stderr.rstrip().endswith("KeyboardInterrupt")
    assert stderr.count("Traceback") == 1, "the workers are silent"
    assert list((tmp_path / "corpora").iterdir()) == []


def test_workers_end_when_their_parent_is_killed(endless):
    endless.kill()
    endless.communicate(timeout=300)
    deadline = time.monotonic() + 300
    while has_processes(endless.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    outlived = has_processes(endless.pid)
    if outlived:
        os.killpg(endless.pid, signal.SIGKILL)
    assert not outlived


def has_processes(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True

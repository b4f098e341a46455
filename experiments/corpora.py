"""Time to make, open and read corpora of 0.16, 1.6 and 16 million pairs.

    scripts/get_corpus.py tatoeba          (or, with a local copy: --from DIR)
    python -m experiments.corpora --output out/bench/corpora.json

The texts are Tatoeba, repeated; from the second time on, one line in eight gets a new word by three
letters put somewhere into it (2 % of all words: a corpus that only repeats would flatter whoever
remembers words). Everything is written below `--folder` and removed afterwards. Making and reading
are processes of their own. The table goes to stdout; the file of results is written after each
size.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt.data import mixture
from transformer_mt.data.corpus import Corpus, prepare_corpus
from transformer_mt.data.filters import Filters
from transformer_mt.data.line_sources import TextPairs
from transformer_mt.data.mixture import Mixture
from transformer_mt.text.lines import read_lines
from transformer_mt.text.tokenizer import to_utf8
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.text.tokenizer_training import train_tokenizers

if TYPE_CHECKING:
    from transformer_mt.data.batch_stream import BatchStream

ROOT = Path(__file__).resolve().parents[1]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SIDES = ("en", "de")
MAX_TOKENS = 25_000
LOADING_SECONDS = 5.0

Row = dict[str, Any]


def varied(lines: list[str], repeat: int) -> Iterator[str]:
    """Yield the lines, some of them with a new word unless `repeat` is 0."""
    for number, line in enumerate(lines):
        if repeat and (number + repeat) % 8 == 0:
            code = number * 7919 + repeat * 104_729
            new = "".join(LETTERS[code // 26**i % 26] for i in range(3))
            place = code % len(line)
            line = line[:place] + new + line[place:]
        yield line


def write_text(tatoeba: Path, folder: Path, num_repeats: int) -> None:
    """Write `train.en` and `train.de`."""
    for side in SIDES:
        lines = list(read_lines(tatoeba / f"train.{side}"))
        with (folder / f"train.{side}").open("w", encoding="utf-8", newline="\n") as file:
            for repeat in range(num_repeats):
                file.write("\n".join(varied(lines, repeat)) + "\n")


def sentencepiece_speed(tatoeba: Path, tokenizers: Tokenizers, *, num_threads: int) -> float:
    """Return pairs a second of SentencePiece alone, with texts and ids in memory."""
    sides = [
        [to_utf8(line) for line in varied(list(read_lines(tatoeba / f"train.{side}")), 5)]
        for side in SIDES
    ]
    started = time.perf_counter()
    for lines, tokenizer in zip(sides, (tokenizers.src, tokenizers.tgt), strict=True):
        for start in range(0, len(lines), 8192):
            tokenizer._processor.Encode(lines[start : start + 8192], num_threads=num_threads)
    return len(sides[0]) / (time.perf_counter() - started)


def prepare(folder: Path) -> Row:
    """Make the corpus of the text in a folder."""
    started = time.perf_counter()
    corpus = prepare_corpus(
        TextPairs(folder / "train.en", folder / "train.de"),
        Tokenizers.load(folder.parent / "tokenizer"),
        filters=Filters(),
        corpus_dir=folder / "corpora",
    )
    seconds = time.perf_counter() - started
    num_pairs, num_tokens = len(corpus), corpus.num_src_tokens + corpus.num_tgt_tokens
    num_bytes = sum(path.stat().st_size for path in corpus.directory.iterdir())
    return {
        "num_pairs": num_pairs,
        "prepare_seconds": seconds,
        "pairs_per_second": corpus.report.num_pairs / seconds,
        "tokens_per_pair": num_tokens / num_pairs,
        "bytes_per_pair": num_bytes / num_pairs,
        "directory": str(corpus.directory),
    }


def load(directory: Path) -> Row:
    """Open a corpus and read batches, from the start and from the middle."""
    row: Row = {}
    for name, share in (("open", 0.0), ("first_batch", 0.0), ("resume", 0.5)):
        started = time.perf_counter()
        corpus = Corpus.open(directory)
        stream = stream_of(corpus, int(share * len(corpus)))
        with closing(stream.ahead()) as batches:
            next(batches)
            row[f"{name}_seconds"] = time.perf_counter() - started
    return row | speed(corpus, "")


def load_cold(directory: Path) -> Row:
    """Read batches of a corpus that is not in the page cache."""
    corpus = Corpus.open(directory)
    for path in directory.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return speed(corpus, "cold_")


def load_random(directory: Path) -> Row:
    """Do the same in an order that knows no blocks, as a look at what they are good for."""
    mixture._WINDOW_PAIRS = 1 << 40
    row = {f"random_{name}": value for name, value in load_cold(directory).items()}
    return row | speed(Corpus.open(directory), "random_")


def stream_of(corpus: Corpus, pair: int) -> "BatchStream":
    """Return the batches of the first epoch from a pair on."""
    # Here, so that the processes that tokenize need no torch.
    from transformer_mt.data.batch_stream import BatchStream, Position

    start = Position(0, pair, 0)
    return BatchStream(Mixture([corpus], seed=1), max_tokens=MAX_TOKENS, start=start)


def speed(corpus: Corpus, prefix: str) -> Row:
    """Read batches for some seconds."""
    num_tokens = num_batches = filled = 0
    with closing(stream_of(corpus, 0).ahead()) as batches:
        started = time.perf_counter()
        while (seconds := time.perf_counter() - started) < LOADING_SECONDS:
            for batch, _ in islice(batches, 5):
                num_tokens += batch.num_tgt_tokens
                filled += max(batch.num_tgt_tokens, len(batch.src))
                num_batches += 1
    return {
        f"{prefix}tgt_tokens_per_second": num_tokens / seconds,
        f"{prefix}unfilled_share": 1 - filled / (num_batches * MAX_TOKENS),
    }


def in_a_process(act: str, folder: Path) -> Row:
    """Run a function of this script; add the greatest memory of its processes together."""
    command = [sys.executable, "-m", "experiments.corpora", "--act", act, "--folder", str(folder)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment()
    )
    assert process.stdout is not None
    peak = 0
    while process.poll() is None:
        peak = max(peak, session_bytes(process.pid))
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(process.returncode)
    row: Row = json.loads(process.stdout.read())
    return row | {f"{act}_peak_rss_bytes": peak}


def environment() -> dict[str, str]:
    """Return the environment with the path of the package."""
    return os.environ | {"PYTHONPATH": str(ROOT)}


def session_bytes(session: int) -> int:
    """Add up the resident memory of all processes of a session; what they share counts twice."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == session:
            total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return total


def table(rows: list[Row]) -> str:
    """Format the results as Markdown."""
    kinds = {
        "pairs": lambda row: f"{row['num_pairs'] / 1e6:.2f} M",
        "making: pairs/s": lambda row: f"{row['pairs_per_second']:,.0f}",
        "against SentencePiece alone, 1 thread (2 threads)": lambda row: (
            f"{row['pairs_per_second'] / row['sentencepiece_one_thread']:.1f} x "
            f"({row['pairs_per_second'] / row['sentencepiece_two_threads']:.1f} x)"
        ),
        "making: peak memory, all processes": lambda row: (
            f"{row['prepare_peak_rss_bytes'] / 1e6:,.0f} MB"
        ),
        "bytes per pair (tokens per pair)": lambda row: (
            f"{row['bytes_per_pair']:.1f} ({row['tokens_per_pair']:.1f})"
        ),
        "open and first batch, files read": lambda row: f"{row['open_seconds']:.2f} s",
        "the same, files known": lambda row: f"{row['first_batch_seconds']:.2f} s",
        "resume in the middle of an epoch": lambda row: f"{row['resume_seconds']:.2f} s",
        "loader: target tokens/s": lambda row: f"{row['tgt_tokens_per_second'] / 1e6:.1f} M",
        "loader: nothing in the page cache": lambda row: (
            f"{row['cold_tgt_tokens_per_second'] / 1e6:.2f} M"
        ),
        "the same, pairs in wholly random order": lambda row: (
            f"{row['random_cold_tgt_tokens_per_second'] / 1e6:.2f} M"
        ),
        "budget left unfilled": lambda row: f"{row['unfilled_share']:.2%}",
    }
    lines = [f"| {name} | {' | '.join(map(form, rows))} |" for name, form in kinds.items()]
    return "\n".join([lines[0], "|---" * (len(rows) + 1) + "|", *lines[1:]])


def main() -> None:
    """Measure all sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tatoeba", type=Path, default=ROOT / "data" / "tatoeba")
    parser.add_argument("--repeats", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--folder", type=Path, default=ROOT / "out" / "bench" / "corpora")
    parser.add_argument("--output", type=Path, default=ROOT / "out" / "bench" / "corpora.json")
    parser.add_argument("--act", choices=ACTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.act:
        print(json.dumps(ACTS[arguments.act](arguments.folder)))
        return
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    try:
        texts = [list(read_lines(arguments.tatoeba / f"train.{side}")) for side in SIDES]
        tokenizers = train_tokenizers(*texts, joint=True, type="bpe", vocab_size=8000)
        tokenizers.save(folder / "tokenizer")
        one, two = (
            sentencepiece_speed(arguments.tatoeba, tokenizers, num_threads=n) for n in (1, 2)
        )
        for num_repeats in arguments.repeats:
            place = folder / str(num_repeats)
            place.mkdir()
            write_text(arguments.tatoeba, place, num_repeats)
            row = in_a_process("prepare", place)
            directory = Path(row.pop("directory"))
            time.sleep(4)  # the hash of a file that is younger is not kept
            for act in ("load", "load_cold", "load_random"):
                row |= in_a_process(act, directory)
            row |= {"sentencepiece_one_thread": one, "sentencepiece_two_threads": two}
            rows.append(row)
            arguments.output.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
            shutil.rmtree(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(table(rows))


ACTS = {"prepare": prepare, "load": load, "load_cold": load_cold, "load_random": load_random}

if __name__ == "__main__":
    main()

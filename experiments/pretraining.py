"""Translation after denoising pretraining and without it, by the number of translated pairs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import transformer_mt as tmt
from experiments.results import DEFAULT_FOLDER, Folder, save
from transformer_mt.errors import DataError
from transformer_mt.plots.style import COLORS, check_matplotlib, new_figure
from transformer_mt.text.lines import read_lines
from transformer_mt.text.tokenizer_directory import load_tokenizers, save_tokenizers
from transformer_mt.text.tokenizer_training import train_tokenizers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Start = Literal["scratch", "longer", "pretrained", "pretrained_longer"]
LANGUAGES = ("en", "de")
UPDATES = {1000: 200, 5000: 400, 29_000: 800}
"""Updates of 1,024 target tokens with pairs, the same from scratch and after pretraining."""
PRETRAINING_UPDATES = 1200
STARTS: dict[Start, str] = {
    "scratch": "from scratch",
    "longer": "from scratch, as many updates as the two together",
    "pretrained": "pretrained by denoising",
    "pretrained_longer": "pretrained, with as many updates",
}
RATES: dict[Start, float] = {
    "scratch": 0.008,
    "longer": 0.008,
    "pretrained": 0.004,
    "pretrained_longer": 0.004,
}
NUM_VALID = 300
NOISE = {"mask": 0.35, "span": 3.5}
MODEL = {
    "d_model": 128,
    "d_ff": 256,
    "num_heads": 4,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "norm": "pre",
    "positions": {"type": "rotary"},
}


@dataclass(frozen=True)
class Score:
    """The score of one run on the test set.

    Attributes:
        pairs: Pairs that it was trained on.
        start: What it began with.
        seed: Of its weights, or of its order of the data.
        updates: With pairs.
        bleu: 0 to 100.
        half_width: Half of the 95 % interval of `bleu`, by bootstrap over sentences.
    """

    pairs: int
    start: Start
    seed: int
    updates: int
    bleu: float
    half_width: float


class Study:
    """Runs of one folder; what is finished is not made again.

    Args:
        data: Folder of Multi30k: `train`, `val` and `test_2016_flickr`, ending in `.en` and `.de`.
        folder: Gets texts, runs and scores.
        share: Of all updates, for a trial.
    """

    def __init__(self, data: Path, folder: Path, *, share: float = 1.0) -> None:
        self._data, self._folder, self._share = data, folder, share
        folder.mkdir(parents=True, exist_ok=True)
        self._tokenizer = folder / "tokenizer"
        if not self._tokenizer.exists():
            train = [read_lines(data / f"train.{language}") for language in LANGUAGES]
            tokenizers = train_tokenizers(
                *train, joint=True, type="bpe", vocab_size=3000, user_symbols=["<mask>"]
            )
            save_tokenizers(tokenizers, self._tokenizer)
        load_tokenizers(self._tokenizer)
        for language in LANGUAGES:
            self._write(f"val.{language}", self._head("val", language, NUM_VALID))
            for pairs in UPDATES:
                self._write(f"{pairs}.{language}", self._head("train", language, pairs))
        both = [line for lang in LANGUAGES for line in self._head("val", lang, NUM_VALID)]
        self._write("val.both", both)

    def pretrain(self) -> Path:
        """Learn to restore both monolingual sides of the training text."""
        mono = {"type": "monolingual", "noise": NOISE}
        return self._run(
            "denoiser",
            updates=PRETRAINING_UPDATES,
            seed=1,
            lr=RATES["scratch"],
            dropout=0.1,
            train=[mono | {"path": str(self._data / f"train.{lang}")} for lang in LANGUAGES],
            valid=mono | {"path": str(self._folder / "val.both")},
        )

    def is_finished(self, pairs: int, start: Start, seed: int) -> bool:
        """Whether a translator has been scored."""
        return (self._folder / f"{start}_{pairs}_{seed}.json").exists()

    def score(self, pairs: int, start: Start, seed: int) -> Score:
        """Train a translator and score it on the test set."""
        name = f"{start}_{pairs}_{seed}"
        updates = UPDATES[pairs] + (PRETRAINING_UPDATES if start.endswith("longer") else 0)
        path = self._folder / f"{name}.json"
        if not path.exists():
            run = self._run(
                name,
                updates=updates,
                seed=seed,
                lr=RATES[start],
                dropout=0.3 if pairs < 10_000 else 0.2,
                train=[self._text(str(pairs))],
                valid=self._text("val"),
                init_from=str(self.pretrain()) if start.startswith("pretrained") else None,
            )
            test = [self._head("test_2016_flickr", lang, None) for lang in LANGUAGES]
            found = tmt.evaluate(tmt.load(run), *test, metrics=["bleu"], confidence=True)
            (bleu,) = found.scores
            made = self._updates(updates)
            score = Score(pairs, start, seed, made, bleu.value, bleu.half_width or 0.0)
            path.write_text(json.dumps(asdict(score)) + "\n", encoding="utf-8")
        return Score(**json.loads(path.read_text(encoding="utf-8")))

    def _run(
        self, name: str, *, updates: int, seed: int, lr: float, dropout: float, **parts: Any
    ) -> Path:
        """Train, or find the run."""
        updates = self._updates(updates)
        result = tmt.train(
            {
                "name": name,
                "seed": seed,
                "data": {
                    "src_lang": "en",
                    "tgt_lang": "de",
                    "train": parts["train"],
                    "valid": parts["valid"],
                    "corpus_dir": str(self._folder / "corpora"),
                    "num_workers": 1,
                },
                "tokenizer": {"path": str(self._tokenizer)},
                "model": MODEL | {"dropout": dropout},
                "training": {
                    "runs_dir": str(self._folder / "runs"),
                    "init_from": parts.get("init_from"),
                    "device": "cpu",
                    "max_tokens": 1024,
                    "max_steps": updates,
                    "optimizer": {"type": "muon"},
                    "lr": lr,
                    "schedule": {"type": "linear", "warmup_steps": max(1, updates // 10)},
                    "validation": {
                        "every_steps": max(1, updates // 4),
                        "metrics": ["bleu"],
                        "beam_size": 1,
                    },
                },
            }
        )
        return Path(result.model_dir)

    def _updates(self, updates: int) -> int:
        return max(2, round(updates * self._share))

    def _text(self, name: str) -> dict[str, str]:
        src, tgt = (str(self._folder / f"{name}.{language}") for language in LANGUAGES)
        return {"type": "text", "src": src, "tgt": tgt}

    def _head(self, name: str, language: str, number: int | None) -> list[str]:
        lines = list(islice(read_lines(self._data / f"{name}.{language}"), number))
        if number is not None and len(lines) < number:
            raise DataError(f"{self._data}: {name}.{language} has fewer than {number} lines")
        return lines

    def _write(self, name: str, lines: Sequence[str]) -> None:
        path, text = self._folder / name, "".join(f"{line}\n" for line in lines)
        if not path.exists():  # another process may be reading it
            path.write_text(text, encoding="utf-8", newline="\n")


def table(scores: Sequence[Score]) -> Iterator[str]:
    """Yield the lines of a Markdown table: means over the seeds, each seed, the widest interval."""
    yield "| pairs | start | updates with pairs | BLEU, mean | each seed |"
    yield "|---|---|---|---|---|"
    for pairs, start in product(UPDATES, STARTS):
        runs = [score for score in scores if (score.pairs, score.start) == (pairs, start)]
        if runs:
            each = ", ".join(f"{score.bleu:.1f}" for score in runs)
            yield (
                f"| {pairs:,} | {STARTS[start]} | {runs[0].updates:,} | "
                f"{fmean(score.bleu for score in runs):.1f} | {each} "
                f"(± {max(score.half_width for score in runs):.1f}) |"
            )


def draw(scores: Sequence[Score]) -> "Figure":
    """Draw BLEU over the number of pairs, a point for each run."""
    figure = new_figure(5, 3.5)
    axes = figure.subplots()
    for color, (start, label) in zip(COLORS, STARTS.items(), strict=False):
        runs = [score for score in scores if score.start == start]
        sizes = sorted({score.pairs for score in runs})
        means = [fmean(s.bleu for s in runs if s.pairs == size) for size in sizes]
        if not runs:
            continue
        axes.plot(sizes, means, color=color, label=label)
        axes.errorbar(
            [score.pairs for score in runs],
            [score.bleu for score in runs],
            yerr=[score.half_width for score in runs],
            fmt="o",
            color=color,
            markersize=3,
            linewidth=0.8,
        )
    axes.set_xscale("log")
    axes.set_xticks(list(UPDATES), [f"{pairs:,}" for pairs in UPDATES])
    axes.set_xlabel("sentence pairs")
    axes.set_ylabel("BLEU")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    return figure


def run(
    data: Annotated[Path, typer.Option(metavar="DIR", help="Folder of Multi30k.")] = Path(
        "data/multi30k"
    ),
    pairs: Annotated[
        list[int], typer.Option(help=f"Training pairs, of {', '.join(map(str, UPDATES))}.")
    ] = list(UPDATES),
    starts: Annotated[
        list[str], typer.Option("--start", help=f"Of {', '.join(STARTS)}; default all.")
    ] = list(STARTS),
    seeds: Annotated[list[int], typer.Option("--seed", help="Default 1, 2 and 3.")] = [1, 2, 3],
    share: Annotated[float, typer.Option(help="Share of all updates, for a trial.")] = 1.0,
    finished: Annotated[
        bool, typer.Option("--finished", help="Train nothing; show what is finished.")
    ] = False,
    output: Folder = DEFAULT_FOLDER,
) -> None:
    """Compare translators that begin with a denoiser and from scratch (about an hour of one core).

    What is finished in the output folder is not made again: several calls may share the work.
    """
    check_matplotlib()
    study = Study(data, output / "pretraining", share=share)
    chosen = [start for start in STARTS if start in starts]
    runs = list(product(pairs, chosen, seeds))
    scores = [study.score(*run) for run in runs if not finished or study.is_finished(*run)]
    print("\n".join(table(scores)))
    save("pretraining", draw(scores), [asdict(score) for score in scores], output)

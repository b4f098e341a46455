"""Training runs on text of Multi30k that a model translated, and their scores."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import transformer_mt as tmt
from transformer_mt.text.lines import read_lines
from transformer_mt.text.tokenizer_directory import load_tokenizers, save_tokenizers
from transformer_mt.text.tokenizer_training import train_tokenizers
from transformer_mt.translation.load import make_translator

if TYPE_CHECKING:
    from transformer_mt.translation.model import Model
    from transformer_mt.translation.synthetic import SyntheticText

Row = Mapping[str, Any]
LANGUAGES = ("en", "de")
TEST = "test_2016_flickr"
TAG, MASK = "<BT>", "<mask>"


class Study:
    """Runs of one folder; what is finished is not made again.

    Args:
        data: Folder of Multi30k: `train`, `val` and the test set, ending in `.en` and `.de`.
        folder: Gets texts, runs and scores.
        share: Of all updates and of the text that is translated, for a trial.
    """

    def __init__(self, data: Path, folder: Path, *, share: float) -> None:
        self._data, self._folder, self._share = data, folder, share
        folder.mkdir(parents=True, exist_ok=True)

    def text(self, name: str, part: slice = slice(None)) -> dict[str, str]:
        """Return files of some pairs of Multi30k, as a source of a config."""
        return {"type": "text", "src": self._part(name, 0, part), "tgt": self._part(name, 1, part)}

    def lines(self, name: str, side: int, part: slice = slice(None)) -> Path:
        """Return a file of one side of some pairs of Multi30k."""
        return Path(self._part(name, side, part))

    def tokenizer(self, name: str, *texts: Path) -> Path:
        """Train a joint tokenizer of 3,000 pieces on a text of each language."""
        path = self._folder / name
        if not path.exists():
            tokenizers = train_tokenizers(
                *map(read_lines, texts),
                joint=True,
                type="bpe",
                vocab_size=3000,
                user_symbols=[TAG, MASK],
            )
            save_tokenizers(tokenizers, path)
        load_tokenizers(path)
        return path

    def train(
        self,
        name: str,
        updates: int,
        train: Sequence[Mapping[str, object]],
        *,
        tokenizer: Path,
        model: Mapping[str, object],
        is_reversed: bool = False,
        valid: Mapping[str, object] | None = None,
        start: Path | None = None,
        lr: float = 0.008,
        seed: int = 1,
    ) -> Path:
        """Train a model for some updates of 1,024 target tokens, or find it."""
        updates = self._shared(updates)
        pairs = self.text("val")
        src_lang, tgt_lang = LANGUAGES
        if is_reversed:
            src_lang, tgt_lang = tgt_lang, src_lang
            pairs["src"], pairs["tgt"] = pairs["tgt"], pairs["src"]
        result = tmt.train(
            {
                "name": name,
                "seed": seed,
                "data": {
                    "src_lang": src_lang,
                    "tgt_lang": tgt_lang,
                    "train": list(train),
                    "valid": pairs if valid is None else valid,
                    "corpus_dir": str(self._folder / "corpora"),
                    "num_workers": 1,
                },
                "tokenizer": {"path": str(tokenizer)},
                "model": model,
                "training": {
                    "runs_dir": str(self._folder / "runs"),
                    "device": "cpu",
                    "max_tokens": 1024,
                    "max_steps": updates,
                    "optimizer": {"type": "muon"},
                    "init_from": None if start is None else str(start),
                    "lr": lr,
                    "schedule": {"type": "linear", "warmup_steps": max(1, updates // 10)},
                    "validation": {
                        "every_steps": max(1, updates // 5),
                        "metrics": ["bleu"],
                        "beam_size": 1,
                    },
                },
            }
        )
        return Path(result.model_dir)

    def synthesize(
        self, name: str, model: Path, text: Path, writes: Literal["src", "tgt"], **options: object
    ) -> "SyntheticText":
        """Translate a text as `tmt distill` and `tmt backtranslate` do."""
        from transformer_mt.translation.synthetic import synthesize

        bundle = tmt.load(model, engine="auto").bundle
        translator = make_translator(bundle, options)
        return synthesize(translator, bundle, [text], self._folder / name, writes=writes)

    def score(self, name: str, make: Callable[[], Path]) -> Row:
        """Score a model on the test set, greedy and with a beam of 4."""
        from transformer_mt.bundle import count_parameters

        path = self._folder / f"{name}.json"
        if not path.exists():
            model = tmt.load(make())
            row = {f"bleu_{width}": _score(model, self._test(), width) for width in (1, 4)}
            assert model.bundle.directory is not None  # it was loaded from there
            row["weights"] = f"{count_parameters(model.bundle.directory):,}"
            row["model"] = str(model.bundle.directory)
            path.write_text(json.dumps(row) + "\n", encoding="utf-8")
        row = json.loads(path.read_text(encoding="utf-8"))
        return {"name": name, **row}

    def speed(self, row: Row) -> Row:
        """Add the processor time of translating the test set with a beam of 4, by both engines."""
        engines: Sequence[Any] = ("torch", "ctranslate2")
        found = {f"{e}_seconds": f"{_seconds(row['model'], self._test(), e):.1f}" for e in engines}
        return {**row, **found}

    def _test(self) -> tuple[list[str], list[str]]:
        src, tgt = (list(read_lines(self._data / f"{TEST}.{end}")) for end in LANGUAGES)
        return src, tgt

    def _shared(self, number: int) -> int:
        return max(2, round(number * self._share))

    def _part(self, name: str, side: int, part: slice) -> str:
        end = LANGUAGES[side]
        if part == slice(None) and self._share == 1:
            return str(self._data / f"{name}.{end}")
        path = self._folder / f"{name}-{part.start or 0}-{part.stop or 'end'}.{end}"
        if not path.exists():
            stop = part.stop if part.stop is None else self._shared(part.stop)
            start = self._shared(part.start) if part.start else 0
            lines = islice(read_lines(self._data / f"{name}.{end}"), start, stop)
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
        return str(path)


def _score(model: "Model", test: tuple[list[str], list[str]], beam_size: int) -> str:
    found = tmt.evaluate(model, *test, metrics=["bleu"], confidence=True, beam_size=beam_size)
    (bleu,) = found.scores
    return f"{bleu.value:.1f} ± {bleu.half_width:.1f}"


def _seconds(model: str, test: tuple[list[str], list[str]], engine: Any) -> float:
    """Return the processor time of translating the test set, without loading; the least of two."""
    loaded = tmt.load(model, engine=engine)
    loaded.translate(test[0][:8])
    seconds = []
    for _ in range(2):
        started = time.process_time()
        loaded.translate(test[0], num_workers=1)
        seconds.append(time.process_time() - started)
    return min(seconds)


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    columns = {
        "weights": "weights",
        "bleu_1": "BLEU, greedy",
        "bleu_4": "BLEU, beam 4",
        "torch_seconds": "CPU s, torch",
        "ctranslate2_seconds": "CPU s, ctranslate2",
    }
    shown = {key: title for key, title in columns.items() if any(key in row for row in rows)}
    yield f"| | {' | '.join(shown.values())} |"
    yield "|---" * (len(shown) + 1) + "|"
    for row in rows:
        yield f"| {row['name']} | {' | '.join(row.get(key, '') for key in shown)} |"


Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="Folder of Multi30k.")]
Part = Annotated[float, typer.Option("--share", help="Share of all updates, for a trial.")]
DATA = Path("data/multi30k")

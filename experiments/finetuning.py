"""Fine-tuning on text of another kind: what a model gains there, and what it forgets."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import transformer_mt as tmt
from experiments.results import DEFAULT_FOLDER, Folder
from transformer_mt.text.lines import read_lines

if TYPE_CHECKING:
    from transformer_mt.translation.model import Model

UPDATES = 300
"""Of 1,024 target tokens."""
LR, LOW_RANK_LR = 0.002, 0.006
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "new text alone": {"share": 0.0},
    "a fifth of old text": {"share": 0.2},
    "a fifth of old text, encoder frozen": {"share": 0.2, "freeze": ["encoder"]},
    "a fifth of old text, low rank": {"share": 0.2, "lora_rank": 8},
}

Pair = tuple[Path, Path]


def weight_of_old(share: float, num_new: int, num_old: int) -> float:
    """Return the weight by which pairs of old text are this share of an epoch."""
    return share / (1 - share) * num_new / num_old


class Adaptation:
    """Runs that begin with one model, and their scores on both kinds of text.

    Args:
        model: The model.
        old: Files of the text that it was trained on: `train` and the test set.
        new: Folder of other text: `train`, `valid` and `test`.
        languages: Ends of the names of all files.
        folder: Gets runs and scores; what is finished is not made again.
        updates: Of each run.
    """

    def __init__(
        self,
        model: Path,
        *,
        old: tuple[Path, Path],
        new: Path,
        languages: tuple[str, str],
        folder: Path,
        updates: int,
    ) -> None:
        self._model, self._new, self._updates = model, new, updates
        self._languages, self._folder = languages, folder
        self._old_train, self._old_test = old
        folder.mkdir(parents=True, exist_ok=True)

    def before(self) -> list[str]:
        """Score the model as it is."""
        return self._scores("before", lambda: self._model)

    def after(self, name: str, *, share: float, **settings: Any) -> list[str]:
        """Train it on new text, of which a share is old, and score it."""
        return self._scores(name, lambda: self._train(name, share, settings))

    def _train(self, name: str, share: float, settings: Mapping[str, Any]) -> Path:
        train = [self._text(self._new / "train")]
        if share:
            sizes = [
                sum(1 for _ in read_lines(self._files(path)[0]))
                for path in (self._new / "train", self._old_train)
            ]
            train.append(self._text(self._old_train) | {"weight": weight_of_old(share, *sizes)})
        src_lang, tgt_lang = self._languages
        result = tmt.train(
            {
                "name": name.replace(",", "").replace(" ", "_"),
                "data": {
                    "src_lang": src_lang,
                    "tgt_lang": tgt_lang,
                    "train": train,
                    "valid": self._text(self._new / "valid"),
                    "corpus_dir": str(self._folder / "corpora"),
                    "num_workers": 1,
                },
                "training": {
                    "init_from": str(self._model),
                    "runs_dir": str(self._folder / "runs"),
                    "device": "cpu",
                    "max_tokens": 1024,
                    "max_steps": self._updates,
                    "lr": LOW_RANK_LR if "lora_rank" in settings else LR,
                    "schedule": {"type": "linear", "warmup_steps": max(1, self._updates // 10)},
                    "validation": {
                        "every_steps": max(1, self._updates // 3),
                        "metrics": ["bleu"],
                        "beam_size": 1,
                    },
                    **settings,
                },
            }
        )
        return Path(result.model_dir)

    def _scores(self, name: str, make: Any) -> list[str]:
        """Return BLEU on new and on old text with half of their 95 % intervals."""
        path = self._folder / f"{name.replace(',', '').replace(' ', '_')}.json"
        if not path.exists():
            model = tmt.load(make())
            found = [
                _score(model, self._files(test)) for test in (self._new / "test", self._old_test)
            ]
            path.write_text(json.dumps(found) + "\n", encoding="utf-8")
        scores: list[str] = json.loads(path.read_text(encoding="utf-8"))
        return scores

    def _files(self, path: Path) -> Pair:
        src, tgt = (path.with_name(f"{path.name}.{language}") for language in self._languages)
        return src, tgt

    def _text(self, path: Path) -> dict[str, Any]:
        src, tgt = map(str, self._files(path))
        return {"type": "text", "src": src, "tgt": tgt}


def _score(model: "Model", files: Pair) -> str:
    src, tgt = (list(read_lines(path)) for path in files)
    (bleu,) = tmt.evaluate(model, src, tgt, metrics=["bleu"], confidence=True).scores
    return f"{bleu.value:.1f} ± {bleu.half_width:.1f}"


def table(rows: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield "| | BLEU, new text | BLEU, old text |"
    yield "|---|---|---|"
    for name, (new, old) in rows.items():
        yield f"| {name} | {new} | {old} |"


def run(
    model: Annotated[Path, typer.Option(metavar="DIR", help="Model to begin with.")],
    old: Annotated[Path, typer.Option(metavar="DIR", help="Its text: Multi30k.")] = Path(
        "data/multi30k"
    ),
    new: Annotated[Path, typer.Option(metavar="DIR", help="Other text: the demo corpus.")] = Path(
        "data/demo"
    ),
    updates: Annotated[int, typer.Option(help="Of each run.")] = UPDATES,
    output: Folder = DEFAULT_FOLDER,
) -> None:
    """Adapt a model of Multi30k to program messages, with old text and without."""
    adaptation = Adaptation(
        model,
        old=(old / "train", old / "test_2016_flickr"),
        new=new,
        languages=("en", "de"),
        folder=output / "finetuning",
        updates=updates,
    )
    rows = {"before": adaptation.before()}
    rows |= {name: adaptation.after(name, **changes) for name, changes in VARIANTS.items()}
    print("\n".join(table(rows)))

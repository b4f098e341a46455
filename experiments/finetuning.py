"""Fine-tuning on text of another kind: what a model gains there, and what it forgets."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer

import transformer_mt as tmt
from experiments.results import DEFAULT_FOLDER, Folder
from transformer_mt.text.lines import read_lines
from transformer_mt.text.tokenizer_directory import save_tokenizers
from transformer_mt.text.tokenizer_training import train_tokenizers

if TYPE_CHECKING:
    from transformer_mt.translation.model import Model

UPDATES, BASE_UPDATES = 300, 1500
"""Of 1,024 target tokens."""
LR, LOW_RANK_LR = 0.002, 0.006
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "new text alone": {"share": 0.0},
    "a fifth of old text": {"share": 0.2},
    "a fifth of old text, encoder frozen": {"share": 0.2, "freeze": ["encoder"]},
    "a fifth of old text, low rank": {"share": 0.2, "lora_rank": 8},
    "a fifth of old text, low rank, also of embeddings": {
        "share": 0.2, "lora_rank": 8, "lora_embeddings": True,
    },
}  # fmt: skip
BASE = {
    "d_model": 128,
    "d_ff": 256,
    "num_heads": 4,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "norm": "pre",
    "dropout": 0.2,
    "positions": {"type": "rotary"},
}
NUM_PIECES = 6000

End = TypeVar("End")
Pair: TypeAlias = tuple[End, End]


class Domain:
    """Text of one kind: a folder of `train`, a validation set and a test set, as it names them.

    Args:
        folder: Of Multi30k, Tatoeba or the demo corpus.
        languages: Ends of the names of all files.
        num_pairs: Training pairs to take; None: all.
        parts: Gets the file of these pairs.
    """

    def __init__(
        self, folder: Path, languages: Pair[str], num_pairs: int | None, parts: Path
    ) -> None:
        self._folder, self.languages = folder, languages
        self.train = self._files(folder / "train")
        if num_pairs is not None:
            cut = self._files(parts / f"{folder.name}-{num_pairs}")
            for whole, part in zip(self.train, cut, strict=True):
                lines = islice(read_lines(whole), num_pairs)
                part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            self.train = cut

    @cached_property
    def size(self) -> int:
        """Training pairs."""
        return sum(1 for _ in read_lines(self.train[0]))

    @property
    def valid(self) -> Pair[Path]:
        """Files of the validation set."""
        return self._first("valid", "val", "dev")

    @property
    def test(self) -> Pair[Path]:
        """Files of the test set."""
        return self._first("test_2016_flickr", "test")

    def _first(self, *names: str) -> Pair[Path]:
        found = map(self._files, map(self._folder.joinpath, names))
        return next(files for files in found if files[0].exists())

    def _files(self, path: Path) -> Pair[Path]:
        src, tgt = (path.with_name(f"{path.name}.{language}") for language in self.languages)
        return src, tgt


def weight_of_old(share: float, num_new: int, num_old: int) -> float:
    """Return the weight by which pairs of old text are this share of an epoch."""
    return share / (1 - share) * num_new / num_old


class Adaptation:
    """Runs that begin with one model, and their scores on both kinds of text.

    Args:
        model: The model; None: one is trained on the old text, with pieces of both.
        old: Text of the kind that it was trained on.
        new: Text of another kind.
        folder: Gets runs and scores; what is finished is not made again.
        updates: Of each run.
        seed: Of each run.
        training: Settings of `training` for all runs.
    """

    def __init__(
        self,
        model: Path | None,
        *,
        old: Domain,
        new: Domain,
        folder: Path,
        updates: int,
        seed: int,
        training: Mapping[str, Any],
    ) -> None:
        self._old, self._new, self._folder = old, new, folder
        self._updates, self._seed, self._training = updates, seed, training
        self._model = self._base() if model is None else model

    def before(self) -> list[str]:
        """Score the model as it is."""
        return self._scores("before", lambda: self._model)

    def after(self, name: str, *, share: float, **settings: Any) -> list[str]:
        """Train it on new text, of which a share is old, and score it."""
        name = f"{name.replace(',', '').replace(' ', '_')}_{self._seed}"
        return self._scores(name, lambda: self._adapted(name, share, settings))

    def _base(self) -> Path:
        """Train a model on the old text."""
        path = self._folder / "tokenizer"
        if not path.exists():
            sides = zip(self._old.train, self._new.train, strict=True)
            both = (chain(*map(read_lines, files)) for files in sides)
            made = train_tokenizers(*both, joint=True, type="bpe", vocab_size=NUM_PIECES)
            save_tokenizers(made, path)
        return self._train(
            "base",
            [_text(self._old.train)],
            self._old,
            {
                "max_steps": BASE_UPDATES,
                "optimizer": {"type": "muon"},
                "lr": 0.008,
                "schedule": {"type": "linear", "warmup_steps": 150},
                "validation": _validation(BASE_UPDATES // 5),
            },
            tokenizer={"path": str(path)},
            model=BASE,
        )

    def _adapted(self, name: str, share: float, settings: Mapping[str, Any]) -> Path:
        train = [_text(self._new.train)]
        if share:
            weight = weight_of_old(share, self._new.size, self._old.size)
            train.append(_text(self._old.train) | {"weight": weight})
        training = {
            "init_from": str(self._model),
            "max_steps": self._updates,
            "lr": LOW_RANK_LR if "lora_rank" in settings else LR,
            "schedule": {"type": "linear", "warmup_steps": max(1, self._updates // 10)},
            "validation": _validation(max(1, self._updates // 3)),
            **settings,
            **self._training,
        }
        return self._train(name, train, self._new, training)

    def _train(
        self,
        name: str,
        train: list[dict[str, Any]],
        domain: Domain,
        training: Mapping[str, Any],
        **groups: Any,
    ) -> Path:
        result = tmt.train(
            {
                "name": name,
                "seed": self._seed,
                "data": {
                    "src_lang": domain.languages[0],
                    "tgt_lang": domain.languages[1],
                    "train": train,
                    "valid": _text(domain.valid),
                    "corpus_dir": str(self._folder / "corpora"),
                    "num_workers": 1,
                },
                "training": {
                    "runs_dir": str(self._folder / "runs"),
                    "device": "cpu",
                    "max_tokens": 1024,
                    **training,
                },
                **groups,
            }
        )
        return Path(result.model_dir)

    def _scores(self, name: str, make: Callable[[], Path]) -> list[str]:
        """Return BLEU on new and on old text with half of their 95 % intervals."""
        path = self._folder / f"{name}.json"
        if not path.exists():
            model = tmt.load(make())
            found = [_score(model, domain.test) for domain in (self._new, self._old)]
            path.write_text(json.dumps(found) + "\n", encoding="utf-8")
        scores: list[str] = json.loads(path.read_text(encoding="utf-8"))
        return scores


def _text(files: Pair[Path]) -> dict[str, Any]:
    return {"type": "text", "src": str(files[0]), "tgt": str(files[1])}


def _validation(every: int) -> dict[str, Any]:
    return {"every_steps": every, "metrics": ["bleu"], "beam_size": 1}


def _score(model: "Model", files: Pair[Path]) -> str:
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
    model: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Model to begin with. Default: train one on --old."),
    ] = None,
    old: Annotated[Path, typer.Option(metavar="DIR", help="Its text: Multi30k.")] = Path(
        "data/multi30k"
    ),
    new: Annotated[Path, typer.Option(metavar="DIR", help="Other text: the demo corpus.")] = Path(
        "data/demo"
    ),
    languages: Annotated[tuple[str, str], typer.Option(help="Source and target.")] = ("en", "de"),
    pairs: Annotated[int | None, typer.Option(help="Of the new text. Default: all.")] = None,
    updates: Annotated[int, typer.Option(help="Of each run.")] = UPDATES,
    only: Annotated[
        list[str], typer.Option("--only", help="Rows of the table; default all.")
    ] = list(VARIANTS),
    seeds: Annotated[list[int], typer.Option("--seed", help="Of each run.")] = [1],
    training: Annotated[
        list[str], typer.Option("--set", help="Setting of `training` for all, as NAME=JSON.")
    ] = [],
    output: Folder = DEFAULT_FOLDER,
) -> None:
    """Adapt a model to text of another kind, with old text and without."""
    folder = output / "finetuning"
    folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[str]] = {}
    for seed in seeds:
        adaptation = Adaptation(
            model,
            old=Domain(old, languages, None, folder),
            new=Domain(new, languages, pairs, folder),
            folder=folder,
            updates=updates,
            seed=seed,
            training={name: json.loads(value) for name, _, value in _split(training)},
        )
        rows["before"] = adaptation.before()
        for name in only:
            label = f"{name}, seed {seed}" if len(seeds) > 1 else name
            rows[label] = adaptation.after(name, **VARIANTS[name])
    print("\n".join(table(rows)))


def _split(settings: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    return (setting.partition("=") for setting in settings)

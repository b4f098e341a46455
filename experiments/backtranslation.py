"""Back-translation: few pairs, and many lines of the target language that a model translated.

Source: Sennrich et al. 2016 (Improving NMT models with monolingual data); Caswell et al. 2019.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.results import DEFAULT_FOLDER, Folder
from experiments.synthetic import DATA, TAG, Data, Part, Row, Study, table

NUM_PAIRS, NUM_LINES = 5000, 24_000
PRETRAINING_UPDATES, REVERSE_UPDATES, UPDATES = 1200, 1000, 1600
"""Of 1,024 target tokens."""
LR, LR_AFTER_PRETRAINING = 0.008, 0.004
DROPOUT = {"pairs": 0.3, "mixture": 0.2, "denoiser": 0.1}
MODEL = {
    "d_model": 128,
    "d_ff": 256,
    "num_heads": 4,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "norm": "pre",
    "positions": {"type": "rotary"},
}


class BackTranslation:
    """Translators of 5,000 pairs, alone and with 24,000 lines of German.

    Args:
        study: Has the text, makes the runs.
        seed: Of the translators that are compared.
    """

    def __init__(self, study: Study, seed: int) -> None:
        pairs, rest = slice(0, NUM_PAIRS), slice(NUM_PAIRS, NUM_PAIRS + NUM_LINES)
        self._study, self._seed = study, seed
        self._text, self._mono = study.text("train", pairs), study.lines("train", 1, rest)
        german = study.lines("train", 1, slice(0, NUM_PAIRS + NUM_LINES))
        self._tokenizer = study.tokenizer("tokenizer_bt", Path(self._text["src"]), german)

    def denoiser(self) -> Path:
        """Learn both languages from text alone: the German lines and the 5,000 sources."""
        english, german = ({"type": "monolingual", "path": self._text[s]} for s in ("src", "tgt"))
        more = {"type": "monolingual", "path": str(self._mono)}
        valid = {"type": "monolingual", "path": self._study.text("val")["tgt"]}
        train: list[Any] = [english | {"weight": 2.0}, german, more]
        return self._train("denoiser", train, "denoiser", valid=valid, updates=PRETRAINING_UPDATES)

    def reverse(self) -> Path:
        """Translate from German to English after denoising."""
        turned = self._text | {"src": self._text["tgt"], "tgt": self._text["src"]}
        updates = REVERSE_UPDATES
        return self._train(
            "reverse", [turned], "pairs", updates=updates, is_reversed=True, start=self.denoiser()
        )

    def alone(self, *, pretrained: bool = False) -> Path:
        """Translate after the 5,000 pairs."""
        name = f"pairs{'_pretrained' * pretrained}_{self._seed}"
        return self._train(name, [self._text], "pairs", **self._start(pretrained))

    def joined(self, *, text: str = "beam", pretrained: bool = False, tag: bool = True) -> Path:
        """Translate after the pairs and the back-translated lines."""
        search = {"beam": {"beam_size": 4}, "sampling": {"sample": True, "top_k": 10}}[text]
        back = self._study.synthesize(f"text_{text}", self.reverse(), self._mono, "src", **search)
        synthetic = {"type": "text", "src": back.src, "tgt": back.tgt}
        if tag:
            synthetic["tag"] = TAG
        train: list[Any] = [self._text | {"weight": 2.0}, synthetic]
        name = f"{text}{'_pretrained' * pretrained}{'' if tag else '_untagged'}_{self._seed}"
        return self._train(name, train, "mixture", **self._start(pretrained))

    def _start(self, pretrained: bool) -> dict[str, Any]:
        start = self.denoiser() if pretrained else None
        return {"updates": UPDATES, "seed": self._seed, "start": start}

    def _train(
        self, name: str, train: list[dict[str, Any]], kind: str, *, updates: int, **given: Any
    ) -> Path:
        lr = LR if given.get("start") is None else LR_AFTER_PRETRAINING
        model = MODEL | {"dropout": DROPOUT[kind]}
        made: dict[str, Any] = {"tokenizer": self._tokenizer, "model": model, "lr": lr}
        return self._study.train(name, updates, train, **made, **given)


ROWS: Mapping[str, tuple[str, Callable[[BackTranslation], Path]]] = {
    "pairs": ("5,000 pairs", BackTranslation.alone),
    "beam": ("and 24,000 lines by beam search", BackTranslation.joined),
    "sampling": ("by sampling of 10", partial(BackTranslation.joined, text="sampling")),
    "untagged": ("by beam search, no tag", partial(BackTranslation.joined, tag=False)),
    "pairs_pretrained": (
        "5,000 pairs, after denoising",
        partial(BackTranslation.alone, pretrained=True),
    ),
    "beam_pretrained": (
        "and 24,000 lines by beam search, after denoising",
        partial(BackTranslation.joined, pretrained=True),
    ),
}


def compare(study: Study, names: list[str], seeds: list[int]) -> Iterator[Row]:
    """Train translators of 5,000 pairs alone, and with 24,000 lines of German."""
    for name in names:
        label, make = ROWS[name]
        for seed in seeds:
            of_seed = f"{label}, seed {seed}" if len(seeds) > 1 else label
            made = partial(make, BackTranslation(study, seed))
            yield {**study.score(f"{name}_{seed}", made), "name": of_seed}


def run(
    data: Data = DATA,
    only: Annotated[
        list[str], typer.Option("--only", help=f"Of {', '.join(ROWS)}; default all.")
    ] = list(ROWS),
    seeds: Annotated[list[int], typer.Option("--seed", help="Of the translators.")] = [1],
    share: Part = 1.0,
    output: Folder = DEFAULT_FOLDER,
) -> None:
    """Compare a translator of few pairs with one that back-translated text joins."""
    study = Study(data, output / "backtranslation", share=share)
    print("\n".join(table(list(compare(study, only, seeds)))))

"""Recall and precision of the flags of `tmt evaluate --checks` on planted faults.

Into disjoint parts of a translated text, one fault each: the translation of another line, the
first half alone, a phrase repeated, the source in place of the translation, the same sentence in
another language. A fault counts as found if its line has the flag for it; a flag is right if its
line has a fault it is for. What the model itself did wrong counts as a wrong flag. A model that
judges the translations adds two flags.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.assessment.flags import Flag, flags_of
from transformer_mt.evaluation import judge
from transformer_mt.metrics.scores import sentence_chrf
from transformer_mt.text.lines import read_lines
from transformer_mt.translation.load import load_model, make_translator
from transformer_mt.translation.translator import Translator

FAULTS = ("another line", "first half", "phrase repeated", "source copied", "another language")
FLAGS_FOR: dict[Flag, tuple[str, ...]] = {
    "other line": ("another line",),
    "short": ("first half",),
    "uncovered": ("first half",),
    "repeated": ("phrase repeated",),
    "copied": ("source copied",),
    "language": ("another language", "source copied"),
    "unlikely": FAULTS,
}
"""The faults that each flag is for."""


@dataclass(frozen=True)
class Text:
    """A translated text: its lines, and the same sentences in another language."""

    sources: list[str]
    references: list[str]
    hypotheses: list[str]
    foreign: list[str]


def planted(text: Text, *, share: float, seed: int) -> tuple[list[str], dict[str, set[int]]]:
    """Return translations with each fault in a share of the lines, and the lines of each."""
    rng = random.Random(seed)
    order = list(range(len(text.hypotheses)))
    rng.shuffle(order)
    size = round(share * len(order))
    lines = {name: order[i * size : (i + 1) * size] for i, name in enumerate(FAULTS)}
    found = list(text.hypotheses)
    moved = lines["another line"]
    for line, other in zip(moved, moved[1:] + moved[:1], strict=True):
        found[line] = text.hypotheses[other]
    changes: dict[str, Callable[[int], str]] = {
        "first half": lambda line: _half(text.hypotheses[line], has_end=line % 2 == 0),
        "phrase repeated": lambda line: _repeated(text.hypotheses[line], rng),
        "source copied": lambda line: text.sources[line],
        "another language": lambda line: text.foreign[line],
    }
    for name, change in changes.items():
        for line in lines[name]:
            found[line] = change(line)
    return found, {name: set(own) for name, own in lines.items()}


def _half(text: str, *, has_end: bool) -> str:
    """Return the first half of the words; every second time with the sign at the end."""
    words = text.split()
    return " ".join(words[: max(1, len(words) // 2)]) + ("." if has_end else "")


def _repeated(text: str, rng: random.Random) -> str:
    """Repeat one to four words three to six times."""
    words = text.split()
    size = rng.randint(1, 4)
    begin = rng.randrange(max(1, len(words) - size + 1))
    phrase = words[begin : begin + size]
    return " ".join(words[:begin] + phrase * rng.randint(3, 6) + words[begin + size :])


def table(
    text: Text,
    *,
    tgt_lang: str,
    share: float,
    seeds: Sequence[int],
    translator: Translator | None = None,
) -> list[str]:
    """Return the lines of a Markdown table: recall and precision of each flag over all seeds."""
    planted_of, flagged, right = ({flag: 0 for flag in FLAGS_FOR} for _ in range(3))
    for seed in seeds:
        hypotheses, lines = planted(text, share=share, seed=seed)
        found = _flags(text, hypotheses, tgt_lang, translator)
        for flag, faults in FLAGS_FOR.items():
            with_flag = {line for line, own in enumerate(found) if flag in own}
            with_fault = set[int]().union(*(lines[fault] for fault in faults))
            planted_of[flag] += len(with_fault)
            flagged[flag] += len(with_flag)
            right[flag] += len(with_flag & with_fault)
    clean = _flags(text, text.hypotheses, tgt_lang, translator)
    rows = [
        "| flag | for | planted | found | recall | flagged | precision | without faults |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for flag, faults in FLAGS_FOR.items():
        if translator is None and flag in ("uncovered", "unlikely"):
            continue
        recall, precision = right[flag] / planted_of[flag], right[flag] / max(flagged[flag], 1)
        rows.append(
            f"| `{flag}` | {'all' if faults == FAULTS else ', '.join(faults)} | "
            f"{planted_of[flag]:,} | {right[flag]:,} | {recall:.1%} | {flagged[flag]:,} | "
            f"{precision:.1%} | {sum(flag in own for own in clean):,} |"
        )
    return rows


def _flags(
    text: Text, hypotheses: Sequence[str], tgt_lang: str, translator: Translator | None
) -> list[list[Flag]]:
    found = None if translator is None else judge(translator, text.sources, hypotheses)
    return flags_of(
        hypotheses,
        text.references,
        chrf=sentence_chrf(hypotheses, text.references),
        sources=text.sources,
        tgt_lang=tgt_lang,
        confidences=None if found is None else found.confidences,
        coverage=None if found is None else found.coverage,
    )


def run(
    hyp: Annotated[Path, typer.Option(metavar="FILE", help="Translations.")],
    src: Annotated[Path, typer.Option(metavar="FILE", help="Their sources.")],
    ref: Annotated[Path, typer.Option(metavar="FILE", help="References.")],
    other: Annotated[Path, typer.Option(metavar="FILE", help="The same in another language.")],
    model: Annotated[Path | None, typer.Option(metavar="RUN", help="Judges, too.")] = None,
    tgt_lang: Annotated[str, typer.Option(metavar="CODE", help="Target language.")] = "de",
    share: Annotated[
        float, typer.Option(metavar="X", min=0.001, max=0.2, help="Lines with each fault.")
    ] = 0.04,
    num_seeds: Annotated[int, typer.Option(metavar="N", min=1, help="Places of the faults.")] = 5,
) -> None:
    """Plant faults in translations and count what the flags find."""
    texts = [list(read_lines(path)) for path in (src, ref, hyp, other)]
    translator = (
        None
        if model is None
        else make_translator(load_model(model, device="cpu", precision="fp32"), {})
    )
    seeds = range(1, num_seeds + 1)
    for line in table(
        Text(*texts), tgt_lang=tgt_lang, share=share, seeds=seeds, translator=translator
    ):
        typer.echo(line)

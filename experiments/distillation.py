"""Knowledge distillation: a small student of the text that its teacher translated.

Source: Kim and Rush 2016, section 3.2.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.results import DEFAULT_FOLDER, Folder
from experiments.synthetic import DATA, Data, Part, Row, Study, table

UPDATES = 2000
"""Of 1,024 target tokens, for each student."""
STUDENT = {
    "d_model": 64,
    "d_ff": 128,
    "num_heads": 2,
    "num_encoder_layers": 2,
    "num_decoder_layers": 1,
    "norm": "pre",
    "dropout": 0.1,
}


def compare(study: Study, teacher: Path, updates: int) -> Iterator[Row]:
    """Train a small student on the original text, and on what its teacher makes of the sources."""
    text = study.text("train")
    tokenizer = study.tokenizer("tokenizer_kd", Path(text["src"]), Path(text["tgt"]))
    made: dict[str, Any] = {"tokenizer": tokenizer, "model": STUDENT}

    def student() -> Path:
        text_made = study.synthesize("distilled", teacher, Path(text["src"]), "tgt", beam_size=1)
        distilled = {"type": "text", "src": text_made.src, "tgt": text_made.tgt}
        return study.train("student_distilled", updates, [distilled], **made)

    def baseline() -> Path:
        return study.train("student_original", updates, [text], **made)

    yield study.speed(study.score("teacher", lambda: teacher))
    yield study.score("student, original text", baseline)
    yield study.speed(study.score("student, distilled text", student))


def run(
    teacher: Annotated[Path, typer.Option(metavar="DIR", help="Model of Multi30k.")],
    data: Data = DATA,
    updates: Annotated[int, typer.Option(help="Of each student.")] = UPDATES,
    share: Part = 1.0,
    output: Folder = DEFAULT_FOLDER,
) -> None:
    """Compare a small student of the original text with one of its teacher's translations."""
    study = Study(data, output / "distillation", share=share)
    print("\n".join(table(list(compare(study, teacher, updates)))))

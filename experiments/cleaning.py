"""Cleaning: a translator of dirty text against one of what `tmt clean` keeps, at equal updates.

The text comes from `scripts/dirty_corpus.py`. What training cannot read, bytes that are no text,
is left out of the dirty text, too.
"""

import json
from pathlib import Path
from typing import Annotated

import typer

import transformer_mt as tmt
from experiments.results import DEFAULT_FOLDER, Folder
from experiments.synthetic import Row, table
from transformer_mt.cleaning.clean import Job, clean
from transformer_mt.cleaning.inputs import held_out_hashes, open_leniently
from transformer_mt.cleaning.shards import Checker
from transformer_mt.config.cleaning import OverlapRule, RuleSettings
from transformer_mt.config.sources import TextSource
from transformer_mt.text.lines import read_lines

LANGUAGES = ("en", "de")
MODEL = {
    "d_model": 128,
    "d_ff": 256,
    "num_heads": 4,
    "num_encoder_layers": 4,
    "num_decoder_layers": 4,
    "norm": "pre",
    "positions": {"type": "rotary"},
    "dropout": 0.1,
}


def train(name: str, text: dict[str, str], data: Path, folder: Path, updates: int) -> Row:
    """Train on a text for some updates of 1,024 target tokens, and score it on the test set."""
    result = tmt.train(
        {
            "name": name,
            "data": {
                "src_lang": LANGUAGES[0],
                "tgt_lang": LANGUAGES[1],
                "train": [text],
                "valid": {"type": "text", "src": f"{data}/dev.en", "tgt": f"{data}/dev.de"},
                "corpus_dir": str(folder / "corpora"),
                "num_workers": 1,
            },
            "tokenizer": {"vocab_size": 4000},
            "model": MODEL,
            "training": {
                "runs_dir": str(folder / "runs"),
                "device": "cpu",
                "max_tokens": 1024,
                "max_steps": updates,
                "optimizer": {"type": "muon"},
                "lr": 0.008,
                "schedule": {"type": "linear", "warmup_steps": max(1, updates // 10)},
                "validation": {
                    "every_steps": max(1, updates // 2),
                    "metrics": [],
                    "select_by": "loss",
                },
            },
        }
    )
    src, ref = (list(read_lines(data / f"test.{end}")) for end in LANGUAGES)
    row = {"name": name}
    for width in (1, 4):
        found = tmt.evaluate(
            tmt.load(result.model_dir), src, ref, metrics=["bleu"], confidence=True, beam_size=width
        )
        (bleu,) = found.scores
        row[f"bleu_{width}"] = f"{bleu.value:.1f} ± {bleu.half_width:.1f}"
    return row


def texts(dirty: Path, data: Path, folder: Path) -> dict[str, dict[str, str]]:
    """Return a dirty text as training can read it, and cleaned."""
    source = TextSource(src=str(dirty / "dirty.src"), tgt=str(dirty / "dirty.tgt"))
    overlap = OverlapRule(
        files=[str(data / f"{s}.{end}") for s in ("dev", "test") for end in LANGUAGES]
    )
    names = [name for name in RuleSettings.model_fields if name != "encoding"]
    off = RuleSettings.model_validate(dict.fromkeys(names))
    found = {}
    both: dict[str, RuleSettings] = {"dirty": off, "clean": RuleSettings(overlap=overlap)}
    for name, rules in both.items():
        checker = Checker(rules, LANGUAGES, held_out_hashes(rules.overlap))
        report = clean(Job(open_leniently([source], LANGUAGES), checker), folder / name)
        found[name] = {"type": "text", "src": report.src, "tgt": report.tgt}
    return found


def run(
    dirty: Annotated[
        list[Path], typer.Argument(metavar="FOLDER..", help="Made by scripts/dirty_corpus.py.")
    ],
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Folder of Tatoeba: dev and test sets.")
    ] = Path("data/tatoeba"),
    updates: Annotated[int, typer.Option(help="Updates of each run.")] = 1000,
    output: Folder = DEFAULT_FOLDER,
) -> None:
    """Compare training on dirty text with training on what cleaning keeps of it."""
    rows = []
    for folder in dirty:
        own = output / "cleaning" / folder.name
        own.mkdir(parents=True, exist_ok=True)
        for name, text in texts(folder, data, own).items():
            path = own / f"{name}.json"
            if not path.exists():
                row = train(f"{folder.name}_{name}", text, data, own, updates)
                path.write_text(json.dumps(row) + "\n", encoding="utf-8")
            rows.append(json.loads(path.read_text(encoding="utf-8")))
    print("\n".join(table(rows)))

"""Back-translation: few pairs, and many lines of the target language that a model translated.

Source: Sennrich et al. 2016 (Improving NMT models with monolingual data); Caswell et al. 2019.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.results import DEFAULT_FOLDER, Folder
from experiments.synthetic import DATA, TAG, Data, Part, Row, Study, table

NUM_PAIRS, NUM_LINES = 5000, 24_000
REVERSE_UPDATES, UPDATES = 800, 1200
MODEL = {
    "d_model": 128,
    "d_ff": 256,
    "num_heads": 4,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "norm": "pre",
    "dropout": 0.3,
}


def compare(study: Study) -> Iterator[Row]:
    """5,000 pairs alone, and with 24,000 lines of German that a model translated into English."""
    pairs, rest = slice(0, NUM_PAIRS), slice(NUM_PAIRS, NUM_PAIRS + NUM_LINES)
    text, mono = study.text("train", pairs), study.lines("train", 1, rest)
    german = study.lines("train", 1, slice(0, NUM_PAIRS + NUM_LINES))
    made: dict[str, Any] = {
        "tokenizer": study.tokenizer("tokenizer_bt", Path(text["src"]), german),
        "model": MODEL,
    }
    turned = text | {"src": text["tgt"], "tgt": text["src"]}

    def reverse() -> Path:
        return study.train("reverse", REVERSE_UPDATES, [turned], is_reversed=True, **made)

    def translator(name: str, **search: object) -> Path:
        back = study.synthesize(f"text_{name}", reverse(), mono, "src", **search)
        synthetic = {"type": "text", "src": back.src, "tgt": back.tgt, "tag": TAG}
        return study.train(name, UPDATES, [text | {"weight": 2.0}, synthetic], **made)

    yield study.score("5,000 pairs", lambda: study.train("pairs_alone", UPDATES, [text], **made))
    yield study.score(
        "5,000 pairs, 24,000 lines by beam search",
        lambda: translator("with_beam", beam_size=4),
    )
    yield study.score(
        "5,000 pairs, 24,000 lines by sampling", lambda: translator("with_sampling", sample=True)
    )


def run(data: Data = DATA, share: Part = 1.0, output: Folder = DEFAULT_FOLDER) -> None:
    """Compare a translator of few pairs with one that back-translated text joins."""
    study = Study(data, output / "backtranslation", share=share)
    print("\n".join(table(list(compare(study)))))

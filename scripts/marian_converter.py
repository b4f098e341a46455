"""A model exported to Marian, converted by transformers' own script, and compared with ours.

That script is in transformers before version 5:

    pip install --target old 'transformers<5' sacremoses
    PYTHONPATH=old python scripts/marian_converter.py --model runs/mine --check test.en

Two lines: as it converts, and with Marian's table of positions in place of the one of the paper,
which transformers computes for all models.
"""

import argparse
import importlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from transformer_mt.bundle import load_bundle
from transformer_mt.exchange.export import export
from transformer_mt.exchange.huggingface import HuggingFaceTwin, generation_config
from transformer_mt.exchange.marian import names_of_rows
from transformer_mt.exchange.parity import compare
from transformer_mt.locations import find_bundle
from transformer_mt.nn.sinusoids import sinusoid_table

CONVERTER = "transformers.models.marian.convert_marian_to_pytorch"
MAX_LENGTH = 100


def main() -> None:
    """Export, convert, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="run or bundle")
    parser.add_argument("--check", type=Path, required=True, help="source sentences")
    parser.add_argument("--sentences", type=int, default=200)
    arguments = parser.parse_args()
    bundle = load_bundle(find_bundle(arguments.model))
    sources = arguments.check.read_text(encoding="utf-8").splitlines()[: arguments.sentences]
    names = names_of_rows(bundle.tokenizers.src)
    theirs = {piece: row for row, piece in enumerate(names)}
    rows = [theirs[piece] for piece in bundle.tokenizers.src.pieces(range(len(theirs)))]
    settings = generation_config(bundle.config.decoding)
    with TemporaryDirectory() as folder:
        exported, converted = Path(folder) / "src-tgt", Path(folder) / "converted"
        export(bundle, "marian", exported, sentences=None)
        convert(exported, names, converted)
        twin = HuggingFaceTwin(converted, (rows, rows))
        for positions in ("the paper", "Marian"):
            if positions == "Marian":
                put_positions(twin.model)
            parity = compare(
                bundle, twin, sources, None,
                beam_size=settings["num_beams"], exponent=settings["length_penalty"],
                max_length=MAX_LENGTH,
            )  # fmt: skip
            print(f"positions of {positions}: {parity.summary()}")


def convert(exported: Path, names: list[str], converted: Path) -> None:
    """Convert as the script does, in float32."""
    unnamed = [f"row {row}" if name in ("<pad>", "<s>") else name for row, name in enumerate(names)]
    numbers = {name: row for row, name in enumerate(unnamed)}
    (exported / "vocab.yml").write_text(json.dumps(numbers), encoding="utf-8")  # JSON is YAML
    for side in ("source", "target"):
        (exported / f"{side}.spm").write_bytes((exported / "vocab.spm").read_bytes())
    model = importlib.import_module(CONVERTER).OpusState(exported).load_marian_model()
    model.save_pretrained(converted)


def put_positions(model: Any) -> None:
    """Replace both tables of positions."""
    for side in (model.model.encoder, model.model.decoder):
        weight = side.embed_positions.weight
        with torch.no_grad():
            weight.copy_(torch.from_numpy(sinusoid_table(*weight.shape, endpoint=True)))


if __name__ == "__main__":
    main()

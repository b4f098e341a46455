#!/usr/bin/env python3
"""Compares a model that optimum exported to ONNX with the Hugging Face model it was made from.

    pip install 'optimum-onnx[onnxruntime]' sentencepiece
    tmt export --to huggingface --model runs/base --output base_hf
    optimum-cli export onnx --model base_hf --task text2text-generation-with-past base_onnx
    python scripts/onnx_check.py base_hf base_onnx test.en --sentences 200

Prints the share of equal translations by greedy and by beam search, and the seconds of both.
"""

import argparse
import importlib
import time
from pathlib import Path
from typing import Any

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer


def translations(
    model: Any, tokenizer: Any, lines: list[str], *, num_beams: int, batch_size: int = 20
) -> list[str]:
    """Translate lines with the generation settings of the model."""
    found: list[str] = []
    for start in range(0, len(lines), batch_size):
        batch = tokenizer(lines[start : start + batch_size], return_tensors="pt", padding=True)
        ids = model.generate(**batch, num_beams=num_beams)
        found += tokenizer.batch_decode(ids, skip_special_tokens=True)
    return found


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("huggingface", help="what `tmt export --to huggingface` wrote")
    parser.add_argument("onnx", help="what `optimum-cli export onnx` wrote")
    parser.add_argument("text", type=Path, help="source lines")
    parser.add_argument("--sentences", type=int, default=100, help="number of lines (100)")
    given = parser.parse_args()
    lines = given.text.read_text(encoding="utf-8").splitlines()[: given.sentences]
    tokenizer = AutoTokenizer.from_pretrained(given.huggingface)
    onnx = importlib.import_module("optimum.onnxruntime").ORTModelForSeq2SeqLM
    models = {
        "torch": AutoModelForSeq2SeqLM.from_pretrained(given.huggingface).eval(),
        "onnxruntime": onnx.from_pretrained(given.onnx),
    }
    for num_beams in (1, 4):
        found, seconds = [], []
        for name, model in models.items():
            start = time.perf_counter()
            found.append(translations(model, tokenizer, lines, num_beams=num_beams))
            seconds.append(f"{name} {time.perf_counter() - start:.1f} s")
        equal = sum(a == b for a, b in zip(*found, strict=True))
        print(f"{num_beams} beams: {equal} of {len(lines)} equal; {', '.join(seconds)}")


if __name__ == "__main__":
    main()

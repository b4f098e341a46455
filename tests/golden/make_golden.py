"""Make the golden bundle of a version: a small trained model and what it translates.

    python -m tests.golden.make_golden tests/golden/VERSION

Later versions must read it and translate identically (tests/golden/test_golden_bundles.py). A
bundle that was made once is never made again: a new format gets a new one beside it.
"""

import argparse
import json
import tempfile
from pathlib import Path

from tests.conftest import small_text
from transformer_mt.bundle import load_bundle, save_bundle, weights_of
from transformer_mt.config.schema import Config
from transformer_mt.training.trainer import train
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.translator import Translator


def settings(folder: Path) -> Config:
    """Return the settings of the run, whose texts are written to a folder."""
    sources: dict[str, dict[str, str]] = {}
    for name, size in {"train": 4000, "valid": 50}.items():
        sources[name] = {"type": "text"}
        for side, lines in zip(("src", "tgt"), small_text(size, seed=size), strict=True):
            path = folder / f"{name}.{side}"
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            sources[name][side] = str(path)
    return Config.model_validate(
        {
            "name": "golden",
            "data": {
                "src_lang": "en",
                "tgt_lang": "de",
                "train": [sources["train"]],
                "valid": sources["valid"],
                "corpus_dir": str(folder / "corpora"),
            },
            "tokenizer": {"vocab_size": 350},
            "model": {
                "d_model": 48,
                "d_ff": 96,
                "num_heads": 4,
                "num_encoder_layers": 2,
                "num_decoder_layers": 2,
                "norm": "pre",
            },
            "training": {
                "max_tokens": 1024,
                "lr": 0.005,
                "schedule": {"type": "linear", "warmup_steps": 50},
                "max_steps": 500,
                "validation": {"every_steps": 500},
                "device": "cpu",
                "runs_dir": str(folder / "runs"),
            },
        }
    )


def main() -> None:
    """Train, and write the bundle and its translations."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="new folder")
    output = parser.parse_args().output
    if output.exists():
        parser.error(f"{output} is there: a golden bundle is never made again")
    with tempfile.TemporaryDirectory() as folder:
        result = train(settings(Path(folder)))
        bundle = load_bundle(Path(result.run_dir) / "best")
    # Paths of the folder that is gone now are nobody's business.
    data = {**bundle.config.data.model_dump(), "corpus_dir": "data/corpora"}
    data["train"] = [{"type": "text", "src": "train.src", "tgt": "train.tgt"}]
    data["valid"] = {"type": "text", "src": "valid.src", "tgt": "valid.tgt"}
    training = {**bundle.config.training.model_dump(), "runs_dir": "runs"}
    config = Config.model_validate(
        {**bundle.config.model_dump(), "data": data, "training": training}
    )
    save_bundle(
        output / "bundle",
        config=config,
        tokenizers=bundle.tokenizers,
        state_dict=weights_of(bundle.model),
        scores={"validation": dict(result.scores)},
    )
    sources = [*small_text(40, seed=7)[0], "", "Grüße, 東京!", "the the dog dog old old"]
    found = Translator(bundle, SearchOptions(beam_size=4)).translate(sources)
    records = [
        {"source": source, "text": translation.text, "score": translation.n_best[0].score}
        for source, translation in zip(sources, found, strict=True)
    ]
    lines = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    (output / "translations.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()

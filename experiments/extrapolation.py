"""Length extrapolation of positional encodings: sentences longer than those of training.

    python -m experiments.extrapolation [--steps 600] [--schemes rotary alibi ..]

Trains the model of the recipe `reverse` on 3 to 10 digits with each scheme. Prints by length, for
digits that it has not seen: nats per digit (or end) of the right answer, and the share of sequences
that a greedy search translates without a mistake.
"""

import argparse
import tempfile
from pathlib import Path

import torch

from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.config.loading import RECIPES, load_config
from transformer_mt.config.sources import ReverseSource
from transformer_mt.data.batches import eval_batches
from transformer_mt.data.pairs import tokenize_pairs
from transformer_mt.data.sources import open_source, read_pairs
from transformer_mt.evaluation import validation_loss
from transformer_mt.training.trainer import train
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.translator import Translator

RECIPE = RECIPES / "reverse.yaml"
SCHEMES = ("none", "sinusoidal", "learned", "rotary", "relative", "relative_bias", "alibi")
LONGEST_TRAINED = 10
LENGTHS = ((3, 10), (11, 12), (13, 15), (16, 20))


def trained(scheme: str, *, num_steps: int, folder: str) -> Bundle:
    """Train a model on short sequences."""
    config = load_config(
        RECIPE,
        [
            f"model.positions={{type: {scheme}}}",
            f"data.train=[{{type: reverse, num_pairs: 20000, max_length: {LONGEST_TRAINED}}}]",
            f"data.valid={{type: reverse, num_pairs: 50, max_length: {LONGEST_TRAINED}, seed: 2}}",
            f"data.corpus_dir={folder}/corpus",
            f"training.runs_dir={folder}/{scheme}",
            f"training.max_steps={num_steps}",
            "training.schedule={type: linear, warmup_steps: 100}",
            f"training.validation.every_steps={num_steps}",
            "training.validation.beam_size=1",
            "training.device=cpu",
        ],
    )
    return load_bundle(Path(train(config).run_dir) / "best")


def measure(bundle: Bundle, shortest: int, longest: int) -> tuple[float, float]:
    """Return the loss in nats per digit or end, and the share of sequences translated rightly."""
    source = ReverseSource(
        type="reverse", num_pairs=200, min_length=shortest, max_length=longest, seed=3
    )
    sources, references = read_pairs(open_source(source, src_lang="digits", tgt_lang="stigid"))
    batches = eval_batches(
        tokenize_pairs(sources, references, tokenizers=bundle.tokenizers), max_tokens=4096
    )
    loss = validation_loss(bundle.model, batches, device=torch.device("cpu"), label_smoothing=0.0)
    found = Translator(bundle, SearchOptions(beam_size=1)).translate(sources)
    right = sum(one.text == text for one, text in zip(found, references, strict=True))
    return loss.nll_nats, right / len(found)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure schemes of positions beyond training.")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=SCHEMES)
    options = parser.parse_args()
    heads = [f"{shortest}-{longest} digits" for shortest, longest in LENGTHS]
    print(f"| positions | {' | '.join(heads)} |")
    print("|---" * (len(heads) + 1) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for scheme in options.schemes:
            bundle = trained(scheme, num_steps=options.steps, folder=folder)
            results = [measure(bundle, *lengths) for lengths in LENGTHS]
            cells = [f"{nats:.2f}, {100 * right:.0f} %" for nats, right in results]
            print(f"| {scheme} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Do the main job on real text, with the commands that a user would type, and time it.

    make demo

gets the demo corpus, trains the model of the recipe `demo` on it, translates, and scores
translations of texts that were not in training.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

from transformer_mt.config.loading import find_config, load_config
from transformer_mt.errors import TmtError
from transformer_mt.text.lines import read_lines

ROOT = Path(__file__).resolve().parents[1]
RECIPE = "demo"
DATA = Path("data/demo")
NUM_SAMPLES = 6
EXIT_INTERRUPTED = 130


class StepError(Exception):
    """A command that failed; it has printed the reason."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


def run(words: list[str], *, text: str | None = None) -> str:
    """Show a command as a user would type it, run it, and return what it prints.

    Raises:
        StepError: If it fails.
    """
    print(f"\n$ {shlex.join(words)}", flush=True)
    programs = {"tmt": ["-m", "transformer_mt"], "python": []}
    command = [sys.executable, *programs[words[0]], *words[1:]]
    result = subprocess.run(
        command, cwd=ROOT, input=text, stdout=subprocess.PIPE, text=True, check=False
    )
    if result.returncode:
        raise StepError(result.returncode)
    return result.stdout


def demo(changes: list[str]) -> None:
    """Run all steps and print the results."""
    started = time.monotonic()
    config = load_config(find_config(RECIPE), changes)
    target = config.data.tgt_lang
    print(run(["python", "scripts/demo_corpus.py", "--target", target]), end="")
    sets = [word for change in changes for word in ("--set", change)]
    limits = config.training
    if limits.max_steps and limits.max_minutes:
        print(
            f"\ntraining makes {limits.max_steps:,} updates, 6 to 10 minutes on two free cores; a"
        )
        print(f"slow or busy machine stops after {limits.max_minutes:g} minutes and scores lower")
    trained_from = time.monotonic()
    result = json.loads(run(["tmt", "train", "--config", RECIPE, "--fresh", "--json", *sets]))
    trained = time.monotonic()
    print(f"trained {result['step']:,} updates in {_minutes(trained - trained_from)}", end="")
    print(f" ({result['reason']})")
    if limits.max_steps and result["step"] < limits.max_steps:
        print(f"the time ended before all {limits.max_steps:,} were made; more would score higher")
    show_samples(result["model_dir"], target)
    print(run(["tmt", "evaluate", "--bleu", "--chrf", "--model", result["model_dir"]]), end="")
    run_dir = Path(result["run_dir"])
    print(f"\nmodel           {result['model_dir']}")
    for picture in sorted((ROOT / run_dir).glob("*.png")):
        print(f"learning curve  {run_dir / picture.name}")
    print(f"wall time       {_minutes(time.monotonic() - started)}")


def show_samples(model_dir: str, target: str) -> None:
    """Translate a few texts of the test set and print them with their references."""
    sources, references = (
        list(read_lines(ROOT / DATA / f"test.{language}")) for language in ("en", target)
    )
    step = max(1, len(sources) // NUM_SAMPLES)
    chosen = range(0, len(sources), step)[:NUM_SAMPLES]
    text = "".join(f"{sources[i]}\n" for i in chosen)
    output = run(["tmt", "translate", "--model", model_dir], text=text)
    for i, translation in zip(chosen, output.split("\n"), strict=False):
        print(f"\n  source       {sources[i]}")
        print(f"  translation  {translation}")
        print(f"  reference    {references[i]}")


def _minutes(seconds: float) -> str:
    return f"{seconds // 60:.0f} min {seconds % 60:02.0f} s"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(description="Do the main job on real text, step by step.")
    parser.add_argument(
        "--set",
        dest="changes",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="change a setting of the config, such as training.max_minutes=1; repeatable",
    )
    try:
        demo(parser.parse_args(arguments).changes)
    except StepError as error:
        return error.exit_code
    except TmtError as error:
        print(f"demo: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Time to resume a run: from the loaded program to the first update.

    python -m experiments.resume --config multi30k_tiny --set training.max_minutes=60

The run must be there, and its limits must leave it something to do. It makes one update; nothing of
it is saved.
"""

import argparse
import itertools
import json
import time
from contextlib import closing

from transformer_mt.config.loading import find_config, load_config
from transformer_mt.config.schema import Config
from transformer_mt.errors import ConfigError
from transformer_mt.training.run import open_session
from transformer_mt.training.trainer import Trainer


def measure(config: Config) -> dict[str, float]:
    """Continue a run for one update.

    Returns:
        Seconds until texts, tokenizer and corpora are open and checked (`session`), the checkpoint
        is restored (`restore`), the first batches are there (`batches`), and of the `update`;
        `step` is the one before it.

    Raises:
        ConfigError: If there is no such run, or it is finished.
    """
    times = [time.perf_counter()]
    with open_session(config, fresh=False) as session:
        times.append(time.perf_counter())
        with closing(Trainer(session)) as trainer:
            step, position = trainer.state.step, trainer.state.position
            if not step or trainer.progress.end_reason():
                raise ConfigError(f"{session.directory.root}: no run that can resume")
            times.append(time.perf_counter())
            with closing(trainer.updates.after(step, position)) as updates:
                batches = next(updates)
            times.append(time.perf_counter())
            trainer.update(*batches)
            times.append(time.perf_counter())
    names = ("session", "restore", "batches", "update")
    spent = (later - earlier for earlier, later in itertools.pairwise(times))
    return {"step": step} | dict(zip(names, spent, strict=True))


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", required=True)
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="X=Y")
    options = parser.parse_args()
    found = measure(load_config(find_config(options.config), options.settings))
    print(json.dumps({name: round(value, 3) for name, value in found.items()}))


if __name__ == "__main__":
    main()

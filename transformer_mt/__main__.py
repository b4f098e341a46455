"""The program `tmt`, and `python -m transformer_mt`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it quietly from the first import on."""
    if sys.flags.optimize > 1:  # help and the schema of configs are docstrings
        sys.exit("tmt: error: -OO (PYTHONOPTIMIZE=2) removes the texts of tmt: take -O, or neither")
    try:
        from transformer_mt.processors import set_thread_limit

        set_thread_limit()
        if next((word for word in sys.argv[1:] if not word.startswith("-")), "") == "train":
            from transformer_mt.training.signals import hold_signals

            hold_signals()
        from transformer_mt.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

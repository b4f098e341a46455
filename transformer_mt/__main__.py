"""Run the command line as `python -m transformer_mt`."""

from transformer_mt.cli.main import main

main()

"""`tmt data sample`: a random sample of a parallel text."""

from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.output_files import check_new_folder
from transformer_mt.cli.pair_inputs import Column, Language, PairFiles, open_pairs

EXAMPLES = (
    "tmt data sample train.en train.de --size 1000 --output data/sample",
    "tmt data sample pairs.tsv --size 20 --seed 2 --output data/sample",
)


def sample(
    files: PairFiles,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Directory of the sample.")],
    size: Annotated[int, typer.Option(metavar="N", min=1, help="Pairs.")] = 1000,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Chooses the pairs.")] = 1,
    src_lang: Language = None,
    tgt_lang: Language = None,
    src_column: Column = None,
    tgt_column: Column = None,
) -> None:
    """Take a random sample of a parallel text: the same for the same text, size and seed."""
    check_new_folder(output, *files)
    pairs = open_pairs(files, (src_lang, tgt_lang), (src_column, tgt_column))

    from transformer_mt.cleaning.pair_files import new_pair_files, write_pair
    from transformer_mt.cleaning.sampling import sample as sample_of

    about: dict[str, object] = {"texts": pairs.source.fingerprint(), "size": size, "seed": seed}
    chosen = sample_of(pairs.source, size, seed=seed)
    with new_pair_files(output, ["sample"], pairs.languages, about) as opened:
        for pair in chosen:
            write_pair(opened["sample"], pair)

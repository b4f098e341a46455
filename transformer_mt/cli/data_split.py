"""`tmt data split`: training, validation and test sets without leaks."""

import json
from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.options import AsJson
from transformer_mt.cli.output_files import check_new_folder
from transformer_mt.cli.pair_inputs import Column, Language, PairFiles, open_pairs
from transformer_mt.errors import ConfigError

EXAMPLES = (
    "tmt data split all.en all.de --valid 2000 --test 2000 --output data/sets",
    "tmt data split all.tsv --test 1000 --documents --output data/sets",
)


def split(
    files: PairFiles,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Directory of the sets.")],
    valid: Annotated[int, typer.Option(metavar="N", min=0, help="Pairs of `valid`.")] = 0,
    test: Annotated[int, typer.Option(metavar="N", min=0, help="Pairs of `test`.")] = 0,
    documents: Annotated[
        bool,
        typer.Option(
            "--documents",
            help="Hold out whole documents, which end at a pair of blank lines; N is the least.",
        ),
    ] = False,
    similarity: Annotated[
        float,
        typer.Option(
            metavar="X",
            min=0.5,
            max=1.0,
            help="From this share of common letter 4-grams on, pairs are relatives.",
        ),
    ] = 0.9,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Chooses the groups.")] = 1,
    src_lang: Language = None,
    tgt_lang: Language = None,
    src_column: Column = None,
    tgt_column: Column = None,
    as_json: AsJson = False,
) -> None:
    """Hold pairs out of a parallel text, so that none has a relative in training.

    Pairs with the same source or target, near duplicates, and their relatives form a group. Of each
    group that is held out one pair is taken; its others are left out of all sets.
    """
    sizes = {name: size for name, size in (("test", test), ("valid", valid)) if size}
    if not sizes:
        raise ConfigError("missing option: --valid N or --test N")
    check_new_folder(output, *files)
    pairs = open_pairs(files, (src_lang, tgt_lang), (src_column, tgt_column))

    from transformer_mt.cleaning.splitting import as_dict
    from transformer_mt.cleaning.splitting import split as split_text

    found = split_text(
        pairs.source,
        output,
        sizes,
        languages=pairs.languages,
        documents=documents,
        min_similarity=similarity,
        seed=seed,
    )
    typer.echo(json.dumps(as_dict(found)) if as_json else str(found))

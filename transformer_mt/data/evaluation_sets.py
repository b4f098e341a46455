"""Validation and test sets that a config names."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.config.schema import Config
from transformer_mt.config.sources import HeldOutSource, SplitSource, TextSource
from transformer_mt.data.held_out import open_held_out
from transformer_mt.data.noise import tagged
from transformer_mt.data.sources import open_source, read_pairs
from transformer_mt.errors import ConfigError

VALIDATION, GUARD = "valid", "guard"
HELD_OUT = "held_out"
"""In the folder of a run: the sets that were taken out of its training text."""


@dataclass(frozen=True)
class TestSet:
    """Sources and their references.

    Attributes:
        name: What it is called.
        sources: Lines to translate.
        references: Their translations, one for each source.
        more_references: Further references, each a list with one for each source.
    """

    name: str
    sources: list[str]
    references: list[str]
    more_references: tuple[list[str], ...] = ()


def read_test_sets(config: Config, names: Sequence[str], *, run: Path | None) -> list[TestSet]:
    """Read the named test sets of a config, or all of them.

    Args:
        config: Names the sets.
        names: Of test sets, `valid` or `guard`.
        run: Folder of the run, where sets are kept that were taken out of the training text.

    Raises:
        ConfigError: If there is none, or none of that name.
        DataError: If one cannot be read.
    """
    sources: dict[str, HeldOutSource] = {VALIDATION: config.data.valid}
    if config.data.guard is not None:
        sources[GUARD] = config.data.guard
    sources |= config.data.test
    for name in names:
        if name not in sources:
            raise ConfigError(
                f"the model's config has no test set '{name}'; it has: {', '.join(sources)}"
            )
    if not names and not config.data.test:
        raise ConfigError(
            "the model's config names no test sets (data.test): give --src and --ref, or "
            f"--test-set {VALIDATION} for the validation set"
        )
    test_sets = []
    for name in names or config.data.test:
        source = sources[name]
        if source.type == "monolingual":
            raise ConfigError(
                f"'{name}' of this model is monolingual text, which has no translations: give "
                "--src and --ref"
            )
        if isinstance(source, SplitSource):
            pairs = open_held_out(run and run / HELD_OUT, name)
            test_sets.append(TestSet(name, *read_pairs(pairs)))
        else:
            languages = {"src_lang": config.data.src_lang, "tgt_lang": config.data.tgt_lang}
            pairs = tagged(open_source(source, **languages), source)
            files = source.more_references if isinstance(source, TextSource) else []
            others = [source.model_copy(update={"tgt": file}) for file in files]
            more = [read_pairs(open_source(other, **languages))[1] for other in others]
            test_sets.append(TestSet(name, *read_pairs(pairs), tuple(more)))
    return test_sets

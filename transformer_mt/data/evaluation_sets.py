"""Validation and test sets that a config names."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.config.languages import Direction
from transformer_mt.config.schema import Config
from transformer_mt.config.sources import HeldOutSource, JoinedSources, SplitSource, TextSource
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
        direction: Source and target language; None: those that the model is asked for.
    """

    name: str
    sources: list[str]
    references: list[str]
    more_references: tuple[list[str], ...] = ()
    direction: Direction | None = None


def read_test_sets(config: Config, names: Sequence[str], *, run: Path | None) -> list[TestSet]:
    """Read the named test sets of a config, or all of them.

    Joined validation sets are sets of their own, named by their languages: `valid.en-de`.

    Args:
        config: Names the sets.
        names: Of test sets, `valid` or `guard`.
        run: Folder of the run, where sets are kept that were taken out of the training text.

    Raises:
        ConfigError: If there is none, or none of that name.
        DataError: If one cannot be read.
    """
    data = config.data
    known: dict[str, HeldOutSource] = {} if data.guard is None else {GUARD: data.guard}
    known |= data.test
    for name in names:
        if name not in (VALIDATION, *known):
            names_known = ", ".join((VALIDATION, *known))
            raise ConfigError(f"the model's config has no test set '{name}'; it has: {names_known}")
    if not names and not config.data.test:
        raise ConfigError(
            "the model's config names no test sets (data.test): give --src and --ref, or "
            f"--test-set {VALIDATION} for the validation set"
        )
    sets: list[tuple[str, HeldOutSource]] = []
    for name in names or data.test:
        if name == VALIDATION and isinstance(data.valid, JoinedSources):
            joined = data.valid.sources
            sets += [(f"{name}.{'-'.join(data.direction(source))}", source) for source in joined]
        else:
            sets.append((name, data.valid_sets[name] if name == VALIDATION else known[name]))
    test_sets = []
    for name, source in sets:
        direction = data.direction(source)
        if source.type == "monolingual":
            raise ConfigError(
                f"'{name}' of this model is monolingual text, which has no translations: give "
                "--src and --ref"
            )
        if isinstance(source, SplitSource):
            pairs = open_held_out(run and run / HELD_OUT, name)
            test_sets.append(TestSet(name, *read_pairs(pairs), direction=direction))
        else:
            languages = {"src_lang": data.src_lang, "tgt_lang": data.tgt_lang}
            pairs = tagged(open_source(source, **languages), source)
            files = source.more_references if isinstance(source, TextSource) else []
            others = [source.model_copy(update={"tgt": file}) for file in files]
            more = [read_pairs(open_source(other, **languages))[1] for other in others]
            test_sets.append(TestSet(name, *read_pairs(pairs), tuple(more), direction))
    return test_sets

"""Arguments of the Python interface: options of the search by keyword, lines of text.

Torch is not imported before a line is read.
"""

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from transformer_mt.errors import ConfigError

if TYPE_CHECKING:
    from transformer_mt.translation.requests import Line


class SearchKeywords(TypedDict, total=False):
    """How to search: settings of `config.decoding`, where each is described, and two of one call.

    What is not given is as in the model's config. `n_best` is the number of candidates to return,
    `num_workers` that of the processes that share long lists on the CPU; None: one for each thread
    of torch.
    """

    beam_size: int
    length_penalty: float
    length_penalty_kind: Literal["gnmt", "average", "reward"]
    max_length_factor: float
    max_length_offset: int
    batch_tokens: int
    n_best: int
    sample: bool
    temperature: float
    top_k: int
    top_p: float
    seed: int
    beam_groups: int
    diversity_penalty: float
    coverage_penalty: float
    max_length: int | None
    min_length: int
    min_length_ratio: float
    no_repeat_ngram: int
    repetition_penalty: float
    suppress: Sequence[str]
    mbr: Literal["chrf", "bleu"] | None
    mbr_samples: int
    shortlist: str | os.PathLike[str] | None
    compile: bool
    alignment_layer: int | None
    num_workers: int | None


def checked_iterable(lines: Iterable[Any]) -> Iterable[Any]:
    """Return an iterable of texts.

    Raises:
        TypeError: If it is one text, whose letters would be taken for lines.
    """
    if isinstance(lines, str | bytes):
        raise TypeError(f"expected a list of texts, got one text: [{lines[:40]!r}]?")
    return lines


def checked_texts(lines: Iterable[object]) -> list[str]:
    """Return lines of text.

    Raises:
        TypeError: If one is something else, or `lines` is one text.
    """
    return [
        _checked_text(line, number) for number, line in enumerate(checked_iterable(lines), start=1)
    ]


def _checked_text(line: object, number: int) -> str:
    if not isinstance(line, str):
        raise TypeError(f"line {number}: expected text (str), got {line!r:.60}")
    return line


def checked_lines(lines: "Iterable[str | Line]") -> "Iterator[str | Line]":
    """Yield lines.

    Raises:
        TypeError: At the first that is none, or if `lines` is one text.
    """
    from transformer_mt.translation.requests import Line

    for number, line in enumerate(checked_iterable(lines), start=1):
        yield line if isinstance(line, Line) else _checked_text(line, number)


def with_prefixes(lines: "Sequence[str | Line]", prefixes: Sequence[str]) -> "list[str | Line]":
    """Return lines whose translations begin in a given way, one prefix for each.

    Raises:
        ValueError: If there are more or fewer prefixes than lines.
    """
    from transformer_mt.translation.requests import Line

    if len(prefixes) != len(lines):
        raise ValueError(f"expected {len(lines)} prefixes, one for each line, got {len(prefixes)}")
    return [
        replace(line if isinstance(line, Line) else Line(line), prefix=prefix)
        for line, prefix in zip(lines, prefixes, strict=True)
    ]


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are given, as settings have them.

    Raises:
        TypeError: If there is no option of a name.
        ConfigError: If a value is out of bounds that no setting of a config has.
    """
    known = SearchKeywords.__annotations__
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are: {', '.join(known)}"
            raise TypeError(f"there is no option '{name}'; {hint}")
    given = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in options.items()
        if value is not None or name == "num_workers"
    }
    for name in ("n_best", "num_workers"):
        value = given.get(name)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ConfigError(f"{name}: expected a whole number from 1, got {value!r}")
    if "suppress" in given:
        given["suppress"] = list(checked_iterable(given["suppress"]))
    return given

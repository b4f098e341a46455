"""Output of `tmt compare`: tables, verdicts, sentences that moved most, JSON."""

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transformer_mt.cli.scoring_options import compared_lengths, length_records
from transformer_mt.config.training import METRIC_LABELS

if TYPE_CHECKING:
    from transformer_mt.comparison.sentences import Move, Wins
    from transformer_mt.comparison.systems import ComparedSystem
    from transformer_mt.data.evaluation_sets import TestSet
    from transformer_mt.metrics.by_length import Bucket
    from transformer_mt.metrics.significance import ComparedScore

Lines = Callable[[list[list[str]]], Iterator[str]]
"""From the cells of a table to its lines."""

UNLIMITED = 10_000


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All that is printed.

    Attributes:
        test: The test set.
        rows: The systems.
        buckets: Scores by length, by name of the system; empty where they are not wanted.
        wins: Lines won by length, by name of each system but the first; empty the same.
        moves: Lines that moved most, by the same names; empty where they are not wanted.
        unit: What lengths are counted in.
    """

    test: "TestSet"
    rows: "Sequence[ComparedSystem]"
    buckets: "Mapping[str, Sequence[Bucket]]"
    wins: "Mapping[str, Sequence[Wins]]"
    moves: "Mapping[str, Sequence[Move]]"
    unit: str = ""


def comparison_lines(found: Comparison, lines_of: Lines) -> Iterator[str]:
    """Yield the tables, each followed by a blank line, what they are of, and what they say."""
    tables = [_facts_and_scores(found.rows)]
    if found.buckets:
        tables.append(compared_lengths(found.buckets, unit=found.unit))
    tables += [_wins(name, own) for name, own in found.wins.items()]
    for table in tables:
        yield from lines_of(table)
        yield ""
    first = found.rows[0]
    yield f"{found.test.name}, {len(found.test.references):,} lines"
    for score in first.scores:
        yield f"{METRIC_LABELS[score.name]} {score.signature}"
    yield from _verdicts(found.rows)
    for name, moves in found.moves.items():
        yield from _moved(found, name, moves)


def _facts_and_scores(rows: "Sequence[ComparedSystem]") -> list[list[str]]:
    """Return the table of all systems; what no system has is left out of files' tables."""
    columns: dict[str, list[str]] = {"run": [row.facts.name for row in rows]}
    columns["model"] = [row.facts.model or "-" for row in rows]
    columns["parameters"] = [_number(row.facts.num_parameters, ",") for row in rows]
    columns["valid nll"] = [_number(row.facts.valid_nll_nats, ".3f") for row in rows]
    for place, first in enumerate(rows[0].scores):
        own = [row.scores[place] for row in rows]
        label = METRIC_LABELS[first.name]
        columns[label] = [f"{score.value:.2f} ± {score.half_width:.2f}" for score in own]
        columns[f"p {label}"] = list(map(_p_value, own))
    facts = [row.facts for row in rows]
    minutes = [None if own.seconds is None else own.seconds / 60 for own in facts]
    columns["tokens/s"] = [_number(own.tokens_per_second, ",.0f") for own in facts]
    columns["updates"] = [_number(own.num_updates, ",") for own in facts]
    columns["tokens"] = [_number(own.num_tokens, ",") for own in facts]
    columns["FLOPs"] = [_number(own.flops, ".2g") for own in facts]
    columns["minutes"] = [_number(value, ".1f") for value in minutes]
    if all(own.num_updates is None for own in facts):  # without a run
        columns = {name: cells for name, cells in columns.items() if set(cells) != {"-"}}
    headings = ["p" if name.startswith("p ") else name for name in columns]
    return [headings, *map(list, zip(*columns.values(), strict=True))]


def _wins(name: str, wins: "Sequence[Wins]") -> list[list[str]]:
    return [
        ["run", "sentences", *(own.name for own in wins)],
        [name, "better", *(f"{own.better:,}" for own in wins)],
        [name, "equal", *(f"{own.equal:,}" for own in wins)],
        [name, "worse", *(f"{own.worse:,}" for own in wins)],
    ]


def _verdicts(rows: "Sequence[ComparedSystem]") -> Iterator[str]:
    from transformer_mt.metrics.significance import verdict

    first, *others = rows
    for row in others:
        said = [
            f"{METRIC_LABELS[score.name]} {score.value - usual.value:+.2f}, p = "
            f"{_p_value(score)}: {verdict(usual, score)}"
            for usual, score in zip(first.scores, row.scores, strict=True)
        ]
        yield f"{row.facts.name} against {first.facts.name}: {'; '.join(said)}"


def _moved(found: Comparison, name: str, moves: "Sequence[Move]") -> Iterator[str]:
    first = found.rows[0]
    (other,) = (row for row in found.rows if row.facts.name == name)
    yield ""
    yield f"{name} against {first.facts.name}: sentences that moved most, by sentence chrF"
    named = {"source": found.test.sources, "reference": found.test.references}
    named |= {first.facts.name: first.hypotheses, name: other.hypotheses}
    width = max(map(len, named))
    for move in moves:
        yield f"{move.change:+.1f}  line {move.line + 1:,}"
        for label, lines in named.items():
            if lines:
                yield f"    {label:<{width}}  {lines[move.line]}"


def _number(value: float | None, how: str) -> str:
    return "-" if value is None else format(value, how)


def _p_value(score: "ComparedScore") -> str:
    return "" if score.p_value is None else f"{score.p_value:.3f}"


def aligned(table: list[list[str]]) -> Iterator[str]:
    """Yield lines of a table; one wider than the terminal is split by columns."""
    room = shutil.get_terminal_size((UNLIMITED, 0)).columns
    names, *columns = zip(*table, strict=True)
    widths = [max(map(len, column)) for column in columns]
    blocks: list[list[int]] = [[]]
    for number, width in enumerate(widths):
        used = max(map(len, names)) + sum(2 + widths[other] for other in blocks[-1])
        if blocks[-1] and used + 2 + width > room:
            blocks.append([])
        blocks[-1].append(number)
    for place, block in enumerate(blocks):
        if place:
            yield ""
        for row, name in enumerate(names):
            cells = [name.ljust(max(map(len, names)))]
            for number in block:
                cell = columns[number][row]
                cells.append(cell.rjust(widths[number]) if number else cell.ljust(widths[number]))
            yield "  ".join(cells)


def markdown(table: list[list[str]]) -> Iterator[str]:
    """Yield lines of a table in Markdown."""
    for number, row in enumerate(table):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
        if number == 0:
            yield f"|{'---|' * 2}{'---:|' * (len(row) - 2)}"


def comparison_record(found: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON values."""
    from transformer_mt.comparison.systems import hash_of

    test = found.test
    records = []
    for row in found.rows:
        name = row.facts.name
        record: dict[str, Any] = dataclasses.asdict(row.facts)
        record["scores"] = [dataclasses.asdict(score) for score in row.scores]
        if name in found.buckets:
            record["by_length"] = length_records(found.buckets[name])
        if name in found.wins:
            record["wins_by_length"] = [dataclasses.asdict(own) for own in found.wins[name]]
        if name in found.moves:
            record["moved"] = [
                {"line": own.line + 1, "change": own.change} for own in found.moves[name]
            ]
        records.append(record)
    return {
        "test_set": {"name": test.name, "num_lines": len(test.references), "hash": hash_of(test)},
        "runs": records,
    }

"""The folder of a result: kept pairs, dropped pairs with their reasons, a report; and its undoing.

    clean.SRC, clean.TGT   the kept pairs, in their order
    dropped.jsonl          the others: line (from 1), rule, value, detail, src, tgt
    report.json, report.txt
    manifest.json          what decided it, and the hashes of the files

The kept and the dropped pairs together are the input: `restore` puts those of a rule back.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from transformer_mt.cleaning.decisions import EDGES, Decisions
from transformer_mt.cleaning.pair_files import endings, write_pair
from transformer_mt.cleaning.report import Report, Sampler, record
from transformer_mt.cleaning.rules import MEANINGS
from transformer_mt.cleaning.shards import Checker, Row, json_line
from transformer_mt.errors import UNREADABLE_JSON, ConfigError, DataError, ModelError
from transformer_mt.storage.folders import new_directory, read_manifest
from transformer_mt.storage.untrusted import read_json
from transformer_mt.text.lines import read_lines

KIND = "transformer_mt clean text"
FORMAT_VERSION = 1
DROPPED, REPORT, REPORT_TEXT = "dropped.jsonl", "report.json", "report.txt"


def write_result(
    folder: Path, decisions: Decisions, checker: Checker, identity: dict[str, Any]
) -> Report:
    """Write the folder of a result, in one step.

    Raises:
        DataError: If no pair is kept.
        OSError: If the disk refuses.
    """
    src, tgt = (str(folder / f"clean.{end}") for end in endings(checker.languages))
    report = Report(src, tgt, decisions.counts)
    report.edges = {rule.name: rule.edges for rule in checker.table()} | EDGES
    return _write(folder, report, decisions.rows(), {"identity": identity, "restored": []})


def restore(folder: Path, rule: str) -> Report:
    """Put the pairs that a rule dropped back at their places; later rules have not seen them.

    Raises:
        ConfigError: If the rule dropped none.
        ModelError: If the folder is no result, or damaged.
    """
    manifest = read_manifest(folder, KIND, newest_version=FORMAT_VERSION, needs=[DROPPED, REPORT])
    report = Report.from_dict(read_json(folder / REPORT))
    if not report.counts.dropped.get(rule):
        names = ", ".join(report.counts.dropped) or "none"
        raise ConfigError(f"{folder}: rule '{rule}' has dropped nothing; those that have: {names}")
    about = {"identity": manifest["identity"], "restored": [*manifest["restored"], rule]}
    return _write(folder, report, _merged(folder, report, rule), about)


def finished_report(folder: Path, identity: dict[str, Any]) -> Report | None:
    """Return the report of a folder that is the whole result of the same; None if it is not."""
    with suppress(ModelError, *UNREADABLE_JSON):
        manifest = read_manifest(folder, KIND, newest_version=FORMAT_VERSION)
        if manifest["identity"] == identity and not manifest["restored"]:
            return Report.from_dict(read_json(folder / REPORT))
    return None


def _write(folder: Path, report: Report, rows: Iterable[Row], about: dict[str, Any]) -> Report:
    sampler = Sampler()
    dropped: Counter[str] = Counter()
    with new_directory(
        folder, {"kind": KIND, "format_version": FORMAT_VERSION, **about}, hash_name="xxh3"
    ) as temporary:
        names = (Path(report.src).name, Path(report.tgt).name, DROPPED)
        with ExitStack() as stack:
            src, tgt, others = (stack.enter_context((temporary / n).open("wb")) for n in names)
            for line, row in enumerate(rows, start=1):
                if row.rule is None:
                    write_pair((src, tgt), (row.src, row.tgt))
                else:
                    dropped[row.rule] += 1
                    others.write(json_line(record(line, row)))
                    sampler.add(line, row)
        report.counts.dropped = {name: dropped[name] for name in MEANINGS if dropped[name]}
        report.samples = sampler.samples()
        if not report.kept:
            raise DataError(f"{folder}: no pair is left. What was read:\n{report.table()}")
        (temporary / REPORT).write_bytes(json_line(report.as_dict()))
        (temporary / REPORT_TEXT).write_bytes(report.text().encode("utf-8", "backslashreplace"))
    return report


def _merged(folder: Path, report: Report, restored: str) -> Iterator[Row]:
    """Yield the rows of the input, where a rule drops nothing."""
    kept = zip(
        *(
            read_lines(folder / Path(name).name, errors="surrogateescape")
            for name in (report.src, report.tgt)
        ),
        strict=True,
    )
    line = 1
    with (folder / DROPPED).open("rb") as file:
        for text in file:
            values = json.loads(text)
            for src, tgt in islice(kept, values["line"] - line):
                yield Row(None, 0.0, "", src, tgt)
            line = values.pop("line") + 1
            row = Row(**values)
            yield replace(row, rule=None) if row.rule == restored else row
    for src, tgt in kept:
        yield Row(None, 0.0, "", src, tgt)

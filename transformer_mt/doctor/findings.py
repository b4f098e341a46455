"""Findings of an examination, and how warnings and errors of the package become findings."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from transformer_mt.errors import InterruptedRun, TmtError, brief, reason_of
from transformer_mt.log import JsonValue

Status = Literal["ok", "warning", "problem"]
Part = Literal["environment", "config", "data", "tokenizer", "training"]


@dataclass(frozen=True)
class Finding:
    """What was found about one thing.

    Attributes:
        part: What it belongs to.
        name: What was looked at, such as `disk`.
        status: `problem`: training fails or is in vain; `warning`: a doubt.
        text: What is so.
        advice: What to do; empty where there is nothing to do, or the text says it.
        exit_code: Of a problem: that of the error which training would end with.
        facts: The numbers that it rests on, for programs.
    """

    part: Part
    name: str
    status: Status
    text: str
    advice: str = ""
    exit_code: int = 1
    facts: Mapping[str, JsonValue] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        values = asdict(self)
        if self.status != "problem":
            del values["exit_code"]
        return values


def lines_of(error: TmtError) -> list[str]:
    """Return the faults that an error names, without the line that counts them."""
    lines = str(error).splitlines()
    return lines[1:] if len(lines) > 1 and lines[0].endswith(":") else lines


class _Collector(logging.Handler):
    """Keeps warnings as findings."""

    def __init__(self, part: Part, name: str, found: list[Finding]) -> None:
        super().__init__(logging.WARNING)
        self._part, self._name, self._found = part, name, found

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        text = record.getMessage()
        if text not in [finding.text for finding in self._found]:
            self._found.append(Finding(self._part, self._name, "warning", text))


@contextmanager
def listening(part: Part, name: str) -> Iterator[list[Finding]]:
    """Turn what the package warns of in a block into findings, and an error that ends it, too.

    Nothing is logged meanwhile. An error ends the block and nothing else, so that one fault does
    not hide the others.

    Yields:
        The findings, complete after the block.
    """
    found: list[Finding] = []
    package = logging.getLogger("transformer_mt")
    before = package.handlers, package.propagate
    package.handlers, package.propagate = [_Collector(part, name, found)], False
    try:
        yield found
    except InterruptedRun:
        raise
    except TmtError as error:
        found += [
            Finding(part, name, "problem", line, exit_code=error.exit_code)
            for line in lines_of(error)
        ]
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        found.append(Finding(part, name, "problem", f"{reason_of(error)}{where}"))
    except Exception as error:  # a bug here or in a library must not hide what else is found
        found.append(Finding(part, name, "problem", f"internal error: {brief(error)}"))
    finally:
        package.handlers, package.propagate = before

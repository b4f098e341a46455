"""Metrics of other programs, such as COMET: files in, numbers out.

The command gets the texts as files and prints JSON, or lines that end in a number: one for the
whole text, one for each line of it, or these and then the whole. `comet-score` prints that.
"""

import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from transformer_mt.errors import ConfigError, TmtError, reason_of

PLACES = ("src", "hyp", "ref", "refs")
"""What a command may name in braces; `refs` becomes one argument for each reference."""

_MAX_BYTES = 64 * 1024 * 1024
_SHOWN_LINES = 20
_SHOWN_BYTES = 10_000
_NUMBER_AT_END = re.compile(r"(?:^|[\s:=])([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*$")


class OutsideMetricError(TmtError):
    """A metric command that failed, hung or printed something else than numbers.

    Attributes:
        output: What it printed last, for people.
    """

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


@dataclass(frozen=True)
class OutsideMetric:
    """A metric command.

    Attributes:
        name: What to call it.
        arguments: The program and its arguments, with places in braces.
    """

    name: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        """Return the command as it was given."""
        return " ".join(self.arguments)

    @property
    def needs_sources(self) -> bool:
        """Whether it reads the sources."""
        return any("{src}" in argument for argument in self.arguments)


@dataclass(frozen=True)
class OutsideScore:
    """What a metric command printed.

    Attributes:
        name: Of the metric.
        value: Of the whole text; the mean of the lines where the command gives these alone.
        by_line: Of each line; None where the command does not say.
        command: The command, as the signature of the score.
    """

    name: str
    value: float
    by_line: list[float] | None
    command: str


def read_metric(text: str) -> OutsideMetric:
    """Read `NAME=COMMAND`, split as a shell would; no shell runs it.

    Raises:
        ConfigError: If it has another form, or the program is not there.
    """
    name, equals, command = text.partition("=")
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"--metric-cmd {text}: {error}") from error
    if not equals or not re.fullmatch(r"[\w.+-]+", name) or not arguments:
        raise ConfigError(
            f"--metric-cmd {text}: expected NAME=COMMAND, such as "
            "'comet=comet-score -s {src} -t {hyp} -r {ref}'"
        )
    for place in re.findall(r"\{(\w+)\}", command):
        if place not in PLACES:
            known = ", ".join(f"{{{known}}}" for known in PLACES)
            raise ConfigError(f"--metric-cmd {name}: {{{place}}}: expected one of {known}")
    if "{hyp}" not in command:
        raise ConfigError(f"--metric-cmd {name}: the command does not read {{hyp}}: name it")
    if shutil.which(arguments[0]) is None:
        raise ConfigError(
            f"--metric-cmd {name}: {arguments[0]}: no such program: give its whole path, as of "
            "another Python environment"
        )
    return OutsideMetric(name, tuple(arguments))


def outside_score(
    metric: OutsideMetric,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    sources: Sequence[str] | None,
    timeout_s: float,
) -> OutsideScore:
    """Run a metric command on texts.

    Args:
        metric: Whose command to run.
        hypotheses: Translations.
        references: Each a list with one for each line; `{ref}` is the first.
        sources: As many lines.
        timeout_s: Seconds after which the command and what it started are ended.

    Raises:
        OutsideMetricError: If it fails, takes longer, or prints other things than numbers.
    """
    texts: dict[str, Sequence[str]] = {"hyp": hypotheses, "src": sources or []}
    texts |= {f"ref{number}" if number else "ref": own for number, own in enumerate(references)}
    with TemporaryDirectory(prefix="tmt-metric-") as folder:
        files = {name: Path(folder) / f"{name}.txt" for name in texts}
        for name, lines in texts.items():
            with files[name].open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(f"{line}\n" for line in lines)
        output = _run(metric, _filled(metric.arguments, files), Path(folder), timeout_s)
    value, by_line = _read(metric.name, output, len(hypotheses))
    return OutsideScore(metric.name, value, by_line, str(metric))


def _filled(arguments: Sequence[str], files: Mapping[str, Path]) -> list[str]:
    """Put the names of files into the places of a command."""
    filled = []
    for argument in arguments:
        if argument == "{refs}":
            filled += [str(path) for name, path in files.items() if name.startswith("ref")]
            continue
        for name in ("src", "hyp", "ref"):
            argument = argument.replace(f"{{{name}}}", str(files[name]))
        filled.append(argument)
    return filled


def _run(metric: OutsideMetric, arguments: Sequence[str], folder: Path, timeout_s: float) -> str:
    """Run a command in a process group of its own; return what it printed."""
    # Files, not pipes: what the command started may hold a pipe open for ever.
    out, err = folder / "stdout", folder / "stderr"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        try:
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            raise OutsideMetricError(f"{metric.name}: cannot start: {reason_of(error)}") from error
        try:
            code = process.wait(timeout_s)
            problem = f"exit code {code}" if code else ""
        except subprocess.TimeoutExpired:
            problem = f"no result within {timeout_s:g} s (--metric-timeout): ended"
        finally:
            _end(process)
    if not problem and out.stat().st_size > _MAX_BYTES:
        problem = f"printed more than {_MAX_BYTES // 2**20} MiB"
    if problem:
        said = "".join(_last(_end_of(path)) for path in (out, err))
        raise OutsideMetricError(f"{metric.name}: {problem}", said)
    return out.read_bytes().decode("utf-8", "replace")


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and what it started."""
    with suppress(OSError):
        if os.name == "nt":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _end_of(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _SHOWN_BYTES))
        return file.read().decode("utf-8", "replace")


def _last(text: str) -> str:
    return "".join(f"{line}\n" for line in text.splitlines()[-_SHOWN_LINES:])


def _read(name: str, output: str, num_lines: int) -> tuple[float, list[float] | None]:
    """Return the score of the whole text and of each line, if they are there."""
    try:
        value, by_line = _from_json(json.loads(output))
    except (ValueError, TypeError, RecursionError):
        found = [_NUMBER_AT_END.search(line) for line in output.splitlines() if line.strip()]
        numbers = [float(match[1]) for match in found if match is not None]
        if len(numbers) < len(found) or not numbers:
            raise OutsideMetricError(
                f"{name}: expected JSON or lines that end in a number", _last(output)
            ) from None
        whole = None if len(numbers) == num_lines > 1 else numbers.pop()
        value, by_line = whole, numbers or None
    values = [*(by_line or []), *([] if value is None else [value])]
    if not all(map(math.isfinite, values)):
        raise OutsideMetricError(f"{name}: not all numbers are finite", _last(output))
    if by_line is not None and len(by_line) != num_lines:
        raise OutsideMetricError(
            f"{name}: {len(by_line)} numbers for {num_lines} lines, expected 1, {num_lines} or "
            f"{num_lines + 1}",
            _last(output),
        )
    return fmean(by_line or []) if value is None else value, by_line


def _from_json(found: Any) -> tuple[float | None, list[float] | None]:
    """Read a number, a list of them, or an object with `score` and perhaps `scores`.

    Raises:
        ValueError: If it is something else.
        TypeError: The same.
    """
    if isinstance(found, Mapping):
        value, by_line = found.get("score"), found.get("scores")
    else:
        value, by_line = (None, found) if isinstance(found, list) else (found, None)
    if not value and not by_line and value != 0:
        raise ValueError("no number")
    if isinstance(value, bool | str) or any(isinstance(one, bool | str) for one in by_line or []):
        raise TypeError("no number")
    return (
        None if value is None else float(value),
        None if by_line is None else [float(one) for one in by_line],
    )

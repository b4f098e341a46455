"""Reports as web pages: text, tables and charts in one offline HTML file.

All text is escaped here and nowhere else: a page takes plain strings only. It has no script, and
its content security policy allows its own style sheet alone, by its hash.
"""

import base64
import hashlib
import html
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal, TypeAlias

from transformer_mt.log import printable
from transformer_mt.storage.folders import replace_file

Kind: TypeAlias = Literal["", "added", "removed", "flag", "good", "quiet"]
Cell: TypeAlias = str | Sequence[tuple[str, Kind]]
"""A text, or parts of a text, each with its kind."""

_TAGS: Mapping[Kind, tuple[str, str]] = {
    "": ("", ""),
    "added": ("<ins>", "</ins>"),
    "removed": ("<del>", "</del>"),
    "flag": ('<span class="flag">', "</span>"),
    "good": ('<span class="good">', "</span>"),
    "quiet": ('<span class="quiet">', "</span>"),
}
_NUM_COLORS = 7
_BARS, _ROW = 300, 24
"""Width of the bars and height of a row, in pixels."""


@dataclass(frozen=True)
class Bar:
    """A bar of a chart.

    Attributes:
        label: What it is of.
        value: Its length; 0 or more.
        shown: What stands beside it.
        half_width: Of an interval around its end; None: no interval.
        series: Number of its colour, from 0.
    """

    label: str
    value: float
    shown: str
    half_width: float | None = None
    series: int = 0


class Page:
    """A page that is written from top to bottom.

    Args:
        title: Its heading.
        lead: What it is about.
    """

    def __init__(self, title: str, lead: str = "") -> None:
        self._title = title
        self._parts: list[str] = []
        self._is_open = False
        self.text(lead)

    def section(self, title: str, note: str = "") -> None:
        """Begin a section."""
        self._parts.append("</section>" * self._is_open + f"<section><h2>{_escaped(title)}</h2>")
        self._is_open = True
        self.text(note, "quiet")

    def text(self, text: str, kind: Kind = "") -> None:
        """Write a paragraph; none of an empty text."""
        if text:
            self._parts.append(f"<p>{_written([(text, kind)])}</p>")

    def table(
        self,
        headings: Sequence[str],
        rows: Iterable[Sequence[Cell]],
        *,
        texts: Collection[int] = (0,),
        languages: Mapping[int, str] | None = None,
    ) -> None:
        """Write a table.

        Args:
            headings: Of the columns.
            rows: As many cells each.
            texts: Numbers of the columns, from 0, that hold text; the others hold numbers.
            languages: Codes by number of the column.
        """
        codes = languages or {}
        classes = [' class="text"' * (number in texts) for number in range(len(headings))]
        attributes = [
            (own and f'{own} dir="auto"')
            + (f' lang="{_escaped(codes[number])}"' if codes.get(number) else "")
            for number, own in enumerate(classes)
        ]
        head = "".join(
            f"<th{own}>{_escaped(heading)}</th>"
            for own, heading in zip(classes, headings, strict=True)
        )
        self._parts.append(f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>')
        for row in rows:
            cells = zip(attributes, row, strict=True)
            body = "".join(f"<td{own}>{_written(cell)}</td>" for own, cell in cells)
            self._parts.append(f"<tr>{body}</tr>")
        self._parts.append("</tbody></table></div>")

    @contextmanager
    def folded(self, summary: str) -> Iterator[None]:
        """Fold what is written in the block under a summary."""
        self._parts.append(f"<details><summary>{_escaped(summary)}</summary>")
        yield
        self._parts.append("</details>")

    def bars(self, bars: Sequence[Bar], *, names: Sequence[str] = ()) -> None:
        """Draw horizontal bars that begin at 0.

        Args:
            bars: From top to bottom.
            names: Of the series, for the legend.
        """
        left = 12 + max((_width(bar.label) for bar in bars), default=0)
        right = 16 + max((_width(bar.shown) for bar in bars), default=0)
        end = max((bar.value + (bar.half_width or 0) for bar in bars), default=0) or 1
        drawn = []
        for number, bar in enumerate(bars):
            y, scale = number * _ROW, _BARS / end
            drawn.append(_svg_text(left - 8, y + 16, bar.label, anchor="end"))
            color = f"s{bar.series % _NUM_COLORS}"
            width = max(0.5, bar.value * scale)
            drawn.append(
                f'<rect class="{color}" x="{left}" y="{y + 4}" width="{width:.1f}" height="16"/>'
            )
            if bar.half_width is not None:
                low, high = ((bar.value + sign * bar.half_width) * scale for sign in (-1, 1))
                drawn.append(
                    f'<path class="whisker" d="M{left + max(0.0, low):.1f} {y + 12}'
                    f'H{left + high:.1f}"/>'
                )
            drawn.append(_svg_text(left + _BARS + 8, y + 16, bar.shown))
        self._chart(drawn, left + _BARS + right, len(bars) * _ROW, names)

    def lines(
        self, series: Mapping[str, Sequence[tuple[float, float]]], *, across: str, up: str
    ) -> None:
        """Draw lines through points (x, y), all 0 or more.

        Args:
            series: Points by name.
            across: Label of x.
            up: Label of y.
        """
        points = [point for own in series.values() for point in own]
        right, top = (max((point[axis] for point in points), default=0) or 1 for axis in (0, 1))
        width, height, left, above = 420, 200, 70, 24
        drawn = [f'<path class="axis" d="M{left} {above}V{above + height}H{left + width}"/>']
        for share in (0, 0.5, 1):
            x, y = left + share * width, above + (1 - share) * height
            drawn.append(_svg_text(x, above + height + 18, f"{share * right:,.4g}", "middle"))
            drawn.append(_svg_text(left - 6, y + 4, f"{share * top:,.4g}", "end"))
        drawn.append(_svg_text(4, 14, up))
        drawn.append(_svg_text(left + width / 2, above + height + 38, across, "middle"))
        for number, own in enumerate(series.values()):
            path = "L".join(
                f"{left + x / right * width:.1f} {above + (1 - y / top) * height:.1f}"
                for x, y in own
            )
            if path:
                drawn.append(f'<path class="s{number % _NUM_COLORS}" fill="none" d="M{path}"/>')
        self._chart(drawn, left + width + 50, above + height + 46, list(series))

    def _chart(self, drawn: list[str], width: float, height: float, names: Sequence[str]) -> None:
        if len(names) > 1:
            for number, name in enumerate(names):
                y = height + 20 * number
                color = f"s{number % _NUM_COLORS}"
                drawn.append(
                    f'<rect class="{color}" x="8" y="{y + 8}" width="12" height="12"/>'
                    + _svg_text(28, y + 18, name)
                )
            height += 8 + 20 * len(names)
        size = f'viewBox="0 0 {width:.0f} {max(height, 1):.0f}" width="{width:.0f}"'
        self._parts.append(f'<svg {size} role="img">{"".join(drawn)}</svg>')

    def html(self) -> str:
        """Return the page."""
        style = resources.files("transformer_mt.plots").joinpath("page.css").read_text("utf-8")
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        policy = (
            f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
        )
        title = _escaped(self._title)
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
            + "\n".join(self._parts)
            + "</section>" * self._is_open
            + "\n</body>\n</html>\n"
        )

    def write(self, path: Path) -> None:
        """Write the page to a file, atomically.

        Raises:
            TmtError: If it cannot be written.
        """
        replace_file(path, self.html())


def _escaped(text: str) -> str:
    return html.escape(printable(text))


def _written(cell: Cell) -> str:
    parts: Sequence[tuple[str, Kind]] = [(cell, "")] if isinstance(cell, str) else cell
    return "".join(_escaped(text).join(_TAGS[kind]) for text, kind in parts)


def _svg_text(
    x: float, y: float, text: str, anchor: Literal["start", "middle", "end"] = "start"
) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{_escaped(text)}</text>'


def _width(text: str) -> int:
    """Estimate the width of a text in pixels."""
    return sum(14 if unicodedata.east_asian_width(c) in "WF" else 8 for c in text)

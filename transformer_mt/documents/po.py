"""Catalogs of GNU gettext (PO, POT), read by polib; new translations are put into the old text.

Lines that hold no new translation stay as they are: comments, order, wrapping, obsolete entries.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import polib

from transformer_mt.documents.document import Filled, Options, Segment
from transformer_mt.documents.plural_forms import counts_of_forms, plural_forms_of
from transformer_mt.documents.text_encoding import Encoding, decode, line_end_of
from transformer_mt.errors import DataError

_WRAP = 78
_KEYWORD = re.compile(r"\s*(?:msgctxt|msgid|#\|)")
_TEXT = re.compile(r'\s*(?:msgstr|")')
_CHARSET = re.compile(rb'"Content-Type:[^"\n]*charset=([\w.:-]+)')


class _Lines(str):
    """Text whose lines end at line feeds alone: polib would also cut at U+2028 and others."""

    __slots__ = ()

    def splitlines(self, keepends: bool = False) -> list[str]:
        """Return the lines."""
        return self.split("\n")


@dataclass(frozen=True)
class _Entry:
    """An entry and its lines in the text, from `first` to before `end`."""

    entry: polib.POEntry
    first: int
    end: int


def parse_po(text: str, name: str) -> polib.POFile:
    """Parse a catalog.

    Raises:
        DataError: If it is none; names the line.
    """
    try:
        return polib.pofile(_Lines(f"{text}\n"))
    except OSError as error:
        line = re.search(r"line (\d+)", str(error))
        what = str(error).rpartition("): ")[2] if "): " in str(error) else "no gettext syntax"
        raise DataError(
            f"{name}:{line[1] if line else 1}: not a gettext catalog: {what}; check it with "
            "`msgfmt --check`"
        ) from error


def decode_po(data: bytes, name: str) -> tuple[str, Encoding]:
    """Decode a catalog by the charset of its header, else as UTF-8.

    Raises:
        DataError: See `text_encoding.decode`.
    """
    charset = _CHARSET.search(data)
    declared = charset[1].decode("ascii") if charset and charset[1] != b"CHARSET" else None
    return decode(data, name, declared)


def read(data: bytes, name: str, options: Options) -> "Catalog":
    """Read a catalog."""
    text, encoding = decode_po(data, name)
    return Catalog(text, encoding, name, options)


class Catalog:
    """A catalog: see `documents.document.Document`.

    Each plural form is a segment: that of the count 1 alone translates `msgid`, all others
    `msgid_plural`.
    """

    marks_fuzzy = True

    def __init__(self, text: str, encoding: Encoding, name: str, options: Options) -> None:
        self._text, self._encoding, self._name, self._options = text, encoding, name, options
        catalog = parse_po(text, name)
        self._header = dict(catalog.metadata)
        language = self._header.get("Language") or None
        self.languages = (self._header.get("X-Source-Language") or None, language)
        plural = self._header.get("Plural-Forms", "")
        if "INTEGER" in plural or not plural:
            plural = plural_forms_of(language or options.get("to", "")) or ""
        self._plural = plural
        self._forms = counts_of_forms(plural)
        lines = text.split("\n")
        starts = sorted({max(entry.linenum - 1, 0) for entry in catalog})
        ends = dict(pairwise([*starts, len(lines)]))
        # The header, which polib takes out, stands before the first entry or is one of its lines.
        self._entries = [
            _Entry(entry, first, ends[first])
            for entry in catalog
            if not entry.obsolete
            for first in [max(entry.linenum - 1, 0)]
        ]
        self._places: list[tuple[int, int | None]] = []
        self.segments: Sequence[Segment] = self._all_segments(lines)

    def _all_segments(self, lines: Sequence[str]) -> list[Segment]:
        segments = []
        for number, known in enumerate(self._entries):
            entry = known.entry
            line = _line_of("msgid", lines, known)
            is_whole = None not in (line, _line_of("msgstr", lines, known))
            place = f"{self._name}:{(known.first if line is None else line) + 1}"
            for form, source, target in self._texts(entry):
                state = "new" if not target else "fuzzy" if entry.fuzzy else "done"
                reason = "" if is_whole else "not all of the entry is obsolete"
                if form is not None and self._forms is None:
                    reason = "the header has no Plural-Forms that can be read"
                if not source.strip():
                    reason = "empty msgid"
                segments.append(
                    Segment(
                        source,
                        place if form is None else f"{place} msgstr[{form}]",
                        target,
                        "locked" if reason else state,  # type: ignore[arg-type]
                        entry.msgctxt or "",
                        reason,
                    )
                )
                self._places.append((number, form))
        return segments

    def _texts(self, entry: polib.POEntry) -> list[tuple[int | None, str, str]]:
        """Return the form, the source and the target of each translation of an entry."""
        if not entry.msgid_plural:
            return [(None, entry.msgid, entry.msgstr)]
        forms = self._forms or [[] for _ in entry.msgstr_plural]
        return [
            (
                form,
                entry.msgid if counts == [1] or (len(forms) == 2 and form == 0) else
                entry.msgid_plural,
                entry.msgstr_plural.get(form, ""),
            )
            for form, counts in enumerate(forms)
        ]  # fmt: skip

    def write(self, translations: Sequence[Filled | None]) -> bytes:
        """Return the catalog with translations in it."""
        found: dict[int, dict[int | None, Filled]] = {}
        for (number, form), filled in zip(self._places, translations, strict=True):
            if filled is not None:
                found.setdefault(number, {})[form] = filled
        lines = self._text.split("\n")
        width = self._width(lines)
        for number in sorted(found, reverse=True):
            known = self._entries[number]
            self._put(lines, known, found[number], width)
        if found:
            self._complete_header(lines)
        return self._encoding.encode("\n".join(lines), self._name)

    def _put(
        self, lines: list[str], known: _Entry, forms: dict[int | None, Filled], width: int
    ) -> None:
        """Replace the translation of an entry and its flags."""
        entry = known.entry
        texts = {form: filled.text for form, filled in forms.items()}
        new = polib.POEntry(msgid="x")
        if entry.msgid_plural:
            new.msgid_plural = "x"
            new.msgstr_plural = {
                form: texts.get(form, entry.msgstr_plural.get(form, ""))
                for form in range(len(self._forms or ()))
            }
        else:
            new.msgstr = texts[None]
        end = line_end_of(self._text).removesuffix("\n")
        written = new.__unicode__(width).rstrip("\n").split("\n")
        begin = next(i for i, line in enumerate(written) if line.startswith("msgstr"))
        first = _line_of("msgstr", lines, known)
        assert first is not None
        last = first + 1
        for number in range(first, known.end):
            if _TEXT.match(lines[number]):
                last = number + 1
            elif lines[number].lstrip().startswith("msg"):
                break  # the header, if it does not come first
        missing_end = last == len(lines) and not lines[-1].endswith(end)
        lines[first:last] = [line + end for line in written[begin:]]
        if missing_end and end:
            lines[-1] = lines[-1].removesuffix(end)
        is_guess = bool(entry.msgid_plural) and len(self._forms or ()) > 2
        mark = self._options.get("mark") == "fuzzy" or is_guess
        is_fuzzy = mark or any(filled.origin == "fuzzy" for filled in forms.values())
        match = next((filled.match for filled in forms.values() if filled.match), "")
        _set_flags(lines, known, is_fuzzy=is_fuzzy, previous=match, width=width, end=end)

    def _width(self, lines: Sequence[str]) -> int:
        """Return the width to wrap at: 0, not at all, if the catalog has longer lines of words."""
        quoted = (line for line in lines if line.startswith(('"', "msg")))
        longest = max((len(line) for line in quoted if line.count(" ") > 4), default=0)
        return 0 if longest > _WRAP + 3 else _WRAP

    def _complete_header(self, lines: list[str]) -> None:
        """Name the language and its plural forms in a header that leaves them open."""
        wanted = {"Language": self._options.get("to", "")}
        has_plural = any(known.entry.msgid_plural for known in self._entries)
        if has_plural and self._plural:
            wanted["Plural-Forms"] = self._plural
        for key, value in wanted.items():
            old = self._header.get(key)
            is_open = not old or "INTEGER" in old
            if not value or not is_open or old is None:
                continue
            if key == "Language":
                _unmark_header(lines)
            begin = f'"{key}:'
            for number, line in enumerate(lines):
                if line.startswith(begin) and "\\n" in line:
                    rest = line[line.rindex("\\n") :]
                    lines[number] = f"{begin} {value}{rest}"
                    break


def _unmark_header(lines: list[str]) -> None:
    """Remove the flag `fuzzy` of a template's header, as `msginit` does."""
    for number, line in enumerate(lines):
        if line.startswith("msgid"):
            return
        if line.startswith("#,") and "fuzzy" in line:
            flags = [flag.strip() for flag in line[2:].split(",")]
            rest = [flag for flag in flags if flag != "fuzzy"]
            end = "\r" if line.endswith("\r") else ""
            lines[number : number + 1] = [f"#, {', '.join(rest)}{end}"] if rest else []
            return


def _line_of(keyword: str, lines: Sequence[str], known: _Entry) -> int | None:
    numbers = range(known.first, known.end)
    return next((i for i in numbers if lines[i].lstrip().startswith(keyword)), None)


def _set_flags(
    lines: list[str], known: _Entry, *, is_fuzzy: bool, previous: str, width: int, end: str
) -> None:
    """Set or remove the flag `fuzzy`, and with it the source that the translation belongs to."""
    entry = known.entry
    flags = [flag for flag in entry.flags if flag != "fuzzy"]
    old = [flag for flag in entry.flags if flag]
    wanted = ["fuzzy", *flags] if is_fuzzy else flags
    keyword = next(i for i in range(known.first, len(lines)) if _KEYWORD.match(lines[i]))
    after = _line_of("msgid", lines, known)
    assert after is not None
    context = [i for i in range(keyword, after) if lines[i].lstrip().startswith("msgctxt")]
    begin = context[0] if context else after
    if lines[keyword].lstrip().startswith("#|"):
        del lines[keyword:begin]
        begin = keyword
    if previous:
        shown = polib.POEntry(previous_msgid=previous, msgid="x").__unicode__(width).split("\n")
        added = [line + end for line in shown if line.startswith("#|")]
        lines[begin:begin] = added
    if wanted == old:
        return
    places = [i for i in range(known.first, keyword) if lines[i].lstrip().startswith("#,")]
    new = [f"#, {', '.join(wanted)}{end}"] if wanted else []
    for place in reversed(places):
        del lines[place]
    at = places[0] if places else keyword
    lines[at:at] = new

"""What must come through a translation as it is: placeholders, tags, URLs, e-mail addresses."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

PROTECTED = re.compile(
    r"""
      </?[A-Za-z][\w:.-]*(?:\s+[\w:.-]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'>]+))?)*\s*/?>  # tags
    | <!--.*?-->
    | &(?:[A-Za-z]\w*|\#\d+|\#x[0-9A-Fa-f]+);
    | (?:https?|ftp)://[^\s<>"']*[^\s<>"'.,;:!?)\]}»”’。，！？]
    | www\.[^\s<>"']*[^\s<>"'.,;:!?)\]}»”’。，！？]
    | (?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+
    | \{\{[^{}]*\}\} | \$?\{[^{}\s]*\}                        # {{ name }}, ${name}, {name}, {0}, {}
    | %\([^()\s]+\)[#0\- +]*+\d*+(?:\.\d+)?[a-zA-Z]           # %(name)s
    | %(?:\d+\$)?[#0\-+]*+\d*+(?:\.\d+)?                      # %s, %1$d
      (?:hh|ll|[hlLqjzt])?[diouxXeEfFgGcrsap@](?![A-Za-z])
    | %%
    | %\d+(?!\d|\s*%)(?=\W|$)                                 # %1
    """,
    re.VERBOSE,
)
"""`5 %` and `100%` are text: a percent sign protects only what printf or Qt would read.

An address begins where its characters begin, and what repeats gives nothing back (`++`, `*+`): else
time would grow with the square of a long word."""

CLOSING_SIGNS = ".,;:!?)]}»”…。，、！？；："
CLOSING = re.compile(f"[{re.escape(CLOSING_SIGNS)}]")
"""What no space stands before."""

TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)[^>]*?(/?)>")


@dataclass(frozen=True)
class Mark:
    """Something protected, taken out of a line.

    Attributes:
        text: As it stands in the line.
        place: Where it stood in the text without any marks, in characters.
        space_before: White space, or the end of the line, stood before it.
        space_after: Likewise behind it.
        partner: For a tag of a pair, the place of the other one in the list of marks.
    """

    text: str
    place: int
    space_before: bool
    space_after: bool
    partner: int | None = None


def marks_in(line: str) -> list[str]:
    """Return what is to be protected in a line, in order."""
    return PROTECTED.findall(line)


def is_address(mark: str) -> bool:
    """Return whether a mark is a URL or an e-mail address."""
    return "://" in mark or mark.startswith("www.") or ("@" in mark and mark[0] not in "<{$%")


def missing(source: Sequence[str], translation: str) -> list[str]:
    """Return which marks of a source its translation lacks, or has more often."""
    expected, found = Counter(source), Counter(marks_in(translation))
    differing = (expected - found) + (found - expected)
    return sorted(differing.elements())


def well_nested(marks: Sequence[str]) -> bool:
    """Return whether each tag that closes closes the one opened last."""
    open_tags: list[str] = []
    for text in marks:
        tag = TAG.fullmatch(text)
        if tag is None or tag[3]:
            continue
        if not tag[1]:
            open_tags.append(tag[2])
        elif open_tags and open_tags[-1] == tag[2]:
            open_tags.pop()
        else:
            return False
    return not open_tags


def take_out(line: str) -> tuple[str, list[Mark]]:
    """Return the text of a line without its marks, and the marks.

    Of two spaces that would come together one goes with the mark, and so does one before a full
    stop or comma.
    """
    text = ""
    marks: list[Mark] = []
    end = 0
    matches = list(PROTECTED.finditer(line))
    for match in matches:
        begin = match.start()
        text = _joined(text, line[end:begin], marks)
        end = match.end()
        marks.append(
            Mark(
                match[0],
                len(text),
                space_before=not line[max(0, begin - 1) : begin].strip(),
                space_after=not line[end : end + 1].strip(),
            )
        )
    if matches:
        text = _joined(text, line[end:], marks)
    return text if matches else line, _paired(marks)


def _joined(before: str, after: str, marks: list[Mark]) -> str:
    """Join what stood on both sides of a mark; the last marks keep to the end of `before`."""
    if marks and CLOSING.match(after):
        before = before.rstrip()
        for number in reversed(range(len(marks))):
            if marks[number].place <= len(before):
                break
            marks[number] = replace(marks[number], place=len(before))
    elif not before or before[-1].isspace():
        after = after.lstrip() if marks else after
    return before + after


def _paired(marks: Sequence[Mark]) -> list[Mark]:
    """Tell the tags of each pair of each other."""
    partners: dict[int, int] = {}
    open_tags: list[tuple[str, int]] = []
    for number, mark in enumerate(marks):
        tag = TAG.fullmatch(mark.text)
        if tag is None or tag[3]:
            continue
        if not tag[1]:
            open_tags.append((tag[2], number))
        elif open_tags and open_tags[-1][0] == tag[2]:
            partners[number] = open_tags.pop()[1]
            partners[partners[number]] = number
    return [replace(mark, partner=partners.get(number)) for number, mark in enumerate(marks)]

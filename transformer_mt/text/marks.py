"""Recognition of what a translation keeps as it is: placeholders, tags, URLs, addresses."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

PROTECTED = re.compile(
    r"""
      <<[A-Za-z_][\w.-]*>>
    | </?[A-Za-z][\w:.-]*                                         # tags; quotes may be escaped
      (?:\s+[\w:.@-]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'
         |\\"(?:[^"\\]|\\(?!"))*\\"|\\'(?:[^'\\]|\\(?!'))*\\'|[^\s"'>\\]+))?)*\s*/?>
    | </?\d+\s*/?>                                              # <0>..</0>
    | <!--(?:(?!<!--).)*?-->
    | &(?:[A-Za-z]\w*|\#\d+|\#x[0-9A-Fa-f]+);
    | (?:(?:https?|ftp)://|www\.)                               # .. up to a closing bracket
      (?:\([^\s<>"'()]*\)|[^\s<>"')])+(?<![.,;:!?\]}»”’。，！？])  # that it has not opened
    | (?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+
    | \{\s*[\w.]+\s*,\s*(?:plural|select|selectordinal|choice)\s*,            # whole, with its text
      (?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*\}
    | \{\s*[\w.]+\s*,\s*(?:number|date|time|list|spellout|ordinal|duration)\b[^{}]*\}
    | \{\{\{?[^{}]*\}?\}\} | \{%[^{}]*?%\}                     # {{ name }}, {% trans %}
    | [$\#%]?\{(?:[^{}\s]*|\s*[\w.]+\s*)\}                      # ${name}, %{name}, {0}, {}
    | %\([^()\s]+\)[#0\- +]*+\d*+(?:\.\d+)?[a-zA-Z]           # %(name)s
    | %<\w+>[#0\-+]*+\d*+(?:\.\d+)?[a-zA-Z]                   # %<name>s
    | (?<![\d%])%[A-Za-z_][\w.-]+%(?![\w%(])                  # %name%, but not %dx%d
    | %(?:\d+\$)?[#0\-+']*+(?:\*|\d*+)(?:\.(?:\d+|\*))?         # %s, %1$d
      (?:hh|ll|[hlLqjztZ])?(?:[diouxXeEfFgGcrsapn@](?![A-Za-z])|(?<!\d%)[diusfgxX])
    | (?<!\d)(?<!\d\s)%[\-EO]?[AaBbCcDFgGHIjklMmnPpRrSTUuVWwXxYyZz](?![A-Za-z])  # %Y-%m-%d
    | %%
    | %L?\d+(?!\d|\s*%(?!\d))(?=\W|[^\x00-\u024f]|$)          # %1, also before a Korean particle
    | (?<!\w)__\w+?__(?!\w)                                   # __name__
    | (?<!\w)@[A-Z][A-Z0-9_]+@
    | (?<![\w:]):[A-Za-z_][\w+-]*:(?![\w:])                     # :name:
    | (?<![`\w])``[^`\s](?:[^`]*[^`\s])?``(?![`\w])             # ``code``, and `code`:
    | (?<![`\w])`[^`\s](?:[^`]*[^`\s])?`(?![`\w])               # no space within its ends
    | (?<![\w$])\$(?:[a-z_]\w+|[A-Z][A-Z0-9_]{2,}|\([\w.]+\))       # $name, $PATH, $(name)
    """,
    re.VERBOSE,
)
"""`5 %`, `100%`, `100%discount` are text: a percent sign protects only what printf, strftime or Qt
would read.

An address begins where its characters begin, and what repeats gives nothing back (`++`, `*+`): else
time would grow with the square of a long word."""

DOUBTFUL = re.compile(
    r"""
      <[A-Za-z/!?][^<>]{0,200}> | \{[^{}]{1,200}\} | [{}]{2} | \[\[[^\[\]]{1,200}\]\]
    | (?<!\d)(?<!\d\s)%[\w({<\[][\w)}>\].-]*
    | (?<![\w$])\$[A-Za-z({][\w)}]* | (?<!\w)__\w+ | \w+__(?!\w) | (?<![\w@])@\w+ | \\[nrt"']
    | (?<![*\w])\*\*(?=[^\s*]) | (?<=[^\s*])\*\*(?![*\w])        # **bold**: each of its ends
    | (?<![\w:/]):[A-Za-z_]\w{2,}
    """,
    re.VERBOSE,
)
"""What looks like a mark to people, where `PROTECTED` leaves it to the translation."""

CLOSING_SIGNS = ".,;:!?)]}»”…。，、！？；："
CLOSING = re.compile(f"[{re.escape(CLOSING_SIGNS)}]")
"""What no space stands before."""

TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)[^>]*?(/?)>")
NEVER_CLOSED = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track",
     "wbr")
)  # fmt: skip
"""Tags of HTML that stand alone, also without a slash at their end."""

SEPARATING = re.compile(
    r"""
      </?(?:address|article|aside|blockquote|br|center|dd|div|dl|dt|figcaption|figure|footer|form
         |h[1-6]|header|hr|li|main|nav|ol|option|p|pre|section|table|tbody|td|tfoot|th|thead|tr|ul)
      (?![\w:.-])[^>]*>
    | &(?:nbsp|ensp|emsp|thinsp|\#160|\#x0*a0);
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What parts words although no space stands beside it: new lines and blocks of HTML, its spaces."""


@dataclass(frozen=True)
class Mark:
    """Something protected, taken out of a line.

    Attributes:
        text: As written in the line.
        place: Its position in the text without any marks, in characters.
        space_before: Whether white space, or the end of the line, was before it.
        space_after: Whether white space, or the end of the line, was after it.
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


def doubtful_in(line: str) -> list[str]:
    """Return what looks like a mark in a line but is not protected, in order."""
    return DOUBTFUL.findall(PROTECTED.sub(" ", line))


def clean_between(line: str, clean: Callable[[str], str]) -> str:
    """Clean a line, but leave its marks as they are.

    Args:
        line: Text.
        clean: See `data.clean_source`.
    """
    texts = PROTECTED.split(line)
    if len(texts) == 1:
        return clean(line)
    first, *inner, last = texts
    # A sign in place of a mark: the ends of these texts are not those of the line.
    between = [
        clean(f"{first}|")[:-1],
        *(clean(f"|{text}|")[1:-1] for text in inner),
        clean(f"|{last}")[1:],
    ]
    marks = [*marks_in(line), ""]
    return "".join(text + mark for text, mark in zip(between, marks, strict=True))


def is_address(mark: str) -> bool:
    """Return whether a mark is a URL or an e-mail address."""
    return "://" in mark or mark.startswith("www.") or ("@" in mark and mark[0] not in "<{$%")


def missing(source: Sequence[str], translation: str) -> list[str]:
    """Return which marks of a source its translation lacks, or has more often."""
    expected, found = Counter(source), Counter(marks_in(translation))
    differing = (expected - found) + (found - expected)
    return sorted(differing.elements())


def nesting(marks: Sequence[str]) -> Counter[tuple[str, int]]:
    """Count the pairs of tags by their name and by how many pairs of that name enclose them.

    A translation keeps it, unless tags cross, or a pair ended up inside another of its kind, which
    links and paragraphs may not.
    """
    pairs: Counter[tuple[str, int]] = Counter()
    depths: Counter[str] = Counter()
    for number, partner in sorted(_partners(marks).items()):
        name = marks[max(number, partner)]  # as it closes: without attributes
        if number < partner:
            pairs[name, depths[name]] += 1
        depths[name] += 1 if number < partner else -1
    return pairs


def take_out(line: str) -> tuple[str, list[Mark]]:
    """Return the text of a line without its marks, and the marks.

    Of two spaces that would meet, one is removed with the mark, and so is one before a full stop or
    comma. Words that were separated only by marks in `SEPARATING` get one.
    """
    text = ""
    marks: list[Mark] = []
    end = 0
    parted = False
    matches = list(PROTECTED.finditer(line))
    for match in matches:
        begin = match.start()
        between = line[end:begin]
        text = _joined(text, between, marks, parted=parted)
        parted = (parted and not between) or SEPARATING.match(match[0]) is not None
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
        text = _joined(text, line[end:], marks, parted=parted)
    if matches and end == len(line):
        text = _stripped(text, marks)
    return text if matches else line, _paired(marks)


def _joined(before: str, after: str, marks: list[Mark], *, parted: bool) -> str:
    """Join what was on both sides of a mark; the last marks stay at the end of `before`."""
    if marks and CLOSING.match(after):
        before = _stripped(before, marks)
    elif not before or before[-1].isspace():
        after = after.lstrip() if marks else after
    elif parted and after and not after[0].isspace():
        after = " " + after
    return before + after


def _stripped(text: str, marks: list[Mark]) -> str:
    """Strip the spaces from the end of a text; the last marks stay at its end."""
    text = text.rstrip()
    for number in reversed(range(len(marks))):
        if marks[number].place <= len(text):
            break
        marks[number] = replace(marks[number], place=len(text))
    return text


def _paired(marks: Sequence[Mark]) -> list[Mark]:
    """Record in both tags of each pair where the other one is."""
    partners = _partners([mark.text for mark in marks])
    return [replace(mark, partner=partners.get(number)) for number, mark in enumerate(marks)]


def _partners(marks: Sequence[str]) -> dict[int, int]:
    """Return the number of the other tag by that of each tag of a pair."""
    partners: dict[int, int] = {}
    open_tags: list[tuple[str, int]] = []
    for number, text in enumerate(marks):
        tag = TAG.fullmatch(text)
        if tag is None or tag[3] or tag[2].lower() in NEVER_CLOSED:
            continue
        if not tag[1]:
            open_tags.append((tag[2], number))
        elif open_tags and open_tags[-1][0] == tag[2]:
            partners[number] = open_tags.pop()[1]
            partners[partners[number]] = number
    return partners

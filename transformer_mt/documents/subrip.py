"""SubRip subtitles (srt)."""

import re
from collections.abc import Iterator

import srt

from transformer_mt.documents.document import Options
from transformer_mt.documents.splicing import SplicedDocument
from transformer_mt.documents.subtitles import Cue, subtitles
from transformer_mt.documents.text_encoding import decode
from transformer_mt.errors import DataError

# What the pattern of the library would search in a time that grows with the square.
_ENDLESS = re.compile(r"\d{40}|\s{2000}")


def read(data: bytes, name: str, options: Options) -> SplicedDocument:
    """Read SubRip subtitles; see `formats.read_document`."""
    text, encoding = decode(data, name)
    return subtitles(text, encoding, name, list(_cues(text, name)), escaped=False)


def _cues(text: str, name: str) -> Iterator[Cue]:
    """Find the cues of a SubRip document."""
    if run := _ENDLESS.search(text):
        line = text.count("\n", 0, run.start()) + 1
        raise DataError(f"{name}:{line}: expected SubRip subtitles, got {run[0][:10]!r}...")
    end = 0
    while match := srt.SRT_REGEX.match(text, end):
        start, stop = map(srt.srt_timestamp_to_timedelta, match.group(2, 3))
        yield Cue(start, stop, *match.span(5))
        end = match.end()
    if rest := text[end:].strip():
        line = text.count("\n", 0, text.index(rest, end)) + 1
        raise DataError(
            f"{name}:{line}: expected a SubRip subtitle (number, `00:00:01,000 --> 00:00:02,000`, "
            f"text), got {rest.splitlines()[0][:60]!r}"
        )

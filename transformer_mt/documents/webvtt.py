"""WebVTT subtitles (vtt)."""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

import srt
from webvtt.utils import iter_blocks_of_lines
from webvtt.vtt import WebVTTCueBlock, is_valid_content

from transformer_mt.documents.document import Options
from transformer_mt.documents.splicing import SplicedDocument
from transformer_mt.documents.subtitles import Cue, subtitles
from transformer_mt.documents.text_encoding import decode
from transformer_mt.errors import DataError


def read(data: bytes, name: str, options: Options) -> SplicedDocument:
    """Read WebVTT subtitles; see `formats.read_document`."""
    text, encoding = decode(data, name)
    return subtitles(text, encoding, name, list(_cues(text, name)), escaped=True)


class _Line(str):
    """A line, and where it begins in the document."""

    begins: int


def _cues(text: str, name: str) -> Iterator[Cue]:
    """Find the cues of a WebVTT document."""
    lines = []
    for match in re.finditer(r"([^\r\n]*)(\r\n?|\n|\Z)", text):
        line = _Line(match[1])
        line.begins = match.start()
        lines.append(line)
    if not is_valid_content(lines) or not re.match(r"WEBVTT(\s|$)", text):
        raise DataError(f"{name}:1: expected WEBVTT, got {lines[0][:60]!r}")
    for block in _apart(iter_blocks_of_lines(lines)):
        if WebVTTCueBlock.is_valid(block):
            cue = WebVTTCueBlock.from_lines(block)
            start, end = (
                srt.srt_timestamp_to_timedelta("00:" * (2 - time.count(":")) + time)
                for time in (cue.start, cue.end)
            )
            last = cue.payload[-1]
            yield Cue(start, end, cue.payload[0].begins, last.begins + len(last))


def _apart(blocks: Iterable[list[_Line]]) -> Iterator[list[_Line]]:
    """Part cues without a blank line between them: a line with `-->` is never text."""
    for block in blocks:
        begins = [number for number, line in enumerate(block) if "-->" in line][1:]
        for begin, end in pairwise([0, *begins, len(block)]):
            yield block[begin:end]

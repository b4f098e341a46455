"""Subtitles: timing, settings and styles stay; sentences are cut where their cues are."""

from datetime import timedelta

import pytest
import srt
import webvtt
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.documents.samples import reversed_words, written
from transformer_mt.documents.formats import read_document
from transformer_mt.errors import DataError

SRT = """\
1
00:00:01,000 --> 00:00:02,000 X1:3
Hello <i>my
dear</i> friend.

2
00:00:02,100 --> 00:00:03,000
- Who is it?
- {\\an8}Me.

3
00:00:04,000 --> 00:00:05,000
When the sun goes down in
the evening

4
00:00:05,100 --> 00:00:06,000
and all of the birds stop

5
00:00:06,100 --> 00:00:07,000
we sleep.

"""
VTT = """\
WEBVTT - title

NOTE a note

STYLE
::cue { color: red }

id1
00:01.000 --> 00:02.000 align:start
<v Roger>Hello &amp; <b>good</b> day
to <c.red>you</c>

00:02.500 --> 00:03.000
So <00:02.700>then
"""


def read(text: str, kind: str = "srt"):
    return read_document(text.encode(), f"a.{kind}", kind, {"from": "en", "to": "de"})


@pytest.mark.parametrize(("text", "kind"), [(SRT, "srt"), (VTT, "vtt")])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_untranslated_subtitles_come_back_byte_for_byte(text, kind, line_end):
    text = text.replace("\n", line_end)
    document = read(text, kind)
    assert document.write([None] * len(document.segments)) == text.encode()


def test_speakers_are_apart_and_sentences_run_over_cues():
    assert [segment.source for segment in read(SRT).segments] == [
        "Hello <g1>my dear</g1> friend.", "Who is it?", "Me.",
        "When the sun goes down in the evening and all of the birds stop we sleep.",
    ]  # fmt: skip
    assert [segment.source for segment in read(VTT, "vtt").segments] == [
        "Hello & <g1>good</g1> day to <g2>you</g2>", "So <x1/>then",
    ]  # fmt: skip


def test_a_line_with_times_ends_a_cue_without_a_blank_line():
    document = read(
        "WEBVTT\n\n00:01.000 --> 00:02.000\nOne.\n00:02.000 --> 00:03.000\nTwo.\n", "vtt"
    )
    assert [segment.source for segment in document.segments] == ["One.", "Two."]


def test_a_translation_is_cut_by_length_and_broken_into_two_lines():
    words = "Wenn abends die Sonne untergeht und auch alle Vögel still sind, dann schlafen wir."
    text = written(read(SRT), lambda source: words if "sun" in source else source)
    cues = [cue.content for cue in srt.parse(text)][2:]
    assert " ".join(cues).split() == words.split()
    assert min(map(len, cues)) > 10
    long = "ein sehr langer Satz, der niemals in eine Zeile von Untertiteln passt"
    text = written(read(VTT, "vtt"), lambda source: source.replace("Hello", long))
    (payload,) = [cue.raw_text for cue in webvtt.from_string(text) if "sehr" in cue.text]
    assert payload.count("\n") == 2
    assert payload.startswith("<v Roger>ein")
    assert "&amp; <b>good</b> day" in payload.replace("\n", " ")


def test_a_sentence_with_fewer_words_than_cues_does_not_fit():
    segment = read(SRT).segments[-1]
    assert not segment.fits("Zwei Worte")
    assert segment.fits("Nur drei Worte")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("hello\nthere\n", "srt", r"a\.srt:1: expected a SubRip subtitle"),
        (SRT + "oops\n", "srt", None),
        ("1\n00:00:01,000 --> 00:0", "srt", r"a\.srt:1: expected a SubRip subtitle"),
        ("1" * 100_000, "srt", r"a\.srt:1: expected SubRip subtitles, got"),
        ("\n" * 100_000 + "x", "srt", r"a\.srt:1: expected SubRip subtitles, got"),
        (SRT, "vtt", r"a\.vtt:1: expected WEBVTT, got '1'"),
        ("WEBVTT\n\n00:01.000 --> 00:0", "vtt", None),
    ],
)
def test_what_is_no_subtitles_is_refused_with_its_line(text, kind, message):
    if message is None:
        document = read(text, kind)
        assert document.write([None] * len(document.segments)) == text.encode()
    else:
        with pytest.raises(DataError, match=message):
            read(text, kind)


CUE = st.tuples(
    st.integers(0, 3000),
    st.lists(st.sampled_from(["one", "Two.", "three", "<i>", "</i>", "- four", "\n", "five,"]),
             min_size=1, max_size=6),
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(st.lists(CUE, min_size=1, max_size=5))
def test_any_subtitles_keep_their_times_and_words(cues):
    start = 0
    made = []
    for number, (pause, parts) in enumerate(cues, 1):
        start += pause
        content = srt.make_legal_content(" ".join(parts)).strip() or "x"
        times = timedelta(milliseconds=start), timedelta(milliseconds=start + 500)
        made.append(srt.Subtitle(number, *times, content))
        start += 500
    text = srt.compose(made, reindex=False)
    document = read(text)
    assert document.write([None] * len(document.segments)) == text.encode()
    after = list(srt.parse(written(document, reversed_words)))
    assert [(c.start, c.end, c.index) for c in after] == [(c.start, c.end, c.index) for c in made]
    assert sorted(w for c in after for w in c.content.split()) == sorted(text_words(made))


def text_words(cues: list[srt.Subtitle]) -> list[str]:
    return [word for cue in cues for word in cue.content.split()]

"""Sentences of a text and the white space around them."""

from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.serving.pieces import joined, pieces_of

TEXTS = st.lists(
    st.sampled_from(
        ["A dog.", "Mr. Smith runs!", " ", "\n", "\r\n", "\t", "", "\u2028", "x", "是。"]
    )
).map("".join)


@given(TEXTS, st.booleans())
def test_pieces_join_to_the_text(text: str, split: bool) -> None:
    pieces = pieces_of(text, "en", "en", split=split)
    same = {piece.sentence: [piece.sentence] for piece in pieces}
    assert "".join(joined(pieces, same, 0).split()) == "".join(text.split())
    assert all(piece.sentence == piece.sentence.strip() for piece in pieces)
    if split is False:
        assert joined(pieces, same, 3) == text


def test_sentences_have_the_spacing_of_the_target_language() -> None:
    pieces = pieces_of("  One.  Two. Three\n\n\tFour. ", "en", "zh")
    assert [piece.sentence for piece in pieces] == ["", "One.", "Two.", "Three", "", "", "Four."]
    found = {own.sentence: ["一", "二"] for own in pieces}
    assert joined(pieces, found, 1) == "  二  二二\n\n\t二 "

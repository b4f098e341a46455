"""Settings of cleaning: one group for each rule that can drop a pair.

The rules are tried in the order in which they are declared in `RuleSettings`; the first that a pair
breaks is its reason.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from transformer_mt.config.base import PathText, PositiveInt, Settings
from transformer_mt.config.languages import LanguageCode
from transformer_mt.config.pictures import PICTURES
from transformer_mt.config.sources import Source

Fraction = Annotated[float, Field(ge=0, le=1)]
Natural = Annotated[int, Field(ge=0)]


class EncodingRule(Settings):
    """Bytes that are not UTF-8, and NUL."""


class CharactersRule(Settings):
    """Characters that no clean text has.

    Control characters, line separators, U+FFFD, characters of private use, and UTF-8 that was read
    as Windows-1252 (mojibake).
    """

    max_bad: Natural = 0
    """Characters of this kind that a pair may have."""


class EmptyRule(Settings):
    """No letter, digit or sign on a side."""


class LengthRule(Settings):
    """Words of a side; in scripts without spaces a character counts as a word."""

    min_words: Natural = 1
    """Fewest words; 0 keeps texts of signs alone."""
    max_words: PositiveInt = 200
    """Most words."""
    max_word_length: PositiveInt = 60
    """Most characters of a word."""


class RatioRule(Settings):
    """Lengths of the sides that are too different.

    Lengths are in letters: a Han character counts 3, a kana or Hangul syllable 2. The value is
    (longer - slack) / shorter.
    """

    max: Annotated[float, Field(ge=1)] = 2.5
    """Most letters of the longer side for each letter of the shorter one."""
    slack: Natural = 12
    """Letters that the longer side may have in any case."""


class CopyRule(Settings):
    """A target that is its source, or nearly so. Case and punctuation do not count."""

    max_shared: Fraction = 0.8
    """Share of the different words of the shorter side that the other side may have, too; 1: only
    texts that are equal are dropped."""
    min_words: PositiveInt = 4
    """Fewest different words of the shorter side for `max_shared` to apply."""


class ScriptRule(Settings):
    """Letters of scripts in which the language is not written; words of both sides do not count."""

    min_share: Fraction = 0.5
    """Least share of the letters of a side that are of a script of its language. A letter of a
    script with large signs counts as in `ratio`."""


class RepetitionRule(Settings):
    """An n-gram that follows itself again and again on one side, and not on the other."""

    max_repeats: PositiveInt = 3
    """Most times that 1 to 8 words may stand in a row."""
    max_characters: PositiveInt = 8
    """Most times that a character may stand in a row within a word."""


class NumbersRule(Settings):
    """Numbers in digits of one side that the other does not have.

    Number words are allowed for: a number counts if the other side has one without a counterpart,
    too, or if it has `min_digits` digits, the last of them not 0.
    """

    max_missing: Natural = 0
    """Numbers without a counterpart that a pair may have."""
    min_digits: PositiveInt = 3
    """Fewest digits of a number that is hardly written in words."""


class AddressesRule(Settings):
    """URLs and e-mail addresses of one side that the other does not have."""

    max_missing: Natural = 0
    """Addresses without a counterpart that a pair may have."""


class PlaceholdersRule(Settings):
    """Placeholders and tags of one side that the other does not have: `%s`, `{name}`, `<b>`."""

    max_missing: Natural = 0
    """Placeholders without a counterpart that a pair may have."""


class LanguageRule(Settings):
    """Text in another language, by a language identifier. Its value is the probability of that."""

    max_probability: Fraction = 0.7
    """Largest probability of another language."""
    min_letters: Natural = 20
    """Fewest letters of a side that is looked at: short texts are guesses."""
    identifier: str = "py3langid"
    """`py3langid` (`pip install 'transformer_mt[clean]'`), or `module:object` with two functions:
    `codes() -> collection of codes` and `identify(text) -> (code, probability)`, with codes of ISO
    639-1."""


class OverlapRule(Settings):
    """A side that is also a line of a held-out file. Case and punctuation do not count."""

    files: list[PathText] = Field(default=[])
    """Files of lines: both sides of development and test sets."""
    min_words: PositiveInt = 3
    """Fewest words of such a line: short ones are in every text."""


class DuplicateRule(Settings):
    """A pair that came before. White space and forms of Unicode do not count."""

    of: Literal["pair", "source", "target"] = "pair"
    """What must have come before."""


class NearDuplicateRule(Settings):
    """A pair that came before with small changes.

    The value is the share of runs of 4 letters that both pairs have (Jaccard), estimated from 64
    minimum hashes. Case and punctuation do not count.
    """

    min_similarity: Annotated[float, Field(ge=0.5, le=1)] = 0.95
    """From here on a pair is dropped."""


class ScoreRule(Settings):
    """Dual conditional cross-entropy of two models (Junczys-Dowmunt 2018), in nats per token.

    The value is the mean of both cross-entropies plus their difference; with one model, its
    cross-entropy.
    """

    forward: PathText
    """Model or run that translates the source into the target."""
    backward: PathText | None = None
    """Model or run of the other direction."""
    max: Annotated[float, Field(gt=0)] = 6.0
    """Largest value that is kept."""


class RuleSettings(Settings):
    """The rules, in the order in which they are tried. `null` switches a rule off."""

    encoding: EncodingRule = EncodingRule()
    """Bytes that are no text."""
    characters: CharactersRule | None = CharactersRule()
    """Characters that no clean text has."""
    empty: EmptyRule | None = EmptyRule()
    """No text on a side."""
    length: LengthRule | None = LengthRule()
    """Number and length of words."""
    copies: CopyRule | None = CopyRule()
    """Untranslated text."""
    script: ScriptRule | None = ScriptRule()
    """Letters of other scripts."""
    repetition: RepetitionRule | None = RepetitionRule()
    """Repeated n-grams."""
    ratio: RatioRule | None = RatioRule()
    """Lengths of the sides that are too different."""
    numbers: NumbersRule | None = NumbersRule()
    """Numbers that differ."""
    addresses: AddressesRule | None = AddressesRule()
    """URLs and e-mail addresses that differ."""
    placeholders: PlaceholdersRule | None = PlaceholdersRule()
    """Placeholders and tags that differ."""
    language: LanguageRule | None = LanguageRule()
    """Text in another language."""
    overlap: OverlapRule | None = OverlapRule()
    """Overlap with development and test sets."""
    duplicates: DuplicateRule | None = DuplicateRule()
    """Pairs that came before."""
    near_duplicates: NearDuplicateRule | None = NearDuplicateRule()
    """Pairs that came before with small changes."""
    score: ScoreRule | None = None
    """Model score."""


class CleaningSettings(Settings):
    """What `tmt clean --config` reads."""

    src_lang: LanguageCode | None = None
    """Source language. Default: from the names of the files, else guessed from the text."""
    tgt_lang: LanguageCode | None = None
    """Target language, the same way."""
    sources: list[Source] = Field(default=[])
    """The pairs, as in `data.train` of a training config, where the command line names no files."""
    rules: RuleSettings = RuleSettings()
    """The rules."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse sources that hold no pairs of text."""
        for number, source in enumerate(self.sources):
            if source.type in ("reverse", "monolingual", *PICTURES):
                yield f"sources.{number}.type", f"{source.type} holds no pairs of text to clean"

"""Statistics of a tokenizer, and of its segmentation of a text."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from transformer_mt.text.special_ids import UNK_ID
from transformer_mt.text.tokenizer import Tokenizer

NUM_LONGEST, NUM_EXAMPLES, NUM_MISSING = 10, 3, 10


@dataclass(frozen=True)
class TokenizerReport:
    """A tokenizer by itself.

    Attributes:
        type: Of the model: `bpe`, `unigram`, ..
        vocab_size: Pieces, with symbols and bytes.
        num_bytes: Pieces that stand for a byte: 256, or 0 without byte fallback.
        num_characters: Pieces that are a single character.
        user_symbols: Strings that are always one piece.
        longest_pieces: The longest first; a space is written as U+2581.
        fingerprint: Hash of the model.
    """

    type: str
    vocab_size: int
    num_bytes: int
    num_characters: int
    user_symbols: list[str]
    longest_pieces: list[str]
    fingerprint: str


@dataclass(frozen=True)
class TextReport:
    """A tokenizer on a text; words are what spaces separate, tokens do not count eos.

    Attributes:
        num_lines: Lines of the text.
        num_words: Words of the text.
        num_characters: Characters of the text.
        num_tokens: Tokens of the text.
        tokens_per_word: Also called fertility.
        tokens_per_line: Mean.
        longest_line_tokens: Tokens of the longest line.
        character_coverage: Share of characters that have a piece.
        byte_share: Share of tokens that are bytes.
        unknown_share: Share of tokens that are unk.
        used_share: Share of the pieces of text that occur.
        missing_characters: The most frequent characters without a piece, and how often they occur.
        examples: Pieces of the first lines.
    """

    num_lines: int
    num_words: int
    num_characters: int
    num_tokens: int
    tokens_per_word: float
    tokens_per_line: float
    longest_line_tokens: int
    character_coverage: float
    byte_share: float
    unknown_share: float
    used_share: float
    missing_characters: list[tuple[str, int]]
    examples: list[list[str]]


def describe_tokenizer(tokenizer: Tokenizer) -> TokenizerReport:
    """Describe a tokenizer by itself."""
    texts = [piece for piece in tokenizer.texts if piece is not None]
    return TokenizerReport(
        type=tokenizer.type,
        vocab_size=tokenizer.vocab_size,
        num_bytes=len(tokenizer.byte_ids),
        num_characters=sum(len(piece) == 1 for piece in texts),
        user_symbols=tokenizer.user_symbols,
        longest_pieces=sorted(texts, key=lambda piece: -len(piece))[:NUM_LONGEST],
        fingerprint=tokenizer.fingerprint(),
    )


def measure_tokenizer(tokenizer: Tokenizer, lines: Iterable[str]) -> TextReport:
    """Count what a tokenizer makes of a text, in memory that does not grow with it."""
    num_words = longest_line_tokens = 0
    tokens: Counter[int] = Counter()
    characters: Counter[str] = Counter()
    examples: list[list[str]] = []
    num_lines = 0
    for line in lines:
        ids = tokenizer.encode(line)
        num_lines += 1
        num_words += len(line.split())
        longest_line_tokens = max(longest_line_tokens, len(ids))
        tokens.update(ids)
        characters.update(line)
        if len(examples) < NUM_EXAMPLES:
            examples.append(tokenizer.pieces(ids))
    missing = Counter({c: n for c, n in characters.items() if c not in tokenizer.alphabet})
    num_tokens, num_characters = tokens.total(), characters.total()
    num_used = sum(tokenizer.texts[i] is not None for i in tokens)
    return TextReport(
        num_lines=num_lines,
        num_words=num_words,
        num_characters=num_characters,
        num_tokens=num_tokens,
        tokens_per_word=_ratio(num_tokens, num_words),
        tokens_per_line=_ratio(num_tokens, num_lines),
        longest_line_tokens=longest_line_tokens,
        character_coverage=1 - _ratio(missing.total(), num_characters),
        byte_share=_ratio(sum(tokens[i] for i in tokenizer.byte_ids), num_tokens),
        unknown_share=_ratio(tokens[UNK_ID], num_tokens),
        used_share=_ratio(num_used, sum(piece is not None for piece in tokenizer.texts)),
        missing_characters=missing.most_common(NUM_MISSING),
        examples=examples,
    )


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0

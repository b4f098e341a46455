"""Training of tokenizers on an even sample of a stream of lines."""

import io
import logging
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import sentencepiece

from transformer_mt.errors import ConfigError, DataError
from transformer_mt.log import counted
from transformer_mt.text.segmentation import SPACE
from transformer_mt.text.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.text.tokenizer import NONCHARACTERS, Tokenizer, to_utf8
from transformer_mt.text.tokenizer_pair import Tokenizers

logger = logging.getLogger(__name__)

# SentencePiece needs 10 bytes of memory for each character with BPE and 25 with unigram (measured).
MAX_SAMPLE_CHARS = 200_000_000
MAX_LINE_CHARS = 4_000

_SPECIAL_SYMBOLS = ("<pad>", "<unk>", "<s>", "</s>")
# What must not become a piece, as encoding writes it as bytes: the sign of SentencePiece for
# spaces, what may stand in for it, and what ends lines and columns. U+2585 is reserved inside
# SentencePiece's trainer, which leaves out every line that has it.
_NO_PIECES = str.maketrans(dict.fromkeys(f"{SPACE}{NONCHARACTERS}\u2585\0\t\n\r", " "))

_FIXED_OPTIONS: dict[str, Any] = {
    "pad_id": PAD_ID,
    "unk_id": UNK_ID,
    "bos_id": BOS_ID,
    "eos_id": EOS_ID,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "add_dummy_prefix": True,
    # Longer lines would be left out; a character has at most 4 bytes.
    "max_sentence_length": 4 * MAX_LINE_CHARS,
    # Sums of the unigram trainer depend on the number of threads.
    "num_threads": 16,
}


def suggested_vocab_size(num_pairs: int) -> int:
    """Return a vocabulary size that a text of N pairs can teach, by a rule of thumb."""
    rule = ((2_000, 1000), (5_000, 2000), (20_000, 4000), (200_000, 8000), (2_000_000, 16_000))
    return next((size for limit, size in rule if num_pairs <= limit), 32_000)


def train_tokenizers(
    src_lines: Iterable[str],
    tgt_lines: Iterable[str],
    *,
    joint: bool,
    type: Literal["unigram", "bpe"],
    vocab_size: int,
    character_coverage: float = 1.0,
    byte_fallback: bool = True,
    user_symbols: Sequence[str] = (),
    num_sample_lines: int = 2_000_000,
    seed: int = 1,
) -> Tokenizers:
    """Train the tokenizers of a language pair: one on both sides, or one for each.

    Arguments and errors are those of `train_tokenizer`. The streams are read one after the other.
    """
    train = partial(
        train_tokenizer,
        type=type,
        vocab_size=vocab_size,
        character_coverage=character_coverage,
        byte_fallback=byte_fallback,
        user_symbols=user_symbols,
        num_sample_lines=num_sample_lines,
        seed=seed,
    )
    if joint:
        tokenizer = train([src_lines, tgt_lines])
        return Tokenizers(src=tokenizer, tgt=tokenizer)
    return Tokenizers(src=train([src_lines]), tgt=train([tgt_lines]))


def train_tokenizer(
    streams: Sequence[Iterable[str]],
    *,
    type: Literal["unigram", "bpe"],
    vocab_size: int,
    character_coverage: float = 1.0,
    byte_fallback: bool = True,
    user_symbols: Sequence[str] = (),
    num_sample_lines: int = 2_000_000,
    seed: int = 1,
) -> Tokenizer:
    """Train a tokenizer on samples of streams of lines.

    Equal lines and arguments give an equal model, byte for byte. Of lines longer than
    MAX_LINE_CHARS only the beginning is used, and of samples larger than MAX_SAMPLE_CHARS a part;
    both are logged.

    Args:
        streams: Lines of each language; each stream is sampled apart.
        type: Unigram language model (Kudo 2018) or byte-pair encoding (Sennrich et al. 2016).
        vocab_size: Pieces, with special symbols, user symbols and bytes; exactly as many are made.
        character_coverage: Share of all characters of the text that get a piece, 0.98 to 1.
        byte_fallback: Write other characters as UTF-8 bytes; without it they become unk.
        user_symbols: Strings that are always one piece.
        num_sample_lines: Greatest number of lines of each stream.
        seed: Of the sample.

    Raises:
        ConfigError: For a wrong coverage or user symbol.
        DataError: If there is no text, or `vocab_size` does not fit it.
    """
    if not 0.98 <= character_coverage <= 1:
        raise ConfigError(
            f"tokenizer.character_coverage: expected 0.98 to 1; got {character_coverage}"
        )
    check_user_symbols(user_symbols)
    _check_size(user_symbols, vocab_size=vocab_size, byte_fallback=byte_fallback)
    logger.info("reading up to %s lines to train a tokenizer", f"{num_sample_lines:,}")
    sample = _sample(streams, num_sample_lines, seed=seed)
    logger.info(
        "training a %s tokenizer of %s pieces on %s lines (%.1f million characters)",
        type,
        f"{vocab_size:,}",
        f"{len(sample):,}",
        sum(map(len, sample)) / 1e6,
    )
    try:
        model = _train(
            sample,
            model_type=type,
            vocab_size=vocab_size,
            character_coverage=character_coverage,
            byte_fallback=byte_fallback,
            user_defined_symbols=list(user_symbols),
        )
    except RuntimeError as error:
        num_pairs = len(sample) // len(streams)
        raise DataError(_explain(str(error), vocab_size, num_pairs)) from error
    return Tokenizer(model)


def _train(lines: Sequence[str], **options: Any) -> bytes:
    """Train a SentencePiece model; return its file."""
    model = io.BytesIO()
    sentencepiece.set_min_log_level(4)  # its errors come as exceptions too
    sentencepiece.SentencePieceTrainer.Train(
        # No Python while it reads: SentencePiece would take a signal's exception for bad text.
        sentence_iterator=iter([to_utf8(line) for line in lines]),
        model_writer=model,
        **options,
        **_FIXED_OPTIONS,
    )
    return model.getvalue()


def _sample(streams: Sequence[Iterable[str]], num_lines: int, *, seed: int) -> list[str]:
    """Draw lines from each stream.

    Raises:
        DataError: If there is no text.
    """
    sample = [line for stream in streams for line in sample_lines(stream, num_lines, seed=seed)]
    if not sample:
        raise DataError("no text to train a tokenizer on: there are no lines, or only empty ones")
    return _limit_characters(sample, seed)


def sample_lines(lines: Iterable[str], num_lines: int, *, seed: int) -> list[str]:
    """Draw lines from a stream so that each is as likely as any other, in bounded memory.

    Blank lines do not count; characters that must not become pieces are spaces in the result.

    Source: Vitter 1985, algorithm R.
    """
    rng = random.Random(seed)
    sample: list[str] = []
    num_seen = num_cut = 0
    for line in lines:
        if not line or line.isspace():
            continue
        num_seen += 1
        place = len(sample) if len(sample) < num_lines else int(rng.random() * num_seen)
        if place >= num_lines:
            continue
        num_cut += len(line) > MAX_LINE_CHARS
        line = _beginning(line).translate(_NO_PIECES)
        if place == len(sample):
            sample.append(line)
        else:
            sample[place] = line
    if num_cut:
        logger.info(
            "%s longer than %s characters: the tokenizer is trained on %s beginning",
            counted(num_cut, "line"),
            f"{MAX_LINE_CHARS:,}",
            "its" if num_cut == 1 else "their",
        )
    return sample


def _beginning(line: str) -> str:
    """Return the beginning of a long line, up to a space if there is one."""
    if len(line) <= MAX_LINE_CHARS:
        return line
    end = line.rfind(" ", 0, MAX_LINE_CHARS + 1)
    return line[: end if end > 0 else MAX_LINE_CHARS]


def _limit_characters(sample: list[str], seed: int) -> list[str]:
    """Keep as many lines, drawn evenly, as MAX_SAMPLE_CHARS allows."""
    num_chars = sum(map(len, sample))
    if num_chars <= MAX_SAMPLE_CHARS:
        return sample
    num_kept = max(1, int(len(sample) * MAX_SAMPLE_CHARS / num_chars))
    logger.warning(
        "the tokenizer is trained on %s of %s sampled lines: more than %s million characters "
        "would need too much memory; lower tokenizer.num_sample_lines to choose yourself",
        f"{num_kept:,}",
        f"{len(sample):,}",
        MAX_SAMPLE_CHARS // 1_000_000,
    )
    return random.Random(seed).sample(sample, num_kept)


def check_user_symbols(symbols: Sequence[str]) -> None:
    """Refuse user symbols that SentencePiece would misread or drop.

    Raises:
        ConfigError: If there are some; names the first.
    """

    def mistakes() -> Iterator[str]:
        """Yield what is wrong, in the order of the symbols."""
        for i, symbol in enumerate(symbols):
            if not symbol or symbol != symbol.translate(_NO_PIECES) or " " in symbol:
                yield f"{symbol!r} is empty or has spaces or reserved characters"
            elif symbol in _SPECIAL_SYMBOLS or re.fullmatch("<0x[0-9A-F]{2}>", symbol):
                yield f"{symbol!r} is a symbol of every tokenizer"
            elif symbol in symbols[:i]:
                yield f"{symbol!r} is there twice"

    for mistake in mistakes():
        raise ConfigError(f"tokenizer.user_symbols: {mistake}")


def _check_size(symbols: Sequence[str], *, vocab_size: int, byte_fallback: bool) -> None:
    """Refuse a vocabulary without room for pieces of text."""
    num_fixed = len(_SPECIAL_SYMBOLS) + len(symbols) + (256 if byte_fallback else 0)
    if vocab_size <= num_fixed:
        bytes_too = " and bytes" if byte_fallback else ""
        raise DataError(
            f"vocabulary too small: tokenizer.vocab_size is {vocab_size}, but special and user "
            f"symbols{bytes_too} take {num_fixed}, and each character of the text needs a piece: "
            f"set tokenizer.vocab_size to {num_fixed} and the number of characters, or more"
        )


def _explain(error: str, vocab_size: int, num_pairs: int) -> str:
    """Return SentencePiece's message about a failed training in the user's terms."""
    fitting = suggested_vocab_size(num_pairs)
    if found := re.search(r"Vocabulary size too high .* value <= (\d+)", error):
        lines = counted(num_pairs, "line")
        enough = f" ({fitting} are enough for {lines})" if fitting < int(found[1]) else ""
        return (
            f"vocabulary larger than the data allows: tokenizer.vocab_size is {vocab_size}, but "
            f"the training text yields only {found[1]} pieces, symbols and bytes included; set "
            f"tokenizer.vocab_size to {found[1]} or less{enough}, or train on more text"
        )
    if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", error):
        return (
            f"vocabulary too small: tokenizer.vocab_size is {vocab_size}, but symbols, bytes and "
            f"the characters of the training text take {found[1]}; set tokenizer.vocab_size to "
            f"{found[1]} or more, or lower tokenizer.character_coverage"
        )
    return f"SentencePiece cannot train this tokenizer: {error}"

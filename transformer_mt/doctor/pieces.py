"""Checks of tokenizer and tokenized text: what is left out, unknown, rare, too long."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from transformer_mt.config.schema import Config
from transformer_mt.data.corpus import Corpus
from transformer_mt.doctor.findings import Finding
from transformer_mt.log import JsonValue, counted
from transformer_mt.text.special_ids import UNK_ID
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.text.tokenizer_report import TextReport, measure_tokenizer
from transformer_mt.text.tokenizer_training import suggested_vocab_size
from transformer_mt.training.prepare_data import Data

MUCH_LEFT_OUT, MUCH_TOO_LONG, MUCH_UNKNOWN, MUCH_BYTES = 0.5, 0.01, 0.001, 0.005
MANY_TOKENS_PER_WORD = 3.0
RARE, MANY_RARE = 10, 0.5
FEW_UPDATES = 20
Counts = NDArray[np.int64]


def check_pieces(config: Config, data: Data) -> Iterator[Finding]:
    """Look at the text as the model will read it."""
    corpora = [corpus for corpus in data.mixture.corpora if isinstance(corpus, Corpus)]
    for corpus, facts in zip(corpora, data.facts["train"], strict=True):
        yield from _left_out(config, corpus, facts["source"])
    yield from _vocabulary(config, data, corpora)
    if data.tokenizers.src.patch_size is None:
        yield from _unknown(data, corpora)
    longest = config.data.filters.max_length
    too_long = int(
        (data.valid.pairs.lengths(np.arange(len(data.valid.pairs))) > longest).any(1).sum()
    )
    if too_long > MUCH_TOO_LONG * len(data.valid.pairs):
        yield Finding(
            "tokenizer", "truncation", "warning",
            f"data.valid: {counted(too_long, 'pair')} of {len(data.valid.pairs):,} are longer than "
            f"data.filters.max_length {longest} tokens: the model never sees such, and translates "
            "them in parts", "raise data.filters.max_length",
        )  # fmt: skip
    updates = data.tokens_per_epoch / config.training.max_tokens
    if updates < FEW_UPDATES:
        yield Finding(
            "tokenizer", "updates", "warning",
            f"an epoch has {updates:.0f} updates: training.max_tokens "
            f"{config.training.max_tokens:,} is much for {data.tokens_per_epoch:,.0f} of them",
            f"some {max(256, round(data.tokens_per_epoch / 200)):,} would be usual",
        )  # fmt: skip


def _left_out(config: Config, corpus: Corpus, name: str) -> Iterator[Finding]:
    report = corpus.report
    share = report.num_dropped / max(1, report.num_pairs)
    reasons = ", ".join(f"{reason} {number:,}" for reason, number in report.dropped.items())
    text = f"{name}: {report.num_kept:,} of {counted(report.num_pairs, 'pair')} are kept"
    text += f" (left out: {reasons})" if reasons else ""
    facts: dict[str, JsonValue] = {"pairs": report.num_pairs, "kept": report.num_kept}
    too_long = report.dropped.get("too_long", 0)
    if share > MUCH_LEFT_OUT:
        yield Finding(
            "tokenizer", "filters", "warning", text,
            "look at data.filters, and at the pairs that they leave out", facts=facts,
        )  # fmt: skip
    elif too_long > MUCH_TOO_LONG * report.num_pairs:
        yield Finding(
            "tokenizer", "filters", "warning", text,
            f"raise data.filters.max_length ({config.data.filters.max_length}), or split the text "
            "into sentences", facts=facts,
        )  # fmt: skip
    else:
        yield Finding("tokenizer", "filters", "ok", text, facts=facts)


def _counts(tokenizer: Tokenizer, ids: list[NDArray[np.uint16]]) -> Counts:
    """Count each piece in all texts."""
    total = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    for tokens in ids:
        total += np.bincount(tokens, minlength=tokenizer.vocab_size)
    return total


def _vocabulary(config: Config, data: Data, corpora: list[Corpus]) -> Iterator[Finding]:
    """Compare the size of the vocabulary with the text that is to teach it."""
    tokenizers = data.tokenizers
    sides = {"source": (tokenizers.src, [c.src for c in corpora])}
    sides["target"] = (tokenizers.tgt, [c.tgt for c in corpora])
    if tokenizers.one_vocabulary:
        sides = {"joint": (tokenizers.src, [t for c in corpora for t in (c.src, c.tgt)])}
    num_pairs = sum(map(len, corpora))
    fitting = suggested_vocab_size(num_pairs)
    for side, (tokenizer, texts) in sides.items():
        if tokenizer.patch_size is not None:
            continue
        counts = _counts(tokenizer, texts)
        pieces = [i for i, piece in enumerate(tokenizer.texts) if piece is not None]
        num_rare = int((counts[pieces] < RARE).sum())
        text = (
            f"{side} vocabulary of {tokenizer.vocab_size:,} for {counted(num_pairs, 'pair')}; "
            f"{num_rare / max(1, len(pieces)):.0%} of its pieces occur less than {RARE} times"
        )
        facts = {"vocab_size": tokenizer.vocab_size, "rare_pieces": num_rare}
        is_large = tokenizer.vocab_size > fitting and num_rare > MANY_RARE * len(pieces)
        yield Finding(
            "tokenizer", "vocabulary", "warning" if is_large else "ok", text,
            f"rare pieces are not learned: take a vocabulary of {fitting:,}" if is_large else "",
            facts=facts,
        )  # fmt: skip


def _unknown(data: Data, corpora: list[Corpus]) -> Iterator[Finding]:
    """Measure the share of bytes and unknown pieces, in training and in validation text."""
    shares: dict[str, tuple[float, float]] = {}
    for side, tokenizer in (("src", data.tokenizers.src), ("tgt", data.tokenizers.tgt)):
        counts = _counts(tokenizer, [getattr(corpus, side) for corpus in corpora])
        name = {"src": "source", "tgt": "target"}[side]
        shares[f"training {name}"] = (
            float(counts[UNK_ID] / counts.sum()),
            float(counts[tokenizer.byte_ids].sum() / counts.sum()),
        )
        lines = [line for text in data.valid.texts for line in getattr(text, side)]
        report = measure_tokenizer(tokenizer, lines)
        shares[f"validation {name}"] = report.unknown_share, report.byte_share
        if report.tokens_per_word > MANY_TOKENS_PER_WORD and _has_spaces(report):
            yield Finding(
                "tokenizer", f"length of {name}", "warning",
                f"{report.tokens_per_word:.1f} pieces for a word of the {name}: the tokenizer does "
                "not know this language well",
                "train one on this text (leave tokenizer.path out), or take a larger vocabulary",
            )  # fmt: skip
    much = {
        text: share
        for text, share in shares.items()
        if share[0] > MUCH_UNKNOWN or share[1] > MUCH_BYTES
    }
    for text, (unknown, in_bytes) in (much or {"all text": max(shares.values())}).items():
        yield Finding(
            "tokenizer", "coverage", "warning" if much else "ok",
            f"{text}: {unknown:.2%} unknown pieces, {in_bytes:.2%} bytes of rare characters",
            "train the tokenizer on such text, or raise tokenizer.character_coverage; with "
            "tokenizer.byte_fallback nothing is unknown" if much else "",
            facts={"unknown_share": unknown, "byte_share": in_bytes},
        )  # fmt: skip


def _has_spaces(report: TextReport) -> bool:
    return report.num_characters < 12 * report.num_words

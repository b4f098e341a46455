"""Plausibility checks of training text, on its first pairs and before anything expensive."""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from transformer_mt.config.data import DataSettings, TokenizerSettings
from transformer_mt.config.language_codes import plain_code, unknown_code_warning
from transformer_mt.config.pictures import PICTURES
from transformer_mt.config.sources import HeldOutSource, JoinedSources, SplitSource, TextSource
from transformer_mt.data.pair_source import PairSource
from transformer_mt.errors import DataError
from transformer_mt.text.languages import language_of_name, language_of_text
from transformer_mt.text.tokenizer_training import suggested_vocab_size

NUM_LOOKED_AT = 5000
"""Pairs of each source; fewer in all are few to train on."""
_ENOUGH_WORDS = 50
_CLEARLY = 2.0
_IDEOGRAPH = re.compile("[\u2e80-\u9fff\uac00-\ud7af]")

Pair = tuple[str, str]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceSample:
    """A source and its first pairs."""

    name: str
    settings: HeldOutSource
    head: Sequence[Pair]


def check_text(
    data: DataSettings,
    tokenizer: TokenizerSettings,
    sources: Sequence[PairSource],
    valid: Sequence[Pair],
) -> None:
    """SourceSample at the beginning of the training text, and say what is probably wrong with it.

    Args:
        data: Settings of the text.
        tokenizer: Settings of the tokenizer that is to be trained, if it is.
        sources: The training text.
        valid: Validation pairs.

    Raises:
        DataError: If source and target are exchanged.
    """
    looks = [
        SourceSample(source.describe(), settings, list(islice(source, NUM_LOOKED_AT)))
        for source, settings in zip(sources, data.train, strict=True)
        if settings.type not in ("reverse", "monolingual", *PICTURES)
    ]
    for look in looks:
        _check_copies(look, data)
    if looks:
        _check_codes(data)
        _check_order(looks, data, valid[:NUM_LOOKED_AT])
        _check_size(sum(len(look.head) for look in looks), tokenizer)


def _check_codes(data: DataSettings) -> None:
    read, written = data.languages()
    for name, codes in (("src_lang", read), ("tgt_lang", written)):
        for code in codes:
            if doubt := unknown_code_warning(code):
                logger.warning("data.%s: %s; taken for a language with spaces", name, doubt)


def _check_copies(look: SourceSample, data: DataSettings) -> None:
    num_copies = sum(src == tgt for src, tgt in look.head)
    drops_copies = data.drops_copies(data.direction(look.settings))
    if 2 * num_copies > len(look.head) and drops_copies:
        logger.warning(
            "%s: %s of the first %s pairs have their source as target and will be dropped: is it "
            "the right file? (data.filters.drop_copies: false keeps them)",
            look.name,
            f"{num_copies:,}",
            f"{len(look.head):,}",
        )


def _check_order(looks: Sequence[SourceSample], data: DataSettings, valid: Sequence[Pair]) -> None:
    """Find sources whose source and target are exchanged.

    Some may be meant so, such as for a model of both directions; all of them are a mistake.
    """
    if data.language_tags is not None:
        valid = ()  # of one direction or of several
    looks = [look for look in looks if len(set(map(plain_code, data.direction(look.settings)))) > 1]
    exchanged = [
        look for look in looks if _is_exchanged(look, data.direction(look.settings), valid)
    ]
    if not exchanged:
        return
    languages = data.direction(exchanged[0].settings)
    names = ", ".join(look.name for look in exchanged)
    what = (
        f"{names}: source and target seem to be exchanged: by the names of the files or their "
        f"words, the source is {languages[1]} and the target {languages[0]}"
    )
    valid_is_other = not isinstance(data.valid, SplitSource | JoinedSources) and not _is_exchanged(
        SourceSample("", data.valid, valid), languages, ()
    )
    if len(exchanged) == len(looks) and valid_is_other:
        raise DataError(f"{what}, unlike in data.valid. Exchange src and tgt in data.train")
    logger.warning("%s. If that is not meant, exchange them, or src_lang and tgt_lang", what)


def _is_exchanged(look: SourceSample, languages: tuple[str, str], valid: Sequence[Pair]) -> bool:
    """Whether names, the commonest words, or a comparison with validation text say so."""
    codes = tuple(map(plain_code, languages))
    if isinstance(look.settings, TextSource):
        named = [language_of_name(path) for path in (look.settings.src, look.settings.tgt)]
        found = tuple(plain_code(code or "") for code in named)
        if all(found):
            return found == codes[::-1]
    if not look.head:
        return False
    sides = list(zip(*look.head, strict=True))
    if all(guesses := tuple(map(language_of_text, sides))):
        return guesses == codes[::-1]
    return bool(valid) and _is_like_exchanged(sides, list(zip(*valid, strict=True)))


def _is_like_exchanged(sides: Sequence[Sequence[str]], valid: Sequence[Sequence[str]]) -> bool:
    """Whether the words of each side are rather those of the other side of other text."""
    (src, tgt), (valid_src, valid_tgt) = (list(map(_words, pair)) for pair in (sides, valid))
    if min(map(len, (src, tgt, valid_src, valid_tgt))) < _ENOUGH_WORDS:
        return False
    straight = _shared(src, valid_src) + _shared(tgt, valid_tgt)
    return _shared(src, valid_tgt) + _shared(tgt, valid_src) > _CLEARLY * straight


def _words(lines: Iterable[str]) -> set[str]:
    """Return the words of lines, of scripts without spaces the characters."""
    found: set[str] = set()
    for line in lines:
        for word in re.findall(r"[^\W\d_]+", line.lower()):
            found.update(word if _IDEOGRAPH.search(word) else [word])
    return found


def _shared(first: set[str], second: set[str]) -> float:
    return len(first & second) / min(len(first), len(second))


def _check_size(num_pairs: int, tokenizer: TokenizerSettings) -> None:
    if num_pairs >= NUM_LOOKED_AT:
        return
    logger.warning(
        "%s pairs are few to train on: the model will know them by heart and little else; some "
        "10,000 give a first impression, 100,000 a useful translator of such text",
        f"{num_pairs:,}",
    )
    fitting = suggested_vocab_size(num_pairs)
    if tokenizer.path is None and tokenizer.vocab_size > 2 * fitting:
        logger.warning(
            "tokenizer.vocab_size %s is much for %s pairs: most pieces will be seen too rarely to "
            "be learned; %s would be enough",
            f"{tokenizer.vocab_size:,}",
            f"{num_pairs:,}",
            f"{fitting:,}",
        )

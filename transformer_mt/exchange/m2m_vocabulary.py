"""Vocabularies of M2M-100 and NLLB in Hugging Face's format, with their language codes.

Both have one SentencePiece model for all languages, and after its pieces a token for each language.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformer_mt.errors import ModelError
from transformer_mt.exchange.marian_vocabulary import (
    MarianVocabulary,
    laid_over,
    read_object,
    sorted_vocabulary,
)
from transformer_mt.text.tokenizer import Tokenizer

SENTENCEPIECE = "sentencepiece.bpe.model"
LANGUAGES = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga "
    "gd gl gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml "
    "mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn "
    "tr uk ur uz vi wo xh yi yo zh zu",
    "wmt21": "en ha is ja cs ru zh de",
}
"""Languages of M2M-100 in the order of their tokens, by `language_codes` of the tokenizer: no file
of a model lists them."""
MOST_SPARE = 1024
"""Rows of the embedding that no piece has; there are 8 or so, which make up a round number."""
NLLB_CODE = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")


def read_m2m(
    directory: Path, theirs: Mapping[str, Any], tokenizing: Mapping[str, Any], start: int
) -> tuple[Tokenizer, MarianVocabulary, dict[str, Any]]:
    """Read the vocabulary of a model with language codes.

    Args:
        directory: With `vocab.json` (M2M-100) or `tokenizer.json` (NLLB), and the SentencePiece
            model.
        theirs: `config.json`.
        tokenizing: `tokenizer_config.json`.
        start: Number of the token that their decoder starts from.

    Returns:
        The tokenizer, its pieces with their rows, and our settings of language tags.

    Raises:
        ModelError: If a file is missing or damaged, or the languages cannot be found.
    """
    is_nllb = not (directory / "vocab.json").exists()
    ids, codes = _nllb(directory, tokenizing) if is_nllb else _m2m100(directory, tokenizing)
    form = "{}" if is_nllb else "__{}__"
    path = directory / ("tokenizer.json" if is_nllb else "vocab.json")
    num_spare = theirs["vocab_size"] - len(ids)
    if not 0 <= num_spare <= MOST_SPARE:
        raise ModelError(
            f"{path}: {len(ids):,} pieces do not fit the vocab_size "
            f"{theirs['vocab_size']:,} of config.json"
        )
    ids |= {f"<madeup{number}>": number for number in range(len(ids), theirs["vocab_size"])}
    vocabulary = sorted_vocabulary(ids, path, theirs, start)
    control = {form.replace("{}", code) for code in codes} | {"<mask>"}
    control |= {piece for piece in vocabulary.pieces if piece.startswith("<madeup")}
    tokenizer, vocabulary = laid_over(directory / SENTENCEPIECE, vocabulary, control=control)
    tags = {"source": "own", "target": True, "form": form, "languages": codes}
    return tokenizer, vocabulary, tags


def _m2m100(directory: Path, tokenizing: Mapping[str, Any]) -> tuple[dict[str, int], list[str]]:
    """Return the numbers of the pieces, and the languages, whose tokens come after them."""
    ids = read_object(directory, "vocab.json")
    name = tokenizing.get("language_codes", "m2m100")
    if not isinstance(name, str) or name not in LANGUAGES:
        raise ModelError(
            f"{directory / 'tokenizer_config.json'}: language_codes '{name}': expected one of "
            f"{', '.join(LANGUAGES)}"
        )
    codes = LANGUAGES[name].split()
    return ids | {f"__{code}__": len(ids) + i for i, code in enumerate(codes)}, codes


def _nllb(directory: Path, tokenizing: Mapping[str, Any]) -> tuple[dict[str, int], list[str]]:
    """Return the numbers of pieces and languages."""
    if tokenizing.get("legacy_behaviour"):
        raise ModelError(
            f"{directory / 'tokenizer_config.json'}: legacy_behaviour puts the language after the "
            "source: only models that read it first can be imported"
        )
    content = read_object(directory, "tokenizer.json")
    try:
        added = {token["content"]: token["id"] for token in content["added_tokens"]}
        ids = {**content["model"]["vocab"], **added}
        codes = [text for text in added if NLLB_CODE.fullmatch(text)]
    except (KeyError, TypeError) as error:
        raise ModelError(f"{directory / 'tokenizer.json'}: no vocabulary: {error!r}") from error
    if not codes:
        raise ModelError(
            f"{directory / 'tokenizer.json'}: expected tokens of languages such as eng_Latn"
        )
    return ids, codes

"""What commands check of references before they score against them."""

import logging
from collections.abc import Sequence
from itertools import islice

from transformer_mt.config.language_codes import WITHOUT_SPACES, doubt_about
from transformer_mt.log import counted

logger = logging.getLogger(__name__)

_NUM_LOOKED_AT = 1000


def language_of(tgt_lang: str | None, references: Sequence[str]) -> str:
    """Return the language by which scores tokenize; without a code, what the script says.

    A warning names blank references, an unknown code, and a language that nobody gave.

    Args:
        tgt_lang: What the user gave.
        references: Lines.
    """
    from transformer_mt.text.languages import language_of_text

    if num_blank := sum(not line.strip() for line in references):
        logger.warning(
            "%s of %s blank; they count in all scores",
            f"{num_blank:,}",
            counted(len(references), "reference"),
        )
    if tgt_lang is not None:
        if doubt := doubt_about(tgt_lang):
            logger.warning("--tgt-lang: %s; scores take it for one with spaces", doubt)
        return tgt_lang
    found = language_of_text(islice(references, _NUM_LOOKED_AT))
    if found not in WITHOUT_SPACES | {"ko"}:
        return ""
    logger.warning("no --tgt-lang: by their script the references are taken for '%s'", found)
    return found or ""

"""Nearest neighbours of a word in the embedding.

Source: Mikolov et al. 2013, section 4 (cosine of word vectors).
"""

import torch
import torch.nn.functional as F

from transformer_mt.bundle import Bundle
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.nn.layers import TokenEmbedding
from transformer_mt.text.special_ids import EOS_ID


def neighbours(bundle: Bundle, word: str, *, num: int = 10) -> list[tuple[str, float]]:
    """Return the pieces whose embeddings have the greatest cosine with that of a word.

    A word of several pieces has the mean of their directions. With one matrix for both sides, words
    of the target are among them.

    Args:
        bundle: A model.
        word: In the source language, or in any that the vocabulary covers.
        num: How many.

    Raises:
        DataError: If the word has no pieces.
        ConfigError: If the model has no embedding of source words.
    """
    tokenizer = bundle.tokenizers.src
    own = tokenizer.encode(word.strip())
    if not own:
        raise DataError("expected a word; it is empty or blank")
    embedding = getattr(bundle.model.encoder, "embedding", None)
    if not isinstance(embedding, TokenEmbedding):
        raise ConfigError("this model has no embedding of source words")
    directions = F.normalize(embedding.weight.detach().float(), dim=1)
    cosines = directions @ F.normalize(directions[own].mean(0), dim=0)
    cosines[[*range(EOS_ID + 1), *own, *tokenizer.byte_ids]] = -torch.inf
    best = cosines.topk(min(num, len(cosines) - 1))
    pieces = tokenizer.pieces(best.indices.tolist())
    return list(zip(pieces, best.values.tolist(), strict=True))

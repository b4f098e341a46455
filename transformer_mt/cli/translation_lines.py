"""How translations are written: as text, as n-best lists, as JSON, with alignments beside them."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transformer_mt.errors import ConfigError
from transformer_mt.log import counted

if TYPE_CHECKING:
    from transformer_mt.decoding.alignment import Attention
    from transformer_mt.decoding.translation import Candidate, Translation
    from transformer_mt.decoding.translator import Translator


@dataclass(frozen=True)
class Details:
    """What is told of a translation beyond its text.

    Attributes:
        alignment: Which words belong together.
        attention: The weights of attention.
        alternatives: So many tokens at each place.
        layer: Of the decoder, from 1, for both of the first; None: the mean of all.
        timings: How long it took.
        n_best: The list of translations, for blank lines too.
    """

    alignment: bool
    attention: bool
    alternatives: int
    layer: int | None
    timings: bool = False
    n_best: bool = False

    def check(self, *, as_json: bool, protect: bool, num_layers: int) -> None:
        """Refuse options that have no effect, or cannot be had together or with the model.

        Args:
            as_json: Whether translations are written as JSON.
            protect: Whether parts of the text are protected.
            num_layers: Layers of the decoder that attend to the source.

        Raises:
            ConfigError: Names them.
        """
        if not as_json and (self.attention or self.alternatives or self.timings):
            raise ConfigError(
                "--attention, --alternatives and --timings are written with --json only: add it"
            )
        if protect and (self.alignment or self.attention):
            raise ConfigError(
                "--alignments and --attention count words of the text that the model saw, which "
                "--protect changes: drop one of them"
            )
        if (self.alignment or self.attention) and not num_layers:
            raise ConfigError(
                "--alignments and --attention tell where a model looks in the source, and this one "
                "has no attention (model.attention: none)"
            )
        if self.layer is None:
            return
        if not (self.alignment or self.attention):
            raise ConfigError("--alignment-layer has no effect without --alignments or --attention")
        if self.layer > num_layers:
            raise ConfigError(
                f"--alignment-layer {self.layer}: the model has {counted(num_layers, 'layer')}"
            )


def n_best_lines(translations: Sequence["Translation"], *, first: int) -> list[str]:
    """Return lines `NUMBER ||| TEXT ||| LogProb= X ||| SCORE`, one for each candidate."""
    return [
        f"{number} ||| {candidate.text} ||| LogProb= {candidate.log_prob:.6f} ||| "
        f"{candidate.score:.6f}"
        for number, translation in enumerate(translations, start=first)
        for candidate in translation.n_best
    ]


def json_lines(
    translator: "Translator",
    translations: Sequence["Translation"],
    attentions: Sequence["Attention"],
    details: Details,
    *,
    seconds: float,
) -> list[str]:
    """Return a JSON object for each translation.

    Args:
        translator: The one that made them.
        translations: Of some lines.
        attentions: Of the best candidate of each; none if it is not wanted.
        details: What to tell.
        seconds: How long all of them took together.
    """
    best = [translation.n_best[0] for translation in translations]
    records = [_record(candidate) for candidate in best]
    for record, attention in zip(records, attentions, strict=False):
        if details.alignment:
            record["alignment"] = attention.links()
        if details.attention:
            record["source_tokens"] = attention.source_tokens
            record["attention"] = [[round(x, 4) for x in row] for row in attention.weights.tolist()]
    if details.alternatives:
        alternatives = _alternatives(translator, best, details.alternatives)
        for record, found in zip(records, alternatives, strict=True):
            record["alternatives"] = found
    for record, translation in zip(records, translations, strict=True):
        if details.n_best:
            record["n_best"] = [_record(candidate) for candidate in translation.n_best]
        if details.timings:
            record["timings"] = {"seconds": round(seconds, 6), "lines": len(records)}
    return [json.dumps(record, ensure_ascii=False) for record in records]


def _record(candidate: "Candidate") -> dict[str, Any]:
    return {
        "text": candidate.text,
        "tokens": candidate.tokens,
        "log_prob": candidate.log_prob,
        "score": candidate.score,
    }


def _alternatives(
    translator: "Translator", candidates: Sequence["Candidate"], num: int
) -> list[list[list[tuple[str, float]]]]:
    """Return for each token of each candidate the best ones at its place, and probabilities."""
    pieces = translator.tokenizers.tgt.pieces
    pairs = [(part.source, part.target) for c in candidates for part in c.parts]
    found = iter(translator.given.alternatives(pairs, num))
    return [
        [
            [(pieces([token])[0], round(math.exp(log_prob), 6)) for token, log_prob in place]
            for _ in candidate.parts
            for place in next(found)
        ]
        for candidate in candidates
    ]

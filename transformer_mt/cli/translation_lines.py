"""How translations are written: as text, as n-best lists, as JSON, with alignments beside them."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transformer_mt.errors import ConfigError
from transformer_mt.log import counted

if TYPE_CHECKING:
    from transformer_mt.translation.alignment import Attention
    from transformer_mt.translation.results import Candidate, Translation
    from transformer_mt.translation.translator import Translator


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

    def check(self, *, num_layers: int, others: Mapping[str, object]) -> None:
        """Refuse options that the model cannot serve.

        Args:
            num_layers: Layers of the decoder that attend to the source.
            others: Options, with their values, that need its attention as well.

        Raises:
            ConfigError: Names them.
        """
        needing = {"--alignments": self.alignment, "--attention": self.attention, **others}
        used = [name for name, value in needing.items() if value]
        if used and not num_layers:
            raise ConfigError(
                f"{' and '.join(used)}: where a model looks in the source must be known for this, "
                f"and this one has no attention (model.attention: none); leave it out"
            )
        if self.layer is not None and self.layer > num_layers:
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
    """Return for each token of each candidate the best ones at its place, and probabilities.

    The end of a line comes last; those of its other parts are no tokens of it and left out.
    """
    pieces = translator.tokenizers.tgt.pieces
    pairs = [(part.source, part.target) for c in candidates for part in c.parts]
    found = iter(translator.given.alternatives(pairs, num))
    return [
        [
            [(pieces([token])[0], round(math.exp(log_prob), 6)) for token, log_prob in place]
            for number, _ in enumerate(candidate.parts, start=1)
            for place in next(found)[: None if number == len(candidate.parts) else -1]
        ]
        for candidate in candidates
    ]

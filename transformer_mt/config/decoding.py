"""Settings of the search for translations."""

from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from transformer_mt.config.base import PathText, PositiveInt, Settings

LengthPenaltyKind: TypeAlias = Literal["gnmt", "average", "reward"]

Count = Annotated[int, Field(ge=0, le=2**32)]
Penalty = Annotated[float, Field(ge=0, le=1000)]


class DecodingSettings(Settings):
    """How translations are searched.

    `tmt translate --set decoding.NAME=VALUE` overrides a setting for one run; those in common use
    have an option of their own, such as `--beam-size`.
    """

    beam_size: PositiveInt = 4
    """Beam width: hypotheses kept for each sentence; 1 is greedy search."""
    length_penalty: Annotated[float, Field(ge=0, le=100)] = 0.6
    """Strength of the length penalty: for `gnmt` the exponent alpha of Wu et al. 2016, equation 14;
    0: none, hypotheses are ranked by the plain sum of log-probabilities."""
    length_penalty_kind: LengthPenaltyKind = "gnmt"
    """gnmt: divide by ((5 + length) / 6)^strength; average: by length^strength, where 1 gives the
    mean per token; reward: add the strength for each token."""
    max_length_factor: Annotated[float, Field(ge=0, le=1000)] = 1.0
    """Maximum output length = factor * source length + offset, in tokens incl. eos."""
    max_length_offset: Annotated[int, Field(ge=1, le=1_000_000)] = 50
    """See `max_length_factor`; the paper has factor 1 and offset 50."""
    batch_tokens: PositiveInt = 8192
    """Batch size: source tokens times beam width; a longer sentence is translated alone."""
    max_length: Annotated[int, Field(ge=1, le=2**32)] | None = None
    """Maximum output length in tokens incl. eos, whatever the source length. Default: none."""
    min_length: Annotated[int, Field(ge=1, le=2**32)] = 1
    """Minimum output length in tokens incl. eos (capped by the maximum)."""
    min_length_ratio: Penalty = 0.0
    """Minimum output length in tokens incl. eos for each source token (capped by the maximum)."""
    beam_groups: Annotated[int, Field(ge=1, le=2**32)] = 1
    """Diverse beam search (Vijayakumar et al. 2018): divide the beam into this many groups that
    avoid each other's tokens, for more variety in n-best lists."""
    diversity_penalty: Penalty = 0.5
    """Penalty in nats for a token that another group of `beam_groups` chose in the same step."""
    coverage_penalty: Penalty = 0.0
    """Strength beta of the coverage penalty (Wu et al. 2016) on source tokens that got little
    attention; it re-ranks the finished beam."""
    sample: bool = False
    """Sample translations at random instead of beam search."""
    temperature: Annotated[float, Field(ge=0.001, le=1000)] = 1.0
    """Sampling: divide logits by this; below 1 favours probable tokens."""
    top_k: Count = 0
    """Sampling: draw from the k most probable tokens; 0: all."""
    top_p: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Sampling: draw from the most probable tokens that together have this probability (nucleus
    sampling); 1: all."""
    seed: Count = 1
    """Sampling: seed of the random numbers. Those of a sentence depend on it and on the source."""
    no_repeat_ngram: Count = 0
    """Never generate the same N tokens in a row twice (Paulus et al. 2018); 0: no such rule."""
    repetition_penalty: Annotated[float, Field(ge=1, le=1000)] = 1.0
    """Multiply the log-probability of tokens that the output has already (Keskar et al. 2019); the
    score includes it. 1: none."""
    suppress: list[str] = Field(default=[])
    """Never generate these words or phrases (case-sensitive, as tokenized)."""
    mbr: Literal["chrf", "bleu"] | None = None
    """Minimum Bayes risk decoding: sample `mbr_samples` translations and choose the one with the
    highest mean score by this metric against all of them. Not for validation during training."""
    mbr_samples: Annotated[int, Field(ge=1, le=2**16)] = 64
    """Number of samples of `mbr`."""
    shortlist: PathText | None = None
    """Lexical shortlist made by `tmt shortlist`: restrict the output to target tokens that are
    likely for the source. Not for validation during training."""
    compile: bool = False
    """On a GPU: compile the decoder step with torch.compile, which takes some ten seconds. Not for
    validation during training."""
    alignment_layer: PositiveInt | None = None
    """Decoder layer whose cross-attention (mean over heads) gives word alignments. Default: the
    mean over all layers."""
    attention: bool = False
    """Add cross-attention weights and source tokens to JSON output."""
    alternatives: Annotated[int, Field(ge=0, le=2**16)] = 0
    """Add this many most probable tokens at each position, with probabilities, to JSON output."""

    def misfits(self) -> Iterator[tuple[str, str]]:
        """Find settings without effect, or that do not fit each other, in a whole config.

        They are no `contradictions`, as the command line may add what is missing.
        """
        fields = type(self).model_fields
        changed = {name for name in fields if getattr(self, name) != fields[name].default}
        yield from search_misfits(self, changed, samples=self.sample or self.mbr is not None)
        if self.mbr is None and "mbr_samples" in changed:
            yield "mbr_samples", "has no effect without decoding.mbr"


def search_misfits(
    search: Any, changed: Collection[str], *, samples: bool
) -> Iterator[tuple[str, str]]:
    """Find settings of a search without effect, or that do not fit each other.

    Args:
        search: Has the settings as attributes.
        changed: Names of those that differ from their defaults.
        samples: Whether translations are sampled.

    Yields:
        The setting to look at first, and what is wrong.
    """
    for name in ("temperature", "top_k", "top_p", "seed"):
        if name in changed and not samples:
            yield name, "has no effect without decoding.sample or decoding.mbr"
    if search.beam_groups == 1 and "diversity_penalty" in changed:
        yield "diversity_penalty", "has no effect without decoding.beam_groups"
    if search.beam_groups > 1 and samples:
        yield "beam_groups", "has no effect on samples (decoding.sample, decoding.mbr)"
    elif search.beam_size % search.beam_groups:
        yield "beam_groups", f"{search.beam_groups} does not divide beam_size {search.beam_size}"
    if search.max_length is not None and search.min_length > search.max_length:
        yield "min_length", f"{search.min_length} is more than max_length {search.max_length}"

"""What the options of a run and the requests of a batch mean for the search."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from transformer_mt.search.candidates import Selection, select_best
from transformer_mt.search.diverse_beams import DiverseGroups
from transformer_mt.search.logit_processors import (
    ForcedStart,
    MinLength,
    NoRepeatedNgrams,
    RepetitionPenalty,
    Rule,
    Suppressed,
)
from transformer_mt.search.phrase_constraints import Constraints
from transformer_mt.search.sampling import Sampling
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.requests import Request


@dataclass(frozen=True)
class Plan:
    """What `search.beam_search` is given for one batch.

    Attributes:
        num_slots: Slots of each sentence.
        rules: Edit the log-probabilities of each step.
        select: Chooses the continuations that are kept.
    """

    num_slots: int
    rules: Sequence[Rule]
    select: Selection


def plan_search(
    options: SearchOptions,
    requests: Sequence[Request],
    limits: Tensor,
    *,
    suppressed: Sequence[Sequence[int]],
    continues_word: Tensor,
) -> Plan:
    """Choose the rules and the selection that options and requests ask for; mostly none.

    Args:
        options: The same for all batches.
        requests: One for each sentence.
        limits: Greatest lengths of the targets (B,).
        suppressed: Sequences of tokens that must not occur.
        continues_word: Tokens that would prolong the word before them (V,), True or False.

    Raises:
        ValueError: If there are phrases, and the options say anything but plain beam search.
    """
    rules: list[Rule] = []
    min_lengths = options.min_lengths(np.array([len(r.source) + 1 for r in requests]))
    if (min_lengths > 1).any():
        rules.append(MinLength(np.minimum(min_lengths, limits.numpy())))
    if suppressed:
        rules.append(Suppressed(suppressed))
    if options.no_repeat_ngram:
        rules.append(NoRepeatedNgrams(options.no_repeat_ngram))
    if options.repetition_penalty > 1:
        rules.append(RepetitionPenalty(options.repetition_penalty))
    # What is wanted of a line goes before rules for all lines, and how it begins before all else.
    constraints = None
    if any(request.phrases for request in requests):
        if options.sample or options.beam_groups > 1:
            raise ValueError("only plain beam search can hold phrases: no samples, no beam groups")
        constraints = Constraints(
            [request.phrases for request in requests],
            limits.numpy(),
            beam_size=options.beam_size,
            continues_word=continues_word,
            rules=rules,
        )
        rules = [constraints.restrict]
    if any(request.prefix for request in requests):
        rules = [ForcedStart([request.prefix for request in requests], rules)]
    if constraints is not None:
        return Plan(constraints.num_slots, rules, constraints)
    return Plan(options.num_slots, rules, _selection(options, requests))


def _selection(options: SearchOptions, requests: Sequence[Request]) -> Selection:
    if options.sample:
        return Sampling(
            [request.source for request in requests],
            num_samples=options.n_best,
            seed=options.seed,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
        )
    if options.beam_groups > 1:
        return DiverseGroups(
            len(requests),
            beam_size=options.beam_size,
            num_groups=options.beam_groups,
            penalty=options.diversity_penalty,
        )
    return select_best

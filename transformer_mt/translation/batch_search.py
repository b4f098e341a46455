"""Search of a batch: requests to hypotheses.

The steps, and where each is defined:

1. The sources are encoded (`scoring.encode_sources`), unless that was done with their documents
   (`document_encoder`), and each target gets its maximum length
   (`options.SearchOptions.max_lengths`).
2. With a lexicon, the vocabulary of the batch is limited to its shortlist (`shortlist`).
3. Options and requests become logits processors and a selection (`_steering`): minimum length,
   suppressed words, repetition, phrases, prefixes; beams, diverse beams or samples.
4. `search.beam_search` runs the decoder step by step.
5. The coverage penalty ranks the finished beam again (`search.coverage`), diverse beams lose their
   duplicates, and hypotheses of a right-to-left model are turned round.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from transformer_mt.bundle import Bundle
from transformer_mt.data.lexicon import Lexicon
from transformer_mt.errors import ConfigError
from transformer_mt.models.compilation import compile_steps
from transformer_mt.models.interfaces import Memory, StepDecoder
from transformer_mt.models.seq2seq import evaluation_mode
from transformer_mt.search.beam_search import beam_search
from transformer_mt.search.continuations import Selection, select_best
from transformer_mt.search.coverage import rank_by_coverage
from transformer_mt.search.diverse_beams import DiverseBeams
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.search.logit_processors import (
    ForcedPrefix,
    LogitProcessor,
    MinLength,
    NoRepeatedNgrams,
    RepetitionPenalty,
    Suppressed,
)
from transformer_mt.search.phrase_constraints import PhraseConstraints
from transformer_mt.search.sampling import Sampling
from transformer_mt.text.special_ids import UNK_ID
from transformer_mt.translation.document_encoder import joined_memory
from transformer_mt.translation.glossary import cuts_of, words_continued
from transformer_mt.translation.options import MAX_COUNT, SearchOptions
from transformer_mt.translation.requests import Request
from transformer_mt.translation.scoring import encode_sources
from transformer_mt.translation.shortlist import Shortlist

# Steps that a GPU takes between two waits of the host for its choices. Fewer waits keep the GPU
# busy, but sentences that are done stay in the batch meanwhile. To be tuned: the section
# "translation, sync intervals" of `scripts/gpu_check.sh`.
SYNC_EVERY_STEPS = 4


class BatchSearch:
    """Searches for the translations of a batch with a model.

    Args:
        bundle: The model and its tokenizers.
        options: How to search.
        lexicon: The target tokens that go with a source; None: all tokens.

    Raises:
        ConfigError: If samples are to be drawn with a lexicon: their random numbers belong to the
            whole vocabulary.
    """

    def __init__(self, bundle: Bundle, options: SearchOptions, lexicon: Lexicon | None) -> None:
        if lexicon is not None and options.sample:
            raise ConfigError("a shortlist goes with beam search, not with samples: leave it out")
        tokenizer = bundle.tokenizers.tgt
        self._bundle, self._model = bundle, bundle.model
        self._options = options
        self._lexicon = lexicon
        self._right_to_left = bundle.config.data.reverse_target
        self._tags = bundle.tags.tgt
        cuts = [cut for word in options.suppress for cut in cuts_of(word, tokenizer)]
        self._suppressed = [cut[::-1] for cut in cuts] if self._right_to_left else cuts
        device = next(bundle.model.parameters()).device
        self._sync_every = 1 if device.type == "cpu" else SYNC_EVERY_STEPS
        self._continues_word = torch.from_numpy(words_continued(tokenizer)).to(device)
        # Diverse beams may find the same, and coverage ranks anew: both need the whole beam.
        needs_whole_beam = options.coverage_penalty > 0 or options.beam_groups > 1
        self._num_finished = options.num_slots if needs_whole_beam else options.n_best
        if options.compile:
            # A number of sentences that nothing else is: equal sizes are taken for always equal.
            longest = (bundle.model.encoder.max_length or MAX_COUNT) - 1
            sizes = range(5, 2 * options.num_slots + 14)
            trial = [Request((UNK_ID,) * min(size, longest)) for size in sizes]
            compile_steps(bundle.model, lambda: self(trial))

    @torch.inference_mode()
    def __call__(
        self,
        requests: Sequence[Request],
        watch: Callable[[Selection], Selection] = lambda select: select,
    ) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each sentence, best first, in reading order.

        Args:
            requests: At least one.
            watch: May wrap the selection of the search.
        """
        options, decoder = self._options, self._model.decoder
        with evaluation_mode(self._model):
            encoded = [request.encoded for request in requests if request.encoded is not None]
            memory = (
                joined_memory(self._model, encoded)
                if encoded
                else encode_sources(self._bundle, [request.source for request in requests])
            )
            lengths = np.array([len(request.source) + 1 for request in requests])
            longest = None if decoder.max_length is None else decoder.max_length - len(self._tags)
            limits = torch.from_numpy(options.max_lengths(lengths, longest=longest))
            found = self._found(memory, requests, limits, watch)
            if strength := options.coverage_penalty:
                found = rank_by_coverage(decoder, memory, found, strength=strength)
        if options.beam_groups > 1:
            found = [_without_duplicates(own) for own in found]
        found = [own[: options.n_best] for own in found]
        if num_tags := len(self._tags):
            found = [[replace(one, tokens=one.tokens[num_tags:]) for one in own] for own in found]
        if self._right_to_left:
            found = [[replace(one, tokens=one.tokens[::-1]) for one in own] for own in found]
        return found

    def _found(
        self,
        memory: Memory,
        requests: Sequence[Request],
        limits: Tensor,
        watch: Callable[[Selection], Selection],
    ) -> list[list[Hypothesis]]:
        """Run the beam search, over the shortlist of the batch where there is a lexicon.

        The tags of the target are a prefix in it, and come first in what it returns.
        """
        options = self._options
        if self._tags:
            requests = [replace(one, prefix=(*self._tags, *one.prefix)) for one in requests]
            limits = limits + len(self._tags)
        decoder: StepDecoder = self._model.decoder
        suppressed: Sequence[Sequence[int]] = self._suppressed
        continues_word = self._continues_word
        shortlist = None
        if self._lexicon is not None:
            shortlist = Shortlist(self._lexicon, requests, continues_word.device)
            decoder = shortlist.limited(self._model.decoder)
            requests = shortlist.numbered(requests)
            suppressed = shortlist.possible(suppressed)
            continues_word = continues_word[shortlist.ids]
        num_slots, processors, select = _steering(
            options,
            requests,
            limits,
            suppressed=suppressed,
            continues_word=continues_word,
            num_tags=len(self._tags),
        )
        found = beam_search(
            decoder,
            memory,
            beam_size=num_slots,
            length_penalty=options.ranking,
            max_lengths=limits,
            n_best=self._num_finished,
            processors=processors,
            select=watch(select),
            sync_every=self._sync_every,
        )
        return found if shortlist is None else shortlist.restored(found)


def _steering(
    options: SearchOptions,
    requests: Sequence[Request],
    limits: Tensor,
    *,
    suppressed: Sequence[Sequence[int]],
    continues_word: Tensor,
    num_tags: int,
) -> tuple[int, Sequence[LogitProcessor], Selection]:
    """Make what `beam_search` is given of the options and of what the lines ask for.

    Args:
        options: The same for all batches.
        requests: One for each sentence.
        limits: Maximum lengths of the targets (B,).
        suppressed: Sequences of tokens that must not occur.
        continues_word: Tokens that would prolong the word before them (V,), True or False.
        num_tags: Language tags that each prefix begins with.

    Returns:
        Slots of each sentence, logits processors in their order, and the selection.

    Raises:
        ConfigError: If there are phrases, and the options ask for samples or diverse beams.
    """
    processors: list[LogitProcessor] = []
    min_lengths = options.min_lengths(np.array([len(r.source) + 1 for r in requests])) + num_tags
    if (min_lengths > 1 + num_tags).any():
        processors.append(MinLength(np.minimum(min_lengths, limits.numpy())))
    if suppressed:
        processors.append(Suppressed(suppressed))
    if options.no_repeat_ngram:
        processors.append(NoRepeatedNgrams(options.no_repeat_ngram))
    if options.repetition_penalty > 1:
        processors.append(RepetitionPenalty(options.repetition_penalty))
    # Constraints of a line override the processors for all lines; a prefix overrides phrases.
    constraints = None
    if any(request.phrases for request in requests):
        if options.sample or options.beam_groups > 1:
            raise ConfigError(
                "only plain beam search can enforce phrases and terms of a glossary: leave them "
                "out, or sample and beam_groups"
            )
        constraints = PhraseConstraints(
            [request.phrases for request in requests],
            limits.numpy(),
            beam_size=options.beam_size,
            continues_word=continues_word,
            processors=processors,
        )
        processors = [constraints.restrict]
    if any(request.prefix for request in requests):
        starts = [request.prefix for request in requests]
        processors = [ForcedPrefix(starts, processors, num_certain=num_tags)]
    if constraints is not None:
        return constraints.num_slots, processors, constraints
    return options.num_slots, processors, _selection(options, requests)


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
        return DiverseBeams(
            len(requests),
            beam_size=options.beam_size,
            num_groups=options.beam_groups,
            penalty=options.diversity_penalty,
        )
    return select_best


def _without_duplicates(found: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Return hypotheses with different tokens, of equal ones the first."""
    first: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in found:
        first.setdefault(tuple(hypothesis.tokens), hypothesis)
    return list(first.values())

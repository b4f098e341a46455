"""What is wanted of a batch of sentences, to hypotheses for each of them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from transformer_mt.bundle import Bundle
from transformer_mt.data.lexicon import Lexicon
from transformer_mt.errors import ConfigError
from transformer_mt.models.compilation import compile_steps
from transformer_mt.models.interfaces import Memory, StepDecoder
from transformer_mt.models.seq2seq import evaluation_mode
from transformer_mt.search.beam_search import beam_search
from transformer_mt.search.beams import Hypothesis
from transformer_mt.search.candidates import Selection
from transformer_mt.search.coverage import rank_by_coverage
from transformer_mt.text.special_ids import UNK_ID
from transformer_mt.translation.forced import encode
from transformer_mt.translation.glossary import cuts_of, words_continued
from transformer_mt.translation.options import MOST_COUNT, SearchOptions
from transformer_mt.translation.plan import plan_search
from transformer_mt.translation.requests import Request
from transformer_mt.translation.shortlist import Shortlist
from transformer_mt.translation.writing_order import WritingOrder

# Steps between two looks of the host at what a GPU has chosen. Each look has the GPU wait; without,
# sentences that are done stay in the batch. To be tuned: `scripts/gpu_check.sh`, "looks".
LOOK_EVERY = 4


class BatchSearch:
    """Searches for the translations of a batch with a model.

    Args:
        bundle: The model and its tokenizers.
        options: How to search.
        lexicon: What targets may hold, by their sources; None: all tokens.

    Raises:
        ConfigError: If samples are to be drawn with a lexicon: their random numbers belong to the
            whole vocabulary.
    """

    def __init__(self, bundle: Bundle, options: SearchOptions, lexicon: Lexicon | None) -> None:
        if lexicon is not None and options.sample:
            raise ConfigError("a shortlist goes with beam search, not with samples: leave it out")
        tokenizer = bundle.tokenizers.tgt
        self._model = bundle.model
        self._options = options
        self._lexicon = lexicon
        self._order = WritingOrder(bundle.config.data.reverse_target)
        self._suppressed = [
            self._order.turned(cut) for word in options.suppress for cut in cuts_of(word, tokenizer)
        ]
        device = next(bundle.model.parameters()).device
        self._look_every = 1 if device.type == "cpu" else LOOK_EVERY
        self._continues_word = words_continued(tokenizer).to(device)
        # Groups may find the same, and coverage ranks anew: so the whole beam is finished first.
        self._looks_at_all = options.coverage_penalty > 0 or options.beam_groups > 1
        if options.compile:
            # A number of sentences that nothing else is: equal sizes are taken for always equal.
            longest = (bundle.model.encoder.max_length or MOST_COUNT) - 1
            sizes = range(5, 2 * options.num_slots + 14)
            trial = [Request((UNK_ID,) * min(size, longest)) for size in sizes]
            compile_steps(bundle.model, lambda: self(trial))

    @torch.inference_mode()
    def __call__(
        self,
        requests: Sequence[Request],
        watch: Callable[[Selection], Selection] = lambda select: select,
    ) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each sentence, best first, in the order of reading.

        Args:
            requests: At least one.
            watch: May put itself around the selection of the search.
        """
        options, decoder = self._options, self._model.decoder
        with evaluation_mode(self._model):
            memory = encode(self._model, [request.source for request in requests])
            lengths = torch.tensor([len(request.source) + 1 for request in requests])
            limits = options.max_lengths(lengths, longest=decoder.max_length)
            found = self._found(memory, requests, limits, watch)
            if strength := options.coverage_penalty:
                found = rank_by_coverage(decoder, memory, found, strength=strength)
            if options.beam_groups > 1:
                found = [_different(own) for own in found]
        return [
            [replace(one, tokens=self._order.turned(one.tokens)) for one in own[: options.n_best]]
            for own in found
        ]

    def _found(
        self,
        memory: Memory,
        requests: Sequence[Request],
        limits: Tensor,
        watch: Callable[[Selection], Selection],
    ) -> list[list[Hypothesis]]:
        options = self._options
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
        plan = plan_search(
            options, requests, limits, suppressed=suppressed, continues_word=continues_word
        )
        found = beam_search(
            decoder,
            memory,
            beam_size=plan.num_slots,
            length_penalty=options.ranking,
            max_lengths=limits,
            n_best=options.num_slots if self._looks_at_all else options.n_best,
            rules=plan.rules,
            select=watch(plan.select),
            look_every=self._look_every,
        )
        return found if shortlist is None else shortlist.restored(found)


def _different(found: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Return the first of equal hypotheses each."""
    first: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in found:
        first.setdefault(tuple(hypothesis.tokens), hypothesis)
    return list(first.values())

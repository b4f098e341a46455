"""Lines of text to translations: tokens, batches, search, and back in the order of the input."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.bundle import Bundle
from transformer_mt.data.lexicon import Lexicon
from transformer_mt.decoding.batching import batches_of, batches_of_pairs, evenly_shared, halving
from transformer_mt.decoding.candidates import Selection
from transformer_mt.decoding.chunks import chunks_of
from transformer_mt.decoding.coverage import rank_by_coverage
from transformer_mt.decoding.documents import LinesInContext
from transformer_mt.decoding.forced import (
    Pair,
    alternatives,
    encode,
    source_attention,
    token_log_probs,
)
from transformer_mt.decoding.glossary import Glossary, Term, words_continued
from transformer_mt.decoding.long_lines import Part, split_lines
from transformer_mt.decoding.options import SearchOptions
from transformer_mt.decoding.plan import plan_search
from transformer_mt.decoding.requests import Line, Request, requests_for
from transformer_mt.decoding.search import Hypothesis, beam_search
from transformer_mt.decoding.shortlist import Shortlist
from transformer_mt.decoding.trace import Trace
from transformer_mt.decoding.translation import (
    NO_TEXT,
    Candidate,
    TargetScore,
    TranslatedPart,
    Translation,
)
from transformer_mt.decoding.workers import Workers
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.models.interfaces import Memory, StepDecoder
from transformer_mt.models.seq2seq import evaluation_mode
from transformer_mt.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer

Result = TypeVar("Result")

# Tokens of a source, eos included, up to which it is translated in one piece. Time and memory of
# attention grow with the square of the length, and no model is trained on sentences this long.
MAX_SOURCE_LENGTH = 1024


class Translator:
    """Translates with a bundle, where its model is.

    Args:
        bundle: The model and its tokenizers.
        options: How to search.
        glossary: Terms of the source whose translations the target must hold.
        split_sentences: Whether to translate each sentence of a line alone.
        lexicon: What targets may hold, by their sources; None: all tokens.

    Attributes:
        tokenizers: The bundle's.

    Raises:
        ConfigError: If the options do not fit each other or the vocabulary, or samples are to be
            drawn with a lexicon: their random numbers belong to the whole vocabulary.
    """

    def __init__(
        self,
        bundle: Bundle,
        options: SearchOptions,
        *,
        glossary: Glossary | None = None,
        split_sentences: bool = False,
        lexicon: Lexicon | None = None,
    ) -> None:
        tokenizer = bundle.tokenizers.tgt
        options.check(tokenizer.vocab_size)
        if lexicon is not None and options.sample:
            raise ConfigError("a shortlist goes with beam search, not with samples: leave it out")
        self._options = options
        self._lexicon = lexicon
        self._glossary = glossary
        self._reversed = bundle.config.data.reverse_target
        self._document = bundle.config.data.document
        if glossary is not None:
            self._check_plain("a glossary")
        suppressed = [tokenizer.encode(word) for word in options.suppress if word.strip()]
        self._suppressed = [self._turned(tokens) for tokens in suppressed]
        device = next(bundle.model.parameters()).device
        self._continues_word = words_continued(tokenizer).to(device)
        self.tokenizers = bundle.tokenizers
        self._model = bundle.model
        longest = bundle.model.encoder.max_length
        self._max_source_length = min(MAX_SOURCE_LENGTH, longest or MAX_SOURCE_LENGTH)
        # Positions that training never showed are translated badly, though nothing breaks.
        self._max_part_length = min(self._max_source_length, bundle.config.data.filters.max_length)
        self._split_sentences = split_sentences
        self._in_context: LinesInContext | None = None
        if self._document is not None:
            if split_sentences:
                self._check_plain("sentences of one line")
            self._in_context = LinesInContext(
                bundle.tokenizers.src,
                **self._document.model_dump(),
                max_tokens=self._max_part_length - 1,
            )
        self._languages = bundle.config.data.src_lang, bundle.config.data.tgt_lang
        self._workers = Workers(partial(halving, self._search), options.num_workers)

    def translate(
        self,
        lines: Sequence[str | Line],
        *,
        first_line: int = 1,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> list[Translation]:
        """Translate lines; result N belongs to line N.

        Blank lines come back as they are. A model of documents reads each line after those before
        it, back to a blank one; with a `first_line`, these are those of the last call. A sentence
        of more tokens than the model has positions for, or saw in training, is translated in parts,
        with a warning that names the line.

        Args:
            lines: Any number of lines; mere text is a line that is free to become anything.
            first_line: Number of the first, for warnings.
            on_progress: Called after each batch with the number of sentences done and of all
                sentences. Blank lines and repetitions are not counted.
        """
        wanted = [Line(line) if isinstance(line, str) else line for line in lines]
        if any(line.prefix or line.phrases for line in wanted):
            self._check_plain("prefixes and phrases")
        texts = [line.text for line in wanted]
        if self._in_context is not None:
            texts = self._in_context.join(texts, is_start=first_line == 1)
        parts, nums_cut = split_lines(
            texts,
            self.tokenizers.src,
            max_tokens=self._max_part_length - 1,
            languages=self._languages if self._split_sentences else None,
            first_line=first_line,
        )
        terms = [
            self._terms(line.text, of_line) for line, of_line in zip(wanted, parts, strict=True)
        ]
        requests_of = [
            requests_for(*of_line, self.tokenizers.tgt, room=self._room, number=number)
            for number, of_line in enumerate(zip(wanted, parts, terms, strict=True), first_line)
        ]
        # Each different sentence is translated once.
        requests = list({request: None for of_line in requests_of for request in of_line})
        found: dict[Request, list[Hypothesis]] = {}
        batches = list(self._batches(requests))
        for batch, results in zip(batches, self._workers.map(batches), strict=True):
            found.update(zip(batch, results, strict=True))
            if on_progress is not None:
                on_progress(len(found), len(requests))
        return [
            self._translation(line.text, line_parts, [found[r] for r in of_line], *about)
            for line, line_parts, of_line, about in zip(
                wanted, parts, requests_of, zip(terms, nums_cut, strict=True), strict=True
            )
        ]

    def _terms(self, text: str, parts: Sequence[Part]) -> list[list[Term]]:
        """Find the terms of the glossary in each part of a line."""
        if self._glossary is None:
            return [[] for _ in parts]
        if len(parts) == 1:
            return [self._glossary.find(text)]
        return [self._glossary.find(self.tokenizers.src.decode(part.tokens)) for part in parts]

    def _batches(self, requests: Sequence[Request]) -> Iterator[list[Request]]:
        """Cut requests into batches; those with phrases, which have wider beams, go apart."""
        by_size = sorted(requests, key=lambda request: request.num_phrase_tokens)
        for num_extra, group in itertools.groupby(by_size, lambda r: r.num_phrase_tokens):
            some = list(group)
            lengths = [len(request.source) + 1 for request in some]
            limit = max(1, self._options.batch_tokens // (self._options.num_slots + num_extra))
            size = evenly_shared(lengths, limit, num_workers=self._options.num_workers)
            for batch in batches_of(lengths, size):
                yield [some[i] for i in batch]

    def translate_stream(self, lines: Iterable[str]) -> Iterator[Translation]:
        """Translate lines as they are read, a chunk at a time; memory stays flat."""
        for chunk in self.translate_chunks(chunks_of(lines)):
            yield from chunk

    def translate_chunks(
        self, chunks: Iterable[Sequence[str | Line]]
    ) -> Iterator[list[Translation]]:
        """Translate chunks of the lines of one text, each as soon as it is there."""
        first_line = 1
        for chunk in chunks:
            yield self.translate(chunk, first_line=first_line)
            first_line += len(chunk)

    def score(
        self, src_lines: Sequence[str], tgt_lines: Sequence[str], *, first_line: int = 1
    ) -> list[TargetScore]:
        """Compute how probable each target is as the translation of its source.

        Args:
            src_lines: Any number of lines.
            tgt_lines: As many.
            first_line: Number of the first, for errors.

        Raises:
            DataError: If a line is longer than the model or `MAX_SOURCE_LENGTH` allows.
        """
        sources = self.tokenizers.src.encode_batch(list(src_lines))
        targets = self.tokenizers.tgt.encode_batch(list(tgt_lines))
        pairs: list[Pair] = list(zip(sources, targets, strict=True))
        self._check_lengths(pairs, first_line)
        scores = self._forced(partial(token_log_probs, self._model), pairs)
        return [
            TargetScore(self.tokenizers.tgt.pieces([*target, EOS_ID]), self._turned_but_end(own))
            for target, own in zip(targets, scores, strict=True)
        ]

    def source_attention(
        self, pairs: Sequence[Pair], reduce: Callable[[Tensor], Tensor]
    ) -> list[NDArray[np.float32]]:
        """Compute what the tokens of given targets attend to: see `forced.source_attention`."""
        found = self._forced(lambda batch: source_attention(self._model, batch, reduce), pairs)
        return [matrix[::-1] for matrix in found] if self._reversed else found

    def alternatives(self, pairs: Sequence[Pair], num: int) -> list[list[list[tuple[int, float]]]]:
        """Find the most probable tokens at each place: see `forced.alternatives`."""
        found = self._forced(lambda batch: alternatives(self._model, batch, num), pairs)
        return [self._turned_but_end(places) for places in found]

    def _forced(
        self, function: Callable[[Sequence[Pair]], list[Result]], pairs: Sequence[Pair]
    ) -> list[Result]:
        """Apply a function of a batch to pairs, in the model's order."""
        pairs = [(source, self._turned(target)) for source, target in pairs]
        results: list[Result | None] = [None] * len(pairs)
        for batch in batches_of_pairs(pairs, self._options.batch_tokens):
            for i, result in zip(batch, halving(function, [pairs[i] for i in batch]), strict=True):
                results[i] = result
        return cast(list[Result], results)

    def _turned(self, tokens: Sequence[Result]) -> list[Result]:
        """Bring what belongs to tokens of a target into the model's order, or back from it."""
        return list(reversed(tokens) if self._reversed else tokens)

    def _turned_but_end(self, tokens: Sequence[Result]) -> list[Result]:
        return [*self._turned(tokens[:-1]), tokens[-1]]

    def _check_plain(self, what: str) -> None:
        kinds = {
            "that writes from right to left (data.reverse_target)": self._reversed,
            "of documents (data.document)": self._document is not None,
        }
        for kind in (kind for kind, is_so in kinds.items() if is_so):
            raise ConfigError(f"{what} cannot be had from a model {kind}: leave them out")

    def _room(self, source_length: int) -> int:
        """Return how many tokens the translation of a source may have; eos counts in neither."""
        longest = self._model.decoder.max_length
        lengths = torch.tensor([source_length + 1])
        return int(self._options.max_lengths(lengths, longest=longest)) - 1

    def trace(self, source: Sequence[int]) -> tuple[Hypothesis, Trace]:
        """Search for the translation of one sentence; return the best one, and what was done.

        Its tokens are in the order in which the model writes them.

        Args:
            source: Tokens without eos; at least one.
        """
        if self._lexicon is not None:
            raise ValueError("a shortlist has numbers of its own: no trace")
        trace = Trace(self._options.ranking, EOS_ID)
        ((best, *_),) = self._search([Request(tuple(source))], watch=trace.watch)
        return replace(best, tokens=self._turned(best.tokens)), trace

    @torch.inference_mode()
    def _search(
        self,
        requests: Sequence[Request],
        watch: Callable[[Selection], Selection] = lambda select: select,
    ) -> list[list[Hypothesis]]:
        options, decoder = self._options, self._model.decoder
        shortlist = None
        if self._lexicon is not None:
            shortlist = Shortlist(self._lexicon, requests, self._continues_word.device)
        with evaluation_mode(self._model):
            memory, lengths = encode(self._model, [request.source for request in requests])
            limits = options.max_lengths(lengths, longest=decoder.max_length)
            found = self._best(memory, requests, limits, shortlist, watch)
            if strength := options.coverage_penalty:
                found = rank_by_coverage(decoder, memory, found, strength=strength, bos_id=BOS_ID)
        return [
            [replace(one, tokens=self._turned(one.tokens)) for one in own[: options.n_best]]
            for own in found
        ]

    def _best(
        self,
        memory: Memory,
        requests: Sequence[Request],
        limits: Tensor,
        shortlist: Shortlist | None,
        watch: Callable[[Selection], Selection],
    ) -> list[list[Hypothesis]]:
        options = self._options
        decoder: StepDecoder = self._model.decoder
        suppressed: Sequence[Sequence[int]] = self._suppressed
        continues_word = self._continues_word
        if shortlist is not None:
            decoder = shortlist.limited(self._model.decoder)
            requests = shortlist.numbered(requests)
            suppressed = shortlist.possible(suppressed)
            continues_word = continues_word[shortlist.ids]
        plan = plan_search(
            options,
            requests,
            limits,
            suppressed=suppressed,
            continues_word=continues_word,
            eos_id=EOS_ID,
        )
        found = beam_search(
            decoder,
            memory,
            beam_size=plan.num_slots,
            length_penalty=options.ranking,
            max_lengths=limits,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            banned_ids=(PAD_ID, UNK_ID, BOS_ID),
            n_best=options.num_slots if options.coverage_penalty else options.n_best,
            rules=plan.rules,
            select=watch(plan.select),
        )
        return found if shortlist is None else shortlist.restored(found)

    def _translation(
        self,
        source: str,
        parts: Sequence[Part],
        found: Sequence[list[Hypothesis]],
        terms: Sequence[Sequence[Term]],
        num_cut: int,
    ) -> Translation:
        n_best = [self._candidate(rank, parts) for rank in zip(*found, strict=False)]
        blank = "" if source.strip() else source.translate(NO_TEXT)
        every_term = list(dict.fromkeys(itertools.chain(*terms)))
        return Translation(n_best or [Candidate(blank, [], 0.0, 0.0, [])], every_term, num_cut)

    def _candidate(self, hypotheses: Sequence[Hypothesis], parts: Sequence[Part]) -> Candidate:
        tokenizer = self.tokenizers.tgt
        translated = [
            TranslatedPart(
                source=tuple(self._last_sentence(part.tokens, self.tokenizers.src)),
                target=self._last_sentence(hypothesis.tokens, tokenizer),
                source_glue=part.glue,
                target_glue=part.glue if part.target_glue is None else part.target_glue,
            )
            for part, hypothesis in zip(parts, hypotheses, strict=True)
        ]
        text = "".join(tokenizer.decode(part.target) + part.target_glue for part in translated)
        return Candidate(
            text=text.translate(NO_TEXT),
            tokens=[piece for part in translated for piece in tokenizer.pieces(part.target)],
            log_prob=sum(hypothesis.log_prob for hypothesis in hypotheses),
            score=sum(hypothesis.score for hypothesis in hypotheses),
            parts=translated,
        )

    def _last_sentence(self, tokens: Sequence[int], tokenizer: Tokenizer) -> list[int]:
        """Drop the sentences before it, if it was read or written in their context."""
        own = list(tokens)
        if self._document is not None:
            separator = tokenizer.ids[self._document.separator]
            while separator in own:
                own = own[own.index(separator) + 1 :]
        return own

    def _check_lengths(self, pairs: Sequence[Pair], first_line: int) -> None:
        longest = self._model.decoder.max_length
        limits = (self._max_source_length, min(MAX_SOURCE_LENGTH, longest or MAX_SOURCE_LENGTH))
        for number, pair in enumerate(pairs, start=first_line):
            for side, tokens, limit in zip(("source", "target"), pair, limits, strict=True):
                if len(tokens) >= limit:
                    raise DataError(
                        f"line {number}: the {side} has {len(tokens)} tokens; at most {limit - 1} "
                        f"can be scored: take the pair out or cut it"
                    )

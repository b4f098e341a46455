"""Translation of lines: tokens, batches, search, detokenization, in the order of the input.

The forms of a line on its way, each for one reason:

- `str` or `Line`: the text, with the prefix and phrases that its translation must hold (`requests`)
- `Part`: what is translated in one piece, a sentence or a piece of one too long (`long_lines`)
- `Request`: its tokens and constraints; equal requests are searched for once (`requests`)
- `Hypothesis`: the tokens that the search found, with their score (`search.beams`)
- `Candidate`: its text; its `TranslatedPart`s are what alignments and markup need (`results`)
- `Translation`: the n-best candidates of the whole line (`results`)
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from transformer_mt.data.pair_source import source_cleaner
from transformer_mt.errors import ConfigError
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.text.lines import is_blank
from transformer_mt.text.tokenizer_pair import Tags
from transformer_mt.translation.batching import batches_of, evenly_shared
from transformer_mt.translation.detokenize import Choice, Detokenizer
from transformer_mt.translation.directions import check_directed
from transformer_mt.translation.glossary import Glossary, Term
from transformer_mt.translation.lines_in_context import LinesInContext
from transformer_mt.translation.long_lines import Part, longest_part, split_lines
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.requests import Line, Request, numbered, requests_for
from transformer_mt.translation.results import Translation
from transformer_mt.translation.workers import Workers

if TYPE_CHECKING:
    from transformer_mt.bundle import Bundle
    from transformer_mt.data.lexicon import Lexicon
    from transformer_mt.search.trace import Trace
    from transformer_mt.translation.document_encoder import DocumentEncoder
    from transformer_mt.translation.scoring import TargetScorer


class Search(Protocol):
    """The search of another engine, which needs no torch.

    Attributes:
        longest: Longest sentence of either side, in tokens incl. eos; None: any.
    """

    longest: int | None

    def __call__(self, requests: Sequence[Request]) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each sentence, best first."""
        ...


class Translator:
    """Translates with a bundle, where its model is.

    Args:
        bundle: The model and its tokenizers.
        options: How to search.
        glossary: Terms of the source whose translations the target must hold.
        split_sentences: Whether to translate each sentence of a line alone.
        lexicon: The target tokens that go with a source; None: all tokens.
        choose: See `detokenize.Detokenizer`.
        search: Of another engine; None: `batch_search.BatchSearch`. With it, the model itself is
            touched only by `scorer` and `trace`.

    Attributes:
        options: How it searches.
        tokenizers: The bundle's.
        num_tags: Language tags that a target begins with; they count in its length.
        reads_documents: Whether each line is read with those before it.
        clean: Applied to a source before it is tokenized: see `data.clean_source`.

    Raises:
        ConfigError: If the options do not fit each other or the vocabulary, or samples are to be
            drawn with a lexicon: their random numbers belong to the whole vocabulary.
    """

    def __init__(
        self,
        bundle: "Bundle",
        options: SearchOptions,
        *,
        glossary: Glossary | None = None,
        split_sentences: bool = False,
        lexicon: "Lexicon | None" = None,
        choose: Choice | None = None,
        search: Search | None = None,
    ) -> None:
        check_directed(bundle)
        options.check(bundle.tokenizers.tgt.vocab_size)
        self.options = options
        self._bundle = bundle
        self._lexicon = lexicon
        self._glossary = glossary
        self._right_to_left = bundle.config.data.reverse_target
        document = bundle.config.data.document
        self.reads_documents = document is not None
        self._documents = _document_encoder(bundle, options)
        self._joins = document is not None and self._documents is None
        if glossary is not None:
            self._check_plain("a glossary")
        self.tokenizers = bundle.tokenizers
        self.clean = source_cleaner(bundle.config.data)
        self.num_tags = len(bundle.tags.tgt)
        longest_source, self._longest_target = _longest(bundle, search)
        # Positions that training never showed are translated badly, though nothing breaks.
        self._max_part_length = min(
            longest_part(longest_source), bundle.config.data.filters.max_length
        ) - len(bundle.tags.src)
        self._split_sentences = split_sentences
        self._in_context: LinesInContext | None = None
        separator = None
        if document is not None and self._joins:
            if split_sentences:
                self._check_plain("sentences of one line")
            separator = document.separator
            self._in_context = LinesInContext(
                bundle.tokenizers.src,
                context_sentences=document.context_sentences,
                separator=separator,
                max_tokens=self._max_part_length - 1,
            )
        self._languages = bundle.config.data.src_lang, bundle.config.data.tgt_lang
        self._detokenizer = Detokenizer(bundle.tokenizers, separator, choose)
        self._search = search or _search_with_torch(bundle, options, lexicon)
        self._workers = Workers(
            self._search,
            options.num_workers,
            elsewhere=[
                (name, partial(_search_elsewhere, load, bundle.tags, options, lexicon))
                for name, load in bundle.copies
            ],
        )

    @cached_property
    def scorer(self) -> "TargetScorer":
        """Scores given targets with the model."""
        from transformer_mt.translation.scoring import TargetScorer

        return TargetScorer(self._bundle, self.options.batch_tokens)

    def translate(
        self,
        lines: Sequence[str | Line],
        *,
        first_line: int = 1,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> list[Translation]:
        """Translate lines; result N belongs to line N.

        Blank lines come back as they are. A model of documents reads each line after those before
        it, back to a blank one; with a `first_line` above 1, it continues the text of the last
        call. A sentence of more tokens than the model has positions for, or saw in training, is
        translated in parts, with a warning that names the line.

        Args:
            lines: Any number of lines; a `str` is a line without constraints.
            first_line: Number of the first, for warnings.
            on_progress: Called after each batch with the number of sentences done and of all
                sentences. Blank lines and repetitions are not counted.

        Raises:
            LineError: If the constraints of a line cannot be met; before any search.
            ConfigError: If the model takes no prefixes and phrases, and there are some.
        """
        wanted = numbered(lines, first_line)
        parts, nums_cut, terms, requests_of = self._requests(wanted, is_start=first_line == 1)
        found = self._search_all(requests_of, on_progress)
        found_of = [[found[request] for request in own] for own in requests_of]
        return list(map(self._detokenizer.translation, wanted, parts, found_of, terms, nums_cut))

    def requests(self, line: Line) -> list[Request]:
        """Return what is searched for to translate a line that no other comes before.

        Raises:
            LineError: As `translate`.
            ConfigError: As `translate`.
        """
        *_, (own,) = self._requests(numbered([line], 1), is_start=True)
        return own

    def _requests(
        self, wanted: Sequence[Line], *, is_start: bool
    ) -> tuple[list[list[Part]], list[int], list[list[list[Term]]], list[list[Request]]]:
        """Return the parts of each line, how many sentences were cut, their terms and requests."""
        if any(line.prefix or line.then or line.phrases for line in wanted):
            self._check_plain("prefixes and phrases")
        texts = [line.text for line in wanted]
        if self._in_context is not None:
            texts = self._in_context.join(list(map(self.clean, texts)), is_start=is_start)
        parts, nums_cut = split_lines(
            texts,
            self.tokenizers.src,
            clean=self.clean,
            max_tokens=self._max_part_length - 1,
            languages=self._languages if self._split_sentences else None,
            numbers=[line.number for line in wanted],
        )
        if self._documents is not None:
            parts = self._read_in_order(texts, parts, is_start=is_start)
        terms = [self._terms(line.text, own) for line, own in zip(wanted, parts, strict=True)]
        requests_of = [
            requests_for(
                *of_line, self.tokenizers.tgt, language=self._languages[1], room=self._room
            )
            for of_line in zip(wanted, parts, terms, strict=True)
        ]
        return parts, nums_cut, terms, requests_of

    def _read_in_order(
        self, texts: Sequence[str], parts: Sequence[Sequence[Part]], *, is_start: bool
    ) -> list[list[Part]]:
        """Encode the parts of lines, each after those before it, back to a blank line."""
        assert self._documents is not None
        end = Part((), "")
        read = [[end] if is_blank(text) else own for text, own in zip(texts, parts, strict=True)]
        tokens = [part.tokens for own in read for part in own]
        encoded = iter(self._documents.encode(tokens, is_start=is_start))
        read = [[replace(part, encoded=next(encoded)) for part in own] for own in read]
        return [[part for part in own if part.tokens] for own in read]

    def source_lengths(self, lines: Sequence[str]) -> list[int]:
        """Count the tokens of sources, eos included."""
        cleaned = list(map(self.clean, lines))
        return [len(ids) + 1 for ids in self.tokenizers.src.encode_batch(cleaned)]

    def _search_all(
        self,
        requests_of: Sequence[Sequence[Request]],
        on_progress: Callable[[int, int], None] | None,
    ) -> dict[Request, list[Hypothesis]]:
        """Search for the translations of all lines, each different sentence once."""
        requests = list({request: None for of_line in requests_of for request in of_line})
        found: dict[Request, list[Hypothesis]] = {}
        batches = list(self._batches(requests))
        for batch, results in zip(batches, self._workers.map(batches), strict=True):
            found.update(zip(batch, results, strict=True))
            if on_progress is not None:
                on_progress(len(found), len(requests))
        return found

    def _terms(self, text: str, parts: Sequence[Part]) -> list[list[Term]]:
        """Find the terms of the glossary in each part of a line."""
        if self._glossary is None:
            return [[] for _ in parts]
        if len(parts) == 1:
            return [self._glossary.find(text)]
        return [self._glossary.find(self.tokenizers.src.decode(part.tokens)) for part in parts]

    def _batches(self, requests: Sequence[Request]) -> Iterator[list[Request]]:
        """Cut requests into batches; those with phrases, which have wider beams, are separate."""
        by_size = sorted(requests, key=lambda request: request.num_phrase_tokens)
        for num_extra, group in itertools.groupby(by_size, lambda r: r.num_phrase_tokens):
            some = list(group)
            lengths = [len(request.source) + 1 for request in some]
            limit = max(1, self.options.batch_tokens // (self.options.num_slots + num_extra))
            size = evenly_shared(lengths, limit, num_workers=self.options.num_workers)
            for batch in batches_of(lengths, size):
                yield [some[i] for i in batch]

    def _check_plain(self, what: str) -> None:
        kinds = {
            "that writes from right to left (data.reverse_target)": self._right_to_left,
            "of documents (data.document)": self._joins,
        }
        for kind, is_so in kinds.items():
            if is_so:
                raise ConfigError(f"{what} cannot be used with a model {kind}: leave them out")

    def _room(self, source_length: int) -> int:
        """Return the maximum length of the translation of a source, both without eos."""
        lengths = np.array([source_length + 1])
        return int(self.options.max_lengths(lengths, longest=self._longest_target)[0]) - 1

    def trace(self, source: Sequence[int]) -> "tuple[Hypothesis, Trace]":
        """Search for the translation of one sentence; return the best one and the trace.

        Its tokens are in the order in which the model writes. The trace has language tags, too.

        Args:
            source: Tokens without eos; at least one.
        """
        if self._lexicon is not None:
            raise ValueError("no trace with a shortlist, which renumbers the tokens")
        from transformer_mt.search.trace import Trace
        from transformer_mt.translation.batch_search import BatchSearch

        trace = Trace(self.options.ranking)
        search = BatchSearch(self._bundle, self.options, None)
        ((best, *_),) = search([Request(tuple(source))], watch=trace.watch)
        if self._right_to_left:
            best = replace(best, tokens=best.tokens[::-1])
        return best, trace


def _search_with_torch(
    bundle: "Bundle", options: SearchOptions, lexicon: "Lexicon | None"
) -> Callable[[Sequence[Request]], list[list[Hypothesis]]]:
    """Return our own search, which halves batches that do not fit into the memory."""
    from transformer_mt.out_of_memory import halving
    from transformer_mt.translation.batch_search import BatchSearch

    return partial(halving, BatchSearch(bundle, options, lexicon))


def _document_encoder(bundle: "Bundle", options: SearchOptions) -> "DocumentEncoder | None":
    """Return what reads lines after those before them; None without segment memory."""
    document = bundle.config.data.document
    if document is None or document.memory == "none":
        return None
    from transformer_mt.translation.document_encoder import DocumentEncoder

    return DocumentEncoder.of(bundle, options.batch_tokens)


def _longest(bundle: "Bundle", search: Search | None) -> tuple[int | None, int | None]:
    """Return the longest source and target in tokens, language tags of the target left out."""
    source, target = (
        (bundle.model.encoder.max_length, bundle.model.decoder.max_length)
        if search is None
        else (search.longest, search.longest)
    )
    return source, None if target is None else target - len(bundle.tags.tgt)


def _search_elsewhere(
    load: "Callable[[], Bundle]", tags: Tags, options: SearchOptions, lexicon: "Lexicon | None"
) -> Callable[[Sequence[Request]], list[list[Hypothesis]]]:
    return _search_with_torch(replace(load(), tags=tags), options, lexicon)

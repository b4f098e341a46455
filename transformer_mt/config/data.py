"""Settings of data: languages, filters, documents and tokenization."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from transformer_mt.config.base import PathText, PositiveInt, Settings, Share
from transformer_mt.config.languages import Direction, LanguageCode, LanguageTagSettings
from transformer_mt.config.pictures import PICTURES
from transformer_mt.config.sources import (
    HeldOutSource,
    JoinedSources,
    MonolingualSource,
    Source,
    SplitSource,
    TextSource,
    ValidationSource,
)

SPLIT_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class FilterSettings(Settings):
    """Filters of training pairs. Validation and test sets are never filtered."""

    min_length: PositiveInt = 1
    """Minimum number of tokens on either side, without eos."""
    max_length: PositiveInt = 256
    """Maximum number of tokens on either side, incl. eos."""
    max_length_ratio: Annotated[float, Field(gt=1)] | None = None
    """Maximum ratio of the longer side to the shorter, in tokens. Default: none."""
    drop_copies: bool | None = None
    """Drop pairs whose target equals their source. Default: yes, unless both languages are the
    same."""
    drop_duplicates: bool = False
    """Drop repeated pairs of a source."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse an empty range of lengths."""
        if self.min_length >= self.max_length:  # one counts the end of sentence, the other not
            yield "min_length", f"{self.min_length} leaves nothing below max_length"


class DocumentSettings(Settings):
    """Document context: each sentence is read with those before it in its document.

    Sources list the pairs of a document in order; a pair of blank lines ends it.
    """

    context_sentences: PositiveInt
    """Maximum number of context sentences; in training `filters.max_length` limits the total length
    of what is joined."""
    memory: Literal["none", "states"] = "none"
    """`none`: the sentences are joined, on both sides (Tiedemann and Scherrer 2017). `states`:
    segment memory (Transformer-XL, Dai et al. 2019): the encoder reads each sentence once and keeps
    its keys and values for those after it; the target is the sentence alone."""
    chunk_sentences: PositiveInt = 8
    """With memory: consecutive sentences of a document that are one training pair."""
    separator: Annotated[str, Field(min_length=1)] = "<sep>"
    """Separator between sentences; must be one of `tokenizer.user_symbols`."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse memory that training would never fill."""
        if self.memory == "states" and self.chunk_sentences <= self.context_sentences:
            yield (
                "chunk_sentences",
                f"{self.chunk_sentences} sentences never have context_sentences "
                f"{self.context_sentences} before them: take {2 * self.context_sentences + 2}",
            )


class DataSettings(Settings):
    """Data: sources, filters, languages."""

    src_lang: LanguageCode
    """Code of the source language, such as `en`."""
    tgt_lang: LanguageCode
    """Code of the target language; sacreBLEU tokenizes by it."""
    train: Annotated[list[Source], Field(min_length=1)]
    """Training sources; several are mixed by their weights."""
    valid: ValidationSource
    """Validation set; `{split: 1000}` holds 1,000 pairs out of the training data."""
    test: dict[str, HeldOutSource] = Field(default={})
    """Test sets by name for `tmt evaluate`; `{split: 1000}` as in `valid`."""
    guard: Source | None = None
    """Validation set of what a model could do before fine-tuning: weights that lose more than
    `training.validation.max_guard_drop` on it are not selected. Default: none."""
    language_tags: LanguageTagSettings | None = None
    """Many languages in one model: sources have directions of their own. Default: one direction."""
    temperature: Annotated[float, Field(ge=1)] | None = None
    """Temperature sampling: mix sources in proportion to size ** (1 / temperature) instead of by
    weights."""
    filters: FilterSettings = FilterSettings()
    """Filters of training pairs."""
    document: DocumentSettings | None = None
    """Train and translate with document context. Default: single sentences."""
    clean_source: bool = True
    """Normalise white space of sources to single spaces, none at the ends, both in training and
    translation. Models from before this setting read sources unchanged."""
    reverse_target: bool = False
    """Generate targets right to left, from the last token to the first, as a model for
    `tmt rescore`. Texts and scores are those of any other model."""
    corpus_dir: PathText = "data/corpora"
    """Cache directory of tokenized corpora."""
    num_workers: PositiveInt | None = None
    """Number of tokenization processes. Default: one per processor."""

    @property
    def has_memory(self) -> bool:
        """Whether the encoder keeps keys and values of earlier sentences."""
        return self.document is not None and self.document.memory == "states"

    @property
    def valid_sets(self) -> dict[str, HeldOutSource]:
        """The validation sets, by the setting that names each."""
        if not isinstance(self.valid, JoinedSources):
            return {"valid": self.valid}
        return {f"valid.sources.{i}": source for i, source in enumerate(self.valid.sources)}

    def direction(self, source: HeldOutSource) -> Direction:
        """Return the languages of a source."""
        given = getattr(source, "src_lang", None), getattr(source, "tgt_lang", None)
        return given[0] or self.src_lang, given[1] or self.tgt_lang

    def languages(self) -> tuple[list[str], list[str]]:
        """Return the languages that the model reads, and those that it writes."""
        tags = self.language_tags
        more = [] if tags is None else tags.languages
        sides = zip(*map(self.direction, self.by_setting().values()), strict=True)
        read, written = (list(dict.fromkeys((*codes, *more))) for codes in sides)
        return read, written

    def tags(self) -> list[str]:
        """Return the language tags that the vocabularies need."""
        if self.language_tags is None:
            return []
        read, written = self.languages()
        return list(map(self.language_tags.tag, dict.fromkeys((*read, *written))))

    def splits(self) -> dict[str, int]:
        """Return the number of pairs that each set holds out of the training data."""
        sets = {**self.valid_sets, **self.test}
        return {name: s.split for name, s in sets.items() if isinstance(s, SplitSource)}

    def user_symbols(self) -> Iterator[tuple[str, str]]:
        """Yield what must be one piece of the tokenizer: the setting that says so, and the text."""
        if self.document:
            yield "document.separator", self.document.separator
        for path, source in self.by_setting().items():
            if isinstance(source, MonolingualSource) and source.noise.mask:
                yield f"{path}.noise.symbol", source.noise.symbol
            if getattr(source, "tag", None) is not None:
                yield f"{path}.tag", source.tag

    def by_setting(self) -> dict[str, Any]:
        """Return all sources, by the settings that describe them."""
        sets: dict[str, Any] = {f"train.{i}": source for i, source in enumerate(self.train)}
        sets |= self.valid_sets | {f"test.{name}": s for name, s in self.test.items()}
        return sets if self.guard is None else sets | {"guard": self.guard}

    def kinds(self) -> set[str]:
        """Return the types of all sources."""
        return {source.type for source in self.by_setting().values()}

    def names_pictures(self) -> bool:
        """Whether source lines name pictures; otherwise they are text."""
        return not self.kinds().isdisjoint(PICTURES)

    def drops_copies(self, direction: Direction | None = None) -> bool:
        """Whether training drops pairs whose target is their source.

        Between varieties of one language they are translations, and what needs no correction.

        Args:
            direction: Of the pairs; None: the one of the data.
        """
        if self.filters.drop_copies is not None:
            return self.filters.drop_copies
        codes = direction or (self.src_lang, self.tgt_lang)
        src, tgt = (re.split("[-_@]", code)[0].lower() for code in codes)
        return src != tgt

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse two ways to mix, documents of what has none, and a text as its own target."""
        yield from self._splits_that_cannot_be()
        yield from self._texts_on_both_sides()
        yield from self._directions_that_cannot_be()
        if self.temperature is not None and any(s.weight != 1 for s in self.train):
            yield "temperature", "excludes weights of training sources: set only one of the two"
        for name, source in self.by_setting().items():
            is_test = name.startswith("test.")
            if isinstance(source, TextSource) and source.more_references and not is_test:
                yield name, "more_references are for test sets: leave them out here"
        unordered = {s.type for s in (*self.train, *self.valid_sets.values())} & {
            "reverse",
            "monolingual",
        }
        if self.document and unordered:
            yield (
                "document",
                "needs sentences in the order of a text, but pairs of source type "
                f"{min(unordered)} have none: take another source, or leave document out",
            )
        for name, source in self.test.items():
            if source.type == "monolingual":
                yield f"test.{name}", "monolingual text has no translations to score"
        if self.splits() and all(s.type == "monolingual" for s in self.train):
            yield "valid", "split takes pairs, but all training text is monolingual: name a file"

    def _directions_that_cannot_be(self) -> Iterator[tuple[str, str]]:
        """Refuse directions that nothing tells apart, and tags where they cannot stand."""
        if self.language_tags is None:
            for path, source in self.by_setting().items():
                if self.direction(source) != (self.src_lang, self.tgt_lang):
                    yield path, "another direction than that of data needs data.language_tags"
            return
        if self.document is not None:
            yield "language_tags", "not with data.document: leave one out"
        if self.reverse_target and self.language_tags.target:
            yield "language_tags.target", "the last token of a reversed target is not its first"
        if self.splits() and len(set(map(self.direction, self.train))) > 1:
            yield (
                "valid" if "valid" in self.splits() else f"test.{next(iter(self.splits()))}",
                "split mixes the directions of the sources: name files of one direction",
            )

    def _texts_on_both_sides(self) -> Iterator[tuple[str, str]]:
        """Refuse sources that read both sides from the same place."""
        for path, source in self.by_setting().items():
            for src, tgt in (
                ("src", "tgt"),
                ("src_column", "tgt_column"),
                ("src_field", "tgt_field"),
            ):
                place = getattr(source, src, None)
                drops = self.drops_copies(self.direction(source))
                if place is not None and place == getattr(source, tgt) and drops:
                    yield f"{path}.{tgt}", f"is the same as {src}: the target would be the source"

    def _splits_that_cannot_be(self) -> Iterator[tuple[str, str]]:
        """Refuse names that cannot be those of files, and sentences cut out of documents."""
        for name, source in self.test.items():
            is_cut = isinstance(source, SplitSource)
            if is_cut and (name == "valid" or not SPLIT_NAME_PATTERN.fullmatch(name)):
                yield (
                    f"test.{name}",
                    "is also the name of files: take letters, digits, '.', '_' and '-', and not "
                    "valid, which is the validation set",
                )
        if self.document and (names := self.splits()):
            yield (
                "valid" if "valid" in names else f"test.{next(iter(names))}",
                "split takes single pairs, which would be missing in their documents: name files, "
                "or leave document out",
            )


class TokenizerSettings(Settings):
    """SentencePiece subword units (Kudo and Richardson 2018)."""

    type: Literal["unigram", "bpe"] = "bpe"
    """Unigram language model (Kudo 2018) or byte-pair encoding (Sennrich et al. 2016)."""
    path: PathText | None = None
    """Directory of a trained tokenizer, or a SentencePiece model for both languages. Default: train
    one on the training data."""
    vocab_size: PositiveInt = 8000
    """Vocabulary size, incl. special tokens."""
    joint: bool = True
    """One joint vocabulary for both languages."""
    character_coverage: Annotated[float, Field(ge=0.98, le=1)] = 1.0
    """Share of all characters in the vocabulary; the others are encoded as bytes."""
    byte_fallback: bool = True
    """Encode unknown characters as UTF-8 bytes; otherwise they become unk."""
    user_symbols: list[str] = Field(default=[])
    """Strings that are always a single piece, such as tags; the tokenizer of `path` or of
    `training.init_from` gets those that it lacks."""
    num_sample_lines: PositiveInt = 2_000_000
    """Maximum number of lines per language to train on, sampled evenly from all sources."""
    sampling: Share = 0.0
    """Subword regularization: sample segmentations of the training data anew each epoch; 0: always
    the best one. `bpe`: probability of skipping a merge (BPE-dropout, Provilkov et al. 2020),
    usually 0.1, or 0.6 for scripts without spaces. `unigram`: exponent on the probability of a
    segmentation (Kudo 2018), usually 0.1 to 0.5; smaller is noisier."""

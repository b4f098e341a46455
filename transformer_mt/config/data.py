"""Settings of what is read: sources, filters, and how text becomes tokens."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from transformer_mt.config.base import PathText, PositiveInt, Settings, Share

SPLIT_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LANGUAGE_PATTERN = re.compile(r"[A-Za-z]{1,8}([-_@][A-Za-z0-9]{1,8})*")


def _check_language(code: str) -> str:
    if not LANGUAGE_PATTERN.fullmatch(code):
        raise ValueError("expected a language code such as de, zh-CN or jpn_Jpan")
    return code


LanguageCode = Annotated[str, AfterValidator(_check_language)]
Weight = Annotated[
    float,
    Field(
        gt=0,
        description="How many times an epoch sees each pair of this source; 0.5: every other "
        "epoch.",
    ),
]
TextFile = Annotated[PathText, Field(description="File, UTF-8; plain, .gz, .bz2, .xz or .zst.")]
SrcField = Annotated[
    str | None,
    Field(
        description="Field of the source text, with dots into what is nested; default "
        "`translation.SRC_LANG`."
    ),
]
TgtField = Annotated[
    str | None,
    Field(description="Field of the target text, likewise; default `translation.TGT_LANG`."),
]


class TextSource(Settings):
    """Two parallel line files: line N of one translates line N of the other."""

    type: Literal["text"] = "text"
    src: PathText
    """File of source lines, UTF-8; plain, .gz, .bz2, .xz or .zst."""
    tgt: PathText
    """File of target lines, as many as source lines."""
    more_references: list[PathText] = Field(default=[])
    """Files of other translations of the same lines, against which scores of a test set count."""
    weight: Weight = 1.0


class TsvSource(Settings):
    """One file with a pair on each line, in columns separated by tabs; no quoting, no header."""

    type: Literal["tsv"]
    path: TextFile
    src_column: Annotated[int, Field(ge=0)] = 0
    """Column of the source text, counted from 0."""
    tgt_column: Annotated[int, Field(ge=0)] = 1
    """Column of the target text, counted from 0."""
    weight: Weight = 1.0


class CsvSource(Settings):
    """One file of comma-separated values: fields may stand in double quotes and hold line breaks.

    A line break in a text becomes a space.
    """

    type: Literal["csv"]
    path: TextFile
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """What separates fields, such as `;`."""
    src_column: Annotated[int, Field(ge=0)] | str = 0
    """Column of the source text: its number, from 0, or its name in the first row."""
    tgt_column: Annotated[int, Field(ge=0)] | str = 1
    """Column of the target text, likewise."""
    weight: Weight = 1.0

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse a name beside a number: is the first row a pair, or not?"""
        if isinstance(self.src_column, str) != isinstance(self.tgt_column, str):
            yield "tgt_column", "give names for both columns, or numbers for both"
        if self.delimiter in '"\r\n':
            yield "delimiter", "a quote or a line break cannot separate fields"


class JsonlSource(Settings):
    """One JSON object on each line."""

    type: Literal["jsonl"]
    path: TextFile
    src_field: SrcField = None
    tgt_field: TgtField = None
    weight: Weight = 1.0


class ParquetSource(Settings):
    """A Parquet file."""

    type: Literal["parquet"]
    path: PathText
    """File."""
    src_field: SrcField = None
    tgt_field: TgtField = None
    weight: Weight = 1.0


class HubSource(Settings):
    """A data set of the Hugging Face hub, or a local folder in its format."""

    type: Literal["hub"]
    path: PathText
    """Hub id such as `wmt/wmt14`, or a local folder."""
    subset: str | None = None
    """Configuration of the data set, such as `de-en`."""
    split: str
    """Split, such as `train`."""
    revision: str | None = None
    """Commit of the hub repository; pin it for a run that can be repeated."""
    src_field: SrcField = None
    tgt_field: TgtField = None
    weight: Weight = 1.0


class ReverseSource(Settings):
    """Made-up pairs: random digits, and the same digits in reverse order."""

    type: Literal["reverse"]
    num_pairs: PositiveInt
    """How many pairs to make."""
    min_length: PositiveInt = 3
    """Least number of digits."""
    max_length: PositiveInt = 12
    """Greatest number of digits."""
    seed: int = 1
    """Sources with different seeds hold different pairs."""
    weight: Weight = 1.0

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse an empty range of lengths."""
        if self.min_length > self.max_length:
            yield "min_length", f"{self.min_length} is larger than max_length {self.max_length}"


Source = Annotated[
    TextSource | TsvSource | CsvSource | JsonlSource | ParquetSource | HubSource | ReverseSource,
    Field(discriminator="type"),
]


class SplitSource(Settings):
    """Pairs held out of training: so many different source texts of all training sources.

    They are those with the smallest hashes. So the choice does not depend on the order of the text,
    no source text stands on both sides, and when the text grows, most of them stay.
    """

    type_is_implied = True

    type: Literal["split"] = "split"
    split: PositiveInt
    """Number of pairs."""


def _kind_of_source(source: Any) -> Any:
    """Return what stands under `type:`, which `{split: 1000}` may leave out."""
    if isinstance(source, dict):
        return source.get("type", "split" if "split" in source else None)
    return getattr(source, "type", None)


HeldOutSource = Annotated[
    Annotated[TextSource, Tag("text")]
    | Annotated[TsvSource, Tag("tsv")]
    | Annotated[CsvSource, Tag("csv")]
    | Annotated[JsonlSource, Tag("jsonl")]
    | Annotated[ParquetSource, Tag("parquet")]
    | Annotated[HubSource, Tag("hub")]
    | Annotated[ReverseSource, Tag("reverse")]
    | Annotated[SplitSource, Tag("split")],
    Discriminator(_kind_of_source),
]


class FilterSettings(Settings):
    """Which training pairs are kept. Validation and test sets are never filtered."""

    min_length: PositiveInt = 1
    """Least number of tokens on either side, end of sentence not counted."""
    max_length: PositiveInt = 256
    """Greatest number of tokens on either side, end of sentence included."""
    max_length_ratio: Annotated[float, Field(gt=1)] | None = None
    """Greatest ratio of the longer side to the shorter, in tokens."""
    drop_copies: bool | None = None
    """Drop pairs whose target is exactly their source; default: unless both languages are one."""
    drop_duplicates: bool = False
    """Drop pairs that came before in the same source."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse an empty range of lengths."""
        if self.min_length >= self.max_length:  # one counts the end of sentence, the other not
            yield "min_length", f"{self.min_length} leaves nothing below max_length"


class DocumentSettings(Settings):
    """Each sentence comes after those before it in its document, on both sides.

    Sources list the pairs of a document in their order; a pair of blank lines ends it. Source:
    Tiedemann and Scherrer 2017.
    """

    context_sentences: PositiveInt
    """Greatest number of sentences before each; in training `filters.max_length` counts all."""
    separator: Annotated[str, Field(min_length=1)] = "<sep>"
    """Stands between sentences; must be one of `tokenizer.user_symbols`."""


class DataSettings(Settings):
    """What is read."""

    src_lang: LanguageCode
    """Code of the source language, such as `en`."""
    tgt_lang: LanguageCode
    """Code of the target language; also tells sacreBLEU how to tokenize."""
    train: Annotated[list[Source], Field(min_length=1)]
    """Training sources; several are mixed by their weights."""
    valid: HeldOutSource
    """Pairs for validation during training; `{split: 1000}` takes them out of the training text."""
    test: dict[str, HeldOutSource] = Field(default={})
    """Named test sets for `tmt evaluate`; `{split: 1000}` likewise."""
    temperature: Annotated[float, Field(ge=1)] | None = None
    """Mix sources with shares proportional to size ** (1 / temperature) instead of weights."""
    filters: FilterSettings = FilterSettings()
    """Which training pairs are kept."""
    document: DocumentSettings | None = None
    """Read and translate sentences in the context of their document; default: each alone."""
    clean_source: bool = True
    """Write all white space in sources as single spaces and none at their ends, in training and in
    translation alike; models made before this setting read their sources as they are."""
    reverse_target: bool = False
    """Write targets from their last token to their first, as a right-to-left model for
    `tmt rescore`; texts and scores are as of any other model."""
    corpus_dir: PathText = "data/corpora"
    """Where tokenized corpora are kept and found again."""
    num_workers: PositiveInt | None = None
    """Processes that tokenize; default one for each processor."""

    def splits(self) -> dict[str, int]:
        """Return how many pairs each set takes out of the training text; `valid` is one of them."""
        sets = {"valid": self.valid, **self.test}
        return {name: s.split for name, s in sets.items() if isinstance(s, SplitSource)}

    def drops_copies(self) -> bool:
        """Whether training drops pairs whose target is their source.

        Between varieties of one language they are translations, and what needs no correction.
        """
        if self.filters.drop_copies is not None:
            return self.filters.drop_copies
        src, tgt = (re.split("[-_@]", code)[0].lower() for code in (self.src_lang, self.tgt_lang))
        return src != tgt

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse two ways to mix, documents of what has none, and a text as its own target."""
        yield from self._splits_that_cannot_be()
        yield from self._texts_on_both_sides()
        if self.temperature is not None and any(s.weight != 1 for s in self.train):
            yield "temperature", "excludes weights of training sources: set only one of the two"
        for name, sources in (("train", self.train), ("valid", [self.valid])):
            if any(isinstance(s, TextSource) and s.more_references for s in sources):
                yield name, "more_references are for test sets: leave them out here"
        if self.document and any(s.type == "reverse" for s in (*self.train, self.valid)):
            yield (
                "document",
                "needs sentences in the order of a text, but pairs of source type reverse have "
                "none: take another source, or leave document out",
            )

    def _texts_on_both_sides(self) -> Iterator[tuple[str, str]]:
        """Refuse sources that read both sides from the same place."""
        sets: dict[str, Any] = {f"train.{i}": source for i, source in enumerate(self.train)}
        sets |= {"valid": self.valid, **{f"test.{name}": s for name, s in self.test.items()}}
        for path, source in sets.items():
            for src, tgt in (
                ("src", "tgt"),
                ("src_column", "tgt_column"),
                ("src_field", "tgt_field"),
            ):
                place = getattr(source, src, None)
                if place is not None and place == getattr(source, tgt) and self.drops_copies():
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
    """Folder of a trained tokenizer, or a SentencePiece model for both languages; without it, one
    is trained on the training sources."""
    vocab_size: PositiveInt = 8000
    """Pieces of each vocabulary, special ones included."""
    joint: bool = True
    """One vocabulary for both languages."""
    character_coverage: Annotated[float, Field(ge=0.98, le=1)] = 1.0
    """Share of all characters that get a piece; the others are written as bytes."""
    byte_fallback: bool = True
    """Write unknown characters as UTF-8 bytes; without it they become the unknown token."""
    user_symbols: list[str] = Field(default=[])
    """Strings that are always one piece, such as tags."""
    num_sample_lines: PositiveInt = 2_000_000
    """Greatest number of lines of each language to train on, drawn evenly from all sources."""
    sampling: Share = 0.0
    """Noise of the segmentation of training text, new each epoch; 0 = always the best one. For
    `bpe` the probability to skip a merge (Provilkov et al. 2020), usually 0.1, or 0.6 for scripts
    without spaces; for `unigram` the exponent on the probability of a segmentation (Kudo 2018),
    usually 0.1 to 0.5: the smaller, the noisier."""

"""Settings of sources of sentence pairs."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from transformer_mt.config.base import PathText, PositiveInt, Settings, Weight
from transformer_mt.config.languages import DirectedSettings
from transformer_mt.config.noise import NoiseSettings
from transformer_mt.config.pictures import ImagesSource, RenderedSource

TextFile = Annotated[PathText, Field(description="File, UTF-8; plain, .gz, .bz2, .xz or .zst.")]
SrcField = Annotated[
    str | None,
    Field(
        description="Field of the source text, with dots for nested fields. Default: "
        "`translation.SRC_LANG`."
    ),
]
TgtField = Annotated[
    str | None,
    Field(description="Field of the target text. Default: `translation.TGT_LANG`."),
]


class TaggedSettings(DirectedSettings):
    """What sources of text have."""

    tag: str | None = None
    """Token before each source text; must be one of `tokenizer.user_symbols`. Default: none."""


class TextSource(TaggedSettings):
    """Two parallel line files: line N of one translates line N of the other."""

    type: Literal["text"] = "text"
    src: PathText
    """File of source lines, UTF-8; plain, .gz, .bz2, .xz or .zst."""
    tgt: PathText
    """File of target lines, one for each source line."""
    more_references: list[PathText] = Field(default=[])
    """Files of further reference translations, for scores of a test set."""
    weight: Weight = 1.0


class TsvSource(TaggedSettings):
    """One file with a pair on each line, in columns separated by tabs; no quoting, no header."""

    type: Literal["tsv"]
    path: TextFile
    src_column: Annotated[int, Field(ge=0)] = 0
    """Column of the source text, counted from 0."""
    tgt_column: Annotated[int, Field(ge=0)] = 1
    """Column of the target text, counted from 0."""
    weight: Weight = 1.0


class CsvSource(TaggedSettings):
    """One CSV file: fields may be quoted with double quotes and contain line breaks.

    A line break in a text becomes a space.
    """

    type: Literal["csv"]
    path: TextFile
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """Field delimiter, such as `;`."""
    src_column: Annotated[int, Field(ge=0)] | str = 0
    """Column of the source text: its number, from 0, or its name in the first row."""
    tgt_column: Annotated[int, Field(ge=0)] | str = 1
    """Column of the target text: its number, from 0, or its name in the first row."""
    weight: Weight = 1.0

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse a name beside a number: it would be unclear whether the first row is a header."""
        if isinstance(self.src_column, str) != isinstance(self.tgt_column, str):
            yield "tgt_column", "give names for both columns, or numbers for both"
        if self.delimiter in '"\r\n':
            yield "delimiter", "a quote or a line break cannot separate fields"


class JsonlSource(TaggedSettings):
    """One JSON object on each line."""

    type: Literal["jsonl"]
    path: TextFile
    src_field: SrcField = None
    tgt_field: TgtField = None
    weight: Weight = 1.0


class ParquetSource(TaggedSettings):
    """A Parquet file."""

    type: Literal["parquet"]
    path: PathText
    """File."""
    src_field: SrcField = None
    tgt_field: TgtField = None
    weight: Weight = 1.0


class HubSource(TaggedSettings):
    """A dataset of the Hugging Face hub, or a local directory in its format."""

    type: Literal["hub"]
    path: PathText
    """Hub id such as `wmt/wmt14`, or a local directory."""
    subset: str | None = None
    """Configuration of the dataset, such as `de-en`."""
    split: str
    """Split, such as `train`."""
    revision: str | None = None
    """Commit of the hub repository; set it to make a run reproducible."""
    src_field: SrcField = None
    tgt_field: TgtField = None
    weight: Weight = 1.0


class ReverseSource(DirectedSettings):
    """Synthetic pairs: random digits, and the same digits in reverse order."""

    type: Literal["reverse"]
    num_pairs: PositiveInt
    """Number of pairs."""
    min_length: PositiveInt = 3
    """Minimum number of digits."""
    max_length: PositiveInt = 12
    """Maximum number of digits."""
    seed: int = 1
    """Random seed: sources with different seeds have different pairs."""
    weight: Weight = 1.0

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse an empty range of lengths."""
        if self.min_length > self.max_length:
            yield "min_length", f"{self.min_length} is larger than max_length {self.max_length}"


class MonolingualSource(TaggedSettings):
    """Text of one language, for denoising: lines with noise as source, as they are as target."""

    type: Literal["monolingual"]
    path: TextFile
    noise: NoiseSettings = NoiseSettings()
    """What is done to the source."""
    weight: Weight = 1.0


class BilingualSource(TaggedSettings):
    """A translation memory or localisation file: TMX, XLIFF, a gettext catalog (PO, MO).

    Pairs that are finished, not those to review. TMX is read in memory that does not grow with it.
    """

    type: Literal["tmx", "xliff", "po", "mo"]
    path: PathText
    """File; plain, .gz, .bz2, .xz or .zst."""
    inline: Literal["drop", "keep"] = "drop"
    """Inline codes of TMX and XLIFF: dropped, or kept as `<g1>..</g1>` and `<x2/>`, which
    `tmt translate` shows the model."""
    weight: Weight = 1.0


class OpusSource(TaggedSettings):
    """A zip file of OPUS (Moses format): two parallel line files, named by their languages."""

    type: Literal["opus"]
    path: PathText
    """Zip file, such as `de-en.txt.zip`."""
    corpus: str | None = None
    """What the names of both files begin with, up to the language. Default: the only such pair."""
    weight: Weight = 1.0


class ExcelSource(TaggedSettings):
    """A sheet of an Excel workbook (.xlsx)."""

    type: Literal["xlsx"]
    path: PathText
    """File."""
    sheet: str | None = None
    """Name of the sheet. Default: the only one."""
    src_column: Annotated[int, Field(ge=0)] | str = 0
    """Column of the source text: its number, from 0, or its name in the first row."""
    tgt_column: Annotated[int, Field(ge=0)] | str = 1
    """Column of the target text."""
    weight: Weight = 1.0


Source = Annotated[
    TextSource
    | TsvSource
    | CsvSource
    | JsonlSource
    | ParquetSource
    | BilingualSource
    | OpusSource
    | ExcelSource
    | HubSource
    | ReverseSource
    | MonolingualSource
    | ImagesSource
    | RenderedSource,
    Field(discriminator="type"),
]


class SplitSource(Settings):
    """Pairs held out of the training data: N distinct source texts of all training sources.

    They are those with the smallest hashes. So the choice does not depend on the order of the data,
    no source text is in both training and held-out data, and most pairs stay when the data grows.
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


class JoinedSources(Settings):
    """Validation sets of several directions; each score is the mean over them."""

    type: Literal["joined"]
    sources: Annotated[list[Source], Field(min_length=1)]
    """The sets, with their languages."""


_TaggedSource = (
    Annotated[TextSource, Tag("text")]
    | Annotated[TsvSource, Tag("tsv")]
    | Annotated[CsvSource, Tag("csv")]
    | Annotated[JsonlSource, Tag("jsonl")]
    | Annotated[ParquetSource, Tag("parquet")]
    | Annotated[BilingualSource, Tag("tmx")]
    | Annotated[BilingualSource, Tag("xliff")]
    | Annotated[BilingualSource, Tag("po")]
    | Annotated[BilingualSource, Tag("mo")]
    | Annotated[OpusSource, Tag("opus")]
    | Annotated[ExcelSource, Tag("xlsx")]
    | Annotated[HubSource, Tag("hub")]
    | Annotated[ReverseSource, Tag("reverse")]
    | Annotated[MonolingualSource, Tag("monolingual")]
    | Annotated[ImagesSource, Tag("images")]
    | Annotated[RenderedSource, Tag("rendered")]
)

HeldOutSource = Annotated[
    _TaggedSource | Annotated[SplitSource, Tag("split")], Discriminator(_kind_of_source)
]

ValidationSource = Annotated[
    _TaggedSource | Annotated[SplitSource, Tag("split")] | Annotated[JoinedSources, Tag("joined")],
    Discriminator(_kind_of_source),
]

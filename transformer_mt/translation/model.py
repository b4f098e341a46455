"""A model as Python programs use it: translate a list or a stream, score given translations.

Torch is imported by the methods.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from transformer_mt.errors import ConfigError
from transformer_mt.translation.keywords import (
    SearchKeywords,
    checked_lines,
    checked_options,
    with_prefixes,
)
from transformer_mt.translation.load import decoding_settings, make_translator

if TYPE_CHECKING:
    from transformer_mt.bundle import Bundle
    from transformer_mt.config.schema import Config
    from transformer_mt.translation.requests import Line
    from transformer_mt.translation.results import TargetScore, Translation

Terms: TypeAlias = str | os.PathLike[str] | Mapping[str, str]

_Work: TypeAlias = "Callable[[Sequence[str | Line], int], list[Translation]]"


class Model:
    """A trained model, or an ensemble of several, ready to translate; `api.load` makes it.

    It does not change while it is used: threads may share it.

    Attributes:
        bundle: The network (`bundle.model`, a `torch.nn.Module`), the tokenizers and the settings.
    """

    def __init__(self, bundle: "Bundle") -> None:
        self.bundle = bundle

    def __repr__(self) -> str:
        """Name the model, for a person to read."""
        data, bundle = self.config.data, self.bundle
        place = "cpu" if bundle.search else next(bundle.model.parameters()).device
        return f"<Model {bundle.directory}: {data.src_lang} to {data.tgt_lang}, on {place}>"

    @property
    def config(self) -> "Config":
        """The settings it was trained with; those of the first model of an ensemble."""
        return self.bundle.config

    def translate(
        self,
        lines: "Iterable[str | Line]",
        *,
        to: str | None = None,
        from_: str | None = None,
        prefixes: Sequence[str] | None = None,
        glossary: Terms | None = None,
        split_sentences: bool | None = None,
        protect: bool = False,
        alignments: bool = False,
        **options: Unpack[SearchKeywords],
    ) -> "list[Translation]":
        """Translate lines of text; result N belongs to line N.

        A blank line comes back as it is. A sentence that is longer than the model was trained for
        is translated in parts, with a warning.

        Args:
            lines: Text, or `Line` objects, which say what a translation must hold.
            to: Code of the language to translate into, for a model of several.
            from_: Code of the language to translate from, for a model that reads its tag.
            prefixes: How each translation begins, one for each line; "" leaves it open.
            glossary: Terms whose translations must be in the output where the source has the term:
                a mapping, or a file with a term, a tab and its translation on each line.
            split_sentences: Whether to translate each sentence of a line by itself. None: yes,
                unless there are prefixes or the model reads documents.
            protect: Bring placeholders, tags, URLs and addresses through unchanged.
            alignments: Also find which words belong together: `Translation.alignment`.
            **options: How to search, such as `beam_size=8` or `n_best=8`: see `SearchKeywords`.

        Returns:
            The translations; `text`, `score` and `tokens` of the best, and `n_best`.

        Raises:
            ConfigError: If an option is out of its bounds, or does not go with another or the
                model.
            DataError: If the glossary cannot be read, or a prefix or phrase does not fit.
        """
        wanted = list(checked_lines(lines))
        if prefixes is not None:
            wanted = with_prefixes(wanted, list(prefixes))
            split_sentences = bool(split_sentences)
        model = self.directed(to, from_)
        work = model._work(options, glossary, split_sentences, protect, alignments)
        return work(wanted, 1)

    def translate_iter(
        self,
        lines: "Iterable[str | Line]",
        *,
        chunk_size: int = 1024,
        to: str | None = None,
        from_: str | None = None,
        glossary: Terms | None = None,
        split_sentences: bool | None = None,
        protect: bool = False,
        alignments: bool = False,
        **options: Unpack[SearchKeywords],
    ) -> "Iterator[Translation]":
        """Translate a stream of any length, in memory that does not grow with it.

        Args:
            lines: As in `translate`; read as results are asked for, one chunk ahead.
            chunk_size: How many lines are read and translated together: many are faster, with 1
                each line is answered before the next is read.
            to: See `translate`.
            from_: See `translate`.
            glossary: See `translate`.
            split_sentences: See `translate`.
            protect: See `translate`.
            alignments: See `translate`.
            **options: See `translate`.

        Yields:
            The translation of each line, in order.

        Raises:
            ConfigError: As `translate`, at once.
            DataError: As `translate`.
        """
        if chunk_size < 1:
            raise ValueError(f"chunk_size: expected at least 1, got {chunk_size}")
        model = self.directed(to, from_)
        work = model._work(options, glossary, split_sentences, protect, alignments)
        source = checked_lines(lines)
        chunks = iter(lambda: list(islice(source, chunk_size)), [])
        starts = count(1, chunk_size)
        return chain.from_iterable(map(work, chunks, starts))

    def score(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        to: str | None = None,
        from_: str | None = None,
        batch_tokens: int | None = None,
    ) -> "list[TargetScore]":
        """Compute how probable given translations are (teacher forcing).

        Args:
            pairs: A source and its translation each.
            to: See `translate`.
            from_: See `translate`.
            batch_tokens: Tokens in a batch, both sides together. None: as in the model's config.

        Returns:
            For each pair the natural logarithm of the probability of the translation given the
            source, and of each of its tokens; NaN, with a warning, where one is too long.
        """
        from transformer_mt.translation.scoring import TargetScorer

        sources, targets = [], []
        for number, pair in enumerate(pairs, start=1):
            if not isinstance(pair, tuple | list) or [type(text) for text in pair] != [str, str]:
                raise TypeError(f"pair {number}: expected a source and a translation, got {pair!r}")
            sources.append(pair[0])
            targets.append(pair[1])
        bundle = self.directed(to, from_).bundle
        scorer = TargetScorer(bundle, batch_tokens or self.config.decoding.batch_tokens)
        return scorer.score(sources, targets)

    def directed(self, to: str | None, from_: str | None) -> "Model":
        """Return the model for one direction of a model of several languages.

        Args:
            to: See `translate`.
            from_: See `translate`.
        """
        from transformer_mt.translation.directions import directed

        return Model(directed(self.bundle, source=from_, target=to))

    def _work(
        self,
        options: Mapping[str, Any],
        glossary: Terms | None,
        split_sentences: bool | None,
        protect: bool,
        alignments: bool,
    ) -> _Work:
        """Return what translates lines, given the number of the first."""
        given = checked_options(options)
        if alignments and not self.config.model.num_attention_layers:
            raise ConfigError(
                "alignments: this model has no attention to the whole source (model.attention "
                "none, or a decoder-only model with a pattern); leave them out"
            )
        if split_sentences is None:
            split_sentences = self.config.data.document is None
        translator = make_translator(
            self.bundle, given, glossary=glossary, split_sentences=split_sentences
        )
        layer = decoding_settings(self.bundle, given).alignment_layer
        translate: Callable[..., list[Translation]] = translator.translate
        if protect:
            from transformer_mt.translation.markup.protection import Protector

            translate = Protector(translator).translate

        def work(lines: "Sequence[str | Line]", first_line: int) -> "list[Translation]":
            """Translate, and align where that is wanted."""
            found = translate(lines, first_line=first_line)
            if not alignments:
                return found
            from transformer_mt.translation.alignment import with_alignments

            return with_alignments(translator, found, layer=layer)

        return work

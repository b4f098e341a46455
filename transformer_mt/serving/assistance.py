"""Endpoints of a person who translates: word alignment, completions of a prefix, corrections."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transformer_mt.errors import TmtError
from transformer_mt.serving.catalogue import Direction
from transformer_mt.serving.limits import Refused
from transformer_mt.serving.pieces import Piece, pieces_of
from transformer_mt.serving.requests import checked_text, number_of, read_fields, text_of, texts_of
from transformer_mt.serving.service import Service
from transformer_mt.text.words import UNIT
from transformer_mt.translation.corrections import Corrections, UselessPairError
from transformer_mt.translation.glossary import Glossary, Term
from transformer_mt.translation.load import make_translator
from transformer_mt.translation.requests import Line

if TYPE_CHECKING:
    from transformer_mt.translation.results import Translation
    from transformer_mt.translation.translator import Translator

logger = logging.getLogger(__name__)

MOST_TERMS = 200
MOST_TERM_TOKENS = 32
"""Of the terms of a sentence, each of which widens its beam by one; further terms are left out."""

Words: TypeAlias = list[list[int]]
"""Begin and end of each word of a translation, and those of its source word if it is known; in
characters."""


class Assisted(NamedTuple):
    """A translation of a sentence.

    Attributes:
        word: See `completions.Completion`; empty without a prefix.
        text: The translation.
        words: Of `text`.
    """

    word: str
    text: str
    words: Words


class Assistance(NamedTuple):
    """A task of the queue: translates sentences and aligns their words.

    Attributes:
        direction: The model.
        beam_size: Of the search.
        terms: A glossary.
        prefix: How the translations begin; None: they are not completions.
        num: How many completions of a sentence there may be.
    """

    direction: Direction
    beam_size: int
    terms: tuple[Term, ...] = ()
    prefix: str | None = None
    num: int = 1

    def __call__(self, sentences: Sequence[str]) -> list[list[Assisted]]:
        """Return the translations of each sentence, best first."""
        source, target = self.direction.source, self.direction.target
        bundle = self.direction.model.directed(target, source).bundle
        translator = make_translator(bundle, {"beam_size": self.beam_size})
        lines = [self._line(sentence, translator) for sentence in sentences]
        found = self._completed(translator, lines) if self.prefix is not None else (
            [[("", one)] for one in _each_alone(translator, lines)]
        )  # fmt: skip
        pairs = [
            (sentence, one)
            for sentence, own in zip(sentences, found, strict=True)
            for _, one in own
        ]
        words = iter(_words(translator, pairs, has_attention=self._has_attention))
        return [[Assisted(word, one.text, next(words)) for word, one in own] for own in found]

    @property
    def _has_attention(self) -> bool:
        return self.direction.model.config.model.num_attention_layers > 0

    def _line(self, sentence: str, translator: "Translator") -> Line:
        """Return a sentence with its constraints."""
        phrases, room = [], MOST_TERM_TOKENS
        for term in Glossary(self.terms).find(sentence):
            size = len(translator.tokenizers.tgt.encode(term.target))
            if size <= room:
                room -= size
                phrases.append(term.target)
        return Line(sentence, self.prefix or "", tuple(phrases))

    def _completed(
        self, translator: "Translator", lines: Sequence[Line]
    ) -> "list[list[tuple[str, Translation]]]":
        from transformer_mt.translation.completions import completions

        return [
            [(one.word, one.translation) for one in completions(translator, line, self.num)]
            for line in lines
        ]


def _each_alone(translator: "Translator", lines: Sequence[Line]) -> "list[Translation]":
    """Translate lines; a blank one ends what a model of documents reads each with."""
    if not translator.reads_documents:
        return translator.translate(lines)
    return translator.translate([own for line in lines for own in (line, Line(""))])[::2]


def _words(
    translator: "Translator", pairs: "Sequence[tuple[str, Translation]]", *, has_attention: bool
) -> list[Words]:
    """Return the words of translations, with those of their sources where they are known."""
    found: list[Words] = [[] for _ in pairs]
    if has_attention:
        from transformer_mt.translation.alignment import attention_of

        attentions = attention_of(translator, [one.n_best[0] for _, one in pairs])
        found = [
            [[*target, *origin] for origin, target in attention.spans(source, one.text)]
            for attention, (source, one) in zip(attentions, pairs, strict=True)
        ]
    return [own or _unaligned(one.text) for own, (_, one) in zip(found, pairs, strict=True)]


def _unaligned(text: str) -> Words:
    return [list(match.span()) for match in UNIT.finditer(text)]


async def align(request: Request) -> Response:
    """Translate texts, and say which words of each sentence belong together."""
    service: Service = request.app.state.service
    fields = await read_fields(request)
    texts = texts_of(fields, service.limits)
    source, target = text_of(fields, "source"), text_of(fields, "target")
    terms = _terms_of(fields, service)
    way = service.catalogue.way(source, target)
    split = all(direction.model.config.data.document is None for direction in way)
    pieces = [pieces_of(text, source, target, split=split) for text in texts]
    sentences = list(dict.fromkeys(p.sentence for own in pieces for p in own if p.sentence))
    if len(way) == 1:
        task = Assistance(way[0], service.beam_of(way[0]), terms)
        results = await _computed(service, task, sentences)
        found = {s: own[0] for s, own in zip(sentences, results, strict=True)}
    else:  # over a third language, whose words are not seen
        texts_found = await service.translate(sentences, source, target)
        found = {
            s: Assisted("", own.text, _unaligned(own.text))
            for s, own in zip(sentences, texts_found, strict=True)
        }
    return JSONResponse({"translations": [_as_json(own, found) for own in pieces]})


def _as_json(pieces: Sequence[Piece], found: Mapping[str, Assisted]) -> dict[str, Any]:
    nothing = Assisted("", "", [])
    sentences = [
        {"source": piece.sentence, "target": own.text, "glue": piece.glue, "words": own.words}
        for piece in pieces
        for own in (found.get(piece.sentence, nothing),)
    ]
    text = "".join(f"{own['target']}{own['glue']}" for own in sentences)
    return {"translatedText": text, "sentences": sentences}


async def complete(request: Request) -> Response:
    """Complete the translation of a sentence from its beginning, with several next words."""
    service: Service = request.app.state.service
    fields = await read_fields(request)
    sentence = text_of(fields, "q")
    given = fields.get("prefix")
    prefix = "" if given is None else checked_text(given, "prefix")
    for text in (sentence, prefix):
        _check_length(text, service)
    direction = service.direction(text_of(fields, "source"), text_of(fields, "target"))
    num = 1 + number_of(fields, "alternatives", most=service.limits.alternatives)
    task = Assistance(
        direction, service.beam_of(direction), _terms_of(fields, service), prefix, num
    )
    (found,) = await _computed(service, task, [" ".join(sentence.split())])
    return JSONResponse(
        {
            "completions": [
                {"word": own.word, "translatedText": own.text, "words": own.words} for own in found
            ]
        }
    )


async def suggest(request: Request) -> Response:
    """Keep a corrected translation, for training."""
    service: Service = request.app.state.service
    corrections: Corrections | None = request.app.state.corrections
    fields = await read_fields(request)
    if corrections is None:
        raise Refused(403, "Suggestions are disabled on this server")
    source, target = text_of(fields, "source"), text_of(fields, "target")
    service.catalogue.way(source, target)
    pair = text_of(fields, "q"), text_of(fields, "s")
    for text in pair:
        _check_length(text, service)
    try:
        await asyncio.to_thread(corrections.add, *pair, (source, target))
    except UselessPairError as error:
        raise Refused(400, str(error)) from error
    except TmtError as error:  # whose message names a path of this machine
        logger.error("%s", error)
        raise Refused(503, "The server cannot keep corrections at present") from error
    return JSONResponse({"success": True})


async def _computed(
    service: Service, task: Assistance, sentences: Sequence[str]
) -> list[list[Assisted]]:
    try:
        return await service.compute(task, sentences)
    except TmtError as error:  # a prefix or term that does not fit
        raise Refused(400, str(error).removeprefix("line 1: ")) from error


def _check_length(text: str, service: Service) -> None:
    if len(text) > (most := service.limits.characters):
        raise Refused(400, f"Invalid request: request ({len(text)}) exceeds text limit ({most})")


def _terms_of(fields: Mapping[str, Any], service: Service) -> tuple[Term, ...]:
    """Return the field `glossary`, which may be an object of terms and their translations."""
    given = fields.get("glossary")
    given = {} if given is None else given
    if not isinstance(given, dict):
        raise Refused(400, "Invalid request: glossary parameter is not an object")
    if len(given) > MOST_TERMS:
        raise Refused(400, f"Invalid request: glossary has more than {MOST_TERMS} terms")
    terms = []
    for pair in given.items():
        for text in pair:
            _check_length(checked_text(text, "glossary"), service)
        source, target = map(str.strip, pair)
        if UNIT.search(source) and UNIT.search(target):
            terms.append(Term(source, target))
    return tuple(terms)

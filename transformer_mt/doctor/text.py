"""Checks of the text of a config: encoding, alignment, languages, repetition, overlap."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from transformer_mt.config.data import DataSettings, TokenizerSettings
from transformer_mt.config.pictures import PICTURES
from transformer_mt.config.sources import HeldOutSource
from transformer_mt.data.held_out import key_of
from transformer_mt.data.pair_source import PairSource
from transformer_mt.data.sources import open_source, read_pairs
from transformer_mt.data.text_checks import check_text
from transformer_mt.doctor.findings import Finding, Status, listening
from transformer_mt.doctor.scan import BLOCK, LONG_CHARACTERS, MOST_PAIRS, Pair, Scan, scan
from transformer_mt.log import counted, printable

MUCH_BLANK = MUCH_LONG = MUCH_COPIED = MUCH_OVERLAP = MUCH_EXCHANGED = MUCH_UNSEEN = 0.01
MUCH_WRONG = 0.001
MUCH_REPEATED, MUCH_AMBIGUOUS = 0.1, 0.5
FEW_VALID, MANY_VALID = 100, 10_000
LOW_CORRELATION, NO_CORRELATION = 0.35, 0.15
_ENOUGH_PAIRS = 200
_MADE_UP = ("reverse",)
_MOST_NAMED = 5


@dataclass(frozen=True)
class HeldOutText:
    """A validation or test set that can be read.

    Attributes:
        setting: That names it, such as `data.valid`.
        pairs: All of it.
        is_made_up: Whether a program makes the text, so that short ones recur.
    """

    setting: str
    pairs: Sequence[Pair]
    is_made_up: bool

    def keys(self) -> frozenset[int]:
        """Return the keys of its source texts."""
        return frozenset(key_of(src) for src, _ in self.pairs if src.strip())


def check_sources(data: DataSettings, tokenizer: TokenizerSettings | None) -> Iterator[Finding]:
    """Read every source of a config, each apart, and report what is wrong with it.

    Args:
        data: The sources.
        tokenizer: Of the config; None if it has mistakes.
    """
    opened: dict[str, tuple[HeldOutSource, PairSource]] = {}
    for name, settings in data.by_setting().items():
        if settings.type == "split":
            continue
        with listening("data", f"data.{name}") as found:
            opened[name] = (
                settings,
                open_source(settings, src_lang=data.src_lang, tgt_lang=data.tgt_lang),
            )
        yield from found
    sets: list[HeldOutText] = []
    for name, (settings, source) in opened.items():
        if not name.startswith("train."):
            with listening("data", f"data.{name}") as found:
                pairs = list(zip(*read_pairs(source), strict=True))
                own = HeldOutText(f"data.{name}", pairs, settings.type in _MADE_UP)
                sets.append(own)
                found += _about_set(data, settings, own)
            yield from found
    seen: set[str] = set()
    num_read = 0
    others = {one.setting: one.keys() for one in sets if not one.is_made_up}
    train = {name: both for name, both in opened.items() if name.startswith("train.")}
    for name, (settings, source) in train.items():
        with listening("data", f"data.{name}") as found:
            result = scan(source, data.direction(settings), others)
            seen |= result.characters[0]
            num_read += 1
            if settings.type not in ("monolingual", *PICTURES):
                found += _about_pairs(data, f"data.{name}", settings, result)
            found += _overlaps(f"data.{name}", result, others)
        yield from found
    if tokenizer is not None and train:
        given = data.model_copy(update={"train": [settings for settings, _ in train.values()]})
        valid = next((one.pairs for one in sets if one.setting.startswith("data.valid")), ())
        with listening("data", "data.train") as found:
            check_text(given, tokenizer, [source for _, source in train.values()], valid)
        yield from found
    if num_read == len(data.train) and not data.names_pictures():
        yield from _unseen(sets, seen)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _percent(part: int, whole: int) -> str:
    return f"{part:,} ({_share(part, whole):.1%})"


def _about_set(data: DataSettings, settings: HeldOutSource, one: HeldOutText) -> Iterator[Finding]:
    """Check a validation or test set."""
    name, number = one.setting, len(one.pairs)
    is_valid = name.startswith("data.valid")
    status: Status = "ok"
    text, advice = f"{name}: {counted(number, 'pair')}", ""
    if number < FEW_VALID and not one.is_made_up:
        status, advice = "warning", "scores of so few pairs are mostly chance: take 500 or more"
    elif number > MANY_VALID and is_valid:
        status = "warning"
        advice = "each validation translates them all: 1,000 to 3,000 are enough"
    yield Finding("data", name, status, text, advice, facts={"pairs": number})
    result = scan(one.pairs, data.direction(settings), {})
    if settings.type not in ("monolingual", *PICTURES):
        yield from _encoding(name, result)
        yield from _languages(name, data, settings, result)
        yield from _alignment(name, result)


def _about_pairs(
    data: DataSettings, name: str, settings: HeldOutSource, result: Scan
) -> Iterator[Finding]:
    """Check a training source."""
    number = result.num_pairs
    limit = f", the first {MOST_PAIRS:,} looked at" if number >= MOST_PAIRS else ""
    yield Finding(
        "data", name, "ok", f"{name}: {counted(number, 'pair')}{limit}", facts={"pairs": number}
    )
    yield from _encoding(name, result)
    yield from _alignment(name, result)
    yield from _languages(name, data, settings, result)
    for count, most, what, advice in (
        (
            result.num_blank, MUCH_BLANK, "a side without text",
            "they are left out; many are a sign that lines were lost",
        ),
        (
            result.num_copies if data.drops_copies(data.direction(settings)) else 0, MUCH_COPIED,
            "the source as target", "they are left out: was all of it translated?",
        ),
        (
            result.num_long, MUCH_LONG, f"a side of more than {LONG_CHARACTERS:,} characters",
            "split such texts into sentences",
        ),
    ):  # fmt: skip
        if _share(count, number) > most:
            yield Finding(
                "data", name, "warning", f"{name}: {_percent(count, number)} pairs with {what}",
                advice, facts={"pairs": count},
            )  # fmt: skip
    if settings.type not in _MADE_UP:
        yield _repetition(data, name, result)


def _encoding(name: str, result: Scan) -> Iterator[Finding]:
    for what, number in result.wrong.items():
        status: Status = "ok" if _share(number, result.num_pairs) <= MUCH_WRONG else "warning"
        if what.startswith("pieces"):
            remedy = "train on the text before it was cut: tmt cuts it itself"
        elif "HTML" in what:
            remedy = "turn markup into plain text first"
        else:
            remedy = "find out how the text was converted, and convert it again as UTF-8"
        yield Finding(
            "data", name, status,
            f"{name}: {_percent(number, result.num_pairs)} pairs with {what}, the first is pair "
            f"{result.first_wrong[what]:,}",
            remedy if status == "warning" else "", facts={"pairs": number},
        )  # fmt: skip


def _alignment(name: str, result: Scan) -> Iterator[Finding]:
    if result.num_pairs < _ENOUGH_PAIRS or math.isnan(result.correlation):
        return
    facts = {"length_correlation": result.correlation, "shifted_blocks": len(result.shifted)}
    text = f"{name}: lengths of source and target correlate with {result.correlation:.2f}"
    if result.shifted:
        yield Finding(
            "data", name, "problem",
            f"{name}: from about pair {result.shifted[0]:,} on, targets fit the lines beside them: "
            "a line was lost on one side",
            "find the place, and restore or remove the line", exit_code=3, facts=facts,
        )  # fmt: skip
    elif result.correlation < NO_CORRELATION:
        yield Finding(
            "data", name, "problem", f"{text}: the lines do not belong together",
            "look whether one side was sorted, shuffled or filtered alone", exit_code=3,
            facts=facts,
        )  # fmt: skip
    elif result.correlation < LOW_CORRELATION:
        yield Finding(
            "data", name, "warning", f"{text}, less than usual",
            "look at some pairs: many may be no translations", facts=facts,
        )  # fmt: skip
    else:
        yield Finding("data", name, "ok", text, facts=facts)


def _languages(
    name: str, data: DataSettings, settings: HeldOutSource, result: Scan
) -> Iterator[Finding]:
    if result.foreign:
        first, side, language = result.foreign[0]
        expected = data.direction(settings)[side == "target"]
        yield Finding(
            "data", name, "warning",
            f"{name}: the {side} looks like {language} from about pair {first:,} on, not "
            f"{expected} ({counted(len(result.foreign), 'block')} of {BLOCK:,} pairs)",
            "name the right files, or remove what is in other languages",
            facts={"blocks": len(result.foreign)},
        )  # fmt: skip
    if _share(result.num_exchanged, result.num_pairs) > MUCH_EXCHANGED:
        yield Finding(
            "data", name, "warning",
            f"{name}: {_percent(result.num_exchanged, result.num_pairs)} pairs with a side in the "
            "language of the other", "remove them, or exchange their sides",
            facts={"pairs": result.num_exchanged},
        )  # fmt: skip


def _repetition(data: DataSettings, name: str, result: Scan) -> Finding:
    number = result.num_pairs
    repeated = number - result.num_distinct
    ambiguous = result.num_distinct - min(result.num_sources, result.num_targets)
    facts = {
        "repeated": repeated,
        "distinct_sources": result.num_sources,
        "distinct_targets": result.num_targets,
    }
    text = (
        f"{name}: {_percent(repeated, number)} pairs repeat others, {_percent(ambiguous, number)} "
        "share a side with another pair"
    )
    status: Status = "ok"
    advice = ""
    if _share(repeated, number) > MUCH_REPEATED and not data.filters.drop_duplicates:
        status, advice = "warning", "set data.filters.drop_duplicates to true"
    elif _share(ambiguous, number) > MUCH_AMBIGUOUS:
        status = "warning"
        advice = "many translations of the same text: the model will mix them, or take the shortest"
    return Finding("data", name, status, text, advice, facts=facts)


def _overlaps(name: str, result: Scan, others: dict[str, frozenset[int]]) -> Iterator[Finding]:
    for setting, known in result.known.items():
        number = len(others[setting])
        share = _share(len(known), number)
        yield Finding(
            "data", name, "warning" if share > MUCH_OVERLAP else "ok",
            f"{name}: has {_percent(len(known), number)} of the source texts of {setting}",
            "take them out of training: scores on them measure memory, not translation"
            if share > MUCH_OVERLAP else "", facts={"texts": len(known)},
        )  # fmt: skip


def _unseen(sets: Iterable[HeldOutText], seen: set[str]) -> Iterator[Finding]:
    """Find characters of the inputs of a model that its training never showed."""
    for one in sets:
        lines = [src for src, _ in one.pairs if not seen.issuperset(src)]
        unseen = sorted({c for src in lines for c in src} - seen)
        if not unseen:
            continue
        named = " ".join(f"{printable(c)} (U+{ord(c):04X})" for c in unseen[:_MOST_NAMED])
        is_much = _share(len(lines), len(one.pairs)) > MUCH_UNSEEN
        yield Finding(
            "data", one.setting, "warning" if is_much else "ok",
            f"{one.setting}: {_percent(len(lines), len(one.pairs))} sources with characters that "
            f"training never shows: {named}{' ..' if len(unseen) > _MOST_NAMED else ''}",
            "normalise both texts alike, or train on text that has them" if is_much else "",
            facts={"lines": len(lines)},
        )  # fmt: skip

"""Error messages for settings: what pydantic found, each mistake at its place in the file."""

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from transformer_mt.config.base import Settings
from transformer_mt.config.reader import Mistake, Path, Place, WrittenValue
from transformer_mt.config.schema import Config
from transformer_mt.config.structure import below, group_of_type, groups, paths_below, type_names

SYNONYMS = {
    "learning_rate": "training.lr", "steps": "training.max_steps", "epochs": "training.max_epochs",
    **dict.fromkeys(("batch_size", "tokens_per_batch"), "training.max_tokens"),
    **dict.fromkeys(("fp16", "bf16", "amp"), "training.precision"),
    **dict.fromkeys(("output_dir", "save_dir", "model_dir", "run_dir"), "training.runs_dir"),
    "rope": "rotary", "shaw": "relative", "t5": "relative_bias",
    **dict.fromkeys(("rnn", "gru", "lstm"), "recurrent"),
    **dict.fromkeys(("cnn", "conv"), "convolutional"),
    "bahdanau": "additive", "luong": "general", "window": "local", "causal": "full",
}  # fmt: skip
"""Names and words of other programs and papers, and those of this one."""
MOST_PLACES = 3


def explain(
    error: ValidationError,
    document: WrittenValue,
    inside: Path = (),
    root: type[Settings] = Config,
) -> list[Mistake]:
    """Translate all errors of a validation to places and messages.

    Args:
        error: Of a validation of `document`, or of a group in it.
        document: Settings as written.
        inside: Path of the group that was validated.
        root: The group that the whole document is.
    """
    found: dict[tuple[Place, Path, str], list[str]] = {}
    for detail in error.errors(include_url=False):
        for place, path, problem, got in _explain(detail, document, inside, root):
            found.setdefault((place, path, got), []).append(problem)
    return [
        located(place, path, text)
        for (place, path, got), problems in found.items()
        # Pydantic reports an error for each alternative of a union.
        for text in ([" or ".join(problems).replace("or must be", "or") + got] if got else problems)
    ]


def located(place: Place, path: Path, message: str) -> Mistake:
    """Put the path of a setting before a message, unless the place has it already."""
    name = ".".join(map(str, path))
    if not name or (not place.line and place.source.startswith(f"--set {name}=")):
        return place, message
    return place, f"{name}: {message}"


def settings_called(name: str, root: type[Settings] = Config) -> list[str]:
    """Return the paths of the settings that have a name, or a synonym of it."""
    word = SYNONYMS.get(name, name)
    found = [path for path in paths_below(root) if word in (path, path.rpartition(".")[2])]
    return found if len(found) <= MOST_PLACES else []


def suggestion(word: object, known: Sequence[str]) -> str:
    """Offer the known word that was probably meant; nothing if none is near."""
    if not isinstance(word, str):
        return ""
    word = word.lower()
    near = [SYNONYMS[word]] if SYNONYMS.get(word) in known else []
    near = near or difflib.get_close_matches(word, known, n=1)
    near = near or [name for name in known if len(word) > 1 and name.startswith(word)]
    return f"; did you mean '{near[0]}'?" if near else ""


def _explain(
    detail: ErrorDetails, document: WrittenValue, above: Path, root: type[Settings]
) -> Iterator[tuple[Place, Path, str, str]]:
    """Yield places, paths of settings, problems, and what was written."""
    path, annotation, group, siblings = _follow((*above, *detail["loc"]), root)
    mark, value, context = document.nearest(path), detail["input"], detail.get("ctx", {})
    got = f", got {_shown(value, mark)}"
    words = [name for inner in groups(annotation) for name in type_names(inner)]
    match detail["type"]:
        case "contradiction":
            for name, problem in context["found"]:
                at = _below(document, path, name)
                nearest = document.nearest(at)
                is_written = name and nearest is not document.nearest(at[:-1])
                yield (nearest.place if is_written else nearest.key_place), at, problem, ""
        case "extra_forbidden" if group is not None:
            yield mark.key_place, path, _unknown(str(path[-1]), group, siblings, root), ""
        case "missing" if group is not None:
            meaning = group.model_fields[str(path[-1])].description or "a setting"
            yield mark.key_place, path, f"missing: {' '.join(meaning.split()).rstrip('.')}", ""
        case "union_tag_not_found" if isinstance(value, dict):
            yield mark.key_place, (*path, "type"), f"missing: one of {', '.join(words)}", ""
        case "union_tag_invalid" if isinstance(value, dict):
            path, tag = (*path, "type"), value["type"]
            mark = document.nearest(path)
            problem = f"must be one of {', '.join(words)}"
            yield mark.place, path, problem, f", got {_shown(tag, mark)}{suggestion(tag, words)}"
        case "model_type" | "model_attributes_type" | "union_tag_not_found" | "union_tag_invalid":
            yield mark.place, path, _not_a_group(annotation, words, value), got
        case "literal_error":
            words = re.findall("'([^']*)'", context["expected"])
            problem = f"must be one of {', '.join(words)}" if words[1:] else f"must be {words[0]}"
            yield mark.place, path, problem, got + suggestion(value, words)
        case "value_error":
            yield mark.place, path, str(context["error"]), f"; got {_shown(value, mark)}"
        case kind:
            problem = detail["msg"].replace("Input should be", "must be")
            yield mark.place, path, problem, got + _hint(kind, value, mark.text)


def _follow(
    loc: Sequence[str | int], root: type[Settings]
) -> tuple[Path, Any, type[Settings] | None, list[type[Settings]]]:
    """Follow the way to an error.

    Returns:
        The path of the setting, its declared type, the group that holds it, and the groups that
        may stand in place of that one.
    """
    path: Path = ()
    annotation: Any = root
    group: type[Settings] | None = None
    siblings: list[type[Settings]] = []
    choices: list[type[Settings]] = []
    for part in loc:
        if len(groups(annotation)) > 1:  # pydantic names the type of the chosen group
            choices, annotation = groups(annotation), group_of_type(annotation, part)
            continue
        inner = below(annotation, part)
        if inner is None and not groups(annotation):  # it names the alternative of a union
            break
        group, siblings, choices = group_of_type(annotation, None), choices, []
        path, annotation = (*path, part), inner
    return path, annotation, group, siblings


def _below(document: WrittenValue, path: Path, name: str) -> Path:
    """Append a name with dots to a path; numbers may be indices or names."""
    for part in name.split(".") if name else []:
        is_index = part.isdecimal() and isinstance(document.nearest(path).value, list)
        path = (*path, int(part) if is_index else part)
    return path


def _unknown(
    name: str, group: type[Settings], siblings: Sequence[type[Settings]], root: type[Settings]
) -> str:
    """Explain a name that its group does not have."""
    others = [kind for g in siblings if name in g.model_fields for kind in type_names(g)]
    if others:
        own = " or ".join(type_names(group))
        return f"type {own} has no such setting: remove it, or use type {' or '.join(others)}"
    if places := settings_called(name, root):
        return f"unknown setting; did you mean {' or '.join(map(repr, places))}?"
    known = list(group.model_fields)
    return f"unknown setting{suggestion(name, known) or '; known here: ' + ', '.join(known)}"


def _not_a_group(annotation: Any, words: Sequence[str], value: object) -> str:
    """Describe how to write a group of settings."""
    word = SYNONYMS.get(value, value) if isinstance(value, str) else None
    if word in words:
        return f"must be a group of settings: write {{type: {word}}}"
    if words:
        return f"must be a group of settings with `type:`, one of {', '.join(words)}"
    (group,) = groups(annotation)
    return f"must be a group of settings ({', '.join(group.model_fields)})"


def _shown(value: object, mark: WrittenValue) -> str:
    """Show a value as it was written; strings in quotes."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if isinstance(value, str):
        return repr(value) if len(value) <= 80 else f"{value[:77]!r}..."
    return mark.text or ("nothing" if value is None else str(value))


def _hint(kind: str, value: object, text: str) -> str:
    """Suggest how to write what was probably meant."""
    if kind == "string_type" and text:
        return f"; in quotes it is text: '{text}'"
    if kind.startswith("int_") and isinstance(value, float) and value.is_integer():
        return f"; write {int(value)}" if abs(value) < 2**63 else ""
    return ""

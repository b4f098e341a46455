"""Settings of languages: codes, the direction of a source, language tags."""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from transformer_mt.config.base import Settings

LANGUAGE_PATTERN = re.compile(r"[A-Za-z]{1,8}([-_@][A-Za-z0-9]{1,8})*")


def _check_language(code: str) -> str:
    if not LANGUAGE_PATTERN.fullmatch(code):
        raise ValueError("expected a language code such as de, zh-CN or jpn_Jpan")
    return code


LanguageCode = Annotated[str, AfterValidator(_check_language)]
Direction = tuple[str, str]
"""Codes of the source and the target language."""


class DirectedSettings(Settings):
    """What sources of all types have: the direction of their pairs."""

    src_lang: LanguageCode | None = None
    """Source language of these pairs, in a model of many languages. Default: `data.src_lang`."""
    tgt_lang: LanguageCode | None = None
    """Target language of these pairs. Default: `data.tgt_lang`."""


class LanguageTagSettings(Settings):
    """Language tags: pieces that say what to translate into, for many languages in one model.

    They are added to the vocabulary, and no text becomes one.
    """

    source: Literal["target", "own", "both", "none"] = "target"
    """Tags before each source: of the language to translate into (Johnson et al. 2017), of its own,
    both (its own first), or none."""
    target: bool = False
    """Begin each target with the tag of its language, which search is given (M2M-100, Fan et al.
    2021)."""
    form: str = ">>{}<<"
    """Text of a tag, with {} for the code: this is that of OPUS-MT; M2M-100 has `__{}__`, NLLB
    `{}`."""
    languages: list[LanguageCode] = Field(default=[])
    """Languages beside those of the sources: the model can be asked for them, and a later run can
    train them."""
    like: dict[LanguageCode, LanguageCode] = Field(default={})
    """With `training.init_from`: for a new language the one whose tag its own begins with. Default:
    the mean of all pieces."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse tags that say nothing of the target language."""
        if self.source in ("none", "own") and not self.target:
            yield "source", f"{self.source} does not name the target language: set target to true"
        if self.form.count("{}") != 1 or re.search(r"\s", self.form):
            yield "form", f"expected {{}} once and no space, got '{self.form}'"

    @property
    def are_of_opus(self) -> bool:
        """Whether they are those of OPUS-MT: `>>de<<` before the source."""
        return (self.source, self.target, self.form) == ("target", False, ">>{}<<")

    def tag(self, language: str) -> str:
        """Return the text of a tag."""
        return self.form.replace("{}", language)

    def of(self, direction: Direction) -> tuple[Sequence[str], Sequence[str]]:
        """Return the tags before each source and each target of a direction."""
        own, target = map(self.tag, direction)
        before = {"target": [target], "own": [own], "both": [own, target], "none": []}
        return before[self.source], [target] if self.target else []

"""Base class of all groups of settings, and the types that several groups use.

Settings are values. Reading YAML and reporting errors with their place is the business of
`config.loading`. Components never see these models: builders turn them into keyword arguments.
"""

import logging
import os.path
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

logger = logging.getLogger(__name__)

PositiveInt = Annotated[int, Field(gt=0)]
PathText = Annotated[str, AfterValidator(os.path.expanduser)]
"""A path, where `~` is the home folder."""
Share = Annotated[float, Field(ge=0, lt=1)]
Weight = Annotated[
    float,
    Field(
        gt=0,
        description="Times per epoch that each pair of this source is seen; 0.5: in every second "
        "epoch.",
    ),
]


class Settings(BaseModel):
    """Base of all groups of settings: strict types, no unknown names, no changes after reading."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        validate_default=True,
        use_attribute_docstrings=True,
    )

    retired: ClassVar[dict[str, str]] = {}
    """Settings of earlier versions, read without effect, and what takes their place."""

    type_is_implied: ClassVar[bool] = False
    """Whether a group is meant where several are allowed and none is named by `type:`."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Find settings of this group that cannot stand together.

        Yields:
            The setting to look at first (with dots into groups; "" is the whole group), and what
            is wrong and how to fix it.
        """
        yield from ()

    @model_validator(mode="before")
    @classmethod
    def _leave_out_retired(cls, values: Any) -> Any:
        found = cls.retired.keys() & values if isinstance(values, dict) else set()
        for name in sorted(found):
            if values[name]:  # one that is off was never asked for
                logger.warning(
                    "setting %s is gone and has no effect; instead there is %s",
                    name,
                    cls.retired[name],
                )
        return {name: values[name] for name in values if name not in found} if found else values

    @model_validator(mode="after")
    def _check(self) -> Self:
        found = list(self.contradictions())
        if found:
            text = "; ".join(f"{setting}: {message}" for setting, message in found)
            raise PydanticCustomError("contradiction", "{text}", {"text": text, "found": found})
        return self

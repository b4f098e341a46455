"""Settings that another program can hold, of models and of their search."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, get_args

from transformer_mt.config.decoding import LengthPenaltyKind
from transformer_mt.config.families import ModelSettings
from transformer_mt.config.model import TransformerSettings
from transformer_mt.config.schema import Config
from transformer_mt.errors import ConfigError

Quantization: TypeAlias = Literal[
    "float32", "float16", "bfloat16", "int16", "int8", "int8_float32", "int8_float16",
    "int8_bfloat16",
]  # fmt: skip
"""Types of weights in files for CTranslate2."""

Held = Mapping[str, tuple[object, ...]]
"""Settings of a Transformer by name (`positions` by its type), and the values a program has."""


@dataclass(frozen=True)
class Target:
    """A program that models are exported to.

    Attributes:
        name: As in `tmt export --to NAME`.
        held: Which values it has of those settings that it does not have in full.
        shares_vocabulary: Whether source and target must have one vocabulary.
        multiples: Settings that must be multiples of a number.
        quantizations: Types of weights it can have in its file.
        tags: Language tags that its users can give: any, those of OPUS-MT, the first token of the
            target alone, or none.
    """

    name: str
    held: Held
    shares_vocabulary: bool = False
    multiples: Mapping[str, int] = field(default_factory=dict)
    quantizations: tuple[Quantization, ...] = ("float32",)
    tags: Literal["any", "opus", "target", "none"] = "none"


COMMON = {
    "encoder_input": ("tokens",),
    "encoder_pattern": ("full",),
    "decoder_pattern": ("full",),
    "key_dim": (None,),
}

CTRANSLATE2 = Target(
    "ctranslate2",
    {
        **COMMON,
        "positions": ("sinusoidal", "learned", "none", "rotary", "relative", "relative_bias"),
    },
    quantizations=get_args(Quantization),
    tags="any",
)
HUGGINGFACE = Target(
    "huggingface",
    {
        **COMMON,
        "positions": ("sinusoidal", "learned"),
        "norm_type": ("layer",),
        "activation": ("relu", "gelu", "swish"),
        "head_dim": (None,),
        "num_kv_heads": (None,),
        "tie_embeddings": ("all",),
    },
    shares_vocabulary=True,
    tags="opus",
)
ARGOS = replace(CTRANSLATE2, name="argos", shares_vocabulary=True, tags="target")
MARIAN = Target(
    "marian",
    {
        **COMMON,
        "positions": ("sinusoidal",),
        "positions.endpoint": (True,),
        "positions.offset": (0,),
        "decoder_start": ("zeros",),
        "norm": ("post",),
        "norm_type": ("layer",),
        "activation": ("relu", "swish"),
        "head_dim": (None,),
        "num_kv_heads": (None,),
    },
)
BERGAMOT = replace(
    MARIAN,
    name="bergamot",
    multiples={"d_model": 64, "d_ff": 64},
    quantizations=("float32", "int8"),
)
TARGETS = {target.name: target for target in (CTRANSLATE2, HUGGINGFACE, ARGOS, MARIAN, BERGAMOT)}


def model_obstacles(model: ModelSettings, target: Target) -> list[str]:
    """List what keeps a model from going to `target`; empty: nothing."""
    if not isinstance(model, TransformerSettings):
        return [f"model.type {model.type}: only transformer can be held"]
    found = []
    for name, values in target.held.items():
        owner, _, part = name.rpartition(".")
        owning = getattr(model, owner) if owner else model
        if not hasattr(owning, part):  # of another type, which is named itself
            continue
        value = getattr(owning, part)
        value = getattr(value, "type", value)
        if name == "head_dim" and value is not None and value * model.num_heads == model.d_model:
            value = None
        if value not in values:
            held = " or ".join("the default" if one is None else _text(one) for one in values)
            found.append(f"model.{name} {_text(value)}: expected {held}")
    for name, number in target.multiples.items():
        value = getattr(model, name)
        if value % number:
            found.append(f"model.{name} {value}: expected a multiple of {number}")
    return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def obstacles(config: Config, target: Target) -> list[str]:
    """List what keeps a run of these settings from going to `target`; empty: nothing."""
    found = model_obstacles(config.model, target)
    if target.shares_vocabulary and not config.tokenizer.joint:
        found.append("tokenizer.joint false: expected one vocabulary for both languages")
    if config.data.reverse_target:
        found.append("data.reverse_target: the program writes from left to right only")
    if config.data.document is not None:
        found.append("data.document: the program translates single sentences")
    tags = config.data.language_tags
    if tags is not None and target.tags == "none":
        found.append("data.language_tags: the program knows one direction")
    elif tags is not None and target.tags == "target" and tags.source != "none":
        found.append(
            "data.language_tags: expected source none and target true: the program can give the "
            "first token of the target alone"
        )
    elif tags is not None and target.tags == "opus" and not tags.are_of_opus:
        found.append(
            "data.language_tags: expected source target, target false and form >>{}<<, which the "
            "program's tokenizer reads"
        )
    return found


def check_exportable(config: Config, target: Target) -> TransformerSettings:
    """Return the settings of a model that `target` can hold.

    Raises:
        ConfigError: With all reasons why it cannot.
    """
    found = obstacles(config, target)
    if found or not isinstance(config.model, TransformerSettings):
        raise ConfigError(
            "\n".join([f"{config.name} cannot be exported to {target.name}:", *found])
        )
    return config.model


def length_exponent(kind: LengthPenaltyKind, strength: float) -> float:
    """Return the exponent of the length that is nearest to one of our length penalties.

    `gnmt` divides by (5 + length)^strength: the exponent has the same slope at 25 tokens.
    """
    return {"average": strength, "gnmt": strength * 25 / (5 + 25), "reward": 1.0}[kind]

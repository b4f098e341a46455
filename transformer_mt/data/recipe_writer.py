"""Recipes (configs) for given text on a given machine, as `tmt init` writes them.

The sizes are those of the recipes in `recipes/`, where their evidence stands: `own_data_small`
without a GPU, `own_data` and `base` with one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import yaml
from tqdm import tqdm

from transformer_mt.config.language_codes import plain_code
from transformer_mt.config.sources import Source
from transformer_mt.data.pair_source import PairSource
from transformer_mt.errors import DataError
from transformer_mt.text.tokenizer_training import suggested_vocab_size

_LARGEST_SPLIT = 1000
_SPLIT_SHARE = 20
_TOKENS_PER_WORD = 1.3
_TOKENS_PER_IDEOGRAPH = 0.7
_IDEOGRAPH = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_SPACELESS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff]")
_MANY_CHARACTERS = 1500
"""Different ones; then the rare ones are better written as bytes than given a piece each."""

_MOST_WORDS = 50_000

_TOKENS_PER_SECOND = 1300
"""Target tokens in training of the small model, for each core, on an ordinary laptop."""
_MOST_MINUTES, _LEAST_MINUTES = 60, 10


@dataclass(frozen=True)
class TextFacts:
    """What decides the sizes.

    Attributes:
        num_pairs: Pairs without a blank side.
        num_tgt_tokens: Estimated number of target subwords.
        num_characters: Different characters of both sides.
        num_words: Different words of both sides, of two characters at least; counted to 50,000.
        head: The first pairs.
    """

    num_pairs: int
    num_tgt_tokens: int
    num_characters: int
    num_words: int
    head: list[tuple[str, str]]

    @property
    def mean_tgt_tokens(self) -> float:
        """Subwords of a target."""
        return self.num_tgt_tokens / self.num_pairs


@dataclass(frozen=True)
class Plan:
    """Sizes chosen for a text and a machine.

    Attributes:
        split_valid: Validation pairs.
        split_test: Test pairs.
        vocab_size: Of both languages.
        minutes: Time of training; None: the passes decide.
        passes: How often the text is read.
        size: Name of the model.
        budget: Setting that limits the whole run, and its value; None: there is no budget.
    """

    split_valid: int
    split_test: int
    vocab_size: int
    minutes: float | None
    passes: float
    size: str
    budget: tuple[str, float] | None = None


def measure_text(source: PairSource) -> TextFacts:
    """Read all pairs once.

    Raises:
        DataError: If reading fails, or there is no pair.
    """
    num_pairs = 0
    num_tokens = 0.0
    characters: set[str] = set()
    words: set[str] = set()
    head: list[tuple[str, str]] = []
    for src, tgt in _with_progress(source):
        if not src.strip() or not tgt.strip():
            continue
        num_pairs += 1
        num_tokens += 1 + _TOKENS_PER_WORD * len(tgt.split())
        if not tgt.isascii():
            num_tokens += _TOKENS_PER_IDEOGRAPH * len(_IDEOGRAPH.findall(tgt))
            num_tokens += len(_SPACELESS.findall(tgt)) / 3
        if num_pairs <= 2000:
            head.append((src, tgt))
        characters.update(src, tgt)
        if len(words) < _MOST_WORDS:
            words.update(word for word in f"{src} {tgt}".split() if len(word) > 1)
    if not num_pairs:
        raise DataError(f"{source.describe()}: holds no sentence pairs")
    return TextFacts(num_pairs, round(num_tokens), len(characters), len(words), head)


def _with_progress(source: PairSource) -> Iterator[tuple[str, str]]:
    with tqdm(desc="count", unit=" pairs", unit_scale=True, disable=None) as bar:
        for number, pair in enumerate(source, 1):
            if number % 4096 == 0:
                bar.update(4096)
            yield pair


def plan(
    facts: TextFacts,
    *,
    num_processors: int,
    has_gpu: bool,
    minutes: float | None = None,
    budget: tuple[str, float] | None = None,
) -> Plan:
    """Choose sizes.

    Args:
        facts: The text.
        num_processors: Those that training may use.
        has_gpu: Whether it will run on a GPU.
        minutes: Time for training; default what the text needs, within an hour.
        budget: See `Plan`.
    """
    chosen = _sizes(facts, num_processors=num_processors, has_gpu=has_gpu, minutes=minutes)
    if budget is None or budget[0] == "budget_minutes":
        return replace(chosen, budget=budget)
    setting, value = budget
    tokens = value if setting == "max_total_tokens" else value * _MAX_TOKENS[chosen.size]
    passes = tokens / facts.num_tgt_tokens
    return replace(chosen, budget=budget, minutes=None, passes=passes)


def _sizes(facts: TextFacts, *, num_processors: int, has_gpu: bool, minutes: float | None) -> Plan:
    num_held_out = max(1, min(_LARGEST_SPLIT, facts.num_pairs // _SPLIT_SHARE))
    vocab_size = suggested_vocab_size(facts.num_pairs)
    if facts.num_words < _MOST_WORDS:  # no more pieces than the text has, with bytes and symbols
        vocab_size = min(vocab_size, 260 + facts.num_characters + facts.num_words)
    if facts.num_characters > _MANY_CHARACTERS:
        vocab_size = max(vocab_size, 8000)
    size = "tiny"
    if has_gpu:
        size = "small" if facts.num_pairs < 500_000 else "base"
        passes = 40.0 if size == "small" else 30.0
        return Plan(num_held_out, num_held_out, vocab_size, minutes, passes, size)
    # Processors beyond eight hardly help so small a model.
    per_minute = 60 * _TOKENS_PER_SECOND * min(num_processors, 8) ** 0.8
    if minutes is None:
        wanted = (20 if facts.num_pairs < 20_000 else 15) * facts.num_tgt_tokens / per_minute
        minutes = min(_MOST_MINUTES, max(_LEAST_MINUTES, 5 * round(wanted / 5)))
    passes = minutes * per_minute / facts.num_tgt_tokens
    return Plan(min(500, num_held_out), num_held_out, vocab_size, minutes, passes, size)


def write_recipe(
    name: str, source: Source, languages: tuple[str, str], facts: TextFacts, chosen: Plan
) -> str:
    """Write a commented config.

    Args:
        name: Of the run.
        source: The training text.
        languages: Codes of source and target.
        facts: What the text is like.
        chosen: The sizes.
    """
    settings = source.model_dump(exclude_defaults=True, exclude={"type"})
    train = yaml.safe_dump(settings, allow_unicode=True, sort_keys=False, width=10**6)
    lines = "".join(f"      {line}\n" for line in train.splitlines())
    src, tgt = (_quoted(code) for code in languages)
    many = facts.num_characters > _MANY_CHARACTERS
    coverage = _COVERAGE if many and {plain_code(c) for c in languages} & {"zh", "ja", "ko"} else ""
    return f"""\
# Written by `tmt init` for {facts.num_pairs:,} pairs of about {facts.mean_tgt_tokens:.0f} target
# tokens each. Every line may be changed.
#
#   tmt train --config {name}.yaml
#   tmt translate < input.txt
#   tmt evaluate --bleu
#
# `tmt config show {name}.yaml` prints all settings with their defaults.

name: {_quoted(name)}

data:
  src_lang: {src}
  tgt_lang: {tgt}
  train:
    - type: {source.type}
{lines}\
  # Taken out of the training text, by a hash of the source text: pairs to choose the best model by,
  # and others for the honest score at the end. In place of `split` a file may be named, as above.
  valid: {{split: {chosen.split_valid}}}
  test:
    test: {{split: {chosen.split_test}}}
  filters:
    # Found text is full of misaligned pairs, and a pair that is five times longer on one side is
    # hardly a translation.
    max_length_ratio: 5
    drop_duplicates: true

tokenizer:
  # Subword pieces: the more text, the more of them are seen often enough to be learned.
  vocab_size: {chosen.vocab_size}
{coverage}\

{_MODELS[chosen.size].format(dropout=_dropout(chosen.passes, facts.num_pairs, chosen.size))}
{_training(chosen, facts)}"""


_COVERAGE = """\
  # The rarest characters are written as bytes.
  character_coverage: 0.9995
"""

_MODELS = {
    "tiny": """\
model:
  # Small enough to be trained without a GPU.
  d_model: 128
  d_ff: 512
  num_heads: 4
  num_encoder_layers: 4
  num_decoder_layers: 4
  norm: pre
  positions: {{type: rotary}}
  # The more passes over the text, the more: 0.2 for ten, 0.25 for fifteen, 0.3 for thirty.
  dropout: {dropout}
""",
    "small": """\
model:
  d_model: 256
  d_ff: 1024
  num_heads: 4
  num_encoder_layers: 4
  num_decoder_layers: 4
  norm: pre
  # The less text, the more: 0.3 below 50,000 pairs, 0.1 from a million on.
  dropout: {dropout}
""",
    "base": """\
# The model is the paper's base: see `tmt config show`.
model:
  norm: pre
  dropout: {dropout}
""",
}

_MAX_TOKENS = {"tiny": 1024, "small": 4096, "base": 25_000}
_WARMUP = {"tiny": 300, "small": 1000, "base": 4000}

_RATES = {
    "tiny": """\
training:
  # Small updates: with little text, many steps are worth more than smooth ones.
  max_tokens: 1024
  optimizer: {type: muon}
  lr: 0.008
""",
    "small": """\
training:
  max_tokens: 4096
  lr: 0.001
""",
    "base": """\
training:
  max_tokens: 25000
  lr: 0.0007
""",
}
_FALLING = """\
  # Falls to zero just when the {end}, whatever the speed of the machine.
  schedule:
    type: linear
    warmup_steps: {warmup}
{share}  {limit}
  validation:
    every_steps: {every}
    beam_size: 1
"""
_UNTIL_NO_BETTER = """\
  schedule:
    type: inverse_sqrt
    warmup_steps: {warmup}
  # Whatever comes first: this, or ten validations without a better BLEU.
  {limit}
  validation:
    every_steps: {every}
    beam_size: 1
    patience: 10
"""


def _training(chosen: Plan, facts: TextFacts) -> str:
    """Write the settings of training."""
    num_updates = chosen.passes * facts.num_tgt_tokens / _MAX_TOKENS[chosen.size]
    every, budget = 1000 if chosen.size == "base" else 500, chosen.budget
    if budget is not None and chosen.minutes is None:  # time validates at shares of it by itself
        every = max(1, min(every, int(num_updates / 5)))
    rest = _UNTIL_NO_BETTER if budget is None and chosen.size != "tiny" else _FALLING
    return _RATES[chosen.size] + rest.format(
        limit=_limit(chosen),
        warmup=max(10, min(_WARMUP[chosen.size], round(num_updates / 8))),
        every=every,
        end="time is up" if budget is None else "budget is spent",
        share="" if budget is None else "    warmup_share: 0.1\n",
    )


def _limit(chosen: Plan) -> str:
    if chosen.budget is not None:
        setting, value = chosen.budget
        return f"{setting}: {value:g}" if setting == "budget_minutes" else f"{setting}: {value}"
    if chosen.minutes is not None:
        return f"max_minutes: {chosen.minutes:g}"
    return f"max_epochs: {chosen.passes:g}"


def _dropout(passes: float, num_pairs: int, size: str) -> float:
    if size == "tiny":
        return 0.3 if passes >= 25 else 0.25 if passes >= 12 else 0.2 if passes >= 7 else 0.1
    return 0.3 if num_pairs < 50_000 else 0.2 if num_pairs < 1_000_000 else 0.1


def _quoted(text: str) -> str:
    """Write a text as YAML reads it back: `no` is Norwegian and no truth value."""
    return yaml.safe_dump(text, allow_unicode=True, width=10**6).removesuffix("...\n").strip()

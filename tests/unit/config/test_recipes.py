"""Every recipe loads, is complete, and says only what differs from the defaults."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from transformer_mt.config.base import Settings
from transformer_mt.config.loading import RECIPES, list_recipes, load_config
from transformer_mt.config.model import LearnedPositions
from transformer_mt.config.unused import unused_settings

PATHS = sorted(RECIPES.rglob("*.yaml"))
NAMES = [path.relative_to(RECIPES).with_suffix("").as_posix() for path in PATHS]

recipes = pytest.mark.parametrize("path", PATHS, ids=NAMES)


def settings_given(group: Settings, place: str) -> Iterator[tuple[str, object, object]]:
    """Yield the place, value and default of each setting that the file gives, innermost first."""
    for name in group.model_fields_set:
        value, field = getattr(group, name), type(group).model_fields[name]
        inner = value if isinstance(value, list) else value.values() if name == "test" else [value]
        for item in inner:
            if isinstance(item, Settings):
                yield from settings_given(item, f"{place}.{name}")
        if name != "type" and not isinstance(value, Settings):
            yield f"{place}.{name}", value, field.default


def test_all_recipes_are_found() -> None:
    assert {
        "demo",
        "own_data",
        "own_data_small",
        "deploy_small",
        "reverse",
        "multi30k_tiny",
        "multi30k_small",
        "multi30k_deep_encoder",
        "tatoeba_small",
        "help_documents",
        "base",
        "big",
        "wmt14_en_fr_base",
        "wmt14_en_fr_big",
    } <= set(NAMES)


@recipes
def test_recipe_loads_under_its_own_name(path: Path) -> None:
    config = load_config(path)
    assert config.name == path.stem
    assert config.data.test, "a recipe ends with a score"
    assert unused_settings(config) == []


@recipes
def test_recipe_lists_no_default(path: Path) -> None:
    given = list(settings_given(load_config(path), path.stem))
    assert len(given) > 5
    assert [place for place, value, default in given if value == default] == []


def test_the_list_of_recipes_has_a_sentence_for_each() -> None:
    found = list_recipes()
    assert sorted(found) == sorted(NAMES)
    assert found["big"].startswith('The big model of "Attention Is All You Need" (Vaswani et al. 2')
    assert all(20 < len(sentence) < 160 and "\n" not in sentence for sentence in found.values())


@recipes
def test_recipe_says_how_to_run_it(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(RECIPES).with_suffix("").as_posix()
    name = "mine.yaml" if name.startswith(("own_data", "deploy")) else name
    assert f"tmt train --config {name}\n" in text
    assert max(map(len, text.splitlines())) <= 100


def test_base_and_big_are_the_papers_models() -> None:
    """Vaswani et al. 2017, sections 5 and 6 and the rows base and big of table 3."""
    for name, expected in {
        "base": (512, 2048, 8, 0.1, 100_000, 5, 37_000),
        "big": (1024, 4096, 16, 0.3, 300_000, 20, 37_000),
        "wmt14_en_fr_base": (512, 2048, 8, 0.1, 100_000, 5, 32_000),
        "wmt14_en_fr_big": (1024, 4096, 16, 0.1, 300_000, 20, 32_000),
    }.items():
        config = load_config(RECIPES / f"{name}.yaml")
        model, training = config.model, config.training
        assert (
            model.d_model,
            model.d_ff,
            model.num_heads,
            model.dropout,
            training.max_steps,
            training.checkpoints.keep_last,
            config.tokenizer.vocab_size,
        ) == expected
        assert (model.num_encoder_layers, model.num_decoder_layers) == (6, 6)
        assert (model.norm, model.tie_embeddings, model.activation) == ("post", "all", "relu")
        assert (training.max_tokens, training.label_smoothing) == (25_000, 0.1)
        assert (training.schedule.type, training.schedule.warmup_steps) == ("noam", 4000)
        adam = training.optimizer
        assert (adam.type, adam.beta1, adam.beta2, adam.eps) == ("adam", 0.9, 0.98, 1e-9)
        assert training.checkpoints.average == "last"
        decoding = config.decoding
        assert (decoding.beam_size, decoding.length_penalty) == (4, 0.6)
        assert (decoding.max_length_factor, decoding.max_length_offset) == (1.0, 50)
        assert (config.tokenizer.type, config.tokenizer.joint) == ("bpe", True)
        assert (model.attention_dropout, model.activation_dropout, model.norm_type) == (
            0,
            0,
            "layer",
        )
        assert (model.positions.type, model.init) == ("sinusoidal", "vaswani2017")
        assert (training.clip_norm, adam.weight_decay, training.schedule.scale) == (None, 0, 1)


ABLATIONS = {
    "table3_a_1_head": {"model.num_heads": 1},
    "table3_a_2_heads": {"model.num_heads": 2},
    "table3_a_8_heads": {"model.num_heads": 8},
    "table3_a_16_heads": {"model.num_heads": 16},
    "table3_b_key_size_8": {"model.key_dim": 8},
    "table3_b_key_size_16": {"model.key_dim": 16},
    "table3_c_2_layers": {"model.num_encoder_layers": 2, "model.num_decoder_layers": 2},
    "table3_c_6_layers": {"model.num_encoder_layers": 6, "model.num_decoder_layers": 6},
    "table3_c_width_64": {"model.d_model": 64},
    "table3_c_width_256": {"model.d_model": 256},
    "table3_c_inner_width_128": {"model.d_ff": 128},
    "table3_c_inner_width_512": {"model.d_ff": 512},
    "table3_d_no_dropout": {"model.dropout": 0.0},
    "table3_d_more_dropout": {"model.dropout": 0.3},
    "table3_d_no_smoothing": {"training.label_smoothing": 0.0},
    "table3_d_more_smoothing": {"training.label_smoothing": 0.2},
    "table3_e_learned_positions": {"model.positions": LearnedPositions(type="learned")},
}


def test_ablations_differ_from_their_base_in_what_their_row_says() -> None:
    """Vaswani et al. 2017, table 3, rows A to E."""
    folder = RECIPES / "ablations"
    assert {path.stem for path in folder.glob("*.yaml")} == {"table3_base", *ABLATIONS}
    base = load_config(folder / "table3_base.yaml")
    for name, changes in ABLATIONS.items():
        groups: dict[str, dict[str, object]] = {"model": {}, "training": {}}
        for setting, value in changes.items():
            group, _, key = setting.partition(".")
            groups[group][key] = value
        expected = base.model_copy(
            update={"name": name}
            | {group: getattr(base, group).model_copy(update=groups[group]) for group in groups}
        )
        assert load_config(folder / f"{name}.yaml") == expected
    assert base.training.checkpoints.average == "none"  # section 6.2


@recipes
def test_recipe_builds_its_model(path: Path) -> None:
    import torch

    from transformer_mt.models.build import build_model

    config = load_config(path)
    size = config.tokenizer.vocab_size
    with torch.device("meta"):
        model = build_model(config.model, src_vocab_size=size, tgt_vocab_size=size)
    assert all(weight.is_meta for weight in model.parameters())
    # The paper has 65 and 213 million, with other vocabularies: docs/paper.md.
    counted = {"base": 63_082_496, "big": 214_245_376}
    if path.stem in counted:
        assert sum(weight.numel() for weight in model.parameters()) == counted[path.stem]

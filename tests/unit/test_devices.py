"""Devices and precisions: what settings choose, and what is refused."""

from pathlib import Path

import pytest
import torch

from transformer_mt.config.loading import RECIPES, load_config
from transformer_mt.config.training import TrainingSettings
from transformer_mt.devices import check_precision, choose_device, choose_precision
from transformer_mt.errors import ConfigError
from transformer_mt.training.trainer import train


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_a_config_error(run_config):
    with pytest.raises(ConfigError, match=r"training\.device: 'cuda' is not there"):
        train(run_config(training__device="cuda"))
    assert not Path(run_config().training.runs_dir).exists()
    assert choose_device("auto").type in ("cpu", "mps")


def test_a_precision_that_the_device_lacks_is_a_config_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    with pytest.raises(ConfigError, match=r"training\.precision: cuda:0 has no bf16: set"):
        check_precision("bf16", torch.device("cuda", 0))
    check_precision("fp16", torch.device("cuda", 0))
    check_precision("bf16", torch.device("cpu"))


@pytest.mark.parametrize(
    "name",
    [
        "own_data", "multi30k_small", "tatoeba_small", "base", "big", "wmt14_en_fr_base",
        "wmt14_en_fr_big",
    ],
)  # fmt: skip
def test_recipes_for_a_gpu_take_16_bits_where_it_has_them(name, monkeypatch):
    recipe = load_config(RECIPES / f"{name}.yaml").training
    card = torch.device("cuda", 0)
    for capability, expected in (((9, 0), "bf16"), ((7, 5), "fp16"), ((6, 1), "fp32")):
        has_bf16 = expected == "bf16"
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda has=has_bf16, **_: has)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, has=capability: has)
        assert choose_precision(recipe, card) == expected
        # There is no loss scaling for sharded weights.
        sharded = recipe.model_copy(update={"parallel": "fsdp"})
        assert choose_precision(sharded, card) == ("bf16" if has_bf16 else "fp32")
    assert choose_precision(recipe, torch.device("cpu")) == "fp32"


def test_weights_in_bf16_go_with_auto_where_that_is_bf16(monkeypatch):
    settings = TrainingSettings(max_steps=1, precision="auto", weights="bf16")
    assert list(settings.contradictions()) == []
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    assert choose_precision(settings, torch.device("cuda", 0)) == "bf16"
    with pytest.raises(ConfigError, match=r"training\.precision auto is fp32 on cpu: set training"):
        choose_precision(settings, torch.device("cpu"))

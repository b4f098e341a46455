import pytest
import torch

from transformer_mt.benchmarks.lengths import (
    by_mask,
    encoder_step,
    fitted_exponent,
    layer_step,
    measure,
    settings_for,
)
from transformer_mt.config.model import TransformerSettings

CPU = torch.device("cpu")
SMALL = {"d_model": 8, "d_ff": 8, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1}


def test_the_exponent_of_a_power_law_is_found() -> None:
    lengths = [10, 20, 50]
    assert fitted_exponent(lengths, [3 * n**1.5 for n in lengths]) == pytest.approx(1.5)


def settings(pattern: str, length: int) -> TransformerSettings:
    chosen = settings_for(pattern, length)
    return TransformerSettings(**SMALL, encoder_pattern=chosen, decoder_pattern=chosen)


@pytest.mark.parametrize("pattern", ["full", "local", "strided", "fixed"])
def test_every_pattern_can_be_measured(pattern: str) -> None:
    chosen = settings(pattern, 100)
    for step in (
        layer_step(chosen, 100, device=CPU),
        layer_step(chosen, 100, device=CPU, way=by_mask),
        encoder_step(chosen, 100, device=CPU),
    ):
        cost = measure(step, device=CPU, repeats=1)
        assert cost.seconds > 0
        assert cost.memory_bytes >= 0


def test_memory_is_what_a_step_takes() -> None:
    def step() -> None:
        torch.ones(30 << 20, dtype=torch.uint8)

    assert measure(step, device=CPU, repeats=1).memory_bytes == pytest.approx(30 << 20, rel=0.1)

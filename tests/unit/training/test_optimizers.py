"""Adam against its formula, and weight decay; what all optimizers share is in test_muon.py."""

import pytest
import torch
from torch import nn

from transformer_mt.training.optimizers import (
    apply_update,
    build_adam,
    load_optimizer_tensors,
    optimizer_tensors,
    set_learning_rate,
)

BETA1, BETA2, EPS, LR = 0.9, 0.98, 1e-9, 0.01


def build(model, rule="adam", weight_decay=0.0):
    optimizer = build_adam(
        model.parameters(), rule, beta1=BETA1, beta2=BETA2, eps=EPS, weight_decay=weight_decay
    )
    set_learning_rate(optimizer, LR)
    return optimizer


def step(model, optimizer, seed):
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape, generator=generator)
    apply_update(optimizer, torch.tensor(0.0))


def test_adam_is_algorithm_1():
    model = nn.Linear(3, 4, bias=False)
    optimizer = build(model)
    weight = model.weight.detach().double().clone()
    mean, square = torch.zeros_like(weight), torch.zeros_like(weight)
    for number in range(1, 6):
        step(model, optimizer, seed=number)
        gradient = model.weight.grad.double()
        mean = BETA1 * mean + (1 - BETA1) * gradient
        square = BETA2 * square + (1 - BETA2) * gradient**2
        corrected = mean / (1 - BETA1**number)
        weight -= LR * corrected / ((square / (1 - BETA2**number)).sqrt() + EPS)
    torch.testing.assert_close(model.weight.detach().double(), weight, rtol=1e-5, atol=1e-6)


def test_adamw_shrinks_matrices_and_leaves_vectors():
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = build(model, "adamw", weight_decay=0.1)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    apply_update(optimizer, torch.tensor(0.0))
    for name, weight in model.named_parameters():
        factor = 1 - LR * 0.1 if weight.ndim == 2 else 1.0
        torch.testing.assert_close(weight.detach(), before[name] * factor)


def test_state_of_another_architecture_is_named():
    model, other = nn.Linear(3, 4), nn.Linear(5, 4)
    optimizer = build(model)
    step(model, optimizer, seed=1)
    wrong = load_optimizer_tensors(build(other), other, optimizer_tensors(optimizer, model))
    assert wrong == ["exp_avg.weight", "exp_avg_sq.weight"]


def test_fused_kernel_is_taken_on_this_device():
    assert build(nn.Linear(2, 2)).param_groups[0]["fused"]


@pytest.mark.parametrize("rule", ["adam", "adamw"])
def test_tied_weights_are_updated_once(rule):
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    assert sum(len(group["params"]) for group in build(model, rule).param_groups) == 1

"""Muon against torch's own, against singular values, and as one optimizer with AdamW."""

import pytest
import torch

from transformer_mt.models.build import build_model
from transformer_mt.training.muon import build_muon, orthogonalize
from transformer_mt.training.optimizers import (
    apply_update,
    build_adam,
    load_optimizer_tensors,
    optimizer_tensors,
    set_learning_rate,
)

LR, MOMENTUM = 0.01, 0.95
ADAM = {"beta1": 0.9, "beta2": 0.98, "eps": 1e-9}


@pytest.fixture
def make_model(run_config):
    def make(seed=1):
        torch.manual_seed(seed)
        return build_model(run_config().model, src_vocab_size=30, tgt_vocab_size=30)

    return make


def build(model, *, weight_decay=0.0, adamw_lr_ratio=1.0):
    arguments = {"weight_decay": weight_decay, "adamw_lr_ratio": adamw_lr_ratio}
    return build_muon(model, momentum=MOMENTUM, **arguments, **ADAM)


def build_kind(kind, model):
    if kind == "adam":
        return build_adam(model.parameters(), kind, weight_decay=0.0, **ADAM)
    return build(model, weight_decay=0.1)


def fill_gradients(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape, generator=generator)


def step(model, optimizer, seed, unusable=0.0):
    fill_gradients(model, seed)
    set_learning_rate(optimizer, LR)
    apply_update(optimizer, torch.tensor(unusable))


def weights_of(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("shape", [(8, 8), (8, 24), (3, 5)])
def test_orthogonalised_matrices_keep_their_singular_vectors_and_lose_their_values(shape):
    matrices = torch.randn(4, *shape, generator=torch.Generator().manual_seed(1))
    found = orthogonalize(matrices).float()
    for before, after in zip(matrices, found, strict=True):
        values = torch.linalg.svdvals(after)
        assert values.min() > 0.6
        assert values.max() < 1.3
        u, _, vh = torch.linalg.svd(before, full_matrices=False)
        middle = u.T @ after @ vh.T
        assert (middle - middle.diag().diag()).abs().max() < 0.1


@pytest.mark.parametrize(("is_fast", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_matrices_are_orthogonalised_in_bf16_only_where_that_is_fast(monkeypatch, is_fast, dtype):
    monkeypatch.setattr("transformer_mt.training.muon.multiplies_fast", lambda *_: is_fast)
    assert orthogonalize(torch.randn(2, 3, 5)).dtype == dtype


def test_each_matrix_of_the_layers_is_updated_as_by_torchs_own_muon(make_model):
    model, twin = make_model(), make_model()
    optimizer = build(model, weight_decay=0.1)
    for number in range(1, 4):
        step(model, optimizer, seed=number)
    # Fused projections are taken apart: each is a matrix of its own.
    parts = {"qkv": 3, "key_value": 2}
    for name, weight in twin.named_parameters():
        if ".layers." not in name or weight.ndim < 2:
            continue
        number_of = parts.get(name.split(".")[-2], 1)
        alone = [part.detach().clone() for part in weight.chunk(number_of)]
        theirs = torch.optim.Muon(
            alone,
            lr=LR,
            momentum=MOMENTUM,
            weight_decay=0.1,
            adjust_lr_fn="match_rms_adamw",
        )
        for number in range(1, 4):
            fill_gradients(twin, number)
            for part, gradient in zip(alone, weight.grad.chunk(number_of), strict=True):
                part.grad = gradient.clone()
            theirs.step()
        # torch's own computes in bf16; ours may not, or sums in another order in its stacks.
        found = model.get_parameter(name).detach()
        torch.testing.assert_close(found, torch.cat(alone), rtol=0.0, atol=0.05 * LR)


def test_all_other_weights_are_updated_as_by_adamw_at_their_share_of_the_rate(make_model):
    model, twin = make_model(), make_model()
    optimizer = build(model, weight_decay=0.1, adamw_lr_ratio=0.5)
    theirs = build_adam(twin.parameters(), "adamw", weight_decay=0.1, **ADAM)
    for number in range(1, 4):
        step(model, optimizer, seed=number)
        fill_gradients(twin, number)
        set_learning_rate(theirs, 0.5 * LR)
        theirs.step()
    others = [n for n, w in twin.named_parameters() if ".layers." not in n or w.ndim < 2]
    assert any("embedding" in name for name in others)
    for name in others:
        assert torch.equal(model.get_parameter(name), twin.get_parameter(name))


@pytest.mark.parametrize("kind", ["muon", "adam"])
def test_an_unusable_update_changes_nothing_to_the_bit(make_model, kind):
    model = make_model()
    optimizer = build_kind(kind, model)
    step(model, optimizer, seed=1)
    before = weights_of(model)
    state = {name: t.clone() for name, t in optimizer_tensors(optimizer, model).items()}
    fill_gradients(model, 2)
    for weight in model.parameters():
        weight.grad.fill_(torch.nan)
    apply_update(optimizer, torch.tensor(1.0))
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    assert all(torch.equal(t, state[n]) for n, t in optimizer_tensors(optimizer, model).items())
    step(model, optimizer, seed=3)
    assert not any(torch.equal(weight, before[name]) for name, weight in model.named_parameters())


@pytest.mark.parametrize("kind", ["muon", "adam"])
def test_saved_and_loaded_state_continues_to_the_bit(make_model, kind):
    model, other = make_model(), make_model(seed=2)
    optimizer = build_kind(kind, model)
    step(model, optimizer, seed=1)
    other.load_state_dict(model.state_dict())
    other_optimizer = build_kind(kind, other)
    tensors = {n: t.clone() for n, t in optimizer_tensors(optimizer, model).items()}
    assert load_optimizer_tensors(other_optimizer, other, tensors) == []
    for seed in (2, 3):
        step(model, optimizer, seed)
        step(other, other_optimizer, seed)
    found = weights_of(other)
    assert all(torch.equal(weight, found[name]) for name, weight in model.named_parameters())

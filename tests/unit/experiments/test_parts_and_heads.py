"""What the experiments on paths, gradients, heads, parts and positions compute, on known cases."""

import contextlib
import csv

import pytest
import torch
from typer.testing import CliRunner

from experiments import complexity, gradients, heads, parts
from experiments.__main__ import app
from experiments.complexity import LAYERS
from experiments.heads import attentions_of, mean_distances, measure_heads, without_head
from experiments.parts import PARTS, PartResult, built_without
from experiments.paths import longest_chain, path_length
from experiments.positions import turns
from transformer_mt.bundle import load_bundle
from transformer_mt.config.model import TransformerSettings
from transformer_mt.models import build
from transformer_mt.nn.positional_encoding import sinusoids
from transformer_mt.packing import Segments


@pytest.mark.parametrize(
    ("layer", "path"),
    [
        ("full", 1),
        ("local", 1),
        ("strided", 2),
        ("fixed", 2),
        ("lstm", 63),
        ("convolution", 32),
        ("dilated", 4),  # 2 + 6 + 18 + 54 = 80 tokens back
    ],
)
def test_paths_are_as_long_as_table_1_says(layer, path):
    assert complexity.path_of(layer, 64) == path


def test_only_a_recurrent_layer_has_more_operations_one_after_another_in_longer_sentences():
    growth = {
        layer: complexity.chain_of(layer, 48) - complexity.chain_of(layer, 24) for layer in LAYERS
    }
    assert growth.pop("lstm") >= 24
    assert set(growth.values()) == {0}


def test_chains_and_paths_are_counted():
    x = torch.ones(5, 1, requires_grad=True)
    y = x * 2
    assert longest_chain(y) == 2  # and the node that takes up the gradient
    assert longest_chain((y + 1) * 3 + x) == 5
    layer = [lambda x: x + x.roll(2, 0)]
    assert path_length(layer * 2, length=5, d_model=1) == 2
    with pytest.raises(ValueError, match="has not reached"):
        path_length(layer, length=5, d_model=1)


def test_gradients_of_a_linear_recurrence_and_of_sums_are_known():
    model = gradients.fresh_model(gradients.BY_DISTANCE["RNN"])
    rnn = model.encoder.layers[0].rnn
    with torch.no_grad():  # tanh is linear near 0, where nothing comes in
        rnn.weight_hh_l0.copy_(0.5 * torch.eye(64))
        rnn.weight_ih_l0.mul_(1e-6)
    found = gradients.by_distance(model, [torch.arange(3, 9)], of_decoder=False)
    assert found == pytest.approx([0.5**k for k in range(6)], rel=1e-3)
    settings, change = gradients.BY_DEPTH["Transformer, no norm"]
    model = gradients.fresh_model({**settings, "num_encoder_layers": 3})
    change(model)
    with torch.no_grad():
        for layer in model.encoder.layers:  # only the residual is left
            layer.self_attention.output.weight.zero_()
            layer.feed_forward.output.weight.zero_()
    assert gradients.by_depth(model, [torch.arange(3, 9)]) == pytest.approx([1, 1, 1, 1])


def small_transformer():
    settings = TransformerSettings(
        d_model=16, d_ff=32, num_heads=2, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0
    )
    torch.manual_seed(3)
    return build.build_model(settings, src_vocab_size=40, tgt_vocab_size=40).eval()


@torch.no_grad()
def logits_of(model, tgt):
    src, segments = torch.arange(4, 12), Segments.of([5, 3])
    memory = model.encode(src, segments)
    return model.decoder.project(model.decoder(tgt, Segments.of([4, 4]), memory)).view(2, 4, -1)


@pytest.mark.parametrize("part", list(PARTS)[1:])
def test_a_model_without_a_part_differs_and_decodes_step_by_step_as_it_was_trained(part):
    tgt = torch.tensor([2, 7, 8, 9, 2, 5, 6, 4])
    original = build.MODELS["transformer"]
    with built_without(part):
        model = small_transformer()
    assert build.MODELS["transformer"] is original
    found = logits_of(model, tgt)
    assert (found - logits_of(small_transformer(), tgt)).abs().max() > 1e-3
    with torch.no_grad():
        memory = model.encode(torch.arange(4, 12), Segments.of([5, 3]))
        state = model.decoder.init_state(memory, max_length=4)
        for place, tokens in enumerate(tgt.view(2, 4).unbind(1)):
            logits, state = model.decoder.step(tokens[:, None], state)
            same = torch.allclose(logits[:, 0], found[:, place], atol=1e-4)
            # With the future hidden again, only the last token sees what it saw in training.
            assert same == (part != "no mask") or place == 3


def test_heads_are_described_by_their_weights(tiny_bundle):
    weights = torch.zeros(1, 2, 3, 3)
    weights[0, 0] = torch.eye(3).roll(1, 0)  # the place before; the first looks at the last
    weights[0, 1] = 1 / 3
    assert mean_distances(weights.numpy())[0].tolist() == pytest.approx([4 / 3, 8 / 9])
    bundle = load_bundle(tiny_bundle)
    pairs = [([5, 6, 7], [8, 9]), ([9], [4, 5, 6, 7])]
    found = measure_heads(bundle, pairs)
    assert len(found) == 3 * 2 * 4
    encoder = [head for head in found if head.kind == "encoder"]
    # Random weights are nearly even over 4 and 2 keys: 4 and 2 queries of each.
    mean = sum(head.end for head in encoder) / len(encoder)
    assert mean == pytest.approx((4 * 1 / 4 + 2 * 1 / 2) / 6, abs=0.05)
    assert all(head.next == 0 for head in found if head.kind == "decoder")


@torch.no_grad()
def test_without_all_heads_attention_gives_its_bias(tiny_bundle):
    bundle = load_bundle(tiny_bundle)
    attention = attentions_of(bundle, "source")[0]
    x = torch.randn(3, 32)
    with contextlib.ExitStack() as removed:
        for head in range(4):
            removed.enter_context(without_head(attention, head))
        assert torch.equal(attention.output(x), attention.output.bias.expand(3, -1))
    assert not torch.equal(attention.output(x), attention.output.bias.expand(3, -1))


def test_sinusoids_of_a_place_further_on_are_turned_by_angles_of_the_distance_alone():
    table = sinusoids(50, 16).double()
    for k in (1, 7):
        torch.testing.assert_close(table[:-k] @ turns(k, 16).T, table[k:], atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("arguments", "num_rows"),
    [
        (["positions"], 64),
        (["parts"], len(PARTS)),
        (["gradients"], 9 * 12 + 7 * 4),
        (["heads", "--bleu-lines", "1"], 24),
    ],
)
def test_every_one_writes_a_picture_and_its_numbers(
    tmp_path, monkeypatch, tiny_bundle, arguments, num_rows
):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(parts, "measure_part", lambda part, _: PartResult(part, 9, 2.0, 20.0, 0.1))
    monkeypatch.setattr(heads, "bleu_of", lambda *_: 20.0)
    monkeypatch.setattr(gradients, "NUM_SENTENCES", 1)
    fresh = gradients.measure_fresh
    monkeypatch.setattr(gradients, "measure_fresh", lambda: fresh(length=12, depth=3))
    if arguments[0] == "heads":
        text = tiny_bundle.parent
        arguments = [*arguments, "--model", str(tiny_bundle)]
        arguments += ["--src", str(text / "first.src"), "--ref", str(text / "first.tgt")]
    result = CliRunner().invoke(app, [*arguments, "--output", str(tmp_path)])
    assert result.exit_code == 0, result.output
    (numbers,) = tmp_path.glob("*.csv")
    assert numbers.with_suffix(".svg").stat().st_size > 2000
    with numbers.open(newline="") as file:
        assert len(list(csv.DictReader(file))) == num_rows

"""One layer of each side, applied again and again."""

import pytest
import torch
from pydantic import ValidationError

from tests.tiny_runs import assert_resumes, train_whole, weights_at
from transformer_mt.bundle import load_bundle, load_weights, save_tensors, weights_of
from transformer_mt.config.model import TransformerSettings
from transformer_mt.models.build import build_model
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.nn.kernels.cpu_linear import prepack
from transformer_mt.packing import Segments

SMALL = {"d_model": 32, "d_ff": 48, "num_heads": 2, "num_encoder_layers": 3}
LENGTHS = [3, 5]


def small(**changes: object) -> Seq2Seq:
    torch.manual_seed(3)
    settings = TransformerSettings(**SMALL | changes, num_decoder_layers=2)
    return build_model(settings, src_vocab_size=9, tgt_vocab_size=9)


def states(model: Seq2Seq) -> torch.Tensor:
    segments = Segments.of(LENGTHS)
    return model(torch.arange(8), segments, torch.arange(8), segments)


def test_a_shared_layer_equals_as_many_equal_layers() -> None:
    shared, apart = small(share_layers=True), small()
    apart.load_state_dict(shared.state_dict())
    torch.testing.assert_close(states(shared.eval()), states(apart.eval()))


def test_its_weights_are_kept_once_and_found_again(tmp_path) -> None:
    model, other = small(share_layers=True), small(share_layers=True, init="radford2019")
    weights = weights_of(model)
    assert {name.split(".")[2] for name in weights if ".layers." in name} == {"0"}
    save_tensors(tmp_path / "x.safetensors", weights)
    load_weights(other, tmp_path / "x.safetensors")
    assert torch.equal(states(model.eval()), states(other.eval()))


def test_residual_outputs_are_scaled_by_depth_not_by_the_number_of_layers() -> None:
    deviations = [
        small(share_layers=shared, init="radford2019")
        .encoder.layers[0]
        .feed_forward.output.weight.std()
        for shared in (False, True)
    ]
    assert deviations[1].item() == pytest.approx(deviations[0].item(), rel=0.1)


@pytest.mark.parametrize("changes", [{"share_layers": True}, {"num_kv_heads": 1}])
@torch.inference_mode()
def test_prepacked_weights_compute_the_same(changes) -> None:
    model = small(d_model=512, **changes).eval()
    expected = states(model)
    prepack(model)
    torch.testing.assert_close(states(model), expected, atol=1e-4, rtol=1e-4)


def test_a_run_with_all_of_them_resumes_from_its_checkpoint(run_config, monkeypatch) -> None:
    """Shared layers, dropped layers, shared keys and another norm: as without interruption."""
    changes = {
        "model__num_encoder_layers": 2,
        "model__num_decoder_layers": 2,
        "model__share_layers": True,
        "model__layer_dropout": 0.4,
        "model__num_kv_heads": 1,
        "model__norm_type": "rms",
    }
    whole = train_whole(run_config, monkeypatch, **changes)
    run = assert_resumes(run_config, monkeypatch, whole, 3, **changes)
    assert not [name for name in weights_at(run, 6) if ".layers.1." in name]
    assert load_bundle(run / "best").config.model.share_layers


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_encoder_layers": 1, "num_decoder_layers": 1}, "nothing to share"),
        ({"init": "zhang2019"}, "zhang2019 scales each layer by its depth.*take vaswani2017"),
    ],
)
def test_shared_layers_that_make_no_sense_are_refused(changes, message) -> None:
    with pytest.raises(ValidationError, match=message):
        TransformerSettings(share_layers=True, **changes)


def test_shared_layers_cannot_be_sharded(run_config) -> None:
    with pytest.raises(ValidationError, match=r"with training\.parallel fsdp: take ddp"):
        run_config(model__share_layers=True, model__num_encoder_layers=2, training__parallel="fsdp")

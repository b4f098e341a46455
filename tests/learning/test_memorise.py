"""The first thing a sound model and trainer can do: learn a few pairs by heart."""

import pytest

from transformer_mt.training.trainer import train

RECURRENT = {"type": "recurrent", "d_model": 32, "dropout": 0.0}
MODELS = {
    "transformer": {"d_model": 32, "d_ff": 64, "num_heads": 2, "dropout": 0.0}
    | {"num_encoder_layers": 1, "num_decoder_layers": 1},
    "decoder_only": {"type": "decoder_only", "d_model": 32, "d_ff": 64, "num_heads": 2}
    | {"num_decoder_layers": 2, "dropout": 0.0, "loss_on": "both"},
    "bottleneck": RECURRENT | {"cell": "lstm", "attention": "none"},
    "additive": RECURRENT | {"cell": "gru", "attention": "additive"},
    "convolutional": {"type": "convolutional", "d_model": 32, "dropout": 0.0}
    | {"num_encoder_layers": 2, "num_decoder_layers": 2},
    "fed": RECURRENT | {"cell": "rnn", "attention": "dot", "input_feeding": True},
}


@pytest.mark.parametrize("name", MODELS)
def test_eight_pairs_are_memorised(run_config, name):
    source = {"type": "reverse", "num_pairs": 8, "seed": 5}
    result = train(
        run_config(
            data__train=[source],
            data__valid=source,
            data__filters={"drop_copies": False},
            model=MODELS[name],
            training__label_smoothing=0.0,
            training__lr=0.01,
            training__max_steps=200 if name == "bottleneck" else 100,
            training__log_every_steps=50,
            training__validation={"every_steps": 100, "num_samples": 0, "select_by": "loss"},
        )
    )
    assert result.scores["bleu"] > 99.99
    assert result.scores["loss_nats"] < 0.05

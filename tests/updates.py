"""Updates of small models on made-up pairs."""

from typing import Any

import numpy as np
import torch

from transformer_mt.data.pairs import TokenPairs, pack_pairs
from transformer_mt.models.build import build_model
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.training.distributed import World
from transformer_mt.training.gradients import Gradients
from transformer_mt.training.optimizers import build_adam
from transformer_mt.training.update import Updater
from transformer_mt.training.update_stats import UpdateStats


def some_pairs(num_pairs: int = 24) -> TokenPairs:
    """Random pairs of 1 to 19 of 30 tokens a side."""
    rng = np.random.default_rng(1)
    src, tgt = (
        [rng.integers(4, 30, rng.integers(1, 20)).tolist() for _ in range(num_pairs)]
        for _ in range(2)
    )
    return pack_pairs(src, tgt)


def fresh_model(settings: Any) -> Seq2Seq:
    """A model for them, with the same weights each time."""
    torch.manual_seed(1)
    return build_model(settings, src_vocab_size=30, tgt_vocab_size=30)


def updater_for(model: Seq2Seq, **changes: Any) -> Updater:
    """Plain Adam in fp32 on the CPU; `changes` are arguments of `Gradients`, or `clip_norm`."""
    usual = {
        "world": World(), "device": torch.device("cpu"), "precision": "fp32",
        "label_smoothing": 0.1,
    }  # fmt: skip
    clip_norm = changes.pop("clip_norm", None)
    gradients = Gradients(model, **usual | changes)
    return Updater(
        gradients,
        build_adam(model.parameters(), "adam", beta1=0.9, beta2=0.98, eps=1e-9, weight_decay=0.0),
        stats=UpdateStats((usual | changes)["world"], (usual | changes)["device"]),
        clip_norm=clip_norm,
    )

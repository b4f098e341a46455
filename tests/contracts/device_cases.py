"""What any device but the CPU needs: tensors of one place, and a program that does not wait.

`test_second_device.py` runs these in a process of their own: where torch has seen a second device,
a fork of the process can train no more.
"""

import pytest
import torch
from pydantic import TypeAdapter

from tests.contracts.test_decoder_contract import FAMILY, PATTERNS, VARIANTS, V
from tests.elsewhere import ELSEWHERE, elsewhere, moved
from tests.updates import some_pairs, updater_for
from transformer_mt.config.families import ModelSettings
from transformer_mt.data.batches import eval_batches
from transformer_mt.models.build import build_model
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.packing import Segments
from transformer_mt.search.beam_search import beam_search
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.training import optimizers

# Of the sparse patterns, one scheme of positions stands for all. Cells of torch call kernels that
# are neither on the CPU nor made of other operators.
MODELS = {
    name: settings
    for name, settings in (VARIANTS | FAMILY).items()
    if (name.split("-")[0] not in PATTERNS or set(name.split("-")) & {"full", "alibi"})
    and (settings.get("type") != "recurrent" or settings.get("cell") == "rnn")
}
search = beam_search.__wrapped__  # inference mode knows no tensors of one's own
CHOICE = "search/continuations.py: host = numbers.cpu().numpy()"
LENGTHS_COME = "nn/recurrent.py: ends_after = torch.bincount(lengths.cpu() - 1)"


def model_of(name: str) -> Seq2Seq:
    torch.manual_seed(1)
    changes = {"dropout": 0.0} | ({"layer_dropout": 0.0} if "layer_dropout" in MODELS[name] else {})
    settings = TypeAdapter(ModelSettings).validate_python(MODELS[name] | changes)
    return build_model(settings, src_vocab_size=V, tgt_vocab_size=V)


@pytest.mark.parametrize("name", MODELS)
def test_an_update_elsewhere_has_the_gradients_of_the_cpu_and_never_waits(name, monkeypatch):
    monkeypatch.setattr(optimizers, "_FUSED_DEVICES", ("cpu", ELSEWHERE.type))
    batches = list(eval_batches(some_pairs(8), max_tokens=60))
    assert len(batches) > 1
    num_tokens = sum(batch.num_tgt_tokens for batch in batches)
    model = model_of(name)
    losses = updater_for(model).gradients.accumulate(batches, num_tokens=num_tokens)
    with elsewhere() as waits:
        there = moved(model)
        updater = updater_for(there, clip_norm=1.0, device=ELSEWHERE)
        batches = [batch.to(ELSEWHERE) for batch in batches]
        waits.clear()
        found = updater.gradients.accumulate(batches, num_tokens=num_tokens)
        gradients = [weight.grad.clone() for weight in there.parameters()]
        updater.apply(found, num_tokens=num_tokens, lr=0.1)
        assert set(waits) <= ({LENGTHS_COME} if MODELS[name].get("type") == "recurrent" else set())
        torch.testing.assert_close(found.cpu(), losses)
        for gradient, weight in zip(gradients, model.parameters(), strict=True):
            torch.testing.assert_close(gradient.cpu(), weight.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_a_search_elsewhere_waits_for_its_choices_alone_and_finds_what_the_cpu_finds(name):
    model = model_of(name).eval()
    lengths = [4, 9, 1, 7]
    src, segments = torch.arange(sum(lengths)) % (V - 4) + 4, Segments.of(lengths)
    options = {
        "beam_size": 3,
        "length_penalty": LengthPenalty("gnmt", 1.0),
        "max_lengths": torch.tensor([6, 3, 5, 2]),
        "n_best": 2,
    }
    with torch.no_grad():
        expected = search(model.decoder, model.encoder(src, segments), **options)
        with elsewhere() as waits:
            model = moved(model)
            memory = model.encoder(src.to(ELSEWHERE), segments.to(ELSEWHERE))
            waits.clear()
            found = search(model.decoder, memory, **options, sync_every=4)
    assert [[one.tokens for one in own] for own in found] == [
        [one.tokens for one in own] for own in expected
    ]
    assert set(waits) == {CHOICE}

"""The one path from a model to its numbers."""

import math

import numpy as np
import pytest
import torch
from fake_decoders import BOS, CopyModel, packed

from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.data.batches import Batch
from transformer_mt.errors import DataError
from transformer_mt.evaluation import (
    Loss,
    judge,
    judge_own,
    translate_and_score,
    validation_loss,
)
from transformer_mt.models.batch_loss import batch_loss
from transformer_mt.translation.alignment import attention_of
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.scoring import token_log_probs
from transformer_mt.translation.translator import Translator

EOS = 3
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def bundle(tiny_bundle) -> Bundle:
    return load_bundle(tiny_bundle)


def token_pairs(bundle: Bundle, text) -> list[tuple[list[int], list[int]]]:
    sources, targets = (bundle.tokenizers.src.encode_batch(lines) for lines in text)
    return list(zip(sources, targets, strict=True))


def batch_of(pairs: list[tuple[list[int], list[int]]]) -> Batch:
    src, src_segments = packed([[*src, EOS] for src, _ in pairs])
    tgt_out, tgt_segments = packed([[*tgt, EOS] for _, tgt in pairs])
    tgt_in, _ = packed([[BOS, *tgt] for _, tgt in pairs])
    return Batch(
        src=src,
        src_segments=src_segments,
        tgt_in=tgt_in,
        tgt_out=tgt_out,
        tgt_segments=tgt_segments,
    )


def loss_of(bundle: Bundle, batches: list[Batch], *, label_smoothing: float = 0.1) -> Loss:
    return validation_loss(bundle.model, batches, device=CPU, label_smoothing=label_smoothing)


def test_validation_loss_equals_the_plain_formula(bundle, tiny_text):
    pairs = token_pairs(bundle, tiny_text)
    smoothed = nll = 0.0
    num_tokens = 0
    for pair in pairs:
        batch = batch_of([pair])
        _, segments = packed([pair[0] + [EOS]])
        _, tgt_segments = packed([pair[1] + [EOS]])
        with torch.no_grad():
            states = bundle.model(batch.src, segments, batch.tgt_in, tgt_segments)
            weight, _ = bundle.model.decoder.output_weight()
            logits = states @ weight.T
        smoothed += float(
            torch.nn.functional.cross_entropy(
                logits, batch.tgt_out, label_smoothing=0.1, reduction="sum"
            )
        )
        nll += float(torch.nn.functional.cross_entropy(logits, batch.tgt_out, reduction="sum"))
        num_tokens += len(batch.tgt_out)
    loss = loss_of(bundle, [batch_of(pairs[:7]), batch_of(pairs[7:])])
    assert loss.num_tokens == num_tokens
    assert loss.loss_nats == pytest.approx(smoothed / num_tokens, rel=1e-5)
    assert loss.nll_nats == pytest.approx(nll / num_tokens, rel=1e-5)
    assert loss.perplexity == pytest.approx(math.exp(nll / num_tokens), rel=1e-4)


def test_validation_loss_does_not_depend_on_batches(bundle, tiny_text):
    pairs = token_pairs(bundle, tiny_text)
    one = loss_of(bundle, [batch_of(pairs)])
    many = loss_of(bundle, [batch_of([pair]) for pair in reversed(pairs)])
    assert many.loss_nats == pytest.approx(one.loss_nats, rel=1e-5)
    assert many.nll_nats == pytest.approx(one.nll_nats, rel=1e-5)


def test_validation_loss_equals_the_forced_scores_of_the_translator(bundle, tiny_text):
    translator = Translator(bundle, SearchOptions.from_settings(bundle.config.decoding))
    scores = translator.scorer.score(*tiny_text)
    loss = loss_of(bundle, [batch_of(token_pairs(bundle, tiny_text))])
    total = sum(score.log_prob for score in scores)
    assert loss.nll_nats == pytest.approx(-total / loss.num_tokens, rel=1e-5)


def test_validation_runs_without_dropout_and_leaves_the_mode_of_the_model(bundle, tiny_text):
    batches = [batch_of(token_pairs(bundle, tiny_text))]
    quiet = loss_of(bundle, batches)
    bundle.model.train()
    try:
        assert loss_of(bundle, batches) == quiet
        assert bundle.model.training
    finally:
        bundle.model.eval()


def test_validation_without_pairs_is_an_error(bundle):
    with pytest.raises(DataError, match="validation set is empty"):
        loss_of(bundle, [])


def test_validation_computes_in_the_given_context(bundle, tiny_text):
    batches = [batch_of(token_pairs(bundle, tiny_text))]
    full = loss_of(bundle, batches)
    rounded = validation_loss(
        bundle.model,
        batches,
        device=CPU,
        label_smoothing=0.1,
        autocast=torch.autocast("cpu", dtype=torch.bfloat16),
    )
    assert rounded.loss_nats != full.loss_nats
    assert rounded.loss_nats == pytest.approx(full.loss_nats, rel=0.05)


def test_the_loss_of_a_batch_has_gradients(bundle, tiny_text):
    loss, nll = batch_loss(
        bundle.model, batch_of(token_pairs(bundle, tiny_text)), label_smoothing=0.1
    )
    loss.backward()
    try:
        weights = [w for w in bundle.model.parameters() if w.requires_grad]
        assert all(w.grad is not None for w in weights)
    finally:
        bundle.model.zero_grad(set_to_none=True)
    assert float(nll) > 0


def test_perplexity_of_a_hopeless_model_is_infinite():
    assert Loss(loss_nats=1e9, nll_nats=1e9, num_tokens=1).perplexity == math.inf


def test_perfect_translations_get_perfect_scores(bundle, tiny_text):
    sources, _ = tiny_text
    copying = Bundle(
        config=bundle.config,
        tokenizers=bundle.tokenizers,
        model=CopyModel(bundle.tokenizers.tgt.vocab_size).eval(),
    )
    translator = Translator(copying, SearchOptions.from_settings(bundle.config.decoding))
    evaluation = translate_and_score(
        translator, sources, sources, metrics=["bleu", "chrf", "ter"], tgt_lang="de"
    )
    assert evaluation.hypotheses == sources
    assert [round(score.value, 6) for score in evaluation.scores] == [100, 100, 0]
    assert [score.higher_is_better for score in evaluation.scores] == [True, True, False]
    assert all("version:" in score.signature for score in evaluation.scores)


def test_scores_belong_to_the_translations_that_come_with_them(bundle, tiny_text):
    from transformer_mt.metrics.scores import score

    translator = Translator(bundle, SearchOptions.from_settings(bundle.config.decoding))
    evaluation = translate_and_score(translator, *tiny_text, metrics=["chrf"], tgt_lang="de")
    translations = translator.translate(tiny_text[0])
    assert evaluation.hypotheses == [translation.text for translation in translations]
    expected = score(evaluation.hypotheses, tiny_text[1], metrics=["chrf"], tgt_lang="de")
    assert evaluation.scores == expected


@pytest.mark.parametrize(
    ("sources", "references", "words"),
    [
        ([], [], "test set is empty"),
        (["a", "b"], ["c"], "2 sources have 1 references"),
    ],
)
def test_test_sets_that_cannot_be_scored_are_errors(bundle, sources, references, words):
    translator = Translator(bundle, SearchOptions.from_settings(bundle.config.decoding))
    with pytest.raises(DataError, match=words):
        translate_and_score(translator, sources, references, metrics=["bleu"], tgt_lang="de")


def test_a_judgement_is_made_of_token_probabilities_and_of_attention(bundle, tiny_text):
    translator = Translator(bundle, SearchOptions(beam_size=2))
    own = translator.translate([*tiny_text[0][:5], ""])
    judged = judge_own(translator, own)
    parts = [found.n_best[0].parts[0] for found in own[:5]]
    log_probs = token_log_probs(bundle, [(part.source, part.target) for part in parts])
    expected = [math.exp(sum(of_tokens) / len(of_tokens)) for of_tokens in log_probs]
    assert judged.confidences == pytest.approx([*expected, 1], rel=1e-4)
    attention = attention_of(translator, [found.n_best[0] for found in own])
    coverage = [np.log(np.minimum(found.weights.sum(0), 1)).mean() for found in attention[:5]]
    assert judged.coverage == pytest.approx([*coverage, 0], rel=1e-4)

    lines = [found.text for found in own[:5]]
    of_text = judge(translator, tiny_text[0][:5], lines)
    scored = translator.scorer.score(tiny_text[0][:5], lines)
    expected = [math.exp(score.log_prob / len(score.tokens)) for score in scored]
    assert of_text.confidences == pytest.approx(expected)
    assert judge(translator, tiny_text[0][:1], ["Hund"]).coverage[0] < -0.1


def test_a_line_too_long_to_judge_has_no_confidence(bundle):
    translator = Translator(bundle, SearchOptions(beam_size=2))
    judged = judge(translator, ["the dog"] * 2, ["der Hund", "Hund " * 9999])
    assert judged.confidences[0] > 0
    assert judged.confidences[1] is None

"""The tree that a search leaves behind, and all attention of a pair."""

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from fake_decoders import EOS, TableDecoder, memory_of

from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.models.ensemble import ensemble
from transformer_mt.search.beam_search import beam_search
from transformer_mt.search.continuations import select_best
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.search.trace import Node, Trace
from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.scoring import all_attention, token_log_probs
from transformer_mt.translation.translator import Translator


@pytest.fixture(scope="module")
def bundle(tiny_bundle) -> Bundle:
    return load_bundle(tiny_bundle)


def traced(beam_size: int, *, seed: int = 0) -> tuple[list[int], Trace]:
    """Search with a decoder of 12 tokens; return the best target with eos."""
    trace = Trace(LengthPenalty())
    ((best,),) = beam_search(
        TableDecoder(12, seed=seed),  # type: ignore[arg-type]
        memory_of([[5, 6, 7]]),
        beam_size=beam_size,
        length_penalty=LengthPenalty(),
        max_lengths=torch.tensor([9]),
        select=trace.watch(select_best),
    )
    return [*best.tokens, EOS], trace


def depth(trace: Trace, node: Node) -> int:
    return 1 if node.parent is None else 1 + depth(trace, trace.nodes[node.parent])


@pytest.mark.parametrize("beam_size", [1, 4, 20])
def test_each_step_keeps_the_most_probable_hypotheses_and_shows_those_that_were_cut(beam_size):
    for seed in range(20):
        _, trace = traced(beam_size, seed=seed)
        parents = {node.parent for node in trace.nodes}
        assert all(trace.nodes[i].kept for i in parents if i is not None)
        assert not any(trace.nodes[i].score for i in parents if i is not None)
        num_open = beam_size
        by_step = itertools.groupby(trace.nodes, partial(depth, trace))
        for _, step in by_step:
            nodes = list(step)
            kept = [node for node in nodes if node.kept]
            cut = [node for node in nodes if not node.kept]
            assert 1 <= len(kept) <= num_open
            assert len(nodes) <= 2 * num_open
            assert min(node.total for node in kept) >= max((n.total for n in cut), default=-np.inf)
            assert len({(node.parent, node.token) for node in nodes}) == len(nodes)
            num_open -= sum(node.score is not None for node in kept)
        for node in trace.nodes:
            before = 0.0 if node.parent is None else trace.nodes[node.parent].total
            assert node.total == pytest.approx(before + node.log_prob, abs=1e-5)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_winner_has_the_best_score_of_all_that_ended(beam_size):
    for seed in range(20):
        target, trace = traced(beam_size, seed=seed)
        path = trace.path(target)
        assert [trace.nodes[i].token for i in path] == target
        assert [trace.nodes[i].parent for i in path] == [None, *path[:-1]]
        ended = [n.score for n in trace.nodes if n.kept and n.score is not None]
        assert trace.nodes[path[-1]].score == max(ended)


@pytest.mark.parametrize("turned", [False, True])
def test_the_winner_is_the_translation_with_its_forced_scores(bundle, tiny_text, turned):
    data = bundle.config.data.model_copy(update={"reverse_target": turned})
    config = bundle.config.model_copy(update={"data": data})
    same = Bundle(**{**vars(bundle), "config": config})
    translator = Translator(same, SearchOptions(max_length_offset=8))
    for line in tiny_text[0][:8]:
        best = translator.translate([line])[0].n_best[0]
        (part,) = best.parts
        winner, trace = translator.trace(part.source)
        assert winner.tokens == (part.target[::-1] if turned else part.target)
        nodes = [trace.nodes[i] for i in trace.path([*winner.tokens, EOS_ID])]
        (forced,) = token_log_probs(bundle, [(part.source, winner.tokens)])
        assert [node.log_prob for node in nodes] == pytest.approx(forced, abs=1e-4)
        assert nodes[-1].score == pytest.approx(best.score, abs=1e-4)


def test_a_trace_is_of_one_sentence():
    trace = Trace(LengthPenalty())
    with pytest.raises(ValueError, match="one sentence"):
        beam_search(
            TableDecoder(12),  # type: ignore[arg-type]
            memory_of([[5], [6]]),
            beam_size=2,
            length_penalty=LengthPenalty(),
            max_lengths=torch.tensor([9, 9]),
            select=trace.watch(select_best),
        )


def test_all_attention_sums_to_one_and_the_target_sees_no_future(bundle):
    source, target = bundle.tokenizers.src.encode("The dog runs."), [7, 8, 9]
    joined = replace(bundle, model=ensemble([bundle.model], [1.0]))
    found = all_attention(joined, (source, target))
    size, length = len(source) + 1, len(target) + 1
    shapes = [(2, 4, size, size), (2, 4, length, length), (2, 4, length, size)]
    for weights, shape in zip((found.encoder, found.decoder, found.source), shapes, strict=True):
        assert weights.shape == shape
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    assert not np.triu(found.decoder, 1).any()
    assert (np.tril(found.decoder) > 0).sum() == 2 * 4 * length * (length + 1) / 2

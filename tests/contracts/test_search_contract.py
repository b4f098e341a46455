"""What search promises with every decoder: made-up ones, and all that `models.build` knows."""

import random
from collections.abc import Callable

import pytest
import torch
from fake_decoders import BANNED, BOS, EOS, GruDecoder, TableDecoder, memory_of, packed
from pydantic import TypeAdapter

from transformer_mt.config.families import ModelSettings
from transformer_mt.models.build import build_model
from transformer_mt.models.interfaces import Decoder, Memory
from transformer_mt.nn import decode_cache
from transformer_mt.nn.decode_cache import StepLayout
from transformer_mt.nn.kernels.cpu_linear import prepack
from transformer_mt.search.beam_search import beam_search
from transformer_mt.search.continuations import Prefixes
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.translation.scoring import score_targets

VOCAB_SIZE = 100
Case = tuple[Decoder, Callable[[list[list[int]]], Memory]]


def transformer(device: str = "cpu", *, prepacked: bool = False, **settings) -> Case:
    sizes = {"d_ff": 64, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2}
    return built(device, prepacked=prepacked, **sizes, **settings)


def built(device: str = "cpu", *, prepacked: bool = False, **settings) -> Case:
    common = {"d_model": 32, "tie_embeddings": "none"}
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = build_model(
            TypeAdapter(ModelSettings).validate_python(common | settings),
            src_vocab_size=VOCAB_SIZE,
            tgt_vocab_size=VOCAB_SIZE,
        ).eval()
    with torch.no_grad():
        # Sharper than fresh weights; and ends are likely enough to come at different times.
        model.decoder.output_weight()[0].mul_(5.0)
        model.decoder.output_weight()[0][EOS].mul_(2.0)
    model.to(device)
    if prepacked:
        prepack(model)

    def encode(sources: list[list[int]]) -> Memory:
        tokens, segments = packed(sources)
        if model.encoder.patch_size is not None:  # a picture of each token: its bits
            tokens = 255 * (tokens[:, None] >> torch.arange(model.encoder.patch_size) & 1).byte()
        return model.encode(tokens.to(device), segments.to(device))

    return model.decoder, encode


CASES: dict[str, Callable[[], Case]] = {
    "table": lambda: (TableDecoder(VOCAB_SIZE, spread=2.0), memory_of),
    "gru": lambda: (GruDecoder(VOCAB_SIZE).eval(), memory_of),
    "post-norm": lambda: transformer(norm="post"),
    "pre-norm": lambda: transformer(norm="pre"),
    "gated": lambda: transformer(activation="swiglu"),
    "prepacked": lambda: transformer(prepacked=True),
    "bottleneck": lambda: built(type="recurrent", attention="none", cell="lstm"),
    "recurrent": lambda: built(type="recurrent", attention="dot", prepacked=True),
    "fed": lambda: built(type="recurrent", attention="additive", input_feeding=True),
    "convolutional": lambda: built(
        type="convolutional", num_encoder_layers=2, num_decoder_layers=2, prepacked=True
    ),
    "decoder_only": lambda: built(
        type="decoder_only", d_ff=64, num_heads=4, num_decoder_layers=2, norm="pre"
    ),
    "patches": lambda: transformer(
        encoder_input={"type": "patches", "height": 8, "patch_width": 2}
    ),
    "learned positions": lambda: transformer(positions={"type": "learned", "max_length": 40}),
}


@pytest.fixture(scope="module", params=list(CASES))
def case(request) -> Case:
    return CASES[request.param]()


def sources_for_search(count: int = 12) -> list[list[int]]:
    rng = random.Random(4)
    return [
        [*(rng.randrange(4, VOCAB_SIZE) for _ in range(rng.randrange(1, 14))), EOS]
        for _ in range(count)
    ]


@torch.inference_mode()
def search(case: Case, sources: list[list[int]], *, beam_size: int, n_best: int = 1, **options):
    decoder, encode = case
    return beam_search(
        decoder,
        encode(sources),
        beam_size=beam_size,
        length_penalty=LengthPenalty(),
        max_lengths=torch.tensor([len(source) + 9 for source in sources]),
        n_best=n_best,
        **options,
    )


def test_search_scores_equal_forced_scores_of_the_same_targets(case):
    decoder, encode = case
    sources = sources_for_search()
    hypotheses = search(case, sources, beam_size=4, n_best=4)
    for rank in range(4):
        found = [best[rank] for best in hypotheses]
        tgt_in, segments = packed([[BOS, *h.tokens] for h in found])
        tgt_out, _ = packed([[*h.tokens, EOS] for h in found])
        with torch.inference_mode():
            log_probs = score_targets(
                decoder, encode(sources), tgt_in=tgt_in, tgt_out=tgt_out, segments=segments
            )
        parts = log_probs.split(segments.lengths.tolist())
        for hypothesis, part in zip(found, parts, strict=True):
            assert hypothesis.log_prob == pytest.approx(float(part.sum()), abs=1e-4)
            norm = ((5 + len(part)) / 6) ** 0.6
            assert hypothesis.score == pytest.approx(float(part.sum()) / norm, abs=1e-4)


def test_beam_of_one_takes_the_most_probable_token_each_time(case):
    decoder, encode = case
    sources = sources_for_search()
    for source, (found,) in zip(sources, search(case, sources, beam_size=1), strict=True):
        tgt_in, segments = packed([[BOS, *found.tokens]])
        with torch.inference_mode():
            logits = decoder.project(decoder(tgt_in, segments, encode([source])))
            logits[:, list(BANNED)] = -torch.inf
        best = logits.argmax(dim=1).tolist()
        if len(found.tokens) == len(source) + 8:  # at the greatest length eos is not a choice
            best[-1] = EOS
        assert [*found.tokens, EOS] == best


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_sentence_does_not_notice_its_batch(case, beam_size):
    sources = sources_for_search()
    expected = search(case, sources, beam_size=beam_size, n_best=beam_size)
    order = random.Random(5).sample(range(len(sources)), len(sources))
    shuffled = search(case, [sources[i] for i in order], beam_size=beam_size, n_best=beam_size)
    alone = [search(case, [s], beam_size=beam_size, n_best=beam_size)[0] for s in sources[:4]]
    pairs = [(shuffled[place], expected[line]) for place, line in enumerate(order)]
    for found, wanted in (*pairs, *zip(alone, expected, strict=False)):
        assert [h.tokens for h in found] == [h.tokens for h in wanted]
        assert [h.score for h in found] == pytest.approx([h.score for h in wanted], abs=1e-4)


@pytest.mark.parametrize("name", ["post-norm", "prepacked"])
def test_steps_over_open_hypotheses_alone_find_the_same(name, monkeypatch):
    case, sources = CASES[name](), sources_for_search()
    num_rows: list[int] = []

    def watched(layout: StepLayout, block: torch.Tensor) -> torch.Tensor:
        num_rows.append(len(rows(layout, block)) - len(block))
        return rows(layout, block)

    rows = StepLayout.rows
    monkeypatch.setattr(StepLayout, "rows", watched)
    found = []
    for least in (1, 1000):
        monkeypatch.setattr(decode_cache, "_MANY_ROWS", least)
        found.append(search(case, sources, beam_size=4, n_best=4, processors=[ends_are_likelier]))
        assert (min(num_rows) < 0) == (least == 1)
        num_rows.clear()
    for one, other in zip(*found, strict=True):
        assert [h.tokens for h in one] == [h.tokens for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-5)


def ends_are_likelier(log_probs: torch.Tensor, prefixes: Prefixes) -> None:
    """Let hypotheses of a sentence end one after another."""
    log_probs[..., EOS].div_(4)


def test_what_a_device_chooses_by_itself_is_what_the_host_would_choose(case):
    sources = sources_for_search()
    expected = search(case, sources, beam_size=3, n_best=3)
    found = search(case, sources, beam_size=3, n_best=3, sync_every=4)
    for here, there in zip(expected, found, strict=True):
        assert [h.tokens for h in there] == [h.tokens for h in here]
        assert [h.score for h in there] == pytest.approx([h.score for h in here], abs=1e-4)


def test_the_cases_end_at_different_lengths(case):
    lengths = {len(best[0].tokens) for best in search(case, sources_for_search(), beam_size=4)}
    assert len(lengths) > 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_gpu_finds_what_the_cpu_finds(norm):
    sources = sources_for_search()
    expected = search(transformer(norm=norm), sources, beam_size=4, n_best=4)
    for sync_every in (1, 4):
        case = transformer("cuda", norm=norm)
        found = search(case, sources, beam_size=4, n_best=4, sync_every=sync_every)
        for here, there in zip(expected, found, strict=True):
            assert [h.tokens for h in there] == [h.tokens for h in here]
            assert [h.score for h in there] == pytest.approx([h.score for h in here], abs=1e-3)

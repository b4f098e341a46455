"""Beam search of other programs, made ready to translate with our weights: from ids to ids.

Each takes the command line of `decode_engines`, loads the model, and returns the ways to run it and
a function that makes one of them ready. They import their program themselves: CTranslate2's process
imports no torch, as its users' do not, and the toolkits are in interpreters of their own.
"""

import argparse
import importlib
import itertools
import json
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from transformer_mt.config.loading import load_config
from transformer_mt.text.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.text.tokenizer import Tokenizers

if TYPE_CHECKING:
    from torch import Tensor

PRECISIONS = {
    "Hugging Face": ("fp32", "bf16"),
    "CTranslate2": ("fp32", "int8"),
    "Eole": ("fp32", "bf16"),
    "Joey NMT": ("fp32",),
    "fairseq": ("fp32",),
}
"""What they have on a CPU."""
PACKAGES = {
    "Hugging Face": "transformers",
    "CTranslate2": "ctranslate2",
    "Eole": "eole",
    "Joey NMT": "joeynmt",
    "fairseq": "fairseq-fixed",
}
TOOLKITS = ("Eole", "Joey NMT", "fairseq")
"""Those in interpreters of their own."""

Setup = dict[str, Any]
Translate = Callable[[Sequence[list[int]]], list[list[int]]]
"""From sources without eos to targets without eos."""
Ready = Callable[[Setup, int], Translate]
"""From a way to run it and the size of the beam."""


def hugging_face(options: argparse.Namespace) -> tuple[list[Setup], Ready]:
    """Load the model; return the ways to run it, and a function that makes one of them ready."""
    import torch
    from peer_models import plain_transformer, to_hugging_face

    from transformer_mt.bundle import load_bundle

    settings = load_config(options.model / "config.yaml")
    architecture = plain_transformer(settings.model)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[options.precision]
    model = to_hugging_face(load_bundle(options.model).model, architecture).to(dtype)
    # Fused attention is slow in bf16 on CPUs (see `gpu_peers.fastest_attention`).
    attentions = ("sdpa", "eager") if options.precision == "bf16" else ("sdpa",)
    setups = [
        {"batch": batch, "attention": attention}
        for batch, attention in itertools.product(options.batches, attentions)
    ]

    @torch.inference_mode()
    def translate_batch(sources: Sequence[list[int]], beam_size: int) -> list[list[int]]:
        """Translate sentences of similar length."""
        src = _padded(sources, pad_id=PAD_ID, eos_id=EOS_ID)
        output = model.generate(
            input_ids=src,
            attention_mask=(src != PAD_ID).long(),
            num_beams=beam_size,
            do_sample=False,
            early_stopping=False,
            length_penalty=settings.decoding.length_penalty if beam_size > 1 else 1.0,
            max_new_tokens=_limit(settings.decoding, sources),
            suppress_tokens=[PAD_ID, UNK_ID, BOS_ID],
        )
        return [_until_eos(row[1:]) for row in output.tolist()]

    def ready(setup: Setup, beam_size: int) -> Translate:
        """Return a translator with some settings."""
        model.set_attn_implementation(setup["attention"])

        return _in_batches(translate_batch, beam_size, setup["batch"])

    return setups, ready


def ctranslate2(options: argparse.Namespace) -> tuple[list[Setup], Ready]:
    """Load the converted model; see `hugging_face`."""
    engine = importlib.import_module("ctranslate2")
    decoding = load_config(options.model / "config.yaml").decoding
    tokenizers = Tokenizers.load(options.model)
    ids = tokenizers.tgt.ids
    # Several sentences at once on one thread each, or one after another on all threads.
    setups = [
        {"batch": batch, "workers": workers}
        for batch, workers in itertools.product(options.batches, sorted({1, options.threads}))
    ]
    loaded: dict[int, Any] = {}

    def ready(setup: Setup, beam_size: int) -> Translate:
        """Return a translator with some settings."""
        workers = setup["workers"]
        if workers not in loaded:
            loaded.clear()  # never two copies of the weights
            loaded[workers] = engine.Translator(
                str(options.converted),
                device="cpu",
                compute_type={"fp32": "float32", "int8": "int8"}[options.precision],
                inter_threads=workers,
                intra_threads=max(1, options.threads // workers),
            )

        def translate(sources: Sequence[list[int]]) -> list[list[int]]:
            """Translate sentences; the engine makes the batches."""
            results = loaded[workers].translate_batch(
                [tokenizers.src.pieces(source) for source in sources],
                beam_size=beam_size,
                length_penalty=decoding.length_penalty,
                max_batch_size=setup["batch"],
                max_decoding_length=_limit(decoding, sources),
                suppress_sequences=[[tokenizers.tgt.pieces([i])[0]] for i in (PAD_ID, BOS_ID)],
                disable_unk=True,
            )
            return [[ids[piece] for piece in result.hypotheses[0]] for result in results]

        return translate

    return setups, ready


def eole(options: argparse.Namespace) -> tuple[list[Setup], Ready]:
    """Load the converted model; see `hugging_face`. Its engine makes batches of similar length."""
    run, engines = (
        importlib.import_module(f"eole.{name}") for name in ("config.run", "inference_engine")
    )
    decoding = load_config(options.model / "config.yaml").decoding
    tokenizers = Tokenizers.load(options.model)
    ids, end = tokenizers.tgt.ids, tokenizers.src.pieces([EOS_ID])[0]
    engine = engines.InferenceEnginePY(
        run.PredictConfig(
            model_path=str(options.converted),
            src="",
            transforms=[],
            compute_dtype=options.precision,
            length_penalty="wu",
            alpha=decoding.length_penalty,
            max_length_ratio=0,  # the limit is told with each call
            ban_unk_token=True,
        )
    )

    def ready(setup: Setup, beam_size: int) -> Translate:
        """Return a translator with some settings."""

        def translate(sources: Sequence[list[int]]) -> list[list[int]]:
            """Translate sentences."""
            engine.config.batch_size = setup["batch"]
            lines = [" ".join([*tokenizers.src.pieces(source), end]) for source in sources]
            limits = {"beam_size": beam_size, "max_length": _limit(decoding, sources)}
            _, _, results = engine.infer_list(lines, settings=limits)
            return [[ids[piece] for piece in best.split(" ") if piece] for best, *_ in results]

        return translate

    return [{"batch": batch} for batch in options.batches], ready


def joeynmt(options: argparse.Namespace) -> tuple[list[Setup], Ready]:
    """Load the converted model; see `hugging_face`."""
    import torch

    batches, models, searches, vocabularies = (
        importlib.import_module(f"joeynmt.{name}")
        for name in ("batch", "model", "search", "vocabulary")
    )
    decoding = load_config(options.model / "config.yaml").decoding
    config, weights, to_theirs, to_ours = _converted(options)
    pieces = config["vocabulary"]
    special = {"unk": 0, "pad": 1, "bos": BOS_ID, "eos": EOS_ID}
    vocabulary = vocabularies.Vocabulary(
        pieces,
        SimpleNamespace(
            **{f"{name}_id": i for name, i in special.items()},
            **{f"{name}_token": pieces[i] for name, i in special.items()},
            **{"sep_id": None, "sep_token": None, "lang_tags": []},
        ),
    )
    model = models.build_model(config["model"], vocabulary, vocabulary).eval()
    model.load_state_dict(weights)
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-5  # ours; it has no setting for it

    def translate_batch(sources: Sequence[list[int]], beam_size: int) -> list[list[int]]:
        """Translate sentences of similar length."""
        rows = [[to_theirs[i] for i in source] for source in sources]
        src = _padded(rows, pad_id=special["pad"], eos_id=EOS_ID)
        batch = batches.Batch(
            src=src,
            src_length=(src != special["pad"]).sum(1),
            src_prompt_mask=None,
            trg=None,
            trg_prompt_mask=None,
            indices=torch.arange(len(sources)),
            device=torch.device("cpu"),
            pad_index=special["pad"],
            eos_index=EOS_ID,
            is_train=False,
        )
        output, _, _ = searches.search(
            model,
            batch,
            max_output_length=_limit(decoding, sources),
            beam_size=beam_size,
            beam_alpha=decoding.length_penalty,
            generate_unk=False,
            min_output_length=0,
        )
        return [
            [to_ours[i] for i in _until_eos(row) if i != special["pad"]] for row in output.tolist()
        ]

    def ready(setup: Setup, beam_size: int) -> Translate:
        """Return a translator with some settings."""
        return _in_batches(translate_batch, beam_size, setup["batch"])

    return [{"batch": batch} for batch in options.batches], ready


def fairseq(options: argparse.Namespace) -> tuple[list[Setup], Ready]:
    """Load the converted model; see `hugging_face`."""
    data, transformers, generators = (
        importlib.import_module(f"fairseq.{name}")
        for name in ("data", "models.transformer", "sequence_generator")
    )
    decoding = load_config(options.model / "config.yaml").decoding
    config, weights, to_theirs, to_ours = _converted(options)
    bos, pad, eos, unk = config["vocabulary"][:4]
    dictionary = data.Dictionary(bos=bos, pad=pad, eos=eos, unk=unk)
    for piece in config["vocabulary"][4:]:
        dictionary.add_symbol(piece)
    arguments = argparse.Namespace(**config["model"])
    transformers.base_architecture(arguments)  # fills in the rest
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    model = transformers.TransformerModel.build_model(arguments, task).eval()
    model.load_state_dict(weights)
    model.make_generation_fast_()

    def ready(setup: Setup, beam_size: int) -> Translate:
        """Return a translator with some settings."""
        generator = generators.SequenceGenerator(
            [model],
            dictionary,
            beam_size=beam_size,
            max_len_a=decoding.max_length_factor,
            max_len_b=int(decoding.max_length_offset),
            min_len=0,
            len_penalty=decoding.length_penalty,
            unk_penalty=math.inf,
            tokens_to_suppress=[bos],
        )

        def translate_batch(sources: Sequence[list[int]], beam_size: int) -> list[list[int]]:
            """Translate sentences of similar length."""
            rows = [[to_theirs[i] for i in source] for source in sources]
            src = _padded(rows, pad_id=dictionary.pad(), eos_id=dictionary.eos())
            lengths = (src != dictionary.pad()).sum(1)
            sample = {"net_input": {"src_tokens": src, "src_lengths": lengths}}
            found = generator.generate([model], sample, bos_token=dictionary.bos())
            return [[to_ours[i] for i in best["tokens"].tolist()[:-1]] for best, *_ in found]

        return _in_batches(translate_batch, beam_size, setup["batch"])

    return [{"batch": batch} for batch in options.batches], ready


def _converted(
    options: argparse.Namespace,
) -> tuple[dict[str, Any], dict[str, "Tensor"], list[int], list[int]]:
    """Read a model of `toolkit_models`: settings, weights, our ids as theirs, theirs as ours."""
    import torch

    config = json.loads((options.converted / "config.json").read_text(encoding="utf-8"))
    weights = torch.load(options.converted / "model.pt", weights_only=True)["model"]
    ours = Tokenizers.load(options.model).tgt
    to_ours = [ours.ids[piece] for piece in config["vocabulary"]]
    to_theirs = sorted(range(len(to_ours)), key=to_ours.__getitem__)
    return config, weights, to_theirs, to_ours


def _in_batches(
    translate_batch: Callable[[Sequence[list[int]], int], list[list[int]]],
    beam_size: int,
    num_sentences: int,
) -> Translate:
    """Return a translator that makes batches of similar length, and keeps the order."""

    def translate(sources: Sequence[list[int]]) -> list[list[int]]:
        """Translate sentences."""
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        found: list[list[int]] = [[] for _ in sources]
        for start in range(0, len(order), num_sentences):
            rows = order[start : start + num_sentences]
            targets = translate_batch([sources[i] for i in rows], beam_size)
            for i, target in zip(rows, targets, strict=True):
                found[i] = target
        return found

    return translate


def _padded(sources: Sequence[list[int]], *, pad_id: int, eos_id: int) -> "Tensor":
    import torch

    rows = [torch.tensor([*source, eos_id]) for source in sources]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad_id)


def _until_eos(row: list[int]) -> list[int]:
    return list(itertools.takewhile(lambda i: i != EOS_ID, row))


def _limit(decoding: Any, sources: Sequence[Sequence[int]]) -> int:
    longest = 1 + max(len(source) for source in sources)
    return int(longest * decoding.max_length_factor) + int(decoding.max_length_offset)


LOADERS: dict[str, Callable[[argparse.Namespace], tuple[list[Setup], Ready]]] = {
    "Hugging Face": hugging_face,
    "CTranslate2": ctranslate2,
    "Eole": eole,
    "Joey NMT": joeynmt,
    "fairseq": fairseq,
}

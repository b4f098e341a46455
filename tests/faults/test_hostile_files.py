"""Files from strangers: nothing in them is run, and none takes more memory than it has."""

import json
import math
import os
import random
import re
import resource
import shutil
import signal
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save
from torch import nn

from tests.commands import tmt
from transformer_mt.bundle import bundle_scores, load_bundle, load_weights, weights_of
from transformer_mt.config.loading import parse_config
from transformer_mt.data import lexicon
from transformer_mt.errors import ConfigError, ModelError, TmtError
from transformer_mt.locations import newest_run
from transformer_mt.log import MetricsLog, read_metrics
from transformer_mt.storage.folders import MANIFEST, kind_of, read_manifest
from transformer_mt.storage.locks import remove_temporaries
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.training.averaging import average_run
from transformer_mt.training.run_directory import RunDirectory
from transformer_mt.training.trainer import train

PACKAGE = Path(__file__).parents[2] / "transformer_mt"


def header_of(entries: dict) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


def test_no_module_of_the_package_runs_what_it_reads():
    """Imports and calls are judged by tests/unit/test_layering.py; this is the plain search."""
    forbidden = re.compile(
        r"\bpickle\.\w|(?<![.\w])(eval|exec)\(|trust_remote_code|yaml\.(unsafe|full)|_object_list\("
    )
    modules = list(PACKAGE.rglob("*.py"))
    assert len(modules) > 100
    found = [
        f"{path.name}: {line}"
        for path in modules
        for line in path.read_text(encoding="utf-8").split("\n")
        if forbidden.search(line)
    ]
    assert found == []


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['touch canary']",
        "a: !!python/name:os.system",
        "a: !<tag:yaml.org,2002:python/object/new:os.system> [touch canary]",
        BOMB,
        "a: " + "[" * 5_000,
    ],
    ids=["apply", "name", "new", "bomb", "deep"],
)  # fmt: skip
def test_a_config_runs_nothing_and_does_not_explode(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError):
        parse_config(text, "evil.yaml")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return nn.Linear(8, 8)


def tensor(dtype: str, shape: list[int], start: int, end: int) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


BIAS = tensor("F32", [8], 256, 288)
HOSTILE = {
    "endless header": struct.pack("<Q", 2**63) + b"{}",
    "huge header": struct.pack("<Q", 2**40) + b"{}" * 10,
    "huge tensor": header_of({"weight": tensor("F32", [2**30, 2**30], 0, 2**62), "bias": BIAS}),
    "overlap": header_of(
        {"weight": tensor("F32", [8, 8], 0, 256), "bias": tensor("F32", [8], 0, 32)}
    ) + bytes(256),
    "negative": header_of({"weight": tensor("F32", [-8, 8], 0, 256), "bias": BIAS}) + bytes(288),
    "no tensors": header_of({"__metadata__": {"x": "y" * 100_000}}),
    "another": header_of(
        {"weight": tensor("F32", [8, 8], 0, 256), "bias": BIAS, "x": tensor("F32", [1], 288, 292)}
    ) + bytes(292),
}  # fmt: skip


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_weights_of_a_hostile_file_are_refused_before_memory_is_taken(model, tmp_path, content):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load_weights(model, path)


@pytest.mark.parametrize("num_headers", [pytest.param(10_000, marks=pytest.mark.sweep), 300])
def test_any_header_of_weights_gives_one_message(model, tmp_path, num_headers):
    path, rng = tmp_path / "model.safetensors", random.Random(num_headers)
    shapes = {name: list(weight.shape) for name, weight in weights_of(model).items()}
    before = {name: weight.clone() for name, weight in weights_of(model).items()}
    refused = 0
    for _ in range(num_headers):
        entries: dict = {}
        offset = 0
        for name, shape in shapes.items():
            start, offset = offset, offset + 4 * math.prod(shape)
            entries[name] = tensor("F32", shape, start, offset)
        name = rng.choice(list(entries))

        def number() -> int:
            return rng.randint(-2, 2 ** rng.randint(1, 62))

        change = rng.randrange(6)
        if change == 0:
            entries[name]["shape"] = [number() for _ in range(rng.randint(0, 4))]
        elif change == 1:
            entries[name]["data_offsets"] = [number(), number()]
        elif change == 2:
            entries[name]["dtype"] = rng.choice(["F16", "I64", "BOOL", "X", "", 3])
        elif change == 3:
            entries[rng.choice(["other", "", "../x", "a" * 1000])] = entries.pop(name)
        elif change == 4:
            entries[name] = rng.choice([None, [], "x", 1e300, {}])
        content = bytearray(header_of(entries) + bytes(offset))
        if change == 5:
            content[rng.randrange(len(content) - offset)] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        try:
            load_weights(model, path)
        except ModelError:
            refused += 1
    print(f"{refused} of {num_headers} headers refused")
    assert refused > 0.8 * num_headers
    assert weights_of(model).keys() == before.keys()


def test_a_bundle_names_no_files_outside_its_folder(tiny_bundle, tmp_path):
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "bundle"
    folder.mkdir()
    for path in tiny_bundle.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    manifest = json.loads((folder / MANIFEST).read_text())
    del manifest["manifest_checksum"]
    files = manifest["files"]
    for name in ("../secret", "/etc/passwd", "a/../../secret"):
        manifest["files"] = files | {name: {"bytes": 6, "sha256": "0" * 64}}
        (folder / MANIFEST).write_text(json.dumps(manifest))
        with pytest.raises(ModelError, match="bad entry"):
            load_bundle(folder)


@pytest.mark.parametrize("kind", ["pipe", "endless device", "folder"])
def test_a_bundle_has_files_and_nothing_else(tiny_bundle, tmp_path, kind):
    folder = shutil.copytree(tiny_bundle, tmp_path / "bundle")
    path = folder / "model.safetensors"
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    manifest = json.loads((folder / MANIFEST).read_text())
    del manifest["manifest_checksum"]
    manifest["files"][path.name]["bytes"] = path.stat().st_size
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match=r"model\.safetensors: expected a file"):
        load_bundle(folder)


@pytest.fixture
def ends_in_time() -> Iterator[None]:
    """What waits for ever fails instead."""

    def fail(*_: object) -> None:
        raise AssertionError("still waiting")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def claim(folder: Path) -> None:
    run = RunDirectory(folder)
    try:
        run.claim(parse_config(CONFIG, "it.yaml"), fresh=False)
    finally:
        run.release()


def keep_metrics(folder: Path, last_step: int | None) -> None:
    with closing(MetricsLog(folder / "metrics.jsonl", last_step=last_step)):
        pass


CONFIG = """
name: it
data: {src_lang: a, tgt_lang: b, train: [&pairs {type: reverse, num_pairs: 9}], valid: *pairs}
training: {max_steps: 1}
"""
READ = [
    (MANIFEST, partial(read_manifest, kind="it", newest_version=1)),
    (MANIFEST, bundle_scores),
    (MANIFEST, kind_of),
    ("latest", newest_run),
    ("metrics.jsonl", lambda folder: read_metrics(folder / "metrics.jsonl")),
    (".it.tmp-1", remove_temporaries),
]
CHANGED = [
    ("metrics.jsonl", partial(keep_metrics, last_step=3)),
    ("metrics.jsonl", partial(keep_metrics, last_step=None)),
    ("lock", claim),
]


@pytest.mark.parametrize("kind", ["pipe", "endless device", "huge"])
@pytest.mark.parametrize(("name", "act"), READ + CHANGED)
def test_no_folder_makes_a_program_wait_or_take_memory_without_end(
    name, act, kind, tmp_path, ends_in_time
):
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "huge":
        path.touch()
        os.truncate(path, 1 << 40)
    else:
        path.symlink_to("/dev/zero")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with suppress(TmtError, OSError):
        act(tmp_path)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200 << 10  # kB: three times what a small file may have


@pytest.mark.parametrize(
    "scores", [[], "x", {"merit": "x"}, {"validation": [1]}, {"validation": {"bleu": 10**400}}]
)
def test_scores_that_are_no_numbers_are_none(scores, tmp_path):
    (tmp_path / MANIFEST).write_text(json.dumps({"scores": scores}))
    assert bundle_scores(tmp_path) == {}


@pytest.mark.parametrize(("name", "act"), CHANGED)
def test_a_link_in_a_run_leads_to_no_other_file(name, act, tmp_path):
    other = tmp_path / "other"
    other.write_text("precious\n")
    (tmp_path / name).symlink_to(other)
    with pytest.raises((TmtError, OSError), match="link"):
        act(tmp_path)
    assert other.read_text() == "precious\n"


def test_a_shortlist_is_checked_against_the_vocabulary(tiny_bundle, tmp_path):
    tokenizers = Tokenizers.load(tiny_bundle)
    size = tokenizers.src.vocab_size
    table = np.full((size, 2), 5, dtype=np.int32)
    hostile = {
        "another": {"candidates": table, "frequent": table[0], "x": table},
        "missing": {"candidates": table},
        "too few": {"candidates": table[1:], "frequent": table[0]},
        "other type": {"candidates": table.astype(np.float32), "frequent": table[0]},
        "other shape": {"candidates": table[:, :, None], "frequent": table[0]},
        "beyond": {"candidates": table + size, "frequent": table[0]},
        "before": {"candidates": table, "frequent": table[0] - 6},
    }
    about = {
        "kind": lexicon.KIND,
        "format_version": lexicon.FORMAT_VERSION,
        "tokenizers": tokenizers.fingerprint(),
    }
    path = tmp_path / "shortlist"
    for arrays in hostile.values():
        path.write_bytes(save(arrays, metadata=about))
        with pytest.raises(ModelError, match="damaged: its tables do not fit"):
            lexicon.Lexicon.load(path, tokenizers)


def test_a_number_of_a_tokenizer_file_that_never_ends_is_refused_at_once():
    """Adding up its millions of bits would take hours."""
    with pytest.raises(ValueError, match="not a sound SentencePiece model"):
        Tokenizer(b"\x08" + b"\xff" * 30_000_000)


def test_secrets_of_the_environment_reach_no_file_of_a_run_and_no_message(
    run_config, tmp_path, monkeypatch, caplog
):
    canary = "canary-3f9a1c"
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "MY_PASSWORD", "UNKNOWN"):
        monkeypatch.setenv(name, canary)
    for name in ("HTTPS_PROXY", "HF_ENDPOINT", "GIT_ASKPASS"):
        monkeypatch.setenv(name, f"https://user:{canary}@example.invalid/{canary}")
    caplog.set_level("DEBUG")
    run = RunDirectory(Path(train(run_config(data__corpus_dir=str(tmp_path / "corpora"))).run_dir))
    average_run(run, tmp_path / "average", which="last", number=2)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 25
    assert [path for path in files if canary.encode() in path.read_bytes()] == []
    assert canary not in caplog.text


@pytest.mark.parametrize("words", [["translate"], ["evaluate", "--bleu"], ["verify"]])
def test_a_model_of_random_bytes_gives_one_line(tmp_path, words):
    folder = tmp_path / "model"
    folder.mkdir()
    rng = random.Random(1)
    for name in ("manifest.json", "config.yaml", "model.safetensors", "joint.model"):
        (folder / name).write_bytes(rng.randbytes(500))
    where = [str(folder)] if words == ["verify"] else ["--model", str(folder)]
    result = tmt(*words, *where, data=b"a\n")
    assert result.exit_code == 4
    lines = [line for line in result.stderr.split("\n") if " model: " not in line]
    assert len(lines) == 2
    assert lines[0].startswith("tmt: error: ")

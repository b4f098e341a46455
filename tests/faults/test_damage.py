"""Files that changed by themselves: every damage is noticed, or it changes nothing."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tiny_runs import weights_at
from transformer_mt.bundle import load_bundle
from transformer_mt.config.dumping import dump_config
from transformer_mt.data.corpus import Corpus
from transformer_mt.data.lexicon import Lexicon
from transformer_mt.errors import DataError, ModelError, TmtError
from transformer_mt.storage.folders import MANIFEST
from transformer_mt.text.tokenizer_directory import load_tokenizers
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.training.averaging import average_run
from transformer_mt.training.checkpoint import newest_checkpoint
from transformer_mt.training.run_directory import RunDirectory
from transformer_mt.training.trainer import train

Damage = Callable[[random.Random, bytes, bytes], bytes]


def flip(rng: random.Random, content: bytes, other: bytes) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


def replace_byte(rng: random.Random, content: bytes, other: bytes) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + rng.randbytes(1) + content[at + 1 :]


def truncate(rng: random.Random, content: bytes, other: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def extend(rng: random.Random, content: bytes, other: bytes) -> bytes:
    return content + rng.randbytes(rng.randint(1, 64))


def zero_the_tail(rng: random.Random, content: bytes, other: bytes) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + bytes(len(content) - at)


def swap(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """The file of the same name in another folder."""
    return other


DAMAGES: list[Damage] = [flip, flip, replace_byte, truncate, extend, zero_the_tail, swap]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs of other seeds, each with two checkpoints, a bundle, and a corpus of its own."""
    from tests.tiny_runs import tiny_config

    folder = tmp_path_factory.mktemp("damage")
    made = []
    for seed in (1, 2):
        root = folder / str(seed)
        settings = tiny_config(
            root, corpus_dir=root / "corpora", seed=seed, data__train=[
                {"type": "reverse", "num_pairs": 300, "seed": seed}
            ],
        )  # fmt: skip
        train(settings)
        tokenizers = load_tokenizers(in_tokenizer(root))
        table = np.full((tokenizers.src.vocab_size, 3), 10 + seed, dtype=np.int32)
        Lexicon(table, table[0]).save(in_shortlist(root) / "it", tokenizers)
        made.append(root)
    return made[0], made[1]


def in_checkpoint(root: Path) -> Path:
    return root / "runs" / "tiny" / "checkpoints" / "step-6"


def in_bundle(root: Path) -> Path:
    return root / "runs" / "tiny" / "best"


def in_corpus(root: Path) -> Path:
    return max(
        (manifest.parent for manifest in (root / "corpora").glob("*/src.tokens")),
        key=lambda directory: (directory / "src.tokens").stat().st_size,
    )


def in_tokenizer(root: Path) -> Path:
    return root / "runs" / "tiny" / "tokenizer"


def in_shortlist(root: Path) -> Path:
    return root / "shortlist"


def read_checkpoint(directory: Path) -> Any:
    """What a run would resume from: an older checkpoint where the newest is damaged."""
    checkpoint = newest_checkpoint(directory.parent)
    assert checkpoint is not None
    step = int(checkpoint.directory.name.removeprefix("step-"))
    if step != 6:
        raise ModelError(f"{directory}: passed over")
    return checkpoint.state, weights_at(directory.parents[1], 6)


def read_bundle(directory: Path) -> Any:
    bundle = load_bundle(directory)
    return dump_config(bundle.config), bundle.model.state_dict(), bundle.tokenizers.fingerprint()


def read_corpus(directory: Path) -> Any:
    corpus = Corpus.open(directory)
    return [torch.tensor(pair) for row in range(len(corpus)) for pair in corpus.pair(row)]


def read_tokenizer(directory: Path) -> Any:
    return load_tokenizers(directory).fingerprint()


def read_shortlist(directory: Path) -> Any:
    tokenizers = load_tokenizers(in_tokenizer(directory.parent))
    lexicon = Lexicon.load(directory / "it", tokenizers)
    return lexicon.candidates.tolist(), lexicon.frequent.tolist()


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, torch.Tensor):
        return torch.equal(found, wanted)
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[k], wanted[k]) for k in wanted)
    if isinstance(wanted, list | tuple):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == wanted)


@pytest.mark.parametrize("num_mutations", [pytest.param(1000, marks=pytest.mark.sweep), 40])
@pytest.mark.parametrize(
    ("place", "read"),
    [
        (in_checkpoint, read_checkpoint),
        (in_bundle, read_bundle),
        (in_corpus, read_corpus),
        (in_tokenizer, read_tokenizer),
        (in_shortlist, read_shortlist),
    ],
    ids=["checkpoint", "bundle", "corpus", "tokenizer", "shortlist"],
)
def test_a_damaged_file_is_refused_by_its_name_or_changes_nothing(
    runs, place, read,
    num_mutations, caplog,
):  # fmt: skip
    directory, other = (place(root) for root in runs)
    files = sorted(path for path in directory.iterdir() if path.is_file())
    wanted = read(directory)
    rng = random.Random(num_mutations)
    messages: list[str] = []
    num_harmless = 0
    for _ in range(num_mutations):
        path, damage = rng.choice(files), rng.choice(DAMAGES)
        original = path.read_bytes()
        damaged = damage(rng, original, (other / path.name).read_bytes())
        if damaged == original:
            continue
        path.write_bytes(damaged)
        caplog.clear()
        try:
            found = read(directory)
        except (ModelError, DataError) as error:
            messages.append(f"{error} {caplog.text}")
        else:
            assert same(found, wanted), f"{damage.__name__} of {path.name} went unnoticed"
            num_harmless += 1
        finally:
            path.write_bytes(original)
    assert all(str(directory) in message for message in messages)
    num_refused = len(messages)
    print(f"{num_refused} refused, {num_harmless} without effect")
    # Such as a blank of a manifest that becomes another one.
    assert num_harmless < 0.02 * num_mutations + 3
    assert num_refused > 0.8 * num_mutations


def test_the_files_of_two_checkpoints_do_not_mix(runs):
    newest = in_checkpoint(runs[0])
    older = newest.with_name("step-4")
    kept = (newest / "model.safetensors").read_bytes()
    try:
        shutil.copy(older / "model.safetensors", newest)
        with pytest.raises(ModelError, match="passed over"):
            read_checkpoint(newest)
    finally:
        (newest / "model.safetensors").write_bytes(kept)


@pytest.mark.parametrize("action", ["train", "average"])
def test_a_damaged_tokenizer_of_a_run_is_refused_by_its_name(run_config, tmp_path, action):
    run = RunDirectory(Path(train(run_config(training__max_steps=4)).run_dir))
    path = run.tokenizer_dir / "joint.model"
    content = path.read_bytes()
    place = content.index(b"<pad>") - 3  # in a score or a length: the model may still load
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    actions: dict[str, Callable[[], object]] = {
        "train": lambda: train(run_config(training__max_steps=6)),
        "average": lambda: average_run(run, tmp_path / "average", which="last", number=1),
    }
    with pytest.raises(ModelError, match=r"tokenizer/joint\.model: damaged"):
        actions[action]()


def test_a_run_is_not_resumed_with_the_tokenizer_of_another(run_config, caplog):
    run = RunDirectory(Path(train(run_config(training__max_steps=4)).run_dir))
    other = Path(train(run_config("other", tokenizer__vocab_size=24)).run_dir)
    shutil.rmtree(run.tokenizer_dir)
    shutil.copytree(other / "tokenizer", run.tokenizer_dir)
    with pytest.raises(DataError, match=r"tiny/tokenizer: not the tokenizer that the run"):
        train(run_config(training__max_steps=6))
    run.preparation_path.write_text('{"tokenizers": "", "train": [], "valid": {"texts": ""}}')
    with pytest.raises(TmtError):  # the vocabulary has another size here
        train(run_config(training__max_steps=6))
    assert "preparation.json: cannot be read" in caplog.text


def test_a_folder_with_two_tokenizers_is_refused(tmp_path, tiny_bundle):
    shutil.copy(tiny_bundle / "joint.model", tmp_path / "joint.model")
    shutil.copy(tiny_bundle / "joint.model", tmp_path / "src.model")
    with pytest.raises(DataError, match=r"joint\.model and src\.model are of two tokenizers"):
        Tokenizers.load(tmp_path)


@pytest.mark.parametrize("name", ["config.yaml", "model.safetensors"])
def test_a_bundle_whose_manifest_does_not_list_what_is_read_is_refused(tmp_path, tiny_bundle, name):
    folder = shutil.copytree(tiny_bundle, tmp_path / "bundle")
    manifest = json.loads((folder / MANIFEST).read_text())
    del manifest["manifest_checksum"], manifest["files"][name]
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match=f"does not list {name}"):
        load_bundle(folder)

"""Training by the commands of other toolkits: their files, their settings, the speed they print.

Each has an interpreter of its own, for they want other versions of everything. They get our pieces
as words, so that tokens are the same; their batches are their own, counted in their own way.
"""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from comparison import Run, peak_memory_bytes

from transformer_mt.config.model import TransformerSettings

PRECISIONS = {"Eole": ("fp32", "bf16"), "Joey NMT": ("fp32",), "fairseq": ("fp32",)}
"""What they can do on a CPU."""
WARMUP_UPDATES = 4
PATIENCE_SECONDS = 150
"""For how long a toolkit may say nothing of its speed."""

REPORTS = {
    "Eole": re.compile(r"bsz:\s*[\d.]+/\s*(?P<tokens>[\d.]+)/.*?/\s*(?P<rate>[\d.]+) tok/s"),
    "Joey NMT": re.compile(r"Tokens per Sec:\s*(?P<rate>[\d.]+)"),
    "fairseq": re.compile(r"wps=(?P<rate>[\d.]+),.*wpb=(?P<tokens>[\d.]+)"),
}
"""Target tokens a second since the last report and, where it is told, target tokens of an update;
neither counts padding."""


def write_text(folder: Path, sides: dict[str, list[str]], pieces: Sequence[str]) -> None:
    """Write what all toolkits read: pairs as lines of pieces, and the vocabulary.

    Args:
        folder: Gets `train.LANGUAGE`, `valid.LANGUAGE` with the first lines, and `vocabulary`.
        sides: Lines of each language.
        pieces: The vocabulary in the order of its ids; the first four are special.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for language, lines in sides.items():
        for name, part in (("train", lines), ("valid", lines[:64])):
            text = "".join(f"{line}\n" for line in part)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    text = "".join(f"{piece}\n" for piece in pieces[4:])
    (folder / "vocabulary").write_text(text, encoding="utf-8")


def command_of(
    engine: str,
    python: Path,
    settings: TransformerSettings,
    *,
    folder: Path,
    languages: tuple[str, str],
    max_tokens: int,
    precision: str,
) -> list[str]:
    """Write the settings of a toolkit into the folder of the text; return its command."""
    if engine == "fairseq":
        return _fairseq(python, settings, folder=folder, languages=languages, max_tokens=max_tokens)
    write = {"Eole": _eole, "Joey NMT": _joeynmt}[engine]
    values = write(settings, folder, languages, max_tokens, precision)
    path = folder / f"{engine.split()[0].lower()}.yaml"
    path.write_text(json.dumps(values, indent=1), encoding="utf-8")  # JSON is YAML
    if engine == "Eole":
        return [str(python.parent / "eole"), "train", "--config", str(path)]
    return [str(python), "-m", "joeynmt", "train", str(path), "--skip-test"]


def _counted_vocabulary(folder: Path, separator: str) -> tuple[Path, int]:
    """Write the vocabulary with counts that keep its order; return the file and its length."""
    pieces = (folder / "vocabulary").read_text(encoding="utf-8").split("\n")[:-1]
    path = folder / "counted.vocabulary"
    lines = (f"{piece}{separator}{len(pieces) - i}\n" for i, piece in enumerate(pieces))
    path.write_text("".join(lines), encoding="utf-8")
    return path, len(pieces)


def _eole(
    settings: TransformerSettings,
    folder: Path,
    languages: tuple[str, str],
    max_tokens: int,
    precision: str,
) -> dict[str, Any]:
    vocabulary, size = _counted_vocabulary(folder, "\t")
    src, tgt = languages
    sets = {
        name: {
            "path_src": str(folder / f"{name}.{src}"),
            "path_tgt": str(folder / f"{name}.{tgt}"),
            "transforms": [],
        }
        for name in ("train", "valid")
    }
    return {
        "seed": 1,
        "share_vocab": True,
        "src_vocab": str(vocabulary),
        "src_vocab_size": size + 8,
        "tgt_vocab_size": size + 8,
        "overwrite": True,
        "report_every": 1,
        "n_sample": 0,
        "data": sets,
        "training": {
            "model_path": str(folder / "eole-model"),
            "world_size": 0,
            "gpu_ranks": [],
            "num_workers": 0,
            "bucket_size": 32768,
            "batch_type": "tokens",
            "batch_size": max_tokens,
            "normalization": "tokens",
            "accum_count": [1],
            "compute_dtype": precision,
            "optim": "adamw",
            "adam_beta1": 0.9,
            "adam_beta2": 0.98,
            "learning_rate": 1e-4,
            "label_smoothing": 0.1,
            "dropout": [settings.dropout],
            "attention_dropout": [settings.attention_dropout],
            "param_init_method": "xavier_uniform",
            "train_steps": 1_000_000,
            "valid_steps": 1_000_000,
            "save_checkpoint_steps": 1_000_000,
        },
        "model": eole_model(settings),
    }


def eole_model(settings: TransformerSettings) -> dict[str, Any]:
    """Describe a model to Eole."""
    return {
        "architecture": "transformer",
        "layers": settings.num_encoder_layers,
        "heads": settings.num_heads,
        "hidden_size": settings.d_model,
        "transformer_ff": settings.d_ff,
        "share_embeddings": True,
        "share_decoder_embeddings": True,
        "add_qkvbias": True,
        "add_ffnbias": True,
        "embeddings": {
            "word_vec_size": settings.d_model,
            "position_encoding_type": "SinusoidalInterleaved",
            "position_encoding": True,
        },
    }


def _joeynmt(
    settings: TransformerSettings,
    folder: Path,
    languages: tuple[str, str],
    max_tokens: int,
    precision: str,
) -> dict[str, Any]:
    sides = {
        side: {
            "lang": language,
            "max_length": 1024,
            "level": "word",
            "voc_file": str(folder / "vocabulary"),
        }
        for side, language in zip(("src", "trg"), languages, strict=True)
    }
    return {
        "name": "bench",
        "model_dir": str(folder / "joeynmt-model"),
        "use_cuda": False,
        "fp16": precision != "fp32",
        "random_seed": 1,
        "data": {
            "train": str(folder / "train"),
            "dev": str(folder / "valid"),
            "dataset_type": "plain",
            **sides,
        },
        "testing": {"beam_size": 1, "batch_size": 64, "batch_type": "sentence"},
        "training": {
            "optimizer": "adamw",
            "adam_betas": [0.9, 0.98],
            "scheduling": "warmupinversesquareroot",
            "learning_rate": 1e-4,
            "learning_rate_min": 0.0,  # its default is a text to its own reader
            "learning_rate_warmup": 4000,
            "label_smoothing": 0.1,
            "batch_size": max_tokens,
            "batch_type": "token",
            "normalization": "tokens",
            "epochs": 100_000,
            "updates": 1_000_000,
            "validation_freq": 1_000_000,
            "logging_freq": 1,
            "shuffle": True,
            "overwrite": True,
        },
        "model": joeynmt_model(settings),
    }


def joeynmt_model(settings: TransformerSettings) -> dict[str, Any]:
    """Describe a model to Joey NMT."""
    stack = {
        "type": "transformer",
        "num_layers": settings.num_encoder_layers,
        "num_heads": settings.num_heads,
        "hidden_size": settings.d_model,
        "ff_size": settings.d_ff,
        "dropout": settings.dropout,
        "layer_norm": settings.norm,
        "embeddings": {"embedding_dim": settings.d_model, "scale": True, "dropout": 0.0},
    }
    return {
        "initializer": "xavier_uniform",
        "embed_initializer": "xavier_uniform",
        "tied_embeddings": True,
        "tied_softmax": True,
        "encoder": stack,
        "decoder": stack | {"num_layers": settings.num_decoder_layers},
    }


def _fairseq(
    python: Path,
    settings: TransformerSettings,
    *,
    folder: Path,
    languages: tuple[str, str],
    max_tokens: int,
) -> list[str]:
    src, tgt = languages
    binary = folder / "fairseq-data"
    if not binary.exists():
        prepare = [str(python.parent / "fairseq-preprocess"), "--joined-dictionary"]
        prepare += ["--source-lang", src, "--target-lang", tgt, "--destdir", str(binary)]
        prepare += ["--srcdict", str(_counted_vocabulary(folder, " ")[0])]
        prepare += ["--trainpref", str(folder / "train"), "--validpref", str(folder / "valid")]
        subprocess.run(prepare, check=True, stdout=subprocess.DEVNULL)
    command = [str(python.parent / "fairseq-train"), str(binary), "--arch", "transformer", "--cpu"]
    for side, layers in (
        ("encoder", settings.num_encoder_layers),
        ("decoder", settings.num_decoder_layers),
    ):
        command += [f"--{side}-layers", str(layers), f"--{side}-embed-dim", str(settings.d_model)]
        command += [f"--{side}-ffn-embed-dim", str(settings.d_ff)]
        command += [f"--{side}-attention-heads", str(settings.num_heads)]
        if settings.norm == "pre":
            command.append(f"--{side}-normalize-before")
    command += ["--dropout", str(settings.dropout), "--share-all-embeddings"]
    command += ["--max-tokens", str(max_tokens), "--criterion", "label_smoothed_cross_entropy"]
    command += ["--label-smoothing", "0.1", "--optimizer", "adam", "--adam-betas", "(0.9, 0.98)"]
    command += ["--lr", "1e-4", "--log-interval", "1", "--log-format", "simple"]
    command += ["--disable-validation", "--no-save", "--num-workers", "0", "--seed", "1"]
    return [*command, "--max-update", "1000000", "--save-dir", str(folder / "fairseq-model")]


def measure_command(
    engine: str, command: Sequence[str], *, log: Path, seconds: float, environment: dict[str, str]
) -> Run:
    """Train with a toolkit's command for some seconds after a warm-up, and read what it prints.

    Args:
        engine: Whose reports to look for.
        command: What to run; it is stopped when the time is over.
        log: Gets all that it prints.
        seconds: To measure for; two reports at least.
        environment: Of the command.
    """
    reports: list[re.Match[str]] = []
    peak = 0
    with log.open("w", encoding="utf-8") as file:
        program = subprocess.Popen(
            command,
            env=environment | {"PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": ""},
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        try:
            with log.open(encoding="utf-8", errors="replace") as text:
                for match in _reports_of(engine, text, program):
                    if not reports:
                        started = time.monotonic()
                    reports.append(match)
                    peak = peak_memory_bytes(program.pid) or peak
                    enough = len(reports) >= WARMUP_UPDATES + 2
                    if enough and time.monotonic() - started > seconds:
                        break
        finally:
            _stop(program)
    speed = speed_of(reports[WARMUP_UPDATES:])
    if speed is None:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().split("\n")
        return {"error": f"no speed printed; its last line: {lines[-1][:200]}"}
    return {**speed, "peak_memory_bytes": peak}


def _reports_of(
    engine: str, text: IO[str], program: subprocess.Popen[bytes]
) -> Iterator[re.Match[str]]:
    """Yield reports with a speed as they come, until the program ends or says nothing for long."""
    last, rest = time.monotonic(), ""
    while time.monotonic() - last < PATIENCE_SECONDS:
        ended = program.poll() is not None
        rest += text.read()
        *lines, rest = rest.split("\n")
        for line in lines:
            match = REPORTS[engine].search(line)
            if match and float(match["rate"]):
                last = time.monotonic()
                yield match
        if ended:
            return
        time.sleep(0.05)


def speed_of(reports: Sequence[re.Match[str]]) -> Run | None:
    """Join reports to tokens a second over all of them; None without reports.

    Where the tokens of an update are not told, all updates count as equally large.
    """
    if not reports:
        return None
    tokens = [float(match.groupdict().get("tokens") or 1) for match in reports]
    seconds = sum(n / float(match["rate"]) for n, match in zip(tokens, reports, strict=True))
    told = "tokens" in reports[0].groupdict()
    return {
        "tokens_per_second": sum(tokens) / seconds,
        "tokens_per_step": sum(tokens) / len(tokens) if told else None,
        "steps": len(reports),
    }


def _stop(program: subprocess.Popen[bytes]) -> None:
    program.terminate()
    try:
        program.wait(timeout=20)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()

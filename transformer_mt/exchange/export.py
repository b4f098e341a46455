"""Export of a model: its files, what belongs to them, and the proof that they compute the same."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformer_mt.bundle import CARD, Bundle
from transformer_mt.config.dumping import dump_config
from transformer_mt.config.language_codes import plain_code
from transformer_mt.config.languages import Direction
from transformer_mt.config.schema import Config
from transformer_mt.errors import ConfigError
from transformer_mt.exchange.argos import argos_twin, save_argos
from transformer_mt.exchange.ctranslate2 import (
    CTranslate2Twin,
    save_ctranslate2,
)
from transformer_mt.exchange.huggingface import (
    HuggingFaceTwin,
    generation_config,
    save_huggingface,
)
from transformer_mt.exchange.marian import (
    FILES,
    PRECISIONS,
    bergamot_twin,
    marian_twin,
    save_bergamot,
    save_marian,
    vocabulary_names,
)
from transformer_mt.exchange.parity import Parity, Twin, check, compare
from transformer_mt.exchange.settings import TARGETS, Quantization, check_exportable
from transformer_mt.extras import need
from transformer_mt.locations import CONFIG, EXPORT
from transformer_mt.storage.folders import new_directory
from transformer_mt.storage.overwriting import refuse_to_replace_others
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.translation.directions import directed
from transformer_mt.versions import installed_versions

PARITY = "parity.json"
FORMAT_VERSION = 1
MAX_LENGTH = 256
"""Maximum length of translations in the comparison, in tokens."""


@dataclass(frozen=True)
class Sentences:
    """Sentences to compare two programs on.

    Attributes:
        sources: Lines of the source.
        references: Their translations; None: unknown.
        direction: Source and target language; None: those of the config.
    """

    sources: Sequence[str]
    references: Sequence[str] | None
    direction: Direction | None = None


@dataclass(frozen=True)
class Exporter:
    """How a model goes to another program.

    Attributes:
        write: Writes it into an empty folder.
        twin: Loads what was written.
        package: What the comparison needs, and its extra.
        extra: See `package`.
        needed_to_write: Whether writing needs the package, too.
        program: A program that runs the model, for the model card.
        language: That it is written in.
    """

    write: Callable[[Bundle, Path, Quantization], None]
    twin: Callable[[Path, Tokenizers], Twin]
    package: str
    extra: str
    needed_to_write: bool
    program: str
    language: str = "python"


EXPORTERS = {
    "ctranslate2": Exporter(
        save_ctranslate2,
        CTranslate2Twin,
        package="ctranslate2",
        extra="ct2",
        needed_to_write=True,
        program="""\
import ctranslate2, sentencepiece

translator = ctranslate2.Translator(".")
source = sentencepiece.SentencePieceProcessor("{src}.model")
target = sentencepiece.SentencePieceProcessor("{tgt}.model")
pieces = source.encode("..", out_type=str)
(result,) = translator.translate_batch(
    [pieces], beam_size={beam}, length_penalty={exponent}, patience=2, disable_unk=True
)
print(target.decode(result.hypotheses[0]))""",
    ),
    "huggingface": Exporter(
        lambda bundle, directory, _: save_huggingface(bundle, directory),
        lambda directory, _: HuggingFaceTwin(directory),
        package="transformers",
        extra="hf",
        needed_to_write=False,
        program="""\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForSeq2SeqLM.from_pretrained(".")
batch = tokenizer([".."], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))""",
    ),
    "argos": Exporter(
        save_argos,
        argos_twin,
        package="ctranslate2",
        extra="ct2",
        needed_to_write=True,
        program="""\
import argostranslate.package, argostranslate.translate

argostranslate.package.install_from_path("translate-{from_code}_{to_code}-1_0.argosmodel")
print(argostranslate.translate.translate("..", "{from_code}", "{to_code}"))""",
    ),
    "marian": Exporter(
        save_marian,
        marian_twin,
        package="ctranslate2",
        extra="ct2",
        needed_to_write=False,
        program="marian-decoder -c decoder.yml < input.txt",
        language="sh",
    ),
    "bergamot": Exporter(
        save_bergamot,
        bergamot_twin,
        package="ctranslate2",
        extra="ct2",
        needed_to_write=False,
        program="""\
// node translate.mjs < input.txt, after `npm install @browsermt/bergamot-translator` and
// echo '{{"type": "commonjs"}}' > node_modules/@browsermt/bergamot-translator/worker/package.json
import {{readFileSync}} from "node:fs";
import {{BatchTranslator, TranslatorBacking}} from "@browsermt/bergamot-translator/translator.js";

const pair = {{from: "{from_code}", to: "{to_code}"}};
const read = name => new Uint8Array(readFileSync(name)).buffer;

class Local extends TranslatorBacking {{
  async loadModelRegistery() {{ return [{{...pair, files: {{}}}}]; }}
  async loadTranslationModel() {{
    return {{
      model: read("{model}"), vocabs: [{vocabularies}], shortlist: new ArrayBuffer(0),
      config: {{
        "gemm-precision": "{precision}", "beam-size": process.argv[2] ?? {beam},
        normalize: {exponent}, "ssplit-mode": "sentence",
      }},
    }};
  }}
}}

const translator = new BatchTranslator({{}}, new Local({{pivotLanguage: null}}));
const lines = readFileSync(0, "utf-8").split("\\n").slice(0, -1);
const found = lines.map(text => translator.translate({{...pair, text, html: false}}));
for (const {{target}} of await Promise.all(found)) console.log(target.text);
await translator.delete();
process.exit(0);""",
        language="js",
    ),
}


def export(
    bundle: Bundle,
    target: str,
    directory: Path,
    *,
    sentences: Sentences | None,
    quantization: Quantization = "float32",
) -> Parity | None:
    """Write a model in the format of another program.

    Args:
        bundle: The model, on the CPU in float32.
        target: A name in `EXPORTERS`.
        directory: Folder to create, or an earlier export to replace.
        sentences: What the two programs are compared on; None: they are not.
        quantization: Type of the weights in its file.

    Returns:
        How far they agree, in float32; None without sentences.

    Raises:
        ConfigError: If the target cannot hold the model, with all reasons, or a package is not
            installed, or something else is in the folder.
        TmtError: If the model does not compute the same there, or the disk refuses; nothing is
            left half-written.
    """
    check_exportable(bundle.config, TARGETS[target])
    if quantization not in TARGETS[target].quantizations:
        raise ConfigError(f"--quantization {quantization}: not for --to {target}")
    exporter = EXPORTERS[target]
    if exporter.needed_to_write or sentences is not None:
        need(exporter.package, extra=exporter.extra)
    kind = EXPORT + target
    refuse_to_replace_others(directory, kind)
    parity = None if sentences is None else _proved(bundle, exporter, sentences, target)
    about = {"kind": kind, "format_version": FORMAT_VERSION, "versions": installed_versions()}
    with new_directory(directory, about, hash_name="sha256") as folder:
        exporter.write(bundle, folder, quantization)
        (folder / CONFIG).write_text(dump_config(bundle.config), encoding="utf-8")
        if target == "ctranslate2":
            bundle.tokenizers.save(folder)
        (folder / CARD).write_text(_card(bundle, target, quantization, parity), encoding="utf-8")
        if parity is not None:
            _write_json(folder / PARITY, parity.as_json())
    return parity


def _proved(bundle: Bundle, exporter: Exporter, sentences: Sentences, target: str) -> Parity:
    """Write a model to a temporary folder, and compare it; refuse one that is not the same."""
    settings = generation_config(bundle.config.decoding)
    data = bundle.config.data
    source, tgt = sentences.direction or (data.src_lang, data.tgt_lang)
    with TemporaryDirectory() as name:
        exporter.write(bundle, Path(name), "float32")
        parity = compare(
            directed(bundle, source=source, target=tgt),
            exporter.twin(Path(name), bundle.tokenizers),
            sentences.sources,
            sentences.references,
            beam_size=settings["num_beams"],
            exponent=settings["length_penalty"],
            max_length=MAX_LENGTH,
        )
    check(parity, target)
    return parity


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def card_program(bundle: Bundle, target: str, quantization: Quantization) -> str:
    """Return a program that runs an exported model, for the model card."""
    data = bundle.config.data
    settings = generation_config(bundle.config.decoding)
    names = ("joint", "joint") if bundle.tokenizers.joint else ("src", "tgt")
    vocabularies = dict.fromkeys(vocabulary_names(bundle.tokenizers))
    return EXPORTERS[target].program.format(
        from_code=plain_code(data.src_lang),
        to_code=plain_code(data.tgt_lang),
        src=names[0],
        tgt=names[1],
        beam=settings["num_beams"],
        exponent=settings["length_penalty"],
        model=FILES.get(quantization),
        precision=PRECISIONS.get(quantization),
        vocabularies=", ".join(f'read("{name}")' for name in vocabularies),
    )


def _card(bundle: Bundle, target: str, quantization: Quantization, parity: Parity | None) -> str:
    config = bundle.config
    return "\n".join(
        [
            f"# {config.name}: {config.data.src_lang} to {config.data.tgt_lang}, for {target}",
            "",
            f"```{EXPORTERS[target].language}",
            card_program(bundle, target, quantization),
            "```",
            "",
            *_languages(config, target),
            "## Compared with the original",
            "",
            "Not compared." if parity is None else parity.summary() + ".",
            "",
            "Text is not normalised. Lines are single sentences.",
            "",
        ]
    )


def _languages(config: Config, target: str) -> list[str]:
    """Say how the languages of a model of several are given to the program."""
    tags = config.data.language_tags
    if tags is None or target == "argos":  # a package is one direction
        return []
    read, written = config.data.languages()
    before, begins = tags.of((config.data.src_lang, config.data.tgt_lang))
    how = "Put the language before the text" if target == "huggingface" else "Give the languages"
    example = (
        f"`{before[0]} ..`"
        if target == "huggingface"
        else f"`translate_batch([{[*before]} + pieces], target_prefix=[{[*begins]}])`"
    )
    return [
        "## Languages",
        "",
        f"From {', '.join(read)} to {', '.join(written)}. {how}: {example} for "
        f"{config.data.src_lang} to {config.data.tgt_lang}.",
        "",
    ]

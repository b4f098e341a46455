"""Export to Argos Translate and LibreTranslate: a package around a model for CTranslate2."""

import json
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from transformer_mt.bundle import Bundle
from transformer_mt.config.language_codes import NAMES, plain_code
from transformer_mt.exchange.ctranslate2 import CTranslate2Twin, save_ctranslate2
from transformer_mt.exchange.settings import ARGOS, Quantization, check_exportable
from transformer_mt.text.tokenizer_pair import Tokenizers

LEAST_VERSION = "1.9.0"
"""Of Argos Translate; since 1.10 it joins bytes of characters without a piece, before that it
printed them as `<0xE2>`."""


def save_argos(bundle: Bundle, directory: Path, quantization: Quantization) -> None:
    """Write a package `translate-SRC_TGT-1_0.argosmodel`.

    Args:
        bundle: The model, with one tokenizer for both sides.
        directory: An empty folder.
        quantization: Type of the weights on disk.

    Raises:
        ConfigError: If such a package cannot hold the model, with all reasons.
        OSError: If the disk refuses.
    """
    check_exportable(bundle.config, ARGOS)
    src, tgt = (
        plain_code(code) for code in (bundle.config.data.src_lang, bundle.config.data.tgt_lang)
    )
    name = f"{src}_{tgt}"
    about = {
        "package_version": "1.0",
        "argos_version": LEAST_VERSION,
        "type": "translate",
        "from_code": src,
        "from_name": _language(src),
        "to_code": tgt,
        "to_name": _language(tgt),
    }
    tags = bundle.config.data.language_tags
    if tags is not None:
        about["target_prefix"] = tags.tag(bundle.config.data.tgt_lang)
    path = directory / f"translate-{name}-1_0.argosmodel"
    with (
        TemporaryDirectory() as folder,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package,
    ):
        model = Path(folder) / "model"
        model.mkdir()
        save_ctranslate2(bundle, model, quantization)
        bundle.tokenizers.src.save(Path(folder) / "sentencepiece.model")
        package.writestr(f"{name}/metadata.json", json.dumps(about, indent=2))
        package.writestr(f"{name}/README.md", f"# {about['from_name']} to {about['to_name']}\n")
        package.write(Path(folder) / "sentencepiece.model", f"{name}/sentencepiece.model")
        for file in sorted(model.iterdir()):
            package.write(file, f"{name}/model/{file.name}")


def argos_twin(directory: Path, tokenizers: Tokenizers) -> CTranslate2Twin:
    """Unpack what `save_argos` wrote, and load the model as Argos Translate does."""
    (path,) = directory.glob("*.argosmodel")
    with zipfile.ZipFile(path) as package:
        package.extractall(directory)
    (model,) = directory.glob("*/model")
    return CTranslate2Twin(model, tokenizers)


def _language(code: str) -> str:
    names = {known: name for name, known in reversed(NAMES.items())}
    return names.get(code, code).capitalize()

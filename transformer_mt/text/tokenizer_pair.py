"""The tokenizers of a language pair, and their files."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.errors import DataError
from transformer_mt.text.tokenizer import PATCHES, Tokenizer


@dataclass(frozen=True)
class Tags:
    """Tokens before each source and each target: the languages of a direction."""

    src: tuple[int, ...] = ()
    tgt: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether there are some."""
        return bool(self.src or self.tgt)


NO_TAGS = Tags()


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of a language pair; one object for both sides if they share a vocabulary."""

    src: Tokenizer
    tgt: Tokenizer

    @property
    def joint(self) -> bool:
        """Whether one tokenizer serves both sides."""
        return self.src is self.tgt

    @property
    def one_vocabulary(self) -> bool:
        """Whether each id is the same piece on both sides.

        Imported models may have one vocabulary over two tokenizers.
        """
        return self.joint or self.src.ids == self.tgt.ids

    def with_control_symbols(self, symbols: Sequence[str]) -> "Tokenizers":
        """Return tokenizers with further symbols: see `Tokenizer.with_control_symbols`."""
        src = self.src.with_control_symbols(symbols)
        return Tokenizers(src, src if self.joint else self.tgt.with_control_symbols(symbols))

    def with_user_symbols(self, symbols: Sequence[str]) -> "Tokenizers":
        """Return tokenizers with further strings: see `Tokenizer.with_user_symbols`."""
        src = self.src.with_user_symbols(symbols)
        return Tokenizers(src, src if self.joint else self.tgt.with_user_symbols(symbols))

    def tags(self, texts: tuple[Sequence[str], Sequence[str]]) -> Tags:
        """Return the tokens of tags.

        Args:
            texts: Of the source and the target: control symbols.

        Raises:
            DataError: If one is none.
        """
        for tokenizer, symbols in zip((self.src, self.tgt), texts, strict=True):
            for symbol in symbols:
                if not tokenizer.is_control(symbol):
                    raise DataError(
                        f"the vocabulary has no language tag '{symbol}': take the tokenizer that "
                        "the model was trained with"
                    )
        src, tgt = texts
        return Tags(tuple(self.src.ids[s] for s in src), tuple(self.tgt.ids[s] for s in tgt))

    def save(self, directory: Path) -> None:
        """Write `joint.model`, or `src.model` and `tgt.model`, in place of any that are there.

        For a folder that is there whole or not at all see `text.tokenizer_directory`.

        Raises:
            OSError: If the disk refuses.
        """
        models = {"joint": self.src} if self.joint else {"src": self.src, "tgt": self.tgt}
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("joint.model", "src.model", "tgt.model", PATCHES):
            (directory / name).unlink(missing_ok=True)
        for name, tokenizer in models.items():
            tokenizer.save(directory / f"{name}.model")

    @classmethod
    def load(cls, directory: Path) -> "Tokenizers":
        """Read what `save` wrote of SentencePiece models, or their one file for both languages.

        Raises:
            DataError: If files are missing or damaged.
        """
        if directory.is_file():
            joint = Tokenizer.load(directory)
            return cls(src=joint, tgt=joint)
        if not directory.is_dir():
            raise DataError(f"{directory}: no such folder (of a tokenizer)")
        found = [name for name in ("joint", "src", "tgt") if (directory / f"{name}.model").exists()]
        if "joint" in found and len(found) > 1:
            raise DataError(
                f"{directory}: joint.model and {found[1]}.model are of two tokenizers: remove one"
            )
        if "joint" in found:
            joint = Tokenizer.load(directory / "joint.model")
            return cls(src=joint, tgt=joint)
        if not found:
            raise DataError(
                f"{directory}: no tokenizer here: expected joint.model, or src.model and tgt.model"
            )
        return cls(
            src=Tokenizer.load(directory / "src.model"), tgt=Tokenizer.load(directory / "tgt.model")
        )

    def fingerprint(self) -> str:
        """Hash both models: equal pairs segment every text the same way."""
        return hashlib.sha256(
            f"{self.src.fingerprint()} {self.tgt.fingerprint()}".encode()
        ).hexdigest()

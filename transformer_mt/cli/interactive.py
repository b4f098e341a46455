"""Interactive translation at a terminal, or line by line from a program.

A sentence is answered by its translation. Then, until it is accepted or dropped:

- an empty line, or the translation itself: accepted
- `TEXT`: how the translation begins; it is completed
- `= TEXT`: the whole translation, as it is
- `? TEXT`: the words that may follow TEXT, with tabs between them
- `-`: dropped

Each line is answered by one line on stdout, apart from those that accept or drop.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, TextIO, TypeAlias

import typer

from transformer_mt.cli.input_lines import check_inputs, input_chunks, is_typed
from transformer_mt.cli.model_loading import in_direction, load_of_options
from transformer_mt.cli.output_files import results_to
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.log import counted

if TYPE_CHECKING:
    from transformer_mt.translation.completions import Completion
    from transformer_mt.translation.corrections import Corrections
    from transformer_mt.translation.translator import Translator

Ask: TypeAlias = Callable[[str, str], str | None]
"""Asks for a line with a prompt, and a text to edit; None: there are no more."""

NUM_WORDS = 5

logger = logging.getLogger(__name__)


def converse(ctx: typer.Context, given: Mapping[str, object]) -> None:
    """Translate sentences of stdin, and let each translation be corrected.

    Args:
        ctx: Of `tmt translate`.
        given: Its options of the search.

    Raises:
        ConfigError: If it is given a text or a file.
        DataError: If the corrections cannot be written.
    """
    from transformer_mt.translation.corrections import Corrections
    from transformer_mt.translation.load import make_translator

    options = ctx.params
    if words := options["files_or_text"]:
        raise ConfigError(f"{words[0]}: --interactive reads sentences from stdin: leave it out")
    check_inputs(options["glossary"])
    path = options["corrections"]
    kept = None if path is None else Corrections(path)
    if kept is not None:
        kept.check()
    bundle = in_direction(ctx, load_of_options(ctx))
    translator = make_translator(bundle, given, glossary=options["glossary"])
    data = bundle.config.data
    with results_to(None) as results:
        dialogue = Dialogue(translator, results, kept, (data.src_lang, data.tgt_lang))
        dialogue.run(*asking(dialogue.next_words, options["errors"]))


class Dialogue:
    """Translates sentences, and completes what a person makes of their translations.

    Args:
        translator: What translates.
        results: Gets the answers.
        corrections: Where accepted pairs are kept; None: nowhere.
        languages: Codes of source and target.
    """

    def __init__(
        self,
        translator: "Translator",
        results: TextIO,
        corrections: "Corrections | None",
        languages: tuple[str, str],
    ) -> None:
        self._translator, self._results = translator, results
        self._corrections, self._languages = corrections, languages
        self._source, self._text = "", ""
        self._num_lines = self._num_accepted = 0
        self._is_shown = False

    def run(self, ask: Ask, is_shown: bool) -> None:
        """Translate all sentences that are asked for.

        Args:
            ask: Asks for the next line.
            is_shown: Whether it shows the translation itself, which is then not written.
        """
        self._is_shown = is_shown
        while (source := self._next(ask, "> ", "")) is not None:
            if not source.strip():
                continue
            self._source, self._text = source, ""
            self._begin("")
            while (line := self._next(ask, "= ", self._text)) is not None:
                if line.strip() == "-":
                    break
                if line.strip() in ("", self._text):
                    self._accept()
                    break
                self._answer(line)
        kept = f"; kept in {self._corrections.path}" if self._corrections else ""
        logger.info("%s accepted%s", counted(self._num_accepted, "translation"), kept)

    def next_words(self, prefix: str) -> list[str]:
        """Return words that may follow a prefix, or complete its last one; none if it fits not."""
        try:
            return [one.word for one in self._completions(prefix, NUM_WORDS) if one.word]
        except DataError as error:
            logger.warning("%s", error)
            return []

    def _next(self, ask: Ask, prompt: str, text: str) -> str | None:
        self._num_lines += 1
        return ask(prompt, text)

    def _answer(self, line: str) -> None:
        sign, _, rest = line.partition(" ")
        if sign == "?":
            return self._write("\t".join(self.next_words(rest)))
        if sign == "=" and rest.strip():
            self._text = rest.strip()
            return self._write_text()
        self._begin(line.lstrip())

    def _begin(self, prefix: str) -> None:
        """Let the translation begin with a prefix; where that cannot be, it stays as it is."""
        try:
            self._text = self._completions(prefix, 1)[0].text
        except DataError as error:
            logger.warning("%s", error)
        self._write_text()

    def _completions(self, prefix: str, num: int) -> "list[Completion]":
        from transformer_mt.translation.completions import completions
        from transformer_mt.translation.requests import Line

        line = Line(self._source, prefix=prefix, number=self._num_lines)
        return completions(self._translator, line, num)

    def _accept(self) -> None:
        from transformer_mt.translation.corrections import UselessPairError

        try:
            if self._corrections is not None:
                self._corrections.add(self._source, self._text, self._languages)
            self._num_accepted += 1
        except UselessPairError as error:
            logger.warning("line %d: %s; not kept", self._num_lines, error)

    def _write_text(self) -> None:
        if not self._is_shown:
            self._write(self._text)

    def _write(self, text: str) -> None:
        print(text, file=self._results, flush=True)


def asking(
    next_words: Callable[[str], list[str]], errors: Literal["strict", "replace"]
) -> tuple[Ask, bool]:
    """Return what asks a person at a terminal, or reads stdin, and whether it shows the text.

    Args:
        next_words: Returns words that may follow a prefix, for the Tab key.
        errors: See `input_lines.input_chunks`.
    """
    if not is_typed([]):
        lines = (line for chunk in input_chunks([], errors) for line in chunk)
        return lambda prompt, text: next(lines, None), False
    logger.info(
        "type a sentence; then correct its translation: Enter completes what you change, and "
        "accepts what you do not; Tab shows the next words; Ctrl-D ends"
    )
    try:
        import readline
    except ImportError:  # Windows: no editing of what is there
        return _asked, False
    options: list[str] = []

    def complete(text: str, state: int) -> str | None:
        """Return the completion of a number."""
        if state == 0:
            words = next_words(readline.get_line_buffer()[: readline.get_endidx()])
            options[:] = [one if one.startswith(text) else f"{text} {one}" for one in words]
        return options[state] if state < len(options) else None

    def ask(prompt: str, text: str) -> str | None:
        """Ask for a line that begins as a text, which may be edited."""
        readline.set_completer(complete if text else None)
        readline.set_startup_hook(lambda: readline.insert_text(text))
        return _asked(prompt, text)

    readline.set_completer_delims(" ")
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
    return ask, sys.stdout.isatty()


def _asked(prompt: str, text: str) -> str | None:
    try:
        return input(prompt)
    except EOFError:
        print()
        return None

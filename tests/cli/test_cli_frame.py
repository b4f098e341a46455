"""The frame of `tmt`: start-up, help, exit codes, and what errors look like."""

import errno
import io
import json
import logging
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.commands import imports_of
from transformer_mt import __version__
from transformer_mt.cli.main import (
    COMMANDS,
    CommandGroup,
    Program,
    app,
    describe,
    prepare_streams,
    report,
    tmt,
)
from transformer_mt.cli.options import as_text
from transformer_mt.errors import (
    ConfigError,
    DataError,
    DivergedError,
    InterruptedRun,
    ModelError,
    TmtError,
)

GOOD = """\
name: good
data:
  src_lang: "no"
  tgt_lang: en
  train: [{type: reverse, num_pairs: 10}]
  valid: {type: reverse, num_pairs: 10}
training: {max_steps: 10000}
"""
SLOW_TO_IMPORT = {"torch", "datasets", "numpy", "sentencepiece", "sacrebleu", "pyarrow", "rich"}
NOT_FOR_HELP = SLOW_TO_IMPORT | {"pydantic", "yaml", "tqdm", "importlib.metadata"}


PROGRAM = [sys.executable, "-m", "transformer_mt"]


def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | environment,
    )
    return done.returncode, done.stdout, done.stderr


def command_lines(app: typer.Typer) -> Iterator[list[str]]:
    """Find the command line of every command and group, the program itself included."""

    def walk(command: Any, line: list[str]) -> Iterator[list[str]]:
        yield line
        for name in getattr(command, "commands", {}):
            yield from walk(command.get_command(None, name), [*line, name])

    return walk(typer.main.get_command(app), [])


LINES = list(command_lines(app))


# --- start-up -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["train", "--help"], ["config", "show", "CONFIG"]],
    ids=" ".join,
)
def test_start_up_imports_nothing_slow(arguments: list[str], tmp_path: Path) -> None:
    config = tmp_path / "good.yaml"
    config.write_text(GOOD)
    slow = NOT_FOR_HELP if arguments == ["--help"] else SLOW_TO_IMPORT
    arguments = [str(config) if word == "CONFIG" else word for word in arguments]
    code, loaded, err = imports_of(*arguments)
    assert (code, err) == (0, "")
    assert loaded & slow == set()


def test_version_names_what_decides_results() -> None:
    code, out, err = run("--version")
    assert (code, err) == (0, "")
    pattern = rf"tmt {re.escape(__version__)}( \(\S+\))?, torch \S+, Python [\d.]+\n"
    assert re.fullmatch(pattern, out)


def test_the_installed_program_is_this_one() -> None:
    program = Path(sys.executable).parent / "tmt"
    if not program.exists():
        pytest.skip("the package is not installed")
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"tmt {__version__}")


# --- help -----------------------------------------------------------------------------------------


def test_every_command_of_the_list_is_there() -> None:
    assert len(LINES) > len(COMMANDS)
    assert [line[0] for line in LINES if len(line) == 1] == list(COMMANDS)


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(["tmt", *line]))
def test_help_has_examples_and_words_for_values(line: list[str]) -> None:
    long, short = (
        CliRunner().invoke(app, [*line, option], env={"NO_COLOR": "1"})
        for option in ("--help", "-h")
    )
    assert long.exit_code == 0
    assert long.stdout == short.stdout
    _, _, examples = long.stdout.partition("Examples:\n")
    assert " ".join(["tmt", *line]) in examples
    assert "\x1b" not in long.stdout
    types = r"^ +-.* <(str|path|int|float|list)\b"  # as Python calls them
    assert not re.search(types, long.stdout, re.MULTILINE)


def test_no_summary_of_a_command_is_cut_off() -> None:
    help_text = run("--help", COLUMNS="80")[1]
    assert "..." not in help_text.partition("Commands:")[2]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_can_be_shown(shell: str) -> None:
    code, out, err = run(_TMT_COMPLETE=f"source_{shell}")
    assert (code, err) == (0, "")
    assert f"_TMT_COMPLETE=complete_{shell}" in out


def test_commands_and_options_are_completed() -> None:
    code, out, err = run(_TMT_COMPLETE="complete_bash", COMP_WORDS="tmt conf", COMP_CWORD="1")
    assert (code, out, err) == (0, "config\n", "")
    code, out, _ = run(_TMT_COMPLETE="complete_bash", COMP_WORDS="tmt train --co", COMP_CWORD="2")
    assert (code, out) == (0, "--config\n")


# --- errors ---------------------------------------------------------------------------------------

ERRORS: dict[str, tuple[Exception, int, str]] = {
    "config": (ConfigError("base.yaml:3:11: seed: x"), 2, "base.yaml:3:11: seed: x"),
    "data": (DataError("train.de:7: not UTF-8"), 3, "train.de:7: not UTF-8"),
    "model": (ModelError("model.safetensors: damaged"), 4, "model.safetensors: damaged"),
    "diverged": (DivergedError("the loss is not finite"), 5, "the loss is not finite"),
    "interrupted": (InterruptedRun("stopped by SIGTERM"), 75, "stopped by SIGTERM"),
    "general": (TmtError("something else"), 1, "something else"),
    "several": (ConfigError("2 mistakes:\na: b\nc: d"), 2, "2 mistakes:\na: b\nc: d"),
    "full": (
        OSError(errno.ENOSPC, "No space left on device", "runs/x/model.safetensors"),
        1,
        "no space left on the device: runs/x/model.safetensors",
    ),
    "forbidden": (
        PermissionError(errno.EACCES, "Permission denied", "runs"),
        1,
        "permission denied: runs",
    ),
    "bug": (
        RuntimeError("shapes (3, 4) and (5,)\ndo not fit"),
        1,
        "Internal error (RuntimeError: shapes (3, 4) and (5,)). This is a bug: rerun with "
        "`tmt --debug ..` and report the traceback.",
    ),
    "memory": (
        type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory. Tried .."),
        1,
        "the device is out of memory: lower training.micro_batch_tokens or the beam",
    ),
    "memory of the CPU": (
        RuntimeError("[..] DefaultCPUAllocator: can't allocate memory: you .."),
        1,
        "there is not enough memory: take a smaller model, batch or beam",
    ),
    "escape": (DataError("train.de:7: \x1b[31m"), 3, r"train.de:7: \x1b[31m"),
}


def failing_app() -> typer.Typer:
    failing = typer.Typer(cls=CommandGroup, rich_markup_mode=None, pretty_exceptions_enable=False)
    failing.callback()(tmt)

    @failing.command()
    def fail(kind: str) -> None:
        if kind == "interrupt":
            raise KeyboardInterrupt
        if kind == "pipe":
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        raise ERRORS[kind][0]

    return failing


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_is_one_line_and_an_exit_code(kind: str) -> None:
    result = CliRunner().invoke(failing_app(), ["fail", kind])
    _, code, message = ERRORS[kind]
    assert (result.exit_code, result.stdout) == (code, "")
    level = "" if kind == "interrupted" else "error: "
    assert result.stderr == f"tmt: {level}{message}\n"


def test_debug_prints_the_traceback_before_the_line() -> None:
    result = CliRunner().invoke(failing_app(), ["--debug", "fail", "data"])
    assert result.exit_code == 3
    assert result.stderr.startswith("Traceback (most recent call last):\n")
    assert result.stderr.endswith("tmt: error: train.de:7: not UTF-8\n")


def test_debug_can_come_from_the_environment() -> None:
    result = CliRunner().invoke(failing_app(), ["fail", "bug"], env={"TMT_DEBUG": "1"})
    assert result.stderr.startswith("Traceback")


def test_ctrl_c_is_130_and_a_closed_pipe_is_quiet() -> None:
    assert CliRunner().invoke(failing_app(), ["fail", "interrupt"]).exit_code == 130
    result = CliRunner().invoke(failing_app(), ["fail", "pipe"])
    assert (result.exit_code, result.stderr) == (141, "")


def test_without_stderr_messages_go_nowhere_and_not_among_the_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results = io.StringIO()
    monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(sys, "stdout", results)
    prepare_streams()
    assert report(ValueError("unheard"), debug=False) == 1
    assert results.getvalue() == ""
    sys.stderr.close()


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [*PROGRAM, "config", "schema"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # the program cannot have written yet: Python is still starting
        assert process.stderr.read() == b""
        assert process.wait(timeout=300) == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
@pytest.mark.parametrize("arguments", [["config", "schema"], ["--version"]], ids=" ".join)
def test_a_full_disk_under_stdout_is_one_line(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == b"tmt: error: stdout: cannot write: no space left on the device\n"


def test_ctrl_c_while_the_program_still_loads_is_quiet() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["tmt"].partition(":")
    program = f"""
import sys
class Interrupted:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from {module} import {function}
{function}()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("translate -m NOWHERE -i HERE", 4),
        ("translate -m MODEL -i NOWHERE", 3),
        ("evaluate -m NOWHERE --src HERE --ref HERE", 4),
        ("evaluate -m MODEL --src HERE --ref NOWHERE", 3),
        ("distill NOWHERE -m MODEL -o OUT", 3),
        ("score -m MODEL -m NOWHERE --src HERE --tgt HERE", 4),
        ("rescore -m MODEL -m NOWHERE --src HERE -i HERE", 4),
        ("explain dog -m NOWHERE", 4),
        ("compare NOWHERE", 4),
        ("verify NOWHERE", 4),
    ],
)
def test_missing_models_and_files_are_reported_before_torch_is_loaded(
    tmp_path: Path, tiny_bundle: Path, arguments: str, code: int
) -> None:
    here = tmp_path / "here"
    here.write_text("dog\n")
    words = {"NOWHERE": tmp_path / "nowhere", "HERE": here, "MODEL": tiny_bundle}
    ended, loaded, err = imports_of(*(words.get(word, word) for word in arguments.split()))
    assert ended == code
    assert f"{tmp_path}/nowhere: " in err
    assert err.count("\n") == 1
    assert "torch" not in loaded


def test_translation_loads_nothing_that_it_does_not_use(tiny_bundle: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("dog\n")
    code, loaded, _ = imports_of("translate", "-m", tiny_bundle, "-i", text)
    assert (code, "torch" in loaded) == (0, True)
    unused = {"datasets", "pyarrow", "pandas", "sacrebleu", "sympy", "matplotlib"}
    assert not loaded & (
        unused
        | {"torch._dynamo", "torch._inductor", "torch.distributed.fsdp"}
        | {"transformer_mt.training.trainer"}
    )


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_text_of_options_is_utf8_in_every_locale(tmp_path: Path) -> None:
    path = tmp_path / "größe.yaml"
    path.write_text(GOOD)

    def ended(setting: bytes) -> tuple[int, bytes, bytes]:
        command = [*PROGRAM, "config", "show", str(path), "--set"]
        done = subprocess.run(
            [*map(os.fsencode, command), setting], capture_output=True, env=os.environ | ASCII
        )
        return done.returncode, done.stdout, done.stderr

    code, out, err = ended("data.corpus_dir=größe".encode())
    assert (code, "corpus_dir: größe\n" in out.decode(), err) == (0, True, b"")
    assert ended(b"name=\xe4") == (
        2,
        b"",
        b"tmt: error: name=\\udce4: these bytes are not UTF-8: type the text in UTF-8\n",
    )


def test_text_is_read_by_the_locale_where_it_is_not_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsencode", lambda word: word.encode("latin-1"))
    assert as_text("Ã¤ b") == "ä b"
    assert as_text("ä b") == "ä b"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Usage: tmt"),
        (["trian"], "No such command 'trian'. Did you mean 'train'"),
        (["--quiet", "--verbose", "config", "schema"], "exclude each other"),
        (["config", "show"], "give a config, as an argument or with --config"),
        (["config", "check"], "give configs, as arguments or with --config"),
        (["inspect", "base", "--config", "base"], "name the same thing: give only one"),
        (["lab", "scaling"], "run `python -m experiments` in a checkout"),
        (["config", "show", "a", "b"], "unexpected extra argument"),
        (["config", "show", "--sett", "x"], "No such option: --sett; did you mean --set?"),
        (["train", "--lr", "1"], "No such option: --lr; give --set training.lr=.."),
        (["train", "--epochs", "3"], "give --set training.max_epochs=.."),
        (["train", "--batch-size", "3"], "give --set training.max_tokens=.."),
        (["train", "--resume"], "the same command resumes an interrupted run"),
        (["translate", "--epochs", "3"], "No such option: --epochs\n"),
        (["train", "-c", "base", "training.lr=1"], "put --set before each setting"),
        (["train", "base", "training.lr=1"], "put --set before each setting"),
        (["train", "base", "--config", "base"], "name the same thing: give only one"),
        (["train"], "give a config, as an argument or with --config"),
        (["bleu"], "Did you mean 'evaluate'?"),
        (["attention", "A dog."], "'attention' was removed: use `tmt explain`"),
        (["verify", "--score", "--no-score"], "--score is given 2 times; it takes one value"),
        (["config", "schema", "-q", "-v"], "exclude each other"),
    ],
)
def test_wrong_usage_is_2(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_summaries_of_the_help_page_are_those_of_the_commands() -> None:
    program = typer.main.get_command(app)
    assert isinstance(program, Program)
    assert {
        name: program.get_command(None, name).get_short_help_str(100) for name in COMMANDS
    } == COMMANDS


def single_value_options() -> Iterator[tuple[list[str], str]]:
    for line in LINES:
        command: Any = typer.main.get_command(app)
        for name in line:
            command = command.get_command(None, name)
        for option in command.params if line else []:
            is_single = option.param_type_name == "option" and not option.multiple
            if is_single and not option.is_flag:
                yield line, option.opts[0]


def test_a_second_value_is_refused_by_every_option_that_takes_one() -> None:
    options = list(single_value_options())
    assert len(options) > 100
    for line, option in options:
        result = CliRunner().invoke(app, [*line, option, "1", option, "2"])
        assert result.exit_code == 2
        assert f"{option} is given 2 times; it takes one value" in result.output


def test_options_of_the_program_may_follow_the_command() -> None:
    assert CliRunner().invoke(app, ["config", "schema", "-q"]).exit_code == 0
    assert logging.getLogger("transformer_mt").level == logging.WARNING
    assert CliRunner().invoke(app, ["config", "schema", "--verbose"]).exit_code == 0
    assert logging.getLogger("transformer_mt").level == logging.DEBUG
    result = CliRunner().invoke(app, ["config", "show", "none", "--debug"])
    assert result.stderr.startswith("Traceback")


def test_help_may_be_asked_for_as_a_command() -> None:
    for words, asked in ((["help"], ["-h"]), (["help", "train"], ["train", "-h"])):
        assert CliRunner().invoke(app, words).stdout == CliRunner().invoke(app, asked).stdout


# --- tmt config -----------------------------------------------------------------------------------


def test_config_show_prints_what_reads_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    shown = CliRunner().invoke(app, ["config", "show", str(path), "--set", "seed=7"])
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "seed: 7\n" in shown.stdout
    again = tmp_path / "again.yaml"
    again.write_text(shown.stdout)
    assert CliRunner().invoke(app, ["config", "show", str(again)]).stdout == shown.stdout


def test_config_check_reports_all_files(tmp_path: Path) -> None:
    good, bad, worse = (tmp_path / name for name in ("good.yaml", "bad.yaml", "worse.yaml"))
    good.write_text(GOOD)
    bad.write_text(GOOD.replace("10000", "x"))
    worse.write_text(GOOD.replace("10000", "x").replace("name:", "nmae:"))
    paths = [str(bad), str(good), str(worse), str(tmp_path / "none.yaml")]
    result = CliRunner().invoke(app, ["config", "check", *paths])
    assert result.exit_code == 2
    assert result.stdout == f"{good}: ok; 0 files found\n"
    lines = result.stderr.splitlines()
    assert lines[0].startswith(f"tmt: error: {bad}:7:23: training.max_steps: ")
    assert sum(line.startswith(f"{worse}:") for line in lines) == 3
    assert "none.yaml: no such config file" in lines[-1]


@pytest.mark.parametrize("given", [["--config", "{}"], ["-c", "{}"], ["--config={}"]])
def test_configs_can_be_named_as_for_other_commands(given: list[str], tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    arguments = [text.format(path) for text in given]
    checked = CliRunner().invoke(app, ["config", "check", "--set", "seed=7", *arguments])
    assert (checked.exit_code, checked.output) == (0, f"{path}: ok; 0 files found\n")
    assert "seed: 1\n" in CliRunner().invoke(app, ["config", "show", *arguments]).stdout


def test_config_check_warns_of_settings_without_effect(
    tmp_path: Path,
) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    code, out, err = run(
        "config", "check", str(path), "--set", "tokenizer.path=x", "--set", "tokenizer.type=unigram"
    )
    assert (code, out) == (0, f"{path}: ok; 0 files found\n")
    assert err.endswith(
        f"tmt: warning: {path}: tokenizer.type has no effect: the tokenizer in tokenizer.path is "
        "trained already\n"
    )
    assert err.count("\n") == 1


def test_config_schema_is_json(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["config", "schema"])
    assert json.loads(result.stdout)["title"] == "Config"


def test_files_of_a_config_are_looked_for_before_torch_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "train.no.gz").write_bytes(b"x")
    path = tmp_path / "gone.yaml"
    files = f"{{type: text, src: {tmp_path}/train.no, tgt: {tmp_path}/train.en}}"
    path.write_text(GOOD.replace("{type: reverse, num_pairs: 10}", files, 1))
    code, out, err = run("config", "check", str(path))
    assert (code, out) == (3, "")
    hint = f"{tmp_path}/train.no: no such file; did you mean '{tmp_path}/train.no.gz'?"
    assert hint in err
    code, loaded, err = imports_of("train", path)
    assert (code, hint in err, "torch" in loaded) == (3, True, False)


def test_pictures_need_no_backend_of_a_notebook() -> None:
    code = "from transformer_mt.plots.style import new_figure; new_figure(1, 1)"
    environment = os.environ | {"MPLBACKEND": "module://nowhere.backend_inline"}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


def test_wrong_values_of_options_are_named_in_plain_words() -> None:
    result = CliRunner().invoke(app, ["translate", "--precision", "copie"])
    assert (result.exit_code, "Value error" in result.output) == (2, False)
    assert "'copie' is not one of" in result.output
    result = CliRunner().invoke(app, ["translate", "--beam-size", "0"])
    assert "'--beam-size': must be greater than or equal to 1" in result.output


# --- installations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import ctypes; ctypes.CDLL('libmissing.so.9')",
            "installation of {} is damaged.*libmissing",
        ),
        (
            "raise ImportError('libmissing.so.9: cannot open shared object file')",
            "installation of {} is damaged.*libmissing.so.9",
        ),
        ("import {}.native", r"installation of {} is damaged.*\.native"),
        (
            "import not_there",
            "package not_there is not installed: .python -m pip install not_there",
        ),
    ],
)
def test_a_package_that_cannot_be_loaded_is_named_and_not_reported_as_a_bug(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, message: str
) -> None:
    package = f"damaged{abs(hash(text))}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(text.format(package))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises((ImportError, OSError)) as caught:
        __import__(package)
    assert re.search(message.format(package), describe(caught.value))


def test_errors_of_own_imports_are_internal_errors() -> None:
    with pytest.raises(ImportError) as caught:
        from transformer_mt.errors import NoSuchError  # type: ignore[attr-defined]  # noqa: F401
    assert describe(caught.value).startswith("Internal error")


def test_python_without_docstrings_is_refused() -> None:
    code, out, err = run("--help", PYTHONOPTIMIZE="2")
    assert (code, out) == (1, "")
    assert "-OO" in err
    assert err.count("\n") == 1

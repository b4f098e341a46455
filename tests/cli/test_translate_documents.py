"""`tmt translate` of documents: the same document comes out, whole or not at all."""

import json
import re

import polib
import pytest

from tests.commands import tmt as run

CATALOG = """\
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"

msgid "The <b>dog</b> runs %s."
msgstr ""

msgid "A red dog.\\n"
msgstr "Ein roter Hund.\\n"
"""


@pytest.fixture
def catalog(tmp_path):
    path = tmp_path / "m.po"
    path.write_text(CATALOG, encoding="utf-8")
    return path


def test_a_catalog_is_known_by_its_name_and_filled(tiny_bundle, catalog, tmp_path):
    output = tmp_path / "de.po"
    result = run("translate", "-m", tiny_bundle, "-i", catalog, "-o", output, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["segments"] == 2
    entries = polib.pofile(str(output))
    assert "<b>" in entries[0].msgstr
    assert "%s" in entries[0].msgstr
    assert output.read_text().endswith(CATALOG[CATALOG.index('msgid "A red') :])
    assert "2 segments: " in result.stderr


def test_a_document_comes_from_stdin_and_goes_to_stdout(tiny_bundle, catalog):
    arguments = ("translate", "-m", tiny_bundle, "--format")
    data = catalog.read_bytes()
    result = run(*arguments, "po:fill=all,mark=fuzzy", data=data)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("#, fuzzy") == 2
    lines = run(*arguments, "lines", data=b"The dog.\n")
    assert lines.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--format", "pdf"], 2, "there is no such format; there are: po"),
        (["--format", "po:fil=all"], 2, "expected OPTION=VALUE, got 'fil=all'"),
        (["--format", "po:fill=some"], 2, "fill: expected missing or fuzzy or all, got 'some'"),
        (["--n-best", "2"], 2, "--n-best refers to lines, and the input is a document"),
        (["--shards", "2", "-o", "de.po"], 2, "--shards refers to lines, and the input is a doc"),
        (["--json"], 2, "give --output, too"),
    ],
)
def test_options_that_do_not_go_with_a_document_are_refused(
    tiny_bundle, catalog, options, code, message
):
    result = run("translate", "-m", tiny_bundle, "-i", catalog, *options)
    assert result.exit_code == code
    assert message in result.stderr
    assert result.stdout == ""


def test_a_document_that_cannot_be_read_leaves_the_output_alone(tiny_bundle, catalog, tmp_path):
    output = tmp_path / "de.po"
    output.write_text("before")
    catalog.write_text('msgid "a"\nnonsense\n')
    result = run("translate", "-m", tiny_bundle, "-i", catalog, "-o", output)
    assert result.exit_code == 3
    assert f"{catalog}:2: not a gettext catalog" in result.stderr
    assert output.read_text() == "before"
    assert "model: " not in result.stderr  # it is read before the model is


def test_a_document_or_a_memory_of_another_language_is_named_before_the_model(
    tiny_bundle, catalog, tmp_path
):
    arguments = ("translate", "-m", tiny_bundle, "-i", catalog)
    memory = tmp_path / "m.tmx"
    memory.write_text(
        '<tmx version="1.4"><header/><body><tu><tuv xml:lang="en"><seg>A</seg></tuv></tu></body>'
        "</tmx>"
    )
    result = run(*arguments, "--memory", memory)
    assert result.exit_code == 3
    assert "no unit has both en and de; there is: en; take a file of these" in result.stderr
    catalog.write_text(CATALOG.replace('8\\n"\n', '8\\n"\n"Language: fr\\n"\n', 1))
    found = run(*arguments)
    assert found.exit_code == 2
    assert "is to be translated into 'fr', but the model translates into 'de'" in found.stderr
    assert "model: " not in result.stderr + found.stderr
    damaged = run("translate", "-m", tmp_path, "-i", catalog)
    assert (damaged.exit_code, "manifest.json" in damaged.stderr) == (4, True)


@pytest.mark.parametrize(
    ("name", "content", "kept"),
    [
        ("a.html", '<p id="en">A <b>dog</b> runs.<img src="x">', r"<p id=\"en\">.*<b>.*</b>"),
        ("a.md", "# The *dog* runs\n\n- A [cat](b.md)\n", r"# .*\*.*\*.*\n\n- .*\]\(b\.md\)"),
        ("a.srt", "1\n00:00:01,0 --> 00:00:02,0\n<i>A dog</i> runs.\n\n", r"1\n00:.*\n.*<i>.*</i>"),
        ("a.json", '{"b": "A dog runs", "n": 1.50}', r'\{"b": ".*", "n": 1\.50\}'),
        ("a.tsv:column=de", "en\tde\n1\tA dog runs\n", r"en\tde\n1\t.+\n"),
    ],
)  # fmt: skip
def test_other_formats_keep_their_structure(tiny_bundle, tmp_path, name, content, kept):
    name, _, options = name.partition(":")
    path, output = tmp_path / name, tmp_path / f"de.{name}"
    path.write_text(content, encoding="utf-8")
    form = ("--format", f"tsv:{options}") if options else ()
    result = run("translate", "-m", tiny_bundle, "-i", path, "-o", output, *form)
    assert result.exit_code == 0, result.stderr
    assert re.match(kept, output.read_text(encoding="utf-8"))
    assert output.read_text(encoding="utf-8") != content
    assert "1 translated" in result.stderr or "2 translated" in result.stderr


def test_a_memory_is_taken_before_the_model_and_marked(tiny_bundle, catalog, tmp_path):
    memory, output = tmp_path / "m.tsv", tmp_path / "de.po"
    memory.write_text("The <b>dog</b> runs %s.\tDer <b>Hund</b> rennt %s.\n")
    arguments = ("translate", "-m", tiny_bundle, "-i", catalog, "--memory", memory)
    result = run(*arguments, "-o", output)
    assert result.exit_code == 0, result.stderr
    assert polib.pofile(str(output))[0].msgstr == "Der <b>Hund</b> rennt %s."
    assert "2 segments: 1 from memory, 1 kept" in result.stderr
    memory.write_text("A <b>dog</b> runs %s.\tEin <b>Hund</b> rennt %s.\n")
    assert run(*arguments, "-o", output).exit_code == 0
    entry = polib.pofile(str(output))[0]
    assert (entry.fuzzy, entry.previous_msgid) == (True, "A <b>dog</b> runs %s.")
    lines = run("translate", "-m", tiny_bundle, "--memory", memory, data=b"dog\n")
    assert (lines.exit_code, "--memory is for documents" in lines.stderr) == (2, True)

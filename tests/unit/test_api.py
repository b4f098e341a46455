"""The Python interface: `import transformer_mt as tmt`."""

import itertools
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import transformer_mt as tmt
from transformer_mt.config.decoding import DecodingSettings
from transformer_mt.config.dumping import dump_config
from transformer_mt.translation.keywords import SearchKeywords

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "0.1.0" / "bundle"
LINES = ["The dog sees a red house.", "", "A cat and a man run near the house.", "The old tree."]


@pytest.fixture(scope="module")
def model() -> tmt.Model:
    return tmt.load(GOLDEN)


def test_the_import_loads_no_other_module_and_changes_nothing() -> None:
    program = """
import logging, signal, sys
before = {number: signal.getsignal(number) for number in signal.valid_signals()}
import transformer_mt as tmt
assert "load" in dir(tmt)
loaded = [name for name in sys.modules if name.startswith("transformer_mt.")]
assert not loaded and not {"torch", "numpy", "pydantic"} & set(sys.modules), loaded
try:
    tmt.load("runs/missing")
except tmt.ModelError:
    pass
assert "torch" not in sys.modules
assert before == {number: signal.getsignal(number) for number in signal.valid_signals()}
assert not logging.getLogger().handlers and not logging.getLogger("transformer_mt").handlers
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_every_public_name_is_there() -> None:
    for name in tmt.__all__:
        assert getattr(tmt, name).__name__ == name  # also those that need torch
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tmt.nothing  # type: ignore[attr-defined]


def test_every_decoding_setting_is_a_keyword() -> None:
    of_call, of_json_output = {"n_best", "num_workers"}, {"attention", "alternatives"}
    settings = set(DecodingSettings.model_fields) - of_json_output
    assert set(SearchKeywords.__annotations__) == settings | of_call


def test_each_line_has_one_result(model: tmt.Model) -> None:
    found = model.translate(LINES, n_best=3, alignments=True)
    assert [len(result.n_best) for result in found] == [3, 1, 3, 3]
    assert found[1].text == str(found[1]) == ""
    assert found[0].text == found[0].n_best[0].text
    scores = [candidate.score for candidate in found[0].n_best]
    assert scores == sorted(scores, reverse=True)
    assert found[0].log_prob <= found[0].score < 0
    assert found[0].alignment is not None
    assert {j for _, j in found[0].alignment} == set(range(len(found[0].text.split())))
    assert model.translate([]) == list(model.translate_iter([])) == model.score([]) == []


def test_odd_text_gives_one_line_each(model: tmt.Model) -> None:
    odd = ["A dog.\nA cat.", "\ud800 half", "nul \0", "\x1b[31m", "dog " * 300, "\u2028", "  "]
    found = model.translate(odd)
    assert len(found) == len(odd)
    assert not [result.text for result in found if len(result.text.splitlines()) > 1]


def test_a_stream_is_read_as_its_results_are_used(model: tmt.Model) -> None:
    read = []

    def stream() -> Iterator[str]:
        for number in itertools.count():
            read.append(number)
            yield LINES[number % 4]

    found = model.translate_iter(stream(), chunk_size=8, beam_size=1)
    texts = [next(found).text for _ in range(8)]
    assert len(read) == 8
    assert texts == [t.text for t in model.translate(LINES * 2, beam_size=1)]
    assert next(found).text == texts[0]
    assert len(read) == 16


def test_prefixes_phrases_and_terms_are_in_the_output(model: tmt.Model) -> None:
    first, second = model.translate(["The dog runs.", "A cat."], prefixes=["Auto", ""])
    assert first.text.startswith("Auto")
    assert not second.text.startswith("Auto")
    line = tmt.Line("The dog runs.", phrases=("auto",))
    assert "auto" in model.translate([line])[0].text
    (result,) = model.translate(["The dog runs."], glossary={"dog": "Katze"})
    assert "Katze" in result.text
    assert result.num_terms_met == 1


def test_scores_of_given_translations_order_them(model: tmt.Model) -> None:
    good, bad = model.score([("The dog.", "Das hund."), ("The dog.", "Ein auto.")])
    assert good.log_prob > bad.log_prob
    assert good.log_prob == pytest.approx(sum(good.token_log_probs))


def test_an_evaluation_has_scores_with_signatures(model: tmt.Model) -> None:
    references = ["Das Hund sieht ein rot Haus.", "Ein Katze."]
    found = tmt.evaluate(model, LINES[::2], references, metrics=["chrf"], confidence=True)
    (score,) = found.scores
    assert found.hypotheses == [t.text for t in model.translate(LINES[::2], split_sentences=False)]
    assert 0 < score.value < 100
    assert "version:" in score.signature
    assert score.half_width is not None


def test_an_ensemble_of_equal_models_is_the_model(model: tmt.Model) -> None:
    both = tmt.load([GOLDEN, str(GOLDEN)], weights=[1, 3])
    assert [t.text for t in both.translate(LINES)] == [t.text for t in model.translate(LINES)]


def test_threads_share_a_model(model: tmt.Model) -> None:
    expected = [t.text for t in model.translate(LINES)]
    found = []

    def work() -> None:
        found.append([t.text for t in model.translate(LINES)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_translates() -> None:
    program = f"""
import os, signal, torch, transformer_mt as tmt
model = tmt.load({str(GOLDEN)!r}, threads=2)
(torch.randn(600, 600) @ torch.randn(600, 600)).exp().sum()  # starts the threads of OpenMP
child = os.fork()
if child == 0:
    signal.alarm(60)
    model.translate(["The dog."] * 40)
    (torch.randn(600, 600) @ torch.randn(600, 600)).exp().sum()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: m.translate("The dog."), TypeError, "expected a list of texts, got one text"),
        (lambda m: m.translate(["a", 3]), TypeError, "line 2: expected text .str., got 3"),
        (lambda m: next(m.translate_iter([None])), TypeError, "line 1: expected text"),
        (lambda m: m.translate(["a"], beam=3), TypeError, "did you mean 'beam_size'"),
        (lambda m: m.translate(["a"], beam_size="3"), tmt.ConfigError, "integer"),
        (
            lambda m: m.translate(["a"], n_best=0),
            tmt.ConfigError,
            "n_best: expected a whole number from 1, got 0",
        ),
        (lambda m: m.translate(["a"], n_best=9), tmt.ConfigError, "cannot give 9 translations"),
        (lambda m: m.translate(["a"], suppress="dog"), TypeError, "got one text"),
        (lambda m: m.translate(["a"], prefixes=[]), ValueError, "expected 1 prefixes"),
        (lambda m: m.translate(["a"], glossary="none.tsv"), tmt.DataError, "none.tsv: no such"),
        (lambda m: m.score([("a",)]), TypeError, "pair 1: expected a source and a translation"),
        (lambda m: tmt.evaluate(m, ["a"], []), tmt.DataError, "1 sources have 0 references"),
        (lambda m: tmt.load(GOLDEN / "config.yaml"), tmt.ModelError, "is a file"),
        (lambda m: tmt.load([]), ValueError, "at least one model"),
        (lambda m: tmt.load(GOLDEN, device="tpu"), tmt.ConfigError, "'tpu' is not there"),
        (lambda m: tmt.train("nothing"), tmt.ConfigError, "no such config file .* recipes: .*base"),
        (lambda m: tmt.train({"name": "x"}), tmt.ConfigError, "data: missing"),
        (
            lambda m: tmt.train("reverse", {"training.max_stepz": 3}),
            tmt.ConfigError,
            "did you mean 'max_steps'",
        ),
    ],
)
def test_mistakes_are_named(model, call, error, words) -> None:
    with pytest.raises(error, match=words):
        call(model)


def test_a_run_is_trained_once_and_loaded(run_config, tmp_path) -> None:
    values = run_config("a").model_dump()  # as a program would hold it
    result = tmt.train(values, {"training.max_steps": 4}, training={"log_every_steps": 1})
    assert (result.step, Path(result.run_dir)) == (4, tmp_path / "a" / "runs" / "tiny")
    assert "loss_nats" in result.scores
    assert tmt.train(run_config("a", training__max_steps=4)) == result  # finished before
    assert tmt.load(result.run_dir).translate(["1 2"])
    checkpoint = next(Path(result.run_dir).glob("checkpoints/*"))
    with pytest.raises(tmt.ModelError, match="a checkpoint, for resuming training"):
        tmt.load(checkpoint)
    with pytest.raises(tmt.ModelError, match="has no model yet"):
        tmt.load(_just_begun(tmp_path))


def _just_begun(folder: Path) -> Path:
    (folder / "new").mkdir()
    (folder / "new" / "lock").touch()
    return folder / "new"


def test_a_second_signal_leaves_a_run_and_not_the_program(run_config) -> None:
    from transformer_mt.training import signals

    with signals.stop_request(at_second=signals.raise_interrupt) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        stop._asked_at -= 2
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_code_of_the_page_on_python_runs(tmp_path, run_config, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    for name in ("base", "other"):
        shutil.copytree(GOLDEN, tmp_path / "runs" / name / "best")
    (tmp_path / "my.yaml").write_text(dump_config(run_config()), encoding="utf-8")
    (tmp_path / "input.txt").write_text("A dog.\nThe cat.\n", encoding="utf-8")
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) > 10
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    assert (tmp_path / "output.txt").read_text(encoding="utf-8").count("\n") == 2

"""`tmt explain`: the numbers are the model's, and the page is safe, whole and alone."""

import ast
import base64
import hashlib
import json
import re
import shutil
import subprocess
import zlib
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.commands import tmt
from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.config.model import TransformerSettings
from transformer_mt.errors import DataError
from transformer_mt.explain import gather as gathering
from transformer_mt.explain import picture
from transformer_mt.explain.gather import Facts, gather, packed
from transformer_mt.explain.page import page
from transformer_mt.models.build import build_model
from transformer_mt.text.patches import patch_tokenizer
from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.scoring import all_attention, alternatives, token_log_probs
from transformer_mt.translation.translator import Translator

ROOT = Path(__file__).parents[3]
HOSTILE = "</script><img src=x onerror=alert(1)> & \u2028 <!-- {{script}} {{data}} ]]> \"'"
KINDS = {"encoder", "decoder", "cross"}
TEXTS = [
    "The dog runs.",
    HOSTILE,
    "中国 日本語",
    "مرحبا بالعالم",
    "e\u0301 \u0e01\u0e33 👩‍👩‍👧",
    "\udcff a",
]


@pytest.fixture(scope="module")
def bundle(tiny_bundle) -> Bundle:
    return load_bundle(tiny_bundle)


@pytest.fixture(scope="module")
def reader(bundle) -> Bundle:
    """A model, not trained, that reads drawn sentences."""
    settings = bundle.config.model.model_dump() | {
        "tie_embeddings": "target",
        "encoder_input": {"type": "patches", "height": 8, "patch_width": 4},
    }
    model_settings = TransformerSettings.model_validate(settings)
    src = patch_tokenizer(model_settings.encoder_input, names_pictures=False)
    tgt = bundle.tokenizers.tgt
    torch.manual_seed(1)
    model = build_model(
        model_settings, src_vocab_size=src.vocab_size, tgt_vocab_size=tgt.vocab_size
    )
    return replace(
        bundle,
        config=bundle.config.model_copy(update={"model": model_settings}),
        tokenizers=Tokenizers(src=src, tgt=tgt),
        model=model.eval(),
    )


def test_the_picture_is_what_the_encoder_reads(reader):
    (part,) = facts_of(reader, "A dog")["parts"]
    rows = reader.tokenizers.src.draw(reader.tokenizers.src.encode("A dog"))
    shown = unpacked(part["picture"])
    np.testing.assert_array_equal(shown.reshape(rows.shape), rows)
    assert part["encoder"]["shape"][-1] == len(rows) == len(part["source"])
    assert "".join(part["src_pieces"][i][0] for i in part["source"][:-1]) == "A dog"


def facts_of(bundle: Bundle, text: str, **options) -> Facts:
    options = {"max_length_offset": 8} | options
    return gather(bundle, Translator(bundle, SearchOptions(**options)), text)


def unpacked(part: Facts) -> np.ndarray:
    levels = np.frombuffer(zlib.decompress(base64.b64decode(part["zlib"])), dtype=np.uint8)
    return levels.reshape(part["shape"])


class Reader(HTMLParser):
    """Collects elements, texts and scripts as a browser would see them."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        tag, attributes = self.elements[-1] if self.elements else ("", {})
        name = attributes.get("id")
        if name and self.open[-1:] == [tag]:
            self.texts[name] = self.texts.get(name, "") + data


@pytest.mark.parametrize("beam_size", [1, 4])
def test_numbers_are_those_of_plain_passes_over_the_translation(bundle, tiny_text, beam_size):
    translator = Translator(bundle, SearchOptions(max_length_offset=8, beam_size=beam_size))
    for line in tiny_text[0][:3]:
        facts = gather(bundle, translator, line)
        best = translator.translate([line])[0].n_best[0]
        (part,) = facts["parts"]
        pair = (best.parts[0].source, best.parts[0].target)
        assert facts["translation"] == best.text
        assert part["source"] == [*pair[0], EOS_ID]
        assert part["target"] == [*pair[1], EOS_ID]
        assert [part["nodes"][i][1] for i in part["winner"]] == part["target"]
        (forced,) = token_log_probs(bundle, [pair])
        assert [step[0] for step in part["steps"]] == pytest.approx(forced, abs=2e-4)
        # Padding, the unknown piece and the start sign are never written.
        (places,) = alternatives(bundle, [pair], 20)
        places = [[choice for choice in place if choice[0] >= EOS_ID][:6] for place in places]
        for step, place in zip(part["steps"], places, strict=True):
            assert [tuple(choice) for choice in step[1:]] == [
                (token, pytest.approx(value, abs=2e-4)) for token, value in place
            ]
        attention = all_attention(bundle, pair)
        for name, weights in (
            ("encoder", attention.encoder),
            ("decoder", attention.decoder),
            ("cross", attention.source),
        ):
            found = (unpacked(part[name]) / 255) ** 2
            np.testing.assert_allclose(found, weights, atol=0.004)
            np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)


def test_only_what_a_mask_hides_is_packed_as_zero():
    weights = torch.tensor([[[[1.0, 0.0], [1 - 1e-9, 1e-9]]]], dtype=torch.float64).numpy()
    assert unpacked(packed(weights)).tolist() == [[[[255, 0], [255, 1]]]]
    assert unpacked(packed(weights, hides=False)).tolist() == [[[[255, 1], [255, 1]]]]
    assert packed(None) is None


@pytest.mark.parametrize("text", TEXTS)
def test_no_text_becomes_markup_or_script(bundle, text):
    facts = facts_of(bundle, text)
    plain = Reader(page(facts_of(bundle, "The dog runs.")))
    written = page(facts)
    found = Reader(written)
    assert not found.open[1:]
    assert [tag for tag, _ in found.elements] == [tag for tag, _ in plain.elements]
    assert found.texts["source"] == facts["source"]
    assert found.texts["translation"] == facts["translation"]
    data = found.texts["facts"]
    assert data.isascii()
    assert not set(data) & set("<>&")
    assert json.loads(data) == json.loads(json.dumps(facts))
    written.encode("utf-8")


def test_the_page_asks_nothing_of_the_network(bundle):
    written = page(facts_of(bundle, "The dog runs."))
    own = written.replace("http://www.w3.org/2000/svg", "")  # the name of a language
    own = re.sub(r' href="https://arxiv\.org/[^"]*" rel="noreferrer"', "", own)  # if clicked
    assert not re.search(r"https?:|//\w+\.\w|@import|url\(", own)
    names = {name for _, attributes in Reader(own).elements for name in attributes}
    assert not names & {"src", "href", "srcset", "action"}
    assert "default-src 'none'" in written


def test_the_policy_allows_only_the_script_of_the_page(bundle):
    written = page(facts_of(bundle, "The dog runs."))
    script = written.rpartition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search('http-equiv="Content-Security-Policy" content="(.*?)"', written)
    assert policy is not None
    assert f"script-src 'sha256-{digest}'" in policy[1].split("; ")
    attributes = {name for _, own in Reader(written).elements for name in own}
    assert not any(name.startswith("on") for name in attributes)  # these would not run


def test_sections_of_the_paper_are_linked_to_their_places():
    text = (ROOT / "transformer_mt/explain/page.html").read_text(encoding="utf-8")
    links = re.findall(r'v7#S(\d)((?:\.S+\d)*)" rel="noreferrer">(.*?)</a>', text)
    assert len(links) > 8
    for section, below, number in links:
        assert number == section + re.sub("S+", "", below)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_script_draws_all_facts_and_reacts_to_the_pointer(bundle, reader):
    all_facts = [facts_of(bundle, text, beam_size=2) for text in (HOSTILE, "e\u0301 👩‍👩‍👧 مرحبا")]
    for kind, missing in (("convolutional", {"encoder", "decoder"}), ("recurrent", KINDS)):
        facts = facts_of(bundle, "The dog runs.")
        del facts["model"]["positions"], facts["model"]["num_heads"]
        facts["model"]["type"] = kind
        facts["parts"] = [part | dict.fromkeys(missing) for part in facts["parts"]]
        all_facts.append(facts)
    facts = facts_of(bundle, "The dog runs.")
    size = facts["parts"][0]["encoder"]["shape"][-1]
    of_heads = np.ones((2, 4, size, size), dtype=np.float32)
    of_heads[:, 2:, 0, 1] = 0  # as split heads have masks of their own
    facts["parts"][0]["encoder"] = packed(of_heads / size)
    all_facts += [facts, facts_of(reader, "A dog.")]
    found = subprocess.run(
        ["node", Path(__file__).with_name("page_in_node.js")],
        input=json.dumps([page(facts) for facts in all_facts]),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr
    for facts, drawn in zip(all_facts, json.loads(found.stdout), strict=True):
        assert not drawn["main"]["hidden"]
        part = facts["parts"][0]
        attention = [part[kind] for kind in sorted(KINDS) if part[kind]]
        assert drawn["part-choice"]["hidden"] == (len(facts["parts"]) == 1)
        # A chip holds a piece and, in an element of its own, its place.
        assert drawn["target-pieces"]["inside"]["small"] == len(part["target"])
        assert drawn["source-pieces"]["inside"]["small"] == len(part["source"])
        assert drawn["steps"]["inside"]["li"] == len(part["target"])
        assert drawn["tree"]["inside"]["button"] == len(part["nodes"])
        assert "Point at or tap a node" in drawn["beam-readout"]["text"]
        assert drawn["attention"]["hidden"] == (not attention)
        assert drawn["no-attention"]["hidden"] == bool(attention)
        assert drawn["masks"]["hidden"] == (not part["encoder"])
        assert drawn["source-picture"]["hidden"] == (part["picture"] is None)
        if part["picture"]:
            assert drawn["over"]["inside"]["canvas"] == len(part["target"])
        assert drawn["sinusoids"]["hidden"] == ("positions" not in facts["model"])
        scheme = facts["model"].get("positions", {}).get("type")
        assert drawn["schemes"] == ([scheme] if scheme else [])
        assert "NaN" not in str(drawn)
        assert "undefined" not in str(drawn)
        if attention:
            layers, heads, rows, columns = part["cross"]["shape"]
            assert drawn["kinds"]["inside"]["button"] == len(attention)
            masks = [{head.tobytes() for head in unpacked(x)[0] > 0} for x in attention]
            assert drawn["mask-list"]["inside"]["canvas"] == sum(map(len, masks))
            assert drawn["heads"]["inside"]["canvas"] == layers * (heads + 1)
            assert f"layer {layers}, " in drawn["chosen-head"]["text"]  # the last one
            assert drawn["lines"]["inside"]["button"] == rows + columns
            assert "attended to by" in drawn["readouts"][0]
        assert "log-probability" in drawn["readouts"][1]


def test_the_script_writes_no_markup():
    script = (ROOT / "transformer_mt/explain/page.js").read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b", script)


def test_every_place_in_the_code_that_the_page_names_is_there():
    text = (ROOT / "transformer_mt/explain/page.html").read_text(encoding="utf-8")
    places = re.findall(r"<code>(\S+): (\S+)</code>", text)
    assert len(places) > 10
    for path, name in places:
        body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
        for part in name.split("."):
            (found,) = (x for x in body if getattr(x, "name", None) == part)
            body = getattr(found, "body", [])


def test_a_long_line_has_parts_and_a_page_of_bounded_size(bundle):
    facts = facts_of(bundle, "the red dog sees a cat and runs. " * 60, max_length_factor=0.2)
    num_tokens = sum(len(part["source"]) - 1 for part in facts["parts"])
    assert num_tokens > 400
    assert len(facts["parts"]) > 1
    assert len(page(facts)) < 5_000_000


def test_a_source_of_too_many_pieces_is_refused(bundle, monkeypatch):
    monkeypatch.setattr(gathering, "MAX_PIECES", 20)
    with pytest.raises(DataError, match=r"the text has \d+ pieces; the page shows at most 20"):
        facts_of(bundle, "the red dog sees a cat. " * 9)


run = partial(tmt, "explain")


def test_the_command_writes_a_page_and_says_where(tiny_bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("The dog runs.", "--model", tiny_bundle, "--beam-size", 2)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert "wrote explain.html" in result.stderr
    found = Reader((tmp_path / "explain.html").read_text(encoding="utf-8"))
    part = json.loads(found.texts["facts"])["parts"][0]
    assert sum(node[0] is None and node[4] for node in part["nodes"]) == 2
    first = (tmp_path / "explain.html").read_bytes()
    for name in ("explain-2.html", "explain-3.html"):
        assert f"wrote {name}" in run("A cat.", "--model", tiny_bundle).stderr
        assert (tmp_path / name).is_file()
    assert (tmp_path / "explain.html").read_bytes() == first


@pytest.mark.parametrize("kind", ["encoder", "decoder", "source"])
def test_a_picture_is_the_attention_of_the_model(bundle, tiny_bundle, tmp_path, monkeypatch, kind):
    pytest.importorskip("matplotlib")
    drawn = {}
    monkeypatch.setattr(picture, "_draw", lambda *facts, **_: drawn.update(enumerate(facts)))
    path = tmp_path / "a.png"
    result = run("The dog.", "--kind", kind, "--layer", 2, "-o", path, "--model", tiny_bundle)
    assert result.exit_code == 0, result.stderr
    translator = Translator(bundle, SearchOptions(max_length_offset=8))
    (part,) = translator.translate(["The dog."])[0].n_best[0].parts
    weights = getattr(all_attention(bundle, (part.source, part.target)), kind)
    matrix, rows, columns, _ = drawn.values()
    np.testing.assert_allclose(matrix, weights[1].mean(0), rtol=1e-5)
    assert matrix.shape == (len(rows), len(columns))
    assert (rows[0] == "<s>") == (kind == "decoder") == (rows[-1] != "</s>")
    assert (columns[-1] == "</s>") == (kind != "decoder")


def test_a_picture_is_written_with_letters_that_its_font_lacks(tiny_bundle, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "a.svg"
    result = run("A $dog$ \u4e2d.", "--kind", "encoder", "-o", path, "--model", tiny_bundle)
    assert result.exit_code == 0, result.stderr
    assert f"wrote {path}" in result.stderr
    assert path.stat().st_size > 2000


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (["dog", "--head", 2], 2, "name one with --kind"),
        (["dog", "--kind", "source", "-o", "a.html"], 2, "expected a name that ends in .png"),
        (["dog", "--kind", "source", "--layer", 3], 2, "--layer: 3, but there are 2"),
        (["dog", "-o", "/dev/null/a.html"], 2, "/dev/null is no folder"),
        (["dog", "-o", "."], 2, "it is a folder; name a file"),
        ([" \t"], 3, "it is empty or blank"),
        (["dog", "--beam-size", 4000], 2, "larger than the vocabulary"),
        (["dog", "--model", "nowhere"], 4, "nowhere"),
    ],
)
def test_mistakes_are_named(tiny_bundle, tmp_path, monkeypatch, arguments, exit_code, words):
    monkeypatch.chdir(tmp_path)
    model = [] if "--model" in arguments else ["--model", tiny_bundle]
    result = run(*model, *arguments)
    assert result.exit_code == exit_code, result.stderr
    assert words in result.stderr
    assert not list(tmp_path.iterdir())

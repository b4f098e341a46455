"""Sentences in the context of their document, from the files to the corpus, and in translation."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_decoders import CopyModel
from typer.testing import CliRunner

from tests.conftest import small_text
from transformer_mt import bundle as bundles
from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.cli.main import app
from transformer_mt.config.data import DocumentSettings
from transformer_mt.config.loading import parse_config
from transformer_mt.config.sources import TextSource
from transformer_mt.data import document_pairs
from transformer_mt.data.corpus import Corpus
from transformer_mt.data.document_pairs import DocumentPairs, LastSentences, in_context
from transformer_mt.data.lexicon import Lexicon, learn_lexicon
from transformer_mt.data.line_sources import TextPairs
from transformer_mt.data.pairs import tokenize_pairs
from transformer_mt.errors import ConfigError
from transformer_mt.text.document_context import join_sentences
from transformer_mt.text.tokenizer_training import train_tokenizers
from transformer_mt.training.prepare_data import open_sources, prepare_data
from transformer_mt.training.run_directory import RunDirectory
from transformer_mt.translation.glossary import Glossary
from transformer_mt.translation.markup.protection import Protector
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.requests import Line
from transformer_mt.translation.translator import Translator

SEPARATOR = "<sep>"
PAIRS = [("a", "A"), ("b", "B"), ("c", "C"), ("", " "), ("d", "D"), ("e", ""), ("f", "F")]


def test_pairs_come_after_those_before_them_in_their_document() -> None:
    assert list(in_context(PAIRS, context_sentences=2, separator=SEPARATOR)) == [
        ("a", "A"),
        ("a<sep> b", "A<sep> B"),
        ("a<sep> b<sep> c", "A<sep> B<sep> C"),
        ("d", "D"),
        ("e", ""),  # for the filters to drop and count
        ("d<sep> f", "D<sep> F"),
    ]
    assert list(in_context(PAIRS[:3], context_sentences=1, separator="|"))[2] == ("b| c", "B| C")


def test_the_hash_of_a_source_notices_its_context(tmp_path: Path) -> None:
    for name in ("src", "tgt"):
        (tmp_path / name).write_text("x\n", encoding="utf-8")
    source = TextPairs(tmp_path / "src", tmp_path / "tgt")
    hashes = {source.fingerprint()} | {
        DocumentPairs(
            source, DocumentSettings(context_sentences=k, memory=memory, separator=s)
        ).fingerprint()
        for k in (1, 2)
        for s in ("<sep>", "|")
        for memory in ("none", "states")
    }
    assert len(hashes) == 7  # chunks are the same for any context


def test_a_text_without_ends_of_documents_is_warned_of(tmp_path: Path, caplog) -> None:
    for name, lines in (("src", "a\nb\n"), ("tgt", "A\nB\n"), ("ended", "a\n\n")):
        (tmp_path / name).write_text(lines, encoding="utf-8")
    for tgt, num_warnings in (("tgt", 1), ("ended", 0)):
        src = tmp_path / ("src" if num_warnings else "ended")
        source = TextPairs(src, tmp_path / tgt)
        caplog.clear()
        document = DocumentSettings(context_sentences=1, separator="|")
        assert list(DocumentPairs(source, document))
        assert caplog.text.count("read as one document") == num_warnings


def test_last_sentences_are_those_that_were_put_in_context(bundle, monkeypatch) -> None:
    plain = list(zip(*small_text(40), strict=True))
    joined = in_context(plain, context_sentences=2, separator=SEPARATOR)
    expected, pairs = (
        tokenize_pairs(*map(list, zip(*some, strict=True)), tokenizers=bundle.tokenizers)
        for some in (plain, joined)
    )
    separator = bundle.tokenizers.src.ids[SEPARATOR]
    found = LastSentences(pairs, (separator, separator))
    monkeypatch.setattr(document_pairs, "_PAIRS_AT_ONCE", 16)
    for rows in (np.arange(40), np.array([7, 0, 7]), np.array([], dtype=int)):
        np.testing.assert_array_equal(found.lengths(rows), expected.lengths(rows))
        for own, other in zip(found.gather(rows), expected.gather(rows), strict=True):
            np.testing.assert_array_equal(own, other)


def test_a_shortlist_of_documents_knows_the_separator_and_learns_from_sentences_alone(
    bundle, tmp_path: Path, monkeypatch
) -> None:
    lines = small_text(40)
    for name, side in zip(("src", "tgt"), lines, strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    train = TextSource(src=str(tmp_path / "src"), tgt=str(tmp_path / "tgt"))
    folder = str(tmp_path / "corpora")
    data = bundle.config.data.model_copy(update={"train": [train], "corpus_dir": folder})
    found = replace(bundle, config=bundle.config.model_copy(update={"data": data}))
    monkeypatch.setattr(bundles, "load_bundle", lambda path: found)
    monkeypatch.setattr("transformer_mt.cli.shortlist.find_bundle", lambda _: tmp_path / "best")
    path = tmp_path / "list"
    result = CliRunner().invoke(app, ["shortlist", "--output", str(path), "--frequent", "3"])
    assert result.exit_code == 0, result.stderr
    lexicon = Lexicon.load(path, bundle.tokenizers)
    expected = learn_lexicon(
        [tokenize_pairs(*lines, tokenizers=bundle.tokenizers)],
        bundle.tokenizers,
        num_candidates=50,
        num_frequent=3,
        max_pairs=99,
    )
    np.testing.assert_array_equal(lexicon.candidates, expected.candidates)
    separator = bundle.tokenizers.tgt.ids[SEPARATOR]
    assert lexicon.frequent.tolist() == [*expected.frequent.tolist(), separator]
    (corpus,) = (path for path in (tmp_path / "corpora").iterdir() if path.is_dir())
    assert separator in Corpus.open(corpus).tgt  # that of the training


def test_a_corpus_holds_sentences_in_context_and_validation_texts_are_alone(
    run_config, tmp_path: Path
) -> None:
    for name, lines in zip(("src", "tgt"), small_text(30), strict=True):
        lines[10] = ""
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    text = {"type": "text", "src": str(tmp_path / "src"), "tgt": str(tmp_path / "tgt")}
    config = run_config(
        data__train=[text],
        data__valid=text,
        data__document={"context_sentences": 3},
        tokenizer={"vocab_size": 120, "byte_fallback": False, "user_symbols": [SEPARATOR]},
    )
    data = prepare_data(config, open_sources(config), RunDirectory(tmp_path / "run"), is_main=True)
    (corpus,) = data.mixture.corpora
    separator = data.tokenizers.src.ids[SEPARATOR]
    expected = [0, 1, 2, *[3] * 7, 0, 1, 2, *[3] * 16]
    for pairs in (corpus, data.valid.pairs):
        assert len(pairs) == 29
        for side in (0, 1):
            found = [int((pairs.pair(i)[side] == separator).sum()) for i in range(29)]
            assert found == expected
    (valid,) = data.valid.texts
    assert len(valid.src) == 30
    assert not any(SEPARATOR in line for line in valid.src)


@pytest.fixture(scope="module")
def bundle(tiny_bundle) -> Bundle:
    """A bundle of documents with random weights."""
    tiny = load_bundle(tiny_bundle)
    tokenizers = train_tokenizers(
        *small_text(400), joint=True, type="bpe", vocab_size=400, user_symbols=[SEPARATOR]
    )
    document = tiny.config.data.model_validate(
        {**tiny.config.data.model_dump(), "document": {"context_sentences": 2}}
    )
    config = tiny.config.model_copy(update={"data": document})
    return replace(tiny, config=config, tokenizers=tokenizers)


@pytest.fixture
def copying(bundle) -> Bundle:
    """A bundle whose translations are the sources."""
    return replace(bundle, model=CopyModel(bundle.tokenizers.tgt.vocab_size).eval())


OPTIONS = SearchOptions(beam_size=2, max_length_offset=8)


def lengths_read(copying: Bundle) -> list[int]:
    return sorted(length - 1 for batch in copying.model.batches for length in batch)


def test_each_line_is_translated_in_context_and_becomes_one_line(copying) -> None:
    lines = [*small_text(4)[0], "", *small_text(2, seed=5)[0]]
    translator = Translator(copying, OPTIONS)
    translations = translator.translate(lines)
    assert [t.text for t in translations] == lines
    encode = translator.tokenizers.src.encode
    joined = [lines[:1], lines[:2], lines[:3], lines[1:4], lines[5:6], lines[5:7]]
    expected = sorted(len(encode(join_sentences(some, SEPARATOR))) for some in joined)
    assert lengths_read(copying) == expected
    for translation, line in zip(translations, lines, strict=True):
        assert translation.n_best[0].tokens == translator.tokenizers.tgt.pieces(encode(line))
        assert all(part.source == tuple(encode(line)) for part in translation.n_best[0].parts)


def test_chunks_of_a_text_are_translated_as_the_whole(copying) -> None:
    lines = small_text(7)[0]
    Translator(copying, OPTIONS).translate(lines)
    whole = lengths_read(copying)
    copying.model.batches.clear()
    translator = Translator(copying, OPTIONS)
    translator.translate(["something before", "another text"])
    copying.model.batches.clear()
    for start, end in ((0, 1), (1, 4), (4, 7)):
        found = translator.translate(lines[start:end], first_line=start + 1)
        assert [t.text for t in found] == lines[start:end]
    assert lengths_read(copying) == whole


def test_context_that_does_not_fit_is_left_out(copying) -> None:
    lines = small_text(5)[0]
    longest = max(len(ids) for ids in copying.tokenizers.src.encode_batch(lines))
    filters = copying.config.data.filters.model_copy(update={"max_length": longest + 1})
    data = copying.config.data.model_copy(update={"filters": filters})
    short = replace(copying, config=copying.config.model_copy(update={"data": data}))
    translations = Translator(short, OPTIONS).translate(lines)
    assert [t.text for t in translations] == lines
    assert not any(t.num_cut for t in translations)
    assert max(lengths_read(copying)) <= longest


def test_options_that_name_words_are_refused_with_context(copying) -> None:
    with pytest.raises(ConfigError, match=r"a glossary cannot be used with a model of documents"):
        Translator(copying, OPTIONS, glossary=Glossary([]))
    with pytest.raises(ConfigError, match=r"sentences of one line cannot be used with a model of"):
        Translator(copying, OPTIONS, split_sentences=True)
    with pytest.raises(ConfigError, match=r"prefixes and phrases cannot be used with a model of"):
        Translator(copying, OPTIONS).translate([Line("a", prefix="b")])
    with pytest.raises(ConfigError, match=r"--protect does not go with a document model"):
        Protector(Translator(copying, OPTIONS))


GOOD = """\
name: good
data:
  src_lang: en
  tgt_lang: de
  train: [{type: text, src: a, tgt: b}]
  valid: {type: text, src: a, tgt: b}
  document: {context_sentences: 1}
training: {max_steps: 1}
"""


def test_a_separator_that_is_no_piece_is_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(GOOD, "x.yaml")
    assert str(caught.value).endswith(
        "data.document.separator: '<sep>' must be one piece: add it to tokenizer.user_symbols"
    )
    parse_config(GOOD, "x.yaml", ["tokenizer.user_symbols=['<sep>']"])


def test_documents_of_made_up_pairs_are_refused() -> None:
    changes = ["tokenizer.user_symbols=['<sep>']", "data.valid={type: reverse, num_pairs: 9}"]
    with pytest.raises(ConfigError) as caught:
        parse_config(GOOD, "x.yaml", changes)
    assert str(caught.value) == (
        "x.yaml:7:13: data.document: needs sentences in the order of a text, but pairs of source "
        "type reverse have none: take another source, or leave document out"
    )


def test_a_tokenizer_without_the_separator_is_refused(run_config, tmp_path: Path) -> None:
    train_tokenizers(*small_text(99), joint=True, type="bpe", vocab_size=330).save(
        tmp_path / "tokenizer"
    )
    for name in ("src", "tgt"):
        (tmp_path / name).write_text("x\n", encoding="utf-8")
    text = {"type": "text", "src": str(tmp_path / "src"), "tgt": str(tmp_path / "tgt")}
    config = run_config(
        data__train=[text],
        data__valid=text,
        data__document={"context_sentences": 1},
        tokenizer={"path": str(tmp_path / "tokenizer")},
    )
    with pytest.raises(ConfigError, match=r"'<sep>' is not one piece of the tokenizer"):
        prepare_data(config, open_sources(config), RunDirectory(tmp_path / "run"), is_main=True)


def test_a_memory_without_place_or_use_is_one_line() -> None:
    memory = ["tokenizer.user_symbols=['<sep>']", "data.document.memory=states"]
    rotary = "model.positions.type=rotary"
    for changes, message in (
        ([], "needs model.positions rotary: sinusoidal positions do not tell a token from one of"),
        (["model.positions.type=alibi"], "alibi positions are added to scores inside one sentence"),
        (["model={type: recurrent}"], "states needs model.type transformer, not recurrent"),
        ([rotary, "data.document.chunk_sentences=1"], "never have context_sentences 1 before them"),
        ([rotary, "training.compile=layers"], "layers does not go with data.document.memory"),
        ([rotary, "model.encoder_pattern={type: local, window: 9}"], "data.document.memory: take"),
    ):
        with pytest.raises(ConfigError, match=message):
            parse_config(GOOD, "x.yaml", [*memory, *changes])
    parse_config(GOOD, "x.yaml", [*memory, rotary])

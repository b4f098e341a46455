"""XLIFF: targets are put in, all else stays as it is, byte for byte."""

import pytest

from transformer_mt.documents.document import Filled
from transformer_mt.documents.formats import read_document
from transformer_mt.errors import DataError

OLD = """\
<?xml version='1.0' encoding="UTF-8"?>
<!-- a comment --><xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"
 xmlns:m="urn:m">
  <file original='a&amp;b' source-language="en-US" datatype="plaintext">
    <body>
      <group id="g"><trans-unit id="1" m:extra="x">
        <source>Click <g id="9" ctype="bold">here</g><x id="10"/> &amp; wait &lt;b&gt;</source>
        <note>Not <source/> this.</note>
        <alt-trans><source>Click</source><target>Klick</target></alt-trans>
      </trans-unit></group>
      <trans-unit id="2"><source><![CDATA[a <br> b]]></source><target state="new" /></trans-unit>
      <trans-unit id="3" translate="no"><source>v1.0</source></trans-unit>
      <trans-unit id="4" approved="yes"><source>Yes</source><target>Ja</target></trans-unit>
      <trans-unit id="5"><source>No</source>
        <target state='needs-review-translation'>Nee</target></trans-unit>
      <trans-unit id="6"><source>A
        <bpt id="1">{b}</bpt>b<ept id="1">{/b}</ept>  c</source></trans-unit>
      <trans-unit id="7"><source>x &lt;g1&gt;</source></trans-unit>
    </body>
  </file>
</xliff>
"""
NEW = """\
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.1" srcLang="en">
 <file id="f"><unit id="u"><notes><note>n</note></notes>
  <segment id="s"><source>Press <pc id="1">this <ph id="2"/></pc> <cp hex="0001"/></source>
  </segment>
  <ignorable><source> </source></ignorable>
  <segment state="initial"><source>Two</source><target>Zwo</target></segment>
  <segment state="final"><source>Three</source><target>Drei</target></segment>
 </unit><unit id="v" translate="no"><segment><source>Four</source></segment></unit></file>
</xliff>
"""


def read(text: str | bytes):
    data = text if isinstance(text, bytes) else text.encode()
    return read_document(data, "m.xlf", "xliff", {"from": "en", "to": "de"})


def written(text: str, texts: dict[int, Filled]) -> str:
    document = read(text)
    return document.write([texts.get(i) for i in range(len(document.segments))]).decode()


def test_inline_codes_of_version_1_become_short_tags():
    found = read(OLD).segments
    assert [(s.source, s.state) for s in found] == [
        ("Click <g1>here</g1><x2/> & wait <b>", "new"),
        ("a <br> b", "new"),
        ("v1.0", "locked"),
        ("Yes", "done"),
        ("No", "fuzzy"),
        ("A <g1>b</g1> c", "new"),
        ("x <g1>", "locked"),
    ]
    assert found[0].place == "m.xlf:6 (1)"
    assert found[6].reason.startswith("its text looks like")
    assert read(OLD).languages == ("en-US", None)


@pytest.mark.parametrize("text", [OLD, OLD.replace("\n", "\r\n"), NEW])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_without_new_translations_comes_back_byte_for_byte(text, encoding):
    data = text.replace("UTF-8", "UTF-16" if encoding == "utf-16" else "UTF-8").encode(encoding)
    document = read(data)
    assert document.write([None] * len(document.segments)) == data


def test_only_targets_change_in_version_1():
    texts = {
        0: Filled("<x2/><b> & <g1>hier</g1> klicken"),
        1: Filled("A <br> B"),
        4: Filled("Nein", "memory"),
        5: Filled("C <g1>B</g1>", "fuzzy"),
    }
    mark = 'state="needs-review-translation" state-qualifier'
    expected = (
        OLD.replace('datatype="plaintext">', 'datatype="plaintext" target-language="de">')
        .replace(
            "&lt;b&gt;</source>",
            f'&lt;b&gt;</source>\n        <target {mark}="mt-suggestion">'
            '<x id="10"/>&lt;b&gt; &amp; <g id="9" ctype="bold">hier</g> klicken</target>',
        )
        .replace(
            '<target state="new" />',
            f'<target {mark}="mt-suggestion"><![CDATA[A <br> B]]></target>',
        )
        .replace(
            "<target state='needs-review-translation'>Nee",
            '<target state="translated" state-qualifier="exact-match">Nein',
        )
        .replace(
            "c</source></trans-unit>",
            f'c</source><target {mark}="fuzzy-match">C <bpt id="1">{{b}}</bpt>B'
            '<ept id="1">{/b}</ept></target></trans-unit>',
        )
    )
    assert written(OLD, texts) == expected


def test_only_targets_and_states_change_in_version_2():
    assert [(s.source, s.state) for s in read(NEW).segments] == [
        ("Press <g1>this <x2/></g1> <x3/>", "new"),
        ("Two", "fuzzy"),
        ("Three", "done"),
        ("Four", "locked"),
    ]
    texts = {0: Filled("<x3/> <g1><x2/> hier</g1>"), 1: Filled("Zwei")}
    expected = (
        NEW.replace('srcLang="en">', 'srcLang="en" trgLang="de">')
        .replace('<segment id="s">', '<segment id="s" state="translated" subState="tmt:model">')
        .replace(
            '<cp hex="0001"/></source>',
            '<cp hex="0001"/></source><target><cp hex="0001"/> '
            '<pc id="1"><ph id="2"/> hier</pc></target>',
        )
        .replace('<segment state="initial">', '<segment state="translated" subState="tmt:model">')
        .replace("Zwo", "Zwei")
    )
    assert written(NEW, texts) == expected


def test_a_segmented_source_is_the_one_that_is_translated():
    first, second = (f'<mrk mtype="seg" mid="{i}">{x}.</mrk>' for i, x in enumerate("AB"))
    segmented = f"<seg-source>{first} {second}</seg-source>"
    text = OLD.replace('<trans-unit id="3" translate="no"><source>v1.0</source>',
                       f'<trans-unit id="3"><source>A. B.</source>{segmented}')  # fmt: skip
    assert read(text).segments[2].source == "<g1>A.</g1> <g2>B.</g2>"
    result = written(text, {2: Filled("<g1>a.</g1> <g2>b.</g2>")})
    assert '<mrk mtype="seg" mid="1">b.</mrk></target></trans-unit>' in result


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{BOMB}<xliff version='1.2'/>", "document type with declarations of its own is refused"),
        ("<!DOCTYPE x SYSTEM 'file:///etc/passwd'><xliff>&a;</xliff>", "1: unknown entity &a;"),
        ("<xliff version='1.2'>&a;</xliff>", "1: not well-formed XML: undefined entity"),
        ("<xliff version='1.2'>\n<file>", "2: not well-formed XML: no element found"),
        ("<xliff version='3.0'/>", "XLIFF version '3.0'; expected 1.x or 2.x"),
        ("<tmx/>", "expected <xliff>, got <tmx>"),
        ("words", "1: not well-formed XML: syntax error"),
        ("<xliff version='1.2'>" + "<group>" * 300, "nested more than 200 deep"),
        ("<?xml version='1.0' encoding='klingon'?><xliff/>", "encoding 'klingon'"),
    ],
)  # fmt: skip
def test_what_is_no_safe_xliff_is_refused_with_its_place(text, message):
    with pytest.raises(DataError, match=r"m\.xlf") as caught:
        read(text)
    assert message in str(caught.value)

"""Word documents: the text of paragraphs changes; all other parts stay, byte for byte."""

import io
import re
import zipfile

import docx
import pytest
from docx.opc.constants import RELATIONSHIP_TYPE
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls, qn

from tests.unit.documents.samples import reversed_words
from transformer_mt.documents.document import Filled
from transformer_mt.documents.formats import read_document
from transformer_mt.errors import DataError

LINK = (
    '<w:hyperlink {ns} r:id="{id}" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/'
    'relationships"><w:r><w:t>the link</w:t></w:r></w:hyperlink>'
)
FIELD = (
    '<w:p {ns}><w:r><w:t xml:space="preserve">Page </w:t></w:r><w:r><w:fldChar '
    'w:fldCharType="begin"/></w:r><w:r><w:instrText>PAGE</w:instrText></w:r><w:r><w:fldChar '
    'w:fldCharType="separate"/></w:r><w:r><w:t>12</w:t></w:r><w:r><w:fldChar w:fldCharType="end"/>'
    '</w:r><w:r><w:t xml:space="preserve"> of the book</w:t></w:r></w:p>'
)
BOX = (
    '<w:p {ns} xmlns:v="urn:schemas-microsoft-com:vml"><w:r><w:t xml:space="preserve">Outside '
    "</w:t></w:r><w:r><w:pict><v:textbox><w:txbxContent><w:p><w:r><w:t>Inside box</w:t></w:r></w:p>"
    "</w:txbxContent></v:textbox></w:pict></w:r><w:r><w:t>the box</w:t></w:r></w:p>"
)


@pytest.fixture(scope="module")
def content() -> bytes:
    document = docx.Document()
    document.add_heading("A title", 1)
    paragraph = document.add_paragraph("Plain then ")
    paragraph.add_run("bold").bold = True
    paragraph.add_run(" and ")
    paragraph.add_run("italic").italic = True
    paragraph.add_run(" end.")
    paragraph.add_run().add_break()
    paragraph.add_run("after\ttab")
    linked = document.add_paragraph("See ")
    number = document.part.relate_to("http://a.b", RELATIONSHIP_TYPE.HYPERLINK, is_external=True)
    linked._p.append(parse_xml(LINK.format(ns=nsdecls("w"), id=number)))
    linked.add_run(" here")
    body = document.element.body
    body.insert(-1, parse_xml(FIELD.format(ns=nsdecls("w"))))
    body.insert(-1, parse_xml(BOX.format(ns=nsdecls("w"))))
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "Cell one", "12.50"
    document.sections[0].header.paragraphs[0].text = "My header"
    document.sections[0].footer.paragraphs[0].text = "My footer"
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def read(data: bytes, name: str = "a.docx"):
    return read_document(data, name, "docx", {"from": "en", "to": "de"})


def translated(data: bytes, **texts: str) -> bytes:
    document = read(data)
    return document.write(
        [Filled(texts.get(s.source, reversed_words(s.source))) for s in document.segments]
    )


def test_paragraphs_of_all_parts_are_segments(content):
    found = [segment.source for segment in read(content).segments]
    assert found == [
        "A title", "Plain then <g1>bold</g1> and <g2>italic</g2> end.", "after", "tab",
        "See <g1>the link</g1> here", "Page <x1/> of the book", "Outside <x1/>the box",
        "Inside box", "Cell one", "My footer", "My header",
    ]  # fmt: skip


def test_an_untranslated_document_comes_back_byte_for_byte(content):
    document = read(content)
    assert document.write([None] * len(document.segments)) == content


def test_other_parts_stay_byte_for_byte(content):
    document = read(content)
    result = document.write([Filled("Ein Titel"), *[None] * (len(document.segments) - 1)])
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(io.BytesIO(result)) as new:
        assert old.namelist() == new.namelist()
        changed = [name for name in old.namelist() if old.read(name) != new.read(name)]
    assert changed == ["word/document.xml"]
    again = docx.Document(io.BytesIO(result))
    assert [p.text for p in again.paragraphs][:2] == [
        "Ein Titel", "Plain then bold and italic end.\nafter\ttab",
    ]  # fmt: skip


def test_formats_links_fields_and_boxes_come_back_around_their_text(content):
    again = docx.Document(io.BytesIO(translated(content)))
    title, formatted, linked, field, box, *_ = again.paragraphs
    assert title.style.name == "Heading 1"
    assert [(run.text, run.bold, run.italic) for run in formatted.runs] == [
        ("then Plain ", None, None), ("bold", True, None), (" and ", None, None),
        ("italic", None, True), (" end.", None, None), ("\n", None, None), ("after", None, None),
        ("\t", None, None), ("tab", None, None),
    ]  # fmt: skip
    assert linked.text == "See link the here"
    assert [link.text for link in linked.hyperlinks] == ["link the"]
    assert linked.hyperlinks[0].address == "http://a.b"
    assert re.sub(r" +", " ", field.text) == "Page 12 book the of"
    assert [mark.get(qn("w:fldCharType")) for mark in field._p.iter(qn("w:fldChar"))] == [
        "begin", "separate", "end",
    ]  # fmt: skip
    texts = [node.text for node in box._p.iter(qn("w:t"))]
    assert texts == ["Outside ", "box Inside", "box the"]
    assert again.tables[0].cell(0, 1).text == "12.50"
    assert again.sections[0].header.paragraphs[0].text == "header My"


def test_an_inline_code_that_moves_takes_what_it_holds_along(content):
    document = read(content)
    texts = {"Outside <x1/>the box": "the <x1/> box outside", "Inside box": "in der Kiste"}
    result = document.write([
        Filled(texts[s.source]) if s.source in texts else None for s in document.segments
    ])  # fmt: skip
    box = docx.Document(io.BytesIO(result)).paragraphs[4]
    assert [node.text for node in box._p.iter(qn("w:t"))] == [
        "the ",
        "in der Kiste",
        " box outside",
    ]


def zipped(**members: str | bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr({"types": "[Content_Types].xml"}.get(name, f"{name}.xml"), data)
    return file.getvalue()


TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Override '
    'PartName="/document.xml" ContentType="application/vnd.openxmlformats-officedocument.'
    'wordprocessingml.document.main+xml"/></Types>'
)
ENTITY = '<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]><d>&x;</d>'
BOMB = (
    "<!DOCTYPE d ["
    + '<!ENTITY a0 "ha">'
    + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
    + "]><d>&a11;</d>"
)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"hello", "expected a Word document"),
        (b"PK\x03\x04 cut", "expected a Word document"),
        (b"\xd0\xcf\x11\xe0 old", "encrypted, or in the old .doc format"),
        (zipped(a="x"), "got another zip archive"),
        (zipped(types=TYPES.replace("wordprocessing", "spreadsheet").replace("document.", "x.")),
         "got another kind"),
        (zipped(types=TYPES, document="<w"), "document.xml: expected XML"),
        (zipped(types=TYPES, document=ENTITY), "has a document type"),
        (zipped(types=TYPES, document=BOMB), "document.xml: "),
        (zipped(types=TYPES, document="<d>" * 5000), "document.xml: expected XML"),
        (zipped(types=TYPES, document=b"\0" * (1 << 27) + b"\0"), "more than 134,217,728 bytes"),
        (zipped(types=TYPES, document="\udcff".encode("utf-8", "surrogatepass")), "expected XML"),
    ],
)  # fmt: skip
def test_what_is_no_word_document_or_hostile_is_refused_in_one_line(data, message):
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        read(data)
    assert "\n" not in str(caught.value)
    assert "root:" not in str(caught.value)


def test_damaged_and_encrypted_members_are_refused(content):
    place = content.index(b"word/document.xml") + 60
    inverted = bytes(255 - byte for byte in content[place : place + 20])
    damaged = content[:place] + inverted + content[place + 20 :]
    with pytest.raises(DataError, match=r"word/document\.xml: damaged"):
        read(damaged)
    marked = bytearray(content)
    marked[content.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(DataError, match="encrypted; save it without a password"):
        read(bytes(marked))

"""Zip archives of Office documents, opened within limits, and their XML parts."""

import io
import zipfile
import zlib
from typing import TypeAlias

from lxml import etree

from transformer_mt.errors import DataError

MAX_MEMBERS = 10_000
MAX_UNPACKED = 1 << 29
"""Bytes of all members together."""

CONTENT_TYPES = "[Content_Types].xml"
"""The member that says what each part is."""

_Element: TypeAlias = etree._Element


def parse_part(data: bytes, name: str, member: str) -> _Element:
    """Parse a part without entities and without reading anything else.

    Raises:
        DataError: If it is not XML, or declares entities.
    """
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        raise DataError(f"{name}: {member}: expected XML: {error.msg}") from error
    if root.getroottree().docinfo.internalDTD is not None:
        raise DataError(f"{name}: {member}: has a document type, which Word never writes: refused")
    return root


def open_archive(data: bytes, name: str) -> zipfile.ZipFile:
    """Open a document, within limits.

    Raises:
        DataError: If it is none, is encrypted, or too large when it is unpacked.
    """
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        raise DataError(
            f"{name}: encrypted, or in the old .doc format; save it as .docx without a password"
        )
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DataError(f"{name}: expected a Word document (.docx): {error}") from error
    members = archive.infolist()
    size = sum(member.file_size for member in members)
    if len(members) > MAX_MEMBERS or size > MAX_UNPACKED:
        raise DataError(
            f"{name}: {len(members):,} members of {size:,} bytes; at most {MAX_MEMBERS:,} and "
            f"{MAX_UNPACKED:,} are read"
        )
    names = [member.filename for member in members]
    if len(set(names)) < len(names):
        raise DataError(f"{name}: two members have the same name: refused")
    if any(member.flag_bits & 1 for member in members):
        raise DataError(f"{name}: encrypted; save it without a password")
    if CONTENT_TYPES not in names:
        raise DataError(f"{name}: expected a Word document (.docx), got another zip archive")
    return archive


def read_member(archive: zipfile.ZipFile, name: str, member: str) -> bytes:
    """Read a member.

    Raises:
        DataError: If it is damaged.
    """
    try:
        return archive.read(member)
    except (KeyError, zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError,
            NotImplementedError, ValueError) as error:  # fmt: skip
        raise DataError(f"{name}: {member}: damaged: {error}") from error

"""Read a folder of documents as text: .txt and .md unchanged; .html, .pdf and .docx converted to Markdown by MarkItDown.

Converted texts are cached by file content and converter version.
"""

from __future__ import annotations

import codecs
import io
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.core.errors import MissingPackage, UserError
from benchmarks.core.files import cache_home, whole_text
from benchmarks.core.fingerprint import file_sha256, fingerprint, note_file
from benchmarks.io.encodings import read_text
from benchmarks.records import BadRecord

PLAIN = (".txt", ".md", ".markdown", ".text")
PAGES = (".html", ".htm")
CONVERTED = (*PAGES, ".pdf", ".docx")
DOCUMENTS = (*PLAIN, *CONVERTED)
_BEGINS = {".pdf": b"%PDF", ".docx": b"PK\x03\x04"}
_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset=["']?([\w-]+)""", re.IGNORECASE)
_LOST = re.compile(r"\ufffd|\(cid:\d+\)")
"""A character that a page's encoding does not have, or that a PDF's font gives no letter for."""
_BULLET = re.compile(rf"(?<!\S)(?:{_LOST.pattern})(?=\s+(?!{_LOST.pattern})\S)")
"""Such a character between spaces, before text: a bullet or other symbol, whose loss costs no word."""
_DECODING = 2
"""Version of `_page`, in the names of cached texts."""
_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_WIDER = {
    **dict.fromkeys(("ascii", "iso8859-1"), "cp1252"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    **dict.fromkeys(("utf-16", "utf-16-le", "utf-16-be"), "utf-8"),
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "iso8859-9": "cp1254",
    "tis-620": "cp874",
}
"""Encoding that browsers read for one that a page declares (https://encoding.spec.whatwg.org)."""
_REMEDY = "repair or remove the file, or set skip_bad to leave such files out (each is counted and named)"


@dataclass(frozen=True, slots=True)
class Document:
    """A document as text.

    Attributes:
        name: Its path in the folder, with slashes.
        title: Its first heading, else the name of the file.
        text: The text, in Markdown if it was converted.
        converted: Whether it was converted.
        notice: Note for users on how it was read; "" if there is none.
    """

    name: str
    title: str
    text: str
    converted: bool
    notice: str = ""


def read_folder(folder: Path, ignored: Counter[str]) -> Iterator[Document | BadRecord]:
    """Yield the documents of a folder and its subfolders by name; a document that cannot be read is yielded as an error.

    Args:
        folder: The folder, whose hidden files are skipped; or a single document.
        ignored: Counter of the suffixes of ignored files.

    Raises:
        UserError: The folder contains no documents.
        MissingPackage: A document must be converted, and the converter is not installed.
    """
    root = folder if folder.is_dir() else folder.parent
    files = files_in(folder) if folder.is_dir() else [folder]
    note_file(folder, folder.stat(), listing_hash(folder) if folder.is_dir() else "")
    documents = [path for path in files if path.suffix.lower() in DOCUMENTS]
    ignored.update(path.suffix.lower() or path.name for path in files if path not in documents)
    if not documents:
        endings = ", ".join(f"{number} {ending}" for ending, number in ignored.most_common(5))
        raise UserError(
            "this folder contains no documents",
            code="no-documents",
            where=f"{folder}, which holds {endings or 'nothing'}",
            try_this=f"documents are files that end in {', '.join((*PLAIN[:2], *CONVERTED))}",
        )
    for path in documents:
        try:
            yield _read(path, path.relative_to(root).as_posix())
        except BadRecord as error:
            yield error


def files_in(folder: Path) -> list[Path]:
    """Return the files of a folder and its subfolders that are not hidden, sorted."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not _hidden(path, folder)]


def listing_hash(folder: Path) -> str:
    """Return a hash of the names of a folder's files."""
    return fingerprint([path.relative_to(folder).as_posix() for path in files_in(folder)])


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith((".", "~$", "__MACOSX")) for part in path.relative_to(folder).parts)


def _read(path: Path, name: str) -> Document:
    ending = path.suffix.lower()
    if ending in PLAIN:
        try:
            text, encoding = read_text(path)
        except UserError as error:
            if not path.stat().st_size:
                raise bad("it is empty", path) from None
            raise BadRecord(error.what, code=error.code, where=error.where, try_this=error.try_this) from None
        notice = encoding.notice
    else:
        text = _converted(path)
        notice = _unread(text, path)
    if not text.strip():
        raise bad(_without_text(ending), path)
    text = text.replace("\r\n", "\n").replace("\0", "")
    return Document(name, _title(text, path), text, ending not in PLAIN, notice)


def bad(what: str, path: Path, remedy: str = _REMEDY) -> BadRecord:
    """Build the error for a document that cannot be read."""
    return BadRecord(f"the document cannot be used: {what}", code="bad-document", where=str(path), try_this=remedy)


def _without_text(ending: str) -> str:
    if ending == ".pdf":
        return "the PDF has no text, so its pages are probably scans; recognize their text first (ocrmypdf IN.pdf OUT.pdf)"
    return "it holds no text"


def _unread(text: str, path: Path) -> str:
    """Return a note if some characters could not be decoded, else ""; refuse a text with many of them."""
    lost = _LOST.findall(_BULLET.sub("", text))
    if len(lost) >= 5 and sum(map(len, lost)) * 100 >= len(text):
        why = "recognize its text first (ocrmypdf --force-ocr IN.pdf OUT.pdf)" if path.suffix.lower() == ".pdf" else "correct its charset"
        raise bad(f"{len(lost):,} of its characters cannot be decoded; {why}", path)
    return "some characters could not be decoded" if _LOST.search(text) else ""


def _title(text: str, path: Path) -> str:
    heading = re.search(r"^#{1,2}[ \t]+(\S.*?)[ \t#]*$", text[:2000], re.MULTILINE)
    return heading[1] if heading else path.stem


def _converted(path: Path) -> str:
    converter, version = _converter()
    key = file_sha256(path)
    kept = cache_home() / "documents" / version / f"{key}{path.suffix.lower()}{_DECODING if path.suffix.lower() in PAGES else ''}.md"
    if kept.is_file():
        return kept.read_text("utf-8")
    raw = path.read_bytes()
    wanted = _BEGINS.get(path.suffix.lower(), b"")
    if wanted not in raw[:1024]:
        page = raw[:1024].lstrip().lower().startswith((b"<!doctype html", b"<html"))
        raise bad("it is a web page: the download failed" if page else f"it is no {path.suffix[1:].upper()} file", path)
    text = _markdown(converter, path, raw)
    with suppress(OSError):  # without a cache it is converted again
        kept.parent.mkdir(parents=True, exist_ok=True)
        whole_text(kept, text)
    return text


def _markdown(converter: Any, path: Path, raw: bytes) -> str:
    from markitdown import MarkItDownException, StreamInfo

    ending = path.suffix.lower()
    charset = None
    if ending in PAGES:
        raw, charset = _page(path, raw).encode("utf-8"), "utf-8"
    try:
        info = StreamInfo(extension=".html" if ending in PAGES else ending, charset=charset, filename=path.name)
        return str(converter.convert_stream(io.BytesIO(raw), stream_info=info).markdown)
    except MarkItDownException as error:
        locked = "password" in str(error).lower() or b"/Encrypt" in raw
        why = str(error).strip().splitlines()[-1:] or [type(error).__name__]
        raise bad("it is protected by a password" if locked else f"it is damaged or not supported ({why[0][:200]})", path) from error


def _page(path: Path, raw: bytes) -> str:
    """Decode a web page: as UTF-8 if it is that, else with the encoding that it declares, as browsers do."""
    declared = _CHARSET.search(raw[:4096])
    with suppress(LookupError):
        if declared and not raw.startswith(_MARKS) and (raw.isascii() or not _is_utf8(raw)):
            name = codecs.lookup(declared[1].decode("ascii")).name
            return raw.decode(_WIDER.get(name, name), "replace")
    try:
        return read_text(path, page=True)[0]
    except UserError as error:
        raise BadRecord(error.what, code=error.code, where=error.where, try_this=error.try_this) from None


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@cache
def _converter() -> tuple[Any, str]:
    try:
        import markitdown
    except ImportError as error:
        raise MissingPackage("markitdown", "documents", f"documents that end in {', '.join(CONVERTED)}") from error
    from markitdown.converters import DocxConverter, HtmlConverter, PdfConverter

    # No others: its converter of plain text would take the bytes of a damaged PDF for a text.
    converter = markitdown.MarkItDown(enable_builtins=False, enable_plugins=False)
    for kind in (PdfConverter, DocxConverter, HtmlConverter):
        converter.register_converter(kind())
    return converter, f"markitdown-{markitdown.__version__}"


def converter_version() -> str:
    """Return the name and version of the converter.

    Raises:
        MissingPackage: The converter is not installed.
    """
    return _converter()[1]

"""Folders of documents from real programs, documents without text, and files with a wrong extension."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.own import documents
from benchmarks.own.documents import Document, read_folder
from benchmarks.records import BadRecord
from tests.support.errors import raises


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAGMETER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "docs").mkdir()
    return tmp_path / "docs"


def read(folder: Path) -> dict[str, Document | BadRecord]:
    return {Path(item.where or "").name if isinstance(item, BadRecord) else item.name: item for item in read_folder(folder, Counter())}


def texts(folder: Path) -> dict[str, str]:
    return {name: " ".join(item.text.split()) for name, item in read(folder).items() if isinstance(item, Document)}


def test_texts_are_read_in_their_encodings_with_a_note(folder: Path) -> None:
    (folder / "a.txt").write_bytes("Café 3 €".encode("cp1252"))
    (folder / "b.md").write_bytes("# Über\r\n\r\nuns".encode("utf-16"))
    (folder / "c.txt").write_bytes(b"")
    (folder / "d.txt").write_bytes("é\n".encode() + "é\n".encode("cp1252"))
    (folder / ".hidden.txt").write_text("no")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    ignored: Counter[str] = Counter()
    items = list(read_folder(folder, ignored))
    good = [item for item in items if isinstance(item, Document)]
    assert [(item.name, item.title, item.text, bool(item.notice)) for item in good] == [
        ("a.txt", "a", "Café 3 €", True),
        ("b.md", "Über", "# Über\n\nuns", True),
    ]
    assert [item.code for item in items if isinstance(item, BadRecord)] == ["bad-document", "mixed-encodings"]
    assert ignored == {".png": 1}


def test_folder_without_documents_is_refused(folder: Path) -> None:
    (folder / "a.png").write_bytes(b"x")
    with raises("no-documents", ".png"):
        list(read_folder(folder, Counter()))


def test_document_conversion_requires_its_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "markitdown", None)
    documents._converter.cache_clear()
    (folder / "a.html").write_text("<p>text</p>")
    with raises("missing-package"):
        read(folder)
    documents._converter.cache_clear()


@pytest.mark.slow
def test_web_pages_are_converted_with_their_declared_encoding(folder: Path) -> None:
    pytest.importorskip("markitdown")
    page = '<html><head><meta charset="iso-8859-1"><script>x()</script></head><body><h1>Café</h1><p>Open at 8.</p></body></html>'
    (folder / "a.html").write_bytes(page.encode("latin-1"))
    (folder / "b.htm").write_bytes("<p>Grüße</p>".encode("cp1252"))
    assert texts(folder) == {"a.html": "# Café Open at 8.", "b.htm": "Grüße"}


@pytest.mark.parametrize(
    ("declared", "encoding", "text"),
    [
        ("iso-8859-1", "cp1252", "Café “open” – 3 €"),
        ("gb2312", "gb18030", "假期镕28天"),
        ("Shift_JIS", "cp932", "休暇①日"),
        ("utf-16", "utf-8", "Café – ok"),
        ("iso-8859-1", "utf-8", "Café – ok"),
        ("no-such-encoding", "utf-8", "Café – ok"),
    ],
)
def test_web_pages_are_decoded_like_in_browsers(folder: Path, declared: str, encoding: str, text: str) -> None:
    page = f'<html><head><meta charset="{declared}"></head><p>{text}</p></html>'
    (folder / "a.html").write_bytes(page.encode(encoding))
    assert documents._page(folder / "a.html", page.encode(encoding)) == page


def test_lost_byte_of_a_web_page_costs_one_character(folder: Path) -> None:
    raw = b'<meta charset="gbk">' + "假期".encode("gbk") + b"\xff" + "天".encode("gbk")
    assert documents._page(folder / "a.html", raw) == '<meta charset="gbk">假期\ufffd天'


@pytest.mark.slow
def test_page_with_a_wrong_encoding_is_refused_and_one_with_a_lost_byte_noted(folder: Path) -> None:
    pytest.importorskip("markitdown")
    (folder / "a.html").write_bytes(b'<meta charset="shift_jis"><p>' + "これは京都の寺院についての文章です。".encode("euc-jp") * 5)
    (folder / "b.html").write_bytes(b'<meta charset="gbk"><p>' + "假期".encode("gbk") + b"\xff" + "天".encode("gbk"))
    (folder / "c.html").write_bytes(b'<meta charset="shift_jis"><p>' + "寺院".encode("cp932"))
    wrong, noted, right = read_folder(folder, Counter())
    assert isinstance(wrong, BadRecord)
    assert [(item.text, bool(item.notice)) for item in (noted, right) if isinstance(item, Document)] == [
        ("假期\ufffd天", True),
        ("寺院", False),
    ]


@pytest.mark.parametrize(("letters", "refused"), [(3, False), (40, True)])
def test_pdf_whose_font_has_no_letters_is_refused_or_noted(folder: Path, letters: int, refused: bool) -> None:
    text = "The temple was built in 1397. " * 40 + "(cid:72)" * letters
    if refused:
        with pytest.raises(BadRecord):
            documents._unread(text, folder / "a.pdf")
    else:
        assert documents._unread(text, folder / "a.pdf")


@pytest.mark.parametrize("bullet", ["(cid:127)", "\ufffd"])
def test_lost_bullets_are_noted_and_lost_letters_with_spaces_between_refused(folder: Path, bullet: str) -> None:
    listed = "".join(f"{bullet} Hotels cost at most {100 + number} euros.\n" for number in range(8))
    assert documents._unread(f"Travel\n\n{listed}", folder / "a.pdf")
    with pytest.raises(BadRecord):
        documents._unread(f"Travel {bullet} {bullet} {bullet} {bullet} {bullet} {bullet} {bullet}", folder / "a.pdf")


def test_word_files_are_converted_with_each_heading_once(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("markitdown")
    docx = pytest.importorskip("docx")
    document = docx.Document()
    document.add_heading("Leave", 1)
    document.add_paragraph("28 days.")
    document.save(folder / "a.docx")
    assert texts(folder) == {"a.docx": "# Leave 28 days."}
    (kept,) = (tmp_path / "cache" / "documents").rglob("*.md")
    kept.write_text("kept")
    assert texts(folder) == {"a.docx": "kept"}


def test_pdfs_without_text_and_unsupported_files_are_reported(folder: Path) -> None:
    pytest.importorskip("markitdown")
    fpdf = pytest.importorskip("fpdf")

    def pdf(name: str, text: str | None, password: str | None = None) -> None:
        made = fpdf.FPDF()
        if password:
            made.set_encryption(owner_password="o", user_password=password)
        made.add_page()
        made.set_font("helvetica", size=12)
        if text is None:
            made.rect(10, 10, 50, 50)
        else:
            made.cell(text=text)
        made.output(str(folder / name))

    pdf("good.pdf", "The office opens at eight.")
    pdf("scan.pdf", None)
    pdf("locked.pdf", "secret", "p")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4\nhello")
    (folder / "login.pdf").write_bytes(b"<!DOCTYPE html><html></html>")
    (folder / "broken.docx").write_bytes(b"PK\x03\x04junk")
    items = read(folder)
    assert texts(folder) == {"good.pdf": "The office opens at eight."}
    assert {name for name, item in items.items() if isinstance(item, BadRecord) and item.code == "bad-document"} == set(items) - {
        "good.pdf"
    }
    assert "ocrmypdf" in str(items["scan.pdf"])

"""Every page on a store with hostile texts: no text becomes markup, no file is opened, and no key is shown.

`test_security_browser.py` tests the same in a real browser, and `pages/test_submit_hostile_files.py` tests uploads.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from leaderboard import pages
from leaderboard import report as embedding
from leaderboard.elements import pictures
from leaderboard.elements.nodes import is_web_address
from leaderboard.report import report
from ragmeter.cli import main
from results.store import queries, shared_connection
from results.store.redaction import HIDDEN
from results.store.store import Store
from tests.support.nodes import from_json

Start = Callable[[Path], Any]
ROOT = Path(__file__).parents[2]
PAGES = sorted(address or "board" for file, _, _, address in pages.PAGES if file != "submit")
MARKDOWN = ("markdown", "caption", "title", "header", "subheader", "html", "latex", "code", "text", "json", "alert")
"""Streamlit elements that render text, mostly as Markdown."""
PARAMETER = re.compile(r"""(?:state\.(?:read|pick|settle)|segments|several|state\.(?:select|switch|search))\(\s*(?:"[^"]*",\s*)?"(\w+)\"""")


def elements(test: Any) -> Iterator[Any]:
    """Return everything that a page drew."""

    def below(node: Any) -> Iterator[Any]:
        if getattr(node, "proto", None) is not None:
            yield node
        for child in getattr(node, "children", {}).values():
            yield from below(child)

    yield from below(test._tree)


@pytest.fixture(scope="module")
def exported() -> dict[str, bytes]:
    """Return exported files by page and name."""
    return {}


@pytest.fixture
def opened(
    streamlit_app: Start, hostile_store: Path, exported: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, dict[str, str]], Any]:
    """Return a function from a page's name and parameters to the page; its downloads are kept in `exported`."""
    streamlit = pytest.importorskip("streamlit")

    def open_page(page: str, parameters: dict[str, str]) -> Any:
        def keep(label: str, data: Any, file_name: str, *_: Any, **__: Any) -> bool:
            exported[f"{page}/{file_name}"] = data() if callable(data) else data
            return False

        monkeypatch.setattr(streamlit, "download_button", keep)
        test = streamlit_app(hostile_store).open(page, **parameters).test
        assert not test.exception, [item.message for item in test.exception]
        return test

    return open_page


def views(page: str) -> list[dict[str, str]]:
    """Return the parameters that show everything on a page."""
    both = [{"view": "matrix"}, {"view": "benchmark"}]
    ours = {"experiment": "restyled"}
    others = {"runs": [{"with": "1" * 16}], "styles": [ours], "questions": [{}, {**ours, "calls": "0" * 16}]}
    return {"board": both, **others}.get(page, [{}])


@pytest.mark.slow
def test_untrusted_text_is_a_leaf_and_keys_are_hidden_on_every_page(
    opened: Any, hostile: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Walk over all pages; this test is also in the fast ring."""
    ours = "sk-ours-0123456789abcdef0123"
    monkeypatch.setenv("OPENAI_API_KEY", ours)
    for page, parameters in [(name, view) for name in PAGES for view in views(name)]:
        seen, calls = 0, False
        for element in elements(opened(page, parameters)):
            response = str(element.proto)
            for key in (hostile.SECRET, hostile.HUNTER, ours):
                assert key not in response, element.type
            if element.type == "bidi_component":
                assert not element.proto.html_content
                assert hostile.MARK not in element.proto.js_content + element.proto.css_content
                sent = element.proto.bytes.decode() or element.proto.json
                seen += hostile.MARK in sent
                calls |= "Calls of <script>" in sent
                if sent.startswith("["):
                    only_listed(json.loads(sent))
            elif element.type in MARKDOWN:
                assert hostile.MARK not in response, element.type
            else:
                # Labels and help are read as Markdown; options and values are not.
                assert hostile.MARK not in str(getattr(element.proto, "label", "")), element.type
                assert hostile.MARK not in str(getattr(element.proto, "help", "")), element.type
        assert seen, f"{page} showed nothing that is hostile"
        assert calls == ("calls" in parameters)


def only_listed(tree: Any) -> None:
    """Check that pictures use only picture elements and attributes, and everything else those of pages."""
    drawings: list[Any] = []
    no_foreign_link(json.dumps(without_pictures(tree, drawings)))
    while drawings:
        tag, attributes, children = drawings.pop()
        assert tag in pictures.TAGS
        assert attributes.keys() <= pictures.ATTRIBUTES
        drawings += [child for child in children if not isinstance(child, str)]


def without_pictures(tree: Any, drawings: list[Any]) -> Any:
    drawings += [child for child in tree[2] if child[:1] == ["svg"]]
    if tree[1] == "chart":
        no_formula(tree[3]["csv"])
    rest = [child if isinstance(child, str) else without_pictures(child, drawings) for child in tree[2] if child[:1] != ["svg"]]
    return [tree[0], tree[1], rest, *tree[3:]]


def no_foreign_link(tree: str) -> None:
    """Check with `from_json`, which refuses elements, attributes, classes and URLs that pages do not use."""
    for link in from_json(tree).find(tag="a"):
        address = str(link.attributes["href"])
        assert is_web_address(address)
        assert "evil.example" not in address


@pytest.mark.slow
def test_hidden_keys_are_replaced_by_a_marker(opened: Any, hostile_store: Path) -> None:
    run = queries.runs(Store(hostile_store))[0].run
    assert any(HIDDEN in str(element.proto) for element in elements(opened("runs", {"run": run})))


_watched: list[str] | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _watched is not None and event.startswith(("open", "os.", "shutil.", "subprocess.", "import", "pathlib.")):
        _watched.append(f"{event} {arguments!r}"[:2000])


@cache
def watch() -> None:
    """Add the hook once: it cannot be removed, and is called for nearly everything that Python does."""
    sys.addaudithook(_watch)


def parameters_of_pages() -> list[str]:
    """Return every parameter that a page reads from its URL."""
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "leaderboard").rglob("*.py"))
    return sorted({*PARAMETER.findall(sources), "page", "file", "path", "store"})


def test_url_parameters_of_pages_are_collected() -> None:
    assert {"run", "with", "experiment", "board", "question", "metric", "view", "sort"} <= {*parameters_of_pages()}


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the files that DuckDB was asked to open, because it bypasses Python's `open`."""
    # A connection left open by an earlier test would not be opened again.
    for held in [*shared_connection._by_path.values()]:
        held.close()
    files: list[str] = []
    attached = shared_connection.AttachedFile

    def noting(path: Path, **options: Any) -> Any:
        files.append(str(path))
        return attached(path, **options)

    monkeypatch.setattr(shared_connection, "AttachedFile", noting)
    return files


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_url_paths_do_not_reach_the_file_system(opened: Any, tmp_path: Path, page: str, connected: list[str], hostile_store: Path) -> None:
    global _watched
    streamlit = pytest.importorskip("streamlit")
    # Otherwise, a page whose results another test has cached opens no store.
    streamlit.cache_data.clear()
    streamlit.cache_resource.clear()
    from leaderboard import drawing

    (tmp_path / "canary.duckdb").write_text("a file that somebody wants to read")
    values = (f"{tmp_path}/canary.duckdb", "../../../../../../canary", "file:///canary", "canary\0.yaml")
    names = parameters_of_pages()
    for first in (0, 2):
        drawing.asset.cache_clear()
        watch()
        _watched = []
        try:
            opened(page, {name: values[(position + first) % len(values)] for position, name in enumerate(names)})
        finally:
            touched, _watched = _watched, None
        # It did open files, but only its own.
        assert any("view.js" in item for item in touched)
        assert [item for item in touched if "canary" in item] == []
    assert {*connected} == {str(hostile_store / "store.duckdb")}


def command(*arguments: object, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["ragmeter", *map(str, arguments)])
        with pytest.raises(SystemExit):
            main()
    return capsys.readouterr().out


@pytest.fixture
def files(
    opened: Any, exported: dict[str, bytes], hostile_store: Path, hostile: ModuleType, capsys: pytest.CaptureFixture[str]
) -> dict[str, str]:
    """Return files that pages and commands write, by name: tables, pictures, the report, the embeddable board."""
    if not exported:
        for page in PAGES:
            for parameters in views(page):
                opened(page, parameters)
    store, now = Store(hostile_store), datetime(2026, 1, 1, tzinfo=UTC)
    made = {name: data.decode() for name, data in exported.items()}
    for form, ending in (("csv", "csv"), ("markdown", "md"), ("latex", "tex")):
        reported = command("results", hostile.EXPERIMENT, "--format", form, "--store", hostile_store, capsys=capsys)
        made[f"table.{ending}"] = reported
    made["report.html"] = report(store, hostile.EXPERIMENT, now)
    made["board.json"] = embedding.as_json(embedding.board_document(store, hostile.EXPERIMENT, now))
    run = queries.runs(store)[0].run
    made["show.json"] = command("results", "show", run, "--json", "--store", hostile_store, capsys=capsys)
    made["diff.json"] = command("results", "compare", run, "1" * 16, "--json", "--store", hostile_store, capsys=capsys)
    return made


@pytest.mark.slow
def test_exported_files_contain_no_keys_and_are_safe_to_open(files: dict[str, str], hostile: ModuleType) -> None:
    endings = {name.rpartition(".")[2] for name in files}
    assert endings == {"csv", "md", "tex", "html", "json"}
    checks: dict[str, Callable[[str], None]] = {
        "csv": no_formula,
        "md": no_markup,
        "tex": no_command,
        "html": one_script,
        "json": plain_json,
    }
    assert any("'=HYPERLINK" in text for name, text in files.items() if name.endswith("csv"))
    for name, text in files.items():
        assert hostile.MARK in text, name
        for key in (hostile.SECRET, hostile.HUNTER):
            assert key not in text, name
        checks[name.rpartition(".")[2]](text)


def no_formula(text: str) -> None:
    """Check that no cell starts like a formula, however a spreadsheet splits the lines."""
    rows = list(csv.reader(io.StringIO(text)))
    assert len({len(row) for row in rows}) == 1
    for row in rows:
        for cell in row:
            assert not cell.startswith(("=", "@", "\t", "\r", "\n")), cell
            assert re.fullmatch(r"[-+][\d.]+(e[-+]?\d+)?", cell) or not cell.startswith(("+", "-")), cell
    assert "\r" not in text


def no_markup(text: str) -> None:
    bare = re.sub(r"\\.", "", text)
    assert "<" not in bare
    assert not re.search(r"!\[|\]\(|://", bare)


def no_command(text: str) -> None:
    assert "\\input" not in text
    assert "\\write" not in text
    # Every special character of untrusted text is escaped, so the remaining braces are balanced.
    bare = re.sub(r"\\[\\{}$%&#_]", "", text)
    assert bare.count("{") == bare.count("}")


def one_script(text: str) -> None:
    """Check that the page has only its own blocks, and that no tag can start in the JSON with stored text."""
    assert len(re.findall(r"<script\b", text)) == 2
    assert len(re.findall(r"</script", text)) == 2
    assert not re.search(r"<(img|svg|iframe|object|a)\b[^>]*(evil|pwned)", text)
    assert "default-src 'none'" in text


def plain_json(text: str) -> None:
    assert json.loads(text)

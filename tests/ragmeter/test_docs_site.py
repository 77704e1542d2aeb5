"""The documentation site: it builds without warnings, loads no external resources, and its reference is complete."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from docs._site import facts

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("benchmarks", "methods", "judges", "results", "leaderboard", "ragmeter")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def written() -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the reference pages and the registered names from another process, because tests have registered names in this one."""
    done = subprocess.run([sys.executable, "-c", WRITTEN], capture_output=True, text=True, check=True, cwd=ROOT)
    pages, registered = json.loads(done.stdout)
    return pages, registered


@pytest.fixture
def reference(written: tuple[dict[str, str], dict[str, list[str]]]) -> dict[str, str]:
    return written[0]


WRITTEN = """
import json
from docs._site.reference import pages
from benchmarks.registry import DATASETS
from judges.judge import JUDGES
from judges.metric import METRICS
from methods.registry import METHODS
from methods.training import TRAININGS
every = {"methods": METHODS, "trainings": TRAININGS, "datasets": DATASETS, "judges": JUDGES, "metrics": METRICS}
print(json.dumps([pages(), {name: [entry.id for entry in entries] for name, entries in every.items()}]))
"""


class Loads(HTMLParser):
    """Resources that a page loads, without links."""

    def __init__(self) -> None:
        super().__init__()
        self.result: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        options = dict(attributes)
        if tag in ("script", "img", "iframe", "source"):
            self.result.append(options.get("src") or "")
        if tag == "link" and options.get("rel") in ("stylesheet", "preconnect", "icon", "preload"):
            self.result.append(options.get("href") or "")


@pytest.mark.slow
def test_site_loads_no_external_resources(site: Path) -> None:
    written = sorted(site.rglob("*.html"))
    assert len(written) > 40
    for file in written:
        page = Loads()
        page.feed(file.read_text("utf-8"))
        assert 'data-md-component="source"' not in file.read_text("utf-8"), "the theme asks github.com for stars"
        assert [address for address in page.result if re.match(r"(https?:)?//", address)] == [], file.name


@pytest.mark.slow
def test_vertical_bars_in_table_cells_are_unescaped(site: Path) -> None:
    page = (site / "reference" / "trainings.html").read_text("utf-8")
    assert "&lt;|endoftext|&gt;" in page
    for file in site.rglob("*.html"):
        for cell in re.findall(r"<td.*?</td>", file.read_text("utf-8"), re.DOTALL):
            assert "\\|" not in cell, file.name


@pytest.mark.slow
def test_every_relative_link_has_a_target(site: Path) -> None:
    for file in site.rglob("*.html"):
        for address in re.findall(r'(?:href|src)="([^"#?]+)', file.read_text("utf-8")):
            if not re.match(r"[a-z]+:|/", address):
                assert (file.parent / address).exists(), f"{file.relative_to(site)} links to {address}"


def test_links_of_the_readme_and_messages_lead_to_pages() -> None:
    texts = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(f for package in PACKAGES for f in (ROOT / package).rglob("*.py"))]
    for file in texts:
        for path in re.findall(r"\bdocs/[\w/-]+\.md", file.read_text("utf-8")):
            assert (ROOT / path).is_file(), f"{file.name} names {path}"


def headings(page: str, level: int) -> list[str]:
    return re.findall(rf"^{'#' * level} `?(\w+)", page, re.MULTILINE)


@pytest.mark.slow
def test_reference_lists_every_registered_name(written: tuple[dict[str, str], dict[str, list[str]]]) -> None:
    reference, registered = written

    def of(*names: str) -> list[str]:
        return [heading for name in names for heading in headings(reference[f"reference/{name}.md"], 2)]

    kinds = ("retrievers", "rerankers", "compressors", "readers", "systems", "controls")
    assert sorted(of(*kinds)) == sorted(registered["methods"])
    assert {name: of(name) for name in ("trainings", "datasets", "judges")} == {
        name: registered[name] for name in ("trainings", "datasets", "judges")
    }
    assert sorted(headings(reference["reference/metrics.md"], 3)) == sorted(registered["metrics"])


def row(page: str, section: str, option: str) -> dict[str, str]:
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    (results,) = [line for line in lines if line[0] == f"`{option}`"]
    return dict(zip(lines[0], results, strict=True))


@pytest.mark.slow
def test_options_are_listed_with_default_bounds_and_both_presets(reference: dict[str, str]) -> None:
    rate = row(reference["reference/trainings.md"], "ark", "train.learning_rate")
    assert (rate["default"], rate["released"]) == ("`[6e-06, 4e-06, 2e-06]`", "`[1e-05, 8e-06, 4e-06]`")
    top = row(reference["reference/trainings.md"], "ark", "mine.top_k")
    assert (top["type"], top["released"]) == ("whole number, ≥ 1", "`10`")
    assert row(reference["reference/retrievers.md"], "bm25", "k1")["default"] == "`1.5`"
    assert row(reference["reference/retrievers.md"], "graph_hybrid", "sparse.id")["default"] == "`bm25_triples`"
    assert row(reference["reference/readers.md"], "chat", "llm")["default"] == "*required*"


@pytest.mark.slow
def test_every_option_of_every_component_is_explained(reference: dict[str, str]) -> None:
    unexplained = [f"{path}: {line}" for path, page in reference.items() for line in options_without_words(page.splitlines())]
    assert unexplained == []


def options_without_words(lines: Iterable[str]) -> list[str]:
    """Return rows of option tables whose last cell is empty."""
    result, inside = [], False
    for line in lines:
        inside = line.startswith("|") and (inside or line.startswith("| option |"))
        if inside and line.endswith("|  |"):
            result.append(line)
    return result


def test_every_environment_variable_is_documented() -> None:
    code = "".join(file.read_text("utf-8") for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    read = set(re.findall(r"\b(?:RAGMETER_[A-Z]+|HF_HUB_OFFLINE|OPENAI_(?:API_KEY|BASE_URL)|NO_COLOR)\b", code))
    page = facts.environment_page()
    assert len(read) >= 6
    assert {name for name in read if f"`{name}`" not in page} == set()


LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")
PAGES = [
    path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")) if ".venv" not in path.parts
]


def test_repository_links_lead_to_existing_files() -> None:
    """Readers on the repository's host have no built site."""
    assert len(PAGES) > 40
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        leads = [link for link in LINK.findall(text) if "://" not in link and not link.startswith("mailto:")]
        assert [link for link in leads if not (page.parent / link).exists()] == [], page
    assert "docs/quickstart.md" in LINK.findall((ROOT / "README.md").read_text("utf-8"))

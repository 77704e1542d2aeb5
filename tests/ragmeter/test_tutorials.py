"""Tutorial pages: every command is executed and prints what the page shows."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = (
    "concepts",
    "faq",
    "install",
    "tutorials/compare",
    "tutorials/submit",
    "tutorials/share",
    "tutorials/gate",
    "own-data",
    "own-method",
    "own-llm",
    "plugins",
    "experiments",
    "resume",
    "cost",
    "leaderboard",
    "datasets",
    "metrics",
    "models",
    "published",
    "statistics",
)
ALONE = ("index", "quickstart", "footguns")
"""Pages on which each command starts its own process; commands of other pages are forks of one process."""
LONGEST = 40
"""Maximum number of lines of a user's component, as its page promises."""


@pytest.fixture(scope="module")
def tutorial(module_at: Callable[[Path], ModuleType]) -> ModuleType:
    return module_at(Path(__file__).with_name("tutorial.py"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start a headless browser if available; otherwise, browser output of pages is not checked."""
    import shutil

    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if executable is None:
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def forks(tutorial: ModuleType) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="r") as folder, tutorial.forks(Path(folder)) as address:
        yield address


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Return a folder with a short name, because long names break printed lines."""
    with tempfile.TemporaryDirectory(prefix="r") as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("page", PAGES)
def test_tutorial_output_equals_the_page(page: str, tutorial: ModuleType, forks: Path, short_path: Path, browser: Any) -> None:
    pytest.importorskip("bm25s")
    with tutorial.room(short_path, forks) as room:
        tutorial.play((DOCS / f"{page}.md").read_text("utf-8"), room, browser)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("page", ALONE)
def test_beginner_tutorial_output_equals_the_page(page: str, tutorial: ModuleType, short_path: Path) -> None:
    pytest.importorskip("bm25s")
    with tutorial.room(short_path) as room:
        tutorial.play((DOCS / f"{page}.md").read_text("utf-8"), room)


def test_every_page_with_files_is_executed(tutorial: ModuleType) -> None:
    pages = {file.relative_to(DOCS).with_suffix("").as_posix(): tutorial.blocks(file.read_text("utf-8")) for file in DOCS.rglob("*.md")}
    with_files = {page for page, blocks in pages.items() if any(block.title for block in blocks)}
    assert with_files <= {*PAGES, *ALONE, "gpus"}  # its scripts: test_slurm_scripts.py
    assert {page for page in pages if page.startswith("tutorials/")} <= {*PAGES}
    for page in (*PAGES, *ALONE):
        assert len(pages[page]) >= 2, page


def test_own_components_are_as_short_as_promised(tutorial: ModuleType) -> None:
    results = tutorial.blocks((DOCS / "own-method.md").read_text("utf-8"))
    parts = [block for block in results if block.title and block.title.endswith(".py") and block.title != "my_app.py"]
    assert len(parts) == 6
    for part in parts:
        assert part.text.count("\n") < LONGEST, part.title


def test_missing_output_is_reported(tutorial: ModuleType) -> None:
    printed = "method   f1\nbm25   83.9 ± 3.2   0.0021\nrun ad6826c5094d done\n"
    assert tutorial.missing("bm25 83.9 ± 3.2 …\n…\nrun bb70df2c5f6c done\n", printed) is None
    assert tutorial.missing("bm25 84.0 ± 3.2 …", printed) == "bm25 84.0 ± 3.2 …"
    assert tutorial.missing("bm25 …\nmethod f1", printed) == "method f1"
    assert tutorial.missing("f1", printed) == "f1"


def test_failing_command_fails_its_page(tutorial: ModuleType, tmp_path: Path) -> None:
    page = '```yaml title="a.txt"\nfirst\n```\n\n```bash\ncat a.txt\n{}\n```\n\n```text\nfirst\n```\n'
    with tutorial.room(tmp_path) as room:
        tutorial.play(page.format("true"), room)
        with pytest.raises(AssertionError, match="exit code 1"):
            tutorial.play(page.format("false"), room)
        with pytest.raises(AssertionError, match="the page shows"):
            tutorial.play(page.format("true").replace("text\nfirst", "text\nsecond"), room)


def test_block_marked_not_run_is_not_executed(tutorial: ModuleType) -> None:
    page = "<!-- not run -->\n```bash\nmake install\n```\n\n```bash\ntrue\n```\n"
    assert [block.text for block in tutorial.blocks(page)] == ["true\n"]
    assert re.fullmatch(tutorial.pattern("run … (ad6826c5)"), "run anything (0b0d01a8)")

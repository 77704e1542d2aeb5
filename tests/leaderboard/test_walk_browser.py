"""Every page in Chromium, on what the demo stores and on a million scores: it is drawn, and its controls work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PAGES = ("board", "methods", "compare", "questions", "styles", "budget", "judges", "datasets", "runs", "submit")
EMPTY = {("large", "styles"), ("large", "judges")}
"""Where nothing has been told in styles or judged: such a page says what to do next."""

WHOLE = "(dispatchEvent(new Event('beforeprint')), document.querySelector('[data-testid=stMain]')?.innerText)"
"""All that stands on a page; before it is printed, long tables are drawn to their end."""


@pytest.fixture(scope="module", params=["demo", "large"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, large: ModuleType) -> Any:
    """The kind of store, and its folder."""
    folder = tmp_path_factory.mktemp(request.param) / "store"
    if request.param == "large":
        large.fill_large(folder)
    else:
        command = [sys.executable, "-m", "ragmeter.cli", "demo", "--no-training", "--limit", "12", "--quiet"]
        subprocess.run([*command, "--store", str(folder)], check=True, capture_output=True, timeout=800)
    return request.param, folder


@pytest.fixture(scope="module")
def site(store: tuple[str, Path], screenshots: ModuleType) -> Iterator[str]:
    pytest.importorskip("streamlit")
    with screenshots.serving(store[1], screenshots.SERVE_SUBMISSIONS) as address:
        yield address


@pytest.fixture
def visit(site: str, browser: Any, screenshots: ModuleType) -> Iterator[Any]:
    """From a page's name to the page, which keeps what the browser complains of."""
    opened = []

    def open_page(name: str, width: int = 1280) -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900})
        opened.append(page)
        page.complaints = []
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("console", lambda said: page.complaints.append(said.text) if complains(said) else None)
        page.goto(f"{site}/{screenshots.PAGES[name]}")
        screenshots.settled(page)
        return page

    yield open_page
    for page in opened:
        page.close()


def complains(said: Any) -> bool:
    """Whether a line of the console is an error; Streamlit looks for its own server under each page's address first."""
    return said.type == "error" and "/_stcore/" not in said.location["url"]


def sound(page: Any) -> None:
    """The script ended well and the browser has nothing to complain of."""
    page.locator("h1.page").wait_for(timeout=60_000)
    assert page.locator("[data-testid=stException]").count() == 0
    assert page.complaints == []


def choices(page: Any) -> Any:
    return page.locator("[data-testid=stSelectbox]:visible input:enabled")


@pytest.mark.parametrize("name", PAGES)
def test_every_page_is_drawn_and_every_choice_draws_it_anew(
    visit: Any, store: tuple[str, Path], name: str, screenshots: ModuleType
) -> None:
    page = visit(name)
    sound(page)
    # The title comes first: what the page is for may still be under way.
    if name == "submit":
        page.locator("[data-testid=stFileUploader]").first.wait_for(timeout=60_000)
    elif (store[0], name) in EMPTY:
        page.locator(".message code, .message .command").first.wait_for(timeout=60_000)
    else:
        page.locator("table tbody tr").nth(1).wait_for(timeout=60_000)
    for place in range(choices(page).count()):
        if place >= choices(page).count():
            break
        choices(page).nth(place).click()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        screenshots.settled(page)
        sound(page)
    # The address is the view: opened again, it shows the same.
    shown = page.evaluate(WHOLE)
    page.reload()
    page.wait_for_function(f"shown => {WHOLE} === shown", arg=shown, timeout=60_000)
    sound(page)


@pytest.mark.parametrize("name", PAGES)
def test_no_page_scrolls_sideways_on_a_phone(visit: Any, name: str) -> None:
    page = visit(name, width=390)
    sound(page)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390


def test_a_long_table_grows_as_it_is_read_and_stays_so_long(visit: Any, store: tuple[str, Path], screenshots: ModuleType) -> None:
    if store[0] == "demo":
        pytest.skip("the demo has no long table")
    page = visit("budget")
    rows = page.locator("[data-key=pareto-scroll] tbody tr")
    assert page.locator("[data-key=pareto-scroll] table").get_attribute("aria-rowcount") == "101"
    assert rows.count() < 100
    for _ in range(3):
        rows.last.scroll_into_view_if_needed()
        page.wait_for_timeout(300)
    assert rows.count() == 100
    names = rows.locator(".method").all_inner_texts()
    assert len(set(names)) == 100
    choices(page).nth(3).click()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    screenshots.settled(page)
    assert rows.count() == 100

"""Every page in Chromium: it is drawn, and its controls work.

The slow ring tries half of the choices on a store with everything, and two pages on a store with many methods.
`make soak` tries every choice on the store of the demo and on a million scores.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(900)

PAGES = ("board", "methods", "compare", "questions", "styles", "budget", "judges", "datasets", "runs", "submit")
LARGE = ("large", "million")
EMPTY = {"demo": ("styles",), **dict.fromkeys(LARGE, ("styles", "judges"))}
"""Pages that show the next step because a store compares no styles, or nothing is judged."""

WHOLE = "(dispatchEvent(new Event('beforeprint')), document.querySelector('[data-testid=stMain]')?.innerText)"
"""Text of the whole page; before printing, long tables are drawn to their end."""


@pytest.fixture(
    scope="module",
    params=["hostile", "large", pytest.param("demo", marks=pytest.mark.soak), pytest.param("million", marks=pytest.mark.soak)],
)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, large: ModuleType) -> Any:
    """Return the kind of store and its folder."""
    folder = tmp_path_factory.mktemp(request.param) / "store"
    if request.param == "hostile":
        folder = request.getfixturevalue("hostile_store")
    elif request.param == "large":
        large.fill_large(folder, datasets=4, questions=100)
    elif request.param == "million":
        large.fill_large(folder)
    else:
        command = [sys.executable, "-m", "ragmeter.cli", "demo", "--limit", "12", "--quiet"]
        subprocess.run([*command, "--store", str(folder)], check=True, capture_output=True, timeout=800)
    return request.param, folder


@pytest.fixture(scope="module")
def site(store: tuple[str, Path], screenshots: ModuleType) -> Iterator[str]:
    pytest.importorskip("streamlit")
    with screenshots.serving(store[1], screenshots.SERVE_SUBMISSIONS) as address:
        yield address


@pytest.fixture
def visit(site: str, store: tuple[str, Path], window: Any, screenshots: ModuleType) -> Callable[[str, int], Any]:
    """Return a function from a page's name and a width to the open page."""

    def open_page(name: str, width: int) -> Any:
        window.set_viewport_size({"width": width, "height": 900})
        reported = "?experiment=restyled" if name == "styles" and store[0] == "hostile" else ""
        # Requests of the previous page to a stopped server are not faults of this one.
        window.goto("about:blank")
        window.complaints.clear()
        window.goto(f"{site}/{screenshots.PAGES[name]}{reported}")
        screenshots.settled(window)
        return window

    return open_page


def sound(page: Any) -> None:
    """Check that the script ended without errors and the browser reports none."""
    page.locator("h1.page").wait_for(timeout=60_000)
    assert page.locator("[data-testid=stException]").count() == 0
    assert page.complaints == []


def choices(page: Any) -> Any:
    return page.locator("[data-testid=stSelectbox]:visible input:enabled")


@pytest.mark.parametrize("name", PAGES)
def test_every_page_fits_a_phone_is_accessible_and_redraws_after_choices(
    visit: Any, store: tuple[str, Path], name: str, screenshots: ModuleType, request: pytest.FixtureRequest
) -> None:
    if store[0] == "large" and name not in ("board", "budget"):
        pytest.skip("the page does not grow with the number of methods, or soak looks at it")
    page = visit(name, 390)
    sound(page)
    # The title is drawn first; the content may follow later.
    if name == "submit":
        page.locator("[data-testid=stFileUploader]").first.wait_for(timeout=60_000)
    elif name in EMPTY.get(store[0], ()):
        page.locator(".message code, .message .command").first.wait_for(timeout=60_000)
    else:
        page.locator("table tbody tr").nth(1).wait_for(timeout=60_000)
    # The window has just become narrow: the wide layout disappears first.
    widest = "Math.max(document.scrollingElement.scrollWidth, document.querySelector('[data-testid=stMain]').scrollWidth)"
    deadline = time.monotonic() + 20
    while page.evaluate(widest) > 390 and time.monotonic() < deadline:
        page.wait_for_timeout(100)
    assert page.evaluate(widest) <= 390
    page.set_viewport_size({"width": 1280, "height": 900})
    screenshots.settled(page)
    # Without axe-core, the soak ring still walks through the other stores.
    if store[0] == "hostile":
        request.getfixturevalue("accessible")(page)
    first, step = {"hostile": (0, 2), "large": (1, 2)}.get(store[0], (0, 1))
    for position in range(first, choices(page).count(), step):
        if position >= choices(page).count():
            break
        choices(page).nth(position).click()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        screenshots.settled(page)
        sound(page)
    # The URL defines the view: reopened, it shows the same.
    shown = page.evaluate(WHOLE)
    page.reload()
    page.wait_for_function(f"shown => {WHOLE} === shown", arg=shown, timeout=60_000, polling=200)
    sound(page)


def test_long_table_grows_while_scrolling_and_keeps_its_length(visit: Any, store: tuple[str, Path], screenshots: ModuleType) -> None:
    if store[0] not in LARGE:
        pytest.skip("no long table")
    page = visit("budget", 1280)
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

"""The matrix in a real browser: complete downloads, keyboard navigation, and no execution of stored text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def page_of(several: Path, window: Any, screenshots: ModuleType) -> Iterator[Any]:
    pytest.importorskip("streamlit")
    with screenshots.serving(several) as address:

        def visit(query: str = "", width: int = 1280) -> Any:
            window.set_viewport_size({"width": width, "height": 900})
            window.goto(f"{address}/?{query}")
            screenshots.settled(window)
            return window

        yield visit


FOCUSED = "(document.activeElement.shadowRoot ?? document).activeElement"


def methods(page: Any) -> list[str]:
    return page.locator("table.matrix tbody .method").all_inner_texts()


def test_downloaded_files_contain_the_displayed_table(page_of: Any, matrix_store: ModuleType) -> None:
    page = page_of("view=matrix&find=cmd")
    assert page.evaluate("window.pwned") is None
    assert methods(page) == [matrix_store.EVIL]
    page.get_by_role("button", name="Export").click()
    files = {}
    for label, ending in (("CSV", "csv"), ("Markdown", "md"), ("LaTeX", "tex")):
        with page.expect_download() as coming:
            page.get_by_role("button", name=label, exact=True).click()
        assert coming.value.suggested_filename == f"ragmeter-board.{ending}"
        files[ending] = Path(coming.value.path()).read_bytes()
    rows = list(csv.DictReader(io.StringIO(files["csv"].decode())))
    assert {row["method"] for row in rows} == {"'" + matrix_store.EVIL}
    assert "<script>" not in files["md"].decode()
    assert "find=cmd" in page.locator("[data-testid=stCode]").inner_text()
    assert page.evaluate("window.pwned") is None


def test_benchmark_opens_by_keyboard_and_a_click_hides_after_going_back(page_of: Any, screenshots: ModuleType) -> None:
    page = page_of()
    page.locator("thead button", has_text="open board").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**view=benchmark**")
    screenshots.settled(page)
    assert page.locator(".part[data-key=matrix]").count() == 0
    assert page.locator(".part[data-key=board] table.matrix").count() == 1
    page.go_back()
    page.locator(".part[data-key=matrix]").wait_for()
    screenshots.settled(page)
    last = methods(page)[-2]
    page.get_by_role("button", name=f"Hide {last}").click()
    page.wait_for_url("**hide=**")
    screenshots.settled(page)
    assert last not in methods(page)


def test_cell_opens_its_questions_by_keyboard_and_click(page_of: Any, screenshots: ModuleType) -> None:
    page = page_of()
    cell = page.locator("table.matrix td.opens").first
    cell.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/questions?**runs=**")
    screenshots.settled(page)
    shown = page.locator(".st-key-detail tbody .method").all_inner_texts()
    assert len(shown) == 1
    page.go_back()
    page.locator("table.matrix").first.wait_for()
    screenshots.settled(page)
    page.locator("table.matrix td.opens").first.click()
    page.wait_for_url("**/questions?**runs=**")


def test_keys_open_filters_and_return_and_stay_in_the_table_when_a_row_is_hidden(page_of: Any, screenshots: ModuleType) -> None:
    page = page_of("view=matrix")
    page.locator("[data-testid=stTopNavLink]").first.focus()
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    opener = page.get_by_role("button", name="Filters")
    opener.focus()
    page.keyboard.press("Enter")
    page.locator("[data-testid=stPopoverBody]:focus").wait_for(timeout=10_000)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('[data-testid=stPopoverBody]') !== null")
    page.keyboard.press("Escape")
    page.locator("[data-testid=stPopoverButton]:focus", has_text="Filters").wait_for(timeout=10_000)
    every = methods(page)
    page.locator("table.matrix button[data-key^=hide-]").nth(1).focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**hide=**")
    screenshots.settled(page)
    assert len(methods(page)) == len(every) - 1
    assert page.evaluate(f"{FOCUSED}.dataset.key") == "matrix-scroll"


def test_filters_hide_rows_appear_in_the_url_and_can_be_cleared(page_of: Any, screenshots: ModuleType) -> None:
    page = page_of("view=matrix")
    every = methods(page)
    page.get_by_role("button", name="Filters").click()
    chosen = page.locator("[data-testid=stPopoverBody] [data-testid=stMultiSelect]", has_text="Reader")
    chosen.locator("input").click()
    # The first option selects all.
    page.locator("[role=option]").nth(1).click()
    page.wait_for_url("**readers=**")
    screenshots.settled(page)
    fewer = methods(page)
    assert 0 < len(fewer) < len(every)
    assert set(fewer) < set(every)
    # An open list hides the page behind it from screen readers, and therefore from role queries.
    page.locator("button", has_text="Filters (1)").wait_for()
    page.reload()
    screenshots.settled(page)
    assert methods(page) == fewer
    page.locator("button", has_text="Filters (1)").click()
    page.get_by_role("button", name="Clear filters").click()
    page.wait_for_url(lambda address: "readers=" not in address)
    screenshots.settled(page)
    assert methods(page) == every


def test_phone_layout_scrolls_the_table_and_draws_intervals_as_pictures(page_of: Any) -> None:
    page = page_of("view=matrix&papers=1", width=390)
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    boxes = page.locator("[data-testid=stSelectbox]")
    assert boxes.first.bounding_box() is None, "options are folded"
    assert page.locator("table.matrix").first.bounding_box()["y"] < 300
    assert page.locator("table.matrix th.stick").last.bounding_box()["width"] > 130, "names and readers need few lines"
    page.get_by_text("Options and filters").click()
    boxes.first.wait_for()
    first, second, third = (boxes.nth(number).bounding_box() for number in range(3))
    assert first["y"] == second["y"] < third["y"]
    assert first["x"] + first["width"] <= second["x"]
    dot = page.locator(".matrix td .whisker").first
    assert dot.evaluate("one => getComputedStyle(one, '::after').borderRadius") == "50%"

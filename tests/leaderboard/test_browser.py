"""The leaderboard in a real browser: clicks and keys work, phones do not scroll sideways.

`test_security_browser.py` tests that no stored text is executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def site(filled: Path, screenshots: ModuleType) -> Iterator[str]:
    pytest.importorskip("streamlit")
    with screenshots.serving(filled) as address:
        yield address


@pytest.fixture
def visit(site: str, window: Any, screenshots: ModuleType) -> Callable[..., Any]:
    """Return a function from a path and a viewport to the open page."""

    def open_page(path: str = "", width: int = 1280, scheme: str = "light") -> Any:
        window.set_viewport_size({"width": width, "height": 900})
        window.emulate_media(color_scheme=scheme)
        window.goto(f"{site}/{path}")
        screenshots.settled(window)
        return window

    return open_page


def methods(page: Any) -> list[str]:
    return page.locator("table.board tbody .method").all_inner_texts()


def test_first_visit_loads_completely_without_console_errors(filled: Path, window: Any, screenshots: ModuleType, tmp_path: Path) -> None:
    wrong: list[str] = []

    def listen(item: Any) -> None:
        if item.type in ("error", "warning"):
            wrong.append(item.text)

    window.on("console", listen)
    with (tmp_path / "said").open("w+") as responses:
        with screenshots.serving(filled, log=responses) as address:
            window.goto(f"{address}/datasets")
            screenshots.settled(window)
            window.get_by_text("Compare", exact=True).first.wait_for(timeout=10_000)
            assert window.locator("[data-testid=stSidebar]").count() == 0
            window.goto(address)
            screenshots.settled(window)
            window.goto("about:blank")
        responses.seek(0)
        complaints = [line for line in responses if re.search("Traceback|Error|Failed|[Ww]arning", line)]
    window.remove_listener("console", listen)
    assert complaints == []
    assert not [text for text in wrong if "theme" in text.lower() or "font" in text.lower()]


def test_column_heads_have_tooltips_and_sort_by_keyboard_and_click(visit: Any, screenshots: ModuleType) -> None:
    page = visit()
    before = methods(page)
    page.locator("thead button", has_text="F1").first.hover()
    assert "Overlap of tokens <b>after</b> normalization" in page.locator(".tip:popover-open").inner_text()
    page.locator("thead button", has_text="Time").focus()
    assert page.locator(".tip").first.is_visible() or page.locator(".tip:popover-open").count() == 1
    page.keyboard.press("Enter")
    page.wait_for_url("**sort=seconds**")
    screenshots.settled(page)
    focused = "document.activeElement.shadowRoot?.activeElement?.dataset.key ?? document.activeElement.dataset.key"
    assert page.evaluate(focused) == "sort-seconds"
    page.locator("thead button", has_text="Method").click()
    page.wait_for_url("**sort=method**")
    screenshots.settled(page)
    after = methods(page)
    assert after != before
    ranked = [name.casefold() for name in after[: after.index("gold answer")]]  # controls follow
    assert len(ranked) > 3
    assert ranked == sorted(ranked)
    assert methods(visit("?" + page.url.partition("?")[2])) == after


def test_marks_are_readable_without_color(visit: Any) -> None:
    page = visit("questions?question=q0004")
    evidence = page.locator("details.evidence[open]").first.aria_snapshot()
    assert 'mark: "gold sentence: ' in evidence
    answer = page.locator("details.evidence mark.answer:visible").first
    assert "gold answer: " in answer.locator("xpath=..").aria_snapshot()
    look = "(node) => { const s = getComputedStyle(node); return [s.fontWeight, s.boxShadow] }"
    weight, frame = answer.evaluate(look)
    assert int(weight) > 600
    assert frame != "none"


def test_question_opens_by_click_or_key_and_back_returns_to_the_previous_one(visit: Any, screenshots: ModuleType) -> None:
    page = visit("questions?question=q0002")
    shown = page.locator("h2.question").inner_text()
    page.locator("button.pick").nth(7).click()
    page.wait_for_url("**question=q0007**")
    screenshots.settled(page)
    assert page.locator("h2.question").inner_text() != shown
    page.go_back()
    page.wait_for_function(
        "text => document.body && [...document.querySelectorAll('*')].some(e => (e.shadowRoot ?? e)"
        ".querySelector?.('h2.question')?.textContent === text)",
        arg=shown,
        polling=200,
    )
    assert "question=q0002" in page.url
    assert page.locator("h2.question").inner_text() == shown
    screenshots.settled(page)
    page.keyboard.press("j")
    page.wait_for_url("**question=q0003**")
    screenshots.settled(page)
    assert page.locator("button.pick[aria-pressed=true]").count() == 1
    assert page.locator("mark").count() > 0


def test_list_of_questions_is_one_stop_of_the_tab_key_and_arrows_move_in_it(visit: Any, screenshots: ModuleType) -> None:
    page = visit("questions?question=q0002")
    picks = page.locator("button.pick")
    assert picks.evaluate_all("all => all.filter(one => one.tabIndex === 0).map(one => one.dataset.key)") == ["pick-q0002"]
    page.locator("button.pick[aria-pressed=true]").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_url("**question=q0003**")
    screenshots.settled(page)
    assert page.locator("button.pick:focus").get_attribute("data-key") == "pick-q0003"


def test_pages_have_distinct_titles_and_a_wrong_link_can_be_left(visit: Any, screenshots: ModuleType) -> None:
    page = visit("methods?method=nosuch")
    page.wait_for_function("document.title === 'Methods · ragmeter'")
    assert "nosuch; " in page.locator("[role=status].missing").inner_text()
    assert "nosuch" not in page.url
    page.go_back()
    page.wait_for_url("**method=nosuch")
    screenshots.settled(page)
    assert page.url.endswith("method=nosuch")


def test_method_on_the_board_opens_its_page_and_back_returns(visit: Any, screenshots: ModuleType) -> None:
    page = visit("?sort=method&order=desc")
    before = methods(page)
    page.locator("button.method").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/methods?**method=**")
    screenshots.settled(page)
    assert page.locator("h1.page").inner_text() == "Method"
    page.go_back()
    page.wait_for_url("**sort=method**")
    page.locator("table.board").first.wait_for()
    screenshots.settled(page)
    assert methods(page) == before


def test_arrow_key_opens_the_next_question_from_a_toggle_but_not_from_a_field(visit: Any, screenshots: ModuleType) -> None:
    page = visit("questions?question=q0001")
    page.get_by_text("Only where they differ").first.click()
    page.wait_for_url("**differ=1**")
    screenshots.settled(page)
    position = page.locator(".place strong")
    before = position.inner_text()
    page.keyboard.press("j")
    page.wait_for_function(
        "text => [...document.querySelectorAll('*')].some(e => e.shadowRoot?.querySelector("
        "'.place strong') && e.shadowRoot.querySelector('.place strong').textContent !== text)",
        arg=before,
        polling=200,
    )
    screenshots.settled(page)
    after = position.inner_text()
    assert int(after.split(" ")[0]) == int(before.split(" ")[0]) + 1
    page.get_by_label("Search").focus()
    page.keyboard.type("jk")
    page.wait_for_timeout(500)
    assert position.inner_text() == after

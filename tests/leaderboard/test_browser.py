"""The leaderboard in a real browser: nothing of the store's text runs, clicks work, phones do not scroll sideways."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
def visit(site: str, browser: Any, screenshots: ModuleType) -> Iterator[Any]:
    """From a path and a view port to an open page; what the page asks other machines for is refused and noted."""
    contexts = []

    def open_page(path: str = "", width: int = 1280, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.foreign = []

        def route(handler: Any) -> None:
            if handler.request.url.startswith((site, site.replace("http", "ws"), "data:", "blob:")):
                handler.continue_()
            else:
                page.foreign.append(handler.request.url)
                handler.abort()

        page.route("**/*", route)
        page.goto(f"{site}/{path}")
        screenshots.settled(page)
        return page

    yield open_page
    for context in contexts:
        context.close()


def methods(page: Any) -> list[str]:
    return page.locator("table.board tbody .method").all_inner_texts()


@pytest.mark.parametrize("path", ["", "questions?question=q0001", "?sort=<script>window.pwned=1</script>"])
def test_text_from_strangers_is_shown_and_never_run(visit: Any, synthetic: ModuleType, path: str) -> None:
    page = visit(path)
    assert page.evaluate("window.pwned") is None
    assert page.foreign == []
    assert page.locator("img[src*='evil'], svg[onload], a[href^='javascript']").count() == 0
    assert any("<script>window.pwned=1</script>" in name for name in methods(page))


def test_a_visit_is_nothing_that_the_server_complains_of(filled: Path, browser: Any, screenshots: ModuleType, tmp_path: Path) -> None:
    with (tmp_path / "said").open("w+") as said:
        with screenshots.serving(filled, said=said) as address:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            wrong: list[str] = []
            page.on("console", lambda one: wrong.append(one.text) if one.type in ("error", "warning") else None)
            page.goto(address)
            screenshots.settled(page)
            page.close()
        said.seek(0)
        complaints = [line for line in said if re.search("Traceback|Error|Failed|[Ww]arning", line)]
    assert complaints == []
    assert not [text for text in wrong if "theme" in text.lower() or "font" in text.lower()]


def test_a_link_into_a_page_is_whole_as_the_first_visit_of_a_server(filled: Path, browser: Any, screenshots: ModuleType) -> None:
    with screenshots.serving(filled) as address:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{address}/datasets")
        screenshots.settled(page)
        page.get_by_text("Compare", exact=True).first.wait_for(timeout=10_000)
        assert page.locator("[data-testid=stSidebar]").count() == 0
        page.close()


def test_a_click_on_a_head_sorts_and_is_in_the_url(visit: Any, screenshots: ModuleType) -> None:
    page = visit()
    before = methods(page)
    page.locator("thead button", has_text="Method").click()
    page.wait_for_url("**sort=method**")
    screenshots.settled(page)
    after = methods(page)
    assert after != before
    assert [n.casefold() for n in after[:-2]] == sorted(n.casefold() for n in after[:-2])
    again = visit("?" + page.url.partition("?")[2])
    assert methods(again) == after


def test_heads_are_reached_and_pressed_by_keyboard_and_keep_the_focus(visit: Any, screenshots: ModuleType) -> None:
    page = visit()
    page.locator("thead button", has_text="Time").focus()
    assert page.locator(".tip").first.is_visible() or page.locator(".tip:popover-open").count() == 1
    page.keyboard.press("Enter")
    page.wait_for_url("**sort=seconds**")
    screenshots.settled(page)
    focused = "document.activeElement.shadowRoot?.activeElement?.dataset.key ?? document.activeElement.dataset.key"
    assert page.evaluate(focused) == "sort-seconds"


def test_the_definition_of_a_metric_is_its_hover_help(visit: Any) -> None:
    page = visit()
    page.locator("thead button", has_text="F1").first.hover()
    tip = page.locator(".tip:popover-open")
    assert "Overlap of tokens <b>after</b> normalisation" in tip.inner_text()


def test_a_question_is_opened_by_a_click_and_the_next_by_a_key(visit: Any, screenshots: ModuleType) -> None:
    page = visit("questions")
    first = page.locator("h2.question").inner_text()
    page.locator("button.pick").nth(4).click()
    page.wait_for_url("**question=q0004**")
    screenshots.settled(page)
    assert page.locator("h2.question").inner_text() != first
    page.keyboard.press("j")
    page.wait_for_url("**question=q0005**")
    screenshots.settled(page)
    assert page.locator("button.pick[aria-pressed=true]").count() == 1
    assert page.locator("mark").count() > 0


def test_what_is_marked_is_said_and_not_only_coloured(visit: Any) -> None:
    page = visit("questions?question=q0004")
    evidence = page.locator("details.evidence[open]").first.aria_snapshot()
    assert 'mark: "gold sentence: ' in evidence
    answer = page.locator("details.evidence mark.answer:visible").first
    assert "gold answer: " in answer.locator("xpath=..").aria_snapshot()
    look = "(node) => { const s = getComputedStyle(node); return [s.fontWeight, s.boxShadow] }"
    weight, frame = answer.evaluate(look)
    assert int(weight) > 600
    assert frame != "none"


def test_going_back_shows_what_was_shown_before(visit: Any, screenshots: ModuleType) -> None:
    page = visit("questions?question=q0002")
    shown = page.locator("h2.question").inner_text()
    page.locator("button.pick").nth(7).click()
    page.wait_for_url("**question=q0007**")
    screenshots.settled(page)
    page.go_back()
    page.wait_for_function(
        "text => document.body && [...document.querySelectorAll('*')].some(e => (e.shadowRoot ?? e)"
        ".querySelector?.('h2.question')?.textContent === text)",
        arg=shown,
    )
    assert "question=q0002" in page.url
    assert page.locator("h2.question").inner_text() == shown


@pytest.mark.parametrize("path", ["", "questions"])
def test_a_phone_does_not_scroll_sideways(visit: Any, path: str) -> None:
    page = visit(path, width=390)
    wide = page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth")
    assert wide <= 390


def test_dark_readers_get_dark(visit: Any) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        page = visit(scheme=scheme)
        colours[scheme] = page.evaluate("getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor")
    assert colours == {"light": "rgb(255, 255, 255)", "dark": "rgb(16, 21, 27)"}


def test_pages_have_titles_of_their_own_and_a_wrong_link_does_not_trap(visit: Any, screenshots: ModuleType) -> None:
    page = visit("methods?method=nosuch")
    page.wait_for_function("document.title === 'Methods · ragmeter'")
    assert "nosuch; " in page.locator("[role=status].missing").inner_text()
    assert "nosuch" not in page.url
    page.go_back()
    page.wait_for_url("**method=nosuch")
    screenshots.settled(page)
    assert page.url.endswith("method=nosuch")


def test_a_method_of_the_board_opens_its_page_and_back_leads_to_the_board(visit: Any, screenshots: ModuleType) -> None:
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


def test_a_key_leads_to_the_next_question_from_a_toggle_but_not_from_a_field(visit: Any, screenshots: ModuleType) -> None:
    page = visit("questions?question=q0001")
    page.get_by_text("Only where they differ").first.click()
    page.wait_for_url("**differ=1**")
    screenshots.settled(page)
    place = page.locator(".place strong")
    before = place.inner_text()
    page.keyboard.press("j")
    page.wait_for_function(
        "text => [...document.querySelectorAll('*')].some(e => e.shadowRoot?.querySelector("
        "'.place strong') && e.shadowRoot.querySelector('.place strong').textContent !== text)",
        arg=before,
    )
    screenshots.settled(page)
    after = place.inner_text()
    assert int(after.split(" ")[0]) == int(before.split(" ")[0]) + 1
    page.get_by_label("Search").focus()
    page.keyboard.type("jk")
    page.wait_for_timeout(500)
    assert place.inner_text() == after

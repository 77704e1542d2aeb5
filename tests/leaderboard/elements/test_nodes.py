"""Untrusted text stays text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from leaderboard.elements.nodes import TAGS, Node, badge, el, flat, is_web_address, link, message, prose, show_value
from leaderboard.elements.tables import metric_head
from tests.support.nodes import from_json


@given(some.text())
def test_text_reaches_the_browser_unchanged_as_a_leaf(text: str) -> None:
    tree = el("p", el("strong", text), text, badge(text, tip=text), title=text)
    back = from_json(json.dumps(tree.to_json()))
    assert list(back.texts()) == [text, text, text]
    assert {node.tag for node in back.find()} == {"p", "strong", "span"}


@pytest.mark.parametrize("tag", ["script", "img", "iframe", "style", "svg", "object", "form", "input", "link", "meta"])
def test_elements_that_load_or_run_content_are_refused(tag: str) -> None:
    assert tag not in TAGS
    with pytest.raises(ValueError, match="no element"):
        el(tag)


@pytest.mark.parametrize("name", ["onclick", "style", "src", "srcdoc", "id", "onerror", "formaction"])
def test_attributes_that_load_or_run_content_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no attribute"):
        el("span", **{name: "x"})


def test_css_class_from_data_is_refused() -> None:
    with pytest.raises(ValueError, match="style classes"):
        el("span", cls='x" onclick="y')


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        " javascript:alert(1)",
        "java\nscript:alert(1)",
        "data:text/html,x",
        "vbscript:x",
        "file:///etc/passwd",
        "//evil.example",
        "http:evil",
        "https:///x",
        "http://a b",
        "http:\\\\evil.example",
        "http://[",
        "",
        "mailto:a@b.c",
    ],
)
def test_only_web_addresses_become_links(address: str) -> None:
    assert not is_web_address(address)
    shown = link("card", address)
    assert shown.tag == "span"
    assert address in "".join(shown.texts())
    with pytest.raises(ValueError, match="http"):
        el("a", "card", href=address)


def test_http_addresses_become_links() -> None:
    assert link("paper", "https://arxiv.org/abs/1809.09600").attributes == {"href": "https://arxiv.org/abs/1809.09600"}


def test_style_sheet_numbers_must_be_finite() -> None:
    node = el("span", numbers={"low": float("nan"), "high": 1, "value": float("inf")})
    assert node.numbers == {"high": 1.0}
    with pytest.raises(ValueError, match="float"):
        el("span", numbers={"low": "1; background: url(//evil)"})  # type: ignore[dict-item]


def test_message_contains_the_next_step() -> None:
    shown = message("Empty", "Nothing yet.", ("ragmeter demo",))
    assert [list(node.texts()) for node in shown.find(cls="command")] == [["ragmeter demo"]]


def test_find_matches_tag_and_class() -> None:
    tree = el("div", el("span", "a", cls="x y"), el("p", "b", cls="x"))
    assert [node.tag for node in tree.find(cls="x")] == ["span", "p"]
    assert [node.tag for node in tree.find(tag="p", cls="x")] == ["p"]
    assert isinstance(next(tree.find()), Node)


def test_words_in_backticks_become_code_elements() -> None:
    shown = prose("no more than `longest_match` words; `a` and `b`, an odd ` stays")
    assert [item.children for item in shown if isinstance(item, Node)] == [("longest_match",), ("a",), ("b",)]
    assert [item for item in shown if isinstance(item, str)] == ["no more than ", " words; ", " and ", ", an odd ` stays"]
    assert prose("") == ()


@given(some.text(some.sampled_from("`ab \n<")))
def test_code_elements_lose_only_the_backticks(text: str) -> None:
    shown = "".join(el("p", *prose(text)).texts())
    assert shown.replace("`", "") == text.replace("`", "")
    # Two backticks are a pair: no other text is dropped.
    assert (len(text) - len(shown)) % 2 == 0


def test_leaves_are_listed_with_dotted_keys() -> None:
    value = {"a": {"b": 1, "none": None}, "list": [1, 2], "rows": [{"c": "x"}, {"c": "y"}], "empty": [], "no": {}}
    assert list(flat(value)) == [("a.b", 1), ("list", [1, 2]), ("rows[0].c", "x"), ("rows[1].c", "y")]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("/home/someone/store/checkpoints/ark-1/stage3", "…/checkpoints/ark-1/stage3"),
        (r"C:\Users\someone\store\checkpoints\ark", "…/store/checkpoints/ark"),
        ("/models/mistral", "/models/mistral"),
        ("BAAI/bge-m3", "BAAI/bge-m3"),
        ("https://example.org/a/b/c/d", "https://example.org/a/b/c/d"),
        ("/one/two/three/four and more words", "/one/two/three/four and more words"),
        (0.5, "0.5"),
        ([1, "x"], '[1, "x"]'),
        ("y" * 300, "y" * 200 + "…"),
    ],
)
def test_values_are_shown_as_text_and_folders_by_their_last_components(value: object, text: str) -> None:
    assert show_value(value) == text


def test_heads_of_metrics_mark_those_where_lower_is_better() -> None:
    known = {"definition": "Planted.", "source": "made up"}
    definitions = {"nll#v1": known | {"higher_is_better": False}, "em#v2": known | {"higher_is_better": True}}
    marked = {metric: metric_head(metric, definitions, [*definitions])[1] for metric in definitions}
    assert ["lower is better" in unit for unit in marked.values()] == [True, False]

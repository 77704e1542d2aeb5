"""Where links lead: what one names in vain is said and put right, and a method's name opens its page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from leaderboard.links import question_address
from results.store import queries
from results.store.store import Store

Start = Callable[[Path], Any]


def said(page: Any) -> str:
    assert not page.test.exception
    return " ".join(page.part("missing").texts()) if page.has("missing") else ""


def test_a_link_that_names_what_is_not_here_says_so_and_the_url_is_put_right(app: Start, filled: Path) -> None:
    page = app(filled).open("methods", method="nosuch")
    shown = page.query["method"]
    assert said(page) == f"This link names a method that is not here, nosuch; {shown} is shown."
    assert shown != "nosuch"
    assert dict(page.part("missing").attributes) == {"role": "status"}
    assert said(app(filled).open("methods", method=shown)) == ""


def test_all_that_is_missing_is_in_one_note_and_shortened(app: Start, filled: Path) -> None:
    page = app(filled).open(view="benchmark", experiment="x" * 5000, metric="<b>no</b>", sort="up")
    assert "an experiment that is not here, " + "x" * 59 + "…; " in said(page)
    assert "a metric that is not here, <b>no</b>; " in said(page)
    assert "a value of sort that is not here, up; rank is shown." in said(page)
    assert page.query["metric"] != "<b>no</b>"


def test_what_a_choice_made_impossible_is_no_missing_name(app: Start, filled: Path) -> None:
    page = app(filled).open(experiment="made-up", view="benchmark", metric="f1(rules=hotpotqa)#v1", reference="hybrid")
    assert said(page) == ""
    assert said(page.choose("Experiment", "open corpus")) == ""
    page = app(filled).open(view="benchmark", experiment="nosuch")
    assert "nosuch" in said(page)
    assert said(page.choose("Columns", "answer")) == ""


def test_several_names_lose_those_that_are_not_here(app: Start, filled: Path) -> None:
    page = app(filled).open("compare")
    runs = next(box for box in page.test.multiselect if box.label == "Runs").value
    page = app(filled).open("compare", runs=",".join([*runs[:2], "nosuch"]))
    assert said(page) == "This link names a run that is not here, nosuch; it is left out."
    assert page.query["runs"] == ",".join(runs[:2])


def test_a_name_without_its_parameters_is_enough_where_one_has_it(app: Start, filled: Path) -> None:
    page = app(filled).open(view="benchmark", metric="f1")
    assert said(page) == ""
    assert next(box for box in page.test.selectbox if box.label == "Ranked by").value == "f1(rules=hotpotqa)#v1"


def test_names_on_boards_ask_for_their_methods(app: Start, filled: Path, several: Path) -> None:
    for store, part in ((filled, "board"), (several, "matrix")):
        opener = list(app(store).open().part(part).find(tag="button", cls="method"))[1]
        page = app(store).open("methods", **opener.action)
        assert page.query == opener.action
        assert said(page) == ""


def test_the_address_of_a_question_opens_it(app: Start, filled: Path) -> None:
    store = Store(filled)
    first, second, *_ = [run for run in queries.runs(store) if run.kind != "control"]
    question = queries.questions(store, second.dataset_fingerprint)[3].question
    metric = queries.metric_ids(store, [second.run])[-1]
    address = urlsplit(question_address("https://board.example.org", first, second, metric, question))
    view = {name: values[0] for name, values in parse_qs(address.query).items()}
    page = app(filled).open(address.path.strip("/"), **view)
    assert said(page) == ""
    assert {name: page.query[name] for name in view} == view

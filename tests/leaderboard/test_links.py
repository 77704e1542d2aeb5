"""Links with unknown names are reported and corrected, and method names open the method page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from leaderboard.elements.formats import question_address
from results.store import answer_queries, queries, score_queries
from results.store.store import Store

Start = Callable[[Path], Any]


def notes_on(page: Any) -> str:
    assert not page.test.exception
    return " ".join(page.part("missing").texts()) if page.has("missing") else ""


def test_link_with_an_unknown_name_shows_a_note_and_corrects_the_url(app: Start, filled: Path) -> None:
    page = app(filled).open("methods", method="nosuch")
    shown = page.query["method"]
    assert notes_on(page) == f"This link names a method that is not here, nosuch; {shown} is shown."
    assert shown != "nosuch"
    assert dict(page.part("missing").attributes) == {"role": "status"}
    assert notes_on(app(filled).open("methods", method=shown)) == ""


def test_link_to_a_withdrawn_submission_states_that_and_the_reason(app: Start, copied: Callable[[], Path]) -> None:
    store = Store(copied())
    run = next(run for run in queries.runs(store) if run.kind != "control")
    card = {"submission": {"review": [{"reason": "by its authors", "at": "2026-01-01T00:00:00"}]}}
    with store.database.writing() as connection:
        connection.execute("UPDATE runs SET origin = 'withdrawn', card = ? WHERE run = ?", [json.dumps(card), run.run])
    store.database.close()
    for page in (app(store.folder).open("runs", run=run.run), app(store.folder).open("questions", runs=run.run)):
        assert f"{run.method}, which is withdrawn (by its authors); " in notes_on(page)


def test_all_unknown_names_are_shortened_in_one_note(app: Start, filled: Path) -> None:
    page = app(filled).open(view="benchmark", experiment="x" * 5000, metric="<b>no</b>", sort="up")
    assert "an experiment that is not here, " + "x" * 59 + "…; " in notes_on(page)
    assert "a metric that is not here, <b>no</b>; " in notes_on(page)
    assert "a value of sort that is not here, up; f1(rules=hotpotqa)#v2 is shown." in notes_on(page)
    assert page.query["metric"] != "<b>no</b>"


def test_name_made_invalid_by_a_choice_is_not_reported_as_unknown(app: Start, filled: Path) -> None:
    page = app(filled).open(experiment="made-up", view="benchmark", metric="f1(rules=hotpotqa)#v2", reference="hybrid")
    assert notes_on(page) == ""
    assert notes_on(page.choose("Experiment", "open corpus")) == ""
    page = app(filled).open(view="benchmark", experiment="nosuch")
    assert "nosuch" in notes_on(page)
    assert notes_on(page.choose("Columns", "answer")) == ""


def test_unknown_names_are_removed_from_a_list_of_names(app: Start, filled: Path) -> None:
    page = app(filled).open("compare")
    runs = next(box for box in page.test.multiselect if box.label == "Runs").value
    page = app(filled).open("compare", runs=",".join([*runs[:2], "nosuch"]))
    assert notes_on(page) == "This link names a run that is not here, nosuch; it is left out."
    assert page.query["runs"] == ",".join(runs[:2])


def test_metric_name_without_parameters_is_accepted_if_unambiguous(app: Start, filled: Path) -> None:
    page = app(filled).open(view="benchmark", metric="f1")
    assert notes_on(page) == ""
    assert next(box for box in page.test.selectbox if box.label == "Ranked by").value == "f1(rules=hotpotqa)#v2"


def test_method_names_on_boards_link_to_their_page(app: Start, filled: Path, several: Path) -> None:
    for store, part in ((filled, "board"), (several, "matrix")):
        opener = list(app(store).open().part(part).find(tag="button", cls="method"))[1]
        page = app(store).open("methods", **opener.action)
        assert page.query == opener.action
        assert notes_on(page) == ""


def test_question_url_opens_the_question(app: Start, filled: Path) -> None:
    store = Store(filled)
    first, second, *_ = [run for run in queries.runs(store) if run.kind != "control"]
    question = answer_queries.questions(store, second.dataset_fingerprint)[3].question
    metric = score_queries.metric_ids(store, [second.run])[-1]
    address = urlsplit(question_address("https://board.example.org", first, second, metric, question))
    view = {name: values[0] for name, values in parse_qs(address.query).items()}
    page = app(filled).open(address.path.strip("/"), **view)
    assert notes_on(page) == ""
    assert {name: page.query[name] for name in view} == view

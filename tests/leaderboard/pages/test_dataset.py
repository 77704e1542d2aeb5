"""The datasets page: cards, counts and samples equal the store, and untrusted text stays text."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leaderboard.elements.nodes import TAGS
from leaderboard.pages import dataset
from results.store import answer_queries, queries
from results.store.provenance import Contaminated, DatasetFacts, dataset_facts, samples
from results.store.store import Store

Start = Callable[[Path], Any]


def words(node: Any) -> str:
    return " ".join(node.texts())


def make_facts(**changes: Any) -> DatasetFacts:
    values: dict[str, Any] = {
        "fingerprint": "f00d",
        "name": "d:test",
        "card": {"title": "D", "hub_id": None},
        "notes": (),
        "questions": 2,
        "passages": 3,
        "types": {"bridge": 2},
        "without_gold": 0,
        "with_evidence": 2,
        "documents": 0,
        "words": 4.5,
        "runs": 1,
        "methods": 1,
        "contaminated": (),
    }
    return DatasetFacts(**values | changes)


def test_counts_equal_the_questions_of_the_dataset(filled: Path) -> None:
    store = Store(filled)
    (facts,) = dataset_facts(store)
    rows = answer_queries.questions(store, facts.fingerprint)
    assert facts.questions == len(rows) == 40
    assert facts.types == dict(Counter(row.type for row in rows))
    assert facts.words == pytest.approx(sum(len(row.text.split(" ")) for row in rows) / len(rows))
    assert (facts.with_evidence, facts.without_gold, facts.documents) == (40, 0, 0)
    assert facts.runs == len({run.run for run in queries.runs(store)})


def test_samples_are_evenly_spaced_and_shift_with_the_offset(filled: Path) -> None:
    store = Store(filled)
    fingerprint = dataset_facts(store)[0].fingerprint
    order = [row.question for row in answer_queries.questions(store, fingerprint)]
    first, moved = (samples(store, fingerprint, 5, start) for start in (0, 1))
    assert [order.index(item.question.question) for item in first] == [0, 8, 16, 24, 32]
    assert [order.index(item.question.question) for item in moved] == [1, 9, 17, 25, 33]
    assert all(set(item.passages) == set(item.question.evidence) for item in first)
    assert len(samples(store, fingerprint, 500)) == 40
    assert samples(store, "no such dataset") == []


def test_submission_trained_on_the_split_is_listed_as_contaminated(copied: Callable[[], Path]) -> None:
    store = Store(copied())
    run = queries.runs(store)[0]
    card = {"submission": {"contamination": ["training data 1 (d) covers this split", "<b>two</b>"]}}
    with store.database.writing() as connection:
        connection.execute("UPDATE runs SET card = ? WHERE run = ?", [json.dumps(card), run.run])
    (facts,) = dataset_facts(store)
    (result,) = facts.contaminated
    assert (result.run, result.reasons) == (run.run, tuple(card["submission"]["contamination"]))
    shown = words(dataset.contamination(facts))
    assert "<b>two</b>" in shown
    assert "No stored submission" not in shown


def test_page_without_contamination_findings_explains_the_limits() -> None:
    shown = words(dataset.contamination(make_facts(name="d'; rm -rf:test")))
    assert "No stored submission declares" in shown
    assert shlex.split(shown)[-1] == "d'; rm -rf:test"


@pytest.mark.parametrize(
    ("hub", "revision", "address"),
    [
        ("org/set", "abc123", "https://huggingface.co/datasets/org/set/tree/abc123"),
        ("org/set", None, "https://huggingface.co/datasets/org/set"),
        ("org/set", "../../x?y", "https://huggingface.co/datasets/org/set"),
        ("javascript:alert(1)", None, None),
        (None, None, None),
    ],
)
def test_only_valid_repository_names_are_linked(hub: str | None, revision: str | None, address: str | None) -> None:
    shown = dataset.card(make_facts(card={"title": "D", "hub_id": hub, "revision": revision}))
    assert [a.attributes["href"] for a in shown.find(tag="a")] == ([address] if address else [])


def test_names_of_contaminated_submissions_are_text_leaves() -> None:
    hostile = "<script>x</script>"
    shown = dataset.contamination(make_facts(contaminated=(Contaminated("r", hostile, (hostile,)),)))
    assert list(shown.texts()).count(hostile) == 2
    assert {node.tag for node in shown.find()} <= TAGS


def test_page_shows_card_and_samples(app: Start, filled: Path) -> None:
    page = app(filled).open("datasets")
    assert not page.test.exception
    assert "Made-up worlds" in words(page.part("card"))
    assert "CC0" in words(page.part("card"))
    assert words(page.part("samples")).count("Gold") >= 5
    again = app(filled).open("datasets", dataset="../../etc/passwd~x", start="-1e9")
    assert not again.test.exception
    assert again.part("samples") == page.part("samples")
    next(button for button in page.test.button if button.label == "Others").click().run()
    assert page.query["start"] == "1"
    assert words(page.part("samples")) != words(again.part("samples"))


def test_empty_folder_shows_the_next_step(app: Start, tmp_path: Path) -> None:
    page = app(tmp_path / "none").open("datasets")
    assert "ragmeter demo" in words(page.part("message"))

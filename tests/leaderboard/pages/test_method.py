"""The method page: everything that the store contains about a method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from leaderboard.elements.formats import PERCENT
from leaderboard.elements.nodes import Node
from leaderboard.pages import method as method_view
from results.boards.board import boards
from results.gate import history as gate_history
from results.gate.decision import ask
from results.statistics.core import Estimate
from results.store import checkpoints, provenance, queries
from results.store.store import Run, Store

Start = Callable[[Path], Any]
F1 = "f1(rules=hotpotqa)#v2"


def words(node: Any) -> str:
    return " ".join(node.texts())


@pytest.fixture(scope="module")
def trained(copied: Callable[[], Path], synthetic: ModuleType) -> Path:
    """Return a store in which `dense` has a card, a checkpoint, and gate decisions."""
    store = Store(copied())
    store.put_cards(
        [
            {
                "id": "dense",
                "version": 2,
                "kind": "retriever",
                "summary": "<b>towers</b>",
                "training_data": ["nq:train"],
                "paper": "Somebody 2020 (arXiv:2004.04906)",
                "presets": {"small": {"size": 2}},
            }
        ],
        [],
    )
    model = store.folder.parent / "model"
    model.mkdir()
    (model / "curve.jsonl").write_text("{}")
    made = checkpoints.describe(model, method="dense", stage="towers", parents=["ab" * 32])
    checkpoints.register(store, made.path)
    runs = {run.method: run for run in queries.runs(store, synthetic.EXPERIMENT)}
    gate_history.record(store, ask(store, runs["bm25"], runs["dense"], metrics=[F1], margin=0.05))
    return store.folder


def _rounded(estimate: Estimate) -> Estimate:
    """Round values, because matrix products of other shapes may differ in the last digit."""
    return replace(estimate, **{name: float(f"{getattr(estimate, name):.12g}") for name in ("value", "low", "high")})


@pytest.mark.slow
def test_values_on_the_method_page_equal_the_boards(filled: Path, synthetic: ModuleType) -> None:
    store = Store(filled)
    results = provenance.results_of(store, provenance.runs_of(store, "bm25"), [F1, "perplexity#v1"])
    assert {result.run.setting for result in results} == {"distractor", "corpus"}
    expected = {row.run.run: row for name in (synthetic.EXPERIMENT, "open corpus") for table in boards(store, name) for row in table.rows}
    for result in results:
        for metric, item in result.values.items():
            assert _rounded(item) == _rounded(expected[result.run.run].cells[metric].estimate)
        assert result.cost == expected[result.run.run].cost


@pytest.mark.slow
def test_intervals_on_the_method_page_equal_the_boards(tmp_path: Path, large: ModuleType) -> None:
    store = large.fill_large(tmp_path / "store", methods=2, datasets=3, questions=40)
    results = provenance.results_of(store, provenance.runs_of(store, "method-001"), [large.METRIC])
    expected = {row.run.run: row for table in boards(store, large.EXPERIMENT) for row in table.rows}
    assert len({result.run.dataset_fingerprint for result in results}) == 3
    for result in results:
        assert _rounded(result.values[large.METRIC]) == _rounded(expected[result.run.run].cells[large.METRIC].estimate)
    assert len({item.values[large.METRIC].value for item in results}) > 1


def test_stage_seconds_sum_to_the_question_time(filled: Path) -> None:
    store = Store(filled)
    for result in provenance.results_of(store, provenance.runs_of(store, "full_context"), []):
        assert sum(result.stages.values()) == pytest.approx(2.9)
        assert list(result.stages) == ["read", "retrieve"]
        assert result.cost is not None
        assert result.cost.seconds == pytest.approx(2.9)


def test_page_shows_card_results_checkpoints_and_decisions(app: Start, trained: Path) -> None:
    page = app(trained).open("methods", method="dense")
    assert not page.test.exception
    card = page.part("card")
    assert "<b>towers</b>" in words(card)
    assert "nq:train" in words(card)
    assert [a.attributes["href"] for a in card.find(tag="a")] == ["https://arxiv.org/abs/2004.04906"]
    (item,) = checkpoints.checkpoints(Store(trained))
    assert item.sha256[:12] in words(page.part("checkpoints"))
    assert "abababab" in words(page.part("checkpoints"))
    decided = gate_history.history(Store(trained))[0]
    response = words(page.part("timeline"))
    assert decided.outcome in response
    assert PERCENT.difference(decided.value) in response
    tips = [node.tip for node in page.part("timeline").find(cls="badge")]
    assert any(f"baseline {decided.baseline[:8]}, tolerated loss 5.0" in tip for tip in tips)


def test_every_stored_method_can_be_chosen_and_shows_its_runs(app: Start, filled: Path) -> None:
    for method in provenance.method_ids(Store(filled)):
        page = app(filled).open("methods", method=method)
        assert not page.test.exception, method
        lines = list(next(page.part("results").find(tag="tbody")).find(tag="tr"))
        assert len(lines) == len(provenance.runs_of(Store(filled), method))


def test_unknown_method_falls_back_to_the_default(app: Start, filled: Path) -> None:
    usual = app(filled).open("methods")
    page = app(filled).open("methods", method="../../etc/passwd", family="<script>")
    assert not page.test.exception
    assert page.part("results") == usual.part("results")


def test_differing_options_are_listed_per_run(filled: Path, synthetic: ModuleType) -> None:
    item, two = queries.runs(Store(filled), synthetic.EXPERIMENT)[:2]
    tree = method_view.options([item, two])
    assert tree is not None
    responses = [words(line) for line in next(tree.find(tag="tbody")).find(tag="tr")]
    assert responses == ["id bm25 bm25", "id dense dense"]


@pytest.mark.parametrize(
    "paper",
    [
        "javascript:alert(1)",
        "arXiv:javascript",
        "arXiv:1.2.3/../x y",
        "Somebody 2020, pages 2004.04906",
        "2004.049061",
        "https://evilarxiv.org/abs/2004.04906",
        "https://arxiv.org.evil.example/abs/2004.04906",
        "arXiv:2004.04906.7",
        "https://example.org/paper",
        "",
    ],
)
def test_paper_without_an_arxiv_id_is_not_linked(paper: str) -> None:
    tree = method_view.card("m", {"summary": "s", "paper": paper})
    assert not list(tree.find(tag="a"))
    assert (paper or "none given") in words(tree)


@pytest.mark.parametrize(
    ("paper", "number"),
    [
        ("Somebody 2020 (arXiv:2004.04906)", "2004.04906"),
        ("Somebody 2025 (arXiv 2511.18659)", "2511.18659"),
        ("arXiv:2004.04906.", "2004.04906"),
        ("2004.04906", "2004.04906"),
        ("arXiv:2004.04906v2", "2004.04906v2"),
        ("https://arxiv.org/abs/2004.04906", "2004.04906"),
        ("http://www.arxiv.org/pdf/2004.04906v3.pdf", "2004.04906v3"),
        ("arxiv.org/abs/cs/0112017", "cs/0112017"),
        ("doi:10.48550/arXiv.2004.04906", "2004.04906"),
    ],
)
def test_paper_with_an_arxiv_id_is_linked(paper: str, number: str) -> None:
    tree = method_view.card("m", {"summary": "s", "paper": paper})
    (a,) = tree.find(tag="a")
    assert (words(a), a.attributes["href"]) == (paper, f"https://arxiv.org/abs/{number}")


@pytest.fixture(scope="module")
def sent(copied: Callable[[], Path], synthetic: ModuleType) -> Path:
    """Return a store with a submitted method: one version on two settings, and another one with a hostile URL."""
    store, world = Store(copied()), synthetic.benchmark(40)
    results = {
        "code": "no_evidence",
        "severity": "warning",
        "what": "no row has <b>evidence</b>",
        "try": "send some",
        "count": 3,
        "places": [{"line": 4, "detail": "row 'x'"}],
    }
    for number, (version, setting, url) in enumerate(
        (("1", "distractor", "https://example.org/x"), ("1", "corpus", "https://example.org/x"), ("2", "distractor", "javascript:alert(1)"))
    ):
        card = {
            "format": 1,
            "benchmark": "madeup:test",
            "hardware": "two cards",
            "contact": "ann@example.org",
            "method": {
                "name": "Sent",
                "version": version,
                "description": "First.\n\nSecond <i>part</i>.",
                "authors": ["Ann", "Bob"],
                "url": url,
                "paper": "arXiv:2004.04906",
                "license": "MIT",
                "parameters": 25_400_000,
                "open_weights": True,
            },
            "training_data": [
                {"reference": "nq:train", "name": "", "url": None, "note": "dev left out", "seeds": "", "question_ids": ["q1", "q2"]}
            ],
            "submission": {"card_digest": "ab" * 8, "contamination": [], "findings": [results] if setting == "distractor" else []},
        }
        store.start(Run(f"{number:016x}", f"Sent@{version}", "submitted:sent", "method", {}, str(world.reference),
                        world.fingerprint, setting, 0, 40, {}, {}, "submitted", card))  # fmt: skip
    return store.folder


def facts_of(card: Node) -> dict[str, str]:
    """Return the card's table without folded rows."""
    table = next(node for node in card.children if isinstance(node, Node) and node.attributes.get("label") == "Facts")
    return {words(next(row.find(tag="th"))): words(next(row.find(tag="td"))) for row in table.find(tag="tr")}


def test_submitted_card_is_shown_as_text(app: Start, sent: Path) -> None:
    page = app(sent).open("methods", method="submitted:sent")
    assert not page.test.exception
    newest, older = list(page.part("card").find(tag="section"))
    assert facts_of(older) == {
        "Name": "Sent, version 1",
        "Sent in by": "Ann, Bob",
        "Contact": "ann@example.org",
        "URL": "https://example.org/x",
        "Paper": "arXiv:2004.04906",
        "Parameters": "25.4 M, open weights",
        "License": "MIT",
        "Trained on": "nq:train",
        "Found by the check": "no row has <b>evidence</b>",
    }
    assert [words(part) for part in older.find(tag="p")][1:] == ["First.", "Second <i>part</i>."]
    links = [a.attributes["href"] for a in older.find(tag="a")]
    assert links == ["https://example.org/x", "https://arxiv.org/abs/2004.04906"]
    # Values that are not web addresses are text.
    assert facts_of(newest)["URL"] == "javascript:alert(1)"
    assert [a.attributes["href"] for a in newest.find(tag="a")] == ["https://arxiv.org/abs/2004.04906"]


def test_whole_card_is_folded(sent: Path) -> None:
    runs = provenance.runs_of(Store(sent), "submitted:sent")
    newest, older = list(method_view.submitted_cards("submitted:sent", runs).find(tag="section"))
    (fold,) = newest.find(tag="details")
    keys = {words(next(row.find(tag="th"))): words(next(row.find(tag="td"))) for row in fold.find(tag="tr")}
    assert keys["hardware"] == "two cards"
    assert keys["training_data[0].question_ids"] == '["q1", "q2"]'
    assert keys["submission.findings[0].places[0].detail"] == "row 'x'"
    assert len(list(older.find(tag="details"))) == 2


def test_empty_card_shows_that_nothing_is_declared(sent: Path) -> None:
    run = provenance.runs_of(Store(sent), "submitted:sent")[0]
    bare = replace(run, card={"method": {"name": "Sent"}, "training_data": []})
    (item,) = method_view.submitted_cards("submitted:sent", [bare]).find(tag="section")
    assert facts_of(item) == {
        "Name": "Sent",
        "Sent in by": "not stated",
        "Paper": "none given",
        "Parameters": "not stated",
        "Trained on": "none declared",
        "Found by the check": "nothing",
    }


def test_training_data_refers_to_the_checkpoints_if_there_are_any() -> None:
    responses = [
        words(method_view.card("m", {"training_data": data}, checkpoints=some))
        for data, some in ((["nq:train"], True), ([], True), ([], False))
    ]
    assert "nq:train" in responses[0]
    assert "see the checkpoints below" in responses[1]
    assert "none declared" in responses[2]


@pytest.mark.parametrize("empty", [True, False])
def test_empty_store_shows_the_next_step(app: Start, tmp_path: Path, empty: bool) -> None:
    if empty:
        Store(tmp_path).put_cards([], [])
    page = app(tmp_path).open("methods")
    assert not page.test.exception
    assert "ragmeter demo" in words(page.part("message"))

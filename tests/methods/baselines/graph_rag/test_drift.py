"""DRIFT search: its loop compared with outputs of the released loop, unreadable replies, and its plan."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import FAILED, Services, Usage
from methods.baselines.graph_rag.drift import DriftConfig, GraphRagDrift, _work, in_folds
from methods.baselines.graph_rag.graphrag import GraphRagIndex, Report, Reported
from methods.flow import run
from methods.graphs.communities import Community
from methods.graphs.extraction import ChunkRead
from methods.graphs.knowledge_graph import EntityRecord
from methods.models.chat import Reply
from methods.work import Lengths

PRIMED = {
    "r0": {"intermediate_answer": "first", "score": 40, "follow_up_queries": ["A", "B"]},
    "r1": {"intermediate_answer": "second", "score": 60, "follow_up_queries": ["A", "root", "C"]},
}
LOCAL: dict[str, list[Any]] = {
    "A": [("answer A", 50, ["D", "B"])],
    "B": [("", 20, ["E"])],
    "C": [None, ("answer C", 70, [])],
    "D": [("answer D", 10, ["F"])],
    "E": [("answer E", 90, ["A", "G"])],
    "F": [("answer F", 5, [])],
    "G": [("answer G", 5, [])],
}
TEXTS = {"p0": "Ada kept the Tower.", "p1": "Rex kept the Mill."}


class Flat:
    """Encoder that gives all texts the same vector."""

    device = "cpu"

    def passages(self, texts: Any) -> np.ndarray:
        return np.full((len(texts), 2), 0.5**0.5, np.float32)

    queries = passages


class Answers:
    """Model that answers by the step and the question, and records its requests."""

    in_flight = 1

    def __init__(self, primed: Any = PRIMED, local: Any = LOCAL) -> None:
        self.primed, self.local = primed, local
        self.asked: list[tuple[str, str]] = []

    async def ask(self, messages: Any, step: str, repetition: int = 0, **_: Any) -> Reply:
        text = messages[-1]["content"]
        question = text.split("\nQuestion: ")[-1].split("\n")[0]
        self.asked.append((step, question if step == "local" else text))
        if step == "primer":
            held = next(key for key in ("r0", "r1") if f"# {key}\n" in text)
            reply = self.primed.get(held)
            return Reply("", "no reply") if reply is None else Reply(json.dumps(reply), prompt_tokens=1)
        if step == "local":
            one = self.local[question][min(repetition, len(self.local[question]) - 1)]
            value = dict(zip(("response", "score", "follow_up_queries"), one, strict=True)) if one else None
            return Reply(json.dumps(value) if value else "not JSON")
        return Reply("The answer.")


def system(model: Answers, seed: int = 0, **options: Any) -> GraphRagDrift:
    config = DriftConfig(extractor="noun_phrases", folds=2, llm={"model": "m"}, **options)
    corpus = Corpus.of([Passage(name, "", text) for name, text in TEXTS.items()])
    reads = [ChunkRead((EntityRecord(name, "T", "."),), ()) for name in ("TOWER", "MILL")]
    made = GraphRagDrift.__new__(GraphRagDrift)
    made.config, made._model, made._services = config, model, Services(device="cpu", seed=seed)  # type: ignore[assignment]
    made._index = GraphRagIndex(config, corpus, Flat(), reads, Usage(), lambda *_: None)  # type: ignore[arg-type]
    reported = Reported(tuple(Community(n, 0, None, (n,)) for n in (0, 1)), {n: Report(title=f"r{n}", summary="s") for n in (0, 1)})

    async def prepared(group: Any) -> Reported:
        return reported

    made._index.prepared = prepared  # type: ignore[method-assign]
    return made


QUERY = Query("q", "root")


# Drawn questions, and the answers in order, of DRIFTSearch.search of microsoft/graphrag 3.1 with these replies and draws.
@pytest.mark.parametrize(
    ("seed", "questions", "depth", "steps", "answers"),
    [(0, 2, 3, "CA DB CE", "ACDE"), (1, 2, 3, "CB EA GC", "ACEG"), (0, 20, 3, "CAB ECD FG", "ACDEGF"), (3, 1, 2, "C C", "C")],
)
def test_steps_and_answers_are_those_of_the_released_loop(seed: int, questions: int, depth: int, steps: str, answers: str) -> None:
    model = Answers()
    prediction = run(system(model, seed, questions=questions, depth=depth).answer_one(QUERY))
    assert [question for step, question in model.asked if step == "local"] == list(steps.replace(" ", ""))
    shown = model.asked[-1][1].split("\n\n")
    assert shown[2:-1] == ["second", *(f"answer {name}" for name in answers)]
    assert prediction.notes["graphrag_drift"]["answers"] == 1 + len(answers)


@pytest.mark.parametrize(("reports", "folds"), [(20, 5), (7, 3), (2, 5), (4, 1), (0, 2)])
def test_folds_contain_each_report_once_in_order_and_differ_in_size_by_at_most_one(reports: int, folds: int) -> None:
    parts: list[Any] = in_folds(list(range(reports)), folds)  # type: ignore[arg-type]
    assert [report for part in parts for report in part] == list(range(reports))
    assert len(parts) == min(reports, folds)
    assert not parts or max(map(len, parts)) - min(map(len, parts)) <= 1


def test_evidence_begins_with_the_passages_of_the_best_scored_step() -> None:
    made = system(Answers(), questions=20)
    rank = {"E": ("p1", "p0"), "A": ("p0", "p1")}

    def ranked(query: Query, k: int) -> Any:
        return SimpleNamespace(ids=rank.get(query.text, ("p0",)), notes={"graphrag": {"entities": [0]}})

    made._index.ranked = ranked  # type: ignore[union-attr, method-assign, assignment]
    prediction = run(made.answer_one(QUERY))
    assert [evidence.id for evidence in prediction.evidence] == ["p1", "p0"]


def test_question_is_the_search_query_if_no_fold_is_answered() -> None:
    model = Answers(primed={}, local={"root": [("answer", 1, [])]})
    prediction = run(system(model).answer_one(QUERY))
    note = prediction.notes["graphrag_drift"]
    assert [question for step, question in model.asked if step == "local"] == ["root"]
    assert (note["fallbacks"], note["answers"]) == ({"fold without an answer": 2}, 1)
    assert FAILED not in prediction.notes


def test_question_fails_if_no_call_gives_an_answer() -> None:
    prediction = run(system(Answers(primed={}, local={"root": [None]}), depth=2).answer_one(QUERY))
    assert prediction.notes[FAILED] == "no reply"
    assert prediction.answer == ""
    unreadable = run(system(Answers(primed={key: [] for key in PRIMED}, local={"root": [None]}), depth=2).answer_one(QUERY))
    assert FAILED not in unreadable.notes
    assert unreadable.notes["graphrag_drift"]["questions without a readable answer"] == 1


def test_plan_counts_each_call_that_a_question_may_take() -> None:
    lengths = Lengths("d", 10, samples=(), corpus=1000, passage=100.0, own=1000)
    plans = [_work(DriftConfig(llm={"model": "m"}, folds=4, questions=7, depth=depth), lengths) for depth in (0, 2)]
    assert plans[1].count("calls") - plans[0].count("calls") == 10 * 2 * 7


def test_published_prompts_use_the_placeholders_of_ours(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    if not (data_folder / "prompts" / "graphrag").is_dir():
        pytest.skip("no prompts/graphrag among the real samples")
    ours, theirs = (DriftConfig(llm={"model": "m"}, prompts=prompts) for prompts in (None, "published"))
    for name in ("drift_primer", "drift_local", "drift_reduce"):
        assert theirs.template(name).hash != ours.template(name).hash
        assert theirs.template(name).placeholders == ours.template(name).placeholders
    assert theirs.template("drift_hypothesis").hash == ours.template("drift_hypothesis").hash

"""Commands that name metrics and judges know those of a plug-in file with --plugin."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.registry import DATASETS
from judges.judge import JUDGES
from judges.metric import METRICS
from methods.registry import METHODS

MODULE = """print("a line that every import prints")
import numpy as np
from judges.judge import JudgeConfig, Measure, Score, register_judge
from judges.llm.rules import Ruled, ruled
from judges.metric import register


@register("acme_words", source="ours", group="answer", needs=("answer",), high=None, unit="number")
def words(batch):
    \"\"\"Number of words in the answer.\"\"\"
    return np.array([len(answer.split()) for answer in batch.answers], dtype=float)


@register_judge(
    "acme_given", kind="point", summary="is there an answer?", source="ours", needs=("answer",), config=JudgeConfig,
    measures=(Measure("given", "Share of answers that are not empty.", ranks=False),),
)
class Given(Ruled):
    \"\"\"An answer with any text counts.\"\"\"

    def ask(self, items):
        return [[ruled("given", verdict=bool(item.prediction.answer))] for item in items]

    def score(self, item, calls):
        return {"given": Score(float(calls[0].parsed.value["verdict"]))}
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "acme_parts.py"
    file.write_text(MODULE)
    yield str(file)
    sys.modules.pop("acme_parts", None)
    for registry, name in ((METRICS, "acme_words"), (JUDGES, "acme_given")):
        registry._entries.pop(name, None)
        registry._sources.pop(name, None)


def test_metric_and_judge_of_a_file_are_listed_and_score_stored_answers(ragmeter: Callable[..., Any], plugin: str, tmp_path: Path) -> None:
    for command in (("list", "metrics", "acme_words"), ("list", "judges", "acme_given"), ("judge", "run", "acme_given")):
        unknown = ragmeter(*command)
        assert (unknown.code, "--plugin FILE" in " ".join(unknown.err.split())) == (2, True)
    for kind, name in (("metrics", "acme_words"), ("judges", "acme_given")):
        shown = ragmeter("list", kind, name, "--plugin", plugin, "--json")
        assert (shown.code, json.loads(shown.out)["id"]) == (0, name)
    data = "benchmarks: [{id: worlds/multihop, split: test, setting: distractor, limit: 4}]"
    (tmp_path / "x.yaml").write_text(f"name: x\nmetrics: [f1]\n{data}\nmethods: [{{id: gold_answer}}]\n")
    assert ragmeter("run", str(tmp_path / "x.yaml"), "-q").code == 0
    judged = ragmeter("judge", "run", "acme_given", "--plugin", plugin, "--json")
    assert (judged.code, [row["value"] for row in json.loads(judged.out)]) == (0, [1.0])
    scored = ragmeter("judge", "score", "--metric", "acme_words", "--plugin", plugin, "--json")
    assert scored.code == 0, scored.err
    (row,) = json.loads(scored.out)
    assert row["n"] == 4
    assert row["value"] >= 1


METHODS_MODULE = """from methods.api import Evidence, Prediction
from methods.registry import register


def define(name, result):
    @register(name, kind="method", summary=name, version=1)
    class Mine:
        def __init__(self, config, services): ...

        def index(self, corpus):
            self.ids = corpus.ids

        def answer(self, queries):
            for query in queries:
                print("a line per question")
                yield result(query.id, self.ids)


define("acme_right", lambda name, ids: Prediction(name, "x", (Evidence(ids[0], 1.0),)))
define("acme_text", lambda name, ids: "Lyon")
define("acme_none", lambda name, ids: Prediction(name, None))
define("acme_ids", lambda name, ids: Prediction(name, "x", tuple(ids[:2])))
define("acme_number", lambda name, ids: Prediction(name, "x", (Evidence(3, 1.0),)))
define("acme_score", lambda name, ids: Prediction(name, "x", (Evidence(ids[0], None),)))
define("acme_evidence", lambda name, ids: Prediction(name, "x", None))
define("acme_usage", lambda name, ids: Prediction(name, "x", (), None))
"""


def test_results_of_wrong_types_break_the_contract_and_prints_do_not_reach_json(
    ragmeter: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "acme_methods.py").write_text(METHODS_MODULE)
    names = [f"acme_{name}" for name in ("right", "text", "none", "ids", "number", "score", "evidence", "usage")]
    data = "benchmarks: [{id: worlds/multihop, split: test, setting: distractor, limit: 2}]"
    rows = ", ".join(f"{{id: {name}}}" for name in names)
    (tmp_path / "x.yaml").write_text(f"name: x\nplugins: [acme_methods.py]\nmetrics: [f1]\n{data}\nmethods: [{rows}]\n")
    try:
        done = ragmeter("run", str(tmp_path / "x.yaml"), "--json")
    finally:
        sys.modules.pop("acme_methods", None)
        for name in names:
            METHODS._entries.pop(name, None)
            METHODS._sources.pop(name, None)
    assert done.code == 1
    assert "a line per question" in done.err
    assert " ".join(done.err.split()).count("broke the contract") == len(names) - 1
    (board,) = json.loads(done.out)["boards"]
    answered = {row["method"]: row["done"] for row in board["rows"]}
    assert answered == {name: 2 * (name == "acme_right") for name in names}


def test_missing_plugin_file_is_an_error(ragmeter: Callable[..., Any], tmp_path: Path) -> None:
    done = ragmeter("list", "metrics", "--plugin", str(tmp_path / "lost.py"), "--json")
    assert (done.code, json.loads(done.err)["error"]["code"]) == (2, "missing-file")


DATASET_MODULE = """from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DatasetCard, register
from benchmarks.schema import Passage, Question

CARD = DatasetCard(
    title="Desk", task="open-domain QA", description="Questions to a desk.", hub_id=None, revision=None, license="internal",
    citation="none", languages=("en",), splits={"test": None}, metrics=("f1",), settings=("corpus",),
)


@register("acme_desk", card=CARD, version=1, default_split="test")
def load(reference, config):
    passages = [Passage("p1", "Badges", "A lost badge is reported at the lodge."), Passage("p2", "Keys", "Keys are on the second floor.")]
    return Benchmark(reference, 1, CARD, [Question(id="q1", text="Where are keys?", answers=("second floor",), evidence=("p2",))],
                     Corpus.of(passages))
"""


def test_submission_to_a_dataset_of_a_file_is_checked(
    ragmeter: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    file, folder = tmp_path / "acme_desks.py", tmp_path / "mine"
    file.write_text(DATASET_MODULE)
    try:
        done = ragmeter("submit", "template", "acme_desk", "-o", str(folder), "--plugin", str(file))
        assert done.code == 0, done.err
        (folder / "predictions.jsonl").write_text(json.dumps({"question_id": "q1", "answer": "second floor"}) + "\n")
        named = ("--method", "ours", "--benchmark", "acme_desk", "--plugin", str(file), "--json")
        checked = ragmeter("submit", "check", str(folder / "predictions.jsonl"), *named)
        assert json.loads(checked.out or checked.err).get("report", checked.err)["rows"] == 1
    finally:
        sys.modules.pop("acme_desks", None)
        DATASETS._entries.pop("acme_desk", None)
        DATASETS._sources.pop("acme_desk", None)

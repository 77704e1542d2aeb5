"""Python functions as retrievers: what they may return, which passages that means, and what is refused."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query, Turn
from benchmarks.text_index import outside
from methods.api import CAUSE, CODE, FAILED, OUTSIDE, PARTIAL, WAIT, Prediction, Services, outside_of
from methods.pipeline import Composition
from methods.registry import Component
from ragmeter import experiment
from tests.support.errors import raises

LYON = "Lyon is the third-largest city of France, where the Saône flows into the Rhône at the foot of two hills."
PARIS = "Paris has been the capital of France since the tenth century, with one interruption that lasted four years."
SAME = "This sentence stands in two passages of the corpus, whose titles differ."
CORPUS = Corpus.of(
    [
        Passage("p1", "Lyon", LYON, (), "lyon.md"),
        Passage("p2", "Paris", PARIS, (), "7"),
        Passage("p3", "One", SAME, (), "two.md"),
        Passage("p4", "Two", SAME, (), "two.md"),
        Passage("p5", "Motto", "Forward, forward, better!"),
    ]
)
ELSEWHERE = "A text about quite another place, which no passage of this corpus says in any form at all."


def search(question: str, k: int) -> Any:
    """Return what the test wants; replaced per test."""
    raise NotImplementedError


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Build the method for a function, with an index of the corpus."""

    def build(function: Callable[..., Any], corpus: Corpus = CORPUS, parts: dict[str, Any] | None = None, **config: Any) -> Any:
        monkeypatch.setattr(sys.modules[__name__], "search", function)
        component = Component.of("function_retriever", {"call": f"{__name__}:search", **config})
        method = Composition(component, **({"reader": Component.of("retrieval_only")} if parts is None else parts)).build(Services())
        method.index(corpus)
        return method

    return build


@pytest.fixture
def ask(built: Callable[..., Any]) -> Callable[..., Prediction]:
    """Ask one question."""

    def one(function: Callable[..., Any], query: Query | None = None, **how: Any) -> Prediction:
        (prediction,) = built(function, **how).answer([query or Query("q", "Where?")])
        return prediction

    return one


def found(prediction: Prediction) -> list[str]:
    assert FAILED not in prediction.notes, prediction.notes
    return [item.id for item in prediction.evidence]


NODE = SimpleNamespace(node=SimpleNamespace(text=LYON, node_id="n", metadata={}), score=0.5)
RETURNED: dict[str, tuple[Any, list[str]]] = {
    "ids": (["p2", "p1"], ["p2", "p1"]),
    "ids with scores": ([("p2", 2.0), ("p1", np.float32(1))], ["p2", "p1"]),
    "array": (np.array(["p2", "p1"]), ["p2", "p1"]),
    "names of documents": (["lyon.md", 7, np.int64(7)], ["p1", "p2"]),
    "texts": ([PARIS, f"  {LYON.upper()}\n"], ["p2", "p1"]),
    "texts with titles": ([f"Paris\n{PARIS}", "forward forward better"], ["p2", "p5"]),
    "titles": (["Two", {"title": "motto"}], ["p4", "p5"]),
    "short part": (["of two hills", {"text": "France since the tenth century"}], ["p1", "p2"]),
    "part": ([{"text": "the third-largest city of France, where the Saône flows into the Rhône", "id": "c1"}], ["p1"]),
    "longer text": ([f"{PARIS} Then follows what no passage says. {LYON}"], ["p2", "p1"]),
    "one text at two ids": ([SAME], ["p3", "p4"]),
    "one text with its title": ([{"title": "Two", "text": SAME}], ["p4"]),
    "text before another index's id": ([{"id": "7", "text": LYON}], ["p1"]),
    "text of a long document": ([{"id": "two.md", "text": PARIS}], ["p2"]),
    "dictionaries": ([{"id": 7, "score": 1}, {"_id": "p1", "score": 1}], ["p2", "p1"]),
    "LangChain": ([SimpleNamespace(page_content=LYON, id=None, metadata={"source": "x"})], ["p1"]),
    "LangChain with scores": ([(SimpleNamespace(page_content=LYON, metadata={"id": "p2"}), 0.3)], ["p2"]),
    "LlamaIndex": ([NODE], ["p1"]),
    "Haystack": ([SimpleNamespace(content=PARIS, id="9f", meta={}, score=None)], ["p2"]),
    "passages": ([CORPUS[1], CORPUS[0]], ["p2", "p1"]),
    "repeated": (["p2", "p1", "p2", PARIS], ["p2", "p1"]),
    "generator": ((name for name in ("p2", "p1")), ["p2", "p1"]),
    "empty": ([], []),
}


@pytest.mark.parametrize("name", RETURNED)
def test_results_in_common_forms_are_passages_of_the_corpus(name: str, ask: Callable[..., Prediction]) -> None:
    returned, expected = RETURNED[name]
    prediction = ask(lambda question, k: returned)
    assert found(prediction) == expected
    assert OUTSIDE not in prediction.notes
    assert prediction.notes.get(PARTIAL, 0) == {"part": 1, "longer text": 2, "short part": 2}.get(name, 0)


def test_functions_may_wait_and_yield(ask: Callable[..., Prediction]) -> None:
    async def awaited(question: str, k: int) -> list[str]:
        await asyncio.sleep(0)
        return ["p2", "p1"]

    async def yielded(question: str, *, k: int) -> Any:
        for name in ("p2", "p1"):
            await asyncio.sleep(0)
            yield name

    def lazily(question: str, top: int) -> Iterator[str]:
        yield from ("p2", "p1")

    assert [found(ask(function)) for function in (awaited, yielded, lazily)] == [["p2", "p1"]] * 3


def test_ranking_has_at_most_k_results_and_keeps_the_order_of_ties(ask: Callable[..., Prediction]) -> None:
    parts = {"reader": Component.of("retrieval_only"), "k": 2, "depth": 2}
    seen = []

    def many(question: str, k: int) -> list[tuple[str, float]]:
        seen.append(k)
        return [("p4", 1.0), ("p2", 1.0), ("p1", 1.0)]

    assert found(ask(many, parts=parts)) == ["p4", "p2"]
    assert found(ask(lambda question, k: [SAME, "p1"], parts=parts)) == ["p3", "p4"]
    assert seen == [2]


def test_scores_are_kept_and_distances_are_negated(ask: Callable[..., Prediction]) -> None:
    def scores(returned: Any, **config: Any) -> list[float]:
        return [item.score for item in ask(lambda question, k: returned, **config).evidence]

    assert scores([("p2", 0.5), ("p1", -1)]) == [0.5, -1]
    assert scores([("p2", 0.5), ("p1", 2)], lower_is_better=True) == [-0.5, -2]
    assert scores(["p2", "p1"]) == [1, 0.5]


def raising(question: str, k: int) -> Any:
    raise KeyError("no index")


WRONG: dict[str, Any] = {
    "nothing": None,
    "text": "p1",
    "dictionary of scores": {"p1": 0.5},
    "set": {"p1"},
    "number": 3,
    "two lists": (["p1"], [0.5]),
    "float id": [1.5],
    "truth value": [True],
    "pair of texts": [("p1", LYON)],
    "triple": [("p1", LYON, 0.5)],
    "object without text": [SimpleNamespace(name="p1")],
    "empty object": [{}],
    "NaN": [("p1", float("nan"))],
    "infinite": [("p1", float("inf"))],
    "score as text": [{"id": "p1", "score": "high"}],
    "some scores": [("p1", 0.5), "p2"],
    "rising scores": [("p1", 0.5), ("p2", 0.7)],
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_results_fail_the_question_as_an_error_of_the_users_code(name: str, ask: Callable[..., Prediction]) -> None:
    prediction = ask(lambda question, k: WRONG[name])
    assert "the function returned" in prediction.notes[FAILED]
    assert (prediction.notes[CAUSE], prediction.evidence) == (CODE, ())


def test_exceptions_timeouts_and_falling_distances_fail_the_question(ask: Callable[..., Prediction]) -> None:
    assert "no index" in ask(raising).notes[FAILED]
    assert "timed out" in ask(lambda question, k: time.sleep(0.3), timeout_s=0.02).notes[FAILED]
    assert "StopIteration" in ask(lambda question, k: next(iter(()))).notes[FAILED]
    assert "lower_is_better" in ask(lambda question, k: [("p1", 2), ("p2", 1)], lower_is_better=True).notes[FAILED]


@pytest.mark.parametrize("result", ["doc-99", 99, "Saint-Étienne", {"id": "p9"}, "two words"])
def test_unknown_ids_stop_the_run(result: Any, ask: Callable[..., Prediction]) -> None:
    with raises("unknown-passage-id"):
        ask(lambda question, k: ["p1", result])


def test_name_of_a_document_with_several_passages_is_refused(ask: Callable[..., Prediction]) -> None:
    with raises("document-of-several-passages"):
        ask(lambda question, k: ["two.md"])


@pytest.mark.parametrize("result", [ELSEWHERE, {"text": "Somewhere else"}, "two passages of the corpus"])
def test_text_outside_the_corpus_keeps_its_rank_and_is_marked(result: Any, ask: Callable[..., Prediction]) -> None:
    text = result if isinstance(result, str) else result["text"]
    prediction = ask(lambda question, k: ["p2", result, "p1"])
    assert found(prediction) == ["p2", outside(text).id, "p1"]
    assert prediction.notes[OUTSIDE] == {outside(text).id: text}
    assert Prediction.from_json(prediction.to_json()).notes == prediction.notes


def test_every_part_reads_texts_outside_the_corpus(ask: Callable[..., Prediction]) -> None:
    parts = {
        "reader": Component.of("extractive"),
        "rerankers": (Component.of("bm25_reranker"),),
        "compressor": Component.of("whole_passages", {"model": "pocket"}),
        "budget": 200,
    }
    text = "Grenoble, at the foot of the Alps, is the city in which the answer to this question stands."
    prediction = ask(lambda question, k: ["p2", {"text": text}], Query("q", "Which city stands at the foot of the Alps?"), parts=parts)
    assert found(prediction) == [outside(text).id, "p2"]
    assert "Grenoble" in prediction.answer


def test_other_parts_refuse_texts_outside_the_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "search", lambda question, k: [ELSEWHERE])
    both = ["bm25", {"id": "function_retriever", "config": {"call": f"{__name__}:search"}}]
    method = Composition(Component.of("hybrid", {"retrievers": both}), Component.of("retrieval_only")).build(Services())
    method.index(CORPUS)
    with raises("text-outside-corpus"):
        list(method.answer([Query("q", "Where?")]))


def test_notes_of_others_cannot_rename_a_passage() -> None:
    assert outside_of({OUTSIDE: {"p1": "forged", outside("a").id: "a", "x": 3}}) == [outside("a")]
    assert outside_of({OUTSIDE: ["p1"]}) == []


def test_candidates_reach_functions_that_accept_passages(ask: Callable[..., Prediction]) -> None:
    query = Query("q", "Where?", candidates=("p2", "p5"))
    seen = []

    def of_passages(question: str, k: int, passages: Any) -> Any:
        seen.append([passage.id for passage in passages])
        return [passages[1], passages[0].text]

    assert found(ask(of_passages, query)) == ["p5", "p2"]
    assert found(ask(of_passages)) == ["p2", "p1"]
    assert found(ask(of_passages, Query("q", "Where?", document_id="two.md"))) == ["p4", "p3"]
    assert seen == [["p2", "p5"], ["p1", "p2", "p3", "p4", "p5"], ["p3", "p4"]]
    assert "p1" in ask(lambda question, k, passages: ["p1"], query).notes[FAILED]
    with raises("no-place-for-passages"):
        ask(lambda question, k: ["p1"], query)


def test_turns_and_id_reach_functions_that_accept_them(ask: Callable[..., Prediction]) -> None:
    query = Query("p1", "And?", turns=(Turn("user", "p2"),))
    assert found(ask(lambda question, k, turns, id: [id, turns[0]["content"]], query)) == ["p1", "p2"]
    with raises("no-place-for-turns"):
        ask(lambda question, k: [], query)


def test_calls_run_in_parallel_up_to_the_limit(built: Callable[..., Any]) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def slow(question: str, k: int) -> list[str]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
        with lock:
            running -= 1
        return ["p1"]

    method = built(slow, parts={"reader": Component.of("extractive")}, concurrency=3)
    predictions = list(method.answer([Query(f"q{number}", "Where?") for number in range(12)]))
    assert [found(prediction) for prediction in predictions] == [["p1"]] * 12
    assert most == 3
    assert max(prediction.usage.seconds[WAIT] for prediction in predictions) > 0


@pytest.mark.parametrize("function", [lambda question: [], lambda question, passages: [], print])
def test_function_without_a_number_of_results_is_refused(function: Any, built: Callable[..., Any]) -> None:
    if function is print:
        built(function)  # takes any number of arguments
    else:
        with pytest.raises(ValidationError):
            built(function)


def test_code_enters_the_identity(tmp_path: Path) -> None:
    prints = []
    for folder, returned in (("one", "p1"), ("same", "p1"), ("other", "p2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "acme_search.py").write_text(f"def search(question, k):\n    return [{returned!r}]\n")
        file = tmp_path / folder / "e.yaml"
        file.write_text(
            "name: x\nplugins: [acme_search.py]\nbenchmarks: [{id: worlds/multihop, limit: 2, setting: corpus}]\n"
            'methods: [{id: function_retriever, config: {call: "acme_search:search"}}]\n'
        )
        prints.append(experiment.load(str(file)).methods[0].composition.fingerprint)
        del sys.modules["acme_search"]
        sys.path.remove(str(tmp_path / folder))
    assert prints[0] == prints[1] != prints[2]

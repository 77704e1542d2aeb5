"""Each part keeps its contract, and does what it says."""

from ragmeter_example import brief, rivers, title_overlap, two_looks  # registers them, installed or not

from benchmarks.registry import load
from benchmarks.schema import Question
from judges.metric import Batch, parse
from methods.api import Prediction
from methods.registry import Component
from ragmeter.conformance import check_dataset, check_method

MODEL = {"scripted": "worlds/multihop:validation", "options": {"questions": 12}}


def failed(checks):
    return [f"{check.name}: {check.detail}" for check in checks if not check.passed]


def test_retriever_keeps_the_contract():
    assert title_overlap.TitleOverlap
    assert not failed(check_method(Component.of("title_overlap")))


def test_system_keeps_the_contract():
    assert two_looks.two_looks
    assert not failed(check_method(Component.of("two_looks", {"retriever": "bm25", "llm": MODEL})))


def test_dataset_keeps_the_contract():
    assert not failed(check_dataset("rivers", {}))
    assert len(load("rivers").questions) == rivers.CARD.splits["test"]


def test_metric_counts_words():
    texts = ("Rome", "", "one two three")
    questions = [Question(str(number), "Where?", ("Rome",)) for number in range(3)]
    batch = Batch(questions, [Prediction(str(number), text) for number, text in enumerate(texts)])
    assert brief.brief(batch, words=2).tolist() == [1.0, 0.0, 0.0]
    assert str(parse("brief")).startswith("brief(words=5)#v1-")  # the end: the hash of its code

"""Questions about one document reach a server one after another, so that its prefix cache holds the document."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.schema import Question
from ragmeter import experiment
from ragmeter.runner.experiment import How, run_experiment
from ragmeter.runner.loop import adjacent
from results.store import queries
from results.store.store import Store
from tests.support.server import ChatRequest
from tests.support.vllm import BLOCK, VLLM

pytest.importorskip("openai")

QUESTION = re.compile(r"What is (\d) of (\d)\?")
DOCUMENTS, EACH, WORDS = 6, 4, 20 * BLOCK


def write_records(file: Path) -> None:
    """Write questions about several documents in alternation, in LongBench's format."""
    records = [
        {
            "_id": f"q{turn}-{number}",
            "input": f"What is {turn} of {number}?",
            "context": " ".join(f"word{number}x{place}" for place in range(WORDS)),
            "answers": [f"a{turn}-{number}"],
            "length": WORDS,
            "dataset": "qasper",
            "language": "en",
            "all_classes": None,
        }
        for turn, number in itertools.product(range(EACH), range(DOCUMENTS))
    ]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def answer(request: ChatRequest) -> str:
    question = QUESTION.search(request.prompt)
    return f"a{question[1]}-{question[2]}" if question else "ok"  # the first call only checks the endpoint


def documents_of(server: VLLM) -> list[str]:
    """Return the document of each question, in the order of arrival."""
    return [question[2] for request in server.requests if (question := QUESTION.search(request.prompt))]


def test_questions_about_a_document_are_grouped_without_changing_rows(tmp_path: Path) -> None:
    write_records(tmp_path / "records.jsonl")
    # Room for two documents: between two questions over one, in the file's order, there are five others.
    server = VLLM(answer=answer, blocks=2 * (WORDS // BLOCK + 8))
    with server.running() as url:
        text = (
            "name: served\nmetrics: [em]\n"
            f"benchmarks: [{{id: longbench/qasper, setting: document, config: {{path: '{tmp_path / 'records.jsonl'}'}}}}]\n"
            "methods: [{id: full_context, reader: {id: chat, config: {llm: "
            f"{{model: m, base_url: '{url}', key_variable: null, concurrency: 1}}}}}}}}]\n"
        )
        store = Store(tmp_path / "store")
        run_experiment(experiment.parse(text, "x.yaml"), store, How(), talk=False)
        (run,) = queries.runs(store, "served")
        predictions = {prediction.question_id: prediction for prediction in store.predictions(run.run)}
    assert {identifier: p.answer for identifier, p in predictions.items()} == {
        f"q{turn}-{number}": f"a{turn}-{number}" for turn in range(EACH) for number in range(DOCUMENTS)
    }
    assert [name for name, _ in itertools.groupby(documents_of(server))] == [str(number) for number in range(DOCUMENTS)]
    assert sum(cached >= WORDS for cached in server.cached) == DOCUMENTS * (EACH - 1)


def test_dataset_order_is_kept_within_groups_and_for_single_questions() -> None:
    of = [("a", None), (None, ("p", "q")), (None, None), ("a", None), (None, ("r",)), (None, ("p", "q")), (None, None)]
    questions = [replace(Question(f"q{n}", "?", ("x",)), document_id=d, candidates=c) for n, (d, c) in enumerate(of)]
    assert [question.id for question in adjacent(questions)] == ["q0", "q3", "q1", "q5", "q2", "q6", "q4"]

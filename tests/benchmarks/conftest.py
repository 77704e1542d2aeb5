"""Fixtures for a loopback hub, and a small benchmark of given texts."""

from dataclasses import replace

import pytest

from benchmarks.corpus import Corpus
from benchmarks.io import hub_faults
from benchmarks.registry import load
from benchmarks.schema import Passage, Question, passage_id
from tests.support.hub_server import HubServer


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """Retry failed hub requests without waiting."""
    monkeypatch.setattr(hub_faults, "WAIT_S", 0.0)


@pytest.fixture
def server(repository, tmp_path):
    """Serve the test file's `repository` as `owner/set`."""
    server = HubServer({"owner/set": repository})
    with server.as_hub(tmp_path / "home"):
        yield server


@pytest.fixture
def benchmark_of():
    """Return a function that builds a benchmark of questions from text, answers and one passage."""
    benchmark = load("worlds/multihop:test", {"questions": 1})

    def make(*rows):
        passages = [Passage(passage_id("", text), "", text) for _, _, text in rows]
        questions = [
            Question(f"q{number}", text, answers, evidence=(passage.id,))
            for number, ((text, answers, _), passage) in enumerate(zip(rows, passages, strict=True))
        ]
        return replace(benchmark, questions=questions, corpus=Corpus.of(passages))

    return make

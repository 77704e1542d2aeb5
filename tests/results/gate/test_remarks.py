"""Remarks of a gate about its two sides: submissions that boards hide or mark."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Question
from judges.metric import parse
from methods.api import Prediction
from results.gate.decision import ask
from results.store import queries
from results.store.store import FINISHED, Run, Store
from tests.support.toy import CARD

F1 = "f1(rules=squad)#v2"
SIGNS = ["9 answers are right without evidence", "all evidence is gold"]


def put(store: Store, benchmark: Benchmark, name: str, **more: Any) -> queries.RunRow:
    fields = (name, name, name, "method", {"method": {"id": name}}, str(benchmark.reference), benchmark.fingerprint, "distractor", 0)
    run = Run(*fields, len(benchmark.questions), {}, **more)
    store.start(run)
    ids = [question.id for question in benchmark.questions]
    store.append(run.run, [Prediction(identifier, name) for identifier in ids], {F1: np.arange(len(ids)) % 2})
    store.end(run.run, FINISHED)
    return queries.find_run(store, run.run)


def review(*statuses: str) -> list[dict[str, str]]:
    return [{"status": status, "reason": "the owner asked", "by": "owner", "at": "2026-01-01T00:00:00"} for status in statuses]


CARDS = {
    "implausible": ("submitted", {"implausible": SIGNS}, ["no maintainer has accepted", *SIGNS]),
    "accepted": ("verified", {"implausible": SIGNS, "review": review("accepted")}, ["which a maintainer accepted", *SIGNS]),
    "held": ("held", {"review": review("held")}, ["is held", "the owner asked"]),
    "withdrawn": ("withdrawn", {"review": review("accepted", "withdrawn")}, ["is withdrawn", "the owner asked"]),
    "held without a decision": ("held", {}, ["is held"]),
    "plain": ("submitted", {}, []),
}


@pytest.mark.parametrize("name", CARDS)
@pytest.mark.parametrize("role", ["baseline", "candidate"])
def test_gate_states_that_a_side_is_hidden_or_implausible(store: Store, name: str, role: str) -> None:
    origin, record, expected = CARDS[name]
    questions = [Question(f"q{n}", f"what {n}?", ("a",)) for n in range(40)]
    benchmark = Benchmark(DataReference("toy", None, "dev"), 1, CARD, questions, Corpus.of([]))
    store.put_benchmark(benchmark, benchmark.fingerprint)
    store.put_cards([], [parse("f1")])
    sent = put(store, benchmark, "sent", origin=origin, card={"submission": record})
    ours = put(store, benchmark, "ours")
    sides = (sent, ours) if role == "baseline" else (ours, sent)
    lines = [line for line in ask(store, *sides, metrics=["f1"], margin=0.01).remarks if "submission" in line]
    assert len(lines) == bool(expected)
    for line in lines:
        assert line.startswith(f"the {role} is a submission")
        assert [part for part in expected if part not in line] == []

"""Faults of an endpoint × roles × shares, in virtual time: does anything cost more than it must, and is any number another one?

Each cell answers the same questions with a role of its own, once at a healthy endpoint and once where this share of calls
meets one kind of fault. `ideal` is the time that all tries occupied a slot, divided by the slots, plus the longest chain of
dependent calls with the pauses that the endpoint asked for.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from benchmarks import registry
from benchmarks.schema import Question
from judges.judge import Item, JudgeCall, Pair
from methods.api import ENDPOINTS, FAILED, Prediction, Services
from methods.flow import in_flight, one
from methods.models.chat import ChatModel
from methods.models.chat_config import ChatConfig
from methods.pipeline import Composition
from methods.registry import Component
from perf.measuring import record
from ragmeter.runner import judging
from ragmeter.runner.rewriting import judge_of
from tests.support.virtual import FAULTS, LASTING, TIMEOUT_S, Weather, virtual

ROLES = ("reader", "program", "reranker", "pairwise judge", "verdict judge")
SHARES = (0.001, 0.01, 0.05)
SLOTS = 32
QUESTIONS, MANY = 200, 2000
TARGET = 1.1
BUSY = ("429", "429_after", "429_after_ms", "503", "503_after")
ASSERTED_BUSY_SHARE = 0.02
"""Above this share of refusals only the calls in flight are asserted: then the limit is meant to fall."""


def latency(prompt: str) -> float:
    """Return the simulated latency of a prompt: half a second, and two seconds for one prompt in twenty."""
    return 2.0 if hashlib.blake2b(prompt.encode(), digest_size=1).digest()[0] % 20 == 0 else 0.5


def answer(prompt: str) -> str:
    """Return a reply that every role can parse and that depends on the prompt."""
    number = int.from_bytes(hashlib.blake2b(prompt.encode(), digest_size=2).digest(), "big")
    folded = prompt.casefold()
    if "conciseness" in folded:
        verdict = ("Answer 1", "Answer 2", "Tie")[number % 3]
        return f'{{"reasoning": "", "faithfulness": "{verdict}", "conciseness": "Tie", "overall": "{verdict}"}}'
    if "mismatch:" in folded:
        return ("Match", "Mismatch", "Partial")[number % 3]
    if ranked := re.search(r"(\d+) passages", folded):
        count = int(ranked[1])
        return " > ".join(f"[{1 + (number + place) % count}]" for place in range(count))
    return f"So the answer is: Ann {number}." if number % 4 == 0 else f"The river rose in {number}."


@dataclass(frozen=True)
class Answered:
    """Result of one question at a faulty endpoint.

    Attributes:
        result: The values to compare with the fault-free run.
        message: Message that explains a difference.
        unread: Whether a reply could not be parsed, which makes the comparison meaningless.
    """

    result: Any
    message: Any
    unread: bool


def _predicted(composed: Callable[[dict[str, Any]], Composition]) -> Callable[[Sequence[Question], Any, dict[str, Any]], list[Answered]]:
    def run(questions: Sequence[Question], corpus: Any, llm: dict[str, Any]) -> list[Answered]:
        built = composed(llm).build(Services())
        built.index(corpus)
        by_id: dict[str, Prediction] = {p.question_id: p for p in built.answer([q.query() for q in questions])}
        return [_compared(by_id[q.query_id]) for q in questions]

    return run


def _compared(prediction: Prediction) -> Answered:
    notes = {name: value for name, value in prediction.notes.items() if name != ENDPOINTS}
    models = [stated.get("model") for stated in prediction.notes.get(ENDPOINTS, ())]
    return Answered(
        (prediction.answer, [item.id for item in prediction.evidence]),
        (notes, models if models != ["m"] else []),
        FAILED in notes or "unusable" in str(notes),
    )


def _verdicts(calls: Sequence[JudgeCall]) -> Answered:
    result = [(call.part, call.repetition, call.parsed.value) for call in calls]
    message = [(call.parsed.unscored, call.model) for call in calls]
    return Answered(result, message, any(call.parsed.value is None for call in calls))


def _judged(name: str) -> Callable[[Sequence[Question], Any, dict[str, Any]], list[Answered]]:
    def run(questions: Sequence[Question], corpus: Any, llm: dict[str, Any]) -> list[Answered]:
        judge = judge_of(name, {"llm": llm, "repetitions": 1}).build(Services())
        ask = one(judge, "ask")
        passages = {q.id: tuple(corpus.get(q.evidence)) for q in questions}
        first = {q.id: Prediction(q.id, f"{q.answers[0]}, as they say") for q in questions}
        items: list[Any] = [Item(q, first[q.id], passages[q.id]) for q in questions]
        if name == "pairwise":
            items = [Pair(q, first[q.id], Prediction(q.id, f"perhaps {q.answers[0]}"), passages[q.id]) for q in questions]

        async def judged(item: Any) -> Any:
            return item.question.id, await ask(item)

        by_id = dict(judging.stream(judged, items, in_flight([(judge, "ask")])))
        return [_verdicts(by_id[q.id]) for q in questions]

    return run


RUN: dict[str, Callable[[Sequence[Question], Any, dict[str, Any]], list[Answered]]] = {
    "reader": _predicted(lambda llm: Composition(Component.of("bm25"), reader=Component.of("chat", {"llm": llm}))),
    "program": _predicted(lambda llm: Composition(Component.of("ircot", {"retriever": "bm25", "sentences": 3, "llm": llm}))),
    "reranker": _predicted(
        lambda llm: Composition(
            Component.of("bm25"), rerankers=(Component.of("rankgpt", {"llm": llm, "depth": 5, "window": 5, "step": 4}),)
        )
    ),
    "pairwise judge": _judged("pairwise"),
    "verdict judge": _judged("match"),
}


@dataclass
class Cell:
    """One role with one kind of endpoint fault: results and wall time."""

    role: str
    fault: str
    share: float
    calls: int = 0
    played: int = 0
    wall_s: float = 0.0
    ideal_s: float = 0.0
    most: int = 0
    differ: int = 0
    silent: int = 0

    @property
    def wrong(self) -> list[str]:
        """List the requirements that this cell violates."""
        wrong = []
        if self.most > SLOTS:
            wrong.append(f"{self.most} calls in flight, {SLOTS} allowed")
        asserted = self.fault not in BUSY or self.share <= ASSERTED_BUSY_SHARE
        if asserted and self.wall_s > TARGET * self.ideal_s:
            wrong.append(f"wall {self.wall_s:.1f} s, ideal {self.ideal_s:.1f} s")
        if self.differ and self.fault not in LASTING:
            wrong.append(f"{self.differ} questions differ from the healthy run")
        if self.silent:
            wrong.append(f"{self.silent} questions differ without a message")
        return wrong


def cell(role: str, fault: str, share: float, questions: Sequence[Question], corpus: Any, healthy: Sequence[Answered] | None) -> Any:
    """Run one cell; return it with the result of every question."""
    weather = Weather(answer, latency, fault, share, whole=role == "program")
    url = f"http://{role.replace(' ', '-')}-{fault.replace('_', '-') or 'healthy'}-{int(1000 * share)}.test/v1"
    llm = {"model": "m", "base_url": url, "key_variable": None, "concurrency": SLOTS, "timeout_s": TIMEOUT_S}
    with virtual(weather) as loop:
        answered = RUN[role](questions, corpus, llm)
        wall = loop.time()
    done = Cell(role, fault, share, sum(weather.tries.values()), weather.played, wall, weather.ideal(SLOTS), weather.most)
    if healthy is not None:
        pairs = [(a, b) for a, b in zip(answered, healthy, strict=True) if a.result != b.result]
        done.differ = len(pairs)
        done.silent = sum(a.message == b.message for a, b in pairs)
    return done, answered


def _summary(cells: Sequence[Cell], healthy: Cell) -> dict[str, Any]:
    """Return the figures of a role for JSON: of each share the worst cell, and what is wrong in any."""
    summary: dict[str, Any] = {"slots": SLOTS, "target": TARGET, "calls_healthy": healthy.calls, "faults": len(FAULTS)}
    for share in SHARES:
        of_share = [item for item in cells if item.share == share]
        asserted = [item for item in of_share if item.fault not in BUSY or share <= ASSERTED_BUSY_SHARE]
        worst = max(asserted, key=lambda item: item.wall_s / item.ideal_s)
        summary[f"share {share:g}"] = {
            "played": sum(item.played for item in of_share),
            "worst_ratio": round(worst.wall_s / worst.ideal_s, 3),
            "worst_fault": worst.fault,
            "most_in_flight": max(item.most for item in of_share),
            "differ_with_message": sum(item.differ for item in of_share),
            "missed": [f"{item.fault}: {what}" for item in of_share for what in item.wrong],
        }
    return summary


def many() -> dict[str, Any]:
    """Measure the wall time of 2,000 calls of one model relative to the ideal, by fault, share and slots."""
    figures: dict[str, Any] = {"calls": MANY, "target": TARGET}
    for fault, share, slots in product(("reset", "500", "503", "429_after"), (0.01, 0.05), (64, 256)):
        weather = Weather(answer, latency, fault, share)
        with virtual(weather) as loop:
            url = f"http://many-{fault.replace('_', '-')}-{int(100 * share)}-{slots}.test/v1"
            model = ChatModel(ChatConfig(model="m", base_url=url, key_variable=None, concurrency=slots, timeout_s=TIMEOUT_S))
            calls = [model.ask([{"role": "user", "content": f"say {number}"}]) for number in range(MANY)]
            loop.run_until_complete(gather(*calls))
            figures[f"{fault}, {100 * share:g} %, {slots} slots"] = round(loop.time() / weather.ideal(slots), 3)
    return figures


async def gather(*calls: Any) -> None:
    """Await all calls concurrently."""
    await asyncio.gather(*calls)


def main() -> int:
    """Run the grid of roles and faults, print violations, and write everything as JSON; exit code 1 if there are violations."""
    logging.disable(logging.WARNING)
    benchmark = registry.load("worlds/multihop:test", {"questions": QUESTIONS, "worlds": 1})
    missed = 0
    measured = {"limiter": many()}
    for name, ratio in measured["limiter"].items():
        if "slots" in name:
            sys.stdout.write(f"faults.limiter {name}: {ratio:.2f} × the ideal\n")
    for role in ROLES:
        # A program asks several times per question, the others about once.
        questions = benchmark.questions[: QUESTIONS // 2 if role in ("program", "pairwise judge") else QUESTIONS]
        before, healthy = cell(role, "", 0.0, questions, benchmark.corpus, None)
        unread = sum(answered.unread for answered in healthy)
        missed += bool(unread)
        sys.stdout.write(
            f"faults.{role}: {before.calls} calls, healthy {before.wall_s / before.ideal_s:.2f} × the ideal, {unread} unread\n"
        )
        cells = [cell(role, fault, share, questions, benchmark.corpus, healthy)[0] for fault in FAULTS for share in SHARES]
        for item in cells:
            for what in item.wrong:
                missed += 1
                sys.stdout.write(f"  MISSED {item.role}, {item.fault}, {100 * item.share:g} %: {what}\n")
        worst = max((c for c in cells if c.fault not in BUSY or c.share <= ASSERTED_BUSY_SHARE), key=lambda c: c.wall_s / c.ideal_s)
        sys.stdout.write(f"  worst {worst.wall_s / worst.ideal_s:.2f} × the ideal: {worst.fault}, {100 * worst.share:g} %\n")
        sys.stdout.flush()
        measured[role] = _summary(cells, before)
    path = record("flow_faults", measured)
    sys.stdout.write(f"flow.faults: {missed} missed; written to {path.name}\n")
    return 1 if missed else 0

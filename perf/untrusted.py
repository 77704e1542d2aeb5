"""Text that others wrote costs no more than its length: failure reasons of a submission, and replies of nothing but braces.

A store gets two submissions that fail alike, one with short reasons and one with long ones. What `results` takes longer with
the second is recorded, and so are seconds of the readers of JSON for 100,000 braces.

python -m perf.untrusted
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from pydantic import BaseModel

from judges.llm.reading import read_criteria
from methods.models.structured import parse
from perf.measuring import record
from perf.startup import seconds

BRACES = 100_000
ROUNDS = 3
CASES = {"3 of 30,000 letters": (3, 30_000), "60 of 60,000 letters": (60, 60_000)}
QUESTIONS = 60
SLOWER_S, BRACES_S = 0.5, 1.0
CARD = """\
method: {name: theirs, version: "1"}
benchmark: worlds/multihop:test
setting: closed_book
config: {questions: 60, worlds: 1}
training_data: []
"""


class _Answer(BaseModel):
    answer: str


def results_s(folder: Path, failed: int, letters: int) -> float:
    """Measure the CPU seconds of `ragmeter results` with a submission in which many questions failed with long reasons."""
    from benchmarks import registry

    questions = registry.load("worlds/multihop:test", {"questions": QUESTIONS, "worlds": 1}).questions
    card, rows, store = folder / "card.yaml", folder / "predictions.jsonl", folder / "store"
    card.write_text(CARD)
    with rows.open("w") as file:
        for number, question in enumerate(questions):
            notes = {"failed": f"HTTP {number}: " + "a'b" * (letters // 3)} if number < failed else {}
            file.write(json.dumps({"question_id": question.query_id, "answer": "x", "notes": notes}) + "\n")
    seconds("submit", "add", str(rows), "--card", str(card), "--store", str(store))
    return min(seconds("results", "--store", str(store)) for _ in range(ROUNDS))


def braces_s() -> dict[str, float]:
    """Measure the seconds of each JSON parser on a reply of braces."""
    readers = {"parse": lambda text: parse(text, _Answer), "read_criteria": lambda text: read_criteria(text, ("a",), ("Yes", "No"))}
    spent = {}
    for name, read in readers.items():
        started = time.perf_counter()
        read("{" * BRACES)
        spent[name] = round(time.perf_counter() - started, 4)
    return spent


def main() -> int:
    """Measure, write JSON, and return 1 if a target is missed."""
    slower = {}
    for name, (failed, letters) in CASES.items():
        with tempfile.TemporaryDirectory() as short, tempfile.TemporaryDirectory() as long:
            slower[name] = round(results_s(Path(long), failed, letters) - results_s(Path(short), failed, 30), 3)
    braces = braces_s()
    met = max(slower.values()) <= SLOWER_S and max(braces.values()) <= BRACES_S
    measured = {"results": {"target_s": SLOWER_S, "slower_s": slower}, "braces": {"target_s": BRACES_S, "letters": BRACES, "s": braces}}
    record("untrusted", measured)
    sys.stdout.write(f"untrusted.results slower by {slower}; untrusted.braces {braces}: {'met' if met else 'MISSED'}\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())

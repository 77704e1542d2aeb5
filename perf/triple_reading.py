"""How well the pocket reader reads triples: gold ones of validation worlds, in every form of `triple_text`.

python -m perf.triple_reading [--questions N]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np

from benchmarks.registry import load
from judges.score import score
from methods.api import Services
from methods.pipeline import assemble
from methods.readers.triple_text import FORMS
from methods.registry import Component
from perf.measuring import Bench

METRIC = "f1(rules=hotpotqa)#v2"
TYPES = ("single", "bridge", "comparison", "multi")


def reading(questions: int = 300) -> dict[tuple[str, bool], dict[str, float]]:
    """Compute the mean F1 of GPR's reading of triples, by form and `by_head`, over all questions and per type."""
    benchmark = load("worlds/graph:validation", {"questions": questions, "worlds": 3})
    kinds = np.array([question.type for question in benchmark.questions])
    results = {}
    for form in FORMS:
        for by_head in (False, True):
            written = Component.of("triple_text", {"form": form, "by_head": by_head})
            control, reader = Component.of("oracle_evidence"), Component.of("pocket")
            method = assemble(control, Services(device="cpu"), reader=reader, compressor=written)
            method.index(benchmark.corpus)
            predictions = {item.question_id: item for item in method.answer(q.gold_query() for q in benchmark.questions)}
            values = score(benchmark.questions, predictions, [METRIC])[METRIC]
            results[form, by_head] = {"all": float(np.nanmean(values))} | {
                kind: float(np.nanmean(values[kinds == kind])) for kind in TYPES if (kinds == kind).any()
            }
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and record; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=300)
    value = parser.parse_args(arguments)
    print(f"{'form':<12}{'by_head':<9}" + "".join(f"{name:>12}" for name in ("all", *TYPES)))
    bench = Bench("triple_reading")
    for (form, by_head), means in reading(value.questions).items():
        print(f"{form:<12}{by_head!s:<9}" + "".join(f"{means.get(name, float('nan')):12.3f}" for name in ("all", *TYPES)))
        bench.figures[f"{form}{' by head' if by_head else ''}"] = {"value": float(means["all"]), "unit": "share"}
    return bench.finish()


if __name__ == "__main__":
    sys.exit(main())

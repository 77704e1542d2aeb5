"""`python -m tools.measure [NAME ...]`, `make experiments-small`: experiments of minutes to hours over training seeds, as records.

They run one after another; what the store holds is not done again, so the same command resumes. After each of them its
figures are written to perf/measured/gains.json, which the site's page Results shows.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.core.errors import unknown_name
from perf.measuring import record
from ragmeter import experiment as experiments
from ragmeter.cli.demo import PARTS
from ragmeter.runner.experiment import How, run_experiment
from ragmeter.show.gains import APPROACHES, Gain, gains
from results.boards.tables import plain
from results.store.store import Store

FIGURES = Path(__file__).parents[1] / "perf" / "measured" / "gains.json"
SMALL: Mapping[str, tuple[Sequence[str], str | None]] = {
    "ark/gain": (("recall@5", "f1"), None),
    "gpr/gain": (("answer_entity_recall@5", "answer_entity_recall@20"), "Two tower (mean)"),
    "sark/gain": (("mrr@5", "recall@5"), "without SAT"),
    "clara/worlds": (("cover_em", "f1"), "Text, as many tokens"),
    "end_to_end/tuned": (("em", "f1(rules=hotpotqa)"), None),
    "gpr/real": (("answer_entity_recall@5", "answer_entity_recall@20"), "Two tower (mean)"),  # last: it reads data that do not ship
}
"""What runs: the metrics that are shown, and the row that is the approach's base; None: the experiment's reference."""
NAMES = (*APPROACHES, "DPA-RAG", "RAG-DDR", "RetRobust", "DRO")
"""Rows whose gain is measured."""


def rows_of(gains: Sequence[Gain]) -> Iterator[dict[str, Any]]:
    """Convert gains to JSON objects; datasets that differ only in options or setting are named with them."""
    for gain in gains:
        same = {(other.board.dataset, other.board.setting) for other in gains if other.asked == gain.asked}
        whole = [gain.board.dataset, *([gain.board.setting] if len({setting for _, setting in same}) > 1 else [])]
        dataset = gain.asked if len(same) == 1 else ", ".join([*whole, gain.board.sampled.in_words(gain.board.questions)])
        why = "" if gain.beats else gain.why_not()
        yield plain(gain.to_json() | {"asked": dataset, "scale": gain.cell.scale, "beats": gain.beats, "why": why})


def measure(names: Sequence[str], store: Store, figures: Path = FIGURES) -> None:
    """Run experiments, and store the gains after each one."""
    known = {**{name: (heads, None) for name, heads in PARTS.items()}, **SMALL}
    if unknown := next((name for name in names if name not in known), None):
        raise unknown_name("experiment of these", unknown, known)
    for name in names:
        experiment = experiments.load(name, store=store.folder)
        heads, base = known[name]
        run_experiment(experiment, store, How(processes=True), talk=True)
        rows = list(rows_of(list(gains(experiment, store, heads, base, NAMES))))
        record(figures.stem, {name: {"command": f"ragmeter run {name}", "rows": rows}}, figures.parent)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(SMALL), help=f"of {', '.join([*SMALL, *PARTS])} (default: the first {len(SMALL)})")
    parser.add_argument("--store", type=Path, default=Path("ragmeter-store"))
    value = parser.parse_args()
    measure(value.names, Store(value.store))


if __name__ == "__main__":
    main()

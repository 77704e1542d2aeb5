"""`python -m tools.measure [NAME ...]`, `make experiments-small`: experiments of minutes to hours over training seeds, as records.

They run one after another; what the store holds is not done again, so the same command resumes. After each of them its
figures are written to perf/measured/gains.json, which the site's page Results shows. Experiments on real data are skipped with a
message if RAGMETER_DATA is not set.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

from benchmarks.core.errors import unknown_name
from benchmarks.sources import DATA_VARIABLE
from perf.measuring import record
from ragmeter import experiment as experiments
from ragmeter.cli.demo import PARTS
from ragmeter.runner.experiment import How, run_experiment
from ragmeter.show.gains import APPROACHES, Gain, gains
from results.boards.markup import plain
from results.statistics.holm import holm
from results.store.store import Store
from results.store.variants import without_options
from tools import real_base
from tools.over_sets import rows_over
from tools.tiny_profiles import lacking

if TYPE_CHECKING:
    from ragmeter.experiment import Experiment

FIGURES = Path(__file__).parents[1] / "perf" / "measured" / "gains.json"
NAMES = (*APPROACHES, "DPA-RAG", "RAG-DDR", "RetRobust", "DRO")
"""Rows whose gain is measured."""


@dataclass(frozen=True)
class Shown:
    """Figures of an experiment that are recorded.

    Attributes:
        metrics: Names of the metrics in tables.
        base: Row that others are compared with; None: the experiment's reference.
        names: Rows that are compared.
        control: Row of `names` whose gain shows that the experiment can detect one: it is trained on the test questions, or on
            their relations with more data.
        over: Profiles of the experiment whose questions are tested together; empty: the experiment is measured alone.
    """

    metrics: Sequence[str]
    base: str | None = None
    names: Sequence[str] = NAMES
    control: str | None = None
    over: Sequence[str] = ()


_GPR_CONTROL = "GPR (trained on the test questions)"
_SARK = Shown(("mrr@10", "recall@2", "recall@5"), "without SAT", ("SARK", "control"), "control")
_ARK = ("ARK, stage 1", "ARK, stage 2 (recorded queries)", "ARK, stage 3 (recorded queries)")
SMALL: Mapping[str, Shown] = {
    "ark/gain": Shown(("recall@5", "f1")),
    "gpr/gain": Shown(("answer_entity_recall@5", "answer_entity_recall@20"), "Two tower (mean)"),
    "ark/near --profile paper": Shown(("recall@5",), "base", ("stage 1", "stage 2", "stage 3", "control"), "control"),
    "sark/gain": Shown(("mrr@5", "recall@5"), "without SAT"),
    "clara/worlds": Shown(("cover_em", "f1"), "Text, as many tokens"),
    "end_to_end/tuned": Shown(("em", "f1(rules=hotpotqa)")),
    # The rest reads data that do not ship.
    "gpr/real": Shown(
        ("answer_entity_recall@5", "answer_entity_recall@20"),
        "Two tower (mean)",
        ("GPR", "GPR (template questions)", _GPR_CONTROL),
        _GPR_CONTROL,
    ),
    "gpr/real --profile cwq": Shown(("answer_entity_recall@5", "answer_entity_recall@20"), None, (_GPR_CONTROL,), _GPR_CONTROL),
    "sark/real": _SARK,
    "sark/real --profile hotpotqa": _SARK,
    "sark/real --profile 2wiki": _SARK,
    "sark/real --profile bible": _SARK,
    "sark/real over its sets": replace(_SARK, over=("", "hotpotqa", "2wiki")),
    "ark/real-kg": Shown(("recall@5",), "base", (*_ARK, "trained on the test questions"), "trained on the test questions"),
    "clara/real": Shown(("f1(rules=clara)",), "Text, as many tokens as 4x", ("Memory 4x", "Memory 16x"), "control"),
}
"""What runs, by its arguments of `ragmeter run`."""


def rows_of(gains: Sequence[Gain]) -> Iterator[dict[str, Any]]:
    """Convert gains to JSON objects; datasets that differ only in options or setting are named with them."""
    for gain in gains:
        short = without_options(gain.board.dataset)
        same = {(other.board.dataset, other.board.setting) for other in gains if without_options(other.board.dataset) == short}
        whole = [gain.board.dataset, *([gain.board.setting] if len({setting for _, setting in same}) > 1 else [])]
        dataset = gain.asked if len(same) == 1 else ", ".join([*whole, gain.board.sampled.in_words(gain.board.questions)])
        why = "" if gain.beats else gain.why_not()
        yield plain(gain.to_json() | {"asked": dataset, "scale": gain.cell.scale, "beats": gain.beats, "why": why})


REAL_TEXT = ("ark/real-kg", "clara/real", "gpr/real", "sark/real")
"""Experiments whose record names its positive control, None if there is none."""
PAIRS = {"4x": "text 4x", "16x": "text 16x"}
"""Trainings of `clara/real`, and those that read text of as many tokens."""
CONTROL = ("control", "text 4x")
"""Training of `clara/real` on the rows that measure, at 4x, and what it is compared with."""


def losses(experiment: Experiment, store: Path) -> Iterator[dict[str, Any]]:
    """Yield what memory does to the loss per token on held-out documents, as rows of gains.

    Intervals are those of a paired t-test over training seeds, Holm-corrected over the rates; they say nothing about other documents.
    The control was trained on these documents and is tested alone: if its loss is not significantly lower, no loss here is evidence.

    Args:
        experiment: `clara/real`, trained.
        store: Folder of the store that holds its checkpoints.

    Raises:
        ValueError: A checkpoint has no validation loss.
    """
    known: dict[str, list[float]] = {}
    for training in experiment.trainings:
        lines = (training.folder(store) / training.stages[-1] / "curve.jsonl").read_text("utf-8").splitlines()
        last = [step["validation_loss"] for step in map(json.loads, lines) if "validation_loss" in step]
        if not last:
            raise ValueError(f"{training.name_and_seed}: no validation loss in curve.jsonl")
        known.setdefault(training.name, []).append(last[-1])
    pairs = [*PAIRS.items(), CONTROL]
    tested = [float(ttest_1samp(np.subtract(known[name], known[other]), 0.0).pvalue) for name, other in pairs]
    corrected = [*holm(tested[: len(PAIRS)]), tested[-1]]
    for (name, other), p in zip(pairs, corrected, strict=True):
        yield {
            "approach": name if name == CONTROL[0] else f"Memory {name}",
            "asked": f"held-out documents of clara_stages/pretraining, {len(known[name])} training seeds",
            "metric": "validation loss per token",
            "lower_is_better": True,
            "scale": 1.0,
            "value": _over_seeds(known[name]),
            "base": {"method": f"{other}, as many tokens", **_over_seeds(np.subtract(known[name], known[other])), "p_holm": p},
            "strongest": None,
            "beats": False,
            "why": "intervals contain the chance of training seeds only, not of documents",
        }


def _over_seeds(values: Sequence[float] | NDArray[np.float64]) -> dict[str, float]:
    value, interval = float(np.mean(values)), ttest_1samp(values, 0.0).confidence_interval()
    return {"value": value, "low": float(interval.low), "high": float(interval.high), "n": int(np.size(values))}


def measure(names: Sequence[str], store: Store, figures: Path = FIGURES) -> None:
    """Run experiments, and store the gains after each one."""
    known = {**{name: Shown(metrics) for name, metrics in PARTS.items()}, **SMALL}
    if unknown := next((name for name in names if name not in known), None):
        raise unknown_name("experiment of these", unknown, known)
    for name in names:
        shown, file = known[name], name.partition(" ")[0]
        parts = [experiments.load(file, profile=profile or None, store=store.folder) for profile in shown.over or (_profile(name),)]
        experiment = parts[0]
        if (missing := lacking(experiment)) is not None:
            print(f"{name} skipped: {DATA_VARIABLE} is not set; {missing}")
            continue
        if file == "clara/real" and not Path("real-base").exists():
            real_base.main(["real-base"])
        for part in parts:
            run_experiment(part, store, How(processes=True), talk=True)
        if shown.over:
            rows = list(rows_over(store, [part.name for part in parts], shown.metrics, str(shown.base), shown.names))
        else:
            rows = list(rows_of(list(gains(experiment, store, shown.metrics, shown.base, shown.names))))
        if file == "clara/real":
            rows += losses(experiment, store.folder)
        control = {"control": shown.control} if shown.control or file in REAL_TEXT else {}
        command = f'python -m tools.measure "{name}"' if shown.over else f"ragmeter run {name}"
        record(figures.stem, {name: {"command": command, "rows": rows, **control}}, figures.parent)


def _profile(name: str) -> str:
    return name.partition(" --profile ")[2]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(SMALL), help=f"of {', '.join([*SMALL, *PARTS])} (default: the first {len(SMALL)})")
    parser.add_argument("--store", type=Path, default=Path("ragmeter-store"))
    value = parser.parse_args()
    measure(value.names, Store(value.store))


if __name__ == "__main__":
    main()

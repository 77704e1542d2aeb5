"""`python -m tools.measure [NAME ...]`, `make experiments-small`: experiments of minutes to hours over training seeds, as a page.

They run one after another; what the store holds is not done again, so the same command goes on where it was stopped. After
each of them docs/measured.md is written anew.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from benchmarks.core.errors import unknown_name
from benchmarks.core.files import whole_text
from ragmeter import experiment as experiments
from ragmeter.cli.demo import PARTS
from ragmeter.runner.experiment import How, run_experiment
from ragmeter.show.gains import Gain, gains
from results.boards.tables import mark, markdown_text, to_markdown
from results.store.store import Store

PAGE = Path(__file__).parents[1] / "docs" / "measured.md"
SMALL: Mapping[str, tuple[Sequence[str], str | None]] = {
    "ark/gain": (("recall@5", "f1"), None),
    "gpr/gain": (("answer_entity_recall@5", "answer_entity_recall@20"), "Two tower (mean)"),
    "sark/gain": (("mrr@5", "recall@5"), "without SAT"),
    "clara/worlds": (("cover_em", "f1"), "Text, as many tokens"),
}
"""What runs: the metrics that are shown, and the row that is the approach's base; None: the experiment's reference."""
_TEXT = """# Measured: what each approach gains

Written by `tools/measure.py` on {when}, commit {commit}, {machine}. `make experiments-small` writes it anew from experiments over
several training seeds, hours in all; stopped, the same command goes on. What the demo loads (`ragmeter run demo` …) is of one seed.

Values and differences × 100 ± half the 95 % interval over what was sampled; differences are paired, tested against all
methods of the table (Holm; \\* p < .05, \\*\\* p < .01). The strongest baseline is the best row that is no control and that no
approach trained. Beats its base: significantly ahead, over at least 30 clusters and three trainings.
Several training seeds count as one row, the mean over them.

{table}"""


def page(results: Sequence[tuple[str, Gain]], when: date, commit: str, machine: str) -> str:
    """The page.

    Args:
        results: The command's experiment, and what it came to.
        when, commit, machine: Of the measuring.
    """
    rows = []
    for name, gain in results:
        differences = [f"{item.shown} {mark(item.cell)} {item.name}" if item else "–" for item in (gain.base, gain.strongest)]
        # Of two datasets that differ in options or setting alone, these are given.
        same = {(other.board.dataset, other.board.setting) for _, other in results if other.asked == gain.asked}
        whole = [gain.board.dataset, *([gain.board.setting] if len({setting for _, setting in same}) > 1 else [])]
        dataset = gain.asked if len(same) == 1 else ", ".join([*whole, gain.board.sampled.in_words(gain.board.questions)])
        texts = [gain.approach, dataset, gain.metric, gain.value, *differences, "yes" if gain.beats else f"no: {gain.why_not()}"]
        rows.append([*map(markdown_text, texts), f"`ragmeter run {name}`"])
    heads = ("approach", "asked", "metric", "value", "over its base", "over the strongest baseline", "beats its base", "command")
    return _TEXT.format(when=when, commit=commit, machine=machine, table=to_markdown(heads, rows, left=3))


def measure(names: Sequence[str], store: Store, target: Path) -> None:
    """Run experiments, and write what they came to after each."""
    commit = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, cwd=PAGE.parent, check=False)
    machine = f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()})"
    results: list[tuple[str, Gain]] = []
    known = {**{name: (heads, None) for name, heads in PARTS.items()}, **SMALL}
    if unknown := next((name for name in names if name not in known), None):
        raise unknown_name("experiment of these", unknown, known)
    for name in names:
        experiment = experiments.load(name, store=store.folder)
        heads, base = known[name]
        run_experiment(experiment, store, How(processes=True), talk=True)
        results += [(name, gain) for gain in gains(experiment, store, heads, base)]
        whole_text(target, page(results, date.today(), commit.stdout.strip() or "unknown", machine))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(SMALL), help=f"of {', '.join([*SMALL, *PARTS])} (default: the first {len(SMALL)})")
    parser.add_argument("--store", type=Path, default=Path("ragmeter-store"))
    parser.add_argument("--page", type=Path, default=PAGE)
    value = parser.parse_args()
    measure(value.names, Store(value.store), value.page)


if __name__ == "__main__":
    main()

"""`python -m tools.measure [NAME ...]`, `make experiments-small`: experiments of minutes to hours over training seeds, as a page.

They run one after another; what the store holds is not done again, so the same command goes on where it was stopped. After
each of them its figures are written to perf/measured/gains.json, and docs/measured.md from that file. `--page-only` writes
the page alone.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.core.errors import unknown_name
from benchmarks.core.files import whole_text
from perf.measuring import record
from ragmeter import experiment as experiments
from ragmeter.cli.demo import PARTS
from ragmeter.runner.experiment import How, run_experiment
from ragmeter.show.gains import APPROACHES, Gain, gains
from results.boards.tables import markdown_text, plain, plus_minus, stars, to_markdown
from results.store.store import Store

PAGE = Path(__file__).parents[1] / "docs" / "measured.md"
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
_TEXT = """# Measured: what each approach gains

`tools/measure.py` writes this page from `perf/measured/gains.json`, which holds the commit, the date and the machine of every
row. `make experiments-small` measures the experiments over several training seeds, hours in all; if it is stopped, the same
command resumes. The demo's models (`ragmeter run demo` …) are of one seed.

Values and differences × 100 ± half the 95 % interval, or [low, high] if its sides differ. Differences are paired and tested
against all methods of the table (Holm; \\* p < .05, \\*\\* p < .01). The strongest baseline is the best row that is no control
and that no approach trained. Beats its base: significantly ahead, over at least 30 clusters and three trainings. Several
training seeds count as one row, the mean over them. *Not recomputed*: the stored interval contains the chance of questions
only, not of training seeds; such a difference has no mark, and it is not known whether the approach beats its base there.

{table}"""


def rows_of(gains: Sequence[Gain]) -> Iterator[dict[str, Any]]:
    """Yield what each gain came to, as JSON objects; datasets that differ in options or setting only are given with these."""
    for gain in gains:
        same = {(other.board.dataset, other.board.setting) for other in gains if other.asked == gain.asked}
        whole = [gain.board.dataset, *([gain.board.setting] if len({setting for _, setting in same}) > 1 else [])]
        dataset = gain.asked if len(same) == 1 else ", ".join([*whole, gain.board.sampled.in_words(gain.board.questions)])
        why = "" if gain.beats else gain.why_not()
        yield plain(gain.to_json() | {"asked": dataset, "scale": gain.cell.scale, "beats": gain.beats, "why": why})


def page(known: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page.

    Args:
        known: By experiment, its `rows`.
    """
    rows = []
    for name, part in known.items():
        for row in part["rows"]:
            differences = [_against(row[side], row["scale"]) for side in ("base", "strongest")]
            beats = "not recomputed" if row["beats"] is None else "yes" if row["beats"] else f"no: {row['why']}"
            texts = [row["approach"], row["asked"], row["metric"], _shown(row["value"], row["scale"]), *differences, beats]
            rows.append([*map(markdown_text, texts), f"`ragmeter run {name}`"])
    heads = ("approach", "asked", "metric", "value", "over its base", "over the strongest baseline", "beats its base", "command")
    return _TEXT.format(table=to_markdown(heads, rows, left=3))


def _against(side: Mapping[str, Any] | None, scale: float) -> str:
    if side is None or side.get("value") is None:
        return "–"
    mark = "" if side["p_holm"] is None else stars(side["p_holm"])
    return " ".join(filter(None, [_shown(side, scale, "{:+.1f}"), mark, side["method"]]))


def _shown(value: Mapping[str, Any], scale: float, form: str = "{:.1f}") -> str:
    middle, low, high = (math.nan if value[key] is None else value[key] for key in ("value", "low", "high"))
    return plus_minus(middle, low, high, form, scale)


def write_page(target: Path, figures: Path = FIGURES) -> None:
    """Write the page from the stored figures, in the order of the commands."""
    known = json.loads(figures.read_text("utf-8"))
    order = [*SMALL, *PARTS]
    whole_text(target, page({name: known[name] for name in sorted(known, key=order.index)}))


def measure(names: Sequence[str], store: Store, target: Path, figures: Path = FIGURES) -> None:
    """Run experiments, and store what they came to after each."""
    known = {**{name: (heads, None) for name, heads in PARTS.items()}, **SMALL}
    if unknown := next((name for name in names if name not in known), None):
        raise unknown_name("experiment of these", unknown, known)
    for name in names:
        experiment = experiments.load(name, store=store.folder)
        heads, base = known[name]
        run_experiment(experiment, store, How(processes=True), talk=True)
        rows = list(rows_of(list(gains(experiment, store, heads, base, NAMES))))
        record(figures.stem, {name: {"command": f"ragmeter run {name}", "rows": rows}}, figures.parent)
        write_page(target, figures)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(SMALL), help=f"of {', '.join([*SMALL, *PARTS])} (default: the first {len(SMALL)})")
    parser.add_argument("--store", type=Path, default=Path("ragmeter-store"))
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--page-only", action="store_true", help="write the page from what was measured before")
    value = parser.parse_args()
    if value.page_only:
        write_page(value.page)
    else:
        measure(value.names, Store(value.store), value.page)


if __name__ == "__main__":
    main()

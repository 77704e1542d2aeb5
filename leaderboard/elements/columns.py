"""Which runs, metrics and experiments a page may choose between, and in which words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leaderboard.elements.formats import PERCENT, PLAIN, Scale
from results.queries import RunRow

ALL_RUNS = "*"
"""Stands for "every run in the store" where an experiment can be chosen."""
MAIN = "main"
_MOST = 5
"""Columns of the main family."""
_FALLBACK = ("f1", "em", "recall@5", "ndcg@10")


def board_key(run: RunRow) -> str:
    """The URL's name for the board that a run is on; readable, and unique by the fingerprint's start."""
    return f"{run.dataset}~{run.setting}~{run.seed}~{run.dataset_fingerprint[:8]}"


def board_label(runs: Sequence[RunRow]) -> str:
    """The board in words."""
    first = runs[0]
    return f"{first.dataset} · {first.setting} · seed {first.seed}"


def families(metrics: Sequence[str], definitions: Mapping[str, Mapping[str, Any]], official: Sequence[str]) -> dict[str, list[str]]:
    """Metrics by family: the main ones, then each group, then all.

    Args:
        metrics: Ids that the board has, in the order in which the experiment names them.
        definitions: What the store knows of them.
        official: The dataset's own metrics, main one first. Where the board lacks that one, the experiment asks about
            something else: then its own order counts.
    """
    if official and not any(_same(metric, official[0]) for metric in metrics):
        official = metrics
    main = [metric for wanted in official for metric in metrics if _same(metric, wanted)]
    main += [metric for wanted in _FALLBACK for metric in metrics if _same(metric, wanted, loosely=True)]
    groups: dict[str, list[str]] = {}
    for metric in metrics:
        groups.setdefault(str(definitions.get(metric, {}).get("group") or "other"), []).append(metric)
    chosen = list(dict.fromkeys(main or metrics))[:_MOST]
    return {MAIN: chosen, **{name: ids for name, ids in groups.items() if name not in (MAIN, "all")}, "all": [*metrics]}


def scale_of(metric: str, definitions: Mapping[str, Mapping[str, Any]]) -> Scale:
    """How a metric's values are written."""
    return PLAIN if definitions.get(metric, {}).get("unit") == "number" else PERCENT


def higher_is_better(metric: str, definitions: Mapping[str, Mapping[str, Any]]) -> bool:
    """A metric's direction."""
    return bool(definitions.get(metric, {}).get("higher_is_better", True))


def explanation(metric: str, definitions: Mapping[str, Mapping[str, Any]]) -> str:
    """A metric's full id and definition, for hover help."""
    known = definitions.get(metric)
    if not known:
        return metric
    direction = "Higher is better." if known["higher_is_better"] else "Lower is better."
    return f"{metric} — {known['definition']} {direction} Source: {known['source']}"


def _same(metric: str, wanted: str, *, loosely: bool = False) -> bool:
    """Whether an id is the wanted one, whose version (loosely: also parameters) may be left out."""
    short = metric.partition("#")[0]
    return wanted in (metric, short) or (loosely and short.partition("(")[0] == wanted)

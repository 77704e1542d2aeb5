"""Which stage of a run's pipeline loses what it does not get, read off the same pipeline's runs in other settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.errors import UserError
from benchmarks.settings import Setting
from results import queries
from results.queries import RunRow
from results.statistics import StageLosses, stage_losses
from results.store import FINISHED, Store


@dataclass(frozen=True, slots=True)
class Attribution:
    """The losses of one run's stages.

    Attributes:
        run: The run.
        losses: None where something is missing.
        questions: On how many questions all runs were scored.
        missing: Settings in which the same pipeline has no finished run yet.
        obstacle: Why such runs could not be made at all; empty where they could.
    """

    run: RunRow
    losses: StageLosses | None
    questions: int = 0
    missing: tuple[str, ...] = ()
    obstacle: str = ""


def attribution(store: Store, run: RunRow, metric: str, *, ceiling: float = 1.0, among: Sequence[RunRow] | None = None) -> Attribution:
    """Split what a run does not get into what retrieval, reranking, compression and reading lose.

    The other runs that this takes (the evidence among the candidates, the evidence alone, no passage at all) must be
    of the same pipeline, data and seed.

    Args:
        store: Where to read.
        run: The run as it is.
        metric: A metric of which more is better.
        ceiling: The most that a question can score.
        among: All runs on its data, where they were read before.
    """
    try:
        wanted = _wanted(run)
    except UserError as error:
        return Attribution(run, None, obstacle=error.what)
    same = queries.runs(store, dataset_fingerprint=run.dataset_fingerprint) if among is None else among
    every = {row.run: row for row in same if row.seed == run.seed and row.status == FINISHED}.values()
    found = {name: _first(every, setting, run.description) for name, setting in wanted.items()}
    missing = tuple(str(wanted[name]) for name, row in found.items() if row is None)
    if missing:
        return Attribution(run, None, missing=missing)
    chosen = {name: row.run for name, row in found.items() if row is not None}
    if run.description.get("compressor"):
        plain = {**run.description, "compressor": None, "budget": None}
        full = _first(every, wanted["gold_only"], plain)
        if full is not None:
            chosen["gold_uncompressed"] = full.run
    columns = queries.score_columns(store, run.dataset_fingerprint, [run.run, *chosen.values()], [metric])
    clusters = columns.documents if any(columns.documents) else None
    nothing = np.full(len(columns.questions), np.nan)
    scores = {name: columns.values.get((one, metric), nothing) for name, one in {"normal": run.run, **chosen}.items()}
    common = int((~np.isnan(np.stack(list(scores.values()))).any(axis=0)).sum())
    if not common:
        return Attribution(run, None, obstacle="no question was scored in all of these settings")
    losses = stage_losses(
        scores["normal"],
        gold_in_noise=scores["gold_in_noise"],
        gold_only=scores["gold_only"],
        closed_book=scores["closed_book"],
        gold_uncompressed=scores.get("gold_uncompressed"),
        clusters=clusters,
        ceiling=ceiling,
    )
    return Attribution(run, losses, common)


def _wanted(run: RunRow) -> dict[str, Setting]:
    """By parameter of `stage_losses`, the setting in which the same pipeline must have run.

    Raises:
        UserError: The run's setting has no candidates among which the evidence could be put.
    """
    usual = Setting.parse(run.setting)
    if usual.name not in ("corpus", "distractor"):
        raise UserError(f"the setting {usual} gives no retrieved passages among which missing evidence could be put")
    return {
        "gold_in_noise": Setting.parse(f"oracle(base={usual})"),
        "gold_only": Setting("gold_only"),
        "closed_book": Setting("closed_book"),
    }


def _first(runs: Iterable[RunRow], setting: Setting, description: Mapping[str, Any]) -> RunRow | None:
    """The first run of a pipeline in a setting."""
    return next((row for row in runs if row.setting == str(setting) and row.description == description), None)

"""One outcome over many cells; a cell is one metric on one benchmark.

Each cell is a `Gate` with one metric. Every cell is a chance of a false alarm, so "regressed" is only claimed of a cell
if its p-value, Holm-corrected over all cells, allows it: the probability of any false "regressed" is at most 2.5 %,
whatever the dependence between cells; decisions about anchors share another 2.5 % equally. The whole passes if every
cell that must hold passes; the probability of a false pass of the whole is at most 2.5 % without a correction
(intersection–union test).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.core.errors import counted
from results.gate.comparable import margins_of
from results.gate.decision import ask
from results.gate.remarks import TEST_IT
from results.gate.verdicts import EXIT_CODES, Gate, Outcome, Verdict, outcome_of
from results.statistics.holm import holm
from results.statistics.spending import ALPHA
from results.store.queries import RunRow
from results.store.store import Store


@dataclass(frozen=True, slots=True)
class GateCell:
    """One of several gate decisions that are made together: one metric on one benchmark.

    Attributes:
        gate: The gate with this metric only; its outcome is corrected over all cells.
        must_hold: Whether the overall result can pass only if this cell passes.
        p_family: One-sided p-value of the claim "regressed", Holm-corrected over all cells.
    """

    gate: Gate
    must_hold: bool
    p_family: float

    @property
    def verdict(self) -> Verdict:
        """Return the decision on the cell's metric."""
        return self.gate.verdicts[0]


@dataclass(frozen=True, slots=True)
class ManyGates:
    """Overall gate decision over several benchmarks and metrics.

    Attributes:
        cells: In the requested order.
        notes: Remarks on the overall decision, in addition to those of the cells.
    """

    cells: tuple[GateCell, ...]
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """Return the worst outcome of the cells; it can be a pass if a cell without `must_hold` is inconclusive (`outcome_of`)."""
        outcomes = [cell.gate.outcome for cell in self.cells]
        return outcome_of(outcomes, [cell.gate.outcome for cell in self.cells if cell.must_hold])

    @property
    def exit_code(self) -> int:
        """Return the exit code of `ragmeter gate` for the outcome, for example 0 for a pass and 100 for a regression."""
        return EXIT_CODES[self.outcome]

    @property
    def gates(self) -> tuple[Gate, ...]:
        """Return the single gates of all cells."""
        return tuple(cell.gate for cell in self.cells)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the notes, then the remarks of all cells without repetition, each with its benchmark unless it concerns all of them."""
        benchmarks_of: dict[str, list[str]] = {}
        for gate in self.gates:
            for line in gate.remarks:
                benchmarks_of.setdefault(line, []).append(gate.place)
        every = {gate.place for gate in self.gates}
        lines = [
            [line] if line == TEST_IT or (len(every) > 1 and {*of} == every) else [f"{place}: {line}" for place in dict.fromkeys(of)]
            for line, of in benchmarks_of.items()
        ]
        return (*self.notes, *(line for some in lines for line in some))

    @property
    def family(self) -> str:
        """Return a sentence on the error probabilities of the overall decision."""
        bound = f"at most {100 * ALPHA:g} %"
        return f"over {counted(len(self.cells), 'cell')}: probability of any false “regressed” {bound} (Holm), of a false pass {bound}"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; each cell is a gate's object with `must_hold` and `p_family`."""
        cells = [
            cell.gate.to_json() | {"must_hold": cell.must_hold, "p_family": None if math.isnan(cell.p_family) else cell.p_family}
            for cell in self.cells
        ]
        whole = {"outcome": self.outcome, "exit_code": self.exit_code, "remarks": list(self.remarks)}
        return whole | {"family_wise_error": ALPHA, "cells": cells}


def ask_pairs(
    store: Store,
    pairs: Sequence[tuple[RunRow, RunRow]],
    *,
    metrics: Sequence[str],
    margin: float | None = None,
    margins: Mapping[str, float] | None = None,
    notes: Sequence[str] = (),
    **how: Any,
) -> ManyGates:
    """Decide whether the candidate regressed on any metric of any benchmark (one pair of runs each); all must pass.

    Args:
        store: The store to read.
        pairs: (Baseline, candidate) runs, one pair per benchmark.
        metrics, margin, margins: As in `results.gate.decision.ask`.
        notes: As in `ManyGates`.
        how: `strict`, `allow_partial`, `allow_same` and `anchored` of `results.gate.decision.ask`.

    Raises:
        UserError: As `results.gate.decision.ask`.
    """
    cells = [(pair, *cell) for pair in pairs for cell in margins_of(store, *pair, metrics, margin, margins).items()]
    gates = [ask(store, *pair, metrics=[metric], margin=tolerated, cells=len(cells), **how) for pair, metric, tolerated in cells]
    return replace(decide_cells(gates, [True] * len(gates)), notes=tuple(notes))


def decide_cells(gates: Sequence[Gate], must_hold: Sequence[bool]) -> ManyGates:
    """Combine gates on single metrics into one overall decision, with p-values corrected over all of them.

    Args:
        gates: Gates with one metric each, decided separately.
        must_hold: For each gate, whether the overall decision can pass only if it passes.

    Raises:
        ValueError: There is no gate, or a gate has several metrics.
    """
    if not gates or any(len(gate.verdicts) != 1 for gate in gates):
        raise ValueError("give at least one gate, each with one metric")
    # A cell without a p-value still counts as one test.
    alone = [gate.verdicts[0].decision.p for gate in gates]
    corrected = holm([1.0 if math.isnan(p) else p for p in alone])
    return ManyGates(
        tuple(GateCell(_corrected(gate, p, len(gates)), must, p) for gate, must, p in zip(gates, must_hold, corrected, strict=True))
    )


def _corrected(gate: Gate, p: float, cells: int) -> Gate:
    """Return the gate, changed to inconclusive if it only regresses without the correction."""
    since = gate.verdicts[0].since
    if gate.outcome != "regressed" or p <= ALPHA or (since is not None and since.outcome == "regressed"):
        return gate
    reason = f"it regresses by itself, but its p-value corrected over {cells} cells is {p:.3f}"
    verdict = replace(gate.verdicts[0], outcome="inconclusive", held_back=(*gate.verdicts[0].held_back, reason))
    return replace(gate, outcome="inconclusive", verdicts=(verdict,), remarks=(*gate.remarks, f"{verdict.metric}: inconclusive: {reason}"))

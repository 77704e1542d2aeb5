"""One verdict over many cells, each a metric on a benchmark: which must hold, and which may be inconclusive.

Each cell is a `Gate` of its own with one metric. The whole regresses where any cell did; that is one chance of a false
alarm a cell, so "regressed" is claimed of a cell only where its p-value, Holm-corrected over all cells, allows it: that
any cell is called regressed which is not has a probability of at most 2.5 %, whatever the dependence between cells. The
whole passes where every cell that must hold does; a false pass of the whole takes a false pass of the very cell that
fell, so that this has a probability of at most 2.5 % as well, without a correction (intersection–union test).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.core.errors import counted
from results.gate import EXIT_CODES, Gate, Verdict
from results.statistics.core import LEVEL
from results.statistics.gate import Outcome
from results.statistics.intervals import holm

ALPHA = (1 - LEVEL) / 2
"""Of the whole's claims, each."""


@dataclass(frozen=True, slots=True)
class GateCell:
    """One metric on one benchmark.

    Attributes:
        gate: With this metric alone; its outcome is that after the correction over all cells.
        must_hold: Whether the whole passes only where this cell does.
        p_family: p-value of the claim "regressed", Holm-corrected over all cells.
    """

    gate: Gate
    must_hold: bool
    p_family: float

    @property
    def verdict(self) -> Verdict:
        """Of its one metric."""
        return self.gate.verdicts[0]


@dataclass(frozen=True, slots=True)
class ManyGates:
    """What the gate says of all cells together."""

    cells: tuple[GateCell, ...]

    @property
    def outcome(self) -> Outcome:
        """`regressed` if any cell did, `pass` if every one that must hold passed, else `inconclusive`."""
        outcomes = [cell.gate.outcome for cell in self.cells]
        if "regressed" in outcomes:
            return "regressed"
        return "pass" if all(cell.gate.outcome == "pass" for cell in self.cells if cell.must_hold) else "inconclusive"

    @property
    def exit_code(self) -> int:
        """What the command exits with."""
        return EXIT_CODES[self.outcome]

    @property
    def family(self) -> str:
        """How often the whole is wrong, as one sentence."""
        return (
            f"over {counted(len(self.cells), 'cell')}: a false “regressed” of any in at most {100 * ALPHA:g} % (Holm), a false pass of the "
            f"whole in at most {100 * ALPHA:g} %"
        )

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; each cell is a gate's, with what the file says of it."""
        cells = [
            cell.gate.to_json() | {"must_hold": cell.must_hold, "p_family": None if math.isnan(cell.p_family) else cell.p_family}
            for cell in self.cells
        ]
        return {"outcome": self.outcome, "exit_code": self.exit_code, "family_wise_error": ALPHA, "cells": cells}


def decide_cells(gates: Sequence[Gate], must_hold: Sequence[bool]) -> ManyGates:
    """One verdict over gates.

    Args:
        gates: Each of one metric, decided alone.
        must_hold: Of each, whether the whole passes only where it does.

    Raises:
        ValueError: There is none, or one has several metrics.
    """
    if not gates or any(len(gate.verdicts) != 1 for gate in gates):
        raise ValueError("one metric a gate is wanted, and one gate at least")
    # Where nothing could be tested, the cell still counts as one.
    alone = [gate.verdicts[0].decision.p for gate in gates]
    corrected = holm([1.0 if math.isnan(p) else p for p in alone])
    return ManyGates(
        tuple(GateCell(_corrected(gate, p, len(gates)), must, p) for gate, must, p in zip(gates, must_hold, corrected, strict=True))
    )


def _corrected(gate: Gate, p: float, cells: int) -> Gate:
    """The gate, inconclusive where only the correction leaves its regression unclaimed."""
    if gate.outcome != "regressed" or p <= ALPHA:
        return gate
    reason = f"alone it would regress; over {cells} cells its corrected p-value is {p:.3f}"
    verdict = replace(gate.verdicts[0], outcome="inconclusive", held_back=(*gate.verdicts[0].held_back, reason))
    return replace(gate, outcome="inconclusive", verdicts=(verdict,), remarks=(*gate.remarks, f"{verdict.metric}: {reason}"))

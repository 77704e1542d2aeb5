"""Health lines of a board, and what their checks share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from results.store.queries import RunRow
from results.store.store import Store


@dataclass(frozen=True, slots=True)
class HealthLine:
    """Warning about something unusual in a run or on a board.

    Attributes:
        code: Name of the check that found it.
        run: Id of the run; "" if the warning concerns the whole board.
        text: The finding as a sentence without a full stop.
        values: The numbers and names in it.
        method: The run's method as the board shows it.
    """

    code: str
    run: str
    text: str
    values: Mapping[str, Any] = field(default_factory=dict)
    method: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the line as a JSON object."""
        return asdict(self)


Check = Callable[[Store, Sequence[RunRow]], Iterable[HealthLine]]


def percent(share: float) -> str:
    """Return a share as `6 %`; `<1 %` up to half a percent."""
    return f"{100 * share:.0f} %" if share > 0.005 else "<1 %"


def read_rows(store: Store, query: str, runs: Sequence[str], *more: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a query after replacing `{runs}` by a list of the runs, so that DuckDB reads only their blocks."""
    with store.database.reading() as connection:
        return connection.execute(query.format(runs=", ".join("?" * len(runs))), [*runs, *more]).fetchall()


def ids_of(runs: Sequence[RunRow]) -> list[str]:
    """Return the ids of runs, each once."""
    return list(dict.fromkeys(run.run for run in runs))


def names_of(runs: Sequence[RunRow]) -> dict[str, str]:
    """Map the ids of runs to their methods' names."""
    return {run.run: run.method for run in runs}

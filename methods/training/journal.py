"""Append-only file of finished results, so that interrupted work is never repeated."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from pydantic import TypeAdapter

from benchmarks.core.errors import Broke, UserError, require_writable
from benchmarks.core.files import Lines, mend
from methods.flow import in_order
from methods.training import Progress
from methods.training.stages import file_id

_WHAT = "the file of earlier work"


class Journal:
    """Append-only file of results by id; a context manager. Memory only holds file positions.

    A line is `{"id", "made_of", "value"}`. A result is only returned for the same id and input hash (`made_of`); later lines
    override earlier ones. An incomplete last line is removed.

    Args:
        path: The file; created with the first result.

    Raises:
        UserError: The file is damaged, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        # What is found out with the first result has been paid for already.
        require_writable(path, what=_WHAT)
        self._lines = Lines(path, _WHAT)
        self._positions: dict[str, int] = {}
        if path.exists():
            mend(path)
            position = 0
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    self._positions[file_id(self._row(line, str(number))["id"])] = position
                    position += len(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()

    def __len__(self) -> int:
        return len(self._positions)

    def get(self, identifier: str, made_of: str) -> Any | None:
        """Return the result of an id; None if there is none, or if its input has changed."""
        position = self._positions.get(file_id(identifier))
        if position is None:
            return None
        with self._lines.path.open("rb") as file:
            file.seek(position)
            row = self._row(file.readline(), f"byte {position}")
        return row["value"] if row["id"] == identifier and row["made_of"] == made_of else None

    def add(self, identifier: str, made_of: str, value: Any) -> None:
        """Append a JSON result under an id, with the hash of its input.

        Raises:
            UserError: The file cannot be written.
            Broke: The disk is full.
        """
        row = {"id": identifier, "made_of": made_of, "value": value}
        self._positions[file_id(identifier)] = self._lines.add(json.dumps(row, ensure_ascii=False) + "\n")

    def _row(self, line: bytes, where: str) -> dict[str, Any]:
        try:
            row = json.loads(line)
            return {name: row[name] for name in ("id", "made_of", "value")}
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"this line of earlier work cannot be read: {error}",
                code="unreadable-earlier-line",
                where=f"{self._lines.path}:{where}",
                try_this="remove the line: its content is computed again",
            ) from None


HOPELESS = 32
"""Number of consecutive failures after which the work stops."""
_LOST = "~lost"
"""Suffix of the ids of items whose calls failed while others succeeded."""


class Result(Protocol):
    """Protocol of results, which are dataclasses."""

    @property
    def came(self) -> bool:
        """Return whether any call got a reply."""
        ...

    @property
    def lasting(self) -> bool:
        """Return whether the result is final and saved; otherwise it is computed again next time."""
        ...


In = TypeVar("In")
Out = TypeVar("Out", bound=Result)


def each_once(
    program: Callable[[In], Awaitable[Out]],
    items: Sequence[tuple[str, str, In]],
    kind: type[Out],
    journal: Journal | None,
    progress: Progress,
    in_flight: int,
    where: str,
) -> list[Out]:
    """Apply an async program to every item, reusing saved results.

    Args:
        program: An `async` function of one item.
        items: Tuples (id, hash of the input, item); results are saved in this order.
        kind: Class of the results.
        journal: File of results; None saves nothing.
        progress: Progress display.
        in_flight: Maximum concurrent items.
        where: Name of the option with the model, for messages.

    Returns:
        One result per item, in order.

    Raises:
        Broke: All calls, or those of `HOPELESS` consecutive items, failed; or no further call could succeed. Items that failed
            in an earlier pass, in which others succeeded, do not count.
    """
    read = TypeAdapter(kind).validate_python
    there = [None if journal is None else journal.get(identifier, made_of) for identifier, made_of, _ in items]
    known = {n for n, (identifier, made_of, _) in enumerate(items) if journal is not None and journal.get(identifier + _LOST, made_of)}
    results = [None if kept is None else read(kept) for kept in there]
    missing = [number for number, result in enumerate(results) if result is None]
    progress.advance(len(items) - len(missing))
    untried, in_vain, lost = len(set(missing) - known), 0, list[int]()
    with nullcontext() if journal is None else journal:
        for number, made in zip(missing, in_order(lambda n: program(items[n][2]), missing, in_flight), strict=True):
            results[number] = made
            if made.came:
                in_vain = 0
            elif number not in known:
                in_vain += 1
                lost.append(number)
            hopeless = in_vain and in_vain in (HOPELESS, untried)
            if journal is not None and (made.came or number == missing[-1]) and (not hopeless or len(missing) < len(items)):
                # The endpoint answered others, so it refuses these. They are asked again, but do not stop a later pass.
                for refused in lost:
                    journal.add(items[refused][0] + _LOST, items[refused][1], True)
                lost.clear()
            if hopeless:
                raise Broke(
                    f"all {in_vain} calls failed",
                    code="all-calls-failed",
                    where=where,
                    try_this="try again when the endpoint answers; earlier results are kept",
                )
            if journal is not None and made.lasting:
                journal.add(*items[number][:2], asdict(made))  # type: ignore[call-overload]
            progress.advance()
    return results  # type: ignore[return-value]

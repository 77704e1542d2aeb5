"""Work item by item: what an endpoint refuses is asked again, and stops no later pass; an endpoint that is down stops the work."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from methods.training import Silent
from methods.training.journal import HOPELESS, Journal, each_once
from tests.support.errors import raises


@dataclass(frozen=True)
class Made:
    came: bool

    @property
    def lasting(self) -> bool:
        return self.came


def work(path: Path, count: int, refused: Collection[int], version: str = "1", started: list[int] | None = None) -> list[bool]:
    async def program(number: int) -> Made:
        if started is not None:
            started.append(number)
        return Made(number not in refused)

    items = [(str(number), version, number) for number in range(count)]
    return [made.came for made in each_once(program, items, Made, Journal(path), Silent(), 1, "llm")]


def test_refused_items_are_asked_again_and_stop_no_later_pass(tmp_path: Path) -> None:
    path, refused = tmp_path / "work.jsonl", {3, 9}
    expected = [number not in refused for number in range(10)]
    assert work(path, 10, refused) == expected
    started: list[int] = []
    assert work(path, 10, refused, started=started) == expected
    assert started == [3, 9]
    assert work(path, 10, {3}) == [number != 3 for number in range(10)]
    assert all(work(path, 10, ()))


def test_more_refused_items_than_may_fail_in_a_row_stop_no_later_pass(tmp_path: Path) -> None:
    path, refused = tmp_path / "work.jsonl", set(range(0, 3 * HOPELESS, 2))
    first = work(path, 3 * HOPELESS, refused)
    assert work(path, 3 * HOPELESS, refused) == first
    # A changed input is other work.
    with raises("all-calls-failed"):
        work(path, 3 * HOPELESS, range(3 * HOPELESS), version="2")


def test_endpoint_that_is_down_stops_the_work_each_time(tmp_path: Path) -> None:
    path = tmp_path / "work.jsonl"
    for count in (5, 5, 2 * HOPELESS, 2 * HOPELESS):
        with raises("all-calls-failed"):
            work(path, count, range(count))
    work(path, 5, ())
    for _ in range(2):
        with raises("all-calls-failed"):
            work(path, 10 * HOPELESS, range(5, 10 * HOPELESS))


def test_last_items_are_given_up_if_they_fail_again(tmp_path: Path) -> None:
    path = tmp_path / "work.jsonl"
    assert all(work(path, 8, ()))
    with raises("all-calls-failed"):
        work(path, 9, {8})
    assert work(path, 9, {8}) == [True] * 8 + [False]

"""A judge on loopback says what it likes, and the board says what can be known of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from judges.llm.ask import AGAIN
from methods.models.chat import PREFLIGHT
from ragmeter.cli import main
from results.boards.board import boards
from results.boards.tables import render
from results.judging import judgments
from results.judging.judge_card import judge_card
from results.store.queries import RunRow
from results.store.store import Store
from tests.support.server import ChatRequest, OpenAIServer, Written

pytestmark = pytest.mark.slow

QUESTIONS = 40
Judged = Callable[..., tuple[int, dict[str, Any], str]]


class Server:
    """A judge's endpoint; `says` maps all messages of a request to the reply."""

    def __init__(self) -> None:
        self.says: Callable[[str], str] = str
        self.server = OpenAIServer("m", self.answer)

    def answer(self, request: ChatRequest) -> Written:
        text = "\n".join(message["content"] for message in request.messages)
        return Written("ok" if text.endswith(PREFLIGHT) else self.says(text))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    with made.server.running():
        yield made


@pytest.fixture
def judged(server: Server, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Judged:
    """`ragmeter judge run`: the exit code, what it printed as JSON by method and measure, and what it complained about."""

    def run(says: Callable[[str], str], *more: str, judge: str = "match") -> tuple[int, dict[str, Any], str]:
        server.says = says
        llm = {"model": "m", "base_url": server.server.url, "key_variable": "null"}
        options = [f"--set=llm.{name}={value}" for name, value in llm.items()]
        monkeypatch.setattr(sys, "argv", ["ragmeter", "judge", "run", judge, *more, *options, "--json", "--store", str(store.folder)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        shown = capsys.readouterr()
        rows = [row for row in json.loads(shown.out or "[]") if "metric" in row]
        return int(caught.value.code or 0), {f"{row['method']} {row['metric'].split('(')[0]}": row for row in rows}, shown.err

    return run


def number(prompt: str) -> int:
    """Return which question it is about."""
    return int(prompt.partition("<question>\nwhat ")[2].partition("?")[0])


def filled(fill: Any, store: Store, exact: int, questions: int = QUESTIONS) -> RunRow:
    """A run of which the first answers equal the gold; all others are for the judge to read."""
    golds = [f"g{n}" for n in range(questions)]
    return fill(store, {"random": [*golds[:exact], *["x"] * (questions - exact)]}, golds, metrics=())["random"]  # type: ignore[no-any-return]


def test_partial_matches_are_read(store: Store, fill: Any, judged: Judged) -> None:
    filled(fill, store, 0, 20)
    code, rows, _ = judged(lambda prompt: "Match" if number(prompt) < 10 else "Partial match")
    wanted = {"value": 0.5, "low_if_wrong": 0.5, "high_if_right": 0.5, "unread": 0, "scorable": 20}
    assert code == 0
    assert {key: rows["random accuracy"][key] for key in wanted} == wanted
    assert rows["random partial"]["value"] == 0.5


@pytest.mark.parametrize("exact", [4, 0, 39])
def test_unreadable_judge_gives_no_number(store: Store, fill: Any, judged: Judged, exact: int) -> None:
    filled(fill, store, exact)
    code, rows, err = judged(lambda prompt: "Sure! I compared both carefully and there is a lot to say.")
    row, unread = rows["random accuracy"], QUESTIONS - exact
    assert (row["unread"], row["scorable"], row["low_if_wrong"], row["high_if_right"]) == (unread, QUESTIONS, exact / QUESTIONS, 1.0)
    incomplete = unread > 2
    assert (row["value"] is None) == incomplete
    assert code == (3 if incomplete else 0)
    assert (f"{unread} of {QUESTIONS} verdicts are missing" in " ".join(err.split())) == incomplete


def test_missing_verdicts_withhold_the_cell(store: Store, fill: Any, judged: Judged) -> None:
    run = filled(fill, store, 0, 120)
    code, rows, _ = judged(lambda prompt: ("Match", "Mismatch")[number(prompt) % 2] if number(prompt) < 14 else "Match, but only partial")
    row = rows["random accuracy"]
    assert (code, row["value"], row["unread"]) == (3, None, 106)
    assert (row["low_if_wrong"], row["high_if_right"]) == pytest.approx((7 / 120, 113 / 120))
    assert row["incomplete"].startswith("incomplete: 106 of 120")
    (board,) = boards(store, "toy")
    for form in ("markdown", "latex"):
        assert "50.0 ±" not in render([board], form)
    calls = judgments.calls(store, run.run, next(iter(judgments.judges(store))))
    assert sorted({len(made) for made in calls.values()}) == [1, 2]  # an unreadable reply is asked for once more


def test_second_form_saves_the_verdict(store: Store, fill: Any, judged: Judged) -> None:
    filled(fill, store, 0, 30)
    code, rows, _ = judged(lambda prompt: '{"verdict": "Match"}' if AGAIN in prompt else "Well.")
    assert (code, rows["random accuracy"]["value"], rows["random accuracy"]["unread"]) == (0, 1.0, 0)


def test_refusing_judge_is_reported_as_refusing(store: Store, fill: Any, judged: Judged) -> None:
    run = filled(fill, store, 0)
    code, _, err = judged(lambda prompt: "I'm sorry, but I can't help with that.")
    assert code == 3
    assert "refusal" in err
    assert "raise" not in err
    (judge,) = judgments.judges(store)
    assert judge_card(store, judge).work.unscored.keys() == {"refusal"}
    assert all(len(made) == 1 for made in judgments.calls(store, run.run, judge).values())


def test_retry_fills_unread_verdicts_and_replaces_none(store: Store, fill: Any, judged: Judged) -> None:
    filled(fill, store, 0, 30)
    _, rows, _ = judged(lambda prompt: "Match" if number(prompt) < 10 else "Well.")
    assert rows["random accuracy"]["unread"] == 20
    for more in ([], ["--retry-unscored"], ["--retry-unscored"]):  # each retry asks, whatever is cached
        prompts: list[str] = []
        judged(lambda prompt, prompts=prompts: str(prompts.append(prompt)), *more)
        assert len(prompts) == (40 if more else 0)  # a question and its stricter form
    code, rows, _ = judged(lambda prompt: "Mismatch", "--retry-unscored")
    assert (code, rows["random accuracy"]["value"], rows["random accuracy"]["unread"]) == (0, pytest.approx(1 / 3), 0)


def test_unread_comparisons_end_with_3(store: Store, fill: Any, judged: Judged) -> None:
    golds = [f"g{n}" for n in range(40)]
    runs = fill(store, {"bm25": ["x"] * 40, "dense": ["y"] * 40}, golds, metrics=(), reference="bm25")
    code, _, err = judged(lambda prompt: '{"overall": 1, "faithfulness": 0, "conciseness": 2}', "--set=repetitions=1", judge="pairwise")
    assert code == 3
    assert "40 of 40 verdicts are missing" in " ".join(err.split())
    assert len(runs) == 2

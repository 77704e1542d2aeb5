"""What judges said of one question, and the kept conversation behind an answer or a verdict."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.nodes import Node, badge, el
from leaderboard.elements.plain_table import Cell, Head, Line, plain_table
from results.queries import RunRow
from results.question_queries import AnswerRow
from results.verdicts import Conversation, Verdict

CALL = "call"
"""In a prediction's notes and in the URL: the key of a kept conversation."""
_KEY = re.compile(r"[0-9a-f]{32}")
LONGEST = 20_000
"""Characters of a message that are shown."""
_HEADS = (
    Head("Judged"),
    Head("Shown", tip="Which of the judge's prompts; of two answers, in which order they were shown"),
    Head("Verdict", tip="As read out of the reply; of two answers, by criterion, the order undone", wide=True),
    Head("Model", tip="Who judged, as its endpoint names it"),
    Head("Tokens", "prompt + completion", number=True),
    Head("Time", number=True),
    Head("Conversation", tip="Prompt and reply, where the store keeps them"),
)


def asked_here(answers: Sequence[AnswerRow], runs: Sequence[RunRow]) -> dict[str, str]:
    """By run, the key of its reader's kept conversation.

    Of runs made here alone: a submission's notes are its sender's text, and could name any conversation of the store.
    """
    made = {run.run for run in runs if run.origin == "run"}
    keys = {answer.run: answer.notes.get(CALL) for answer in answers if answer.run in made}
    return {run: key for run, key in keys.items() if isinstance(key, str) and _KEY.fullmatch(key)}


def calls(answers: Sequence[AnswerRow], here: Mapping[str, str], found: Sequence[Verdict]) -> dict[str, str]:
    """Keys of all conversations behind answers and verdicts, and whose each is: the method's or the judge's name.

    Args:
        answers: To a question.
        here: `asked_here` of them.
        found: Verdicts on them.
    """
    keys = {here[answer.run]: f"Reader of {answer.method}" for answer in answers if answer.run in here}
    return keys | {one.call: f"Judge {one.judge}" for one in found if one.call is not None}


def verdicts(found: Sequence[Verdict], names: Mapping[str, str], opened: str, question: str) -> list[Node]:
    """A fold for each judge with a line for each of its calls.

    Args:
        found: Of one question.
        names: Method names by run.
        opened: Key of the conversation that is shown.
        question: Its id, for keys.
    """
    judges = list(dict.fromkeys(one.judge for one in found))
    return [_judge(judge, [one for one in found if one.judge == judge], names, opened, question) for judge in judges]


def _judge(judge: str, made: Sequence[Verdict], names: Mapping[str, str], opened: str, question: str) -> Node:
    unread = sum(one.unscored is not None for one in made)
    tally = f"{len(made):,} call{'s' * (len(made) != 1)}" + (f", {unread:,} without a verdict" if unread else "")
    lines = [
        Line(
            _judged(one, names),
            [
                one.part + (f", repetition {one.repetition}" if one.repetition else ""),
                _said(one, names),
                one.model or formats.NOTHING,
                Cell(
                    formats.count(one.prompt_tokens + one.completion_tokens),
                    tip=f"prompt {one.prompt_tokens:,}, completion {one.completion_tokens:,}; US$ {formats.dollars(one.cost_usd)}",
                ),
                formats.duration(one.seconds) if one.seconds else formats.NOTHING,
                _reads(one.call, opened, f"verdict-{judge}-{number}-{question}"),
            ],
        )
        for number, one in enumerate(made)
    ]
    return el(
        "details",
        el("summary", el("span", judge, cls="method"), el("span", tally, cls="aside")),
        plain_table(f"Verdicts of {judge}", _HEADS, lines, f"verdicts-{judge}-{question}"),
        cls="evidence",
        key=f"judge-{judge}-{question}",
        open=any(one.call == opened for one in made if one.call is not None),
    )


def _judged(one: Verdict, names: Mapping[str, str]) -> Node:
    against = None if one.other is None else el("span", f"against {names.get(one.other, one.other)}", cls="aside")
    return el("span", el("span", names.get(one.run, one.run), cls="method"), against)


def _said(one: Verdict, names: Mapping[str, str]) -> Node:
    if one.unscored is not None:
        return el("span", badge("no verdict", "failed"), el("span", one.unscored, cls="aside"))
    if one.other is None:
        words = [f"{name}: {_value(value)}" for name, value in one.said.items()]
    else:
        won = {"one": names.get(one.run, one.run), "other": names.get(one.other, one.other), "none": "neither", None: "no verdict"}
        words = [f"{criterion}: {won.get(verdict, verdict)}" for criterion, verdict in one.said.items()]
    return el("span", "; ".join(words) or formats.NOTHING)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(inner)}" for name, inner in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_value, value)) or "none"
    if value is None or isinstance(value, bool):
        return "none" if value is None else "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _reads(call: str | None, opened: str, key: str) -> Node:
    """The button that shows a conversation, or puts it away."""
    if call is None:
        return el("span", "no model was asked", cls="aside")
    shown = call == opened
    return el(
        "button", "close" if shown else "read", cls="turn", pressed=str(shown).lower(), key=key, action={CALL: None if shown else call}
    )


def readers(answers: Sequence[AnswerRow], here: Mapping[str, str], opened: str, question: str) -> Node | None:
    """A button for each run whose reader asked a model that replies over the network, to read what was said."""
    asked = [answer for answer in answers if answer.run in here]
    if not asked:
        return None
    return el(
        "p",
        el("span", "Prompts and replies of readers:", cls="aside"),
        *(el("span", answer.method, _reads(here[answer.run], opened, f"reader-{answer.run}-{question}"), cls="fact") for answer in asked),
        cls="facts",
    )


def conversation(found: Conversation | None, whose: str) -> Node:
    """A kept conversation, or that it is not kept."""
    if found is None:
        text = "This store does not keep the conversation: it was pruned, was not sent along with the results, or cannot be read."
        return el("section", el("h3", whose, cls="section"), el("p", text, cls="note"))
    said = [(role or "message", text) for role, text in found.messages] + [("reply", found.reply)]
    return el(
        "section",
        el("h3", whose, cls="section"),
        el("dl", *(part for role, text in said for part in (el("dt", role), el("dd", _cut(text)))), cls="tape"),
        label=f"Conversation: {whose}",
        role="region",
    )


def _cut(text: str) -> str:
    left = len(text) - LONGEST
    return text if left <= 0 else f"{text[:LONGEST]}… [{left:,} more characters: `ragmeter cache tape` has them]"

"""What judges said about one question, call by call, and the kept conversations that it can be read in."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from results.redaction import redacted, without_secrets
from results.store import Store


@dataclass(frozen=True, slots=True)
class Verdict:
    """One call of a judge.

    Attributes:
        judge: Its id.
        run: The run that was judged; of two, the one with the lesser fingerprint.
        other: The run that it was compared with; None for a judge of single answers.
        part: Which of the judge's prompts; of two runs, in which order they were shown.
        repetition: 0, 1 …
        call: The key of its kept conversation; None where no model was asked.
        said: What was read out of the reply; of two runs, by criterion which won, the order shown undone: `one`,
            `other`, `tie`, `none`, or None where there is no verdict.
        unscored: Why nothing could be read.
        model: As its endpoint names it; `rule` for rules.
        prompt_tokens, completion_tokens, seconds, cost_usd: What it took.
    """

    judge: str
    run: str
    other: str | None
    part: str
    repetition: int
    call: str | None
    said: Mapping[str, Any] = field(default_factory=dict)
    unscored: str | None = None
    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Conversation:
    """A kept call: messages as (role, text), and the reply."""

    messages: tuple[tuple[str, str], ...]
    reply: str


def verdicts(store: Store, question: str, dataset_fingerprint: str, setting: str, run_ids: Sequence[str]) -> list[Verdict]:
    """All calls of judges about a question, by judge and run, in the order in which they were made.

    Args:
        store: Where to read.
        question: Its id.
        dataset_fingerprint, setting: Of the battles.
        run_ids: Only what concerns these runs; a battle only where both are among them.
    """
    wanted = list(run_ids)
    with store.database.reading() as connection:
        alone = connection.execute(
            """SELECT judge, run, part, repetition, call, parse, unscored, model, prompt_tokens, completion_tokens,
               seconds, cost_usd FROM judge_calls WHERE question = ? AND list_contains(?, run) ORDER BY judge, rowid""",
            [question, wanted],
        ).fetchall()
        where = """question = ? AND dataset_fingerprint = ? AND setting = ? AND list_contains(?, one)
                   AND list_contains(?, other)"""
        asked = [question, dataset_fingerprint, setting, wanted, wanted]
        paired = connection.execute(
            f"""SELECT judge, one, other, part, repetition, call, unscored, model, prompt_tokens, completion_tokens,
                seconds, cost_usd FROM battle_calls WHERE {where} ORDER BY judge, rowid""",
            asked,
        ).fetchall()
        won = connection.execute(
            f"""SELECT judge, one, other, part, repetition, criterion, verdict FROM battles
                WHERE {where} AND (verdict IS NOT NULL OR unscored IS NOT NULL) ORDER BY rowid""",
            asked,
        ).fetchall()
    by_criterion: dict[tuple, dict[str, Any]] = {}
    for *which, criterion, verdict in won:
        by_criterion.setdefault(tuple(which), {})[criterion] = verdict
    found = [
        Verdict(judge, run, None, part, repetition, call, _read(parse), unscored and without_secrets(unscored), *used)
        for judge, run, part, repetition, call, parse, unscored, *used in alone
    ]
    found += [
        Verdict(
            judge,
            one,
            other,
            part,
            repetition,
            call,
            by_criterion.get((judge, one, other, part, repetition), {}),
            unscored and without_secrets(unscored),
            *used,
        )
        for judge, one, other, part, repetition, call, unscored, *used in paired
    ]
    return found


def _read(parse: str | None) -> dict[str, Any]:
    return redacted(json.loads(parse)) if parse else {}


def conversations(store: Store, keys: Iterable[str]) -> dict[str, Conversation]:
    """Kept calls of models by key, secrets left out; those that are not kept any more are missing.

    The file of replies is opened for reading alone: it may belong to a run that is writing to it.
    """
    wanted = sorted(set(keys))
    if not wanted or not store.cache.is_file():
        return {}
    # Without a log beside it the file is whole, and can be read where nothing may be written.
    still = not store.cache.with_name(f"{store.cache.name}-wal").exists()
    marks = ",".join("?" * len(wanted))
    try:
        address = f"{store.cache.absolute().as_uri()}?{'immutable=1' if still else 'mode=ro'}"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            rows = connection.execute(f"SELECT key, request, reply FROM replies WHERE key IN ({marks})", wanted).fetchall()
    except sqlite3.Error:
        # A file that is no cache of replies, or is being moved: nothing is kept that could be shown.
        return {}
    return {key: found for key, request, reply in rows if (found := _conversation(request, reply)) is not None}


def _conversation(request: str, reply: str) -> Conversation | None:
    """A kept call; None where its row is damaged."""
    try:
        messages = tuple(
            (str(one.get("role", "")), without_secrets(str(one.get("content", "")))) for one in json.loads(request)["messages"]
        )
        return Conversation(messages, without_secrets(str(json.loads(reply).get("text", ""))))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None

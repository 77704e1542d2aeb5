"""The loop over one document, as a state that moves from reply to reply; it asks nobody itself.

Questions:   ask → answer (one call a question) → check (one call a pair) → ask what is missing → … until nothing is.
Paraphrase:  ask → check → ask again … until it is accepted.

Both end as `covered`, or as `uncovered` after the last round; what is uncovered is no training data.

Source: the paper's section 2.1 and Figures 9 to 16.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import BaseModel

from benchmarks.text import normalise
from methods.clara.data_config import Type
from methods.clara.rows import Pair, ScpRow
from methods.clara.synthesis_prompts import ABSENT, Answer, Judgment, Preserved, Prompts, Questions, Retelling, Supplement, shown_pairs
from methods.models.chat_options import Messages

ROUNDS = 10
"""Rounds of the coverage loop, and further retellings, at most."""
MOST_QUESTIONS = 40
"""Questions of one reply that are looked at; the authors' documents have at most 34."""

Step = Literal["ask", "answer", "check"]
Status = Literal["open", "covered", "uncovered"]


@dataclass(frozen=True, slots=True)
class Ask:
    """A call to make: the prompt's name and the conversation."""

    prompt: str
    messages: Messages


@dataclass(frozen=True, slots=True)
class Loop:
    """Where a document is.

    Attributes:
        kind: What is made.
        round: 0 for the first questions or retelling, then 1, 2 …
        step: What comes next.
        status: Whether it has ended, and how.
        pairs: What was accepted; of a paraphrase one pair without a question.
        pending: What is on its way in this round; answers are "" until they are there.
        counts: What became of replies and questions.
        by: The models that replied, by the names that their endpoint gives them.
    """

    kind: Type
    round: int = 0
    step: Step = "ask"
    status: Status = "open"
    pairs: tuple[Pair, ...] = ()
    pending: tuple[Pair, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    by: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "kind": self.kind,
            "round": self.round,
            "step": self.step,
            "status": self.status,
            "pairs": [list(pair) for pair in self.pairs],
            "pending": [list(pair) for pair in self.pending],
            "counts": dict(self.counts),
            "by": list(self.by),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Loop:
        """Read what `to_json` made."""
        pairs = {name: tuple(Pair(*pair) for pair in value[name]) for name in ("pairs", "pending")}
        return cls(**{**value, **pairs, "by": tuple(value["by"])})

    def counted(self, **more: int) -> Loop:
        """The same with higher counts."""
        total = Counter(self.counts)
        total.update({name: number for name, number in more.items() if number})
        return replace(self, counts=dict(total))


def row_of(loop: Loop, document: str, identifier: str) -> ScpRow | None:
    """The training row of a document that is covered; None where it is not, or where nothing could be asked."""
    if loop.status != "covered" or not loop.pairs:
        return None
    questions, answers = zip(*loop.pairs, strict=True)
    if loop.kind == "paraphrase":
        return ScpRow("paraphrase", document, (), answers, identifier)
    return ScpRow("qa", document, questions, answers, identifier)


# -- what to ask --


def asks(loop: Loop, document: str, prompts: Prompts) -> list[Ask]:
    """The calls of the next step; none where the loop has ended."""
    return list(_asks(loop, document, prompts)) if loop.status == "open" else []


def _asks(loop: Loop, document: str, prompts: Prompts) -> Iterator[Ask]:
    def ask(name: str, **values: str) -> Ask:
        return Ask(name, prompts.messages(name, document=document, **values))

    if loop.step == "ask":
        if loop.kind == "paraphrase" or loop.round == 0:
            yield ask(loop.kind)
        else:
            yield ask(f"more_{loop.kind}", pairs=shown_pairs(loop.pairs))
    for question, answer in loop.pending:
        if loop.step == "answer":
            yield ask("answer", question=question, absent=ABSENT)
        elif loop.kind == "paraphrase":
            yield ask("check_paraphrase", paraphrase=answer)
        else:
            yield ask("check_answer", question=question, answer=answer)


# -- what the replies lead to --


def advanced(loop: Loop, replies: Sequence[BaseModel | None], rounds: int = ROUNDS, most: int = MOST_QUESTIONS) -> Loop:
    """Where the loop is after the replies to `asks`.

    Args:
        loop: Before.
        replies: One for each call, in order; None where no reply could be read.
        rounds: Rounds after which a document that is not covered is given up.
        most: Questions of a reply that are looked at.
    """
    loop = loop.counted(without_reply=sum(reply is None for reply in replies))
    if loop.step == "answer":
        return _answered(loop, replies, rounds)
    if loop.step == "check":
        return _checked(loop, replies, rounds)
    (reply,) = replies
    if isinstance(reply, Retelling):
        return replace(loop, step="check", pending=(Pair("", reply.paraphrase),))
    if isinstance(reply, Supplement) and reply.count == 0:
        return replace(loop, status="covered")
    found = reply.questions if isinstance(reply, Questions | Supplement) else []
    new, repeated = _new(found[:most], loop.pairs)
    loop = loop.counted(questions=len(new), repeated=repeated, beyond_the_most=len(found[most:]))
    if not new:
        return _next_round(loop, rounds)
    return replace(loop, step="answer", pending=tuple(Pair(question, "") for question in new))


def _answered(loop: Loop, replies: Sequence[BaseModel | None], rounds: int) -> Loop:
    found = [(pair.question, reply.answer) for pair, reply in _with(loop, replies) if isinstance(reply, Answer)]
    kept = tuple(Pair(*pair) for pair in found if normalise(pair[1]) != normalise(ABSENT))
    loop = loop.counted(unanswered=len(replies) - len(found), not_contained=len(found) - len(kept))
    return replace(loop, step="check", pending=kept) if kept else _next_round(loop, rounds)


def _checked(loop: Loop, replies: Sequence[BaseModel | None], rounds: int) -> Loop:
    good = tuple(
        pair for pair, reply in _with(loop, replies) if isinstance(reply, Judgment | Preserved) and reply.judgment in ("Correct", "Yes")
    )
    unchecked = sum(reply is None for reply in replies)
    loop = loop.counted(unchecked=unchecked, unsupported=len(replies) - len(good) - unchecked)
    if loop.kind == "paraphrase" and good:
        return replace(loop, status="covered", pairs=good, pending=())
    return _next_round(replace(loop, pairs=(*loop.pairs, *good)), rounds)


def _with(loop: Loop, replies: Sequence[BaseModel | None]) -> Iterator[tuple[Pair, BaseModel | None]]:
    return zip(loop.pending, replies, strict=True)


def _next_round(loop: Loop, rounds: int) -> Loop:
    over = loop.round >= rounds
    if over:
        return replace(loop, status="uncovered", pending=())
    return replace(loop, round=loop.round + 1, step="ask", pending=())


def _new(questions: Sequence[str], pairs: Sequence[Pair]) -> tuple[list[str], int]:
    """Questions that say something and were not accepted before, each once; and how many were repeated or blank.

    One that was refused may be asked again: its answer may have been at fault.
    """
    seen = {normalise(pair.question) for pair in pairs} | {""}
    new = []
    for question in questions:
        plain = normalise(question)
        if plain not in seen:
            seen.add(plain)
            new.append(" ".join(question.split()))
    return new, len(questions) - len(new)

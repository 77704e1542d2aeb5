"""Write a gate's decision as a comment on a pull request.

GitHub renders the comment and notifies all users that it mentions, so all names, questions and values are untrusted:
they are escaped, or are in code spans.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from benchmarks.core.errors import counted
from benchmarks.core.unseen import printable
from results.boards.changes import changes
from results.boards.markup import markdown_text, to_markdown
from results.boards.verdict_of import runs_verdict
from results.boards.verdict_text import verdict_parts
from results.gate.many import ManyGates
from results.gate.report import DETECTABLE, SIGNS, memory_cells, numbers_of, points, rule_of, scales
from results.gate.verdicts import Gate, Verdict
from results.store import answer_queries, score_queries
from results.store.queries import RunRow
from results.store.store import Store

MARK = "<!-- ragmeter gate -->"
"""First line of every comment, by which the workflow finds the comment to update."""
QUESTIONS = 10
"""Maximum number of listed questions that got worse."""
_ROWS, _CHANGES, _REMARKS = 50, 15, 20
_TEXT = 160
"""Maximum characters of a question, and of its id."""
_LONGEST = 60_000
"""Maximum characters of a comment; GitHub accepts 65,536."""
_SEVERITY = ("regressed", "inconclusive", "pass")

Address = Callable[[RunRow, RunRow, str, str], str]
"""Returns the address of a question's page from baseline, candidate, metric and question id."""


@dataclass(frozen=True, slots=True)
class Worse:
    """Question on which the candidate scores worse than the baseline, with both scores."""

    question: str
    text: str
    before: float
    after: float


def worse_questions(store: Store, gate: Gate, verdict: Verdict) -> list[Worse]:
    """List the questions on which the candidate scores worse, largest loss first, ties in the dataset's order."""
    runs = [gate.baseline.run, gate.candidate.run]
    columns = score_queries.score_columns(store, gate.baseline.dataset_fingerprint, runs, [verdict.metric])
    before, after = (columns.values[run, verdict.metric] for run in runs)
    loss = (before - after) * (1 if verdict.higher_is_better else -1)
    order = [int(at) for at in np.argsort(-np.nan_to_num(loss), kind="stable") if loss[at] > 0]
    texts = {row.question: row.text for row in answer_queries.questions(store, gate.baseline.dataset_fingerprint)} if order else {}
    return [Worse(columns.questions[at], texts[columns.questions[at]], float(before[at]), float(after[at])) for at in order]


def comment_of(store: Store, decided: Gate | ManyGates, baseline: str, candidate: str, address: Address | None = None) -> str:
    """Render a gate decision as a Markdown comment for a pull request: scores before and after, outcome, changes, and worse questions.

    Args:
        store: The store to read.
        decided: The decision.
        baseline, candidate: The names that the user gave for the two runs.
        address: Makes links to questions; None prints commands instead.
    """
    many = isinstance(decided, ManyGates)
    heading = f"{markdown_text(candidate)} against {markdown_text(baseline)}"
    if isinstance(decided, ManyGates):
        heading += f", {decided.family}"
    else:
        run = decided.baseline
        sampled = decided.sampled.in_words(decided.questions)
        heading += " on " + markdown_text(f"{run.dataset}, setting {run.setting}, {sampled}")
    lines = [MARK, f"### ragmeter gate: {SIGNS[decided.outcome]}", "", *_verdict(store, decided, baseline, candidate), f"{heading}.", ""]
    heads = ("metric", "verdict", "before", "after", "difference", "margin", "detectable loss", "attempt", "since the anchor")
    every = [(gate, verdict) for gate in decided.gates for verdict in gate.verdicts]
    rows = [([markdown_text(gate.place)] if many else []) + _values(verdict) for gate, verdict in every[:_ROWS]]
    if isinstance(decided, ManyGates):
        for cell, row in zip(decided.cells, rows, strict=False):
            row[2] += "" if cell.must_hold or cell.verdict.outcome != "inconclusive" else " (allowed)"
    table = to_markdown((["benchmark"] if many else []) + [*heads], rows, left=2 + many)
    lines += [
        *table.splitlines(),
        "",
        *_more(len(every) - _ROWS, "cell"),
        f"{scales(verdict for _, verdict in every)}. {rule_of(decided.gates[0])} {DETECTABLE}",
        "",
    ]
    remarks = [f"- {markdown_text(line)}" for line in decided.remarks[:_REMARKS]]
    lines += [*remarks, *_more(len(decided.remarks) - _REMARKS, "remark"), *([""] if remarks else [])]
    return _fitted([*lines, *_changed(decided), *_worse(store, every, address)])


def _verdict(store: Store, decided: Gate | ManyGates, baseline: str, candidate: str) -> list[str]:
    """Name the better side by the deciding metric: the first of those with the most severe outcome."""
    tested = [(gate, verdict) for gate in decided.gates for verdict in gate.verdicts if verdict.outcome in _SEVERITY]
    if not tested or baseline == candidate:
        return []
    gate, verdict = min(tested, key=lambda pair: _SEVERITY.index(pair[1].outcome))
    if gate.baseline.run == gate.candidate.run:
        return []
    named = {candidate: gate.members.get("candidate", (gate.candidate,)), baseline: gate.members.get("baseline", (gate.baseline,))}
    where = gate.place if len(decided.gates) > 1 else ""
    parts = verdict_parts(runs_verdict(store, named, verdict.metric), where=where)
    shown = (f"**{markdown_text(part.text)}**" if part.kind == "method" else _spaced(part.text) for part in parts)
    return ["".join(shown), ""]


def _spaced(text: str) -> str:
    """Return `markdown_text` with the surrounding blanks of a text."""
    return " " * (text[:1] == " ") + markdown_text(text) + " " * (text[-1:] == " ")


def _values(verdict: Verdict) -> list[str]:
    cells = (SIGNS[verdict.outcome], *numbers_of(verdict), points(verdict.detectable, scale=verdict.scale), *memory_cells(verdict))
    return [_span(verdict.metric).replace("|", "\\|"), *map(markdown_text, cells)]


def _changed(decided: Gate | ManyGates) -> Iterator[str]:
    """List what changed; benchmarks with equal changes are listed together."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for gate in {gate.place: gate for gate in decided.gates if gate.outcome != "not tested"}.values():
        listed = changes(gate.baseline, gate.candidate, gate.baseline.started_at)
        lines = tuple(change.what + (f" ({change.details})" if change.details else "") for change in listed)
        groups.setdefault(lines, []).append(gate.place)
    for lines, at in groups.items():
        yield "**What changed**" + (f" on {', '.join(map(markdown_text, at[:5]))}" if len(groups) > 1 else "")
        yield ""
        if not lines:
            yield "- nothing in the description: code, options, weights and revision are equal"
        yield from (f"- {_marked(line)}" for line in lines[:_CHANGES])
        yield from _more(len(lines) - _CHANGES, "change")
        yield ""


def _worse(store: Store, every: Sequence[tuple[Gate, Verdict]], address: Address | None) -> Iterator[str]:
    """List the questions that got worse by verdict, those of regressed metrics first."""
    tested = [(gate, verdict) for gate, verdict in every if verdict.outcome in _SEVERITY]
    tested.sort(key=lambda pair: _SEVERITY.index(pair[1].outcome))
    every_worse = ((gate, verdict, worse_questions(store, gate, verdict)) for gate, verdict in tested)
    listed = list(islice((item for item in every_worse if item[2]), QUESTIONS))
    share = QUESTIONS // max(1, len(listed))
    for gate, verdict, worse in listed:
        shown = worse[:share]
        where = f" on {markdown_text(gate.place)}" if len({one.place for one, _, _ in listed}) > 1 else ""
        count = f"{len(worse):,} of {verdict.decision.difference.n:,} questions got worse"
        yield f"**{_span(verdict.metric)}{where}**: {count}" + (f"; the worst {len(shown)}:" if len(shown) < len(worse) else ":")
        yield ""
        for item in shown:
            values = f"{points(item.before, scale=verdict.scale)} → {points(item.after, scale=verdict.scale)}"
            name, text = markdown_text(_cut(item.question)), markdown_text(_cut(item.text))
            if address is not None:
                link = address(gate.baseline, gate.candidate, verdict.metric, item.question)
                yield f"- [{name}]({link}) {values}: {text}"
            else:
                yield f"- {name} {values}: {text}" + _command(gate.candidate.run, item.question)
        yield ""


def _command(run: str, question: str) -> str:
    """Return the command that shows a question; "" if the id cannot be passed to a shell on one line."""
    if not question.isprintable():
        return ""
    dashes = "-- " if question.startswith("-") else ""
    return f" {_span(f'ragmeter results show {dashes}{run} {shlex.quote(question)}')}"


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"


def _more(count: int, noun: str) -> list[str]:
    return [f"- … and {counted(count, f'more {noun}')}"] if count > 0 else []


def _marked(text: str) -> str:
    """Format a sentence as Markdown, with names in backticks as code spans."""
    parts = text.split("`")
    shown = [_span(part) if at % 2 else markdown_text(part) for at, part in enumerate(parts)] if len(parts) % 2 else [markdown_text(text)]
    return " ".join(filter(None, shown))


def _span(text: str) -> str:
    """Format a text as a code span that its backticks cannot end."""
    text = " ".join(printable(text).split())
    if not text:
        return "(empty)"
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    space = " " if text[0] == "`" or text[-1] == "`" else ""
    return f"{fence}{space}{text}{space}{fence}"


def _fitted(lines: Sequence[str]) -> str:
    """Join lines up to GitHub's maximum length."""
    left, kept = _LONGEST, list[str]()
    for line in lines:
        left -= len(line) + 1
        if left < 0:
            return "\n".join([*kept, "", "… shortened: see the job summary"]) + "\n"
        kept.append(line)
    return "\n".join(kept).rstrip("\n") + "\n"

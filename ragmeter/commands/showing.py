"""`runs`, `show`: what the store holds."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.text import Text

from benchmarks.errors import UserError, unknown_name
from ragmeter.console import WHOLE, emit, listing, out
from ragmeter.render import show_board
from results import blessed, queries, question_queries, store_folder
from results.board import board
from results.queries import RunRow
from results.question_queries import AnswerRow, QuestionRow
from results.store import Store

SHOWN_TEXT = 240


def metric_list(text: str | None) -> list[str] | None:
    """The metrics of a `--metrics` value, separated by commas, except those between parentheses; None without one.

    Raises:
        UserError: There is a value, but no metric in it.
    """
    if text is None:
        return None
    found = [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]
    if not found:
        raise UserError("no metric is named", where="--metrics", try_this="--metrics f1,em, or leave it out")
    return found


def runs(experiment: str | None, folder: Path | None, as_json: bool) -> None:
    """List runs."""
    store = Store(store_folder(folder))
    if experiment is not None:
        queries.experiment(store, experiment)
    found = queries.runs(store, experiment)
    emit(
        [_run_json(row) for row in found],
        as_json,
        lambda: listing(
            ("run", "status", "answered", "failed", "started (UTC)", "path"),
            [
                (row.run[:8], row.status, f"{row.done}/{row.questions}", row.failed or "", f"{row.started_at:%Y-%m-%d %H:%M}", row.path)
                for row in found
            ],
            empty="the store holds no run yet: ragmeter demo",
            below=WHOLE,
        ),
    )


def show(run: str, question: str | None, folder: Path | None, as_json: bool) -> None:
    """Show a run, or one of its questions."""
    store = Store(store_folder(folder))
    row = blessed.find_run(store, run)
    if question is not None:
        _show_question(store, row, question, as_json)
        return
    found = board(store, [row])
    emit(
        _run_json(row)
        | {
            "provenance": row.provenance,
            "environment": row.environment,
            "description": row.description,
            "card": row.card,
            "board": found.to_json(),
        },
        as_json,
        lambda: _print_run(row, found),
    )


def _print_run(row: RunRow, found: Any) -> None:
    facts = {
        "run": row.run,
        "path": row.path,
        "status": row.status + (f": {row.error}" if row.error else ""),
        "answered": f"{row.done} of {row.questions}" + (f", {row.failed} failed" if row.failed else ""),
        "dataset": f"{row.dataset}  (fingerprint {row.dataset_fingerprint})",
        "setting": f"{row.setting}, seed {row.seed}",
        "started": f"{row.started_at:%Y-%m-%d %H:%M:%S} UTC, last written {row.updated_at:%Y-%m-%d %H:%M:%S} UTC",
        "method": json.dumps(row.description, ensure_ascii=False),
    }
    if (cost := found.rows[0].indexing) is not None:
        facts["indexing"] = cost.in_words()
    facts |= {f"env.{key}": json.dumps(value, ensure_ascii=False) for key, value in row.environment.items()}
    facts |= {key: json.dumps(value, ensure_ascii=False) for key, value in row.provenance.items()}
    listing(("", ""), facts.items(), empty="")
    out.print()
    show_board(found, out)


def _show_question(store: Store, row: RunRow, identifier: str, as_json: bool) -> None:
    known = question_queries.questions(store, row.dataset_fingerprint)
    question = next((one for one in known if one.question == identifier), None)
    if question is None:
        raise unknown_name("question", identifier, [one.question for one in known], where=row.path)
    said = question_queries.answers(store, question, [row.run])
    if not said:
        raise UserError(f"{row.method} has not answered {identifier!r} yet", where=row.path, try_this="ragmeter resume")
    emit(
        {"question": asdict(question), "answer": asdict(said[0])},
        as_json,
        lambda: _print_question(question, said[0], queries.definitions(store)),
    )


def _print_question(question: QuestionRow, said: AnswerRow, known: Mapping[str, Mapping[str, Any]]) -> None:
    out.print(Text(question.text, style="bold"))
    out.print(Text("gold:   " + " | ".join(question.golds)))
    out.print(Text("answer: " + (said.answer or "(none)")))
    if said.failed:
        out.print(Text("failed: " + said.failed, style="red"))
    out.print()
    for item in said.evidence[:10]:
        text = " ".join(item.text.split())
        short = text if len(text) <= SHOWN_TEXT else text[:SHOWN_TEXT] + "…"
        mark = Text("gold ", style="green") if item.gold else Text("     ")
        out.print(Text(f"{item.rank:>3} ") + mark + Text(f"{item.title}: ", style="bold") + Text(short))
    out.print()
    listing(
        ("metric", "value"),
        [(metric, _value(value, said.unscored.get(metric), queries.scale_of(metric, known))) for metric, value in said.scores.items()],
        empty="not scored yet",
    )


def _value(value: float | None, unscored: str | None, scale: float) -> str:
    if value is None:
        return f"not scored by the judge: {unscored}" if unscored else "unscorable"
    return f"{scale * value:.1f}"


def _run_json(row: RunRow) -> dict[str, Any]:
    return {
        "run": row.run,
        "path": row.path,
        "experiment": row.experiment,
        "method": row.method,
        "kind": row.kind,
        "dataset": row.dataset,
        "dataset_fingerprint": row.dataset_fingerprint,
        "setting": row.setting,
        "seed": row.seed,
        "questions": row.questions,
        "done": row.done,
        "failed": row.failed,
        "status": row.status,
        "error": row.error,
        "origin": row.origin,
        "started_at": row.started_at.isoformat(),
        "updated_at": row.updated_at.isoformat(),
    }

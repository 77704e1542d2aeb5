"""`diff`: what differs between two runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.text import Text

from ragmeter.cli.commands.results import metric_list
from ragmeter.console import emit, listing, offering_score, out
from results import checkpoints, store_folder
from results.compare import Apart, Diff, Number, Setting
from results.compare import diff as compare
from results.queries import AnswerRow, RunRow
from results.statistics.core import Difference, Estimate
from results.store import Store
from results.tables import labels, plus_minus

SHOWN_VALUE = 70
SHOWN_ANSWER = 200
ABSENT = "–"


def diff(first: str, second: str, metrics: str | None, questions: int, folder: Path | None, as_json: bool, quiet: bool) -> None:
    """Print what differs between two runs."""
    store = Store(store_folder(folder))
    one = checkpoints.find_run(store, first)
    two = checkpoints.find_run(store, second)
    with offering_score():
        found = compare(store, one, two, metrics=metric_list(metrics), questions=questions)
    emit(to_json(found), as_json, lambda: _show(found, quiet))


def to_json(found: Diff) -> dict[str, Any]:
    """The comparison as a JSON object; values are fractions, None stands for "no value"."""
    return {
        "first": _run_json(found.first),
        "second": _run_json(found.second),
        "settings": [_setting_json(one) for one in found.settings],
        "paired": found.unpaired is None,
        "unpaired_because": found.unpaired,
        "metrics": [_number_json(one) for one in found.numbers],
        "by": found.by,
        "questions_apart": found.apart,
        "questions": [_apart_json(one) for one in found.questions],
    }


def _show(found: Diff, quiet: bool) -> None:
    out.print(Text(f"first   {found.first.path} ({found.first.run[:8]})"))
    out.print(Text(f"second  {found.second.path} ({found.second.run[:8]})"))
    out.print()
    listing(
        ("setting", "first", "second"),
        [(one.key, _value(one.first, one.in_first), _value(one.second, one.in_second)) for one in found.settings],
        empty="the two were made alike",
    )
    out.print()
    if found.unpaired:
        out.print(Text(f"numbers are not paired: {found.unpaired}", style="yellow"))
    heads = labels([one.metric for one in found.numbers])
    rows = []
    for one in found.numbers:
        compared = one.difference
        rows.append(
            (
                heads[one.metric],
                _estimate(one.first, one.scale),
                _estimate(one.second, one.scale),
                plus_minus(compared.value, compared.low, compared.high, "{:+.1f}", one.scale) if compared else ABSENT,
                _p(one.p_holm),
                f"{compared.wins}/{compared.ties}/{compared.losses}" if compared else ABSENT,
            )
        )
    listing(("metric", "first", "second", "difference", "p", "+/=/−"), rows, empty="neither run has been scored yet: ragmeter resume")
    if found.numbers and not quiet:
        lower = [one.metric for one in found.numbers if not one.higher_is_better]
        note = "value × 100 ± half its 95 % interval; difference: second minus first, paired; p by sign flips, Holm "
        note += "over the metrics shown; +/=/−: questions on which the second is higher, equal, lower"
        out.print(Text(note + (f"; less is better: {', '.join(lower)}" if lower else ""), style="dim"))
        long = [f"{head} = {metric}" for metric, head in heads.items() if head != metric]
        out.print(Text(", ".join(long), style="dim"))
    if found.by is not None and found.questions:
        out.print()
        more = f", {len(found.questions)} of {found.apart}" if found.apart > len(found.questions) else ""
        out.print(Text(f"where they differ most on {found.by}{more}", style="bold"))
        for apart in found.questions:
            _show_question(apart, next((one.scale for one in found.numbers if one.metric == found.by), 100.0))


def _show_question(apart: Apart, scale: float) -> None:
    out.print()
    out.print(Text(f"{apart.question.question}: {apart.question.text}"))
    out.print(Text("  gold    " + _short(" | ".join(apart.question.golds))))
    sides = (("first ", apart.first_value, apart.first), ("second", apart.second_value, apart.second))
    for name, value, said in sides:
        answer = f"failed: {said.failed}" if said.failed else said.answer or "(none)"
        out.print(Text(f"  {name}  {scale * value:5.1f}  {_short(answer)}"))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_ANSWER else line[:SHOWN_ANSWER] + "…"


def _value(value: Any, there: bool) -> str:
    if not there:
        return ABSENT
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_VALUE else text[:SHOWN_VALUE] + "…"


def _estimate(one: Estimate | None, scale: float) -> str:
    if one is None or one.value != one.value:
        return ABSENT
    return plus_minus(one.value, one.low, one.high, scale=scale)


def _p(p: float | None) -> str:
    return ABSENT if p is None or p != p else f"{p:.4f}"


def _run_json(run: RunRow) -> dict[str, Any]:
    return {
        "run": run.run,
        "path": run.path,
        "method": run.method,
        "dataset": run.dataset,
        "dataset_fingerprint": run.dataset_fingerprint,
        "setting": run.setting,
        "seed": run.seed,
        "status": run.status,
        "questions": run.questions,
        "done": run.done,
    }


def _setting_json(one: Setting) -> dict[str, Any]:
    said: dict[str, Any] = {"key": one.key}
    if one.in_first:
        said["first"] = one.first
    if one.in_second:
        said["second"] = one.second
    return said


def _number_json(one: Number) -> dict[str, Any]:
    return {
        "metric": one.metric,
        "higher_is_better": one.higher_is_better,
        "first": _estimate_json(one.first),
        "second": _estimate_json(one.second),
        "difference": _difference_json(one.difference, one.p_holm),
    }


def _estimate_json(one: Estimate | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {"value": _plain(one.value), "low": _plain(one.low), "high": _plain(one.high), "n": one.n, "unscorable": one.unscorable}


def _difference_json(one: Difference | None, p_holm: float | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "value": _plain(one.value),
        "low": _plain(one.low),
        "high": _plain(one.high),
        "n": one.n,
        "p": _plain(one.p),
        "p_holm": _plain(p_holm),
        "higher": one.wins,
        "equal": one.ties,
        "lower": one.losses,
        "doubt": one.doubt,
    }


def _apart_json(one: Apart) -> dict[str, Any]:
    return {
        "question": one.question.question,
        "text": one.question.text,
        "golds": list(one.question.golds),
        "first": {"value": one.first_value, **_answer_json(one.first)},
        "second": {"value": one.second_value, **_answer_json(one.second)},
    }


def _answer_json(one: AnswerRow) -> dict[str, Any]:
    return {"answer": one.answer, "failed": one.failed, "evidence": [item.id for item in one.evidence]}


def _plain(value: float | None) -> float | None:
    return None if value is None or value != value else float(value)

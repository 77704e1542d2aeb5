"""A run, one of its questions, and two runs compared, as text in a terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.padding import Padding
from rich.text import Text

from benchmarks.core.errors import counted
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage
from methods.api import CUT, FAILED, OUTSIDE, Call, Prediction, outside_of
from ragmeter.show.board_text import show_board
from ragmeter.show.code_text import code_in_words
from ragmeter.show.console import listing, out
from results.boards.board import Board, Row
from results.boards.diff import Apart, Diff, Number, Setting
from results.boards.tables import geometric_note, interval_words, labels, plus_minus, stars, values_shown
from results.statistics.core import Estimate
from results.store import score_queries
from results.store.answer_queries import AnswerRow, EvidenceRow, QuestionRow
from results.store.drift import ReportedVersions
from results.store.queries import RunRow
from results.store.store import Store

ABSENT = "–"
SHOWN_TEXT, SHOWN_VALUE, SHOWN_ANSWER, SHOWN_RANKS = 240, 70, 200, 10
"""Maximum printed characters of a passage, of a setting and of an answer, and printed passages of a ranking."""


def _shorten_text(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + "…"


def _failed(row: Row) -> str:
    return f", {row.run.failed} failed ({', '.join(f'{kind} {count}' for kind, count in row.failures.items())})" if row.run.failed else ""


def show_run(
    row: RunRow, scores: Board, endpoints: ReportedVersions, fallbacks: Mapping[str, Mapping[str, int]], *, verbose: bool = False
) -> None:
    """Print a run's scores and configuration; with `verbose`, also its environment and all options."""
    show_board(scores, out, by_metric=True, verbose=verbose)
    facts = {
        "run": row.run if row.execution == 1 else f"{row.run} (execution {row.execution} of this fingerprint)",
        "path": row.path,
        "status": row.status + (f": {row.error}" if row.error else ""),
        "answered": f"{row.done - row.failed} of {row.questions}" + _failed(scores.rows[0]),
        "dataset": f"{row.dataset}  (fingerprint {row.dataset_fingerprint})",
        "setting": f"{row.setting}, seed {row.seed}",
        "started": f"{row.started_at:%Y-%m-%d %H:%M:%S} UTC, last written {row.updated_at:%Y-%m-%d %H:%M:%S} UTC",
        "method": _described(row),
    }
    facts |= {f"endpoint of {model}": " | ".join(items) for model, items in endpoints.items()}
    facts |= {f"fallbacks of {name}": ", ".join(f"{why} {count:,}" for why, count in own.items()) for name, own in fallbacks.items()}
    if (cost := scores.rows[0].indexing) is not None:
        facts["indexing"] = cost.in_words()
    if (spent := scores.rows[0].cost) is not None and spent.model_calls > 0:
        cached = f", of which {spent.cached_tokens:,.1f} were cached by the endpoint" if spent.cached_tokens else ""
        dollars = "unknown" if math.isnan(spent.cost_usd) else f"US$ {spent.cost_usd:.6g} in all"
        facts["spent"] = f"{spent.prompt_tokens:,.1f} prompt tokens per question{cached}; cost: {dollars}"
    if not verbose:
        listing(("", ""), facts.items(), empty="")
        out.print(Text("description, environment, code and data: --verbose or --json", style="dim"))
        return
    facts["description"] = json.dumps(row.description, ensure_ascii=False)
    documents = {f"env.{key}": value for key, value in row.environment.items()} | row.provenance
    facts |= {f"code of {name}": code_in_words(code) for name, code in documents.pop("code", {}).items()}
    facts |= {key: json.dumps(value, ensure_ascii=False) for key, value in documents.items()}
    listing(("", ""), facts.items(), empty="")


def _described(row: RunRow) -> str:
    """Return a run's parts by role, such as `bm25 → sark → pocket`, without their options."""
    names = []
    for part in row.description.values():
        each = part if isinstance(part, list) else [part]
        names += [str(item["id"]) for item in each if isinstance(item, Mapping) and "id" in item]
    return " → ".join(names) or row.method_id


def show_question(store: Store, question: QuestionRow, answer: AnswerRow, calls: Sequence[Call], *, verbose: bool) -> None:
    """Print a question with its gold, a run's answer, evidence and model calls; with `verbose`, without truncation."""
    for turn in question.turns:
        out.print(Text(f"{turn.role}: {turn.text}", style="dim"))
    out.print(Text(question.text, style="bold"))
    out.print(Text("gold:   " + " | ".join(question.golds)))
    out.print(Text("answer: " + (answer.answer or "(none)")))
    if answer.failed:
        out.print(Text("failed: " + answer.failed, style="red"))
    if answer.stages:
        stages = ", ".join(f"{stage} {seconds:.3g} s" for stage, seconds in answer.stages.items())
        waited = f"; waited {answer.waited_s:.3g} s for other work" if answer.waited_s else ""
        out.print(Text(f"took:   {sum(answer.stages.values()):.3g} s ({stages}){waited}"))
    for name, note in answer.notes.items():
        if isinstance(note, dict) and name != OUTSIDE:  # of a system: what it searched with, what did not come off
            facts = ", ".join(f"{key} {json.dumps(value, ensure_ascii=False)}" for key, value in note.items())
            out.print(Text(f"{name}: {facts}"))
    out.print()
    others = {passage.id for passage in outside_of(answer.notes)}
    for item in answer.evidence[:SHOWN_RANKS]:
        mark = Text("gold ", style="green") if item.gold else Text("     ")
        _show_ranked(Text(f"{item.rank:>3} ") + mark, item, item.id in others)
    _show_record(answer.record)
    out.print()
    known, rows = score_queries.definitions(store), []
    for metric, value in answer.scores.items():
        reason = answer.unscored.get(metric)
        shown = f"not scored by the judge: {reason}" if reason else "unscorable"
        rows.append((metric, shown if value is None else f"{score_queries.scale_of(metric, known) * value:.1f}"))
    listing(("metric", "value"), rows, empty="not scored yet")
    if calls:
        _show_calls(calls, verbose)


def show_prediction(prediction: Prediction) -> None:
    """Print a prediction that belongs to no stored run."""
    if failed := prediction.notes.get(FAILED):
        out.print(Text(f"failed: {failed}", style="red"))
    else:
        out.print(Text("answer: ", style="bold") + Text(prediction.answer))
    if prediction.contexts is None and not failed:
        out.print(Text("contexts: not returned (judges cannot check the answer against what the app read)", style="yellow"))
    _show_record(prediction.record())
    usage = prediction.usage
    parts = (
        (usage.prompt_tokens or usage.completion_tokens, f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"),
        (usage.cost_usd, f"US$ {usage.cost_usd:.6g}"),
        (usage.own_s, f"{usage.own_s:.3g} s"),
    )
    if known := [text for value, text in parts if value]:  # 0: the system did not report it
        out.print(Text(f"took: {', '.join(known)}", style="dim"))


def show_ranking(prediction: Prediction, corpus: Corpus) -> None:
    """Print the first passages of a ranking that belongs to no stored run."""
    others = {passage.id: passage for passage in outside_of(prediction.notes)}
    for rank, item in enumerate(prediction.evidence[:SHOWN_RANKS], 1):
        passage = others[item.id] if item.id in others else corpus.get([item.id])[0]
        _show_ranked(Text(f"{rank:>3} {item.score:9.4g}  "), passage, item.id in others)
    if (more := len(prediction.evidence) - SHOWN_RANKS) > 0:
        out.print(Text(f"… {more:,} more", style="dim"))
    if not prediction.evidence:
        out.print(Text("no results", style="yellow"))
    out.print(Text(f"took: {prediction.usage.own_s:.3g} s", style="dim"))


def _show_ranked(place: Text, passage: Passage | EvidenceRow, outside: bool) -> None:
    title = Text(f"{passage.title}: " if passage.title else "", style="bold")
    mark = Text("not in the corpus: ", style="yellow") if outside else Text("")
    out.print(place + mark + title + Text(_shorten_text(" ".join(passage.text.split()), SHOWN_TEXT)))


def _show_record(record: Mapping[str, Any]) -> None:
    """Print the contexts, statements, searches and confidence that a system returned."""
    for number, item in enumerate(record.get("contexts", ()), 1):
        names = " ".join(str(item[name]) for name in ("id", "url", "score") if name in item)
        mark = Text("  not in the corpus", style="yellow") if item.get("matched") == [] else Text("")
        out.print(Text(f"context {number}: {names}") + mark)
        out.print(Text(f"     {_shorten_text(' '.join(item['text'].split()), SHOWN_TEXT)}"))
    for item in record.get("statements", ()):
        out.print(Text(f"statement: {item['text']}  [{', '.join(map(str, item['cites']))}]"))
    for item in record.get("searches", ()):
        out.print(Text(f"search: {item['query']} ({len(item['found'])} found, {len(item['used'])} used)"))
    if "confidence" in record:
        out.print(Text(f"confidence: {record['confidence']:.3g}"))


def _show_calls(calls: Sequence[Call], verbose: bool) -> None:
    cached = sum(call.cached for call in calls)
    tally = counted(len(calls), "call") + " of models" + (f", {cached:,} from the cache" if cached else "")
    out.print(Text(f"\n{tally}", style="bold") + Text("" if verbose else "  (-v or --json: whole)", style="dim"))
    for number, call in enumerate(calls, 1):
        facts = f"  {call.prompt_tokens:,} + {call.completion_tokens:,} tokens  {call.seconds:.3g} s" + "  cached" * call.cached
        facts += "  cut at max_tokens" * (call.finish_reason.lower() in CUT)
        out.print(Text(f"{number:>3} ") + Text(call.name, style="bold") + Text(facts) + Text("  failed" * call.failed, style="red"))
        thought = [("thought", call.thought)] if verbose and call.thought else []
        for name, text in (("prompt", call.prompt), *thought, ("reply ", call.reply)):
            if verbose:
                out.print(Text(f"    {name}", style="dim"))
                out.print(Padding(Text(text), (0, 0, 0, 6), expand=False))
            else:
                out.print(Text(f"    {name} ", style="dim") + Text(_ends(text, max(20, out.width - 12))))


def _ends(text: str, length: int) -> str:
    """Shorten a text to one line by cutting its middle, because a prompt ends with the question."""
    line = " ".join(text.split())
    half = (length - 3) // 2
    return line if len(line) <= length else f"{line[:half]} … {line[-half:]}"


def show_compared(result: Diff, quiet: bool, *, verbose: bool = False) -> None:
    """Print the comparison of two runs; settings that only one of them has are only named, unless `verbose`."""
    for name, run, runs in (("first ", result.first, result.first_runs), ("second", result.second, result.second_runs)):
        out.print(Text(f"{name}  {run.path} ({run.short}){f', mean of {len(runs)} runs' if len(runs) > 1 else ''}"))
    out.print()
    shown = [setting for setting in result.settings if verbose or not setting.one_sided]
    rows = [(setting.key, _setting(setting.first, setting.in_first), _setting(setting.second, setting.in_second)) for setting in shown]
    listing(("setting", "first", "second"), rows, empty="no setting has another value" if result.settings else "the settings are equal")
    if not verbose:
        _show_one_sided(result.settings)
    out.print()
    for line in [*result.drift, *result.doubts, *result.read, *([f"numbers are not paired: {result.unpaired}"] if result.unpaired else [])]:
        out.print(Text(line, style="yellow"))
    heads = labels([number.metric for number in result.numbers])
    lines = [(heads[number.metric], *_numbers(number)) for number in result.numbers]
    listing(
        ("metric", "first", "second", "difference", "p", "+/=/−"), lines, empty="neither run has been scored yet: ragmeter run --resume"
    )
    marked = [number for number in result.numbers if number.p_holm is not None and stars(number.p_holm)]
    if holds := dict.fromkeys(number.difference.generalizes for number in marked if number.difference is not None):
        out.print(Text(f"marks hold for {'; '.join(holds)}", style="dim"))
    for metric, why in _doubts(result.numbers).items():
        out.print(Text(f"? insufficient data on {heads[metric]}: {why}", style="dim"))
    for line in result.primary:
        out.print(Text(line, style="dim"))
    if result.numbers and not quiet:
        lower = [number.metric for number in result.numbers if not number.higher_is_better]
        note = values_shown(number.scale for number in result.numbers)
        note += f" {interval_words(text for line in lines for text in line[1:4])}; difference: second minus first, paired, "
        note += "with the interval of its test; * p < .05, ** p < .01 (Holm over the metrics shown)"
        note += "; +/=/−: questions on which the second is higher, equal, lower"
        if of_means := geometric_note((heads[number.metric], number.difference) for number in result.numbers):
            note += f"; {of_means}"
        out.print(Text(note + (f"; lower is better: {', '.join(lower)}" if lower else ""), style="dim"))
        out.print(Text(", ".join(f"{head} = {metric}" for metric, head in heads.items() if head != metric), style="dim"))
    if result.by is not None and result.questions:
        out.print()
        more = f", {len(result.questions)} of {result.apart}" if result.apart > len(result.questions) else ""
        out.print(Text(f"where they differ most on {result.by}{more}", style="bold"))
        scale = next((number.scale for number in result.numbers if number.metric == result.by), 100.0)
        for question in result.questions:
            _show_apart(question, scale)


def _show_one_sided(settings: Sequence[Setting]) -> None:
    """Print the names of settings that only one of two runs has, grouped."""
    only_first = [item.key for item in settings if item.second is None and item.first is not None]
    only_second = [item.key for item in settings if item.first is None and item.second is not None]
    for side, keys in ("first", only_first), ("second", only_second):
        groups: dict[str, list[str]] = {}
        for key in keys:
            group, _, name = key.rpartition(".")
            groups.setdefault(group, []).append(name)
        shown = [
            f"{group}.{{{', '.join(names)}}}" if len(names) > 1 else f"{group}.{names[0]}".lstrip(".") for group, names in groups.items()
        ]
        if shown:
            out.print(Text(f"only the {side} has {', '.join(shown)}  (-v: values)", style="dim"), soft_wrap=True)


def _doubts(numbers: Sequence[Number]) -> dict[str, str]:
    """Return, by metric, why its difference counts as insufficient data; without those that do not."""
    known = {item.metric: item.difference.doubt(item.p_holm) for item in numbers if item.difference is not None}
    return {metric: why for metric, why in known.items() if why}


def _numbers(item: Number) -> tuple[str, ...]:
    """Return both values of a metric, and the difference if there is one."""

    def value(estimate: Estimate | None) -> str:
        if estimate is None or estimate.value != estimate.value:
            return ABSENT
        return plus_minus(estimate.value, estimate.low, estimate.high, scale=item.scale)

    result, p = item.difference, item.p_holm
    if result is None:
        return value(item.first), value(item.second), ABSENT, ABSENT, ABSENT
    return (
        value(item.first),
        value(item.second),
        plus_minus(result.value, result.low, result.high, "{:+.1f}", item.scale)
        + stars(math.nan if p is None else p)
        + (" ?" if result.doubt(p) else ""),
        ABSENT if p is None or p != p else "<.0001" if p < 0.0001 else f"{p:.4f}",
        f"{result.wins}/{result.ties}/{result.losses}",
    )


def _setting(value: Any, there: bool) -> str:
    return _shorten_text(json.dumps(value, ensure_ascii=False), SHOWN_VALUE) if there else ABSENT


def _show_apart(apart: Apart, scale: float) -> None:
    out.print()
    out.print(Text(f"{apart.question.question}: {apart.question.text}"))
    out.print(Text("  gold    " + _shorten_text(" ".join(" | ".join(apart.question.golds).split()), SHOWN_ANSWER)))
    for side, value, row in apart.sides:
        answer = f"failed: {row.failed}" if row.failed else row.answer or "(none)"
        out.print(Text(f"  {side:<6}  {scale * value:5.1f}  {_shorten_text(' '.join(answer.split()), SHOWN_ANSWER)}"))

"""Check what models and endpoints did: cut or refused replies, cut prompts, other models, missing prices and options."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import zip_longest

from benchmarks.core.errors import counted
from methods.api import CUT, ENDPOINT_READ, ENDPOINTS, RERANKER_TRUNCATED, TRUNCATED, UNREAD_PASSAGES
from results.boards.health_lines import HealthLine, ids_of, names_of, percent, read_rows
from results.store.answer_queries import FAILED_CALL, LOST, lost_steps
from results.store.cost_queries import spendings
from results.store.failures import kind_of
from results.store.queries import OURS, RunRow
from results.store.redaction import without_secrets
from results.store.store import Store

TRUNCATED_SHARE = 0.05
"""Share of the passage text above which an encoder's truncation is reported."""
READ_SHARE = 0.5
"""A call is suspicious if the endpoint counts fewer tokens than this share of ragmeter's estimate."""
CHARACTERS_PER_TOKEN = 4
SHORTEST_PROMPT = 4_000
"""Minimum characters of a prompt whose tokens are estimated; every context window has room for a shorter one."""
LEAST_READ = 100
"""Minimum tokens; an endpoint that reports fewer for a long prompt reports a placeholder."""
SAMPLED_CALLS = 500
"""Calls per run whose prompts are compared with the endpoint's token counts."""
SUSPICIOUS_CALLS = 0.05


def replies(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about model replies that contain reasoning text, were cut at `max_tokens`, or are refusals."""
    counts = read_rows(
        store,
        f"""SELECT run, count_if(NOT failed OR finish_reason <> '' OR refusal <> ''), count_if(thought <> ''),
           count_if(lower(finish_reason) IN {CUT}), count_if(refusal <> '')
           FROM calls WHERE run IN ({{runs}}) GROUP BY run""",
        ids_of(runs),
    )
    names = names_of(runs)
    kinds = (("thoughts", "contain a thought"), ("cut", "were cut at max_tokens"), ("refusals", "are refusals"))
    for run, total, *numbers in counts:
        for (code, what), count in zip(kinds, numbers, strict=True):
            if count:
                text = f"{count:,} of {counted(total, 'reply', 'replies')} {what}"
                yield HealthLine(code, run, text, {"replies": total, code: count}, names[run])


USUAL_SHARE = 0.05
"""Share of a run's questions below which fallbacks are reported only if calls failed."""
_LISTED = 3


def fallbacks(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about answered questions for which a step of the method failed, so that the score is partly that of its fallback."""
    names, done = names_of(runs), {run.run: run.done - run.failed for run in runs if run.origin == OURS}
    if not done:
        return
    notes = read_rows(
        store,
        f"""SELECT run, {", ".join(f"to_json(json_extract(notes, '$.*.{key}'))::VARCHAR" for key in LOST)}, count(*)
            FROM predictions WHERE run IN ({{runs}}) AND failed IS NULL
            AND regexp_matches(CAST(notes AS VARCHAR), '"({"|".join(LOST)})"') GROUP BY ALL ORDER BY ALL""",
        list(done),
    )
    counts: dict[str, Counter[str]] = {}
    questions: Counter[str] = Counter()
    calls_failed = set()
    for run, *texts, count in notes:
        parts = zip_longest(*(json.loads(text or "[]") for text in texts))
        lost = sum((lost_steps(*values) for values in parts), Counter[str]())
        for why in {_reason(text) for text in lost}:
            counts.setdefault(run, Counter())[why] += count
        questions[run] += count if lost else 0
        calls_failed |= {run} if any(kind_of(text) in _OF_CALLS or text == FAILED_CALL for text in lost) else set()
    for run, count in questions.items():
        if count and (run in calls_failed or count >= USUAL_SHARE * done[run]):
            why = ", ".join(f"{text} {number:,}" for text, number in counts[run].most_common(_LISTED))
            text = f"in {count:,} of {counted(done[run], 'question')} a step failed and its fallback took its place ({why})"
            text += "; ragmeter run --fresh --reuse-replies repeats the failed calls" if run in calls_failed else ""
            yield HealthLine("fallbacks", run, text, {"questions": count, "reasons": dict(counts[run])}, names[run])


_OF_CALLS = ("limit", "refusal", "truncation", "memory", "endpoint")
"""Kinds of failures of model calls."""


_WORDS = {
    "unusable": "unusable reply",
    "completed": "incomplete order",
    "repaired": "repaired order",
    "no_room": "prompt too long",
    "no_end": "no end within the allowed steps",
}
"""Words for the reasons of methods whose name is not enough."""


def _reason(text: str) -> str:
    """Shorten the reason of a fallback to its kind, or to the words before its details."""
    kind = kind_of(text)
    if text in _WORDS:
        return _WORDS[text]
    return kind if kind in _OF_CALLS else without_secrets(text.partition(": ")[0].replace("_", " "))[:60]


_MORE = r"regexp_extract(right(prompt, 60), '\[… ([0-9,]+) more characters\]$', 1)"
_LENGTH = f"length(prompt) + coalesce(try_cast(replace({_MORE}, ',', '') AS BIGINT), 0)"
"""SQL for the characters of a prompt as sent, even if only a part is stored (`methods.api.kept`)."""


def prompt_tokens(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about endpoints that count far fewer prompt tokens than were sent: they probably truncate prompts."""
    names = names_of(runs)
    for (run,) in read_rows(store, "SELECT DISTINCT run FROM calls WHERE run IN ({runs}) ORDER BY run", list(names)):
        with store.database.reading() as connection:
            calls = connection.execute(
                f"SELECT {_LENGTH}, prompt_tokens FROM calls WHERE run = ? AND NOT failed AND prompt_tokens >= {LEAST_READ} "
                f"AND length(prompt) >= {SHORTEST_PROMPT} LIMIT {SAMPLED_CALLS}",
                [run],
            ).fetchall()
        cut = [
            (length / CHARACTERS_PER_TOKEN, reported) for length, reported in calls if reported < READ_SHARE * length / CHARACTERS_PER_TOKEN
        ]
        if cut and len(cut) >= SUSPICIOUS_CALLS * len(calls):
            sent, reported = (sum(column) for column in zip(*cut, strict=True))
            calls_cut = "" if len(cut) == len(calls) else f" in {len(cut):,} of {len(calls):,} calls"
            yield HealthLine(
                "prompt_tokens",
                run,
                f"the endpoint reports {percent(reported / sent)} of the prompt tokens sent{calls_cut}; raise its context length",
                {"share": reported / sent, "reported": reported, "estimated": round(sent), "calls": len(cut), "sampled": len(calls)},
                names[run],
            )


def unpriced(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about runs of unknown cost: no price is configured, or the endpoint does not count tokens."""
    names = names_of(runs)
    with store.database.reading() as connection:
        rows = spendings(connection, ids_of(runs))
    for run, missing, _, calls in rows:
        if missing:
            of = counted(max(calls, missing), "call")
            text = f"the cost of {missing:,} of {of} is unknown: no price is stated, or no usage was reported"
            yield HealthLine("unpriced", run, text, {"calls": calls, "unpriced": missing}, names[run])


def served_model(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn if another model than the requested one answered, or several versions of it answered questions of one run."""
    ids, names = ids_of(runs), names_of(runs)
    statements = read_rows(
        store,
        f"""SELECT run, CAST(notes -> '$.{ENDPOINTS}' AS VARCHAR), count(*) FROM predictions
            WHERE run IN ({{runs}}) AND contains(CAST(notes AS VARCHAR), '"{ENDPOINTS}"') GROUP BY ALL ORDER BY ALL""",
        ids,
    )
    counts: Counter[tuple[str, str, str]] = Counter()
    endpoints = {run.run: [who.partition(" at ")[0] for who in run.provenance.get("revisions", {})] for run in runs}
    unreadable: Counter[str] = Counter()
    for run, text, count in statements:
        value = json.loads(text) if text else []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            unreadable[run] += count
            continue
        for item in value:
            counts[run, str(item.get("asked", "")), str(item.get("model", ""))] += count
    for run, count in sorted(unreadable.items()):
        text = f"the served model of {counted(count, 'question')} cannot be read: notes.{ENDPOINTS} is malformed"
        yield HealthLine("unreadable_endpoints", run, text, {"questions": count}, names[run])
    for (run, requested, served), count in sorted(counts.items()):
        if requested and served and not is_same_model(requested, served):
            values = {"requested": requested, "served": served, "questions": count}
            yield HealthLine("served_model", run, f"requested {requested}, served {served}", values, names[run])
    for run in ids:
        for model in sorted({requested for of, requested, _ in counts if of == run}):
            versions = {served: count for (of, requested, served), count in sorted(counts.items()) if (of, requested) == (run, model)}
            # One name may stand for a model at each of several endpoints.
            if len(versions) > max(1, endpoints[run].count(model)):
                text = f"the endpoint changed for {model} between its questions: {_versions(versions)}"
                yield HealthLine("changed_model", run, text, {"requested": model, "served": versions}, names[run])


def _versions(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{model or 'not named'} {count:,}" for model, count in counts.items())


def judging_models(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn if several versions of a judge's model gave the verdicts on a board, which then differ in more than the answers.

    System fingerprints do not count: some endpoints change theirs from call to call.
    """
    ids = ids_of(runs)
    marks = ", ".join("?" * len(ids))
    with store.database.reading() as connection:
        rows = connection.execute(
            f"""SELECT judge, regexp_replace(model, '(, )?system_fingerprint [^,]*', '') AS served, count(*) FROM (
                    SELECT judge, model FROM judge_calls WHERE run IN ({marks}) AND call IS NOT NULL AND model <> ''
                    UNION ALL
                    SELECT judge, model FROM battle_calls WHERE one IN ({marks}) AND other IN ({marks}) AND call IS NOT NULL AND model <> ''
                ) WHERE served <> '' GROUP BY ALL ORDER BY ALL""",
            ids * 3,
        ).fetchall()
    for judge in dict.fromkeys(row[0] for row in rows):
        versions = {model: count for name, model, count in rows if name == judge}
        if len(versions) > 1:
            remedy = "state llm.revision and judge all runs again"
            text = f"the endpoint changed for {judge} between its verdicts: {_versions(versions)}; {remedy}"
            yield HealthLine("changed_judge", "", text, {"judge": judge, "served": versions})


_DATE = re.compile(r"[-@:_.](?:\d{3,8}|\d{4}-\d{2}-\d{2}|\d{2}-\d{2}(?:-\d{4})?|latest|preview(?:-.*)?|v\d+(?:\.\d+)*)$")


def is_same_model(requested: str, served: str) -> bool:
    """Return whether a served model name is the requested one or a dated version of it; provider and folder prefixes are
    ignored.
    """
    one, other = (name.rstrip("/").rpartition("/")[2].lower() for name in (requested, served))
    if one == other:
        return True
    bare = {name: _DATE.sub("", name) for name in (one, other)}
    # Only the served name may add a date: a request for one date that is answered by another is not the same model.
    return bare[other] == one or (one.endswith("-latest") and bare[one] == bare[other])


_UNREAD = {"failed": FAILED_CALL, "unusable": "unusable reply"}


def indexes(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about indexes: truncated passages, encoders without options of their family's preset, passages that no model read."""
    names = names_of(runs)
    query = "SELECT DISTINCT run, notes FROM indexing WHERE run IN ({runs}) AND notes IS NOT NULL ORDER BY ALL"
    for run, text in read_rows(store, query, ids_of(runs)):
        notes = json.loads(text)
        for key, part in ((TRUNCATED, "encoder"), (RERANKER_TRUNCATED, "reranker")):
            cut = notes.get(key)
            if cut and cut["share"] >= TRUNCATED_SHARE:
                what = f"{percent(cut['share'])} of the passage text exceeds the {part}'s {cut['limit']:,} tokens"
                yield HealthLine("truncated_passages", run, what, {"part": part, **cut}, names[run])
        if lost := notes.get(UNREAD_PASSAGES):
            why = ", ".join(f"{name} {lost[key]:,}" for key, name in _UNREAD.items() if lost[key])
            what = (
                f"{lost['failed'] + lost['unusable']:,} of {counted(lost['of'], 'passage')} are missing or incomplete in its graph ({why})"
            )
            yield HealthLine(UNREAD_PASSAGES, run, what, lost, names[run])
        if read := notes.get(ENDPOINT_READ):
            what = f"the embedding endpoint reports {percent(read['reported'] / read['estimated'])} of the passage tokens sent"
            yield HealthLine("prompt_tokens", run, f"{what}: it probably cuts passages; use shorter ones", read, names[run])
        if preset := notes.get("preset"):
            name = preset["name"]
            remedy = "these options" if preset.get("served") else f"preset: {name}"
            family = f"{preset['model']} looks like {name} but is used without {preset['options']}; set {remedy}"
            what = family if name else f"the files of {preset['model']} state {preset['options']}, which is not used; set these options"
            yield HealthLine("preset", run, what, preset, names[run])


_PROMPTED = ("longbench", "longbench_v2", "infinitebench")
"""Datasets with a prompt published by their authors."""


def prompts(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about runs that used ragmeter's prompt although the benchmark's authors published one."""
    names = names_of(runs)
    for run in runs:
        reading = run.description.get("reading")
        if isinstance(reading, dict) and reading.get("prompt") in _our_prompts() and run.dataset.split("/")[0].split(":")[0] in _PROMPTED:
            yield HealthLine("our_prompt", run.run, "our prompts, not the authors'", {"dataset": run.dataset}, names[run.run])


@cache
def _our_prompts() -> frozenset[str]:
    from benchmarks.datasets import infinitebench, longbench, longbench_v2

    ours = [item.prompt for item in longbench.SETS.values()] + [task.prompt for task in infinitebench.TASKS.values()]
    return frozenset((longbench_v2.PROMPT, *ours))

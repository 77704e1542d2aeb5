"""The health lines of a board: unusual facts about how its numbers were produced. A healthy run has none.

A score cannot say that replies were cut, that the endpoint read a part of the prompts, that another model answered or that
the encoder dropped half of the text. The store can: each check reads one kind of row and returns a line per unusual
run. Checks are functions of a store and runs in `CHECKS`; a module adds its own by appending to it.

A store without calls (`--no-calls`) has no replies, so those checks report nothing there.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from benchmarks.core.errors import UserError, counted
from benchmarks.text import em
from judges.judge import NOTHING_CLAIMED
from judges.metric import parse
from methods.api import ENDPOINT_READ, ENDPOINTS, OUTSIDE, PARTIAL, RERANKER_TRUNCATED, TRUNCATED, TURNS_UNREAD
from results.boards.names import first_name, repeat_of
from results.store.cost_queries import spendings
from results.store.failures import OTHER, kind_of
from results.store.queries import RunRow
from results.store.redaction import without_secrets
from results.store.score_queries import metric_ids
from results.store.store import Store

FEW = 10
"""Minimum number of equal answers to report; fewer may be chance."""
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
FORM_SHARE = 0.01
"""Share of a run's answers above which differences of form are reported."""
LONGEST_ANSWER = 200
"""Maximum characters; longer answers differ in more than form."""
MOST_COMPARED = 20_000
"""Maximum answers of a board that are compared leniently; from more, an evenly spaced sample is taken."""
SIGNIFICANT = 0.05
_LEADING = ("changed_judge", "changed_model")
"""Codes of lines that stand first, because values of one column cannot be compared."""


@dataclass(frozen=True, slots=True)
class HealthLine:
    """Warning about something unusual in a run or on a board.

    Attributes:
        code: Name of the check that found it.
        run: Id of the run; "" if the warning concerns the whole board.
        text: The finding as a sentence without a full stop.
        values: The numbers and names in it.
        method: The run's method as the board shows it.
    """

    code: str
    run: str
    text: str
    values: Mapping[str, Any] = field(default_factory=dict)
    method: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the line as a JSON object."""
        return asdict(self)


Check = Callable[[Store, Sequence[RunRow]], Iterable[HealthLine]]


def health(store: Store, runs: Sequence[RunRow]) -> tuple[HealthLine, ...]:
    """Run all health checks over runs that share a board, and return their warnings.

    Args:
        store: The store that holds the runs.
        runs: Runs on one dataset in one setting.
    """
    if not runs or not store.database.exists:
        return ()
    order = {run.run: position for position, run in enumerate(runs)}
    lines = [line for check in CHECKS for line in check(store, runs)]
    return tuple(sorted(lines, key=lambda line: (line.code not in _LEADING, order.get(line.run, len(order)))))


def health_text(lines: Iterable[HealthLine]) -> list[str]:
    """Render health warnings as text lines; equal texts about several methods are merged."""
    methods: dict[str, list[str]] = {}
    for line in lines:
        methods.setdefault(line.text, []).extend([line.method] if line.method else [])
    return [f"{names[0] if len(names) == 1 else f'{len(names)} methods'}: {text}" if names else text for text, names in methods.items()]


def percent(share: float) -> str:
    """Return a share as `6 %`; `<1 %` if it is smaller than half a percent."""
    return f"{100 * share:.0f} %" if share >= 0.005 else "<1 %"


def _rows(store: Store, query: str, runs: Sequence[str], *more: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a query after replacing `{runs}` by a list of the runs, so that DuckDB reads only their blocks."""
    with store.database.reading() as connection:
        return connection.execute(query.format(runs=", ".join("?" * len(runs))), [*runs, *more]).fetchall()


def _ids(runs: Sequence[RunRow]) -> list[str]:
    return list(dict.fromkeys(run.run for run in runs))


def _names(runs: Sequence[RunRow]) -> dict[str, str]:
    return {run.run: run.method for run in runs}


_CUT = ("length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded", "max_length", "token_limit")
"""Finish reasons of cut replies, as `methods.models.thoughts` reads them."""


def replies(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about model replies that contain reasoning text, were cut at `max_tokens`, or are refusals."""
    counts = _rows(
        store,
        f"""SELECT run, count_if(NOT failed OR finish_reason <> '' OR refusal <> ''), count_if(thought <> ''),
           count_if(lower(finish_reason) IN {_CUT}), count_if(refusal <> '')
           FROM calls WHERE run IN ({{runs}}) GROUP BY run""",
        _ids(runs),
    )
    names = _names(runs)
    kinds = (("thoughts", "contain a thought"), ("cut", "were cut at max_tokens"), ("refusals", "are refusals"))
    for run, total, *numbers in counts:
        for (code, what), count in zip(kinds, numbers, strict=True):
            if count:
                text = f"{count:,} of {counted(total, 'reply', 'replies')} {what}"
                yield HealthLine(code, run, text, {"replies": total, code: count}, names[run])


def data(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about caveats of a dataset: skipped records, synthetic questions, gold passages missing from the corpus."""
    rows = _rows(
        store,
        "SELECT DISTINCT unnest(d.caveats) FROM datasets d JOIN runs r ON r.dataset_fingerprint = d.fingerprint WHERE r.run IN ({runs})",
        _ids(runs),
    )
    for (text,) in sorted(rows):
        yield HealthLine("data", "", text)


_MORE = r"regexp_extract(right(prompt, 60), '\[… ([0-9,]+) more characters\]$', 1)"
_LENGTH = f"length(prompt) + coalesce(try_cast(replace({_MORE}, ',', '') AS BIGINT), 0)"
"""SQL for the characters of a prompt as sent, even if only a part is stored (`methods.api.kept`)."""


def prompt_tokens(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about endpoints that count far fewer prompt tokens than were sent: they probably truncate prompts."""
    names = _names(runs)
    for (run,) in _rows(store, "SELECT DISTINCT run FROM calls WHERE run IN ({runs}) ORDER BY run", list(names)):
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
    names = _names(runs)
    with store.database.reading() as connection:
        rows = spendings(connection, _ids(runs))
    for run, missing, _, calls in rows:
        if missing:
            of = counted(max(calls, missing), "call")
            text = f"the cost of {missing:,} of {of} is unknown: no price is stated, or no usage was reported"
            yield HealthLine("unpriced", run, text, {"calls": calls, "unpriced": missing}, names[run])


def served_model(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn if another model than the requested one answered, or several versions of it answered questions of one run."""
    ids, names = _ids(runs), _names(runs)
    statements = _rows(
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
    ids = _ids(runs)
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


def contexts(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about retrieved contexts that match no passage of the corpus; ranking metrics count them as misses."""
    names = _names(runs)
    rows = _rows(
        store,
        """SELECT run, count(*), count(*) FILTER (json_array_length(shown, '$.matched') = 0) FROM
           (SELECT run, unnest(from_json(contexts, '["JSON"]')) AS shown FROM predictions WHERE run IN ({runs}) AND contexts IS NOT NULL)
           GROUP BY run""",
        _ids(runs),
    )
    for run, count, unmatched in rows:
        if unmatched:
            text = f"{percent(unmatched / count)} of its contexts ({unmatched:,} of {count:,}) match no passage of the corpus"
            yield HealthLine("unmatched_contexts", run, text, {"contexts": count, "unmatched": unmatched}, names[run])


def retrieved(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about retrieved texts that match no passage of the corpus, and about passages that were found by a part."""
    names, ids = _names(runs), _ids(runs)
    rows = _rows(
        store,
        f"""SELECT run, sum(coalesce(len(json_keys(notes, '$.{OUTSIDE}')), 0))::BIGINT,
           sum(coalesce(try_cast(notes->>'$.{PARTIAL}' AS BIGINT), 0))::BIGINT FROM predictions WHERE run IN ({{runs}}) GROUP BY run""",
        ids,
    )
    if not any(outside or partial for _, outside, partial in rows):
        return
    ranked = dict(_rows(store, "SELECT run, count(*) FROM evidence WHERE run IN ({runs}) GROUP BY run", ids))
    for run, outside, partial in rows:
        total = ranked.get(run, 0)
        if outside:
            text = f"{outside:,} of its {total:,} results are texts that match no single passage of the corpus, and count as misses"
            yield HealthLine("unmatched_results", run, text, {"results": total, "unmatched": outside}, names[run])
        if partial:
            text = f"{partial:,} of its {total:,} results are passages found by a part of their text, or in a longer text"
            yield HealthLine("partial_results", run, text, {"results": total, "partial": partial}, names[run])


def rankings(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about runs that name no passage, such as apps without contexts: their metrics of rankings are 0."""
    ranked = {run for (run,) in _rows(store, "SELECT DISTINCT run FROM evidence WHERE run IN ({runs})", _ids(runs))}
    for run in runs:
        if run.run in ranked or run.setting == "closed_book":
            continue
        metrics = [metric for metric in metric_ids(store, [run.run]) if _reads_rankings(metric)]
        if metrics:
            which = f"{metrics[0]} and {len(metrics) - 1} more are" if len(metrics) > 1 else f"{metrics[0]} is"
            yield HealthLine("no_rankings", run.run, f"no answer names a passage, so {which} 0", {"metrics": metrics}, run.method)


def _reads_rankings(metric: str) -> bool:
    with suppress(UserError):  # a metric of another version
        return "ranking" in parse(metric).entry.needs
    return False


def turns(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about methods that ignore the earlier turns of conversational questions."""
    for run in {run.run: run for run in runs}.values():
        if run.provenance.get(TURNS_UNREAD):
            yield HealthLine("turns_unread", run.run, "it reads the questions without their earlier turns", {}, run.method)


def answers(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about runs whose answers are all identical or all empty although the gold answers differ."""
    able = [run for run in runs if run.kind != "control" and not run.not_stated]
    if not able:
        return
    # A run whose answers are not scored may have no reader.
    rows = _rows(
        store,
        """SELECT run, count(*), any_value(answer) FROM predictions WHERE run IN ({runs}) AND failed IS NULL
           AND run IN (SELECT run FROM summaries JOIN metrics ON id = metric WHERE metric_group IN ('answer', 'text', 'judge', 'joint'))
           GROUP BY run HAVING count(*) >= ? AND min(answer) = max(answer)""",
        _ids(able),
        FEW,
    )
    by_run, golds = {run.run: run for run in able}, _golds(store, able) if rows else {}
    for run, count, answer in rows:
        row = by_run[run]
        if not answer.strip():
            yield HealthLine("empty_answers", run, f"all {count:,} answers are empty", {"answers": count}, row.method)
        elif not all(em(answer, accepted, "lenient") for accepted in golds.get(row.dataset_fingerprint, ())):
            text = f"all answers are identical: {_short(answer)!r}"
            yield HealthLine("identical_answers", run, text, {"answers": count, "answer": _short(answer)}, row.method)


def repeats(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about methods whose repeats gave identical answers and passages: they do not show how answers vary."""
    series: dict[tuple[str, str], dict[int, dict[int, RunRow]]] = {}
    for run in runs:
        series.setdefault((run.experiment, first_name(run.method)), {}).setdefault(run.seed, {})[repeat_of(run.method)] = run
    able = [run for seeds in series.values() for members in seeds.values() if len(members) > 1 for run in members.values()]
    if not able:
        return
    ids = _ids(able)
    answered = _rows(
        store, "SELECT run, count(*), bit_xor(hash(question, answer, failed)) FROM predictions WHERE run IN ({runs}) GROUP BY run", ids
    )
    passages = _rows(store, "SELECT run, bit_xor(hash(question, rank, id)) FROM evidence WHERE run IN ({runs}) GROUP BY run", ids)
    retrieved = dict(passages)
    contents = {run: (*answer, retrieved.get(run)) for run, *answer in answered}
    for (_, name), seeds in series.items():
        by_seed = [[contents[run.run] for run in members.values() if run.run in contents] for members in seeds.values()]
        by_seed = [known for known in by_seed if len(known) > 1]
        if by_seed and all(len(set(known)) == 1 for known in by_seed):
            # Trainings with other seeds differ although the repeats of each are equal.
            number = sum(map(len, by_seed)) if len({known[0] for known in by_seed}) == 1 else len(by_seed[0])
            text = f"all {number} repeats are equal: raise the model's `temperature`, or set `repeats: 1` for this method"
            yield HealthLine("equal_repeats", next(iter(next(iter(seeds.values())).values())).run, text, {"repeats": number}, name)


def _short(text: str, most: int = 60) -> str:
    line = without_secrets(" ".join(text.split()))
    return line if len(line) <= most else f"{line[:most]}…"


def _golds(store: Store, runs: Sequence[RunRow]) -> dict[str, list[list[str]]]:
    """Return the distinct golds of the questions with gold answers, by dataset."""
    data = list(dict.fromkeys(run.dataset_fingerprint for run in runs))
    return dict(
        store.database.rows(
            """SELECT dataset_fingerprint, list(DISTINCT golds) FROM questions
               WHERE list_contains(?, dataset_fingerprint) AND len(golds) > 0 GROUP BY 1""",
            [data],
        )
    )


_DROPPED = r"""answer <> '' AND contains(raw, answer)
    AND regexp_matches(string_split(raw, answer)[-1], '\n[ \t>*_#-]*[\p{{L}}\p{{N}}]')"""
"""Pattern of a reply with text after the answer's last mention, other than Markdown marks, a fence, a special token or the end of JSON."""
_REFUSES = (
    r"^\W*(?:(?:(?:i['’]?m|i am)(?: so| very| truly)? sorry|sorry|i apologi[sz]e|unfortunately|as an ai\b[^.\n]{0,60}?)\W+(?:but\W+)?)*"
    r"(?:i|we)(?:['’]m| am|['’]re| are)?\s+(?:can(?:no|['’]?)t|can not|won['’]?t|will not|(?:must )?decline to|unable to|not able to)\s+"
    r"(?:(?:help|assist)(?: you)?(?: with\b|\W*$)|(?:comply|engage|continue) with\b|participate in\b|fulfil"
    r"|(?:provide|give|discuss|create|generate|support|share) (?:this|that|such|any|assistance|help|content|instructions|information)\b)"
    r"|^\W*(?:很?抱歉|对不起)\W*我(?:无法|不能)(?:协助|帮助|提供)"
    r"|^[\s\p{P}]*(?:(?:es )?tut mir (?:sehr )?leid[\s\p{P}]+(?:aber )?|leider )?"
    r"(?:ich kann|kann ich)(?: \p{L}+){0,3} nicht (?:weiter)?helfen"
    r"|^[\s\p{P}]*(?:(?:je suis )?(?:désolé|navré)e?[\s\p{P}]+(?:mais )?)?je ne (?:peux|puis) pas (?:vous |t['’])?(?:aider|assister)"
    r"|^[\s\p{P}]*(?:lo siento[\s\p{P}]+(?:pero )?)?no puedo (?:ayudar|asistir)"
    r"|^[\s\p{P}]*(?:mi dispiace[\s\p{P}]+(?:ma )?)?non posso (?:aiutar|assister)"
    r"|^[\s\p{P}]*(?:(?:desculpe|sinto muito|lamento)[\s\p{P}]+(?:mas )?)?(?:eu )?não posso (?:te |lhe )?ajudar"
    r"|^[\s\p{P}]*(?:(?:извините|простите|к сожалению)[\s\p{P}]+(?:но )?)?я не могу (?:вам )?помочь"
    r"|^[\s\p{P}]*(?:申し訳|すみません)[^\n]{0,30}(?:お手伝い|お応え|対応|支援|提供)[^\n]{0,12}(?:できません|できかねます)"
    r"|^[\s\p{P}]*죄송[^\n]{0,30}(?:도와|도움을|제공할)[^\n]{0,12}수 ?(?:는|가)? ?없"
)
_GROUNDED = (
    r"passage|context|document|evidence|sources?\b|article|provided|mention|the (?:given )?text"
    r"|(?:no|any|enough|sufficient) (?:\w+ )?information"
)
"""Words of answers that decline for lack of evidence, which some benchmarks expect."""


def written(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about replies that continue after the answer, and about refusals given as ordinary answers."""
    able = [run for run in runs if run.kind != "control"]
    if not able:
        return
    rows = _rows(
        store,
        f"""WITH given AS (SELECT run, answer, raw FROM predictions WHERE run IN ({{runs}}) AND failed IS NULL),
            marked AS (SELECT *, regexp_matches(answer, ?, 'i') AND NOT regexp_matches(answer, ?, 'i') AS refuses FROM given)
            SELECT run, count(*), count_if({_DROPPED}), count_if(refuses), min(answer) FILTER (refuses) FROM marked GROUP BY run""",
        _ids(able),
        _REFUSES,
        _GROUNDED,
    )
    names = _names(able)
    for run, total, dropped, refusals, example in rows:
        if dropped:
            what = f"{counted(dropped, 'reply goes', 'replies go')} on after the line that was read as the answer; the rest is not scored"
            yield HealthLine("dropped_lines", run, f"{what} ({total:,} answers)", {"answers": total, "dropped": dropped}, names[run])
        if refusals:
            text = f"{refusals:,} of {counted(total, 'answer')} refuse to help: {_short(example)!r}"
            yield HealthLine("written_refusals", run, text, {"answers": total, "refusals": refusals}, names[run])


_SKELETON = "regexp_replace(regexp_replace(lower({}), '\\b(a|an|the)\\b', ' ', 'g'), '[^a-z0-9]+', '', 'g')"
_MAY_BE_FORM = f"""(strlen(p.answer) <> length(p.answer) OR strlen(array_to_string(q.golds, '')) <> length(array_to_string(q.golds, ''))
    OR regexp_matches(p.answer, '[&%]|percent|per cent|^\\W*(yes|no)\\b', 'i')
    OR list_contains(list_transform(q.golds, lambda g: {_SKELETON.format("g")}), {_SKELETON.format("p.answer")}))"""
"""SQL condition for answers that may differ from the gold only in form: non-ASCII characters, a sign with a word, a verdict, or a gold
answer's letters.
"""


def form(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about answers that exact match counts as wrong although they differ from a gold answer only in form
    (`benchmarks.lenient`).
    """
    able = [run for run in runs if run.kind != "control"]
    if not able:
        return
    metrics = _rows(store, "SELECT DISTINCT metric FROM summaries WHERE run IN ({runs}) ORDER BY 1", _ids(able))
    official = next((metric for (metric,) in metrics if _is_official_match(metric)), None)
    if official is None:
        return
    every = {run.run: run for run in able}.values()
    step = max(1, -(-sum(run.done for run in every) // MOST_COMPARED))
    rows = _rows(
        store,
        f"""SELECT s.run, p.answer, q.golds FROM scores s
            JOIN predictions p ON p.run = s.run AND p.question = s.question
            JOIN questions q ON q.question = s.question
            WHERE s.run IN ({{runs}}) AND q.dataset_fingerprint = ? AND s.metric = ? AND s.value = 0 AND p.failed IS NULL
            AND hash(s.question) % {step} = 0 AND p.answer <> '' AND length(p.answer) <= {LONGEST_ANSWER}
            AND NOT coalesce(q.record ->> '$.answer_set' = 'true', false)
            AND {_MAY_BE_FORM}""",
        _ids(able),
        able[0].dataset_fingerprint,
        official,
    )
    differing = Counter(run for run, answer, golds in rows if em(answer, golds, "lenient"))
    for run in every:
        count, of = differing[run.run], -(-run.done // step)
        if count and count >= FORM_SHARE * of:
            verb = "answer differs" if count == 1 else "answers differ"
            sampled = f" of {of:,} sampled" if step > 1 else ""
            text = f"{count:,}{sampled} {verb} from gold only in form; em(rules=lenient) accepts such answers"
            values = {"answers": count, "of": of, "metric": official}
            yield HealthLine("form_only", run.run, text, values, run.method)


def _is_official_match(metric: str) -> bool:
    with suppress(UserError):  # a metric of another version
        parsed = parse(metric) if metric.startswith("em") else None
        return parsed is not None and parsed.entry.id == "em" and parsed.values["rules"] not in ("lenient", "strict")
    return False


def encoders(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about encoders that truncate passages, or that lack options of their model family's preset."""
    names = _names(runs)
    query = "SELECT DISTINCT run, notes FROM indexing WHERE run IN ({runs}) AND notes IS NOT NULL ORDER BY ALL"
    for run, text in _rows(store, query, _ids(runs)):
        notes = json.loads(text)
        for key, part in ((TRUNCATED, "encoder"), (RERANKER_TRUNCATED, "reranker")):
            cut = notes.get(key)
            if cut and cut["share"] >= TRUNCATED_SHARE:
                what = f"{percent(cut['share'])} of the passage text exceeds the {part}'s {cut['limit']:,} tokens"
                yield HealthLine("truncated_passages", run, what, {"part": part, **cut}, names[run])
        if read := notes.get(ENDPOINT_READ):
            what = f"the embedding endpoint reports {percent(read['reported'] / read['estimated'])} of the passage tokens sent"
            yield HealthLine("prompt_tokens", run, f"{what}: it probably cuts passages; use shorter ones", read, names[run])
        if preset := notes.get("preset"):
            what = f"{preset['model']} looks like {preset['name']} but is used without {preset['options']}; set preset: {preset['name']}"
            yield HealthLine("preset", run, what, preset, names[run])


def verdicts(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about judges with missing or unreadable verdicts."""
    ids = _ids(runs)
    judged = _rows(store, "SELECT judge, unscored, count(*) FROM judge_calls WHERE run IN ({runs}) GROUP BY ALL ORDER BY ALL", ids)
    marks = ", ".join("?" * len(ids))
    with store.database.reading() as connection:
        judged += connection.execute(
            f"""SELECT judge, unscored, count(*) FROM battle_calls WHERE one IN ({marks}) AND other IN ({marks})
                GROUP BY ALL ORDER BY ALL""",
            [*ids, *ids],
        ).fetchall()
    totals: Counter[str] = Counter()
    missing: dict[str, Counter[str]] = {}
    for judge, reason, count in judged:
        totals[judge] += count
        # An answer without claims has no claim to check; its score shows it.
        if reason is not None and reason not in NOTHING_CLAIMED:
            missing.setdefault(judge, Counter())[kind_of(reason)] += count
    for judge, kinds in sorted(missing.items()):
        total, count = totals[judge], kinds.total()
        why = ", ".join(f"{kind} {number:,}" for kind, number in kinds.most_common())
        what = "could not be read" if set(kinds) == {OTHER} else f"are missing ({why})"
        text = f"{count:,} of {counted(total, 'verdict')} of {judge} {what}"
        yield HealthLine("unread_verdicts", "", text, {"judge": judge, "verdicts": total, "unread": count, "kinds": dict(kinds)})


def gold_answers(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about judges that prefer another row significantly to the control `gold_answer`."""
    golds = [run for run in runs if run.method_id == "gold_answer"]
    if not golds:
        return
    names = _names(runs)
    with store.database.reading() as connection:
        rows = connection.execute(
            """SELECT judge, one, other, question, avg(CASE verdict WHEN 'one' THEN 1 WHEN 'other' THEN 0 ELSE 0.5 END)
               FROM battles JOIN judges USING (judge) WHERE dataset_fingerprint = $data AND setting = $setting
               AND verdict IS NOT NULL AND criterion = card ->> '$.criteria[0]'
               AND (list_contains($golds, one) OR list_contains($golds, other)) GROUP BY ALL""",
            {"data": runs[0].dataset_fingerprint, "setting": runs[0].setting, "golds": [run.run for run in golds]},
        ).fetchall()
    counts: dict[tuple[str, str, str], Counter[str]] = {}
    for judge, one, other, _, share in rows:
        for gold, rival, own in ((one, other, share), (other, one, 1 - share)):
            if gold in {run.run for run in golds} and rival in names:
                counts.setdefault((judge, gold, rival), Counter())["won" if own > 0.5 else "lost" if own < 0.5 else "tied"] += 1
    for (judge, gold, rival), count in sorted(counts.items()):
        won, lost = count["won"], count["lost"]
        if lost > won and _tail(won + lost, lost) < SIGNIFICANT:
            decided = counted(won + lost, "decided question")
            text = f"the control {names[gold]} loses to {names[rival]} on {lost:,} of {decided}, so check {judge}"
            values = {"judge": judge, "rival": names[rival], "won": won, "lost": lost, "tied": count["tied"]}
            yield HealthLine("gold_answer_loses", gold, text, values)


def _tail(n: int, k: int) -> float:
    """Return the probability of at least k heads in n fair coin tosses."""
    return sum(math.comb(n, hits) for hits in range(k, n + 1)) / 2**n


_PROMPTED = ("longbench", "longbench_v2", "infinitebench")
"""Datasets with a prompt published by their authors."""


def prompts(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about runs that used ragmeter's prompt although the benchmark's authors published one."""
    names = _names(runs)
    for run in runs:
        reading = run.description.get("reading")
        if isinstance(reading, dict) and reading.get("prompt") in _our_prompts() and run.dataset.split("/")[0].split(":")[0] in _PROMPTED:
            yield HealthLine("our_prompt", run.run, "our prompts, not the authors'", {"dataset": run.dataset}, names[run.run])


@cache
def _our_prompts() -> frozenset[str]:
    from benchmarks.datasets import infinitebench, longbench, longbench_v2

    ours = [item.prompt for item in longbench.SETS.values()] + [task.prompt for task in infinitebench.TASKS.values()]
    return frozenset((longbench_v2.PROMPT, *ours))


CHECKS: list[Check] = [
    data,
    rankings,
    replies,
    prompt_tokens,
    unpriced,
    served_model,
    prompts,
    contexts,
    retrieved,
    turns,
    answers,
    repeats,
    written,
    form,
    encoders,
    verdicts,
    judging_models,
    gold_answers,
]
"""All checks, in the order of their lines for a run."""

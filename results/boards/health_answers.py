"""Check the answers and retrieved texts of runs: equal or empty ones, lost ones, and ones that differ from the gold only in form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from benchmarks.core.errors import UserError, counted
from benchmarks.text import em
from judges.metric import parse
from methods.api import OUTSIDE, PARTIAL
from results.boards.health_lines import HealthLine, ids_of, names_of, percent, read_rows
from results.boards.names import first_name, repeat_of
from results.store.queries import RunRow
from results.store.redaction import without_secrets
from results.store.score_queries import metric_ids
from results.store.store import Store

FEW = 10
"""Minimum number of equal answers to report; fewer may be chance."""
FORM_SHARE = 0.01
"""Share of a run's answers above which differences of form are reported."""
LONGEST_ANSWER = 200
"""Maximum characters; longer answers differ in more than form."""
MOST_COMPARED = 20_000
"""Maximum answers of a board that are compared leniently; from more, an evenly spaced sample is taken."""


def contexts(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about retrieved contexts that match no passage of the corpus; ranking metrics count them as misses."""
    names = names_of(runs)
    named = {row.run for row in runs if "contexts" in row.not_stated}
    rows = read_rows(
        store,
        """SELECT run, count(*), count(*) FILTER (json_array_length(shown, '$.matched') = 0) FROM
           (SELECT run, unnest(from_json(contexts, '["JSON"]')) AS shown FROM predictions WHERE run IN ({runs}) AND contexts IS NOT NULL)
           GROUP BY run""",
        ids_of(runs),
    )
    for run, count, unmatched in rows:
        if unmatched:
            text = f"{percent(unmatched / count)} of its contexts ({unmatched:,} of {count:,}) match no passage of the corpus"
            text += ", or name a document of several passages, which only metrics with level=documents count" * (run in named)
            yield HealthLine("unmatched_contexts", run, text, {"contexts": count, "unmatched": unmatched}, names[run])
    for row in runs:
        if "contexts" in row.not_stated:
            text = "it names its contexts without their texts, so faithfulness and has_answer have no value"
            yield HealthLine("contexts_without_texts", row.run, text, {}, row.method)


def retrieved(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about retrieved texts that match no passage of the corpus, and about passages that were found by a part."""
    names, ids = names_of(runs), ids_of(runs)
    rows = read_rows(
        store,
        f"""SELECT run, sum(coalesce(len(json_keys(notes, '$.{OUTSIDE}')), 0))::BIGINT,
           sum(coalesce(try_cast(notes->>'$.{PARTIAL}' AS BIGINT), 0))::BIGINT FROM predictions WHERE run IN ({{runs}}) GROUP BY run""",
        ids,
    )
    if not any(outside or partial for _, outside, partial in rows):
        return
    ranked = dict(read_rows(store, "SELECT run, count(*) FROM evidence WHERE run IN ({runs}) GROUP BY run", ids))
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
    ranked = {run for (run,) in read_rows(store, "SELECT DISTINCT run FROM evidence WHERE run IN ({runs})", ids_of(runs))}
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


def answers(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about runs whose answers are all identical or all empty although the gold answers differ."""
    able = [run for run in runs if run.kind != "control" and "answer" not in run.not_stated]
    if not able:
        return
    # A run whose answers are not scored may have no reader.
    rows = read_rows(
        store,
        """SELECT run, count(*), any_value(answer) FROM predictions WHERE run IN ({runs}) AND failed IS NULL
           AND run IN (SELECT run FROM summaries JOIN metrics ON id = metric WHERE metric_group IN ('answer', 'text', 'judge', 'joint'))
           GROUP BY run HAVING count(*) >= ? AND min(answer) = max(answer)""",
        ids_of(able),
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
    ids = ids_of(able)
    answered = read_rows(
        store, "SELECT run, count(*), bit_xor(hash(question, answer, failed)) FROM predictions WHERE run IN ({runs}) GROUP BY run", ids
    )
    passages = read_rows(store, "SELECT run, bit_xor(hash(question, rank, id)) FROM evidence WHERE run IN ({runs}) GROUP BY run", ids)
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
    rows = read_rows(
        store,
        f"""WITH given AS (SELECT run, answer, raw FROM predictions WHERE run IN ({{runs}}) AND failed IS NULL),
            marked AS (SELECT *, regexp_matches(answer, ?, 'i') AND NOT regexp_matches(answer, ?, 'i') AS refuses FROM given)
            SELECT run, count(*), count_if({_DROPPED}), count_if(refuses), min(answer) FILTER (refuses) FROM marked GROUP BY run""",
        ids_of(able),
        _REFUSES,
        _GROUNDED,
    )
    names = names_of(able)
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
    metrics = read_rows(store, "SELECT DISTINCT metric FROM summaries WHERE run IN ({runs}) ORDER BY 1", ids_of(able))
    official = next((metric for (metric,) in metrics if _is_official_match(metric)), None)
    if official is None:
        return
    every = {run.run: run for run in able}.values()
    step = max(1, -(-sum(run.done for run in every) // MOST_COMPARED))
    rows = read_rows(
        store,
        f"""SELECT s.run, p.answer, q.golds FROM scores s
            JOIN predictions p ON p.run = s.run AND p.question = s.question
            JOIN questions q ON q.question = s.question
            WHERE s.run IN ({{runs}}) AND q.dataset_fingerprint = ? AND s.metric = ? AND s.value = 0 AND p.failed IS NULL
            AND hash(s.question) % {step} = 0 AND p.answer <> '' AND length(p.answer) <= {LONGEST_ANSWER}
            AND NOT coalesce(q.record ->> '$.answer_set' = 'true', false)
            AND {_MAY_BE_FORM}""",
        ids_of(able),
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

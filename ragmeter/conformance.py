"""The contract as checks that any method or dataset, ours or a plug-in's, must pass.

Each check answers one question about the thing; `ragmeter method check` and `ragmeter data check` print them, the tests
run them over everything that is registered.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.text import Text

from benchmarks import registry as datasets
from benchmarks import settings
from benchmarks.core.errors import UserError
from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import Benchmark
from benchmarks.schema import GoldQuery, Passage, Query, Question, sentence_of
from benchmarks.settings import Setting
from benchmarks.text import has_answer, is_scorable_gold
from judges.metric import parse as parse_metric
from judges.metrics.longbench import code_line
from judges.score import score
from methods.api import FAILED, SUPPORT, TRIPLES, Control, Evidence, Method, Prediction, Services
from methods.flow import ContractError
from methods.pipeline import assemble
from methods.registry import METHODS, Component
from ragmeter.experiment import candidate_retriever
from ragmeter.show.console import out

WORLD = "worlds/multihop:validation"
GRAPHS = "worlds/graph:validation"
QUESTIONS = 12
GRAPH_SIZE = 60
"""Number of triples in the graph of a question; the corpus consists of the triples of these graphs."""
ALONE = 4
"""Number of questions with a corpus of only their candidates, because each requires an index."""
SEED = 7
SCORE_TOLERANCE = 1e-5
"""Relative tolerance of scores, which may differ by float noise between batches; the order may not."""


@dataclass(frozen=True)
class Check:
    """Result of one conformance check: its name, whether it passed, and a detail."""

    name: str
    passed: bool
    detail: str = ""


def show_checks(what: str, checks: Sequence[Check]) -> None:
    """Print the checks and the number of passed ones."""
    for check in checks:
        mark = Text("✓ ", style="green") if check.passed else Text("✗ ", style="red")
        out.print(mark + Text(check.name) + Text(f"  {check.detail}" if check.detail else "", style="red"))
    out.print(Text(f"{what}: {sum(check.passed for check in checks)} of {len(checks)} checks passed"))


def check_method(component: Component) -> list[Check]:
    """Run all conformance checks on a method, over a small validation world (over its graphs, if the method ranks triples).

    A retriever, reranker, compressor or reader is completed to a pipeline with offline default parts.
    """
    try:
        return _method_checks(component)
    except ContractError as error:
        return [Check("results are one per query, from a role of one form", False, str(error))]


def _method_checks(component: Component) -> list[Check]:
    benchmark = _graphs() if component.entry.over_triples else datasets.load(WORLD, {"questions": QUESTIONS})
    control = component.entry.kind == "control"
    checks: list[Check] = []

    def build() -> Method:
        method = _complete(component)
        if control and isinstance(method, Control):
            method.prepare(benchmark.questions)
        method.index(benchmark.corpus)
        return method

    method = build()
    asks_gold = isinstance(method, Control)
    checks.append(
        Check(
            "gold reaches declared controls only",
            control or not asks_gold,
            "it has a `prepare` that receives gold, but is not registered with kind='control'",
        )
    )
    queries = [question.gold_query() if control else question.query() for question in benchmark.questions]
    first = list(method.answer(iter(queries)))
    by_id = {prediction.question_id: prediction for prediction in first}
    ids = {query.id for query in queries}
    checks += [
        Check("answers every query once", len(first) == len(queries) and set(by_id) == ids, _answered(first, ids)),
        _each("evidence is unique", first, _repeated),
        _each("evidence ids are of the corpus", first, lambda p: _foreign(p, benchmark)),
        _each("evidence keeps to the candidates", first, lambda p: _outside(p, queries)),
        _each("usage is filled", first, _bad_usage),
        _each("a prediction survives JSON", first, _json_change),
        _each("no question failed", first, lambda p: str(p.notes[FAILED]) if FAILED in p.notes else None),
        Check("deterministic under a seed", *same(by_id, build().answer(iter(queries)), "a second build")),
    ]
    singles = (prediction for query in queries for prediction in method.answer(iter([query])))
    checks.append(Check("invariant to the batch", *same(by_id, singles, "one query at a time")))
    backwards = method.answer(iter(queries[::-1]))
    checks.append(Check("invariant to the order", *same(by_id, backwards, "the reverse order")))
    own = [query for query in queries if query.candidates][:ALONE]
    expected = {query.id: by_id[query.id] for query in own if query.id in by_id}
    again = alone(build(), own, benchmark.corpus)
    checks.append(Check("invariant to the other questions", *same(expected, again, "a corpus of only the question's candidates")))
    stopped = method.answer(iter(queries))
    before = next(stopped)
    stopped.close()  # type: ignore[attr-defined]
    rest = method.answer(query for query in queries if query.id != before.question_id)
    checks.append(Check("invariant to interruptions", *same(by_id, [before, *rest], "an interrupted run, resumed,")))
    if not control:
        closed = list(method.answer(replace(query, candidates=()) for query in queries))
        checks.append(_each("closed book leaves no evidence", closed, lambda p: p.evidence[0].id if p.evidence else None))
    return [replace(check, detail="") if check.passed else check for check in checks]


def alone(method: Method, queries: Iterable[Query], corpus: Corpus) -> Iterator[Prediction]:
    """Answer each query separately, with a corpus of only its candidates (sorted by id), so that nothing else can influence the answer."""
    for query in queries:
        ids = sorted(query.candidates or ())
        if isinstance(corpus, TripleCorpus):
            method.index(TripleCorpus.of_triples(corpus.triples.take(corpus.rows_of(ids))))
        else:
            method.index(Corpus.of(corpus.get(ids)))
        yield from method.answer(iter([query]))


def _graphs() -> Benchmark:
    world = datasets.load(GRAPHS, {"questions": QUESTIONS, "triples": GRAPH_SIZE})
    triples = [triple for question in world.questions for triple in world.extra["graphs"][question.id]]
    return replace(world, corpus=TripleCorpus.of_triples(triples))


def _complete(component: Component) -> Method:
    """Return the method on its own, or in the simplest pipeline with it."""
    services = Services(seed=SEED)
    kind = component.entry.kind
    if kind in {"method", "control"}:
        return assemble(component, services)
    retriever = component if kind == "retriever" else Component.of("bm25")
    reader = component if kind == "reader" else _reader_of(component)
    return assemble(
        retriever,
        services,
        reader=reader,
        rerankers=(component,) if kind == "reranker" else (),
        compressor=component if kind == "compressor" else None,
    )


def _reader_of(component: Component) -> Component:
    """Return the default reader; for a compressor into vectors the one for them, with the same model."""
    memory = component.entry.memory
    if memory is None:
        return Component.of("extractive")
    reader = next(entry for entry in METHODS if memory in entry.reads_memory)
    return Component.of(reader.id, {"model": component.config.model, "dtype": component.config.dtype})  # type: ignore[attr-defined]


def _each(name: str, predictions: Iterable[Prediction], fault: Callable[[Prediction], str | None]) -> Check:
    for prediction in predictions:
        result = fault(prediction)
        if result is not None:
            return Check(name, False, f"{prediction.question_id}: {result}")
    return Check(name, True)


def _answered(predictions: Sequence[Prediction], queries: set[str]) -> str:
    got = {prediction.question_id for prediction in predictions}
    return f"{len(queries - got)} unanswered, {len(got - queries)} not asked, {len(predictions) - len(got)} answered twice"


def _repeated(prediction: Prediction) -> str | None:
    ids = [item.id for item in prediction.evidence]
    return next((f"{identifier} occurs twice" for identifier in ids if ids.count(identifier) > 1), None)


def _foreign(prediction: Prediction, benchmark: Benchmark) -> str | None:
    ids = (item.id for item in prediction.evidence)
    return next((f"{identifier} is not a passage of the corpus" for identifier in ids if identifier not in benchmark.corpus), None)


def _outside(prediction: Prediction, queries: Sequence[Query]) -> str | None:
    query = next(query for query in queries if query.id == prediction.question_id)
    if query.candidates is None or isinstance(query, GoldQuery):
        return None
    ids = (item.id for item in prediction.evidence)
    return next((f"{identifier} is not among the candidates" for identifier in ids if identifier not in query.candidates), None)


def _bad_usage(prediction: Prediction) -> str | None:
    usage = prediction.usage
    if not usage.seconds:
        return "usage.seconds names no stage"
    if any(not math.isfinite(spent) or spent < 0 for spent in usage.seconds.values()):
        return "usage.seconds has a negative or infinite stage"
    counts = (usage.prompt_tokens, usage.completion_tokens, usage.memory_tokens, usage.model_calls)
    if any(not isinstance(count, int) or count < 0 for count in counts):
        return "a token or call count is negative or not an integer"
    return None


def _json_change(prediction: Prediction) -> str | None:
    try:
        again = Prediction.from_json(json.loads(json.dumps(prediction.to_json(), allow_nan=False)))
    except (TypeError, ValueError, UserError) as error:
        return str(error)
    return None if again == prediction else "it reads back differently"


def same(expected: dict[str, Prediction], again: Iterable[Prediction], what: str) -> tuple[bool, str]:
    """Return whether predictions equal the expected ones, and a description of the first difference.

    Scores may differ by `SCORE_TOLERANCE`, but not the order. `what` names the predictions in the description.
    """
    answers = list(again)
    if len(answers) != len(expected):
        return False, f"{what} gives {len(answers)} answers, not {len(expected)}"
    for prediction in answers:
        before = expected.get(prediction.question_id)
        if before is None:
            return False, f"{what} answers {prediction.question_id}"
        if before.answer != prediction.answer:
            return False, f"{what} answers {prediction.question_id} with {prediction.answer!r}, not {before.answer!r}"
        if [e.id for e in before.evidence] != [e.id for e in prediction.evidence]:
            return False, f"{what} ranks the evidence of {prediction.question_id} differently"
        pairs = zip(before.evidence, prediction.evidence, strict=True)
        if not all(math.isclose(a.score, b.score, rel_tol=SCORE_TOLERANCE, abs_tol=SCORE_TOLERANCE) for a, b in pairs):
            return False, f"{what} scores the evidence of {prediction.question_id} differently"
    return True, ""


def check_dataset(reference: str, config: dict[str, Any] | None = None) -> list[Check]:
    """Load a dataset and run all conformance checks on it.

    Raises:
        UserError: The dataset cannot be loaded.
    """
    benchmark = datasets.load(reference, config)
    again = datasets.load(reference, config)
    same = Check("loading twice gives the same", benchmark.fingerprint == again.fingerprint)
    return [same, *check_benchmark(benchmark), *check_settings(benchmark)]


def check_benchmark(benchmark: Benchmark) -> list[Check]:
    """Run the conformance checks on a loaded benchmark."""
    questions, corpus = benchmark.questions, benchmark.corpus
    checks = [
        Check("it has questions", bool(questions)),
        _all("every question has a text", questions, lambda q: bool(q.text.strip())),
        _all("native ids do not reach methods", questions, lambda q: q.query().id != q.id),
        _all("queries carry no gold", questions, lambda q: not _leaks(q)),
        Check("candidates do not put the gold first", *_gold_first(benchmark)),
        _all("candidates are of the corpus", questions, lambda q: all(c in corpus for c in q.candidates or ())),
        _all("candidates are unique", questions, lambda q: len(set(q.candidates or ())) == len(q.candidates or ())),
        _all("evidence is unique", questions, lambda q: len(set(q.evidence)) == len(q.evidence)),
        _all("a gold answer is a text", questions, lambda q: all(isinstance(gold, str) for gold in q.golds)),
        Check("every passage has an id and a text", all(p.id and p.text is not None for p in corpus)),
        Check(
            "positives are in the corpus or reported",
            _absent(benchmark) == 0 or bool(benchmark.extra.get("notes")),
            f"{_absent(benchmark)} positives are absent and Benchmark.extra['notes'] does not mention it",
        ),
        *_official(benchmark),
    ]
    return [replace(check, detail="") if check.passed else check for check in checks]


def check_settings(benchmark: Benchmark) -> list[Check]:
    """Check that a benchmark can be put into each retrieval setting that its card lists."""
    return [_setting(name, benchmark) for name in benchmark.card.settings_of(benchmark.reference.subset)]


def _leaks(question: Question) -> bool:
    """Return whether a query contains more than its fields allow: another type, or gold in its ids."""
    query = question.query()
    if type(query) is not Query:
        return True
    gold = {text.casefold() for text in (*question.golds, *question.evidence, *question.supporting_facts)}
    ids = " ".join((query.id, query.document_id or "")).casefold()
    return any(len(text) > 3 and text in ids for text in gold if text != (query.document_id or "").casefold())


def _gold_first(benchmark: Benchmark) -> tuple[bool, str]:
    """Return whether the order of candidates reveals the gold: positives come first in nearly all questions."""
    listed = [q for q in benchmark.questions if q.candidates and q.evidence and len(q.candidates) > len(q.evidence)]
    first = sum(set(q.candidates[: len(q.evidence)]) == set(q.evidence) for q in listed if q.candidates)
    suspicious = len(listed) >= 20 and first > 0.8 * len(listed)
    return not suspicious, f"in {first} of {len(listed)} questions the positives are the first candidates"


def _all(name: str, questions: Sequence[Question], holds: Callable[[Question], bool]) -> Check:
    bad = next((question for question in questions if not holds(question)), None)
    return Check(name, bad is None, f"question {bad.id!r}" if bad else "")


def _absent(benchmark: Benchmark) -> int:
    return sum(item not in benchmark.corpus for question in benchmark.questions for item in question.evidence)


def gold_prediction(question: Question) -> Prediction:
    """Make the perfect prediction for a question: the gold answer, evidence, support and triples."""
    sentences: list[Any] = [list(sentence_of(fact)) for fact in question.supporting_facts]
    notes = {SUPPORT: sentences or list(question.evidence), TRIPLES: [list(triple) for triple in question.triples]}
    evidence = tuple(Evidence(item, float(-rank)) for rank, item in enumerate(question.evidence))
    # Graph QA takes each line for an answer; all other metrics of sets take any separator.
    one_of = next(filter(is_scorable_gold, question.golds), next(iter(question.golds), ""))
    answer = "\n".join(question.answers) if question.answer_set else one_of
    return Prediction(question.id, answer, evidence, notes=notes)


def _official(benchmark: Benchmark) -> list[Check]:
    """Check that official metrics over gold predictions have their maximum on every scorable question."""
    metrics = [parse_metric(name) for name in benchmark.card.metrics_of(benchmark.reference.subset)]
    predictions = [gold_prediction(question) for question in benchmark.questions]

    def passage(identifier: str) -> Passage:
        return benchmark.corpus.get([identifier])[0]

    def attainable(question: Question, name: str) -> bool:
        if name.startswith("longbench_code"):
            # A line with a comment is not looked at, though it be the gold.
            return code_line(gold_prediction(question).answer) != ""
        if not name.startswith("has_answer"):
            return True
        # Positives that were annotated by hand need not hold the answer's words.
        present = (identifier for identifier in question.evidence if identifier in benchmark.corpus)
        return any(has_answer(passage(identifier).text, question.golds) for identifier in present)

    checks = []
    for name, values in score(benchmark.questions, predictions, metrics, passage).items():
        queries = zip(benchmark.questions, values, strict=True)
        # The package `rouge` adds 1e-8 to a denominator.
        low = [question.id for question, value in queries if value < 1 - 1e-8 and attainable(question, name)]
        checks.append(Check(f"gold predictions reach the maximum of {name}", not low, f"questions {low[:3]}"))
    return checks


def _setting(name: str, benchmark: Benchmark) -> Check:
    label = f"setting {name} applies"
    try:
        setting = Setting.parse(name)
        settings.check(setting, benchmark)
        if candidate_retriever(setting) is None:
            settings.apply(setting, benchmark, SEED)
    except UserError as error:
        return Check(label, False, error.what)
    return Check(label, True)

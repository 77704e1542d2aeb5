"""Prediction files in the layouts of the official evaluators, read as rows of a submission.

Each format is one function from the benchmark to a reader of rows. Missing fields are not scored: a file of only
answers gets no ranking metric. A file's own golds, flags and scores are not read, but for those that its rows are
matched by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.registry import Benchmark
from benchmarks.schema import passage_id
from judges.metric import Metric
from methods.record import RECORD
from results.formats import evaluators, official_scores
from results.formats.reading import Make, Questions, each_record, field_of, row_of
from results.formats.trec import run_rows
from results.submission import shown
from results.submission.rows import Bad, RowReader, jsonl_rows, wrong

SAYABLE = frozenset(("answer", "ranking", "texts", "graph", "pages", "support", "triples", "answerable", "group", *RECORD))
"""Prediction fields that metrics may need; a format provides some of them."""
RANKING = frozenset(("ranking", "texts", "graph", "pages"))


@dataclass(frozen=True)
class Format:
    """File layout of predictions that ragmeter can import, usually the one that a benchmark's official script reads.

    Attributes:
        form: Description of the file's content for users.
        says: The fields of `SAYABLE` that the layout can express.
        reader: Function from the loaded benchmark to a reader of rows.
        partial: Whether the official script scores a file that lacks questions.
        official: Function that recomputes the official script's scores; None if ragmeter has none.
        over_lines: Whether the official script averages over the lines of the file only, while ragmeter's tables average over
            all questions.
        ranked_by_contexts: Whether rankings are derived from the contexts, so that a file without contexts has none.
    """

    form: str
    says: frozenset[str]
    reader: Callable[[Benchmark], RowReader]
    partial: bool = False
    official: official_scores.Printed | None = None
    over_lines: bool = False
    ranked_by_contexts: bool = False

    def scorable(self, metrics: Iterable[Metric]) -> list[Metric]:
        """Select the metrics that this layout provides all inputs for."""
        return [metric for metric in metrics if SAYABLE.intersection(metric.entry.needs) <= self.says]


def dpr(benchmark: Benchmark) -> RowReader:
    """Return a reader for DPR's retriever results: {question, answers, ctxs: [{id, title, text, score, has_answer}]}, an array
    or JSON Lines; also as Pyserini writes them: {query id: {question, answers, contexts: [{docid, score, has_answer}]}}.

    A context is matched to the corpus passage with its title and text, else to the passage with its id in the corpus or in
    DPR's Wikipedia dump.
    """
    corpus = benchmark.corpus

    def context(item: Any) -> str:
        title, text = item.get("title", ""), item.get("text", "")
        native = str(next((item[name] for name in ("id", "docid") if item.get(name) is not None), ""))
        if isinstance(title, str) and isinstance(text, str) and (own_id := passage_id(title, text)) in corpus:
            return own_id
        own_id = native if native in corpus else corpus.by_native_id(native.removeprefix("wiki:")) or ""
        if not own_id:
            detail = f"id {shown(native)}, title {shown(title)}"
            raise Bad(
                "unknown_evidence", "evidence is not in the corpus", detail, "score against the corpus that was searched (config: corpus)"
            )
        return own_id

    def start() -> Make:
        questions = Questions(benchmark.questions)

        def make(record: Any) -> dict[str, Any]:
            identifier = questions.of(record)
            evidence: dict[str, Any] = {}
            name = "ctxs" if "ctxs" in record or "contexts" not in record else "contexts"
            for item in field_of(record, name, list, "a list of contexts"):
                if not isinstance(item, dict):
                    raise wrong(name, "a list of {id, title, text, score}", item)
                evidence.setdefault(context(item), _score(item.get("score", 0.0)))
            return row_of(identifier, "", evidence=[{"id": name, "score": score} for name, score in evidence.items()])

        return make

    return each_record(start)


def _score(value: Any) -> Any:
    """Convert a DPR score, which is a text, to a number; other values are returned unchanged."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        raise wrong("score", "a number", value) from None


def dpr_reader(benchmark: Benchmark) -> RowReader:
    """Return a reader for DPR's reader results: [{question, gold_answers, predictions: [{top_k, prediction: {text}}]}]; the
    largest top_k is used.
    """

    def start() -> Make:
        questions = Questions(benchmark.questions)

        def make(record: Any) -> dict[str, Any]:
            identifier = questions.of(record)
            predictions = field_of(record, "predictions", list, "a list of predictions")
            if not predictions:
                return row_of(identifier, "")
            best = max(predictions, key=lambda item: field_of(item, "top_k", int, "a whole number"))
            return row_of(identifier, field_of(field_of(best, "prediction", dict, "an object"), "text", str, "a text"))

        return make

    return each_record(start)


_ANSWER = frozenset(("answer",))
_MULTIHOP = _ANSWER | {"support", "triples"}
FORMATS: Mapping[str, Format] = {
    "jsonl": Format("rows of a submission", SAYABLE, lambda _: jsonl_rows),
    "hotpotqa": Format(
        '{"answer": {id: text}, "sp": {id: [[title, sentence]]}}', _MULTIHOP, evaluators.hotpotqa, True, official_scores.hotpotqa
    ),
    "2wiki": Format(
        'as hotpotqa, and "evidence": {id: [[head, relation, tail]]}', _MULTIHOP, evaluators.two_wiki, True, official_scores.two_wiki
    ),
    "musique": Format(
        "{id, predicted_answer, predicted_support_idxs, predicted_answerable} per line",
        SAYABLE - RANKING - frozenset(RECORD),
        evaluators.musique,
        official=official_scores.musique,
    ),
    "longbench": Format(
        "{pred, answers, all_classes, length} per line", _ANSWER, evaluators.longbench, True, official_scores.longbench, True
    ),
    "rog": Format("{id, prediction, …} per line, of RoG and GNN-RAG", _ANSWER, evaluators.rog, True, official_scores.rog, True),
    "squad": Format("{id: text}", _ANSWER, evaluators.squad, True, official_scores.squad),
    "dpr": Format("DPR's retriever results, [{question, answers, ctxs}]: rankings without answers", RANKING, dpr),
    "dpr-reader": Format("DPR's reader results, [{question, predictions}]", _ANSWER, dpr_reader),
    "trec": Format("qid Q0 docid rank score tag: rankings without answers", RANKING, run_rows),
}
"""Formats of predictions by name."""

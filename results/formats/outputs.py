"""Predictions as other tools write them: KILT, EfficientQA, FlashRAG, BEIR, lm-evaluation-harness, ragas and promptfoo.

A record is matched to a question by its id, or else by the whole text of the question. Tools that show their model passages name
them by texts, not by ids of a corpus: those are the prediction's contexts, in which `results.contexts` finds passages. `FORMATS`
holds every format by name, the official evaluators' too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.io.literals import LIST, listed
from benchmarks.registry import Benchmark
from benchmarks.schema import PAGES
from methods.api import FAILED
from results.formats import predictions
from results.formats.predictions import Format
from results.formats.reading import QUESTION_TEXTS, Make, Questions, Unwrap, each_record, field_of, row_of
from results.formats.trec import run_rows
from results.submission import shown
from results.submission.rows import Bad, RowReader, wrong

TEXTS = ("contents", "text", "content", "page_content", "passage", "passage_text", "paragraph_text", "snippet", "body", "chunk")
"""Keys of a context's text in the formats of tools."""
_INNER = ("node", "document", "kwargs", "chunk", "payload")
"""Keys of objects that hold the text: nodes of LlamaIndex, documents as LangChain serializes them, hits of search engines."""
_RETRIEVED = (
    *("retrieved_contexts", "contexts", "retrieval_context", "retrievalContext", "retrieved_context", "source_documents", "source_nodes"),
    *("retrieved_documents", "documents", "docs", "ctxs", "passages", "context"),
)
"""Fields of a record's contexts, the most specific first: in some tools `context` holds the gold texts."""
_PREDICTED = (
    *("prediction", "pred", "predicted_answer", "model_answer", "generated_answer", "generated_text", "generation"),
    *("output", "actual_output", "actualOutput", "result", "completion", "model_output"),
)
"""Fields that hold a system's answer in files without `response`; next to one of them, `answer` is often the gold."""


def _contexts(record: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the contexts of a record as fields of a row: texts, or objects with a text and optional id, url and score.

    The first field of these names that is not null counts. A record without contexts gives no fields.
    """
    name = next((name for name in names if not _is_missing(record.get(name))), None)
    if name is None:
        return {}
    contexts = record[name]
    if isinstance(contexts, str):
        try:
            written = listed(contexts)
        except ValueError as error:
            raise wrong(name, LIST, contexts) from error
        contexts = [contexts] if written is None else written
    if not isinstance(contexts, list):
        raise wrong(name, "a list of contexts", contexts)
    kept = [{"text": item} if isinstance(item, str) else _passage(item) for item in contexts]
    if None in kept:
        raise wrong(name, f"texts, or objects with one of {', '.join(TEXTS)}", contexts[kept.index(None)])
    return {"contexts": kept}


def _is_missing(value: Any) -> bool:
    """Return whether a cell is empty: null, NaN, or blank in a CSV."""
    return value is None or (isinstance(value, float) and math.isnan(value)) or (isinstance(value, str) and not value.strip())


def _passage(context: Any) -> dict[str, Any] | None:
    if not isinstance(context, dict):
        return None
    inner: dict[str, Any] = next((context[name] for name in _INNER if isinstance(context.get(name), dict)), {})
    context = {**inner, **{name: value for name, value in context.items() if name not in inner or name == "score"}}
    text = next((context[name] for name in TEXTS if isinstance(context.get(name), str)), None)
    named = {name: str(context[name]) for name in ("id", "url") if isinstance(context.get(name), str | int)}
    score = context.get("score")
    known = isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score)
    return None if text is None else {"text": text, **named, **({"score": score} if known else {})}


def efficientqa(benchmark: Benchmark) -> Make:
    """Return the converter for EfficientQA predictions: {question, prediction} per line."""
    questions = Questions(benchmark.questions)
    return lambda record: row_of(questions.of(record), field_of(record, "prediction", str, "a text"))


def kilt(benchmark: Benchmark) -> Make:
    """Return the converter for KILT predictions: {id, output: [{answer, provenance: [{wikipedia_id}]}]} per line, pages in rank order."""
    questions = Questions(benchmark.questions)

    def make(record: Any) -> dict[str, Any]:
        identifier = questions.of(record)
        outputs = field_of(record, "output", list, "a list of one output")
        if len(outputs) != 1:
            raise Bad("several_outputs", "a row has not exactly one output", f"{len(outputs)}, question {shown(identifier)}")
        provenance = outputs[0].get("provenance") or [] if isinstance(outputs[0], dict) else []
        if not isinstance(provenance, list) or not all(isinstance(item, dict) for item in provenance):
            raise wrong("provenance", "a list of {wikipedia_id}", provenance)
        pages = [str(item["wikipedia_id"]).strip() for item in provenance if item.get("wikipedia_id") is not None]
        answer = outputs[0].get("answer", "") if isinstance(outputs[0], dict) else None
        if not isinstance(answer, str):
            raise wrong("answer", "a text", answer)
        return row_of(identifier, answer, {PAGES: pages})

    return make


def flashrag(benchmark: Benchmark) -> Make:
    """Return the converter for FlashRAG's `intermediate_data.json`: [{id, question, output: {pred, retrieval_result: [{id,
    contents}]}}].

    Pipelines that search several times may write `retrieval_results`, the documents of each search by its number.
    """
    questions = Questions(benchmark.questions)

    def make(record: Any) -> dict[str, Any]:
        output = field_of(record, "output", dict, "an object")
        steps = output.get("retrieval_results")
        if isinstance(steps, dict) and all(isinstance(step, dict) and isinstance(step.get("docs"), list) for step in steps.values()):
            output = {**output, "retrieval_results": [passage for step in steps.values() for passage in _flat(step["docs"])]}
        shown_texts = _contexts(output, "final_retrieval_result", "retrieval_result", "retrieval_results")
        return row_of(questions.of(record), field_of(output, "pred", str, "a text")) | shown_texts

    return make


def _flat(searched: list[Any]) -> list[Any]:
    """Return the documents of a search; a search of several queries has one list per query."""
    return [passage for item in searched for passage in (item if isinstance(item, list) else [item])]


def lm_eval(benchmark: Benchmark) -> Make:
    """Return the converter for samples of lm-evaluation-harness (`--log_samples`): {doc, filtered_resps, filter} per line; only
    the first filter is read.
    """
    questions = Questions(benchmark.questions)
    first: list[Any] = []

    def make(record: Any) -> dict[str, Any] | None:
        doc = field_of(record, "doc", dict, "an object")
        if not first:
            first.append(record.get("filter"))
        if record.get("filter") != first[0]:
            return None
        answers = field_of(record, "filtered_resps", list, "a list of one text")
        answer = answers[0] if answers else None
        likelihood = isinstance(answer, list) and len(answer) == 2 and str(answer[1]) in ("True", "False") and _is_number(answer[0])
        answer = answer[0] if isinstance(answer, list) and answer else answer
        if likelihood or not isinstance(answer, str):
            what = "a sample holds no text: the task scores log-likelihoods, and generates nothing"
            raise Bad("no_text", what, shown(json.dumps(answers)[:80]), "a task with output_type: generate_until")
        return row_of(questions.of(doc), answer)

    return make


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def ragas(benchmark: Benchmark) -> Make:
    """Return the converter for ragas' rows: {user_input, response, retrieved_contexts}, or the older {question, answer, contexts}.

    Rows of other tools name the answer differently, for example DeepEval's `actual_output`.
    """
    questions = Questions(benchmark.questions)

    def make(record: Any) -> dict[str, Any]:
        identifier = questions.of(record)
        named = [name for name in _PREDICTED if isinstance(record.get(name), str)]
        names = ["response"] if "response" in record else [*(["answer"] if "answer" in record else []), *named]
        if len(names) > 1:
            what = "a row has several fields that may be the system's answer"
            raise Bad("several_answers", what, ", ".join(names), "name the system's answer response; golds are not read")
        answer = field_of(record, names[0] if names else "response", str, "a text")
        return row_of(identifier, answer) | _contexts(record, *_RETRIEVED)

    return make


def _columns(value: Any) -> list[Any] | None:
    """Return the rows of an object of columns, as written by pandas: each column a list, or an object by row number."""
    rows = next((list(cells) for cells in value.values() if isinstance(cells, dict)), [])
    if any(cells.keys() != set(rows) for cells in value.values() if isinstance(cells, dict)):
        return None
    columns = {name: [cells[row] for row in rows] if isinstance(cells, dict) else cells for name, cells in value.items()}
    lists = [cells for cells in columns.values() if isinstance(cells, list)]
    named = any(isinstance(columns.get(name), list) for name in QUESTION_TEXTS)
    if not named or len(lists) < len(columns) or len({len(cells) for cells in lists}) != 1:
        return None
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*lists, strict=True)]


def promptfoo(benchmark: Benchmark) -> Make:
    """Return the converter for promptfoo's results (`eval --output`) of one provider and prompt: {vars, response: {output,
    tokenUsage}, provider, cost} each.
    """
    questions = Questions(benchmark.questions)
    first: list[tuple[Any, Any]] = []

    def make(record: Any) -> dict[str, Any]:
        variables = field_of(record, "vars", dict, "an object")
        provider = record.get("provider")
        system = (provider.get("id") if isinstance(provider, dict) else provider, record.get("promptIdx"))
        if not first:
            first.append(system)
        if system != first[0]:
            what = "the file holds the results of several providers or prompts"
            raise Bad("several_systems", what, shown(f"{system[0]}, prompt {system[1]}"), "promptfoo eval --filter-providers, one prompt")
        identifier = questions.of(variables)
        shown_texts = _contexts(variables, "contexts", "context")
        response = record.get("response")
        output = response.get("output") if isinstance(response, dict) else None
        if output is None:
            return row_of(identifier, "", {FAILED: str(record.get("error") or "no output")[:1000]}) | shown_texts
        answer = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
        return {**row_of(identifier, answer), **shown_texts, "usage": _usage(record, response)}

    return make


def _usage(record: Mapping[str, Any], response: Mapping[str, Any]) -> dict[str, Any]:
    reported = response.get("tokenUsage")
    tokens = reported if isinstance(reported, dict) else {}
    counts = {"prompt_tokens": tokens.get("prompt"), "completion_tokens": tokens.get("completion")}
    usage: dict[str, Any] = {name: value for name, value in counts.items() if type(value) is int and value >= 0}
    cost = record.get("cost")
    known = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < 1e9
    return usage | ({"cost_usd": cost} if known else {})


def _results(value: Any) -> list[Any] | None:
    """Return the records of promptfoo's JSON: the list under `results`, or in some versions under `outputs` in it."""
    inner = value.get("results")
    if isinstance(inner, dict):
        inner = next((inner[name] for name in ("results", "outputs") if isinstance(inner.get(name), list)), None)
    return inner if isinstance(inner, list) else None


def _reader(start: Callable[[Benchmark], Make], unwrap: Unwrap | None = None) -> Callable[[Benchmark], RowReader]:
    return lambda benchmark: each_record(lambda: start(benchmark), unwrap)


_ANSWER = frozenset(("answer",))
_SHOWN = _ANSWER | {"ranking", "texts", "contexts"}
FORMATS: Mapping[str, Format] = {
    **predictions.FORMATS,
    "efficientqa": Format("EfficientQA's {question, prediction} per line", _ANSWER, _reader(efficientqa)),
    "kilt": Format("KILT's {id, output: [{answer, provenance}]} per line", _ANSWER | {"pages"}, _reader(kilt)),
    "beir": Format("a run in BEIR's, MS MARCO's or any other layout, by the dataset's own ids", predictions.RANKING, run_rows),
    "flashrag": Format(
        "FlashRAG's intermediate_data.json, [{question, output: {pred}}]", _SHOWN, _reader(flashrag), ranked_by_contexts=True
    ),
    "lm-eval": Format("samples of lm-evaluation-harness, {doc, filtered_resps} per line", _ANSWER, _reader(lm_eval)),
    "ragas": Format(
        "ragas' {user_input, response, retrieved_contexts}, lines, array, columns or CSV",
        _SHOWN,
        _reader(ragas, _columns),
        ranked_by_contexts=True,
    ),
    "promptfoo": Format(
        "promptfoo's results, {vars, response: {output}} each", _SHOWN, _reader(promptfoo, _results), ranked_by_contexts=True
    ),
}
"""Formats of predictions by name."""

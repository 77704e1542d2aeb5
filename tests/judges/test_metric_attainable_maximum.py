"""On gold predictions, every metric reaches its attainable maximum on every scorable question.

The attainable maximum is derived here only from the gold: recall@1 cannot exceed 1 / positives, precision@20 cannot
exceed positives / 20. Questions that a metric skips must be unscorable because of their gold.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.availability import LOCAL, availability, splits
from benchmarks.registry import DATASETS, Benchmark, load, resolve
from benchmarks.schema import Question, sentence_of
from benchmarks.text import has_answer, normalize
from judges.metric import METRICS, Metric, parse
from judges.metrics.entities import rule_entities
from judges.metrics.generation import rouge_words
from judges.metrics.retrieval import DOCUMENTS
from judges.score import check_invariants, score
from methods.api import SUPPORT, TRIPLES, Evidence, Prediction

WORLDS = ("multihop", "long", "graph", "style")
SAMPLES = {
    "hotpotqa/hotpot_distractor_train50.json": "hotpotqa:train",
    "hotpotqa/hf_rows_20.json": "hotpotqa:train",
    "2wikimultihopqa/2wiki_dev40.json": "2wikimultihopqa:dev",
    "musique/musique_ans_v1.0_train50.jsonl": "musique:train",
    "nq/NQ-open.dev.300.jsonl": "nq/open:test",
    "nq/nq-dev.qa.300.csv": "nq:dev",
    "nq/nq-open-oracle.200.jsonl.gz": "nq:test",
    "webqsp/rog_style_webqsp.jsonl": "webqsp:test",
    "webqsp/WebQSP.test.json": "webqsp:test",
    "webqsp/tog_webqsp.json": "webqsp:test",
    "cwq/rog_style_cwq.jsonl": "cwq:test",
    "cwq/rog_style_cwq_full_subgraph_4.jsonl": "cwq:test",
    "cwq/tog_cwq.json": "cwq_tog:test",
    "cwq/nsm": "cwq:train",
    "longbench/qasper.jsonl": "longbench/qasper",
    "longbench/hotpotqa.jsonl": "longbench/hotpotqa",
    "longbench/2wikimqa.jsonl": "longbench/2wikimqa",
    "longbench/musique.jsonl": "longbench/musique",
    "longbench/narrativeqa.jsonl": "longbench/narrativeqa",
    "longbench/multifieldqa_en.jsonl": "longbench/multifieldqa_en",
    "longbench/multifieldqa_zh.jsonl": "longbench/multifieldqa_zh",
    "longbench/multi_news.jsonl": "longbench/multi_news",
    "ultradomain/mix.jsonl": "ultradomain/mix",
    "clara/pretrain_data.100.jsonl": "clara_stages/pretraining:train",
    "hf_dummy/kilt_nq/nq-train-kilt.jsonl": "nq/kilt:train",
    "hf_dummy/kilt_nq/nq-dev-kilt.jsonl": "nq/kilt:dev",
    "hf_dummy/nq_open/NQ-open.dev.jsonl": "nq/open:test",
    "hf_dummy/nq_open/NQ-open.train.jsonl": "nq/open:train",
    "sark_style/bible_genesis.jsonl": "parallel_style/bible",
}
FAST = {"musique/musique_ans_v1.0_train50.jsonl", "longbench/qasper.jsonl", "nq/nq-dev.qa.300.csv", "cwq/tog_cwq.json"}
"""One benchmark of each kind: multi-hop, a document, only questions, a graph."""
WITHOUT_GOLD = {"mix_query.jsonl", "nq-test_without_answers-kilt.jsonl", "sark_sample.json"}
"""Samples without gold answers, whose questions are unscorable (SARK's are placeholders)."""
ELSEWHERE = {"bertscore", "perplexity", "answer_entity_recall", "group_answer_f1", "group_support_f1", "sufficiency", "err", "rbp"} | {
    *(f"longbench_{name}" for name in ("rouge", "class", "number", "code")),
    "span_recall",  # only in users' own files
    *(f"kilt_{name}" for name in ("rprec", "recall", "em", "f1", "accuracy")),
    "choice",
    "infinitebench_name",
}
"""Metrics whose maximum is tested with the metric: BERTScore, answers in graphs, pairs, grades, LongBench, ∞Bench and KILT.
Perplexity has no maximum."""
CUTS = (1, 5, 20)


def wanted_metrics(benchmark: Benchmark) -> list[Metric]:
    """Return the dataset's official metrics, and all registered metrics under all parameters."""
    results = [parse(name) for name in benchmark.card.metrics_of(benchmark.reference.subset)]
    for entry in METRICS:
        if METRICS.source(entry.id).startswith("judges.metrics.") and entry.id not in ELSEWHERE:
            options = [[(p.name, value) for value in (CUTS if p.name == "k" else p.choices or (p.default,))] for p in entry.parameters]
            results += [Metric(entry, dict(chosen)) for chosen in itertools.product(*options)]
    # spaCy's entities need its model; of a set, whose answers stand a line each, the first line is one answer.
    fit = [metric for metric in dict.fromkeys(results) if metric.values.get("extractor", "rule") == "rule"]
    known = (None, *benchmark.card.languages_of(benchmark.reference.subset))
    return [metric for metric in fit if metric.values.get("lines", "all") == "all" and metric.entry.language(metric.values) in known]


def uses_first_gold(metric: Metric) -> bool:
    """Return whether a metric uses only the first gold."""
    return metric.values.get("golds") == "first" or metric.values.get("rules") == "strict"


def tokens_of(text: str, metric: Metric) -> list[str]:
    """Return the tokens of a text for an answer metric."""
    if metric.entry.id == "rouge":
        result = rouge_words([text], False)[0].split()
        return result if metric.values["type"] != "rouge2" else result[1:]
    if metric.entry.id == "entity_preservation" or metric.values.get("rules") == "strict":
        return [text] if text else []
    rules = metric.values.get("rules")
    return normalize(text, rules if rules in ("clara", "longbench_zh", "infinitebench_zh") else "squad").split()


def gold_answer(question: Question, metric: Metric) -> str | None:
    """Return the answer of a perfect method, or None if the gold is unscorable."""
    if metric.entry.id.startswith("webqsp_"):
        parses = question.metadata.get("parses", ())
        return "\n".join(parses[0]["answers"]) if any(parse["good"] for parse in parses) else None
    if not question.answerable:
        return "unanswerable" if metric.values.get("rules") == "squad_v2" else None
    if uses_first_gold(metric):
        golds = question.answers[:1]
    elif question.answer_set:
        # Answers that normalize alike are one answer, to be named once; RoG's evaluator and ROUGE count them all.
        named = (
            question.answers
            if metric.entry.group == "graph"
            else question.wanted
            if metric.entry.group == "text"
            else distinct(question.answers)
        )
        text = "\n".join(named)
        return text if tokens_of(text, metric) else None
    else:
        golds = question.golds
    if metric.entry.id == "entity_preservation":  # if one of the golds has entities, those without are ignored
        golds = sorted(golds, key=lambda gold: not rule_entities(gold))
    return next((gold for gold in golds if tokens_of(gold, metric)), None)


def distinct(answers: Sequence[str]) -> list[str]:
    return list({normalize(answer): answer for answer in reversed(answers) if normalize(answer)}.values())


def gold_ranking(question: Question, benchmark: Benchmark, metric: Metric) -> list[str]:
    positives = list(dict.fromkeys(question.evidence))
    if not metric.entry.id.startswith("has_answer"):
        return positives
    return [item for item in positives if answered_in(question, benchmark, item)]


def answered_in(question: Question, benchmark: Benchmark, item: str) -> bool:
    return item in benchmark.corpus and has_answer(benchmark.corpus.get([item])[0].text, question.golds)


def gold_prediction(question: Question, benchmark: Benchmark, metric: Metric) -> Prediction:
    support = map(sentence_of, question.supporting_facts) if metric.entry.id.startswith(("sp_", "joint_")) else question.evidence
    return Prediction(
        question.id,
        gold_answer(question, metric) or "",
        tuple(Evidence(item, 0.0) for item in gold_ranking(question, benchmark, metric)),
        notes={SUPPORT: list(support), TRIPLES: [list(triple) for triple in question.triples]},
    )


def attainable(question: Question, benchmark: Benchmark, metric: Metric) -> float:
    """Return the maximum score of a question; NaN if its gold is unscorable."""
    name, k = metric.entry.id, metric.values.get("k", 0)
    positives = len(set(question.evidence))
    if metric.values.get("level") == DOCUMENTS:
        named = benchmark.corpus.get([item for item in question.evidence if item in benchmark.corpus])
        positives += len({item.document_id or item.id for item in named}) - len({item.id for item in named})
    answer = gold_answer(question, metric)
    if metric.entry.group == "retrieval" and not name.startswith("has_answer"):
        if not positives:
            return np.nan
        within = min(k, positives)
        return {"precision": within / k, "recall": within / positives, "map": within / positives, "all": float(positives <= k)}.get(
            name, 1.0
        )
    if name.startswith("has_answer"):
        known = question.answerable and any(normalize(gold, "dpr") for gold in question.golds)
        return float(bool(gold_ranking(question, benchmark, metric))) if known else np.nan
    gold = {
        "support": bool(question.supporting_facts if name.startswith("sp_") else question.evidence),
        "triples": bool(question.triples),
        "joint": bool(answer and question.supporting_facts) and (metric.values.get("rules") != "2wiki" or bool(question.triples)),
    }.get(metric.entry.group, answer is not None)
    if not gold or (not question.answerable and metric.values.get("rules") != "squad_v2"):
        return np.nan
    if name in ("strict_matched", "strict_lines", "strict_golds"):
        return float(len(distinct(question.answers))) if question.answer_set else 1.0
    return 1.0


def assert_every_maximum(benchmark: Benchmark) -> None:
    queries = benchmark.questions
    assert queries
    everything, reached = {}, 0
    for metric in wanted_metrics(benchmark):
        responses = [gold_prediction(question, benchmark, metric) for question in queries]
        values = score(queries, responses, [metric], lambda item: benchmark.corpus.get([item])[0])[str(metric)]
        expected = np.array([attainable(question, benchmark, metric) for question in queries])
        np.testing.assert_allclose(values, expected, atol=1e-8, err_msg=f"{metric} on {benchmark.reference}")
        everything[metric] = values
        reached += int(np.nansum(values > 0))
    assert reached > len(queries)
    answers = {m: v for m, v in everything.items() if m.entry.group != "retrieval" and not uses_first_gold(m)}
    assert check_invariants(answers) == []


@pytest.mark.parametrize("subset", WORLDS)
def test_gold_predictions_reach_every_maximum_on_worlds(subset):
    assert_every_maximum(load(f"worlds/{subset}:test").limited(24))


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in SAMPLES])
def test_gold_predictions_reach_every_maximum_on_real_samples(name, data_folder):
    path = data_folder / name
    if not path.exists():
        pytest.skip(f"the sample {name} is not there")
    assert_every_maximum(load(SAMPLES[name], {"path": str(path)}).limited(60))


def test_every_sample_split_is_tested_or_has_no_gold(data_folder, monkeypatch):
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    tried = {resolve(reference)[0] for reference in SAMPLES.values()}
    for position in (availability(split) for entry in DATASETS for split in splits(entry)):
        if position.state != LOCAL or position.reference in tried:
            continue
        if position.reference.name == "rewritten":  # its questions and gold are those of three other samples, which are tested
            continue
        files = {path.name for path in position.paths}
        named = {Path(name).name for name in SAMPLES}
        # Several splits may read one file: HotpotQA's train in both settings, NQ-open's dev as DPR's test.
        assert files <= named | WITHOUT_GOLD, position.reference


def test_recall_at_1_cannot_reach_one_with_two_positives():
    question = Question("q", "?", ("Rome",), evidence=("p1", "p2"))
    response = Prediction("q", "Rome", (Evidence("p1", 1.0), Evidence("p2", 0.5)))
    result = score([question], [response], ["recall@1", "precision@5", "map@1", "ndcg@1", "mrr@1"])
    assert [values[0] for values in result.values()] == [0.5, 0.4, 0.5, 1, 1]


def test_all_golds_on_one_line_exceed_one_only_for_rog():
    question = Question("q", "?", ("Rome", "Milan", "Pisa"), answer_set=True)
    result = score([question], [Prediction("q", "Rome, Milan, Pisa")], ["rog_precision", "rog_f1", "strict_precision"])
    assert [values[0] for values in result.values()] == [3, 1.5, 1]

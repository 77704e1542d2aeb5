"""The shortest honest programs for each format: `json`, then one construction of every question and passage.

No checks, no counts, no places for messages: what a person writes who trusts the file. Yardstick of `perf.loaders`.
"""

from __future__ import annotations

import ast
import csv
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.core.fingerprint import content_id
from benchmarks.datasets.long_document import LongDocumentConfig, chunks
from benchmarks.schema import Passage, Question, passage_id, sentence_id

Made = tuple[list[Question], dict[str, Passage]]


def _rows(path: Path) -> Iterator[Any]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        if file.read(1) == "[":
            file.seek(0)
            yield from json.load(file)
        else:
            file.seek(0)
            for line in file:
                yield json.loads(line)


def hotpotqa(path: Path, joiner: str = "") -> Made:
    questions, corpus = [], {}
    for row in _rows(path):
        passages = []
        for title, sentences in row["context"]:
            text = joiner.join(sentences)
            passages.append(Passage(passage_id(title, text), title, text, tuple(sentences)))
        corpus.update({passage.id: passage for passage in passages})
        titled = {passage.title: passage.id for passage in passages}
        facts = [(titled[title], number) for title, number in row["supporting_facts"]]
        question = Question(
            row["_id"],
            row["question"],
            (row["answer"],),
            evidence=tuple(dict.fromkeys(item for item, _ in facts)),
            supporting_facts=tuple(sentence_id(*fact) for fact in facts),
            triples=tuple(map(tuple, row.get("evidences", ()))),
            type=row["type"],
            candidates=tuple(passage.id for passage in passages),
        )
        questions.append(question)
    return questions, corpus


def two_wiki(path: Path) -> Made:
    return hotpotqa(path, " ")


def musique(path: Path) -> Made:
    questions, corpus = [], {}
    for row in _rows(path):
        passages, evidence = [], []
        for part in row["paragraphs"]:
            title, text = part["title"], part["paragraph_text"]
            passages.append(Passage(passage_id(title, text), title, text))
            if part["is_supporting"]:
                evidence.append(passages[-1].id)
        corpus.update({passage.id: passage for passage in passages})
        question = Question(
            row["id"],
            row["question"],
            (row["answer"],),
            aliases={row["answer"]: tuple(row["answer_aliases"])},
            evidence=tuple(evidence),
            type=f"{len(row['question_decomposition'])}hop",
            candidates=tuple(passage.id for passage in passages),
            metadata={"decomposition": tuple(row["question_decomposition"])},
        )
        questions.append(question)
    return questions, corpus


def nq_open(path: Path) -> Made:
    return [Question(content_id("n", row["question"]), row["question"], tuple(row["answer"])) for row in _rows(path)], {}


def nq_csv(path: Path) -> Made:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t")
        return [Question(content_id("n", text), text, tuple(ast.literal_eval(answers))) for text, answers in rows], {}


def nq_kilt(path: Path) -> Made:
    questions = []
    for row in _rows(path):
        answers = tuple(item["answer"] for item in row["output"] if "answer" in item)
        sources = tuple(source for item in row["output"] for source in item["provenance"])
        questions.append(Question(row["id"], row["input"], answers, metadata={"provenance": sources}))
    return questions, {}


def nq_contexts(path: Path, *names: str) -> Made:
    questions, corpus = [], {}
    for row in _rows(path):
        options = [(context, name) for name in names or ("ctxs",) for context in row[name]]
        passages = [Passage(passage_id(c["title"], c["text"]), c["title"], c["text"]) for c, _ in options]
        corpus.update({passage.id: passage for passage in passages})
        pairs = list(zip(passages, options, strict=True))
        evidence = tuple(p.id for p, (c, name) in pairs if name == "positive_ctxs" or c.get("isgold"))
        holding = tuple(p.id for p, (c, _) in pairs if c.get("hasanswer"))
        question = Question(
            content_id("n", row["question"]),
            row["question"],
            tuple(row["answers"]),
            evidence=evidence,
            candidates=tuple(passage.id for passage in passages),
            metadata={"has_answer": holding},
        )
        questions.append(question)
    return questions, corpus


def nq_reader(path: Path) -> Made:
    return nq_contexts(path, "positive_ctxs", "hard_negative_ctxs", "negative_ctxs")


def documents(path: Path) -> Made:
    """Load LongBench and UltraDomain with plain code, each document split by the same function."""
    config = LongDocumentConfig()
    questions, corpus, seen = [], {}, set()
    for row in _rows(path):
        document = content_id("d", row["context"])
        if document not in seen:
            seen.add(document)
            for part in chunks(row["context"], config.chunk_words, config.chunk_overlap):
                item = Passage(passage_id("", part, document), "", part, (), document)
                corpus[item.id] = item
        answers = json.loads(row["answers"]) if isinstance(row["answers"], str) else row["answers"]
        questions.append(Question(row["_id"], row["input"], tuple(answers), document_id=document))
    return questions, corpus


def graphs(path: Path) -> Made:
    """Load RoG's rows with plain code; each question keeps its graph as tuples."""
    questions = []
    for row in _rows(path):
        question = Question(
            row["id"],
            row["question"],
            tuple(row["answer"]),
            answer_set=True,
            topic_entities=tuple(row["q_entity"]),
            metadata={"graph": tuple(dict.fromkeys(map(tuple, row["graph"])))},
        )
        questions.append(question)
    return questions, {}


def beir(folder: Path) -> Made:
    """Load a folder in BEIR's layout into memory with plain code."""
    corpus, ids = {}, {}
    for row in _rows(folder / "corpus.jsonl"):
        title, text = row["title"], row["text"]
        passage = Passage(passage_id(title, text, row["_id"]), title, text)
        corpus[passage.id] = passage
        ids[row["_id"]] = passage.id
    judged: dict[str, dict[str, float]] = {}
    with (folder / "qrels" / "test.tsv").open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file, delimiter="\t")
        next(lines)
        for question, document, grade in lines:
            judged.setdefault(question, {})[ids[document]] = float(grade)
    questions = []
    for row in _rows(folder / "queries.jsonl"):
        grades = judged[row["_id"]]
        evidence = tuple(name for name, grade in grades.items() if grade > 0)
        questions.append(Question(row["_id"], row["text"], (), evidence=evidence, grades=grades))
    return questions, corpus


PLAIN: dict[str, Callable[[Path], Made]] = {
    "hotpotqa": hotpotqa,
    "2wikimultihopqa": two_wiki,
    "musique": musique,
    "longbench": documents,
    "ultradomain": documents,
    "nq open": nq_open,
    "nq csv": nq_csv,
    "nq kilt": nq_kilt,
    "nq reader": nq_reader,
    "nq contexts": nq_contexts,
    "webqsp": graphs,
    "cwq": graphs,
}
"""By the names of `perf.loaders`."""

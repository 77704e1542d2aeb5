"""How the scripted LLM answers the prompts of graph RAG systems: what a world says, found in what the prompt shows.

Facts are stated in the sentences of worlds. Of a question it knows the facts that prove it, and says of a text only what the
text holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.schema import Question
from benchmarks.text import sentences
from benchmarks.worlds.text import named, state, statements
from benchmarks.worlds.world import relations
from methods.baselines.graph_rag.common import prompt_of
from methods.graphs.extraction import PROMPTS
from methods.graphs.knowledge_graph import END, EntityRecord, RelationRecord, render
from ragmeter.scripted.knowledge import STRENGTH, shelf_of
from ragmeter.scripted.prompt_patterns import Request, filled

UNKNOWN = "unknown"
MOST = 10
"""Findings of a report."""


def extract_with_keywords(truth: Any, request: Request) -> str | None:
    """The prompt of the extraction with keywords: the facts of a chunk, what they are about as keywords."""
    shown = filled(PROMPTS["extraction_keywords"].load(), request)
    if shown is None:
        return None
    entities: list[EntityRecord] = []
    stated: list[RelationRecord] = []
    for fact in shelf_of(truth).facts(shown["text"]):
        sentence = statements(fact)[0]
        entities += [EntityRecord(fact.head.name, fact.head.kind, sentence), EntityRecord(fact.text, fact.relation.tail, sentence)]
        stated.append(RelationRecord(fact.head.name, fact.text, sentence, STRENGTH, fact.relation.id.replace("_", " ")))
    return render(dict.fromkeys(entities), stated)


def glean(truth: Any, request: Request) -> str | None:
    """What was left out: nothing."""
    return END if request.prompt == PROMPTS["gleaning"].load().user else None


def list_triples(truth: Any, request: Request) -> str | None:
    """The prompt for triples: the facts of a chunk."""
    shown = filled(PROMPTS["triples"].load(), request)
    if shown is None:
        return None
    facts = shelf_of(truth).facts(shown["text"])
    triples = [[fact.head.name, fact.relation.id.replace("_", " "), fact.text] for fact in facts]
    return json.dumps({"triples": triples}, ensure_ascii=False)


def give_keywords(truth: Any, request: Request) -> str | None:
    """LightRAG's prompt: names in the question, and the relations that it is about."""
    shown = _shown("keywords", request)
    if shown is None:
        return None
    question = _known(truth, shown["question"])
    heads = [head for head, _, _ in question.triples] if question else []
    low = [head for head in heads if head in shown["question"]] or heads[:1] or [shown["question"]]
    high = [relation.replace("_", " ") for _, relation, _ in question.triples] if question else []
    return json.dumps(
        {"high_level_keywords": list(dict.fromkeys(high)), "low_level_keywords": list(dict.fromkeys(low))}, ensure_ascii=False
    )


def keep_facts(truth: Any, request: Request) -> str | None:
    """HippoRAG's filter: the facts that name something of what proves the question."""
    shown = _shown("facts", request)
    if shown is None:
        return None
    question = _known(truth, shown["question"])
    names = [name for head, _, tail in (question.triples if question else ()) for name in (head, tail)]
    kept = [fact for fact in json.loads(shown["facts"]) if any(_held(name, fact) for name in names)]
    return json.dumps({"facts": kept}, ensure_ascii=False)


def report(truth: Any, request: Request) -> str | None:
    """GraphRAG's report: what is given, line by line."""
    shown = _shown("report", request)
    if shown is None:
        return None
    lines = [line for line in shown["given"].splitlines() if line.strip()] or ["nothing"]
    texts = list(dict.fromkeys(line.partition(": ")[2] or line for line in lines))
    value = {
        "title": lines[0].partition(":")[0],
        "summary": " ".join(texts),
        "rating": 5,
        "rating_explanation": "Every part of a world matters alike.",
        "findings": [{"summary": text, "explanation": ""} for text in texts[:MOST]],
    }
    return json.dumps(value, ensure_ascii=False)


def find_points(truth: Any, request: Request) -> str | None:
    """GraphRAG's map: the facts of the question that a report names both sides of."""
    shown = _shown("map", request)
    if shown is None:
        return None
    question = _known(truth, shown["question"])
    reports = re.findall(r"^\[(\d+)\] (.*?)(?=\n\n\[\d+\] |\Z)", shown["reports"], re.DOTALL | re.MULTILINE)
    points = []
    for triple in question.triples if question else ():
        holding = [int(number) for number, text in reports if any(_states(sentence, triple) for sentence in sentences(text))]
        if holding:
            points.append({"description": _stated(triple), "score": 90, "reports": holding})
    return json.dumps({"points": points}, ensure_ascii=False)


def answer_from_points(truth: Any, request: Request) -> str | None:
    """GraphRAG's reduce: the answer where the points prove it."""
    shown = _shown("reduce", request)
    return None if shown is None else _answer(truth, shown["question"], shown["points"].splitlines())


def recall_spans(truth: Any, request: Request) -> str | None:
    """MemoRAG's clues: the facts of the question that the memory holds."""
    shown = _shown("clues", request)
    if shown is None:
        return None
    question = _known(truth, shown["question"])
    facts = [triple for triple in question.triples if _held(triple[0], shown["memory"])] if question else []
    return "\n".join(map(_stated, facts)) or shown["question"]


def ask_simpler(truth: Any, request: Request) -> str | None:
    """MemoRAG's surrogate questions: the steps of the question."""
    shown = _shown("surrogates", request)
    if shown is None:
        return None
    question = _known(truth, shown["question"])
    answers: list[str] = []
    lines = []
    for step in question.metadata.get("steps", ()) if question else ():
        lines.append(re.sub(r"#(\d+)", lambda match: answers[int(match[1]) - 1], step["question"]))
        answers.append(step["answer"])
    return "\n".join(lines) or shown["question"]


def draft(truth: Any, request: Request) -> str | None:
    """MemoRAG's draft: the answer where the memory proves it."""
    shown = _shown("draft", request)
    return None if shown is None else _answer(truth, shown["question"], sentences(shown["memory"]))


def write_gist(truth: Any, request: Request) -> str | None:
    """Gists and summaries: the facts of a text; where it is not one of a world in one piece, its beginning."""
    shown = _shown("gist", request) or _shown("summary", request)
    if shown is None:
        return None
    facts = shelf_of(truth).facts(shown["text"])
    return " ".join(statements(fact)[0] for fact in facts) or " ".join(shown["text"].split()[:300])


GRAPH_RAG: tuple[Callable[[Any, Request], str | None], ...] = (
    extract_with_keywords,
    glean,
    list_triples,
    give_keywords,
    keep_facts,
    report,
    find_points,
    answer_from_points,
    recall_spans,
    ask_simpler,
    draft,
    write_gist,
)


def _shown(name: str, request: Request) -> dict[str, str] | None:
    return filled(prompt_of(name), request)


def _known(truth: Any, text: str) -> Question | None:
    question: Question | None = truth.questions.get(" ".join(text.split()))
    return question


def _answer(truth: Any, text: str, texts: Sequence[str]) -> str:
    question = _known(truth, text)
    return truth.answer_to(text) or UNKNOWN if question is not None and truth.proven_by(question, texts) else UNKNOWN


def _held(name: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name.casefold())}(?!\w)", text.casefold()) is not None


def _states(sentence: str, triple: Sequence[str]) -> bool:
    return _held(triple[0], sentence) and _held(triple[2], sentence)


def _stated(triple: Sequence[str]) -> str:
    """A fact in the first of the sentences that worlds state it with."""
    relation = next((item for item in relations() if item.id == triple[1]), None)
    return " ".join(triple) if relation is None else state(relation.says[0], named(triple[0]), triple[2])

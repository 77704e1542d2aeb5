"""Answer the prompts of graph RAG systems as the scripted LLM, from a world's facts in the prompt.

Facts are stated in the sentences of worlds. Of a question it knows the facts that prove it, and says of a text only what the
text holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from benchmarks.text import sentences
from benchmarks.worlds.text import statements
from methods.baselines.graph_rag.common import PROMPTS as SYSTEMS
from methods.graphs.extraction import PROMPTS
from methods.graphs.knowledge_graph import END
from methods.readers.triple_text import as_statement
from ragmeter.scripted.prompt_patterns import UNKNOWN, Shown, Truth, answers, names_any, steps_of

MOST = 10
"""Maximum findings of a report."""


@answers(PROMPTS["gleaning"])
def glean(truth: Truth, shown: Shown) -> str:
    """Reply to GraphRAG's gleaning prompt that nothing was missed."""
    return END


@answers(PROMPTS["triples"])
def list_triples(truth: Truth, shown: Shown) -> str:
    """Reply to the triple-extraction prompt with the facts of a chunk."""
    facts = truth.shelf.facts(shown["text"])
    triples = [[fact.head.name, fact.relation.id.replace("_", " "), fact.text] for fact in facts]
    return json.dumps({"triples": triples}, ensure_ascii=False)


@answers(SYSTEMS["keywords"])
def give_keywords(truth: Truth, shown: Shown) -> str:
    """Reply to LightRAG's keyword prompt with the names and relations of the question."""
    question = truth.question(shown["question"])
    heads = [head for head, _, _ in question.triples] if question else []
    low = [head for head in heads if head in shown["question"]] or heads[:1] or [shown["question"]]
    high = [relation.replace("_", " ") for _, relation, _ in question.triples] if question else []
    return json.dumps(
        {"high_level_keywords": list(dict.fromkeys(high)), "low_level_keywords": list(dict.fromkeys(low))}, ensure_ascii=False
    )


@answers(SYSTEMS["facts"])
def keep_facts(truth: Truth, shown: Shown) -> str:
    """Reply to HippoRAG's filter prompt with the facts that name an entity of the question's proof."""
    question = truth.question(shown["question"])
    names = [name for head, _, tail in (question.triples if question else ()) for name in (head, tail)]
    kept = [fact for fact in json.loads(shown["facts"]) if any(_mentions(name, fact) for name in names)]
    return json.dumps({"facts": kept}, ensure_ascii=False)


@answers(SYSTEMS["report"])
def report(truth: Truth, shown: Shown) -> str:
    """Reply to GraphRAG's report prompt with the given facts, line by line."""
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


@answers(SYSTEMS["map"])
def find_points(truth: Truth, shown: Shown) -> str:
    """Reply to GraphRAG's map prompt with those facts of the question whose head and tail a report names."""
    question = truth.question(shown["question"])
    reports = re.findall(r"^\[(\d+)\] (.*?)(?=\n\n\[\d+\] |\Z)", shown["reports"], re.DOTALL | re.MULTILINE)
    points = []
    for triple in question.triples if question else ():
        holding = [int(number) for number, text in reports if any(_states(sentence, triple) for sentence in sentences(text))]
        if holding:
            points.append({"description": as_statement(triple), "score": 90, "reports": holding})
    return json.dumps({"points": points}, ensure_ascii=False)


@answers(SYSTEMS["reduce"])
def answer_from_points(truth: Truth, shown: Shown) -> str:
    """Reply to GraphRAG's reduce prompt with the answer if the points prove it."""
    return _answer(truth, shown["question"], shown["points"].splitlines())


@answers(SYSTEMS["drift_hypothesis"])
def imagine_report(truth: Truth, shown: Shown) -> str:
    """Reply to DRIFT's prompt for a hypothetical report with the steps of the question."""
    return "\n".join(_steps(truth, shown["question"]))


@answers(SYSTEMS["drift_primer"])
def prime(truth: Truth, shown: Shown) -> str:
    """Reply to DRIFT's primer prompt with the question's facts that reports state, and its steps."""
    facts = _facts_in(truth, shown["question"], shown["reports"])
    value = {"intermediate_answer": "\n".join(facts), "score": 90 if facts else 0, "follow_up_queries": _steps(truth, shown["question"])}
    return json.dumps(value, ensure_ascii=False)


@answers(SYSTEMS["drift_local"])
def answer_step(truth: Truth, shown: Shown) -> str:
    """Reply to DRIFT's local-search prompt with the question's facts that the context states."""
    facts = _facts_in(truth, shown["overall"], shown["context"])
    return json.dumps({"response": "\n".join(facts), "score": 90 if facts else 0, "follow_up_queries": []}, ensure_ascii=False)


@answers(SYSTEMS["drift_reduce"])
def answer_from_answers(truth: Truth, shown: Shown) -> str:
    """Reply to DRIFT's final prompt with the answer if the answers to simpler questions prove it."""
    return _answer(truth, shown["question"], shown["answers"].splitlines())


@answers(SYSTEMS["clues"])
def recall_spans(truth: Truth, shown: Shown) -> str:
    """Reply to MemoRAG's clue prompt with the question's facts that the memory holds."""
    question = truth.question(shown["question"])
    facts = [triple for triple in question.triples if _mentions(triple[0], shown["memory"])] if question else []
    return "\n".join(map(as_statement, facts)) or shown["question"]


@answers(SYSTEMS["surrogates"])
def ask_simpler(truth: Truth, shown: Shown) -> str:
    """Reply to MemoRAG's prompt for surrogate questions with the steps of the question."""
    return "\n".join(_steps(truth, shown["question"]))


@answers(SYSTEMS["draft"])
def draft(truth: Truth, shown: Shown) -> str:
    """Reply to MemoRAG's draft prompt with the answer if the memory proves it."""
    return _answer(truth, shown["question"], sentences(shown["memory"]))


@answers(SYSTEMS["gist"], SYSTEMS["summary"])
def write_gist(truth: Truth, shown: Shown) -> str:
    """Reply to prompts for gists and summaries with the facts of a text; if it is not a text of a world, with its beginning."""
    facts = truth.shelf.facts(shown["text"])
    return " ".join(statements(fact)[0] for fact in facts) or " ".join(shown["text"].split()[:300])


def _answer(truth: Truth, text: str, texts: Sequence[str]) -> str:
    question = truth.question(text)
    return truth.answer_to(text) or UNKNOWN if question is not None and truth.proven_by(question, texts) else UNKNOWN


def _steps(truth: Truth, text: str) -> list[str]:
    question = truth.question(text)
    return [step for step, _ in (steps_of(question) if question else ())] or [text]


def _facts_in(truth: Truth, text: str, shown: str) -> list[str]:
    question = truth.question(text)
    lines = sentences(shown)
    triples = question.triples if question else ()
    return [as_statement(triple) for triple in triples if any(_states(sentence, triple) for sentence in lines)]


def _mentions(name: str, text: str) -> bool:
    return names_any(text.casefold(), [name])


def _states(sentence: str, triple: Sequence[str]) -> bool:
    return _mentions(triple[0], sentence) and _mentions(triple[2], sentence)

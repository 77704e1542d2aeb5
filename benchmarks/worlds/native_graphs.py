"""Worlds of graph QA in the native file formats of WebQSP and CWQ, so that their loaders can be run on known truth.

RoG's rows and NSM's files hold the graphs; the official JSON files and ToG's hold questions alone. Each has places
that others lack: only CWQ's official file has aliases, and it has no topic entities.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.fingerprint import content_id
from benchmarks.registry import Benchmark
from benchmarks.schema import Question, Triple
from benchmarks.worlds.native_files import NativeFormat, Row, json_lines

COMPOSITIONALITY: Mapping[str, str] = {
    "single": "composition",
    "bridge": "composition",
    "comparison": "comparative",
    "multi": "conjunction",
}
"""CWQ's kind of question for each kind of a world."""


def rog_rows(benchmark: Benchmark, questions: Sequence[Question]) -> Iterator[Row]:
    """Questions as RoG's rows, the hub's columns in their order; `choices` is empty there too."""
    for question in questions:
        graph = benchmark.extra["graphs"][question.id]
        nodes = _nodes(graph)
        yield {
            "id": question.id,
            "question": question.text,
            "answer": list(question.answers),
            "q_entity": list(question.topic_entities),
            "a_entity": [answer for answer in question.answers if answer in nodes],
            "graph": [list(triple) for triple in graph],
            "choices": [],
        }


def _rog(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    return {"": json_lines(rog_rows(benchmark, questions))}


def _nsm(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    rows = []
    for question in questions:
        graph = benchmark.extra["graphs"][question.id]
        for head, relation, tail in graph:
            relations.setdefault(relation, len(relations))
            for name in (head, tail):
                entities.setdefault(name, len(entities))
        for name in (*question.topic_entities, *question.answers):
            entities.setdefault(name, len(entities))
        rows.append(
            {
                "id": question.id,
                "answers": [{"kb_id": _mid(answer), "text": answer} for answer in question.answers],
                "question": question.text,
                "entities": [entities[topic] for topic in question.topic_entities],
                "subgraph": {
                    "tuples": [[entities[head], relations[relation], entities[tail]] for head, relation, tail in graph],
                    "entities": [entities[name] for name in _nodes(graph)],
                },
            }
        )
    return {
        "": json_lines(rows),
        "entities.txt": "".join(f"{_mid(name)}\n" for name in entities),
        "relations.txt": "".join(f"{name}\n" for name in relations),
        "entity_name.txt": "".join(f"{_mid(name)}\t{name}\n" for name in sorted(entities)),
    }


def _webqsp(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    rows = [
        {
            "QuestionId": question.id,
            "RawQuestion": question.text,
            "ProcessedQuestion": question.text.lower().rstrip("?"),
            "Parses": [_parse(question, number, topic) for number, topic in enumerate(question.topic_entities)],
        }
        for question in questions
    ]
    whole = {"Version": "1.0", "FreebaseVersion": "worlds", "Questions": rows}
    # The official file begins with a byte order mark.
    return {"": "\ufeff" + json.dumps(whole, ensure_ascii=False, indent=1)}


def _parse(question: Question, number: int, topic: str) -> Row:
    return {
        "ParseId": f"{question.id}.P{number}",
        "AnnotatorComment": {"ParseQuality": "Complete", "QuestionQuality": "Good"},
        "Sparql": "",
        "TopicEntityName": topic,
        "TopicEntityMid": _mid(topic),
        "InferentialChain": list(question.metadata["relations"][: question.metadata["hops"]]),
        "Answers": [{"AnswerType": "Entity", "AnswerArgument": _mid(answer), "EntityName": answer} for answer in question.answers],
    }


def _cwq(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    rows = [
        {
            **_cwq_row(question),
            "answers": [
                {"answer_id": _mid(answer), "answer": answer, "aliases": list(question.aliases.get(answer, ()))}
                for answer in question.answers
            ],
        }
        for question in questions
    ]
    return {"": json.dumps(rows, ensure_ascii=False)}


def _cwq_row(question: Question) -> Row:
    return {
        "ID": question.id,
        "question": question.text,
        "machine_question": question.text.lower().rstrip("?"),
        "compositionality_type": COMPOSITIONALITY[question.type],
        "sparql": "",
        "created": "",
        "webqsp_ID": "",
        "webqsp_question": "",
    }


def _tog_webqsp(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    rows = [
        {"QuestionId": question.id, "RawQuestion": question.text, "answer": list(question.answers), "topic_entity": _topics(question)}
        for question in questions
    ]
    return {"": json.dumps(rows, ensure_ascii=False)}


def _tog_cwq(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    rows = []
    for question in questions:
        # A single answer stands there as a string.
        answers = question.answers[0] if len(question.answers) == 1 else json.dumps(question.answers)
        rows.append({**_cwq_row(question), "topic_entity": _topics(question), "answer": answers})
    return {"": json.dumps(rows, ensure_ascii=False)}


def _topics(question: Question) -> dict[str, str]:
    return {_mid(topic): topic for topic in question.topic_entities}


def _nodes(graph: Sequence[Triple]) -> dict[str, None]:
    return dict.fromkeys(name for head, _, tail in graph for name in (head, tail))


def _mid(name: str) -> str:
    """An id in Freebase's manner, the same for a name wherever it stands."""
    return f"m.{content_id('w', name)}"


def _format(write: Callable[[Benchmark, Sequence[Question]], dict[str, str]]) -> NativeFormat:
    return NativeFormat(("graph",), lambda question: True, write)


FORMATS: Mapping[str, NativeFormat] = {
    "rog": _format(_rog),
    "nsm": _format(_nsm),
    "webqsp": _format(_webqsp),
    "cwq": _format(_cwq),
    "tog_webqsp": _format(_tog_webqsp),
    "tog_cwq": _format(_tog_cwq),
}
"""`rog` are JSON Lines, `nsm` too, with `entities.txt`, `relations.txt` and `entity_name.txt` beside them; `webqsp` and
`cwq` the official JSON."""

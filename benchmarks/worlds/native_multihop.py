"""Worlds of multi-hop questions in the native file formats of HotpotQA, 2WikiMultihopQA and MuSiQue.

HotpotQA and 2WikiMultihopQA have bridge and comparison questions, MuSiQue bridge questions; none has sets of answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from benchmarks.fingerprint import content_id
from benchmarks.registry import Benchmark
from benchmarks.schema import SENTENCE_MARK, Passage, Question
from benchmarks.worlds.native_files import NativeFormat, Row, json_lines


def _hotpotqa(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    # Every sentence but the first brings its leading space.
    rows = [_sentence_row(benchmark, question, " ", {"level": "hard"}) for question in questions]
    return {"": json.dumps(rows, ensure_ascii=False)}


def _two_wiki(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    rows = []
    aliases: dict[str, tuple[str, ...]] = {}
    for question in questions:
        answer = question.answers[0]
        ids = question.metadata["id_triples"]
        answer_id = question.metadata["answer_ids"][0] or content_id("v", answer)
        if question.aliases.get(answer):
            aliases[answer_id] = question.aliases[answer]
        kind = "compositional" if question.type == "bridge" else question.type
        extra = {
            "type": kind,
            "entity_ids": "_".join(dict.fromkeys(head for head, _, _ in ids)),
            "evidences": [list(triple) for triple in question.triples],
            "evidences_id": [list(triple) for triple in ids],
            "answer_id": answer_id,
        }
        rows.append(_sentence_row(benchmark, question, "", extra))
    lines = [json.dumps({"Q_id": key, "aliases": list(names), "demonyms": []}, ensure_ascii=False) for key, names in aliases.items()]
    return {"": json.dumps(rows, ensure_ascii=False), "id_aliases.json": "".join(f"{line}\n" for line in lines)}


def _sentence_row(benchmark: Benchmark, question: Question, lead: str, extra: Row) -> Row:
    passages = benchmark.corpus.get(question.candidates or ())
    titles = {passage.id: passage.title for passage in passages}
    facts = [fact.split(SENTENCE_MARK) for fact in question.supporting_facts]
    return {
        "_id": question.id,
        "type": question.type,
        "question": question.text,
        "context": [[p.title, [lead * (i > 0) + text for i, text in enumerate(p.sentences)]] for p in passages],
        "supporting_facts": [[titles[passage], int(number)] for passage, number in facts],
        "answer": question.answers[0],
        **extra,
    }


def _musique(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    rows = [_musique_row(question, benchmark.corpus.get(question.candidates or ())) for question in questions]
    return {"": json_lines(rows)}


def _musique_full(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    rows = []
    spares = list(benchmark.corpus)
    for number, question in enumerate(questions):
        passages = benchmark.corpus.get(question.candidates or ())
        lost = question.evidence[-1]
        held = {passage.id for passage in passages}
        # Any passage that this question did not have takes the place of the one that is lost.
        spare = next(p for p in (*spares[number:], *spares[:number]) if p.id not in held)
        rows.append(_musique_row(question, passages))
        rows.append(_musique_row(question, [spare if p.id == lost else p for p in passages], answerable=False))
    return {"": json_lines(rows)}


def _musique_row(question: Question, passages: Sequence[Passage], answerable: bool = True) -> Row:
    places = {passage.id: place for place, passage in enumerate(passages)}
    steps = question.metadata["steps"]
    return {
        "id": f"{len(steps)}hop__" + "_".join(str(_step_number(question, step)) for step in steps),
        "paragraphs": [
            {"idx": i, "title": p.title, "paragraph_text": p.text, "is_supporting": p.id in question.evidence}
            for i, p in enumerate(passages)
        ],
        "question": question.text,
        "question_decomposition": [
            {
                "id": _step_number(question, step),
                "question": step["question"],
                "answer": step["answer"],
                "paragraph_support_idx": places.get(step["passage"]),
            }
            for step in steps
        ],
        "answer": question.answers[0],
        "answer_aliases": list(question.aliases.get(question.answers[0], ())),
        "answerable": answerable,
    }


def _step_number(question: Question, step: Row) -> int:
    return int(question.metadata["seed"]) * 100_000 + int(step["fact"])


def _of_types(*types: str) -> Callable[[Question], bool]:
    return lambda question: question.type in types and len(question.answers) == 1


_SUBSETS = ("multihop", "style")
FORMATS: Mapping[str, NativeFormat] = {
    "hotpotqa": NativeFormat(_SUBSETS, _of_types("bridge", "comparison"), _hotpotqa),
    "2wikimultihopqa": NativeFormat(_SUBSETS, _of_types("bridge", "comparison"), _two_wiki),
    "musique": NativeFormat(_SUBSETS, _of_types("bridge"), _musique),
    "musique_full": NativeFormat(_SUBSETS, _of_types("bridge"), _musique_full),
}
"""2WikiMultihopQA's brings `id_aliases.json`; `musique_full` has behind each question its twin, which lacks one
paragraph of the proof."""

"""Questions and answers as the store keeps them, as the values that metrics and judges work on.

The stored data suffice to score and judge a run's answers again without the dataset, also on another machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from benchmarks.schema import Passage, Question, turns_of
from benchmarks.text import answer_positions, is_abstention, normalize
from judges.judge import Item
from methods.api import Prediction
from results.contexts import outside
from results.store import answer_queries
from results.store.queries import RunRow
from results.store.store import Store

_VERDICTS = frozenset(("yes", "no", "true", "false"))
_MOST = 300
"""Maximum number of golds per question to search for; some graph questions accept a thousand."""


def informative_golds(golds: Iterable[str]) -> tuple[str, ...]:
    """Select the unique gold answers whose occurrence in a text is informative.

    Yes and no, true and false, words for "no answer", and answers of at most one character after normalization are left out,
    because they occur in texts by chance.
    """
    results = (gold for gold in golds if len(normal := normalize(gold)) > 1 and normal not in _VERDICTS and not is_abstention(gold))
    return tuple(dict.fromkeys(results))[:_MOST]


@lru_cache(maxsize=512)
def positions(text: str, golds: tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """Return the (start, end) spans of a text that match one of the gold answers, by the rule of the metric has_answer; cached.

    Args:
        text: The text to search.
        golds: The answers, from `informative_golds`.
    """
    return tuple(answer_positions(text, golds))


def gold_questions(store: Store, dataset_fingerprint: str) -> dict[str, Question]:
    """Read the questions of a stored dataset with their gold, by id, in the dataset's order."""
    rows = store.database.rows(
        """SELECT question, text, answers, evidence, supporting_facts, type, document_id, record, turns FROM questions
               WHERE dataset_fingerprint = ? ORDER BY position""",
        [dataset_fingerprint],
    )
    results = {}
    for identifier, text, answers, evidence, facts, kind, document, kept, turns in rows:
        gold: dict[str, Any] = json.loads(kept)
        results[identifier] = Question(
            id=identifier,
            text=text,
            answers=tuple(answers),
            aliases={answer: tuple(others) for answer, others in gold["aliases"].items()},
            answer_set=gold["answer_set"],
            evidence=tuple(evidence),
            supporting_facts=tuple(facts),
            triples=tuple(tuple(triple) for triple in gold["triples"]),
            type=kind,
            answerable=gold["answerable"],
            metadata=gold.get("metadata", {}),
            group=gold.get("group"),
            document_id=document,
            topic_entities=tuple(gold["topic_entities"]),
            grades=gold.get("grades", {}),
            excluded=tuple(gold.get("excluded", ())),
            turns=turns_of(json.loads(turns or "[]")),
        )
    return results


def answered(store: Store, run: RunRow) -> tuple[list[Question], list[Prediction]]:
    """Read the questions that a run answered, and its answers, in the same order (the dataset's)."""
    questions = gold_questions(store, run.dataset_fingerprint)
    responses = {prediction.question_id: prediction for prediction in store.predictions(run.run)}
    requests = [question for identifier, question in questions.items() if identifier in responses]
    return requests, [responses[question.id] for question in requests]


def items(store: Store, run: RunRow) -> list[Item]:
    """Prepare a run's answers for point judges: each with the texts that the answer was generated from.

    The texts are the contexts that the system reports. Without any, they are the first `k` passages of the ranking, where `k`
    is the number that the reader received, before compression.
    """
    questions, responses = answered(store, run)
    k = run.description.get("k")
    ids = [[item.id for item in prediction.evidence[:k]] for prediction in responses]
    known = answer_queries.passages(store, list(dict.fromkeys(item for row in ids for item in row)))
    read = [
        _known(known, row) if prediction.contexts is None else tuple(outside(item) for item in prediction.contexts)
        for prediction, row in zip(responses, ids, strict=True)
    ]
    known_texts = "contexts" not in run.not_stated
    return [Item(*row, known=known_texts) for row in zip(questions, responses, read, strict=True)]


def positives(store: Store, questions: Sequence[Question]) -> list[tuple[Passage, ...]]:
    """Return the gold passages of each question, as far as they are in the store."""
    named = list(dict.fromkeys(item for question in questions for item in question.evidence))
    known = answer_queries.passages(store, named)
    return [_known(known, question.evidence) for question in questions]


def _known(passages: Mapping[str, Passage], identifiers: Sequence[str]) -> tuple[Passage, ...]:
    return tuple(passages[fromkey] for fromkey in dict.fromkeys(identifiers) if fromkey in passages)

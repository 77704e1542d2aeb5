"""What a cross-encoder of triples is trained on: questions, each with a triple that proves its answer and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import registry
from benchmarks.draws import Draws
from benchmarks.errors import UserError
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from benchmarks.worlds.seeds import require_training_seed
from methods.api import Services
from methods.baselines.graph.verbalise import verbalised
from methods.registry import Component

Rows = NDArray[np.int64]
WHERE = "data"


@dataclass(frozen=True)
class Asked:
    """A question with its graph.

    Attributes:
        question: What is asked.
        corpus: The triples.
        gold: Rows of the triples that prove the answer.
        hard: Rows of the others that BM25 likes best, best first.
        easy: Rows of all others of the graph.
    """

    question: Question
    corpus: TripleCorpus
    gold: Rows
    hard: Rows
    easy: Rows


@dataclass(frozen=True, slots=True)
class Group:
    """A row of training: one question, one triple that proves its answer, and some that do not.

    Attributes:
        question: The question's text.
        texts: Triples in natural words, the right one first.
    """

    question: str
    texts: tuple[str, ...]


def load_training(references: Sequence[str], options: Mapping[str, Mapping[str, Any]]) -> list[Benchmark]:
    """Load benchmarks that may be trained on.

    Raises:
        UserError: One holds no graphs, is a test split, or holds worlds that must not be trained on.
    """
    benchmarks = load_graphs(references, options)
    for reference, benchmark in zip(references, benchmarks, strict=True):
        if "test" in (benchmark.reference.split or "").split("+"):
            raise UserError(f"{reference} is a test split, which must not be trained on", where=WHERE, try_this="a train split")
        if benchmark.reference.name == "worlds":
            for seed in sorted({question.metadata["seed"] for question in benchmark.questions}):
                require_training_seed(seed)
    return benchmarks


def load_graphs(references: Sequence[str], options: Mapping[str, Mapping[str, Any]]) -> list[Benchmark]:
    """Load benchmarks whose corpora are triples.

    Raises:
        UserError: One holds passages.
    """
    found = [registry.load(one, options.get(registry.resolve(one)[0].name, {})) for one in references]
    for benchmark in found:
        if not isinstance(benchmark.corpus, TripleCorpus):
            raise UserError(f"{benchmark.reference} has no graphs", where=WHERE, try_this="data of graph QA: worlds/graph:train")
    return found


def asked_of(benchmarks: Sequence[Benchmark], pool: int) -> tuple[list[Asked], int]:
    """Questions whose proof is in their graph, and how many were left out because it is not.

    Args:
        benchmarks: As `load_graphs` gives them.
        pool: Hard triples kept for each question.

    Raises:
        UserError: No question is left.
    """
    found, without = [], 0
    for benchmark in benchmarks:
        corpus = benchmark.corpus
        assert isinstance(corpus, TripleCorpus)
        index = Component.of("bm25_triples").build(Services()).index(corpus)
        for question in benchmark.questions:
            one = _asked(question, corpus, index, pool)
            if one is None:
                without += 1
            else:
                found.append(one)
    if not found:
        raise UserError(
            "no question comes with triples that prove its answer and others beside them",
            where=WHERE,
            try_this="data with reasoning triples: worlds/graph:train",
        )
    return found, without


def _asked(question: Question, corpus: TripleCorpus, index: Any, pool: int) -> Asked | None:
    candidates = question.candidates if question.candidates is not None else corpus.ids
    rows = corpus.rows_of(candidates).astype(np.int64)
    proof = set(question.triples)
    triples = corpus.triples.take(rows)
    gold = np.array([triple in proof for triple in triples], dtype=bool)
    if not gold.any() or gold.all():
        return None
    ranking = index.retrieve([question.query()], pool + int(gold.sum()))[0]
    right = set(rows[gold].tolist())
    near = [row for row in map(corpus.row, ranking.ids) if row not in right]
    return Asked(question, corpus, rows[gold], np.array(near[:pool], dtype=np.int64), rows[~gold])


def groups(asked: Sequence[Asked], negatives: int, hard: int, *key: str | int) -> list[Group]:
    """The rows of an epoch: one for each triple that proves an answer, in random order.

    A text that reads like the right one is not held against it.

    Args:
        asked: The questions.
        negatives: Other triples of each row, fewer where the graph has no more.
        hard: How many of them are drawn from the hard ones.
        key: What is drawn for: seed and epoch; equal keys give equal rows.
    """
    rows = [
        _group(one, int(gold), negatives, hard, Draws("cross-encoder", *key, one.question.id, place))
        for one in asked
        for place, gold in enumerate(one.gold)
    ]
    Draws("cross-encoder", *key).shuffle(rows)
    return rows


def _group(asked: Asked, gold: int, negatives: int, hard: int, draws: Draws) -> Group:
    near = draws.sample(asked.hard.tolist(), hard)
    # More than are needed: some may be among the near ones, or read like the right one.
    far = [int(asked.easy[draws.below(len(asked.easy))]) for _ in range(2 * negatives)]
    right, *others = verbalised(asked.corpus.triples, np.array([gold, *dict.fromkeys((*near, *far))]))
    proofs = {right, *verbalised(asked.corpus.triples, asked.gold)}
    wrong = [text for text in dict.fromkeys(others) if text not in proofs]
    return Group(asked.question.text, (right, *wrong[:negatives]))

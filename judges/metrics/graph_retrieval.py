"""What a retriever of triples found: of the answers that lie in a question's graph, those that it ranks high.

Of reference triples the same is asked by `recall@k`: the positives of a question over a graph are ids of triples, and
a question without any is unscorable.
"""

from __future__ import annotations

import numpy as np

from benchmarks.errors import UserError
from judges.api import Batch, Parameter, Scores
from judges.graphs import QuestionGraphs
from judges.ranking import Positions
from judges.registry import register

_K = Parameter("k", int, None, help="how many of the first triples count")


@register(
    "answer_entity_recall",
    source="SubgraphRAG (Li et al. 2025), answer entity recall",
    group="retrieval",
    needs=("ranking", "graph"),
    parameters=(_K,),
)
def answer_entity_recall(batch: Batch, k: int) -> Scores:
    """Answers that are head or tail of one of the first k triples / answers that are nodes of the question's own graph.

    Names are compared as they are, without aliases. Answers outside the graph, which no retriever can find, count for
    nothing; a question with none inside (also: yes and no), or unanswerable, is unscorable, not 0.
    """
    return batch.once("answer_entities", lambda: _positions(batch)).recall(k)


def _positions(batch: Batch) -> Positions:
    """The rank at which each answer inside its graph first occurs, where it does."""
    graphs = batch.graphs
    if graphs is None:
        raise UserError(
            "answer_entity_recall needs the graphs of the questions",
            try_this="name it under `metrics` of the experiment and run that again: answers that are stored are kept",
        )
    inside = [_inside(batch, row, graphs) for row in range(len(batch))]
    query, rank = [], []
    for row, wanted in enumerate(inside):
        ranks = _first_ranks(wanted, graphs, batch.rankings[row]) if wanted else []
        query += [row] * len(ranks)
        rank += ranks
    counts = np.array([len(wanted) for wanted in inside], dtype=np.int64)
    return Positions(
        np.array(query, dtype=np.int64), np.array(rank, dtype=np.int64), np.ones(len(rank)), counts, np.ones(int(counts.sum()))
    )


def _inside(batch: Batch, row: int, graphs: QuestionGraphs) -> set[str]:
    question = batch.questions[row]
    if not question.answerable or not question.answers:
        return set()
    return graphs.nodes(question.id).intersection(question.answers)


def _first_ranks(wanted: set[str], graphs: QuestionGraphs, ranking: list[str]) -> list[int]:
    """Where each name first stands in a ranking, ascending; names that do not occur are left out."""
    found: dict[str, int] = {}
    for rank, (head, _, tail) in enumerate(graphs.triples(ranking), start=1):
        for name in (head, tail):
            if name in wanted:
                found.setdefault(name, rank)
        if len(found) == len(wanted):
            break
    return list(found.values())

"""What metrics may know of the graphs that questions are asked over: their nodes, and what ranked triples say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.errors import UserError
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import Benchmark
from benchmarks.schema import Triple


@dataclass(frozen=True)
class QuestionGraphs:
    """The graphs of a benchmark's questions.

    Attributes:
        graphs: Each question's own graph, by question id; a question that is not there has none.
        corpus: Where triples are found by id; None where no question has a graph.
    """

    graphs: Mapping[str, Sequence[Triple]] = field(default_factory=dict)
    corpus: TripleCorpus | None = None

    @classmethod
    def of(cls, benchmark: Benchmark) -> QuestionGraphs:
        """Those that a benchmark brings, in whatever setting it is asked; without graphs an object without any."""
        graphs = benchmark.extra.get("graphs")
        if not graphs or not isinstance(benchmark.corpus, TripleCorpus):
            return cls()
        return cls(graphs, benchmark.corpus)

    def nodes(self, question_id: str) -> set[str]:
        """Heads and tails of a question's own graph; none where it has no graph."""
        graph = self.graphs.get(question_id, ())
        return {name for head, _, tail in graph for name in (head, tail)}

    def triples(self, identifiers: Sequence[str]) -> list[Triple]:
        """The triples with these ids, in their order.

        Raises:
            UserError: There is no such triple.
        """
        if self.corpus is None:
            return []
        try:
            return self.corpus.triples.take(self.corpus.rows_of(identifiers))
        except KeyError as error:
            raise UserError(
                f"the corpus has no triple {error.args[0]!r}",
                where="evidence of a prediction",
                try_this="check that the predictions were made on this corpus",
            ) from None

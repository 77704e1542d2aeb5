"""Compare the top triples of GPR with those of the same encoders without training (`ragmeter method explain gpr`), as in figure
1.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field, ValidationError

from benchmarks.core.errors import UserError, described
from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus
from benchmarks.schema import Question, Triple
from methods.api import Ranking, Services
from methods.gpr.config import GprTrainingConfig
from methods.gpr.retriever import Gpr, GprConfig
from methods.graphs.picture import LABEL, MOST, SIZE, escaped, layout
from methods.graphs.triples import LinearizeConfig, linearize, relation_text
from methods.models.encoder import Encoder
from methods.registry import Explanation, MethodConfig, Table, numbers, register_explainer, shortened
from methods.retrieval.triples import SearchScope, TripleRetriever, require_checkpoint, triple_corpus
from methods.training.stages import card_of

RADIUS = 11.0
LOOP = 16.0
"""Size of the arc of a self-loop in the picture."""

_STYLE = (
    "text{font:11px sans-serif;fill:#222}.relation{font-size:9px;fill:#666}"
    ".edge{fill:none;stroke:#bbb;stroke-dasharray:4 3}"
    ".edge.first{stroke:#2171b5;stroke-width:1.6;stroke-dasharray:none}"
    ".node{fill:#fff;stroke:#555;stroke-width:1.2}.answer{fill:#a1d99b}.topic{stroke:#d94801;stroke-width:3}"
    ".note{font-size:12px}"
)
_LEGEND = (
    "solid: among GPR's first triples; dashed: among those of the untrained towers alone",
    "green: answers; ringed: entities that the question is about",
)
Places = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Drawing:
    """Content of the picture of a question's triples.

    Attributes:
        first: Top triples of the explained method, best first.
        others: Top triples of the method it is compared with.
        answers: Names of answer entities.
        topics: Names of topic entities.
    """

    first: Sequence[Triple]
    others: Sequence[Triple]
    answers: Collection[str] = ()
    topics: Collection[str] = ()

    @property
    def triples(self) -> list[Triple]:
        """Return all distinct triples."""
        return list(dict.fromkeys([*self.first, *self.others]))

    @property
    def names(self) -> list[str]:
        """Return all entities, in order of first occurrence."""
        return list(dict.fromkeys(name for head, _, tail in self.triples for name in (head, tail)))


def svg(drawing: Drawing, most: int = MOST) -> str | None:
    """Draw triples as SVG; deterministic.

    Args:
        drawing: Content of the picture.
        most: Maximum number of entities drawn.

    Returns:
        A standalone SVG with escaped names; None without triples.
    """
    names = drawing.names[:most]
    if not names:
        return None
    positions = dict(zip(names, layout(len(names)), strict=True))
    left_out = len(drawing.names) - len(names)
    legend = [*_LEGEND, f"{left_out} further entities not drawn"] if left_out else _LEGEND
    lines = [f'<text class="note" x="12" y="{SIZE + 16 + 18 * number}">{line}</text>' for number, line in enumerate(legend)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIZE} {SIZE + 62}" role="img">',
        "<title>The first triples</title>",
        f"<style>{_STYLE}</style>",
        '<defs><marker id="end" markerWidth="7" markerHeight="6" refX="6" refY="3" orient="auto">'
        '<path d="M0,0 L7,3 L0,6 z" fill="#777"/></marker></defs>',
        *_edges(drawing, positions),
        *(_node(name, positions[name], drawing) for name in names),
        *lines,
        "</svg>",
    ]
    return "\n".join(parts)


def _edges(drawing: Drawing, positions: Places) -> list[str]:
    """Draw an arrow per triple; parallel ones are side by side."""
    first = set(drawing.first)
    drawn: dict[frozenset[str], int] = {}
    lines = []
    for triple in drawing.triples:
        head, relation, tail = triple
        if head in positions and tail in positions:
            pair = frozenset((head, tail))
            path, (x, y) = _path(positions[head], positions[tail], drawn.get(pair, 0), turned=head > tail)
            drawn[pair] = drawn.get(pair, 0) + 1
            kind = "edge first" if triple in first else "edge"
            label = escaped(shortened(relation_text(relation), LABEL))
            title = escaped(" – ".join(triple))
            lines.append(
                f'<g><path class="{kind}" d="{path}" marker-end="url(#end)"><title>{title}</title></path>'
                f'<text class="relation" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{label}</text></g>'
            )
    return lines


def _path(start: tuple[float, float], end: tuple[float, float], earlier: int, *, turned: bool) -> tuple[str, tuple[float, float]]:
    """Return the SVG path of an arrow, and the position of its label.

    Args:
        start, end: Positions of the entities.
        earlier: Number of arrows already drawn between them.
        turned: Whether it points against the order of names, which determines the side of its bend.
    """
    (x1, y1), (x2, y2) = start, end
    if start == end:
        size = LOOP * (1 + earlier / 2)
        path = f"M{x1:.1f},{y1 - RADIUS:.1f} c{-2 * size:.1f},{-2 * size:.1f} {2 * size:.1f},{-2 * size:.1f} 0,0"
        return path, (x1, y1 - RADIUS - 1.6 * size)
    length = math.hypot(x2 - x1, y2 - y1)
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    # Straight, then to one side, to the other, further to the one …
    away = 28.0 * ((earlier + 1) // 2) * (1 if earlier % 2 else -1)
    bend = -away if turned else away
    middle = ((x1 + x2) / 2 - dy * bend, (y1 + y2) / 2 + dx * bend)
    begin, stop = (x1 + dx * RADIUS, y1 + dy * RADIUS), (x2 - dx * (RADIUS + 2), y2 - dy * (RADIUS + 2))
    path = f"M{begin[0]:.1f},{begin[1]:.1f} Q{middle[0]:.1f},{middle[1]:.1f} {stop[0]:.1f},{stop[1]:.1f}"
    return path, (middle[0], middle[1] - 3)


def _node(name: str, position: tuple[float, float], drawing: Drawing) -> str:
    x, y = position
    kind = "node" + (" answer" if name in drawing.answers else "") + (" topic" if name in drawing.topics else "")
    return (
        f'<g><circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS:.0f}"><title>{escaped(name)}</title></circle>'
        f'<text x="{x:.1f}" y="{y + RADIUS + 12:.1f}" text-anchor="middle">{escaped(shortened(name, LABEL))}</text></g>'
    )


class GprExplainConfig(MethodConfig):
    """Options of the explanation: checkpoint, and number of triples."""

    checkpoint: str = Field(description="folder of a checkpoint that `ragmeter train gpr` made")
    k: int = Field(10, ge=1, description="triples shown per tower; paper: 4")
    scope: SearchScope = Field("question", description="triples that compete: those of the question's own graph, or global: of all graphs")

    def preflight(self) -> None:
        """Check that the checkpoint exists."""
        require_checkpoint(self.checkpoint, "gpr", where="gpr, option checkpoint")

    @property
    def training(self) -> GprTrainingConfig:
        """Return the checkpoint's training options.

        Raises:
            UserError: The card does not contain them.
        """
        card = card_of(self.checkpoint) or {}
        try:
            return GprTrainingConfig.model_validate(card.get("config"))
        except ValidationError as error:
            why = ": ".join(filter(None, described(error)))
            raise UserError(
                f"the card of this checkpoint lacks its training options: {why}",
                code="checkpoint-card-incomplete",
                where=self.checkpoint,
                try_this="train it again: ragmeter train gpr",
            ) from None


@dataclass(frozen=True)
class Found:
    """A ranking of a question's triples.

    Attributes:
        triples: Best first.
        scores: Cosine similarities.
        ids: Ids of the triples.
    """

    triples: Sequence[Triple]
    scores: Sequence[float]
    ids: Sequence[str]

    @classmethod
    def of(cls, ranking: Ranking, corpus: TripleCorpus) -> Found:
        """Convert a ranking of triple ids."""
        return cls(corpus.triples.take(corpus.rows_of(ranking.ids)), ranking.scores, ranking.ids)

    def rank(self, name: str) -> int | None:
        """Return the rank of the first triple with this head or tail; None if there is none."""
        return next((rank for rank, (head, _, tail) in enumerate(self.triples, 1) if name in (head, tail)), None)


@register_explainer("gpr", summary="shows the first triples of GPR and of the same towers untrained, where the answers are, and the graph")
def explain(question: Question, corpus: Corpus, config: GprExplainConfig, services: Services) -> Explanation:
    """Rank the triples of a question's graph with the trained and the untrained encoders.

    Raises:
        UserError: The corpus does not consist of triples, or the question has no graph.
    """
    triples = triple_corpus(corpus, "gpr")
    if question.candidates is None and config.scope == "question":
        raise UserError(
            "this question has no graph of its own", code="question-without-graph", where=question.id, try_this="--set scope=global"
        )
    trained, untrained = (_ranked(retriever, question, triples) for retriever in (_trained(config, services), _untrained(config, services)))
    written = config.training.linearize
    answers = [name for name in dict.fromkeys(question.answers) if trained.rank(name) is not None]
    tables = (_side_by_side(question, trained, untrained, config.k, written), _answers(answers, trained, untrained))
    drawing = Drawing(trained.triples[: config.k], untrained.triples[: config.k], answers, question.topic_entities)
    return Explanation(_summary(question, trained, untrained, answers, config.k), tables, svg(drawing))


def _trained(config: GprExplainConfig, services: Services) -> TripleRetriever:
    return Gpr(GprConfig.model_validate({"model": config.checkpoint, "scope": config.scope}), services)


def _untrained(config: GprExplainConfig, services: Services) -> TripleRetriever:
    """Load the encoders with their weights before training."""
    training = config.training
    loaded = Encoder(training.encoder, services.device, services.folder("embeddings"))
    return TripleRetriever(loaded, training.linearize, config.scope)


def _ranked(retriever: TripleRetriever, question: Question, corpus: TripleCorpus) -> Found:
    """Rank all triples in scope."""
    (ranking,) = retriever.index(corpus).retrieve([question.query()], max(1, len(corpus)))
    return Found.of(ranking, corpus)


def _side_by_side(question: Question, trained: Found, untrained: Found, k: int, written: LinearizeConfig) -> Table:
    rows = [
        (rank + 1, *_cells(untrained, rank, question, written), *_cells(trained, rank, question, written))
        for rank in range(min(k, len(trained.triples)))
    ]
    return Table(
        "The first triples",
        ("rank", "untrained towers", "cosine", "", "GPR", "cosine", ""),
        tuple(rows),
        "answer: its head or tail is one; reference: the dataset's proof rests on it",
    )


def _cells(result: Found, rank: int, question: Question, written: LinearizeConfig) -> tuple[str, str, str]:
    triple = result.triples[rank]
    marks = [
        *(["answer"] if {triple[0], triple[2]} & set(question.answers) else []),
        *(["reference"] if result.ids[rank] in question.evidence else []),
    ]
    text = shortened(linearize(triple, written.rel, written.underscores), 90)
    return text, numbers([result.scores[rank]])[0], ", ".join(marks)


def _answers(answers: Sequence[str], trained: Found, untrained: Found) -> Table:
    rows = tuple((name, untrained.rank(name), trained.rank(name)) for name in answers)
    return Table(
        "Where the answers are",
        ("answer", "untrained towers", "GPR"),
        rows,
        f"rank of the first triple with it, among {len(trained.triples)}; answers outside the graph are not listed",
    )


def _summary(question: Question, trained: Found, untrained: Found, answers: Sequence[str], k: int) -> str:
    query = f"“{shortened(question.text)}”"
    if question.answers:
        query += " – " + shortened("; ".join(question.answers))
    if not trained.triples:
        return f"{query}. Its graph is empty: there is nothing to rank."
    if not answers:
        return f"{query}. None of its answers is in the graph of {len(trained.triples)} triples."
    here, there = (sum((result.rank(name) or k + 1) <= k for name in answers) for result in (trained, untrained))
    return (
        f"{query}. Of {len(answers)} answers in a graph of {len(trained.triples)} triples GPR's first {k} name {here}, "
        f"those of the untrained towers {there}."
    )

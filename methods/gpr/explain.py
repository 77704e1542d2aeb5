"""`ragmeter explain gpr`: the first triples of GPR beside those of the same towers untrained, as in figure 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field, ValidationError

from benchmarks.corpus import Corpus
from benchmarks.errors import UserError
from benchmarks.graphs import TripleCorpus
from benchmarks.schema import Question, Triple
from benchmarks.wording import told_of
from methods.api import Ranking, Services
from methods.baselines.graph.checkpoint import require_checkpoint
from methods.baselines.graph.towers import SearchScope, TripleRetriever
from methods.baselines.graph.triples import triple_corpus
from methods.checkpoints import card_of
from methods.explaining import Explanation, Table, numbers, register_explainer, shortened
from methods.gpr.config import GprTrainingConfig
from methods.gpr.picture import Drawing, svg
from methods.gpr.retriever import Gpr, GprConfig
from methods.knowledge.linearise import LineariseConfig, linearise
from methods.models.encoder import Encoder, EncoderConfig
from methods.registry import MethodConfig


class GprExplainConfig(MethodConfig):
    """Whose triples are shown."""

    checkpoint: str = Field(description="folder of a checkpoint that `ragmeter train gpr` made")
    k: int = Field(10, ge=1, description="triples shown of each; paper: 4")
    scope: SearchScope = Field("question", description="which triples compete: the question's own graph, or global")

    def preflight(self) -> None:
        """Check that there is such a checkpoint."""
        require_checkpoint(self.checkpoint, "gpr", where="gpr, option checkpoint")

    @property
    def training(self) -> GprTrainingConfig:
        """With which options it was trained.

        Raises:
            UserError: Its card does not say.
        """
        card = card_of(self.checkpoint) or {}
        try:
            return GprTrainingConfig.model_validate(card.get("config"))
        except ValidationError as error:
            why = ": ".join(filter(None, told_of(error)))
            raise UserError(
                f"the card of this checkpoint does not say how it was trained: {why}",
                where=self.checkpoint,
                try_this="train it anew: ragmeter train gpr",
            ) from None


@dataclass(frozen=True)
class Found:
    """A ranking of a question's triples.

    Attributes:
        triples: Best first.
        scores: Their cosines.
        ids: Their ids.
    """

    triples: Sequence[Triple]
    scores: Sequence[float]
    ids: Sequence[str]

    @classmethod
    def of(cls, ranking: Ranking, corpus: TripleCorpus) -> Found:
        """The triples of a ranking."""
        return cls(corpus.triples.take(corpus.rows_of(ranking.ids)), ranking.scores, ranking.ids)

    def rank(self, name: str) -> int | None:
        """Rank of the first triple with this head or tail; None where there is none."""
        return next((rank for rank, (head, _, tail) in enumerate(self.triples, 1) if name in (head, tail)), None)


@register_explainer(
    "gpr",
    summary="the first triples of GPR and of the same towers untrained side by side, where the answers are, the graph",
    config=GprExplainConfig,
)
def explain(question: Question, corpus: Corpus, config: GprExplainConfig, services: Services) -> Explanation:
    """Rank the triples of a question's graph twice.

    Raises:
        UserError: The corpus is none of triples, or the question brings no graph.
    """
    triples = triple_corpus(corpus, "gpr")
    if question.candidates is None and config.scope == "question":
        raise UserError("this question brings no graph of its own", where=question.id, try_this="--set scope=global")
    trained, untrained = (_ranked(retriever, question, triples) for retriever in (_trained(config, services), _untrained(config, services)))
    written = config.training.linearise
    answers = [name for name in dict.fromkeys(question.answers) if trained.rank(name) is not None]
    tables = (_side_by_side(question, trained, untrained, config.k, written), _answers(answers, trained, untrained))
    drawing = Drawing(trained.triples[: config.k], untrained.triples[: config.k], answers, question.topic_entities)
    return Explanation(_summary(question, trained, untrained, answers, config.k), tables, svg(drawing))


def _trained(config: GprExplainConfig, services: Services) -> TripleRetriever:
    return Gpr(GprConfig.model_validate({"model": config.checkpoint, "scope": config.scope}), services)


def _untrained(config: GprExplainConfig, services: Services) -> TripleRetriever:
    """The towers as the training began with them."""
    training = config.training
    asked, told = training.question_encoder, training.triple_encoder
    encoder: EncoderConfig = told
    if (asked.model, asked.revision) != (told.model, told.revision):
        encoder = told.model_copy(update={"query_model": asked.model, "query_revision": asked.revision})
    loaded = Encoder(encoder, services.device, services.folder("embeddings"))
    return TripleRetriever(loaded, training.linearise, config.scope)


def _ranked(retriever: TripleRetriever, question: Question, corpus: TripleCorpus) -> Found:
    """All triples that compete, best first."""
    (ranking,) = retriever.index(corpus).retrieve([question.query()], max(1, len(corpus)))
    return Found.of(ranking, corpus)


def _side_by_side(question: Question, trained: Found, untrained: Found, k: int, written: LineariseConfig) -> Table:
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


def _cells(found: Found, rank: int, question: Question, written: LineariseConfig) -> tuple[str, str, str]:
    triple = found.triples[rank]
    marks = [
        *(["answer"] if {triple[0], triple[2]} & set(question.answers) else []),
        *(["reference"] if found.ids[rank] in question.evidence else []),
    ]
    text = shortened(linearise(triple, written.rel, written.underscores), 90)
    return text, numbers([found.scores[rank]])[0], ", ".join(marks)


def _answers(answers: Sequence[str], trained: Found, untrained: Found) -> Table:
    rows = tuple((name, untrained.rank(name), trained.rank(name)) for name in answers)
    return Table(
        "Where the answers are",
        ("answer", "untrained towers", "GPR"),
        rows,
        f"rank of the first triple with it, among {len(trained.triples)}; answers outside the graph are not listed",
    )


def _summary(question: Question, trained: Found, untrained: Found, answers: Sequence[str], k: int) -> str:
    asked = f"“{shortened(question.text)}”"
    if question.answers:
        asked += " – " + shortened("; ".join(question.answers))
    if not trained.triples:
        return f"{asked}. Its graph is empty: there is nothing to rank."
    if not answers:
        return f"{asked}. None of its answers is in the graph of {len(trained.triples)} triples."
    here, there = (sum((found.rank(name) or k + 1) <= k for name in answers) for found in (trained, untrained))
    return (
        f"{asked}. Of {len(answers)} answers in a graph of {len(trained.triples)} triples GPR's first {k} name {here}, "
        f"those of the untrained towers {there}."
    )

"""Explain ARK's training on one question (`ragmeter method explain ark`), from the graph to the negatives."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import Field, ValidationError

from benchmarks.core.errors import UserError, described
from benchmarks.corpus import Corpus
from benchmarks.schema import Question
from methods.api import Services
from methods.ark.alignment import AlignmentRow, Terms, aligned, kept_out, positives
from methods.ark.config import SIZES, ArkTrainingConfig, encoder_config
from methods.ark.data import Document, Piece, pieces_of, pool
from methods.ark.negatives import GraphQueries, mine, query_source
from methods.ark.retriever import trained_by_ark
from methods.flow import run
from methods.graphs.neighborhood import Neighborhood
from methods.graphs.picture import svg
from methods.models.encoder import Encoder
from methods.models.weights import weights_hash
from methods.presets import laid_over
from methods.registry import Explanation, MethodConfig, Table, numbers, register_explainer, shortened
from methods.training import TRAININGS
from methods.training.stages import card_of

SHOWN = 15
"""Maximum chunks and negatives in a table."""


class ArkExplainConfig(MethodConfig):
    """Options of the explanation: a checkpoint's training, or explicit training options."""

    checkpoint: str | None = Field(
        None, description="folder of a trained stage; its options apply, and it mines the negatives that are shown"
    )
    training: dict[str, Any] = Field(
        default_factory=dict, description="options of the training that replace those of the checkpoint (preset, base, score.scorer, …)"
    )

    def preflight(self) -> None:
        """Check the checkpoint and the models."""
        if self.checkpoint is not None and not trained_by_ark(self.checkpoint):
            raise UserError("this is not a checkpoint of ARK", code="not-checkpoint-ark", where=self.checkpoint)
        self.options("explained").preflight()

    def options(self, reference: str) -> ArkTrainingConfig:
        """Return the training options; `reference` is the data reference if none is given."""
        card = card_of(self.checkpoint) if self.checkpoint is not None else None
        kept = dict(card["config"]) if card is not None else {}
        value = laid_over(kept, self.training)
        value.setdefault("data", ["worlds/long:train"] if reference == "explained" else [reference])
        try:
            options = TRAININGS.get("ark").validate(value)
        except ValidationError as error:
            position, what = described(error)
            raise UserError(what, code="explain-options", where=f"training.{position}", try_this="ragmeter list trainings ark") from None
        assert isinstance(options, ArkTrainingConfig)
        return options


@register_explainer(
    "ark",
    summary="shows the graph around the answer, the neighborhood's cut, the augmented queries, three scores per chunk, and mined negatives",
)
def explain(question: Question, corpus: Corpus, config: ArkExplainConfig, services: Services) -> Explanation:
    """Run all of ARK's data steps for one question."""
    if not question.answers:
        raise UserError("this question has no gold answer, which ARK needs", code="question-without-gold", where=question.id)
    options = config.options("explained")
    identifier, members = pool(question, corpus, question.id)
    passages = tuple(corpus.get(members))
    document = Document(identifier, passages, pieces_of(identifier, passages, options.chunks), (question,))
    with TemporaryDirectory() as kept:
        # Graphs of documents already explained are found again where artifacts are kept.
        source = GraphQueries(options, services.folder("explain", "ark") or Path(kept), services)
        graph = run(source.graph(document))
        around = run(source.around(graph)(question))
        writer = query_source(options, Path(kept), services) if options.queries.generator == "recorded" else source
        augmented = run(writer.queries(document, [question]))[question.id]
    rows = _scores(document, question, options, services)
    gold = {question.id: positives(rows, options.score.positives)}
    out = {question.id: kept_out(rows, question.evidence, options)}
    model = config.checkpoint or options.encoder.model
    encoder = Encoder(
        encoder_config(config.checkpoint, {}) if config.checkpoint else options.encoder, services.device, services.folder("embeddings")
    )
    queries = {"large": augmented.large, "small": augmented.small}
    mined = {
        size: mine(document, {question.id: queries[size]}, out, encoder, options.mine, stage, weights_hash(model))[0]
        for stage, size in SIZES.items()
    }
    tables = (
        _entities(around),
        _cuts(around),
        Table(
            "Augmented queries",
            ("size", "query"),
            tuple((size, shortened(text)) for size in queries for text in queries[size]),
            "searched with, never trained on",
        ),
        _alignment(document, rows, gold[question.id], question),
        _negatives(document, {size: item.negatives for size, item in mined.items()}, question),
    )
    return Explanation(_summary(question, document, around, gold[question.id]), tables, svg(graph, around) if graph.nodes else None)


def _scores(document: Document, question: Question, options: ArkTrainingConfig, services: Services) -> list[AlignmentRow]:
    terms = Terms(options, services.device, services.folder("alignment"), services.folder("embeddings"), services)
    tokens = terms.tokens(document) if options.penalizes_short else None
    (raw,) = terms.raw(document, [question])
    return aligned(question.id, [piece.id for piece in document.pieces], raw, options.score, tokens)


def _summary(question: Question, document: Document, around: Neighborhood, gold: list[str]) -> str:
    begins = f"The search in the graph begins at {', '.join(around.seeds.names)}"
    if around.skipped:
        begins = "No entity of the graph is named by the answer, so there are no augmented queries"
    known = [item for item in gold if item in question.evidence]
    evidence = f" Of the positives {len(known)} are gold evidence." if question.evidence and known else ""
    return (
        f"“{shortened(question.text)}” – {shortened(question.answers[0])}. {begins}. Of {len(document.pieces)} chunks "
        f"the {len(gold)} that support the answer best are positives; what augmented queries find besides is "
        f"negative.{evidence}"
    )


def _entities(around: Neighborhood) -> Table:
    rows = []
    for rank, (name, value) in enumerate(zip(around.entities, around.scores, strict=True), 1):
        within = "small" if name in around.small.entities else "large" if name in around.large.entities else ""
        rows.append((rank, name, f"{value:.6f}", within, "seed" if name in around.seeds.names else ""))
    return Table(
        "Entities around the answer",
        ("rank", "entity", "score", "in", ""),
        tuple(rows),
        "personalized PageRank from the seeds; small lies within large",
    )


def _cuts(around: Neighborhood) -> Table:
    rows = tuple(
        (size, item.considered, item.cut, "" if item.fall is None else f"{item.fall:.4f}")
        for size, item in (("large", around.large), ("small", around.small))
    )
    return Table(
        "The cuts",
        ("size", "entities considered", "kept", "fall"),
        rows,
        "cut before the largest relative drop; fall: the difference of logarithms there",
    )


def _alignment(document: Document, rows: list[AlignmentRow], gold: list[str], question: Question) -> Table:
    texts = {piece.id: piece for piece in document.pieces}
    shown = []
    for row in sorted(rows, key=lambda row: row.rank)[: max(SHOWN, len(gold))]:
        scores = ["" if value is None else numbers([value])[0] for value in (row.s_f, row.s_b, row.s_v)]
        what = "positive" if row.chunk_id in gold else ""
        evidence = "evidence" if row.chunk_id in question.evidence else ""
        piece = texts[row.chunk_id]
        shown.append((row.rank + 1, piece.index, *scores, *numbers([row.total]), what, evidence, shortened(piece.text)))
    return Table(
        "Chunks by how well they support the answer",
        ("rank", "chunk", "forward", "backward", "vector", "total", "", "gold", "text"),
        tuple(shown),
        "raw scores: mean log-likelihood of the answer, of the question, cosine; the total adds the scaled ones",
    )


def _negatives(document: Document, mined: dict[str, tuple[str, ...]], question: Question) -> Table:
    texts: dict[str, Piece] = {piece.id: piece for piece in document.pieces}
    rows = tuple(
        (size, texts[negative].index, "evidence" if negative in question.evidence else "", shortened(texts[negative].text))
        for size, negatives in mined.items()
        for negative in negatives[:SHOWN]
    )
    return Table(
        "Mined negatives",
        ("size", "chunk", "gold", "text"),
        rows,
        f"the first {SHOWN} of each size; large: for stage 2, small: for stage 3",
    )

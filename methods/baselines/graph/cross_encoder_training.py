"""Train a cross-encoder on which triples of a graph answer a question (`ragmeter train graph_cross_encoder`).

It replaces the published cross-encoder of the hybrid baseline when offline, and is trained on training worlds. The checkpoint
is a `CrossEncoder` of sentence-transformers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.random import Draws
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from methods.api import Services
from methods.baselines.graph.bm25 import verbalized
from methods.models.complete import without_load_report
from methods.models.pretrained import loading
from methods.models.weights import locate
from methods.registry import Component
from methods.training import LengthsOf, TrainingContext, known_data, register_training
from methods.training.contrast import ContrastConfig, Group, GroupObjective, prepared
from methods.training.loop import Figures, Validate
from methods.training.material import load_data
from methods.training.model_card import RERANKER, write_model_card
from methods.training.stages import OneStageTraining, PreparedRun
from methods.work import Checkpoint, Needs, StageWork, learn, steps, total, whole_stage

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class GoldTriples:
    """A question with the triples of its graph, divided into gold, hard and easy ones.

    Attributes:
        question: The question's text.
        corpus: The triples.
        gold: Rows of the triples that prove the answer.
        hard: Rows of the highest-ranked other triples by BM25, best first.
        easy: Rows of all remaining triples.
    """

    question: Question
    corpus: TripleCorpus
    gold: Rows
    hard: Rows
    easy: Rows


def load_graphs(references: Sequence[str], options: Mapping[str, Mapping[str, Any]], *, train: bool) -> list[Benchmark]:
    """Load benchmarks whose corpora consist of triples; with `train`, check that they may be used for training.

    Raises:
        UserError: A benchmark contains passages, or must not be trained on.
    """
    results = load_data(references, options, train=train)
    for benchmark in results:
        if not isinstance(benchmark.corpus, TripleCorpus):
            raise UserError(
                f"{benchmark.reference} has no graphs", code="no-graphs", where="data", try_this="data of graph QA: worlds/graph:train"
            )
    return results


def questions_of(benchmarks: Sequence[Benchmark], pool: int) -> tuple[list[GoldTriples], int]:
    """Return questions whose gold triples are in their graph, and the number of dropped ones.

    Args:
        benchmarks: Results of `load_graphs`.
        pool: Hard triples per question.

    Raises:
        UserError: No question is left.
    """
    result, without = [], 0
    for benchmark in benchmarks:
        corpus = benchmark.corpus
        assert isinstance(corpus, TripleCorpus)
        index = Component.of("bm25_triples").build(Services()).index(corpus)
        for question in benchmark.questions:
            item = _gold_triples(question, corpus, index, pool)
            if item is None:
                without += 1
            else:
                result.append(item)
    if not result:
        raise UserError(
            "no question has triples that prove its answer and also other triples",
            code="no-question-with-triples",
            where="data",
            try_this="data with reasoning triples: worlds/graph:train",
        )
    return result, without


def _gold_triples(question: Question, corpus: TripleCorpus, index: Any, pool: int) -> GoldTriples | None:
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
    return GoldTriples(question, corpus, rows[gold], np.array(near[:pool], dtype=np.int64), rows[~gold])


def groups(queries: Sequence[GoldTriples], negatives: int, hard: int, *key: str | int) -> list[Group]:
    """Build an epoch's training groups: one per gold triple, in random order.

    Triples with the same text as a positive are never negatives.

    Args:
        queries: The questions.
        negatives: Negatives per group; fewer if the graph is small.
        hard: Number of negatives drawn from the hard triples.
        key: Random seed parts: seed and epoch.
    """
    rows = [
        _group(item, int(gold), negatives, hard, Draws("cross-encoder", *key, item.question.id, position))
        for item in queries
        for position, gold in enumerate(item.gold)
    ]
    Draws("cross-encoder", *key).shuffle(rows)
    return rows


def _group(query: GoldTriples, gold: int, negatives: int, hard: int, draws: Draws) -> Group:
    near = draws.sample(query.hard.tolist(), hard)
    # More than are needed: some may be among the near ones, or read like the right one.
    far = [int(query.easy[draws.below(len(query.easy))]) for _ in range(2 * negatives)]
    right, *others = verbalized(query.corpus.triples, np.array([gold, *dict.fromkeys((*near, *far))]))
    proofs = {right, *verbalized(query.corpus.triples, query.gold)}
    wrong = [text for text in dict.fromkeys(others) if text not in proofs]
    return Group(query.question.text, (right, *wrong[:negatives]))


VALIDATE_K = 10
"""Value of k for recall@k of gold triples in validation."""
STAGE = "reranker"


class GraphCrossEncoderTrainingConfig(ContrastConfig):
    """Options of the triple cross-encoder's training."""

    data: tuple[str, ...] = Field(
        ("worlds/graph:train",), min_length=1, description="references of questions with graphs and reasoning triples"
    )
    validation: tuple[str, ...] = Field((), description="references of held-out questions, for curves")
    base: str = Field("minilm", description="folder or hub id of the encoder to train")
    max_length: int = Field(128, ge=16, description="longest pair in tokens")
    negatives: int = Field(7, ge=1, description="negative triples per right triple")
    hard: float = Field(0.5, ge=0, le=1, description="share of negatives that BM25 finds for the question; the others are random")
    pool: int = Field(50, ge=1, description="triples that BM25 finds, from which the hard negatives are sampled")
    epochs: int = Field(3, ge=1, description="number of times that each right triple is used")
    batch_size: int = Field(8, ge=1, description="right triples per step")
    learning_rate: float = Field(
        3e-4, gt=0, description="peak learning rate of AdamW; suits MiniLM, which does not learn at 5e-5; larger models need less"
    )
    weight_decay: float = Field(0.01, ge=0, description="weight decay of AdamW on matrices; biases and norms have none")


def _work(config: GraphCrossEncoderTrainingConfig, of: LengthsOf) -> list[StageWork]:
    """Estimate the work: gold triples with their negatives, assuming two gold triples per question."""
    data = known_data(config, of)
    base, size = Checkpoint(config.base, config.revision), data[0].size(config.base, config.revision)
    rows, each = 2 * sum(lengths.questions for lengths in data), config.epochs * (1 + config.negatives)
    work = total(
        learn(base, 2 * each * lengths.questions, min(lengths.question + lengths.passage, config.max_length), config.precision)
        for lengths in data
    )
    return [whole_stage(STAGE, work, size, config.base, rows=rows, taken=steps(rows, config.batch_size, config.epochs))]


@register_training(
    "graph_cross_encoder",
    summary="a cross-encoder of questions and triples, for the hybrid baseline if no published one is available",
    stages=(STAGE,),
    config=GraphCrossEncoderTrainingConfig,
    paper="Nogueira and Cho 2019, Passage Re-ranking with BERT (arXiv:1901.04085)",
    work=_work,
    needs=lambda config: Needs((Checkpoint(config.base, config.revision),)),
)
class GraphCrossEncoderTraining(OneStageTraining):
    """Training of a cross-encoder that scores triples for a question."""

    stage = STAGE

    def load(self) -> tuple[list[Benchmark], Sequence[str]]:
        benchmarks = load_graphs(self.config.data, self.config.data_options, train=True)
        return benchmarks, [benchmark.fingerprint for benchmark in benchmarks]

    def begin(self, data: list[Benchmark], context: TrainingContext, process: Any, identity: str) -> PreparedRun:
        config = self.config
        questions, without = questions_of(data, config.pool)
        model = cross_encoder(config, str(process.device))
        objective = GroupObjective(model, config.part, process)
        hard, count = round(config.hard * config.negatives), sum(len(item.gold) for item in questions)
        validate: Validate | None = None
        if config.validation:
            held_out, _ = questions_of(load_graphs(config.validation, config.validation_options, train=False), 1)
            validate = partial(recall, objective, held_out, VALIDATE_K)

        def save(folder: Path, figures: Figures) -> None:
            model.save_pretrained(str(folder), create_model_card=False)
            write_model_card(
                folder,
                RERANKER,
                "A cross-encoder of questions and triples",
                "It scores how well a triple of a knowledge graph, written in natural words, answers a question. It replaces a published "
                "cross-encoder in a hybrid of BM25 and dense retrieval; a row of a table with it is called `hybrid[worlds-ce]`.",
                base=[config.base],
                data=config.data,
                seed=config.seed,
                facts={
                    "other triples per right one": config.negatives,
                    "of them found by BM25": f"{config.hard:.0%}",
                    "rows per batch": config.batch_size,
                    "epochs": config.epochs,
                    **figures,
                },
            )

        return prepared(
            "cross-encoder",
            config,
            context,
            identity,
            objective,
            lambda epoch: groups(questions, config.negatives, hard, config.seed, epoch),
            count,
            save,
            {"questions": float(len(questions)), "rows": float(count), "questions_left_out": float(without)},
            validate=validate,
        )


def recall(objective: GroupObjective, queries: Sequence[GoldTriples], k: int) -> Figures:
    """Compute the mean recall@k of gold triples over all questions."""
    recalls = []
    for query in queries:
        texts = (verbalized(query.corpus.triples, rows) for rows in (query.easy, query.gold))
        recalls.append(float((objective.ranked(query.question.text, *texts) < k).mean()))
    return {f"validation_triple_recall@{k}": float(np.mean(recalls))}


def cross_encoder(config: GraphCrossEncoderTrainingConfig, device: str) -> Any:
    """Load the base as a `CrossEncoder` with one score; a missing head is initialized from the seed.

    Raises:
        UserError: The model cannot be loaded.
    """
    with loading("encoder", config.base), without_load_report():
        import torch
        from sentence_transformers import CrossEncoder

        torch.manual_seed(config.seed)
        model = CrossEncoder(
            locate(config.base),
            num_labels=1,
            revision=config.revision,
            device=device,
            max_length=config.max_length,
            model_kwargs={"dtype": torch.float32},
        )
    if model.num_labels != 1:
        raise UserError(
            f"{config.base!r} gives {model.num_labels} scores per pair, but a reranker must give one",
            code="wrong-score-count",
            where="base",
            try_this="an encoder, or a cross-encoder that was trained for ranking",
        )
    return model

"""`ragmeter train graph_cross_encoder`: a cross-encoder that tells which triple of a graph answers a question.

It stands in for the published one of the hybrid baseline where no hub is at hand: trained on worlds, on the questions
of seeds that are for training. Its checkpoint is a `CrossEncoder` of sentence-transformers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks import registry
from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import Benchmark, resolve
from benchmarks.schema import Question
from benchmarks.worlds.world import require_training_seed
from methods.api import Services
from methods.baselines.graph.bm25 import verbalized
from methods.baselines.graph.cross_encoder import without_load_report
from methods.models.weights import loading, locate
from methods.registry import Component
from methods.training import LengthsOf, TrainedStage, TrainingConfig, TrainingContext, register_training
from methods.training.loop import Figures, Loop, LoopOptions, Schedule, Validate, accelerator, backward, own, summed
from methods.training.stages import PreparedRun, train_stage
from methods.work import Checkpoint, Needs, StageWork, learn, resumable, saved_weights, steps, total

if TYPE_CHECKING:
    from torch import Tensor

# -- The README of a cross-encoder of triples --


_CARD = """---
library_name: sentence-transformers
pipeline_tag: text-ranking
tags:
- sentence-transformers
- cross-encoder
- reranker
---

# A cross-encoder of questions and triples

Base: `{base}`. Training data: {data}. Seed {seed}.

It scores how well a triple of a knowledge graph, written in natural words, answers a question. It takes the place of a
published cross-encoder in a hybrid of BM25 and dense retrieval where none is at hand; a row of a table with it is
called `hybrid[worlds-ce]`.

```python
from sentence_transformers import CrossEncoder

model = CrossEncoder("path/to/this/folder")
scores = model.predict([("what does jamaican people speak?", "Jamaica location country languages spoken English")])
```

| | |
|---|---|
{rows}
"""


def write_card(folder: Path, base: str, seed: int, data: Sequence[str], facts: Mapping[str, object]) -> None:
    """Write the card; it holds nothing that changes between equal trainings."""
    rows = (f"| {name} | {f'{value:.6g}' if isinstance(value, float) else value} |" for name, value in facts.items())
    text = _CARD.format(base=base, seed=seed, data=", ".join(f"`{item}`" for item in data), rows="\n".join(rows))
    (folder / "README.md").write_text(text, "utf-8")


# -- What a cross-encoder of triples is trained on: questions, each with a triple that proves its answer and others --


Rows = NDArray[np.int64]
WHERE = "data"


@dataclass(frozen=True)
class GoldTriples:
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
    require_trainable(references, benchmarks)
    return benchmarks


def require_trainable(references: Sequence[str], benchmarks: Sequence[Benchmark]) -> None:
    """Check that benchmarks may be trained on.

    Raises:
        UserError: One is a test split, or holds worlds that must not be trained on.
    """
    for reference, benchmark in zip(references, benchmarks, strict=True):
        if "test" in (benchmark.reference.split or "").split("+"):
            raise UserError(f"{reference} is a test split, which must not be trained on", where=WHERE, try_this="a train split")
        if benchmark.reference.name == "worlds":
            for seed in sorted({question.metadata["seed"] for question in benchmark.questions}):
                require_training_seed(seed)


def load_graphs(references: Sequence[str], options: Mapping[str, Mapping[str, Any]]) -> list[Benchmark]:
    """Load benchmarks whose corpora are triples.

    Raises:
        UserError: One holds passages.
    """
    results = [registry.load(reference, options.get(registry.resolve(reference)[0].name, {})) for reference in references]
    for benchmark in results:
        if not isinstance(benchmark.corpus, TripleCorpus):
            raise UserError(f"{benchmark.reference} has no graphs", where=WHERE, try_this="data of graph QA: worlds/graph:train")
    return results


def questions_of(benchmarks: Sequence[Benchmark], pool: int) -> tuple[list[GoldTriples], int]:
    """Questions whose proof is in their graph, and how many were left out because it is not.

    Args:
        benchmarks: As `load_graphs` gives them.
        pool: Hard triples kept for each question.

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
            "no question comes with triples that prove its answer and others beside them",
            where=WHERE,
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
    """The rows of an epoch: one for each triple that proves an answer, in random order.

    A text that reads like the right one is not held against it.

    Args:
        queries: The questions.
        negatives: Other triples of each row, fewer where the graph has no more.
        hard: How many of them are drawn from the hard ones.
        key: What is drawn for: seed and epoch; equal keys give equal rows.
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


# -- The loss of a cross-encoder over groups: of a question's triples the right one should score highest --
# L = mean over groups of −log( exp(s_right) / Σ over the group's triples exp(s) )


class GroupObjective:
    """Adds the gradient of a batch's loss to the parameters of a cross-encoder.

    Groups are gone through a few at a time; the loss is a mean over groups, so nothing changes.

    Args:
        model: A `CrossEncoder` of sentence-transformers.
        part: Pairs that fit.
        accelerator: Of `accelerate`; None: one process in the model's own precision.
    """

    def __init__(self, model: Any, part: int, accelerator: Any = None) -> None:
        self.model, self.part, self.accelerator = model, part, accelerator

    def backward(self, batch: Sequence[Group], seed: Sequence[str | int]) -> float:
        """Add the gradient; each process adds that of its own groups.

        Args:
            batch: The groups.
            seed: What dropout is drawn from: seed, step …

        Returns:
            The loss.
        """
        import torch

        total = 0.0
        for number, group in own(list(enumerate(self._parts(batch))), self.accelerator):
            torch.manual_seed(int(fingerprint(*seed, number), 16) % 2**63)
            loss = self._loss(group) / len(batch)
            total += float(loss.detach())
            backward(loss, self.accelerator)
        return summed(total, self.accelerator, self.model.device)

    def scores(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """Raw scores of questions and triples: shape (pairs,)."""
        tokenizer = self.model.tokenizer
        questions, triples = map(list, zip(*pairs, strict=True))
        features = tokenizer(questions, triples, truncation=True, max_length=self.model.max_seq_length, padding=True, return_tensors="pt")
        with nullcontext() if self.accelerator is None else self.accelerator.autocast():
            result = self.model(dict(features.to(self.model.device)))["scores"]
        return result.float().reshape(len(pairs))

    def _parts(self, batch: Sequence[Group]) -> list[list[Group]]:
        """Groups in parts of at most so many pairs, at least one group each."""
        parts: list[list[Group]] = []
        room = 0
        for group in batch:
            if not parts or room < len(group.texts):
                parts.append([])
                room = self.part
            parts[-1].append(group)
            room -= len(group.texts)
        return parts

    def _loss(self, part: Sequence[Group]) -> Tensor:
        """The summed loss of some groups."""
        scores = self.scores([(group.question, text) for group in part for text in group.texts])
        ends = np.cumsum([len(group.texts) for group in part]).tolist()
        starts = [0, *ends[:-1]]
        losses = [scores[start:end].logsumexp(0) - scores[start] for start, end in zip(starts, ends, strict=True)]
        return sum(losses)


# -- How well a cross-encoder in training ranks the triples that prove the answers of held-out questions --


def validator(objective: GroupObjective, queries: Sequence[GoldTriples], k: int) -> Validate:
    """Recall of a question's reasoning triples among the k best of its graph, over all questions.

    Args:
        objective: Scores pairs.
        queries: The questions.
        k: As said.
    """

    def validate() -> Figures:
        return {f"validation_triple_recall@{k}": float(np.mean([_recall(objective, item, k) for item in queries]))}

    return validate


def _recall(objective: GroupObjective, query: GoldTriples, k: int) -> float:
    import torch

    rows = np.concatenate([query.easy, query.gold])
    texts = verbalized(query.corpus.triples, rows)
    pairs = [(query.question.text, text) for text in texts]
    with torch.inference_mode():
        parts = [objective.scores(pairs[start : start + objective.part]) for start in range(0, len(pairs), objective.part)]
    # Gold comes last, so that equal scores do not favor it.
    best = np.argsort(-torch.cat(parts).cpu().numpy(), kind="stable")[:k]
    return float((best >= len(query.easy)).sum() / len(query.gold))


STAGE = "reranker"


class GraphCrossEncoderTrainingConfig(TrainingConfig):
    """Options of the training."""

    data: tuple[str, ...] = Field(
        ("worlds/graph:train",), min_length=1, description="references of questions with graphs and reasoning triples"
    )
    data_options: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options of the loaders, by dataset id")
    validation: tuple[str, ...] = Field((), description="references of held-out questions, for curves")
    validation_options: dict[str, dict[str, Any]] = Field(default_factory=dict, description="as data_options")
    validate_k: int = Field(10, ge=1, description="k of the recall of reasoning triples among the best, for curves")
    base: str = Field("minilm", description="folder or hub id of the encoder that is trained")
    revision: str | None = Field(None, description="revision of a hub id")
    max_length: int = Field(128, ge=16, description="longest pair in tokens")
    negatives: int = Field(7, ge=1, description="other triples that each right one is contrasted with")
    hard: float = Field(0.5, ge=0, le=1, description="share of them that BM25 finds for the question; others: any")
    pool: int = Field(50, ge=1, description="triples that BM25 finds, from which the hard ones are drawn")
    epochs: int = Field(3, ge=1, description="times that each right triple is used")
    batch_size: int = Field(8, ge=1, description="right triples per step")
    part: int = Field(64, ge=1, description="pairs read at once; bounds memory, changes nothing")
    learning_rate: float = Field(
        3e-4, gt=0, description="of AdamW, at its peak; fits MiniLM, which does not learn at 5e-5; larger ones want less"
    )
    warm_up: float = Field(0.1, ge=0, description="share of the steps in which it rises, below 1; else their number")
    weight_decay: float = Field(0.01, ge=0, description="of matrices")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are scaled down to this norm")
    precision: Literal["no", "bf16", "fp16"] = Field("no", description="mixed precision")
    save_every: int = Field(50, ge=1, description="steps between two points to go on from")

    def preflight(self) -> None:
        """Check references and the base."""
        for reference in (*self.data, *self.validation):
            resolve(reference, where="data")
        locate(self.base)


def _work(config: GraphCrossEncoderTrainingConfig, of: LengthsOf) -> list[StageWork]:
    """Right triples, each against others; a question is taken to have two of them."""
    data = [of(item, config.data_options) for item in config.data]
    for item in config.validation:
        of(item, config.validation_options)
    base, size = Checkpoint(config.base, config.revision), data[0].size(config.base, config.revision)
    rows, each = 2 * sum(lengths.questions for lengths in data), config.epochs * (1 + config.negatives)
    work = total(
        learn(base, 2 * each * lengths.questions, min(lengths.question + lengths.passage, config.max_length), config.precision)
        for lengths in data
    )
    kept = saved_weights(size, config.base)
    return [StageWork(STAGE, work + kept, rows, steps(rows, config.batch_size, config.epochs), resumable(size))]


@register_training(
    "graph_cross_encoder",
    summary="a cross-encoder of questions and triples, for the hybrid baseline where no published one is at hand",
    stages=(STAGE,),
    config=GraphCrossEncoderTrainingConfig,
    paper="Nogueira and Cho 2019, Passage Re-ranking with BERT (arXiv:1901.04085)",
    work=_work,
    needs=lambda config: Needs((Checkpoint(config.base, config.revision),)),
)
class GraphCrossEncoderTraining:
    """The training.

    Args:
        config: Options.
    """

    def __init__(self, config: GraphCrossEncoderTrainingConfig) -> None:
        self.config = config

    def run(self, context: TrainingContext) -> Iterator[TrainedStage]:
        """Train one cross-encoder.

        Raises:
            UserError: The data may not be trained on or holds no reasoning triples, or the folders hold other work.
        """
        config = self.config
        benchmarks = load_training(config.data, config.data_options)
        process = accelerator(config.precision, context.services.device)

        def begin(identity: str) -> PreparedRun:
            return _Job(config, benchmarks, context, process).prepared(identity)

        data = tuple(benchmark.fingerprint for benchmark in benchmarks)
        yield from train_stage(STAGE, config, (config.base, config.revision), data, context, process, begin)


class _Job:
    """One run of the training."""

    def __init__(
        self, config: GraphCrossEncoderTrainingConfig, benchmarks: list[Benchmark], context: TrainingContext, process: Any
    ) -> None:
        self.config, self.context, self.process = config, context, process
        self.questions, self.without = questions_of(benchmarks, config.pool)
        self.model = cross_encoder(config, str(process.device))
        self.objective = GroupObjective(self.model, config.part, process)
        self.count = sum(len(item.gold) for item in self.questions)
        self._groups = lru_cache(1)(self._groups_of)

    @property
    def _epoch(self) -> int:
        """Steps of an epoch."""
        return -(-self.count // self.config.batch_size)

    def prepared(self, identity: str) -> PreparedRun:
        """The loop, ready to run."""
        config = self.config
        options = LoopOptions(
            config.epochs * self._epoch,
            self._epoch,
            Schedule(config.learning_rate, config.warm_up, "linear"),
            config.weight_decay,
            max_grad_norm=config.max_grad_norm,
            save_every=config.save_every,
        )
        validate = None
        if config.validation:
            held_out, _ = questions_of(load_graphs(config.validation, config.validation_options), 1)
            validate = validator(self.objective, held_out, config.validate_k)
        loop = Loop(
            {"model": self.model},
            options,
            self._step,
            self.context.work / "train",
            identity,
            self.context.progress,
            "graph_cross_encoder",
            self.process,
            validate,
        )
        figures = {"questions": float(len(self.questions)), "rows": float(self.count), "questions_left_out": float(self.without)}
        return PreparedRun(loop, self._save, figures)

    def _step(self, step: int) -> Figures:
        epoch, position = divmod(step, self._epoch)
        size = self.config.batch_size
        rows = self._groups(epoch)[position * size : (position + 1) * size]
        return {"loss": self.objective.backward(rows, (self.config.seed, "cross-encoder", step))}

    def _groups_of(self, epoch: int) -> list[Group]:
        hard = round(self.config.hard * self.config.negatives)
        return groups(self.questions, self.config.negatives, hard, self.config.seed, epoch)

    def _save(self, folder: Path, figures: Figures) -> None:
        self.model.save_pretrained(str(folder), create_model_card=False)
        write_card(folder, self.config.base, self.config.seed, self.config.data, self._facts(figures))

    def _facts(self, figures: Figures) -> Mapping[str, object]:
        config = self.config
        return {
            "other triples per right one": config.negatives,
            "of them found by BM25": f"{config.hard:.0%}",
            "rows per batch": config.batch_size,
            "epochs": config.epochs,
            **figures,
        }


def cross_encoder(config: GraphCrossEncoderTrainingConfig, device: str) -> Any:
    """The base as a `CrossEncoder` of one score; a base without a head gets one, drawn from the seed.

    Raises:
        UserError: It cannot be loaded.
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
            f"{config.base!r} gives {model.num_labels} scores per pair where a reranker gives one",
            where="base",
            try_this="an encoder, or a cross-encoder that was trained for ranking",
        )
    return model

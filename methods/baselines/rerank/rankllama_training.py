"""`ragmeter train rankllama`: an adapter and a score head that tell the passage that answers from those found beside it.

L = mean over rows of −log( exp(s_right) / Σ over the row's passages exp(s) ), a row holding one positive and negatives
that BM25 finds for the question, its own other candidates among them.

Source: Ma et al. 2024, Fine-Tuning LLaMA for Multi-Stage Text Retrieval (arXiv:2310.08319); there RepLLaMA finds them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.random import Draws
from benchmarks.registry import Benchmark, load, resolve
from benchmarks.text import has_answer
from methods.baselines.graph.cross_encoder_training import Group, GroupObjective, require_trainable
from methods.baselines.rerank.pairs import head_scores
from methods.baselines.rerank.rankllama import BASE, HEAD, NAME, classifier, pair_ids
from methods.models.likelihood import padded
from methods.models.weights import locate
from methods.registry import Component
from methods.training import LengthsOf, TrainedStage, TrainingConfig, TrainingContext, register_training
from methods.training.adapters import LoraOptions
from methods.training.candidates import retrieved
from methods.training.loop import Figures, KeepBest, Loop, LoopOptions, Schedule, accelerator
from methods.training.stages import PreparedRun, train_stage
from methods.work import Checkpoint, Needs, StageWork, learn, steps, total

if TYPE_CHECKING:
    from torch import Tensor

STAGE = "reranker"
BEST = "validation_mrr"
_CARD = """---
library_name: peft
base_model: {base}
pipeline_tag: text-ranking
---

# A reranker trained as RankLLaMA is

Base: `{base}`. Training data: {data}. Seed {seed}. A PEFT adapter with the score head in it, for a sequence classifier of one
label on the base; query and passage are read as `query: …` and `document: …`, the base's BOS before each.

| | |
|---|---|
{rows}
"""


class RankLlamaTrainingConfig(TrainingConfig):
    """Options of the training."""

    data: tuple[str, ...] = Field(min_length=1, description="references of questions with positives, such as nq:train")
    data_options: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options of the loaders, by dataset id")
    validation: tuple[str, ...] = Field((), description="references of held-out questions; the weights of the best validation are kept")
    validation_options: dict[str, dict[str, Any]] = Field(default_factory=dict, description="as data_options")
    base: str = Field(BASE, description="folder or hub id of the causal language model that is adapted")
    revision: str | None = Field(None, description="revision of a hub id")
    lora: LoraOptions = LoraOptions.model_validate({"r": 32, "alpha": 64})
    query_length: int = Field(32, ge=4, description="longest query in tokens; published 32")
    passage_length: int = Field(164, ge=8, description="longest passage in tokens; published 164")
    negatives: int = Field(15, ge=1, description="passages that each positive is contrasted with")
    pool: int = Field(100, ge=1, description="passages that BM25 finds in the whole corpus, from which they are drawn")
    own: bool = Field(True, description="draw from the question's own other candidates first, where it brings some")
    answers: bool = Field(
        False, description="whether a passage that holds an answer may be a negative; true where every positive is annotated (worlds)"
    )
    epochs: int = Field(1, ge=1, description="times that each positive is used")
    batch_size: int = Field(32, ge=1, description="positives of a step")
    part: int = Field(64, ge=1, description="pairs read at once; bounds memory, changes nothing")
    learning_rate: float = Field(1e-4, gt=0, description="of AdamW, at its peak")
    warm_up: float = Field(0.1, ge=0, description="share of the steps in which it rises, below 1; else their number")
    weight_decay: float = Field(0.0, ge=0, description="of matrices")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are scaled down to this norm")
    precision: Literal["no", "bf16", "fp16"] = Field("no", description="mixed precision")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="type of the frozen base")
    save_every: int = Field(50, ge=1, description="steps between two points to go on from")

    @property
    def model(self) -> str:
        """The base."""
        return self.base

    @property
    def max_length(self) -> int:
        """Longest pair in tokens."""
        return self.query_length + self.passage_length

    def preflight(self) -> None:
        """Check references and the base."""
        for reference in (*self.data, *self.validation):
            resolve(reference, where="data")
        locate(self.base)


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "worlds": {
        "base": "pocket",
        "data": ["worlds/multihop:train"],
        "data_options": {"worlds": {"worlds": 4, "questions": 800}},
        "validation": ["worlds/multihop:validation"],
        "validation_options": {"worlds": {"worlds": 4, "questions": 60}},
        "lora": {"r": 64, "alpha": 128, "dropout": 0.0},
        "negatives": 3,
        "answers": True,
        "batch_size": 16,
        "learning_rate": 2e-3,
    }
}
"""The tiny language model that ships, on worlds: minutes on a CPU."""


def _work(config: RankLlamaTrainingConfig, of: LengthsOf) -> list[StageWork]:
    """Positives, each with its negatives; a question is taken to have one."""
    data = [of(item, config.data_options) for item in config.data]
    for item in config.validation:
        of(item, config.validation_options)
    each = config.epochs * (1 + config.negatives)
    rows = sum(lengths.questions for lengths in data)
    work = total(
        learn(config, each * lengths.questions, lengths.question + lengths.passage, config.precision, causal=True, adapted=True)
        for lengths in data
    )
    return [StageWork(STAGE, work, rows, steps(rows, config.batch_size, config.epochs))]


@register_training(
    "rankllama",
    summary="RankLLaMA: an adapter and a score head by softmax over a positive and what BM25 finds beside it",
    stages=(STAGE,),
    config=RankLlamaTrainingConfig,
    paper="Ma et al. 2024, Fine-Tuning LLaMA for Multi-Stage Text Retrieval (arXiv:2310.08319)",
    presets=PRESETS,
    work=_work,
    needs=lambda config: Needs((Checkpoint(config.base, config.revision, config.dtype),)),
)
class RankLlamaTraining:
    """The training.

    Args:
        config: Options.
    """

    def __init__(self, config: RankLlamaTrainingConfig) -> None:
        self.config = config

    def run(self, context: TrainingContext) -> Iterator[TrainedStage]:
        """Train one adapter.

        Raises:
            UserError: The data may not be trained on or have no positives, or the folders hold other work.
        """
        config = self.config
        benchmarks = load_training(config.data, config.data_options)
        process = accelerator(config.precision, context.services.device)
        fingerprints = tuple(benchmark.fingerprint for benchmark in benchmarks)
        yield from train_stage(
            STAGE,
            config,
            (config.base, config.revision),
            fingerprints,
            context,
            process,
            lambda identity: _Job(config, benchmarks, context, process).prepared(identity),
        )


def load_training(references: Sequence[str], options: Mapping[str, Mapping[str, Any]]) -> list[Benchmark]:
    """Load benchmarks that may be trained on.

    Raises:
        UserError: One is a test split, or holds worlds that must not be trained on.
    """
    benchmarks = [load(reference, options.get(resolve(reference)[0].name, {})) for reference in references]
    require_trainable(references, benchmarks)
    return benchmarks


@dataclass(frozen=True, slots=True)
class Mined:
    """A question's text, its positives, and what they are contrasted with: near ones first to be drawn, others after."""

    id: str
    question: str
    positives: tuple[str, ...]
    near: tuple[str, ...]
    others: tuple[str, ...]


def mined(benchmark: Benchmark, config: RankLlamaTrainingConfig, context: TrainingContext) -> list[Mined]:
    """The questions of a benchmark that have a positive and something beside it."""
    corpus = benchmark.corpus
    questions = [question for question in benchmark.questions if any(item in corpus for item in question.evidence)]
    retrieved_ids = retrieved(benchmark, questions, Component.of("bm25"), config.pool, context.services)
    result = []
    for question in questions:
        positives = [item for item in question.evidence if item in corpus]
        taken = {passage.full_text for passage in corpus.get(positives)}

        def texts(ids: Sequence[str], taken: set[str] = taken, golds: Sequence[str] = question.answers) -> tuple[str, ...]:
            wrong = [passage.full_text for passage in corpus.get(ids) if passage.full_text not in taken]
            taken.update(wrong)
            return tuple(wrong) if config.answers else tuple(text for text in wrong if not has_answer(text, golds))

        right = tuple(passage.full_text for passage in corpus.get(positives))
        near = texts(question.candidates or ()) if config.own else ()
        row = Mined(question.id, question.text, right, near, texts(retrieved_ids[question.id]))
        if row.near or row.others:
            result.append(row)
    return result


def groups(rows: Sequence[Mined], negatives: int, *key: str | int) -> list[Group]:
    """The rows of an epoch: one for each positive, in random order; equal keys give equal rows."""
    result = []
    for row in rows:
        for number, text in enumerate(row.positives):
            draws = Draws(NAME, *key, row.id, number)
            wrong = draws.sample(row.near, negatives)
            wrong += draws.sample(row.others, negatives - len(wrong))
            result.append(Group(row.question, (text, *wrong)))
    Draws(NAME, *key).shuffle(result)
    return result


class PairObjective(GroupObjective):
    """The loss of groups whose pairs a causal language model with a score head reads."""

    def __init__(self, model: Any, tokenizer: Any, config: RankLlamaTrainingConfig, process: Any = None) -> None:
        super().__init__(model, config.part, process)
        self._tokenizer, self._config = tokenizer, config

    def scores(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """Raw scores of questions and passages: shape (pairs,)."""
        import torch

        def tokens(texts: Sequence[str], most: int) -> list[list[int]]:
            return [list(ids[:most]) for ids in self._tokenizer(list(texts), add_special_tokens=False)["input_ids"]]

        lengths = self._config.query_length, self._config.passage_length
        rows = [pair_ids(self._tokenizer, tokens, query, [text], *lengths)[0] for query, text in pairs]
        ids, mask = (torch.tensor(part, device=self.model.device) for part in padded(rows, 0))
        inner = self.model.get_base_model()
        return head_scores(inner, ids, mask)


class _Job:
    """One run of the training."""

    def __init__(self, config: RankLlamaTrainingConfig, benchmarks: list[Benchmark], context: TrainingContext, process: Any) -> None:
        import torch
        from peft import LoraConfig, TaskType, get_peft_model

        self.config, self.context, self.process = config, context, process
        with process.main_process_first():
            self.rows = [row for benchmark in benchmarks for row in mined(benchmark, config, context)]
        self.asked = sum(len(benchmark.questions) for benchmark in benchmarks)
        if not self.rows:
            raise UserError("no question has a positive in the corpus and passages beside it", where="data", try_this="nq:train")
        torch.manual_seed(config.seed)
        tokenizer, base = classifier(config.base, config.revision, config.dtype, str(process.device))
        lora = config.lora
        settings = LoraConfig(
            task_type=TaskType.SEQ_CLS,
            r=lora.r,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            target_modules=lora.targets if isinstance(lora.targets, str) else list(lora.targets),
            modules_to_save=[HEAD],
            exclude_modules=[HEAD],
        )
        self.model: Any = get_peft_model(base, settings)
        self.model.peft_config["default"].base_model_name_or_path = config.base
        self.objective = PairObjective(self.model, tokenizer, config, process)
        self.count = sum(len(row.positives) for row in self.rows)
        self._groups = lru_cache(1)(lambda epoch: groups(self.rows, config.negatives, config.seed, epoch))

    @property
    def _epoch(self) -> int:
        """Steps of an epoch."""
        return -(-self.count // self.config.batch_size)

    def prepared(self, identity: str) -> PreparedRun:
        """The loop, ready to run."""
        config = self.config
        held_out = [
            row
            for reference in config.validation
            for row in mined(load(reference, config.validation_options.get(resolve(reference)[0].name, {})), config, self.context)
        ]
        options = LoopOptions(
            config.epochs * self._epoch,
            self._epoch,
            Schedule(config.learning_rate, config.warm_up, "linear"),
            config.weight_decay,
            max_grad_norm=config.max_grad_norm,
            save_every=config.save_every,
            keep_best=KeepBest(BEST) if held_out else None,
            trainable_only=True,
        )
        work, progress = self.context.work / "train", self.context.progress
        validate = (lambda: {BEST: self._mrr(held_out)}) if held_out else None
        loop = Loop({"model": self.model}, options, self._step, work, identity, progress, NAME, self.process, validate)
        figures = {"questions": float(len(self.rows)), "rows": float(self.count), "questions_left_out": float(self.asked - len(self.rows))}
        return PreparedRun(loop, self._save, figures)

    def _step(self, step: int) -> Figures:
        epoch, position = divmod(step, self._epoch)
        size = self.config.batch_size
        rows = self._groups(epoch)[position * size : (position + 1) * size]
        return {"loss": self.objective.backward(rows, (self.config.seed, NAME, step))}

    def _mrr(self, rows: Sequence[Mined]) -> float:
        """Mean of 1 / rank of a question's first positive among its candidates (or what BM25 found)."""
        import torch

        ranks = []
        with torch.inference_mode():
            for row in rows:
                texts = (*(row.near or row.others), *row.positives)  # positives last: equal scores do not favor them
                parts = [texts[start : start + self.config.part] for start in range(0, len(texts), self.config.part)]
                scores = torch.cat([self.objective.scores([(row.question, text) for text in part]) for part in parts])
                order = np.argsort(-scores.float().cpu().numpy(), kind="stable")
                ranks.append(int(np.flatnonzero(order >= len(texts) - len(row.positives))[0]) + 1)
        return float(np.mean(1 / np.array(ranks)))

    def _save(self, folder: Path, figures: Figures) -> None:
        config = self.config
        self.model.save_pretrained(str(folder))
        # PEFT's settings name its version, and list layers in no order.
        path = folder / "adapter_config.json"
        settings = json.loads(path.read_text("utf-8"))
        settings.pop("peft_version", None)
        settings = {name: sorted(value) if isinstance(value, list) else value for name, value in settings.items()}
        path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", "utf-8")
        facts = {"negatives": config.negatives, "epochs": config.epochs, "positives of a step": config.batch_size, **figures}
        rows = "\n".join(f"| {name} | {f'{value:.6g}' if isinstance(value, float) else value} |" for name, value in facts.items())
        data = ", ".join(f"`{item}`" for item in config.data)
        (folder / "README.md").write_text(_CARD.format(base=config.base, data=data, seed=config.seed, rows=rows), "utf-8")

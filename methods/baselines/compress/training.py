"""Options, losses and stages of the trainings of soft compressors, and registration of systems.

Stages:

    pretrained   restore a passage from its memory, or continue it from the memory of its first half
    tuned        answer a question from the memory of several passages

    L = ( Σ −log p(reply | prompt) + divergence · Σ KL( p_base(· | text) ‖ p(· | memory) ) ) / tokens of the batch's replies

Additions that are in no paper are marked as ours and off by default. The presets for worlds enable them, so that a base of a
few million parameters learns within minutes (docs/methods/compressors.md).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, create_model, model_validator

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from benchmarks.registry import Benchmark
from methods.baselines.compress.memory import SoftCompressor, SoftCompressorConfig, soft_needs, soft_work
from methods.baselines.compress.rows import CompressionRow, answer_rows, fits, joined, passage_rows, ranked_by, renamed, taught_by_base
from methods.baselines.compress.soft import SoftConfig, System, cut, require_checkpoint
from methods.models.weights import locate, weights_hash
from methods.presets import laid_over, read_presets
from methods.registry import Component, register
from methods.training import LengthsOf, TrainedStage, TrainingContext, known_data, register_training
from methods.training.contrast import HeldOutConfig
from methods.training.loop import Figures, KeepBest, LoopPlace, loop_over_rows
from methods.training.material import chosen_by, load_data
from methods.training.parts import MicroBatch, in_parts
from methods.training.ranks import accelerator, first, wait
from methods.training.stages import PreparedRun, train_stage
from methods.training.tuning import StepOptions
from methods.work import Checkpoint, Needs, StageWork, all_needs, learn, saved_adapters, saved_weights, steps, total

if TYPE_CHECKING:
    from torch import Tensor

    from methods.baselines.compress.model import SoftModel
    from methods.training.pieces import Piece

PRETRAINED, TUNED = "pretrained", "tuned"
LOSS = "validation_loss"


class SoftStepOptions(StepOptions):
    """Optimization options of one stage of a soft compressor."""

    naming: float = Field(
        0.0, ge=0, description="ours: weight of a loss that makes each vector predict the tokens of its share of a passage"
    )
    naming_only: int = Field(0, ge=0, description="ours: number of first steps that train with this loss only")
    naming_fades: float = Field(1.0, gt=0, le=1, description="ours: share of the steps over which that weight falls to 0")


class SoftTrainingConfig(HeldOutConfig):
    """Options of the trainings of all soft compressors."""

    system_class: ClassVar[type[System]]

    base: str | None = Field(None, description="model.base, as set by --base")
    model: SoftConfig = SoftConfig.model_validate({})
    start: str | None = Field(None, description="a checkpoint to tune, instead of the result of `pretrained`")
    documents: int = Field(5, ge=1, description="passages per question: its evidence, then other candidates, in random order")
    answers: Literal["data", "base"] = Field(
        "data", description="target answers: the data's, or those that the base itself gives from the passages as text"
    )
    passages: int | None = Field(
        None, ge=1, description="number of passages for pretraining, sampled with the seed; null: the data's whole corpus"
    )
    restored: float = Field(
        0.5, ge=0, le=1, description="share of the passages that are reconstructed in full; of the others, only the second half is"
    )
    questions: int | None = Field(
        None, ge=1, description="ours: maximum questions per passage in pretraining, which replace reconstruction"
    )
    together: int = Field(
        1, ge=1, description="ours: maximum questions per encoded set of passages in tuning: its own, and others that these passages answer"
    )
    out_of_vocabulary: float = Field(
        0.0,
        ge=0,
        le=1,
        description="ours: share of the names of training worlds that are replaced by other names, sampled again in each epoch",
    )
    divergence: float = Field(0.0, ge=0, description="weight of the divergence from the base that reads text; published for xRAG 2")
    teacher: str | None = Field(None, description="reranker whose scores a ranking system learns (oscar with model.ranks); null: none")
    teacher_options: dict[str, Any] = Field(default_factory=dict, description="options of that reranker")
    ranking: float = Field(0.05, gt=0, description="weight of the squared error to the reranker's scores; published 0.05")
    pretrained: SoftStepOptions = SoftStepOptions.model_validate({})
    tuned: SoftStepOptions = SoftStepOptions.model_validate({})
    weight_decay: float = Field(0.1, ge=0, description="weight decay of AdamW on matrices; biases and norms have none")
    max_grad_norm: float = Field(1.0, gt=0, description="maximum norm of gradients; larger ones are scaled down")

    @model_validator(mode="after")
    def _read_once(self) -> Self:
        if self.system_class.queried and max(self.together, self.questions or 1) > 1:
            raise ValueError("together must be 1: the memory of this system depends on the question")
        if (self.teacher is not None) != self.system.ranks:
            raise ValueError(
                "teacher: systems that rank (oscar with model.ranks) need a reranker as teacher, and other systems must not set one"
            )
        return self

    @property
    def system(self) -> System:
        """Return the system to train."""
        return self.system_class(self.model.model_copy(update={"base": self.base}) if self.base else self.model)

    def stages_of(self, stages: tuple[str, ...]) -> tuple[str, ...]:
        """Return the stages; only tuning if the training starts from a checkpoint."""
        return stages if self.start is None else (TUNED,)

    def preflight(self) -> None:
        """Check data references, models and the start checkpoint."""
        super().preflight()
        for source, _ in self.system.models.values():
            locate(source)
        if self.start is not None:
            require_checkpoint(self.start, self.system.name, where="start")
        if self.teacher is not None:
            Component.of(self.teacher, self.teacher_options, where="teacher").preflight()


PRESETS = read_presets(Path(__file__).with_name("presets.yaml"))


class Objective:
    """Training loss of a soft compressor.

    Args:
        model: The model.
        divergence: Weight of the KL divergence from the base model reading text.
        process: `accelerate` process; None for no mixed precision.
        ranking: Weight of the squared error against a reranker's scores, if rows have them.
    """

    def __init__(self, model: SoftModel, divergence: float, process: Any = None, ranking: float = 0.0) -> None:
        self.model, self.divergence, self.process, self.ranking = model, divergence, process, ranking

    def summed(self, rows: Sequence[CompressionRow], memory: Sequence[Tensor] | None = None) -> tuple[Tensor, int]:
        """Compute the loss of rows, summed over predicted tokens, and their number.

        Args:
            rows: The rows.
            memory: Unscaled memory of all passages in order; None encodes them.
        """
        import torch
        from torch.nn.functional import cross_entropy

        from methods.training.pieces import divergence

        model, system = self.model, self.model.system
        own_losses = system.losses(model, rows)
        if own_losses is not None:
            return own_losses
        vectors = iter(map(model.placed, model.raw(*_read(rows)) if memory is None else memory))
        prompts = [self._prompts(row, [next(vectors) for _ in row.documents]) for row in rows]
        replies = [[model.reply(target) for _, target in row.asked] for row in rows]
        outputs = model.taught(prompts, replies, system.reads)
        loss = cross_entropy(outputs.logits, outputs.labels, reduction="sum")
        if self.divergence and rows[0].kind == "answer":
            with torch.no_grad():
                texts = [[model.prompt_of_text(question, row.documents) for question, _ in row.asked] for row in rows]
                teacher = model.taught(texts, replies, None)
            loss = loss + self.divergence * divergence(outputs.logits, teacher.logits).sum()
        return loss, len(outputs.labels)

    def _prompts(self, row: CompressionRow, memory: list[Tensor]) -> list[list[Piece]]:
        model, system = self.model, self.model.system
        if row.kind == "answer":
            return [system.prompt(model, question, memory) for question, _ in row.asked]
        if row.kind == "continue":
            return [system.continuing(model, memory[0])]
        return [system.restoring(model, memory[0], int(fingerprint(row.target), 16))]

    def _naming_loss(self, rows: Sequence[CompressionRow], memory: Sequence[Tensor]) -> Tensor:
        """Compute the naming loss of memory vectors, summed over passages."""
        import torch

        from methods.training.pieces import naming_terms

        head, terms = self.model.base.get_output_embeddings(), []
        for text, vectors in zip(_read(rows)[0], memory, strict=True):
            ids = torch.tensor([self.model.ids(text)], device=vectors.device)
            if len(vectors):
                terms.append(naming_terms(head(vectors.to(head.weight.dtype))[None], ids, ids >= 0, ids >= 0))
        return torch.cat(terms).sum()

    def backward(
        self, rows: Sequence[CompressionRow], micro_batch: int, key: tuple[Any, ...], naming: float = 0.0, alone: bool = False
    ) -> float:
        """Compute a step's gradient in parts of similar length and add it to the parameters; each process handles its own
        parts.

        Args:
            rows: Rows of the step.
            micro_batch: Rows per part.
            key: Seed parts for dropout.
            naming: Weight of the naming loss (mean over passages).
            alone: Whether to use only the naming loss.

        Returns:
            The loss of the whole step.
        """
        model, system = self.model, self.model.system
        parts = cut(sorted(rows, key=lambda row: sum(map(len, row.documents))), micro_batch)
        tokens = sum(system.predicted(model, row) for row in rows)
        passages = sum(len(row.documents) for row in rows)

        def loss(part: Sequence[CompressionRow]) -> Tensor:
            if not naming and not self.ranking:
                return self.summed(part)[0] / tokens
            memory, scores = system.scored(model, *_read(part)) if self.ranking else (model.raw(*_read(part)), None)
            terms = [naming * self._naming_loss(part, memory) / passages] if naming else []
            if scores is not None:
                wanted = scores.new_tensor([value for row in part for value in row.relevance])
                terms.append(self.ranking * (scores - wanted).square().sum() / len(rows))
            return sum(terms if alone else [*terms, self.summed(part, memory)[0] / tokens])

        return in_parts(parts, loss, key, self.process, model.device)

    def mean(self, rows: Sequence[CompressionRow], micro_batch: int) -> float:
        """Return the loss per predicted token."""
        import torch

        with torch.inference_mode():
            parts = [self.summed(part) for part in cut(rows, micro_batch)]
        return sum(float(loss) for loss, _ in parts) / sum(count for _, count in parts)


def _read(rows: Sequence[CompressionRow]) -> tuple[list[str], list[str]]:
    """Return all passages of the rows, and the question for which each is encoded."""
    return [text for row in rows for text in row.documents], [row.question for row in rows for _ in row.documents]


class SoftTraining:
    """Training of a soft compressor."""

    def __init__(self, config: SoftTrainingConfig) -> None:
        self.config = config

    def run(self, context: TrainingContext) -> Iterator[TrainedStage]:
        """Train all stages in order and yield each finished one; with several processes, only the main one yields.

        Raises:
            UserError: The data must not be trained on or provides no rows, or the folders contain other work.
            Broke: The loss is NaN.
        """
        config, system = self.config, self.config.system
        benchmarks = load_data(config.data, config.data_options)
        data = tuple(benchmark.fingerprint for benchmark in benchmarks)
        validation = load_data(config.validation, config.validation_options, train=False)
        process, parent = accelerator(config.precision, context.services.device), config.start
        for stage in config.stages_of(system.stages):
            models: list[tuple[str, str | None]] = [*([(parent, None)] if parent else []), *system.models.values()]
            begin = partial(self._prepared, stage, parent, benchmarks, validation, context, process)
            own, inputs = replace(context, work=context.work / stage), chosen_by(validation)
            yield from train_stage(stage, config, models[0], data, own, process, begin, others=models[1:], inputs=inputs)
            wait(process)
            parent = str(context.checkpoints / stage)

    def _prepared(
        self,
        stage: str,
        parent: str | None,
        benchmarks: Sequence[Benchmark],
        validation: Sequence[Benchmark],
        context: TrainingContext,
        process: Any,
        identity: str,
    ) -> PreparedRun:
        from methods.baselines.compress.model import SoftModel

        config, train, name = self.config, getattr(self.config, stage), self.config.system.name
        if parent:
            model = SoftModel.load(Path(locate(parent)), str(process.device))
        else:
            model = SoftModel(config.system, str(process.device), seed=config.seed)
        with first(process):
            held_out = self._load_rows(stage, validation, 100, context)
            rows = self._load_rows(stage, benchmarks, config.passages, context)
            number = len(rows)
            if config.answers == "base" and stage == TUNED:
                rows = [row for row in rows if fits(model, row, text=True)]
                rows = taught_by_base(model, rows, context.work / "answers.jsonl")
            if config.teacher is not None:
                rows = ranked_by(Component.of(config.teacher, config.teacher_options), rows, context.services)
        rows = joined(rows, (config.together if stage == TUNED else config.questions) or 1, config.seed)
        objective = Objective(model, config.divergence if stage == TUNED else 0.0, process, config.ranking if config.teacher else 0.0)
        rows, held_out = ([row for row in some if fits(model, row, text=bool(objective.divergence))] for some in (rows, held_out))
        if not rows:
            raise UserError(
                "no training rows are left",
                code="no-row-left",
                where="data",
                try_this="questions with evidence, or a higher model.max_prompt",
            )
        model.set_trainable(model.system.trained(stage))

        def order(turn: int) -> list[CompressionRow]:
            positions = list(range(len(rows)))
            Draws(name, stage, config.seed, turn).shuffle(positions)
            return [rows[position] for position in positions]

        def backward(some: Sequence[CompressionRow], epoch: int, step: int) -> Figures:
            if share := config.out_of_vocabulary:
                some = [renamed(row, share, Draws("compress names", config.seed, step, n)) for n, row in enumerate(some)]
            naming = train.naming * max(0.0, 1.0 - step / (loop.options.steps * train.naming_fades))
            key = name, stage, config.seed, step
            return {"loss": objective.backward(some, micro.size, key, naming, step < train.naming_only)}

        def validate() -> Figures:
            return {LOSS: objective.mean(held_out, train.micro_batch)}

        own, micro = replace(context, work=context.work / stage), MicroBatch(train.micro_batch, f"{stage}.micro_batch")
        place = LoopPlace.of(own, fingerprint(identity, stage), process, validate if held_out else None)
        more: dict[str, Any] = {"weight_decay": config.weight_decay, "max_grad_norm": config.max_grad_norm, "trainable_only": True}
        best = KeepBest(LOSS, lowest=True) if held_out else None
        loop = loop_over_rows(name, {"model": model}, train, order, len(rows), backward, place, micro=micro, keep_best=best, **more)

        def save(folder: Path, figures: Figures) -> None:
            model.save(folder)
            shutil.copyfile(loop.curve, folder / "curve.jsonl")

        return PreparedRun(loop, save, {"rows": float(len(rows)), "too_long": float(number - len(rows)), "held_out": float(len(held_out))})

    def _load_rows(
        self, stage: str, benchmarks: Sequence[Benchmark], passages: int | None, context: TrainingContext
    ) -> list[CompressionRow]:
        config = self.config
        if stage == PRETRAINED and config.questions is None:
            return [row for item in benchmarks for row in passage_rows(item, passages, config.restored, config.seed)]
        return answer_rows(benchmarks, config.documents if stage == TUNED else 1, context)


def _needs(config: SoftTrainingConfig) -> Needs | None:
    first = [Checkpoint(config.start)] if config.start else []
    own = Needs((*first, *(Checkpoint(*model, config.model.dtype) for model in config.system.models.values())))
    return all_needs([own, *([Component.of(config.teacher, config.teacher_options).needs] if config.teacher else [])])


def _work(config: SoftTrainingConfig, of: LengthsOf) -> list[StageWork]:
    """Estimate the work: encoding passages and generating replies; also a teacher's reading of text."""
    data = known_data(config, of)
    system, size, results = config.system, data[0].size, []
    models = list(system.models.values())
    reader, encoder = Checkpoint(*models[0]), Checkpoint(*models[-1])
    kept = total(saved_weights(size(*system.models[name]), system.models[name][0]) for name in system.whole)
    if system.adapters:
        kept += saved_adapters(size(*models[0]), reader.model, config.model.lora.r, len(system.adapters))  # type: ignore[attr-defined]
    for stage in config.stages_of(system.stages):
        train, works, rows = getattr(config, stage), [], 0.0
        written = stage == PRETRAINED and config.questions is None
        for lengths in data:
            count = system.typical_count(lengths.passage)
            each = 1 if stage == PRETRAINED else config.documents
            number = min(lengths.corpus, config.passages or lengths.corpus) if written else lengths.questions
            reply = lengths.passage if written else lengths.question + lengths.answer
            turns = 1 if written else config.together if stage == TUNED else config.questions or 1
            read = [(encoder, number * each, lengths.passage + count), (reader, number, each * count + turns * reply)]
            works += [learn(*item, config.precision, causal=True, adapted=bool(system.adapters)) for item in read]
            rows += number
        every = steps(rows, train.batch_size, train.epochs)
        wanted = min(every, train.steps or every)
        results.append(StageWork(stage, total(works) * (train.epochs * wanted / every if every else 0.0) + kept, rows, wanted))
    return results


S = TypeVar("S", bound=System)


def register_system(
    name: str,
    *,
    compressor: str,
    training: str,
    small: Mapping[str, Any],
    worlds: Mapping[str, Any] | None = None,
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    defaults: Mapping[str, Any] | None = None,
    versions: tuple[int, int] = (1, 1),
) -> Callable[[type[S]], type[S]]:
    """Register a soft compressor with its compressor role and its training; a class decorator.

    Args:
        name: Name of compressor and training.
        compressor, training: One-line summary of each.
        small: System options for the shipped pocket model.
        worlds: Training options for worlds that differ from the common ones.
        presets: Further presets of the training; a name that begins with `worlds` extends the preset `worlds`.
        defaults: Default options of the training that differ from the common ones.
        versions: Version of the compressor and of the training.
    """

    def decorate(system: type[S]) -> type[S]:
        system.name, module = name, system.__module__
        shared: dict[str, Any] = {"paper": system.paper, "extra": "models"}
        fields: dict[str, Any] = {"model": (system.config_class, system.config_class.model_validate({}))}
        for field, value in (defaults or {}).items():
            info = SoftTrainingConfig.model_fields[field]
            chosen = SoftStepOptions.model_validate(value) if isinstance(value, Mapping) else value
            fields[field] = (info.rebuild_annotation(), Field(chosen, description=info.description))
        title = f"{system.__name__}TrainingConfig"
        config = create_model(title, __base__=SoftTrainingConfig, __module__=module, __doc__="Options of the training.", **fields)
        config.system_class = system
        short = laid_over(laid_over(PRESETS["worlds"], {"model": small}), worlds or {})
        more = {key: laid_over(short, options) if key.startswith("worlds") else options for key, options in (presets or {}).items()}
        register(
            name,
            kind="compressor",
            summary=compressor,
            version=versions[0],
            config=SoftCompressorConfig,
            checkpoint_hash=lambda options: weights_hash(options.model),
            work=soft_work,
            needs=soft_needs,
            **shared,
        )(type(f"{system.__name__}Compressor", (SoftCompressor,), {"memory": name, "__module__": module}))
        register_training(
            name,
            summary=training,
            stages=system.stages,
            config=config,
            version=versions[1],
            presets={"worlds": short, "worlds-long": laid_over(short, PRESETS["long"]), **more},
            work=_work,
            needs=_needs,
            **shared,
        )(SoftTraining)
        return system

    return decorate

"""`ragmeter train pisco`, `cocom`, `xrag`, `pcc`, `autocompressor`: rows, losses and stages that the systems share.

pretrained   a passage's memory, and the passage is written out from it, or its second half from that of the first
tuned        the memory of several passages and a question, and the answer

    L = ( Σ −log p(reply | prompt) + divergence · Σ KL( p_base(· | text) ‖ p(· | memory) ) ) / tokens of the batch's replies
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from benchmarks.registry import Benchmark, load, resolve
from methods.baselines.compress.soft import SoftConfig, System, models_of, require_checkpoint, typical_count
from methods.models.weights import locate
from methods.registry import Component, laid_over
from methods.training import LengthsOf, TrainedStage, TrainingConfig, TrainingContext
from methods.training.candidates import retrieved
from methods.training.contrast import load_data
from methods.training.loop import Figures, KeepBest, Loop, LoopOptions, Schedule, accelerator, backward, own, summed
from methods.training.stages import PreparedRun, read_lines, train_stage, write_lines
from methods.work import FLOAT, Checkpoint, Needs, StageWork, Work, learn, saved_weights, steps, total, unknown

if TYPE_CHECKING:
    from methods.baselines.compress.model import SoftModel

PRETRAINED, TUNED = "pretrained", "tuned"
LOSS = "validation_loss"
LONGEST = 64
"""Tokens of an answer that the base writes, at most."""
MARKS = 16
"""Tokens beside a passage's memory in a prompt, at most."""
Kind = Literal["restore", "continue", "answer"]


class StepOptions(BaseModel):
    """How a stage is optimized."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int = Field(1, ge=1, description="times that each row is used")
    learning_rate: float = Field(1e-4, gt=0, description="of AdamW, at its peak")
    warm_up: float = Field(0.05, ge=0, description="share of the steps in which it rises, below 1; else their number")
    batch_size: int = Field(128, ge=1, description="rows of a step")
    micro_batch: int = Field(8, ge=1, description="rows read at once; bounds memory, the gradient is the same")
    save_every: int = Field(200, ge=1, description="steps between two points to go on from")


class SoftTrainingConfig(TrainingConfig):
    """Options of the trainings of all compressors into vectors."""

    system_class: ClassVar[type[System]]

    data: tuple[str, ...] = Field(min_length=1, description="references of questions with evidence, such as worlds/multihop:train or pisco")
    data_options: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options of the loaders, by dataset id")
    validation: tuple[str, ...] = Field((), description="references of held-out questions; the weights of the lowest loss are kept")
    validation_options: dict[str, dict[str, Any]] = Field(default_factory=dict, description="as data_options")
    base: str | None = Field(None, description="model.base, as --base gives it")
    model: SoftConfig = SoftConfig.model_validate({})
    start: str | None = Field(None, description="a checkpoint to tune in place of what `pretrained` would make")
    documents: int = Field(5, ge=1, description="passages beside a question: its evidence, then others of its candidates, in random order")
    answers: Literal["data", "base"] = Field(
        "data", description="what is taught: the data's answers, or what the base itself answers from the passages as text"
    )
    passages: int | None = Field(None, ge=1, description="passages of pretraining, drawn by the seed; null: all of the data's corpus")
    restored: float = Field(
        0.5, ge=0, le=1, description="share of them that are written out again; of the others only the second half is written"
    )
    divergence: float = Field(
        0.0, ge=0, description="weight of the divergence from the base that reads the passages as text; published for xRAG 2"
    )
    pretrained: StepOptions = StepOptions.model_validate({})
    tuned: StepOptions = StepOptions.model_validate({})
    weight_decay: float = Field(0.1, ge=0, description="of matrices")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are scaled down to this norm")
    precision: Literal["no", "bf16", "fp16"] = Field("no", description="mixed precision")

    @property
    def system(self) -> System:
        """What is trained."""
        return self.system_class(self.model.model_copy(update={"base": self.base}) if self.base else self.model)

    def stages_of(self, stages: tuple[str, ...]) -> tuple[str, ...]:
        """Only tuning, where it begins from a checkpoint."""
        return stages if self.start is None else (TUNED,)

    def preflight(self) -> None:
        """Check references, models and the checkpoint to begin from."""
        for reference in (*self.data, *self.validation):
            resolve(reference, where="data")
        for source, _ in models_of(self.system).values():
            locate(source)
        if self.start is not None:
            require_checkpoint(self.start, self.system.name, where="start")


_SINGLE: Mapping[str, Any] = {"mix": {"single": 1.0}}
_STEPS: Mapping[str, Any] = {"learning_rate": 1e-3, "batch_size": 16, "micro_batch": 16}
SMALL_WORLDS: Mapping[str, Any] = {
    "base": "pocket",
    "data": ["worlds/multihop:train"],
    "data_options": {"worlds": {"worlds": 8, "questions": 800, **_SINGLE}},
    "validation": ["worlds/multihop:validation"],
    "validation_options": {"worlds": {"worlds": 2, "questions": 64, **_SINGLE}},
    "documents": 3,
    "passages": 960,
    "weight_decay": 0.0,
    "pretrained": _STEPS,
    "tuned": _STEPS,
}
"""The tiny language model that ships, on worlds: two or three minutes on a CPU."""
LONG_WORLDS: Mapping[str, Any] = {
    **SMALL_WORLDS,
    "data": ["worlds/long:train"],
    "data_options": {"worlds": {"worlds": 8, "questions": 16000, "chunk_words": 190, **_SINGLE}},
    "validation": ["worlds/long:validation"],
    "validation_options": {"worlds": {"worlds": 2, "questions": 200, "chunk_words": 190, **_SINGLE}},
    "passages": None,
    "pretrained": {**_STEPS, "epochs": 4},
    "tuned": {**_STEPS, "epochs": 2},
    "model": {"max_length": 256},
}
"""The same on passages of 256 tokens, for hours."""


def shared_settings(small: Mapping[str, Any], more: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Any]:
    """What the registrations of these trainings share.

    Args:
        small: Options of the model for the tiny language model that ships.
        more: Further presets; one that begins with `worlds` lies over `worlds`.
    """
    worlds, long = laid_over(SMALL_WORLDS, {"model": small}), laid_over({"model": small}, LONG_WORLDS)
    presets = {name: laid_over(worlds, options) if name.startswith("worlds") else options for name, options in (more or {}).items()}
    return {"presets": {"worlds": worlds, "worlds-long": long, **presets}, "work": _work, "needs": _needs}


# -- Rows --


@dataclass(frozen=True, slots=True)
class Row:
    """What is taught of one reading: passages, what is asked about them, and the reply."""

    kind: Kind
    documents: tuple[str, ...]
    question: str
    target: str


def answer_rows(benchmark: Benchmark, documents: int, context: TrainingContext) -> list[Row]:
    """A row for each question with evidence in the corpus and an answer: evidence first, then its own candidates or BM25's."""
    corpus = benchmark.corpus
    questions = [item for item in benchmark.questions if item.golds and any(at in corpus for at in item.evidence)]
    retrieved_ids = retrieved(
        benchmark, [item for item in questions if not item.candidates], Component.of("bm25"), 2 * documents, context.services
    )
    rows = []
    for item in questions:
        ids = dict.fromkeys((*(at for at in item.evidence if at in corpus), *(item.candidates or retrieved_ids[item.id])))
        chosen = list(ids)[:documents]
        Draws("compress documents", item.id).shuffle(chosen)
        rows.append(Row("answer", tuple(passage.full_text for passage in corpus.get(chosen)), item.text, item.golds[0]))
    return rows


def passage_rows(benchmark: Benchmark, limit: int | None, restored: float, seed: int) -> list[Row]:
    """A row for each passage: it is written out again, or its second half is."""
    rows = []
    for passage in benchmark.corpus:
        text, words = passage.full_text, passage.full_text.split()
        draws = Draws("compress passages", seed, passage.id)
        if len(words) < 2:
            continue
        if draws.random() < restored:
            rows.append(Row("restore", (text,), "", text))
        else:
            middle = text.index(words[len(words) // 2], len(" ".join(words[: len(words) // 2])))
            rows.append(Row("continue", (text[:middle].rstrip(),), "", text[middle:]))
    return rows if limit is None or limit >= len(rows) else Draws("compress passages", seed).sample(rows, limit)


def taught_by_base(model: SoftModel, rows: Sequence[Row], path: Path, batch_size: int = 16) -> list[Row]:
    """Rows whose replies are what the base answers from text; what it leaves empty is left out.

    Args:
        model: With the base.
        rows: Of questions.
        path: Where the replies are kept.
        batch_size: Prompts at once.
    """
    made_of = fingerprint([asdict(row) for row in rows])
    kept = read_lines(path) if path.exists() else []
    if not kept or kept[0].get("made_of") != made_of:
        prompts = [model.prompt_of_text(row.question, row.documents) for row in rows]
        replies = model.generate(prompts, LONGEST, batch_size, None)
        kept = [{"made_of": made_of}, *({"answer": reply.text} for reply in replies)]
        write_lines(path, kept)
    taught = [replace(row, target=item["answer"]) for row, item in zip(rows, kept[1:], strict=True)]
    return [row for row in taught if row.target]


# -- The training --


class Objective:
    """The loss of rows.

    Args:
        model: In training.
        divergence: Weight of the divergence from the base that reads text.
        process: Of `accelerate`; None: no mixed precision.
    """

    def __init__(self, model: SoftModel, divergence: float, process: Any = None) -> None:
        self.model, self.divergence, self.process = model, divergence, process

    def summed(self, rows: Sequence[Row]) -> tuple[Any, int]:
        """The loss of rows, summed over what is predicted, and how much that is."""
        from torch.nn.functional import cross_entropy

        model, system = self.model, self.model.system
        own_losses = system.losses(model, rows)
        if own_losses is not None:
            return own_losses
        texts = [text for row in rows for text in row.documents]
        memory = iter(model.encode(texts, [row.question for row in rows for _ in row.documents]))
        prompts = [self._prompt(row, [next(memory) for _ in row.documents]) for row in rows]
        replies = [model.reply(row.target) for row in rows]
        outputs = model.taught(prompts, replies, system.reads)
        loss = cross_entropy(outputs.logits, outputs.labels, reduction="sum")
        if self.divergence and rows[0].kind == "answer":
            loss = loss + self.divergence * self._divergence(rows, replies, outputs.logits)
        return loss, len(outputs.labels)

    def _prompt(self, row: Row, memory: list[Any]) -> list[Any]:
        model, system = self.model, self.model.system
        if row.kind == "answer":
            return system.prompt(model, row.question, memory)
        if row.kind == "continue":
            return system.continuing(model, memory[0])
        return system.restoring(model, memory[0], int(fingerprint(row.target), 16))

    def _divergence(self, rows: Sequence[Row], replies: Sequence[list[int]], student: Any) -> Any:
        import torch

        from methods.training.pieces import divergence

        with torch.no_grad():
            prompts = [self.model.prompt_of_text(row.question, row.documents) for row in rows]
            teacher = self.model.taught(prompts, replies, None)
        return divergence(student, teacher.logits).sum()

    def backward(self, rows: Sequence[Row], micro_batch: int, key: tuple[Any, ...]) -> float:
        """Add a step's gradient in parts of like length; each process its own parts. Returns the loss of the whole."""
        from contextlib import nullcontext

        import torch

        order = sorted(rows, key=lambda row: sum(map(len, row.documents)))
        parts = [order[start : start + micro_batch] for start in range(0, len(order), micro_batch)]
        whole, value = self._whole(rows), 0.0
        devices = [self.model.device] if self.model.device.type == "cuda" else []
        for number, part in enumerate(own(parts, self.process)):
            with torch.random.fork_rng(devices=devices), nullcontext() if self.process is None else self.process.autocast():
                torch.manual_seed(int(fingerprint(*key, number), 16) % 2**63)
                loss = self.summed(part)[0] / whole
            backward(loss, self.process)
            value += float(loss.detach())
        return summed(value, self.process, self.model.device)

    def _whole(self, rows: Sequence[Row]) -> int:
        """What a batch's losses are divided by: tokens that are predicted."""
        return sum(self.model.system.predicted(self.model, row) for row in rows)

    def mean(self, rows: Sequence[Row], micro_batch: int) -> float:
        """The loss per predicted token."""
        import torch

        total, number = 0.0, 0
        with torch.inference_mode():
            for start in range(0, len(rows), micro_batch):
                loss, count = self.summed(rows[start : start + micro_batch])
                total, number = total + float(loss), number + count
        return total / number


class SoftTraining:
    """The training of a system.

    Args:
        config: Options.
    """

    def __init__(self, config: SoftTrainingConfig) -> None:
        self.config = config

    def run(self, context: TrainingContext) -> Iterator[TrainedStage]:
        """Train, stage after stage; only the main process of several reports them.

        Raises:
            UserError: The data may not be trained on or give no row, or the folders hold other work.
            Broke: The loss is no number.
        """
        config, system = self.config, self.config.system
        benchmarks = load_data(config.data, config.data_options)
        process, parent = accelerator(config.precision, context.services.device), config.start
        sources = list(models_of(system).values())
        for stage in config.stages_of(system.stages):
            base, others = ((parent, None), sources) if parent else (sources[0], sources[1:])
            yield from train_stage(
                stage,
                config,
                base,
                tuple(benchmark.fingerprint for benchmark in benchmarks),
                replace(context, work=context.work / stage),
                process,
                lambda identity, stage=stage, parent=parent: self._prepared(stage, parent, benchmarks, context, process, identity),  # type: ignore[misc]
                others=others,
            )
            process.wait_for_everyone()
            parent = str(context.checkpoints / stage)

    def _prepared(
        self, stage: str, parent: str | None, benchmarks: Sequence[Benchmark], context: TrainingContext, process: Any, identity: str
    ) -> PreparedRun:
        from methods.baselines.compress.model import SoftModel

        config, train = self.config, getattr(self.config, stage)
        model = (
            SoftModel.load(Path(locate(parent)), str(process.device))
            if parent
            else SoftModel(config.system, str(process.device), seed=config.seed)
        )
        with process.main_process_first():
            rows, held_out = self._rows(stage, benchmarks, context), self._held_out(stage, context)
            number = len(rows)
            if config.answers == "base" and stage == TUNED:
                rows = [row for row in rows if _fits(model, row, text=True)]
                rows = taught_by_base(model, rows, context.work / "answers.jsonl")
        objective = Objective(model, config.divergence if stage == TUNED else 0.0, process)
        rows, held_out = ([row for row in some if _fits(model, row, text=bool(objective.divergence))] for some in (rows, held_out))
        if not rows:
            raise UserError("no row is left to learn from", where="data", try_this="questions with evidence, or a higher model.max_prompt")
        model.set_trainable(model.system.trained(stage))
        epoch = -(-len(rows) // train.batch_size)
        order = lru_cache(2)(lambda turn: _shuffled(len(rows), (model.system.name, stage, config.seed, turn)))

        def step(at_step: int) -> Figures:
            which, at = divmod(at_step, epoch)
            some = [rows[row] for row in order(which)[at * train.batch_size : (at + 1) * train.batch_size]]
            return {"loss": objective.backward(some, train.micro_batch, (model.system.name, stage, config.seed, at_step))}

        options = LoopOptions(
            train.epochs * epoch,
            epoch,
            Schedule(train.learning_rate, train.warm_up, "linear"),
            config.weight_decay,
            max_grad_norm=config.max_grad_norm,
            save_every=train.save_every,
            keep_best=KeepBest(LOSS, lowest=True) if held_out else None,
            trainable_only=True,
        )
        validate = (lambda: {LOSS: objective.mean(held_out, train.micro_batch)}) if held_out else None
        work = context.work / stage / "train"
        loop = Loop(
            {"model": model}, options, step, work, fingerprint(identity, stage), context.progress, model.system.name, process, validate
        )

        def save(folder: Path, figures: Figures) -> None:
            model.save(folder)
            shutil.copyfile(loop.curve, folder / "curve.jsonl")
            (folder / "README.md").write_text(_readme(config, stage, figures), "utf-8")

        return PreparedRun(loop, save, {"rows": float(len(rows)), "too_long": float(number - len(rows)), "held_out": float(len(held_out))})

    def _rows(self, stage: str, benchmarks: Sequence[Benchmark], context: TrainingContext) -> list[Row]:
        config = self.config
        if stage == PRETRAINED:
            return [row for item in benchmarks for row in passage_rows(item, config.passages, config.restored, config.seed)]
        return [row for item in benchmarks for row in answer_rows(item, config.documents, context)]

    def _held_out(self, stage: str, context: TrainingContext) -> list[Row]:
        config, rows = self.config, []
        for reference in config.validation:
            benchmark = load(reference, config.validation_options.get(resolve(reference)[0].name, {}))
            if stage == PRETRAINED:
                rows += passage_rows(benchmark, 100, config.restored, config.seed)
            else:
                rows += answer_rows(benchmark, config.documents, context)
        return rows


def _shuffled(count: int, key: tuple[Any, ...]) -> list[int]:
    order = list(range(count))
    Draws(*key).shuffle(order)
    return order


def _fits(model: SoftModel, row: Row, *, text: bool) -> bool:
    """Whether a row's memory, its question and its reply have room, and where text is read (`text`) that, too; nothing is encoded."""
    if text and not model.fits(model.prompt_of_text(row.question, row.documents), max(LONGEST, len(model.reply(row.target)))):
        return False
    prompt = model.prompt_of_text(row.question, ()) if row.kind == "answer" else []
    memory = sum(model.system.count(model, text) + MARKS for text in row.documents)
    return model.fits(prompt, memory + len(model.reply(row.target)))


# -- What it takes, and what it says of itself --


def _needs(config: SoftTrainingConfig) -> Needs:
    first = [Checkpoint(config.start)] if config.start else []
    return Needs((*first, *(Checkpoint(source, revision, config.model.dtype) for source, revision in models_of(config.system).values())))


def _work(config: SoftTrainingConfig, of: LengthsOf) -> list[StageWork]:
    """Passages to memory, and replies from memory; where text is the teacher, that is read, too."""
    data = [of(item, config.data_options) for item in config.data]
    for item in config.validation:
        of(item, config.validation_options)
    system, results = config.system, []
    reader, encoder = (Checkpoint(*list(models_of(system).values())[at]) for at in (0, -1))
    kept = total(
        saved_weights(data[0].size(source, revision), source) for source, revision in map(models_of(system).__getitem__, system.whole)
    )
    if system.adapters:
        each = data[0].size(reader.model, reader.revision).adapters(config.model.lora.r)  # type: ignore[attr-defined]
        kept += (
            unknown(f"disk of the adapters: the shape of {reader.model} is unknown")
            if each is None
            else Work(bytes=len(system.adapters) * FLOAT * each)
        )
    for stage in config.stages_of(system.stages):
        train, works, rows = getattr(config, stage), [], 0.0
        for lengths in data:
            count = typical_count(system, lengths.passage)
            each = 1 if stage == PRETRAINED else config.documents
            number = min(lengths.corpus, config.passages or lengths.corpus) if stage == PRETRAINED else lengths.questions
            reply = lengths.passage if stage == PRETRAINED else lengths.question + lengths.answer
            read = [(encoder, number * each, lengths.passage + count), (reader, number, each * count + reply)]
            works += [
                learn(model, train.epochs * texts, length, config.precision, causal=True, adapted=bool(system.adapters))
                for model, texts, length in read
            ]
            rows += number
        results.append(StageWork(stage, total([*works, kept]), rows, steps(rows, train.batch_size, train.epochs)))
    return results


def _readme(config: SoftTrainingConfig, stage: str, figures: Figures) -> str:
    system, train = config.system, getattr(config, stage)
    facts = {"learning rate": train.learning_rate, "rows of a step": train.batch_size, "epochs": train.epochs, **figures}
    rows = "\n".join(f"| {name} | {value:.6g} |" for name, value in facts.items())
    models = ", ".join(f"`{source}`" for source, _ in models_of(system).values())
    data = ", ".join(f"`{item}`" for item in config.data)
    return (
        f"---\nbase_model: {system.config.base}\npipeline_tag: text-generation\n---\n\n# {system.name}, {stage}\n\n"
        f"A compressor into vectors for `memory_reader`. Begun from {models}; data {data}; seed {config.seed}. "
        f"`memory.json` names the system and its options, `weights.safetensors` holds what was trained.\n\n| | |\n|---|---|\n{rows}\n"
    )

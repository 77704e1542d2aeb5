"""Options of CLaRa: its model, its data, its training, and their presets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from benchmarks.core.models import LaterOptions
from methods.models.weights import locate
from methods.presets import read_presets
from methods.registry import METHODS, Component
from methods.training import TrainingConfig, TrainingOptions
from methods.training.adapters import LoraOptions
from methods.training.material import check_references

Adapter = Literal["compressor", "generator", "reasoner"]
Part = Literal["compressor", "generator", "reasoner", "memory"]
"""Parts of the model that can be trained."""
ADAPTERS: tuple[Adapter, ...] = ("compressor", "generator", "reasoner")
TEXT: tuple[Adapter, ...] = ("generator",)
"""Adapters of a reader that is fine-tuned on documents as text."""
MEMORY: Literal["memory"] = "memory"
Variant = Literal["minus_infinity", "equation", "algorithm"]
"""Masking of documents that are already selected (see `generator.select`)."""
CANDIDATES = 20
"""Number of candidate documents in joint training (D)."""


class ClaraConfig(LaterOptions, TrainingOptions):
    """Options of a CLaRa model."""

    later: ClassVar[tuple[str, ...]] = ("joined",)

    base: str = Field(
        "mistralai/Mistral-7B-Instruct-v0.2", description="causal language model: a folder or hub id, or `pocket`, the model that ships"
    )
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: Literal["float32", "bfloat16", "float16", "auto"] | None = Field(
        None, description="dtype of the base's weights; null: float32 on CPU, the checkpoint's own elsewhere"
    )
    max_length: int = Field(256, ge=1, description="longest document in tokens (L); the rest is cut")
    rate: int = Field(16, ge=1, description="compression ratio: tokens of the longest document per memory token")
    lora: LoraOptions = LoraOptions.model_validate({})
    memory_init: Literal["mean", "spread"] = Field(
        "mean",
        description="initial value of memory token embeddings: mean, the mean of the base's embeddings (released), or spread, "
        "sampled with their mean and covariance (ours)",
    )
    positions: Literal["after", "spread"] = Field(
        "after",
        description="positions of memory tokens in attention: after the text (the paper), or spread, each at the end of its "
        "share of the text (ours, after Zhao et al. 2024, Position IDs Matter)",
    )
    memory_length: Literal["state", "embedding"] = Field(
        "state",
        description="length of memory vectors in a prompt: as the compressor made them (the paper), or the mean length "
        "of the base's embeddings (ours)",
    )
    template: Literal["auto", "chat", "plain", "pocket"] = Field(
        "auto",
        description="prompt format: the base's chat template, plain text, or the pocket model's format; auto: the format that "
        "the base was made for",
    )
    max_prompt: int = Field(2048, ge=16, description="longest prompt with its answer in tokens; a longer prompt is refused")
    tau: float = Field(0.02, gt=0, description="temperature of the selector; released 0.02")
    mask: Variant = Field(
        "minus_infinity",
        description="how already selected documents are masked in the soft weights; the paper's equation and algorithm disagree, "
        "so both are available; released: algorithm",
    )
    k: int = Field(5, ge=1, description="number of documents to answer from")

    joined: bool = Field(
        False,
        description="tokenize texts as if after the beginning-of-text token, where some tokenizers write the first word "
        "differently (released; set in converted checkpoints)",
    )

    @model_validator(mode="after")
    def _compresses(self) -> Self:
        if self.rate > self.max_length:
            raise ValueError(f"rate {self.rate} leaves no memory token for {self.max_length} document tokens: lower rate")
        return self

    @property
    def memory_tokens(self) -> int:
        """Return the number of memory tokens per document (M)."""
        return self.max_length // self.rate


Mix = Literal["none", "simple", "paraphrase", "simple+complex", "all"]
Type = Literal["simple", "complex", "paraphrase"]
TYPES: tuple[Type, ...] = ("simple", "complex", "paraphrase")
MIXES: dict[Mix, tuple[Type, ...]] = {
    "none": (),
    "simple": ("simple",),
    "paraphrase": ("paraphrase",),
    "simple+complex": ("simple", "complex"),
    "all": TYPES,
}
"""Row types in each data mix of the paper's Tables 4 and 20."""


class ScpDataConfig(TrainingOptions):
    """Data options of salient compressor pretraining (SCP)."""

    mix: Mix = Field(default="all", description="types of rows; none: no pretraining; paper: all; Table 4 compares the others")
    documents: int | None = Field(
        default=None,
        ge=1,
        description="number of documents, sampled with the seed, so that larger samples contain the smaller ones; null: all; "
        "paper: 2,000,000, in Table 12 also 500,000 and 1,000,000",
    )
    seed: int = Field(default=0, ge=0, description="random seed of the samples")

    @property
    def types(self) -> tuple[Type, ...]:
        """Return the requested row types."""
        return MIXES[self.mix]


class PoolConfig(TrainingOptions):
    """Options for choosing the documents of a question, if its dataset does not already provide them as training rows."""

    source: Literal["record", "retriever", "both"] = Field(
        default="record",
        description="record: the dataset's own candidates; retriever: the best of its corpus; both: the record's, then the retriever's",
    )
    retriever: str = Field(default="bm25", description="source retriever: id of the retriever; paper: dense, BAAI/bge-large-en-v1.5")
    options: dict[str, Any] = Field(default_factory=dict, description="options of that retriever")
    depth: int = Field(default=CANDIDATES, ge=1, description="documents per question; paper: 20 for joint training, 5 before")

    @property
    def component(self) -> Component:
        """Look up the retriever and validate its options.

        Raises:
            UserError: The name is unknown, or not a retriever.
        """
        METHODS.get(self.retriever, where="retriever")
        return Component.of(self.retriever, self.options, where="retriever")


Stage = Literal["scp", "instruction", "supervised", "joint"]
STAGES: tuple[Stage, ...] = ("scp", "instruction", "supervised", "joint")
"""Training stages in order; `supervised` is the baseline "Sup-" of the paper and only runs on request."""


class StepOptions(TrainingOptions):
    """Optimization options of a training stage."""

    warm_up: ClassVar[float] = 0.03
    """Fraction of the steps with a rising learning rate (released code)."""

    epochs: int = Field(1, ge=1, description="number of times that each row is used; paper 1")
    steps: int | None = Field(None, ge=1, description="maximum optimizer steps, regardless of epochs; null: no limit")
    learning_rate: float = Field(1e-4, gt=0, description="peak learning rate of AdamW")
    batch_size: int = Field(128, ge=1, description="rows per step")
    micro_batch: int = Field(8, ge=1, description="rows encoded at once; limits memory, the gradient stays the same")


class CompressionSteps(StepOptions):
    """Optimization options for compressor and generator."""

    schedule: ClassVar[Literal["cosine"]] = "cosine"

    floor: float = Field(0.1, ge=0, le=1, description="final learning rate as a share of the peak; released 0.1")


class SelectionSteps(StepOptions):
    """Optimization options for the query reasoner, with smaller learning rates."""

    floor: ClassVar[float] = 0.1

    learning_rate: float = Field(5e-6, gt=0, description="peak learning rate of AdamW; paper 5e-6")
    schedule: Literal["cosine", "constant"] = Field("constant", description="learning rate schedule; paper cosine, released constant")
    batch_size: int = Field(32, ge=1, description="rows per step; paper 32")


class CompressionOptions(TrainingOptions):
    """Options shared by the two stages that train the compressor."""

    train: CompressionSteps = CompressionSteps.model_validate({})
    mse: float = Field(0.1, ge=0, description="weight of the alignment loss (lambda in eq. 2.3), averaged over the hidden size; paper 0.1")


class ScpStage(CompressionOptions):
    """Options of salient compressor pretraining: trains memory tokens, compressor and generator on single documents."""

    naming: float = Field(
        0.0,
        ge=0,
        description="ours, not the paper's: weight of a loss that makes each memory token predict the tokens of its share of the "
        "document through the base's output layer; it falls to 0 within a third of the steps",
    )
    naming_only: int = Field(0, ge=0, description="ours: number of first steps that train with the naming loss only")
    rows: ScpDataConfig = ScpDataConfig.model_validate({})
    questions: int | None = Field(
        None,
        ge=1,
        description="ours: ask up to this many of a document's questions one by one, as in use, from a single encoding; null: "
        "all questions and answers are written in one text",
    )

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if self.naming_only and not self.naming:
            raise ValueError("naming_only needs naming above 0")
        return self


class InstructionStage(CompressionOptions):
    """Options of instruction tuning: answers from the memory of several documents."""

    documents: int = Field(5, ge=1, description="documents per row; paper 5")
    together: int = Field(
        1,
        ge=1,
        description="ours: ask up to this many questions per encoding of a row's documents: its own, and those of other rows "
        "that the documents answer; paper 1",
    )
    trains: Literal["both", "generator"] = Field(
        "both",
        description="generator: train only the generator and keep the compressor fixed (Tables 13 and 14, generator-only fine-tuning)",
    )
    reinit_generator: bool = Field(
        False, description="start with a new generator, like the released code; false: continue with the pretrained one"
    )


class SupervisedStage(TrainingOptions):
    """Options of the supervised retriever: trains only the query reasoner, from positives. It starts as a copy of the
    compressor.
    """

    train: SelectionSteps = SelectionSteps.model_validate({})


class JointStage(TrainingOptions):
    """Options of joint training: trains query reasoner and generator only from answers; the compressor is frozen."""

    train: SelectionSteps = SelectionSteps.model_validate({})
    reasoner: Literal["compressor", "random", "kept"] = Field(
        "compressor",
        description="initial query reasoner: a copy of the compressor, a new one (random, Table 15), or the checkpoint's own (kept)",
    )
    init: Literal["instruction", "scp"] = Field(
        "instruction", description="stage to start from: instruction tuning (released), or pretraining (scp), which skips the stage between"
    )
    selection: Literal["learned", "frozen"] = Field(
        "learned", description="frozen: train only the generator and keep the reasoner fixed, for comparison"
    )


class DataOptions(TrainingOptions):
    """Training and validation data of each stage."""

    scp: tuple[str, ...] = Field(
        (), description="references of pretraining rows: clara_stages/pretraining:train; rows are generated from worlds"
    )
    instruction: tuple[str, ...] = Field(
        (), description="references of questions with documents: clara_stages/instruction_tuning:train, pisco …"
    )
    joint: tuple[str, ...] = Field((), description="references of questions with candidates; paper: 20 each")
    options: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="options of the loaders, by dataset id or id/subset; those of id/subset take precedence"
    )


class ValidateOptions(TrainingOptions):
    """Options of the validation after each epoch."""

    questions: int = Field(200, ge=1, description="maximum held-out questions per stage")
    every: int | None = Field(None, ge=1, description="steps between validations; null: each epoch")
    held_out: int = Field(
        0,
        ge=0,
        description="number of documents (pretraining) or questions of a stage's own rows to hold out for validation, if "
        "`validation` has no data for the stage",
    )


class ClaraTrainingConfig(TrainingConfig):
    """Options of CLaRa's training."""

    model: ClaraConfig = ClaraConfig.model_validate({})
    start: str | None = Field(None, description="checkpoint to start from instead of the base; from an earlier stage")
    stages: tuple[Stage, ...] = Field(
        ("scp", "instruction", "joint"), min_length=1, description="stages to train; supervised is a baseline"
    )
    data: DataOptions
    validation: DataOptions = DataOptions.model_validate({})
    pool: PoolConfig = PoolConfig.model_validate({})
    out_of_vocabulary: float = Field(
        0.0,
        ge=0,
        le=1,
        description="ours: replace this share of the names of training worlds by unknown names, like those of worlds for "
        "validation and test; text of other data has no such names",
    )
    validate_on: ValidateOptions = ValidateOptions.model_validate({})
    reads: Literal["memory", "text"] = Field(
        "memory",
        description="text: the control. Trains only the generator, on the same rows in the same steps, with documents as text "
        "instead of memory; the reader clara_text uses the result. Stages scp and instruction; others are skipped",
    )
    skip_long: bool = Field(
        False,
        description="leave out and count rows whose prompt and reply are longer than model.max_prompt; false: refuse the "
        "training before its first step",
    )
    scp: ScpStage = ScpStage.model_validate({})
    instruction: InstructionStage = InstructionStage.model_validate({})
    supervised: SupervisedStage = SupervisedStage.model_validate({})
    joint: JointStage = JointStage.model_validate({})
    save_every: int = Field(200, ge=1, description="steps between two saved states from which an interrupted training resumes")
    precision: Literal["no", "bf16", "fp16"] = Field("no", description="mixed precision, as Accelerate names it; paper bf16")
    recompute: bool = Field(
        False, description="recompute layers in the backward pass instead of keeping their activations: slower, less memory"
    )

    @model_validator(mode="before")
    @classmethod
    def _based(cls, options: Any) -> Any:
        """Accept `base` as a short form of `model.base`."""
        if not isinstance(options, dict) or options.get("base") is None:
            return options
        model = options.get("model") or {}
        return {**{name: item for name, item in options.items() if name != "base"}, "model": {**dict(model), "base": options["base"]}}

    @model_validator(mode="after")
    def _can_be_done(self) -> Self:
        if list(self.stages) != [stage for stage in STAGES if stage in self.stages]:
            raise ValueError(f"stages: each once, in this order: {', '.join(STAGES)}")
        if not self.planned:
            raise ValueError("stages: no stage is left; with reads: text, only scp and instruction exist")
        for stage in self.planned:
            if not self.references(stage):
                raise ValueError(f"data.{_DATA[stage]}: {stage} has no training data")
        if {"supervised", "joint"} <= set(self.planned) and self.joint.reasoner != "kept":
            raise ValueError("joint.reasoner: after supervised it must be kept, otherwise that stage has no effect")
        if self.planned[0] != "scp" and self.start is None and self.scp.rows.mix != "none" and self.reads == "memory":
            raise ValueError(f"start: {self.planned[0]} begins from a checkpoint")
        return self

    @property
    def planned(self) -> tuple[Stage, ...]:
        """Return the stages that will be trained and end in a checkpoint."""
        left_out = {"instruction"} if self.joint.init == "scp" and "joint" in self.stages else set()
        if self.scp.rows.mix == "none":
            left_out.add("scp")
        if self.reads == "text":
            left_out |= {"supervised", "joint"}
        return tuple(stage for stage in self.stages if stage not in left_out)

    def references(self, stage: Stage) -> tuple[str, ...]:
        """Return the data references of a stage's training data."""
        results: tuple[str, ...] = getattr(self.data, _DATA[stage])
        return results

    def steps_of(self, stage: Stage) -> StepOptions:
        """Return a stage's optimization options."""
        options: StepOptions = getattr(self, stage).train
        return options

    def stages_of(self, stages: tuple[str, ...]) -> tuple[str, ...]:
        """Return which of the given stages end in a checkpoint; the last one is the training's result."""
        return tuple(stage for stage in stages if stage in self.planned)

    def preflight(self) -> None:
        """Check data references, base model and start checkpoint, without loading anything."""
        for name, data in (("data", self.data), ("validation", self.validation)):
            for option in dict.fromkeys(_DATA.values()):
                check_references(getattr(data, option), f"{name}.{option}")
        locate(self.model.base)
        if self.start is not None:
            locate(self.start)


_DATA: Mapping[Stage, str] = {"scp": "scp", "instruction": "instruction", "supervised": "joint", "joint": "joint"}
"""Option with each stage's data."""


PRESETS = read_presets((Path(__file__).with_name("presets.yaml"), Path(__file__).with_name("pocket.yaml")))

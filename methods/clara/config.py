"""Options of CLaRa: its model, its data, its training, and their presets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from benchmarks.core.models import LaterOptions
from benchmarks.registry import resolve
from methods.models.weights import locate
from methods.presets import read_presets
from methods.registry import METHODS, Component
from methods.training import TrainingConfig, TrainingOptions
from methods.training.adapters import LoraOptions

Adapter = Literal["compressor", "generator", "reasoner"]
Part = Literal["compressor", "generator", "reasoner", "memory"]
"""What training may change."""
ADAPTERS: tuple[Adapter, ...] = ("compressor", "generator", "reasoner")
TEXT: tuple[Adapter, ...] = ("generator",)
"""Of a reader that is tuned on documents as text."""
MEMORY: Literal["memory"] = "memory"
Variant = Literal["minus_infinity", "equation", "algorithm"]
"""How soft weights mask documents already taken (`generator.select`)."""
CANDIDATES = 20
"""D: documents that joint training chooses among."""


class ClaraConfig(LaterOptions, TrainingOptions):
    """Options of a CLaRa model."""

    later: ClassVar[tuple[str, ...]] = ("joined",)

    base: str = Field(
        "mistralai/Mistral-7B-Instruct-v0.2", description="causal language model: a folder or hub id, or `pocket`, the model that ships"
    )
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: Literal["float32", "bfloat16", "float16", "auto"] | None = Field(
        None, description="of the base's weights; null: float32 on CPU, the checkpoint's own elsewhere"
    )
    max_length: int = Field(256, ge=1, description="longest document in tokens (L); the rest is cut")
    rate: int = Field(16, ge=1, description="compression ratio: tokens of the longest document per memory token")
    lora: LoraOptions = LoraOptions.model_validate({})
    memory_init: Literal["mean", "spread"] = Field(
        "mean",
        description="where memory tokens begin: all at the mean of the base's embeddings (released), or drawn with "
        "their mean and covariance (ours)",
    )
    positions: Literal["after", "spread"] = Field(
        "after",
        description="where memory tokens stand for attention: behind the text (the paper), or each at the end of its "
        "share of the text (ours, after Zhao et al. 2024, Position IDs Matter)",
    )
    memory_length: Literal["state", "embedding"] = Field(
        "state",
        description="length of memory vectors in a prompt: as the compressor made them (the paper), or the mean length "
        "of the base's embeddings (ours)",
    )
    template: Literal["auto", "chat", "plain", "pocket"] = Field(
        "auto",
        description="prompts in the base's chat template, as plain text, or as the pocket model was trained; auto: "
        "what the base is made for",
    )
    max_prompt: int = Field(2048, ge=16, description="longest prompt with its answer in tokens; a longer one is refused")
    tau: float = Field(0.02, gt=0, description="temperature of the selector; released 0.02")
    mask: Variant = Field(
        "minus_infinity",
        description="how documents already taken are masked in the soft weights; equation and algorithm are the "
        "paper's two, which disagree; released algorithm",
    )
    k: int = Field(5, ge=1, description="documents that are answered from")

    joined: bool = Field(
        False,
        description="whether a text is tokenized behind the token that begins one, where some tokenizers write its first word otherwise "
        "(released; converted checkpoints have it)",
    )

    @model_validator(mode="after")
    def _compresses(self) -> Self:
        if self.rate > self.max_length:
            raise ValueError(f"rate {self.rate} leaves no memory token of {self.max_length} document tokens: lower rate")
        return self

    @property
    def memory_tokens(self) -> int:
        """Memory tokens per document (M)."""
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
"""The types of rows in each mix of the paper's Tables 4 and 20."""


class ScpDataConfig(TrainingOptions):
    """What pretraining reads of its data."""

    mix: Mix = Field(default="all", description="types of rows; none: no pretraining; paper: all, the others in Table 4")
    documents: int | None = Field(
        default=None,
        ge=1,
        description="so many documents, drawn by the seed, larger draws holding the smaller; null: all; paper: "
        "2,000,000, in Table 12 also 500,000 and 1,000,000",
    )
    seed: int = Field(default=0, ge=0, description="of what is drawn")

    @property
    def types(self) -> tuple[Type, ...]:
        """The types of rows that are wanted."""
        return MIXES[self.mix]


class PoolConfig(TrainingOptions):
    """The documents beside a question, where its dataset is not a file of rows."""

    source: Literal["record", "retriever", "both"] = Field(
        default="record", description="the dataset's own candidates; retriever: the best of its corpus; both: those, then these"
    )
    retriever: str = Field(default="bm25", description="of source retriever: its name; paper: dense, BAAI/bge-large-en-v1.5")
    options: dict[str, Any] = Field(default_factory=dict, description="of that retriever")
    depth: int = Field(default=CANDIDATES, ge=1, description="documents of a question; paper: 20 for joint training, 5 before")

    @property
    def component(self) -> Component:
        """The retriever with its options.

        Raises:
            UserError: There is no such retriever, or it is none.
        """
        METHODS.get(self.retriever, where="retriever")
        return Component.of(self.retriever, self.options, where="retriever")


Stage = Literal["scp", "instruction", "supervised", "joint"]
STAGES: tuple[Stage, ...] = ("scp", "instruction", "supervised", "joint")
"""In the order in which they are carried out; `supervised` is the baseline Sup-, and only where it is asked for."""


class StepOptions(TrainingOptions):
    """How a stage is optimized."""

    warm_up: ClassVar[float] = 0.03
    """Share of the steps in which the rate rises (released)."""

    epochs: int = Field(1, ge=1, description="times that each row is used; paper 1")
    steps: int | None = Field(None, ge=1, description="of the optimizer at most, whatever the epochs; null: all")
    learning_rate: float = Field(1e-4, gt=0, description="of AdamW, at its peak")
    batch_size: int = Field(128, ge=1, description="rows of a step")
    micro_batch: int = Field(8, ge=1, description="rows read at once; bounds memory, the gradient is the same")


class CompressionSteps(StepOptions):
    """How compressor and generator are optimized."""

    schedule: ClassVar[Literal["cosine"]] = "cosine"

    floor: float = Field(0.1, ge=0, le=1, description="where the rate ends, as a share of the peak; released 0.1")


class SelectionSteps(StepOptions):
    """How the query reasoner is optimized: far more gently, in smaller steps."""

    floor: ClassVar[float] = 0.1

    learning_rate: float = Field(5e-6, gt=0, description="of AdamW, at its peak; paper 5e-6")
    schedule: Literal["cosine", "constant"] = Field("constant", description="how the rate goes on; paper cosine, released constant")
    batch_size: int = Field(32, ge=1, description="rows of a step; paper 32")


class CompressionOptions(TrainingOptions):
    """What the two stages share that train the compressor."""

    train: CompressionSteps = CompressionSteps.model_validate({})
    mse: float = Field(0.1, ge=0, description="weight of the alignment loss (eq. 2.3's lambda), a mean over the hidden size; paper 0.1")


class ScpStage(CompressionOptions):
    """Salient compressor pretraining: memory and both adapters, from one document at a time."""

    naming: float = Field(
        0.0,
        ge=0,
        description="ours, not the paper's: weight of a loss that has each memory token name the tokens of its share "
        "of the document through the base's output layer; it falls to 0 within a third of the steps",
    )
    naming_only: int = Field(0, ge=0, description="ours: steps at the beginning in which the naming loss alone is learned from")
    rows: ScpDataConfig = ScpDataConfig.model_validate({})
    questions: int | None = Field(
        None,
        ge=1,
        description="ours: so many of a document's questions are asked one by one, as they will be in use, all of one "
        "reading; null: questions and answers are written out together",
    )

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if self.naming_only and not self.naming:
            raise ValueError("naming_only needs a weight of naming above 0")
        return self


class InstructionStage(CompressionOptions):
    """Instruction tuning: answers from several documents."""

    documents: int = Field(5, ge=1, description="documents of a row; paper 5")
    together: int = Field(
        1,
        ge=1,
        description="ours: so many questions at most are asked of one reading of a row's documents: its own, and those "
        "of other rows that the documents answer; paper 1",
    )
    trains: Literal["both", "generator"] = Field(
        "both", description="generator: the compressor stays as it is (Tables 13 and 14, generator-only fine-tuning)"
    )
    reinit_generator: bool = Field(
        False, description="begin with a new generator, as the released code does; false: go on with pretraining's"
    )


class SupervisedStage(TrainingOptions):
    """The supervised retriever: the query reasoner alone learns from positives. It begins as a copy of the compressor."""

    train: SelectionSteps = SelectionSteps.model_validate({})


class JointStage(TrainingOptions):
    """Joint training: query reasoner and generator learn from answers alone; the compressor is frozen."""

    train: SelectionSteps = SelectionSteps.model_validate({})
    reasoner: Literal["compressor", "random", "kept"] = Field(
        "compressor",
        description="what the query reasoner begins as: a copy of the compressor, a new one (Table 15), or the checkpoint's own",
    )
    init: Literal["instruction", "scp"] = Field(
        "instruction", description="where it begins: instruction tuning (released), or pretraining, and the stage between is left out"
    )
    selection: Literal["learned", "frozen"] = Field(
        "learned", description="frozen: the reasoner stays as it began and the generator alone learns, for comparison"
    )


class DataOptions(TrainingOptions):
    """What a stage is trained or validated on."""

    scp: tuple[str, ...] = Field((), description="references of pretraining rows: clara_stages/pretraining:train; of worlds they are made")
    instruction: tuple[str, ...] = Field(
        (), description="references of questions with documents: clara_stages/instruction_tuning:train, pisco …"
    )
    joint: tuple[str, ...] = Field((), description="references of questions with candidates; paper: 20 each")
    options: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="options of the loaders, by dataset id, or by id/subset, which goes over them"
    )


class ValidateOptions(TrainingOptions):
    """What the curve says of held-out questions, at the end of each epoch."""

    questions: int = Field(200, ge=1, description="held-out questions of each stage at most")
    every: int | None = Field(None, ge=1, description="steps between validations; null: each epoch")
    held_out: int = Field(
        0,
        ge=0,
        description="so many documents (pretraining) or questions of a stage's own rows are set aside for these "
        "figures where `validation` names nothing for it",
    )


class ClaraTrainingConfig(TrainingConfig):
    """Options of CLaRa's training."""

    model: ClaraConfig = ClaraConfig.model_validate({})
    start: str | None = Field(None, description="a checkpoint to begin from in place of the bare base: of an earlier stage")
    stages: tuple[Stage, ...] = Field(
        ("scp", "instruction", "joint"), min_length=1, description="what is carried out; supervised is a baseline"
    )
    data: DataOptions
    validation: DataOptions = DataOptions.model_validate({})
    pool: PoolConfig = PoolConfig.model_validate({})
    out_of_vocabulary: float = Field(
        0.0,
        ge=0,
        le=1,
        description="ours: this share of the names of train worlds is replaced by names that nobody has heard, as "
        "worlds for validation and test have them; text of other data has no such names",
    )
    validate_on: ValidateOptions = ValidateOptions.model_validate({})
    reads: Literal["memory", "text"] = Field(
        "memory",
        description="text: the control. The generator alone learns, from the same rows in the same steps, with documents as "
        "text in place of memory; the reader clara_text reads with it. Stages scp and instruction; others are left out",
    )
    skip_long: bool = Field(
        False,
        description="rows whose prompt and reply are longer than model.max_prompt are left out and counted; false: the "
        "training refuses them before its first step",
    )
    scp: ScpStage = ScpStage.model_validate({})
    instruction: InstructionStage = InstructionStage.model_validate({})
    supervised: SupervisedStage = SupervisedStage.model_validate({})
    joint: JointStage = JointStage.model_validate({})
    save_every: int = Field(200, ge=1, description="steps between two points that an interrupted training goes on from")
    precision: Literal["no", "bf16", "fp16"] = Field("no", description="mixed precision: of accelerate; paper bf16")
    recompute: bool = Field(
        False, description="compute layers again at backward in place of keeping their activations: slower, less memory"
    )

    @model_validator(mode="before")
    @classmethod
    def _based(cls, options: Any) -> Any:
        """`base` is short for `model.base`, as trainings of other models have it."""
        if not isinstance(options, dict) or options.get("base") is None:
            return options
        model = options.get("model") or {}
        return {**{name: item for name, item in options.items() if name != "base"}, "model": {**dict(model), "base": options["base"]}}

    @model_validator(mode="after")
    def _can_be_done(self) -> Self:
        if list(self.stages) != [stage for stage in STAGES if stage in self.stages]:
            raise ValueError(f"stages: each once, in this order: {', '.join(STAGES)}")
        if not self.planned:
            raise ValueError("stages: nothing is left to train; reads: text has scp and instruction")
        for stage in self.planned:
            if not self.references(stage):
                raise ValueError(f"data.{_DATA[stage]}: {stage} has nothing to train on")
        if {"supervised", "joint"} <= set(self.planned) and self.joint.reasoner != "kept":
            raise ValueError("joint.reasoner: behind supervised it must be kept, else that stage was for nothing")
        if self.planned[0] != "scp" and self.start is None and self.scp.rows.mix != "none" and self.reads == "memory":
            raise ValueError(f"start: {self.planned[0]} begins from a checkpoint")
        return self

    @property
    def planned(self) -> tuple[Stage, ...]:
        """The stages that end in a checkpoint."""
        left_out = {"instruction"} if self.joint.init == "scp" and "joint" in self.stages else set()
        if self.scp.rows.mix == "none":
            left_out.add("scp")
        if self.reads == "text":
            left_out |= {"supervised", "joint"}
        return tuple(stage for stage in self.stages if stage not in left_out)

    def references(self, stage: Stage) -> tuple[str, ...]:
        """Return the references of a stage's training data."""
        results: tuple[str, ...] = getattr(self.data, _DATA[stage])
        return results

    def steps_of(self, stage: Stage) -> StepOptions:
        """Return how a stage is optimized."""
        options: StepOptions = getattr(self, stage).train
        return options

    def stages_of(self, stages: tuple[str, ...]) -> tuple[str, ...]:
        """Return the stages that end in a checkpoint; the last one is the training's result."""
        return tuple(stage for stage in stages if stage in self.planned)

    def preflight(self) -> None:
        """Check references, base and checkpoint, without loading anything."""
        for data in (self.data, self.validation):
            for stage in STAGES:
                for reference in getattr(data, _DATA[stage]):
                    resolve(reference, where=f"data.{_DATA[stage]}")
        locate(self.model.base)
        if self.start is not None:
            locate(self.start)


_DATA: Mapping[Stage, str] = {"scp": "scp", "instruction": "instruction", "supervised": "joint", "joint": "joint"}
"""Where the options of the data name what a stage reads."""


PRESETS = read_presets((Path(__file__).with_name("presets.yaml"), Path(__file__).with_name("pocket.yaml")))

"""Options of ARK's training; every difference between paper and released code is an option, and both are presets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from benchmarks.core.errors import UserError
from benchmarks.registry import resolve
from methods.graphs.augmented_queries import QueriesConfig
from methods.graphs.chunking import CHUNKS, ChunkConfig
from methods.graphs.claims import PROMPT as CLAIMS
from methods.graphs.extraction import GraphConfig
from methods.graphs.neighborhood import PRESETS as NEIGHBORHOODS
from methods.graphs.neighborhood import NeighborhoodConfig
from methods.graphs.recorded import check_file
from methods.models.chat_config import ChatConfig
from methods.models.encoder_config import EncoderConfig
from methods.models.encoder_presets import PRESETS as ENCODERS
from methods.models.llm import LLMConfig, check_llm, reach_llm
from methods.models.remote_code import check_models, check_remote_code
from methods.presets import read_presets
from methods.served import ScorerConfig
from methods.training import TrainingConfig, TrainingOptions
from methods.training.material import check_references

Stage = Literal["stage1", "stage2", "stage3"]
STAGES: tuple[Stage, ...] = ("stage1", "stage2", "stage3")
SIZES = {"stage2": "large", "stage3": "small"}
"""Size of the neighborhood whose queries mine the negatives of each stage."""
Share = Literal["none", "positives", "all"]


class ForwardConfig(TrainingOptions):
    """Options of S_f: mean log-likelihood of the answer, given question and chunk (paper and released)."""

    retired = MappingProxyType({"form": "logp"})

    weight: float = Field(1.0, ge=0, description="0 leaves the score out (Table 3: w/o F.A.)")


class BackwardConfig(TrainingOptions):
    """Options of S_b: mean log-likelihood of the question, given answer and chunk."""

    weight: float = Field(0.3, ge=0, description="0 leaves the score out (w/o B.A.)")


class VectorConfig(TrainingOptions):
    """Options of S_v: the retriever's similarity of question and chunk."""

    retired = MappingProxyType({"use_instruction": True})

    weight: float = Field(1.0, ge=0, description="0 leaves the score out (w/o P.A.)")
    model: str | None = Field(
        None, description="encoder that computes the score: a preset, folder or hub id; null: base (paper); released: bge-m3"
    )


class ScoreConfig(TrainingOptions):
    """Options for scoring chunks and choosing positives."""

    retired = MappingProxyType({"short_penalty": None, "chat_template": False})

    scorer: str = Field("mistralai/Mistral-7B-Instruct-v0.2", description="language model that scores: pocket, a folder or hub id")
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: Literal["float32", "bfloat16", "float16", "auto"] | None = Field(
        None, description="dtype of the scorer; null: float32 on CPU, the checkpoint's own elsewhere"
    )
    endpoint: ChatConfig | None = Field(
        None,
        description="an endpoint that serves the scorer and returns log-probabilities (vLLM); then only its tokenizer is loaded. "
        "null: load the scorer locally",
        exclude_if=lambda value: value is None,
    )
    f: ForwardConfig = ForwardConfig.model_validate({})
    b: BackwardConfig = BackwardConfig.model_validate({})
    v: VectorConfig = VectorConfig.model_validate({})
    normalize: Literal["minmax", "zscore", "none"] = Field(
        "minmax", description="normalization of the scores over a question's chunks, before weighting; paper: none; released: minmax"
    )
    forward_prompt: str | None = Field(
        None, description="template with $chunk and $question, ending before the answer; null: ours, or the pocket model's own"
    )
    backward_prompt: str | None = Field(
        None, description="template with $chunk and $answer, ending before the question; null: ours, or the pocket model's own"
    )
    choose: Literal["scores", "evidence"] = Field(
        "scores",
        description="how positives are chosen: scores (ARK), or evidence, which uses the data's own evidence and needs no scorer "
        "(chunks: passages)",
    )
    positives: int = Field(
        10,
        ge=1,
        description="M: number of chunks with the highest total score that become positives; with choose: evidence, all evidence does",
    )

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if not (self.f.weight or self.b.weight or self.v.weight):
            raise ValueError("all three scores have weight 0")
        if self.endpoint is not None and not (self.f.weight or self.b.weight):
            raise ValueError("endpoint has no effect if f.weight and b.weight are 0")
        _ = self.causal  # checks the options of the endpoint
        return self

    @property
    def causal(self) -> ScorerConfig:
        """Return the scorer model's options."""
        return ScorerConfig.of(self.scorer, self.endpoint, revision=self.revision, dtype=self.dtype)


class MineConfig(TrainingOptions):
    """Options for mining negatives."""

    retired = MappingProxyType({"drop_overlap": False})

    source: Literal["graph", "question", "random"] = Field(
        "graph",
        description="which chunks can be negatives: graph, those that augmented queries retrieve (ARK); as controls: question, "
        "those that the question itself retrieves, or random",
    )
    model: Literal["previous", "base"] = Field(
        "previous", description="encoder that retrieves: the one of the previous stage (paper), or base (released)"
    )
    top_k: int = Field(20, ge=1, description="chunks retrieved per query; paper 20, released 10")
    sample: int = Field(20, ge=1, description="negatives per row, sampled from everything that was retrieved")
    keep_out: int = Field(
        10,
        ge=0,
        description="chunks with the highest total score that are never negatives, even if `score.positives` trains on fewer; "
        "paper and released: their ten positives. Evidence of the data is never a negative either",
    )
    stage1_random: int = Field(0, ge=0, description="number of random chunks that serve as negatives in stage 1; paper 0, released 20")


class LossConfig(TrainingOptions):
    """Options of the InfoNCE loss."""

    temperature: float = Field(
        0.01, gt=0, description="temperature, which the paper does not give; released 0.01 before ms-swift 3.11, 0.1 since"
    )
    in_batch: tuple[Share, Share, Share] = Field(
        ("positives", "none", "none"), description="which documents of other rows are also negatives, by stage; released: all, all, all"
    )
    mask_same_question: bool = Field(True, description="exclude a question's other positives from its negatives; released: no")
    count_duplicates: bool = Field(False, description="count a document as a negative once per row that contains it; released: yes")


class TrainConfig(TrainingOptions):
    """Optimization options."""

    retired = MappingProxyType({"beta2": 0.95, "max_grad_norm": 1.0, "order": "shuffled", "validate_k": 5})

    stages: tuple[Stage, ...] = Field(STAGES, min_length=1, description="stages to train, in order; fewer for ablations")
    curriculum: Literal["staged", "mixed"] = Field(
        "staged", description="staged: one stage after the other; mixed (ablation): all rows at once, mined with base"
    )
    epochs: tuple[int, int, int] = Field((3, 4, 3), description="epochs by stage; their sum in the paper is 10")
    learning_rate: tuple[float, float, float] = Field(
        (6e-6, 4e-6, 2e-6), description="peak learning rate per stage; paper 6e-6, released 1e-5, 8e-6, 4e-6"
    )
    warm_up: tuple[float, float, float] = Field(
        (0.05, 0.05, 0.05), description="warm-up by stage: a share of the steps if below 1, else a number of steps; released 50, 0, 0"
    )
    weight_decay: float = Field(0.1, ge=0, description="weight decay of matrices; released 0.1")
    batch_size: int = Field(16, ge=1, description="rows that are contrasted with each other; paper: 2 on each of 8 GPUs")
    accumulation: int = Field(8, ge=1, description="batches per step of the optimizer; paper: 8, so that a step has 128 rows")
    micro_batch: int = Field(16, ge=1, description="texts encoded at once; changes only memory and time")
    held_tokens: int = Field(
        65_536, ge=1, description="maximum tokens whose activations are kept; a larger batch is encoded twice (gradient caching)"
    )
    recompute: bool = Field(
        False, description="recompute layers in the backward pass instead of keeping their activations (gradient checkpointing)"
    )
    max_length: int | None = Field(None, ge=8, description="maximum tokens per text in training; null: the base's own")
    trainable_layers: int | None = Field(
        None, ge=1, description="train only this many of the encoder's last layers, which is faster; null: all (paper)"
    )
    precision: Literal["no", "bf16", "fp16"] = Field("no", description="mixed precision, as Accelerate names it")
    query_instruction: bool = Field(
        True, description="use the encoder's query prompt in scoring, mining and training, as in evaluation; released: no"
    )
    save_every: int = Field(50, ge=1, description="steps between two saved states from which an interrupted stage resumes")

    @field_validator("stages")
    @classmethod
    def _in_order(cls, stages: tuple[str, ...]) -> tuple[str, ...]:
        if list(stages) != sorted(set(stages)):
            raise ValueError("stages must be in order, each at most once")
        return stages

    @model_validator(mode="after")
    def _positive(self) -> Self:
        if min(self.epochs) < 1 or min(self.learning_rate) <= 0 or min(self.warm_up) < 0:
            raise ValueError("epochs must be at least 1, learning rates above 0, warm_up not negative")
        return self


class ArkTrainingConfig(TrainingConfig):
    """Options of ARK's training."""

    data: tuple[str, ...] = Field(
        min_length=1, description="references of the training data; paper: ultradomain/fin:train, ultradomain/legal:train"
    )
    data_options: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options of the loaders, by dataset id")
    validation: tuple[str, ...] = Field((), description="references of held-out questions, for curves; never trained on")
    validation_options: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="options of the loaders of validation, by dataset id"
    )
    evaluation: tuple[str, ...] = Field(
        (), description="references whose documents and questions must not be in the training data; checked before training"
    )
    base: str = Field("qwen3-embedding-0.6b", description="encoder to train: a preset, folder or hub id")
    base_options: dict[str, Any] = Field(
        default_factory=dict, description="options of the encoder that replace those of its preset (prompts, pooling …)"
    )
    chunks: ChunkConfig | Literal["passages"] = Field(
        CHUNKS["score"],
        description="chunks that are scored and trained on; passages: the dataset's passages; paper: 512 tokens that overlap by "
        "12; released: single sentences",
    )
    kg: GraphConfig = GraphConfig.model_validate({})
    neighborhood: NeighborhoodConfig = NeighborhoodConfig.model_validate({})
    queries: QueriesConfig = QueriesConfig.model_validate({})
    score: ScoreConfig = ScoreConfig.model_validate({})
    mine: MineConfig = MineConfig.model_validate({})
    loss: LossConfig = LossConfig.model_validate({})
    train: TrainConfig = TrainConfig.model_validate({})

    @property
    def encoder(self) -> EncoderConfig:
        """Return the base encoder's options."""
        return encoder_config(self.base, self.base_options)

    @property
    def vector_encoder(self) -> EncoderConfig:
        """Return the options of the encoder for the score S_v."""
        return self.encoder if self.score.v.model is None else encoder_config(self.score.v.model, {})

    @property
    def penalizes_short(self) -> bool:
        """Return whether the total of a chunk with n < 10 tokens is multiplied by n/10 (if chunks are sentences; released)."""
        return isinstance(self.chunks, ChunkConfig) and self.chunks.unit == "sentence" and self.score.normalize == "minmax"

    @property
    def augments(self) -> bool:
        """Return whether augmented queries are needed."""
        return self.mine.source == "graph" and bool({"stage2", "stage3"} & set(self.train.stages))

    @property
    def makes_graphs(self) -> bool:
        """Return whether knowledge graphs are built; recorded queries need none."""
        return self.augments and self.queries.generator != "recorded"

    @property
    def files(self) -> dict[str, str]:
        """Return the input files besides the data, by option."""
        graphs = {"kg.file": self.kg.file} if self.makes_graphs and self.kg.extractor == "file" else {}
        queries = {"queries.path": self.queries.path} if self.augments and not self.makes_graphs else {}
        return {option: name for option, name in (graphs | queries).items() if name is not None}

    @property
    def scores(self) -> bool:
        """Return whether chunks are scored; this is unnecessary if the data names the evidence."""
        return self.score.choose == "scores"

    @model_validator(mode="after")
    def _names_passages(self) -> Self:
        if not self.scores and self.chunks != "passages":
            raise ValueError("score.choose: evidence names passages of the data, so chunks must be: passages")
        return self

    @property
    def llms(self) -> list[LLMConfig]:
        """Return the language models in use."""
        parts = (self.kg, self.neighborhood.seeds, self.queries) if self.makes_graphs else ()
        return [part.active_llm for part in parts if part.active_llm is not None]

    def stages_of(self, stages: tuple[str, ...]) -> tuple[str, ...]:
        """Return which stages are trained; for mixed stages, only the last one."""
        chosen = self.train.stages
        return chosen[-1:] if self.train.curriculum == "mixed" else chosen

    def preflight(self) -> None:
        """Check data references, models and their code."""
        check_references(self.data)
        for reference in (*self.validation, *self.evaluation):
            resolve(reference, where="data")
        check_models(self.encoder)
        if self.encoder.architecture != "sentence-transformer" or self.encoder.query_model:
            raise UserError(
                "ARK tunes one SentenceTransformer for questions and chunks",
                code="ark-needs-one-encoder",
                where=f"base {self.base!r}",
                try_this="name a base with one model",
            )
        others = [item for item in self.data if resolve(item)[0].name != "worlds"]
        for option, name in self.files.items():
            check_file(name, option)
        if self.makes_graphs and self.kg.extractor == "worlds" and others:
            raise UserError(
                f"the extractor worlds reads only worlds, not {others[0]}",
                code="extractor-worlds-only",
                where="kg.extractor",
                try_this="kg: {extractor: llm, llm: {model: …}}, or without a model kg: {extractor: noun_phrases}",
            )
        for llm in self.llms:
            check_llm(llm)
        if self.makes_graphs and self.kg.claims is not None:
            CLAIMS.load(self.kg.claims)
        if self.makes_graphs and self.kg.similarity.enabled:
            check_models(self.kg.similarity.encoder)
        if not self.scores:
            return
        if self.score.f.weight or self.score.b.weight:
            self.score.causal.preflight()
            check_remote_code(self.score.scorer, False)
        if self.score.v.weight:
            check_models(self.vector_encoder)

    def reach(self, cache: Path | None) -> None:
        """Check that every endpoint responds, with one short call each."""
        for llm in self.llms:
            reach_llm(llm, cache)
        if self.scores and (self.score.f.weight or self.score.b.weight):
            self.score.causal.reach(cache)


def encoder_config(model: str, options: Mapping[str, Any]) -> EncoderConfig:
    """Build an encoder's options from a preset or a model's name, with overrides."""
    base: Mapping[str, Any] = ENCODERS.get(model, {"model": model})
    return EncoderConfig.model_validate({**base, **options})


PRESETS = read_presets(
    (Path(__file__).with_name("presets.yaml"), Path(__file__).with_name("pocket.yaml")),
    **ENCODERS,
    **{f"neighborhood-{name}": cuts for name, cuts in NEIGHBORHOODS.items()},
)

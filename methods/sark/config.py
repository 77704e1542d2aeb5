"""Options of SARK's training: every point where paper and released code differ is a key, and both are presets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from benchmarks.registry import resolve
from methods.models.remote_code import check_remote_code
from methods.models.weights import locate
from methods.sark.data_config import PAPER_DATA, RELEASED_DATA, WORLDS_DATA, SarkDataConfig
from methods.sark.loss import Head
from methods.training import TrainingConfig

Keep = Literal["f1", "order", "last"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelConfig(_Part):
    """The head on the encoder, and how pairs are read."""

    head: Head = Field(
        "paper",
        description="paper: one score z; official (the released code): two logits, trained with a cross-entropy, of "
        "which the second alone ranks; its checkpoint holds that one",
    )
    head_of_base: bool = Field(
        False,
        description="begin with the base's own head, where the base is a checkpoint of SARK; paper and released: a new head on the encoder",
    )
    hidden: int = Field(256, ge=1, description="width of the head's hidden layer; released 256")
    dropout: float = Field(0.3, ge=0, lt=1, description="in the head; released 0.3")
    backbone_dropout: float | None = Field(
        0.3, ge=0, lt=1, description="in the encoder, of states and attention; released 0.3; null: the encoder's own"
    )
    max_length: int = Field(512, ge=32, description="longest pair in tokens; the passage is cut, not the query")
    query_share: float = Field(0.75, gt=0, le=1, description="largest part of it that a query may take")


class LossConfig(_Part):
    """The losses, how they are weighed against each other, and what is left out for ablations."""

    styles: bool = Field(True, description="both styles of every passage (eq. 8-9); false (w/o SAT): the formal one alone")
    passage: bool = Field(True, description="learn from labels of passages; false: w/o passage")
    listwise: bool = Field(True, description="learn from orders of lists; false: w/o list")
    lambda_mode: Literal["mgda", "fixed"] = Field(
        "mgda", description="λ of each batch from both gradients (released), or always lambda_value"
    )
    lambda_value: float = Field(0.5, ge=0, le=1, description="weight of the passage loss where λ is fixed")
    lambda_params: Literal["backbone", "last_layer"] = Field(
        "backbone",
        description="parameters whose gradients decide: the whole encoder (released), or its last layer alone, an "
        "approximation; never the head",
    )

    @model_validator(mode="after")
    def _learns(self) -> Self:
        if not (self.passage or self.listwise):
            raise ValueError("without passage and listwise there is nothing to learn")
        return self


class TrainConfig(_Part):
    """Optimisation."""

    epochs: int = Field(30, ge=1, description="times that each row is used; paper 30, released 100")
    learning_rate: float = Field(1e-6, gt=0, description="of AdamW, at its peak; paper 1e-6, released 1e-5")
    warm_up: float = Field(0.0, ge=0, description="share of the steps in which it rises, below 1; else their number")
    schedule: Literal["linear", "constant", "cosine"] = Field("linear", description="how the rate goes on")
    schedule_over: Literal["steps", "batches"] = Field(
        "steps", description="batches (released): the rate falls as if each batch of an accumulated step were a step, so that it ends high"
    )
    weight_decay: float = Field(0.01, ge=0, description="of matrices; released 0.01")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are scaled down to this norm; released 1.0")
    batch_size: int = Field(8, ge=1, description="rows of a batch: of 8, 112 sequences are read; paper and released 8")
    accumulation: int = Field(1, ge=1, description="batches per step of the optimiser, each with a λ of its own; released 4")
    token_budget: int = Field(
        8192,
        ge=32,
        description="tokens read at once, padding included; bounds memory and changes nothing but dropout's draws. A "
        "list is never parted. Where memory is too small, a training halves it by itself and goes on",
    )
    precision: Literal["no", "bf16", "fp16"] = Field("no", description="mixed precision: of accelerate")
    keep: Keep | None = Field(
        None,
        description="which epoch's weights are the result: of the best F1 of labels on the validation data over both "
        "styles (released), of the best order of its lists, or the last; null: f1, order where labels are not learnt, "
        "last where there is no validation data",
    )
    patience: int | None = Field(None, ge=1, description="epochs without a better one after which training stops; null: it goes to its end")
    save_every: int = Field(50, ge=1, description="steps between two points that an interrupted training goes on from")


class SarkTrainingConfig(SarkDataConfig, TrainingConfig):
    """Options of SARK's training: those of its rows, its model, its losses and its steps."""

    data: tuple[str, ...] = Field(min_length=1, description="references of the training data; paper: of NQ")
    data_options: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options of the loaders, by dataset id")
    validation: tuple[str, ...] = Field((), description="references of held-out data, of which the best epoch is known")
    validation_options: dict[str, dict[str, Any]] = Field(default_factory=dict, description="as data_options")
    validation_rows: int | None = Field(
        None, ge=1, description="as rows, of the held-out data; paper 1,788 (the repository's readme: 2,138)"
    )
    base: str = Field("BAAI/bge-reranker-base", description="encoder that is trained: a folder or hub id; or minilm")
    revision: str | None = Field(None, description="revision of a hub id")
    model: ModelConfig = ModelConfig.model_validate({})
    loss: LossConfig = LossConfig.model_validate({})
    train: TrainConfig = TrainConfig.model_validate({})

    @model_validator(mode="after")
    def _can_choose(self) -> Self:
        if self.train.keep in ("f1", "order") and not self.validation:
            raise ValueError(f"keep: {self.train.keep} needs validation data")
        if self.train.patience is not None and self.keep == "last":
            raise ValueError("patience needs validation data, and keep: f1 or order")
        return self

    @property
    def keep(self) -> Keep:
        """Which epoch's weights are the result."""
        if self.train.keep is not None or not self.validation:
            return self.train.keep or "last"
        return "f1" if self.loss.passage else "order"

    @property
    def held_out(self) -> Self:
        """The options by which the rows of held-out data are made."""
        return self.model_copy(update={"rows": self.validation_rows})

    def preflight(self) -> None:
        """Check references, what the rows are made by, and the encoder."""
        for reference in (*self.data, *self.validation):
            resolve(reference, where="data")
        self.check_data()
        locate(self.base)
        check_remote_code(self.base, False)

    def reach(self, cache: Path | None) -> None:
        """One short call to every endpoint that the data need, unless replies of its model are kept."""
        self.reach_data(cache)


PAPER: Mapping[str, Any] = {**PAPER_DATA, "validation_rows": 1_788, "seed": 42}
RELEASED: Mapping[str, Any] = {
    **RELEASED_DATA,
    "validation_rows": 1_788,
    "seed": 42,
    "model": {"head": "official"},
    "train": {"epochs": 100, "learning_rate": 1e-5, "accumulation": 4, "schedule_over": "batches"},
}
WORLDS: Mapping[str, Any] = {
    **WORLDS_DATA,
    "base": "minilm",
    # Passages told in other styles are longer: of 128 tokens, one in six pairs of some style would lose its end.
    "model": {"dropout": 0.1, "backbone_dropout": None, "max_length": 192},
    # A few dozen held-out labels cannot tell epochs apart, and variants must not differ in how theirs was chosen.
    "train": {"epochs": 1, "learning_rate": 1e-4, "warm_up": 0.1, "batch_size": 4, "token_budget": 2048, "keep": "last"},
}
"""Everything offline and on CPU: MiniLM on worlds, many questions once."""
DEMO: Mapping[str, Any] = {
    **WORLDS,
    "data": ["worlds/multihop:train"],
    "data_options": {"worlds": {"questions": 40, "mix": {"single": 0.6, "bridge": 0.4}}},
    "train": {**WORLDS["train"], "epochs": 1},
}
"""Labels, pairs and a training in about a minute and a half."""
PRESETS: Mapping[str, Mapping[str, Any]] = {"paper": PAPER, "released": RELEASED, "worlds": WORLDS, "demo": DEMO}

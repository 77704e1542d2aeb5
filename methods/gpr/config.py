"""Options of GPR's pretraining; a description names the paper only if the paper gives the value."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.registry import resolve
from benchmarks.sources import data_path
from methods.gpr.loss import LossConfig
from methods.gpr.questions import FROM_FILE, PROMPT, QuestionsConfig
from methods.gpr.sampling import SamplingConfig
from methods.graphs.triples import LinearizeConfig, check_graphs
from methods.models.encoder_config import EncoderConfig
from methods.models.encoder_presets import PRESETS as ENCODERS
from methods.models.llm import check_llm, reach_llm
from methods.models.remote_code import check_models
from methods.presets import read_presets
from methods.training import TrainingConfig, TrainingOptions

STAGE = "towers"
"""Name of the training's only stage, and of its folder."""
Pooling = Literal["first", "mean"]


class TrainConfig(TrainingOptions):
    """Optimization options."""

    retired = MappingProxyType({"schedule": "constant", "warm_up": 0.0, "max_grad_norm": 1.0, "rows_per_question": 1, "redraw": True})
    schedule: ClassVar[Literal["constant"]] = "constant"

    epochs: int = Field(5, ge=1, description="number of times that each question is used; paper 5")
    learning_rate: float = Field(2e-5, gt=0, description="learning rate of AdamW; paper 2e-5")
    weight_decay: float = Field(0.01, ge=0, description="weight decay of AdamW on matrices; biases and norms have none")
    batch_size: int = Field(512, ge=1, description="rows per step; paper 512")
    micro_batch: int = Field(64, ge=1, description="rows encoded at once; limits memory, the mean stays the same")
    precision: Literal["no", "bf16", "fp16"] = Field("no", description="mixed precision, as Accelerate names it")
    save_every: int = Field(50, ge=1, description="steps between two saved states from which an interrupted training resumes")


class ValidateConfig(TrainingOptions):
    """Options of the validation after each epoch."""

    retired = MappingProxyType({"most": 1000, "questions": 200})

    share: float = Field(
        0.01, ge=0, lt=1, description="share of the triples with questions that are held out from training and used for validation"
    )
    k: int = Field(20, ge=1, description="number of triples among which their answers are searched")


class GprTrainingConfig(TrainingConfig):
    """Options of GPR's pretraining."""

    retired = MappingProxyType({"triple_base": None, "triple_revision": None})

    graph: tuple[str, ...] = Field(
        min_length=1,
        description="references whose triples form the graph; their questions are not read. Paper: a part of Freebase around "
        "webqsp and cwq; ours: webqsp:train+validation, cwq:train+validation",
    )
    graph_options: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options of the loaders, by dataset id")
    allow_test: bool = Field(False, description="include test graphs; the result is then not zero-shot")
    validation: tuple[str, ...] = Field((), description="references of held-out graphs with questions, for curves; never trained on")
    validation_options: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="options of the loaders of validation, by dataset id"
    )
    base: str = Field("distilbert-base-uncased", description="initial model of both towers: a preset, folder or hub id; offline: minilm")
    revision: str | None = Field(None, description="revision of a hub id")
    pooling: Pooling = Field("first", description="vector of a text: the first token's, or the mean of all tokens'")
    max_length: int = Field(64, ge=8, description="maximum tokens of a question or triple")
    linearize: LinearizeConfig = LinearizeConfig.model_validate({})
    questions: QuestionsConfig = QuestionsConfig.model_validate({})
    sampling: SamplingConfig = SamplingConfig.model_validate({})
    loss: LossConfig = LossConfig.model_validate({})
    train: TrainConfig = TrainConfig.model_validate({})
    validate_on: ValidateConfig = ValidateConfig.model_validate({})

    @property
    def encoder(self) -> EncoderConfig:
        """Return the options of the encoder from which both towers are initialized."""
        options = {
            "model": ENCODERS.get(self.base, {}).get("model", self.base),
            "revision": self.revision,
            "max_length": self.max_length,
            "pooling": "cls" if self.pooling == "first" else "mean",
            "query_prompt": "",
            "passage_prompt": "",
        }
        return EncoderConfig.model_validate(options)

    def preflight(self) -> None:
        """Check data references, encoders and the requirements of the question generator."""
        check_graphs(self.graph, allowed=self.allow_test)
        for reference in self.validation:
            resolve(reference, where="validation")
        check_models(self.encoder)
        questions = self.questions
        if questions.active_llm is not None:
            check_llm(questions.active_llm)
            PROMPT.load(questions.prompt)
        if questions.generator in FROM_FILE and not data_path(questions.path or "").is_file():
            raise UserError(
                "file of questions does not exist",
                code="missing-file",
                where=f"questions.path: {questions.path}",
                try_this=f"correct the path, which is relative to {Path.cwd()} or RAGMETER_DATA",
            )
        others = [item for item in self.graph if resolve(item)[0].name != "worlds"]
        if questions.generator == "worlds" and others:
            raise UserError(
                f"the generator `worlds` has templates only for the relations of worlds, not for those of {others[0]}",
                code="generator-worlds-only",
                where="questions.generator",
                try_this="--set questions.generator=llm --set questions.llm.model=meta-llama/Llama-3.1-8B-Instruct, or without a model "
                "--set questions.generator=template",
            )

    def reach(self, cache: Path | None) -> None:
        """Check that the model that generates questions responds, unless its replies are cached."""
        if self.questions.active_llm is not None:
            reach_llm(self.questions.active_llm, cache)


PRESETS = read_presets((Path(__file__).with_name("presets.yaml"), Path(__file__).with_name("pocket.yaml")))

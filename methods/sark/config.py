"""Options of SARK's data and training; every difference between paper and released code is an option, and both are presets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, model_validator

from benchmarks.core.errors import UserError, described, unknown_name
from benchmarks.core.models import RetiredOptions
from benchmarks.styles.rules import STYLES
from methods.models.llm import LLM, LLMConfig, MayAskConfig, check_llm, defaults, reach_llm
from methods.models.remote_code import check_remote_code
from methods.models.rewriter import REPLY, RewritingOptions
from methods.models.rewriter import load_prompt as rewriting_prompt
from methods.models.weights import locate
from methods.presets import read_presets
from methods.registry import METHODS, Component
from methods.sark.loss import Head
from methods.sark.prompts import ANSWER, ORDER
from methods.training import TrainingConfig, TrainingOptions
from methods.training.adapters import LoraOptions
from methods.training.material import check_references

STAGE = "reranker"
"""Name of the training's only stage, and of its folder."""
DEPTH = 50
"""Number of candidates per question."""


class CandidatesConfig(TrainingOptions):
    """Options for the source of a question's candidates."""

    source: Literal["record", "retriever"] = Field(
        "record", description="record: the dataset's own list; retriever: the best of its corpus; paper: DPR's top 50"
    )
    retriever: str = Field("bm25", description="source retriever: id of the retriever")
    options: dict[str, Any] = Field(default_factory=dict, description="options of that retriever")
    depth: int = Field(DEPTH, ge=1, description="maximum candidates of a question, from the start of the list; paper 50")

    @property
    def component(self) -> Component:
        """Look up the retriever and validate its options."""
        return _component(self.retriever, self.options, "candidates.retriever")


class ExtraConfig(TrainingOptions):
    """Options for additional negatives: lower-ranked passages that turn a correct answer wrong."""

    retriever: str = Field("bm25", description="retriever that finds them in the whole corpus; paper: BM25")
    options: dict[str, Any] = Field(default_factory=dict, description="options of that retriever")
    n: int = Field(100, ge=1, description="passages considered per question; paper 100")

    @property
    def component(self) -> Component:
        """Look up the retriever and validate its options."""
        return _component(self.retriever, self.options, "labels.extra.retriever")


class LabelsConfig(RetiredOptions, MayAskConfig):
    """Options of passage-level labels: compare the answer without context with the answer from one passage."""

    retired = MappingProxyType({"partial": "mismatch"})

    by: Literal["llm", "reader", "evidence"] = Field(
        "reader",
        description="what answers the questions: llm, a language model; reader, the reader named in `reader`, for worlds. evidence: "
        "nothing answers; the dataset's gold evidence has label 1, and every other passage label 0 (not the paper's labels)",
    )
    llm: Annotated[LLM, defaults(max_tokens=64)] | None = Field(None, description="model for by: llm; paper: Qwen2.5-14B-Instruct")
    prompt: str | None = Field(None, description="your own template file; null: the shipped one")
    reader: str = Field("pocket", description="id of the reader for by: reader")
    reader_options: dict[str, Any] = Field(default_factory=dict, description="options of that reader")
    known: float = Field(
        0.0,
        ge=0,
        le=1,
        description="by: reader: share of the questions answerable from one passage, sampled with the seed, that the reader is "
        "assumed to know. Its answer without context is then read from the evidence, so that a passage can mislead "
        "it. A reader without knowledge yields no negatives",
    )
    exact: Literal["squad", "strict"] = Field(
        "squad",
        description="rules of an exact match that counts as Match without asking the judge; released: strict, with the first "
        "gold answer only",
    )
    judge: str | None = Field(
        None,
        description="judge of answers that match no gold answer exactly, e.g. match (paper), rule_match; null: such answers are a Mismatch",
    )
    judge_options: dict[str, Any] = Field(default_factory=dict, description="options of that judge")
    passages: Literal["all", "list", "none"] = Field(
        "all", description="candidates to label: all (paper), those of the list, or none, to train on lists only"
    )
    most_negatives: int | None = Field(
        None, ge=1, description="negatives kept per question, including further ones, sampled with the seed; null: all"
    )
    extra: ExtraConfig | None = Field(None, description="further negatives; null: none. Paper: {n: 100}")

    @model_validator(mode="after")
    def _knows_nothing(self) -> Self:
        if self.by != "reader" and self.known:
            raise ValueError("known is for readers (by: reader); a language model has its own knowledge")
        if self.by == "evidence" and self.extra is not None:
            raise ValueError("extra needs answers (by: llm or by: reader)")
        return self

    @property
    def component(self) -> Component:
        """Look up the reader and validate its options."""
        return _component(self.reader, self.reader_options, "labels.reader")


class ListsConfig(MayAskConfig):
    """Options of list-level labels: orders of six candidates, best first."""

    by: Literal["llm", "evidence"] = Field(
        "evidence",
        description="what orders the list: llm, a language model that is shown one passage per turn; evidence, the dataset's "
        "gold evidence, for worlds",
    )
    llm: Annotated[LLM, defaults(max_tokens=128)] | None = Field(None, description="model for by: llm; paper: Qwen2.5-14B-Instruct")
    prompt: str | None = Field(None, description="your own template file; null: the shipped one")
    keep_evidence: bool = Field(
        False,
        description="if evidence is not among the sampled ranks, put it in the places of the last passages that are not evidence; paper no",
    )


class StylesConfig(MayAskConfig):
    """Options for rewriting every labeled or listed passage in the other style."""

    by: Literal["rules", "llm", "file", "own"] = Field(
        "rules",
        description="rules: the training rules, without a model; llm: `llm`; file: a file of style pairs; own: the styles in the "
        "data (worlds/style, parallel texts)",
    )
    style: str = Field("informal", description="paper: informal")
    llm: Annotated[LLM, REPLY] | None = Field(None, description="the model of by: llm; paper: Qwen2.5-14B-Instruct")
    rewriting: RewritingOptions = Field(RewritingOptions.model_validate({}), description="options of the rewriting model and of its checks")
    file: str | None = Field(None, description="the file of by: file (`ragmeter data restyle`)")

    @model_validator(mode="after")
    def _has_its_source(self) -> Self:
        if self.by == "file" and self.file is None:
            raise ValueError("styles by file need file: PATH")
        return self


class SarkDataConfig(TrainingOptions):
    """Options for SARK's training rows."""

    retired = MappingProxyType({"questions": None, "rows_seed": 0})

    seed: int = Field(0, ge=0, lt=2**32, description="random seed")
    rows: int | None = Field(
        None,
        ge=1,
        description="maximum rows per dataset: questions are drawn in random order until it is reached; null: rows of all "
        "questions. Paper 16,094 (the repository's readme: 19,238)",
    )
    candidates: CandidatesConfig = CandidatesConfig.model_validate({})
    labels: LabelsConfig = LabelsConfig.model_validate({})
    lists: ListsConfig = ListsConfig.model_validate({})
    styles: StylesConfig = StylesConfig.model_validate({})

    @property
    def llms(self) -> list[LLMConfig]:
        """Return the language models in use."""
        return [part.active_llm for part in (self.labels, self.lists, self.styles) if part.active_llm is not None]

    @property
    def wanted_judge(self) -> tuple[str, Mapping[str, Any]] | None:
        """Return name and options of the required judge, or None."""
        labels = self.labels
        return None if labels.judge is None or labels.by == "evidence" else (labels.judge, labels.judge_options)

    @property
    def needs_answers(self) -> bool:
        """Return whether questions need gold answers. Labels and lists by evidence do not use answers."""
        return (self.labels.passages != "none" and self.labels.by != "evidence") or self.lists.by == "llm"

    def check_data(self) -> None:
        """Check, without loading anything, that names, files, templates and keys for building rows are valid.

        Raises:
            UserError: Something is missing.
        """
        for llm in self.llms:
            check_llm(llm)
        ANSWER.load(self.labels.prompt)
        ORDER.load(self.lists.prompt)
        if self.candidates.source == "retriever":
            _require("retriever", self.candidates.component, "candidates.retriever")
        if self.labels.extra is not None:
            _require("retriever", self.labels.extra.component, "labels.extra.retriever")
        if self.labels.by == "reader":
            _require("reader", self.labels.component, "labels.reader")
        self._check_styles()

    def _check_styles(self) -> None:
        styles = self.styles
        if styles.by == "rules" and styles.style not in STYLES:
            raise unknown_name("style", styles.style, STYLES, where="styles.style")
        if styles.by == "llm":
            rewriting_prompt(styles.style, styles.rewriting.prompts)
        if styles.by == "file" and not Path(styles.file or "").expanduser().is_file():
            raise UserError("file of style pairs does not exist", code="missing-file", where=f"styles.file: {styles.file}")

    def reach_data(self, cache: Path | None) -> None:
        """Check that every endpoint responds, with one short call each; endpoints with cached replies are skipped.

        Raises:
            Broke: An endpoint does not respond.
        """
        for llm in self.llms:
            reach_llm(llm, cache)


def _component(name: str, options: Mapping[str, Any], where: str) -> Component:
    try:
        return Component.of(name, options, where=where)
    except ValidationError as error:
        option, what = described(error)
        raise UserError(
            f"option {option!r} of {name}: {what}" if option else f"options of {name}: {what}",
            code="bad-option",
            where=where,
            try_this=f"ragmeter list methods {name}",
        ) from None


def _require(kind: str, component: Component, where: str) -> None:
    if component.entry.kind != kind:
        fits = sorted(entry.id for entry in METHODS if entry.kind == kind)
        raise UserError(
            f"{component.id!r} is a {component.entry.kind}, not a {kind}", code="wrong-kind", where=where, try_this=", ".join(fits)
        )
    component.preflight()


Keep = Literal["f1", "order", "last"]


class ModelConfig(TrainingOptions):
    """Options of the scoring head and the input of the encoder."""

    retired = MappingProxyType({"hidden": 256, "query_share": 0.75})

    match: bool | Literal["embedder"] = Field(
        False,
        description="add a match with a learned weight to the score of a head that starts at 0. true: how well each query token matches "
        "its nearest passage token, both read by the cross-encoder; embedder: the cosine by the base as a frozen embedding model, "
        "so that training starts from its own ranking; paper no",
    )
    level: bool = Field(
        False,
        description="shift the head's bias before the first step so that the mean σ(z) of labeled passages equals their share of "
        "label 1. A base that was trained only on lists is not calibrated, so its passage loss starts near 3. "
        "Changes no order; paper no",
    )
    lora: LoraOptions | None = Field(
        None,
        description="train low-rank updates of the encoder's linear layers instead of the encoder, and merge them at the end; "
        "null: train the whole encoder (paper)",
    )

    head: Head = Field(
        "paper",
        description="paper: one score z; official (the released code): two logits, trained with a cross-entropy; only the second "
        "ranks, and only it is in the checkpoint",
    )
    head_of_base: bool = Field(
        False,
        description="start with the base's own head, if the base is a checkpoint of SARK; paper and released: a new head on the encoder",
    )
    dropout: float = Field(0.3, ge=0, lt=1, description="dropout of the head; released 0.3")
    backbone_dropout: float | None = Field(
        0.3, ge=0, lt=1, description="dropout of hidden states and attention in the encoder; released 0.3; null: the encoder's own"
    )
    max_length: int = Field(512, ge=32, description="longest pair in tokens; the passage is cut, not the query")


class LossConfig(TrainingOptions):
    """Options of the losses: weights, and terms to omit in ablations."""

    retired = MappingProxyType({"lambda_mode": "mgda", "lambda_value": 0.5})

    styles: bool = Field(True, description="both styles of every passage (eq. 8-9); false (w/o SAT): only the formal style")
    passage: bool = Field(True, description="learn from labels of passages; false: w/o passage")
    listwise: bool = Field(True, description="learn from orders of lists; false: w/o list")
    list_loss: Literal["ranknet", "softmax"] = Field(
        "ranknet", description="ranknet: every pair of a list (paper); softmax: each evidence passage of the dataset against all others"
    )
    list_styles: Literal["same", "mixed"] = Field(
        "same",
        description="same: a list is read in one style, then in the other (paper); mixed: the list is read twice, each passage "
        "once in either style, drawn by seed, epoch and question, so that style and order are independent",
    )
    lambda_fixed: float | None = Field(
        None, ge=0, le=1, description="weight λ of the passage loss in every batch; null: computed per batch from both gradients (released)"
    )
    lambda_most: float = Field(
        1.0, ge=0, le=1, description="maximum λ: with 1 (paper), the list loss has no gradient in a batch whose labels are solved"
    )
    lambda_params: Literal["backbone", "last_layer"] = Field(
        "backbone",
        description="parameters whose gradients set λ: the whole encoder (released), or only its last layer, an "
        "approximation; never the head",
    )

    @model_validator(mode="after")
    def _learns(self) -> Self:
        if not (self.passage or self.listwise):
            raise ValueError("passage and listwise must not both be false")
        if self.list_styles == "mixed" and not self.styles:
            raise ValueError("list_styles: mixed needs styles")
        return self


class TrainConfig(TrainingOptions):
    """Optimization options."""

    retired = MappingProxyType({"schedule": "linear", "max_grad_norm": 1.0, "patience": None})
    schedule: ClassVar[Literal["linear"]] = "linear"

    epochs: int = Field(30, ge=1, description="number of times that each row is used; paper 30, released 100")
    learning_rate: float = Field(1e-6, gt=0, description="peak learning rate of AdamW; paper 1e-6, released 1e-5")
    warm_up: float = Field(
        0.0, ge=0, description="steps in which the learning rate rises: a share of all steps if below 1, else their number"
    )
    schedule_over: Literal["steps", "batches"] = Field(
        "steps",
        description="batches (released): the learning rate falls as if each accumulated batch were a step, so its final value is high",
    )
    weight_decay: float = Field(0.01, ge=0, description="weight decay of matrices; released 0.01")
    batch_size: int = Field(8, ge=1, description="rows per batch; 8 rows give 112 sequences; paper and released 8")
    accumulation: int = Field(1, ge=1, description="batches per step of the optimizer, each with its own λ; released 4")
    token_budget: int = Field(
        8192,
        ge=32,
        description="tokens encoded at once, including padding; changes only memory and the random numbers of dropout. A list is "
        "never split. If memory is too small, training halves this and continues",
    )
    precision: Literal["no", "bf16", "fp16"] = Field("no", description="mixed precision, as Accelerate names it")
    keep: Keep | None = Field(
        None,
        description="epoch whose weights are the result: f1, the best F1 of labels on the validation data over both styles "
        "(released); order, the best order of its lists; or last. null: f1, order if labels are not trained on, last "
        "without validation data",
    )
    save_every: int = Field(50, ge=1, description="steps between two saved states from which an interrupted training resumes")


class SarkTrainingConfig(SarkDataConfig, TrainingConfig):
    """Options of SARK's training: rows, model, losses and optimization."""

    data: tuple[str, ...] = Field(min_length=1, description="references of the training data; paper: NQ")
    data_options: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options of the loaders, by dataset id")
    validation: tuple[str, ...] = Field((), description="references of held-out data that select the best epoch")
    validation_options: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="options of the loaders of validation, by dataset id"
    )
    validation_rows: int | None = Field(
        None, ge=1, description="maximum rows per held-out dataset; paper 1,788 (the repository's readme: 2,138)"
    )
    base: str = Field("BAAI/bge-reranker-base", description="encoder to train: a folder or hub id; or minilm")
    revision: str | None = Field(None, description="revision of a hub id")
    model: ModelConfig = ModelConfig.model_validate({})
    loss: LossConfig = LossConfig.model_validate({})
    train: TrainConfig = TrainConfig.model_validate({})

    @model_validator(mode="after")
    def _can_choose(self) -> Self:
        if self.train.keep in ("f1", "order") and not self.validation:
            raise ValueError(f"keep: {self.train.keep} needs validation data")
        return self

    @property
    def keep(self) -> Keep:
        """Return the criterion for the epoch whose weights are the result."""
        if self.train.keep is not None or not self.validation:
            return self.train.keep or "last"
        return "f1" if self.loss.passage else "order"

    @property
    def held_out(self) -> Self:
        """Return the options for building validation rows."""
        return self.model_copy(update={"rows": self.validation_rows})

    def preflight(self) -> None:
        """Check data references, requirements for building rows, and the encoder."""
        check_references(self.data)
        check_references(self.validation, "validation")
        self.check_data()
        locate(self.base)
        check_remote_code(self.base, False)

    def reach(self, cache: Path | None) -> None:
        """Check that every endpoint responds, with one short call each; endpoints with cached replies are skipped."""
        self.reach_data(cache)


PRESETS = read_presets((Path(__file__).with_name("presets.yaml"), Path(__file__).with_name("pocket.yaml")))

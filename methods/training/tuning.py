"""Fine-tune a causal language model with adapters by supervised learning (NLL) or preference learning (DPO).

    NLL   Σ over rows of w · −log p(reply | prompt) / Σ over rows of w · tokens of the reply
    DPO   mean over pairs of −log σ( β · ( log p(c)/p₀(c) − log p(r)/p₀(r) ) ), p₀: the model without its adapter

Only tokens of replies contribute to the loss, never those of the prompt and its retrieved text. Each system's training data and
rewards are in `methods/baselines/tuned.py` and in its own file.

Source of DPO: Rafailov et al. 2023 (arXiv:2305.18290).
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.models import FrozenModel
from benchmarks.core.random import Draws
from methods.models.decoding import Sampling
from methods.models.likelihood import ScoringConfig
from methods.models.local_llm import Loaded, LocalConfig, OwnCounter
from methods.models.weights import locate
from methods.prompts import Messages
from methods.registry import Component
from methods.training import TrainingContext
from methods.training.adapters import Adapters, LoraOptions
from methods.training.contrast import DataConfig
from methods.training.loop import LoopPlace, loop_over_rows
from methods.training.model_card import PATH, ModelKind, write_model_card
from methods.training.parts import Figures, MicroBatch, in_parts
from methods.training.stages import PreparedRun

if TYPE_CHECKING:
    from torch import Tensor

TUNED = "tuned"
"""Name of the adapter if only one is trained."""
ADAPTER = ModelKind(
    "peft",
    "text-generation",
    (),
    f"""from peft import AutoPeftModelForCausalLM

model = AutoPeftModelForCausalLM.from_pretrained("{PATH}")""",
)


class StepOptions(FrozenModel):
    """Optimization options of a stage."""

    epochs: int = Field(1, ge=1, description="number of times that each row is used")
    steps: int | None = Field(None, ge=1, description="maximum optimizer steps, regardless of epochs; null: no limit")
    learning_rate: float = Field(1e-4, gt=0, description="peak learning rate of AdamW")
    warm_up: float = Field(
        0.05, ge=0, description="steps in which the learning rate rises: a share of all steps if below 1, else their number"
    )
    batch_size: int = Field(128, ge=1, description="rows per step")
    micro_batch: int = Field(2, ge=1, description="rows read at once; limits memory, the gradient stays the same")
    save_every: int = Field(200, ge=1, description="steps between two saved states from which an interrupted training resumes")


class TuningConfig(DataConfig):
    """Options shared by trainings that fine-tune a language model."""

    base: str = Field(description="folder or hub id of the causal language model to adapt, or `pocket`")
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: Literal["float32", "bfloat16", "float16", "auto"] | None = Field(None, description="dtype of the frozen base; null: as in use")
    lora: LoraOptions = LoraOptions.model_validate({})
    reader: Literal["causal", "pocket"] = Field("causal", description="reader whose prompts are trained on, and which uses the result")
    retriever: str = Field("bm25", description="retriever of passages, among a question's own candidates if it has some")
    retriever_options: dict[str, Any] = Field(default_factory=dict, description="options of the retriever")
    retrieved: int = Field(20, ge=1, description="passages retrieved per question, from which the system selects")
    k: int = Field(5, ge=1, description="passages given to the reader")
    max_new_tokens: int = Field(32, ge=1, description="longest sampled reply")
    batch_size: int = Field(16, ge=1, description="prompts answered at once when sampling", exclude=True)
    judge: str | None = Field(None, description="judge of answers that match no gold answer exactly; null: such answers are wrong")
    judge_options: dict[str, Any] = Field(default_factory=dict, description="options of the judge")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of AdamW on matrices")
    max_grad_norm: float = Field(1.0, gt=0, description="maximum norm of gradients; larger ones are scaled down")

    @property
    def wanted_judge(self) -> tuple[str, Mapping[str, Any]] | None:
        """Return name and options of the judge that the training needs, or None."""
        return None if self.judge is None else (self.judge, self.judge_options)

    @property
    def model(self) -> str:
        """Return the base model."""
        return self.base

    @property
    def local(self) -> LocalConfig:
        """Return the base model's options for generating replies."""
        options = {"local": self.base, "revision": self.revision, "dtype": self.dtype, "batch_size": self.batch_size}
        return LocalConfig.model_validate({**options, "max_tokens": self.max_new_tokens})

    @property
    def component(self) -> Component:
        """Look up the retriever and validate its options."""
        return Component.of(self.retriever, self.retriever_options, where="retriever")

    def preflight(self) -> None:
        """Check the data references, the base model and the retriever."""
        super().preflight()
        locate(self.base)
        self.component.preflight()


@dataclass(frozen=True, slots=True)
class Row:
    """A target reply for supervised fine-tuning.

    Attributes:
        prompt, reply: Token ids.
        weight: Weight of its loss.
        adapter: Adapter that is trained on it.
    """

    prompt: Sequence[int]
    reply: Sequence[int]
    weight: float = 1.0
    adapter: str = TUNED


@dataclass(frozen=True, slots=True)
class Pair:
    """Preference pair: a prompt with the preferred and the rejected reply, as token ids."""

    prompt: Sequence[int]
    chosen: Sequence[int]
    rejected: Sequence[int]


def nll(log_likelihoods: Tensor, weights: Tensor, tokens: float) -> Tensor:
    """Compute the weighted negative log-likelihood per token of a step's replies.

    Args:
        log_likelihoods: Log-likelihoods of the replies of some rows of the step, [N].
        weights: Weights of these rows, [N].
        tokens: Weighted number of tokens of all replies of the step.
    """
    return -(weights * log_likelihoods).sum() / tokens


def dpo(chosen: Tensor, rejected: Tensor, base_chosen: Tensor, base_rejected: Tensor, beta: float) -> Tensor:
    """Compute the DPO loss per pair.

    Args:
        chosen, rejected: Log-likelihoods of both replies under the tuned model, [N].
        base_chosen, base_rejected: Log-likelihoods under the base model, [N].
        beta: Strength of the regularization toward the base model.

    Returns:
        [N].
    """
    from torch.nn.functional import logsigmoid

    return -logsigmoid(beta * ((chosen - base_chosen) - (rejected - base_rejected)))


class Tuned:
    """A causal language model with trainable adapters.

    Args:
        config: Options.
        device: "cpu", "cuda" …; None chooses.
        names: Names of the adapters.

    Raises:
        UserError: The base is not a causal language model, or cannot be loaded.
    """

    def __init__(self, config: TuningConfig, device: str | None, names: Sequence[str] = (TUNED,)) -> None:
        self.config = config
        self.loaded = Loaded(config.local, device, own=True)
        if self.loaded.decodes:
            raise UserError("adapters need a causal model, but this one has an encoder", code="not-language-model", where="base")
        self.causal: Any = self.loaded.model
        self.adapters = Adapters(self.causal.model, config.lora, names, config.seed, config.base)
        self.counter = OwnCounter(self.loaded)
        tokenizer = self.causal.tokenizer
        self._end = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else self.causal._ends[0]

    @property
    def module(self) -> Any:
        """Return the model with its adapters as a torch module."""
        return self.adapters.model

    def train(self, *names: str) -> None:
        """Make the named adapters trainable and freeze the others."""
        for name in self.adapters.names:
            for item in self.adapters.of(name).values():
                item.requires_grad_(name in names)

    def asking(self, messages: Messages) -> tuple[int, ...]:
        """Return a conversation's token ids, ready for a reply."""
        return self.loaded.parts(messages).ids

    def reply(self, prompt: Sequence[int], text: str) -> tuple[int, ...]:
        """Return a reply's token ids with the end token; a space is inserted after the prompt if needed."""
        last = self.causal.tokenizer.decode(list(prompt[-1:]))
        apart = last[-1:].isspace() or text[:1].isspace()
        return (*self.causal.text_encoder.target(text if apart else f" {text}"), self._end)

    @contextmanager
    def using(self, name: str | None) -> Iterator[None]:
        """Context manager that activates an adapter (None: the bare base) and disables dropout."""
        training = self.module.training
        self.module.eval()
        try:
            with self.adapters.use(name):
                yield
        finally:
            self.module.train(training)

    def write(self, prompts: Sequence[Sequence[int]], name: str | None, sampling: Sampling | None = None) -> list[str]:
        """Generate replies with an adapter, or with the bare base."""
        with self.using(name):
            return [item.text.strip() for item in self.causal.generate(prompts, sampling=sampling)]

    def log_likelihoods(self, items: Sequence[tuple[Sequence[int], Sequence[int]]], name: str | None) -> list[float]:
        """Compute log p(reply | prompt) for (prompt, reply) pairs, without gradient."""
        with self.using(name):
            return [sum(values) for values in self.causal.logprobs(items, ScoringConfig.model_validate({}))]

    def learned(self, items: Sequence[tuple[Sequence[int], Sequence[int]]], name: str | None) -> Tensor:
        """Compute log p(reply | prompt) for (prompt, reply) pairs, with gradient: shape [N]."""
        import torch

        from methods.training.pieces import taught

        with self.adapters.use(name):
            written = taught(self.adapters.model.get_base_model(), [[prompt] for prompt, _ in items], [reply for _, reply in items])
        each = written.logits.log_softmax(-1).gather(1, written.labels.unsqueeze(1)).squeeze(1)
        return torch.stack([part.sum() for part in each.split([len(reply) for _, reply in items])])

    def save(self, name: str, folder: Path) -> None:
        """Write an adapter as a PEFT folder."""
        from peft import get_peft_model_state_dict
        from safetensors.torch import save_file

        weights = get_peft_model_state_dict(self.module, adapter_name=name, save_embedding_layers=False)
        folder.mkdir(parents=True, exist_ok=True)
        save_file({key: item.detach().cpu().contiguous() for key, item in weights.items()}, folder / "adapter_model.safetensors")
        self.module.peft_config[name].save_pretrained(str(folder))
        # PEFT's settings name its version, and list layers in no order.
        path = folder / "adapter_config.json"
        settings = json.loads(path.read_text("utf-8"))
        settings.pop("peft_version", None)
        settings = {key: sorted(value) if isinstance(value, list) else value for key, value in settings.items()}
        path.write_text(json.dumps({**settings, "inference_mode": True}, indent=2, sort_keys=True) + "\n", "utf-8")

    def load(self, name: str, folder: Path) -> None:
        """Load an adapter's weights from a folder that `save` wrote."""
        from peft import set_peft_model_state_dict
        from safetensors.torch import load_file

        set_peft_model_state_dict(self.module, load_file(folder / "adapter_model.safetensors"), adapter_name=name)


def by_weight(tuned: Tuned, part: Sequence[Row], step: Sequence[Row]) -> Tensor:
    """Compute the contribution of some rows to the step's NLL; with several adapters, each has its own sum."""
    import torch

    losses = []
    for name in dict.fromkeys(row.adapter for row in part):
        own = [row for row in part if row.adapter == name]
        tokens = math.fsum(row.weight * len(row.reply) for row in step if row.adapter == name)
        values = tuned.learned([(row.prompt, row.reply) for row in own], name)
        losses.append(nll(values, values.new_tensor([row.weight for row in own]), tokens))
    return torch.stack(losses).sum()


def by_preference(beta: float, sft: float, tuned: Tuned, part: Sequence[Pair], step: Sequence[Pair]) -> Tensor:
    """Compute the contribution of some pairs to the step's DPO loss, plus `sft` times the NLL of the preferred replies."""
    import torch

    items = [*((pair.prompt, pair.chosen) for pair in part), *((pair.prompt, pair.rejected) for pair in part)]
    with torch.no_grad():
        base_chosen, base_rejected = tuned.learned(items, None).chunk(2)
    chosen, rejected = tuned.learned(items, TUNED).chunk(2)
    loss = dpo(chosen, rejected, base_chosen, base_rejected, beta).sum() / len(step)
    return loss + sft * nll(chosen, torch.ones_like(chosen), sum(len(pair.chosen) for pair in step)) if sft else loss


Loss = Callable[[Tuned, Sequence[Any], Sequence[Any]], "Tensor"]
"""Function from the model, a part of a step's rows and all of its rows to the part's contribution to the loss."""


def tuning(
    tuned: Tuned,
    stage: str,
    train: StepOptions,
    rows: Sequence[Any] | Callable[[int], Sequence[Any]],
    count: int,
    context: TrainingContext,
    process: Any,
    identity: str,
    *,
    loss: Loss = by_weight,
    figures: Figures | None = None,
    save: Callable[[Path], None] | None = None,
    title: str = "",
) -> PreparedRun:
    """Prepare the fine-tuning of a stage.

    Args:
        tuned: The model with its trainable adapters.
        stage: Name of the stage.
        train: Optimization options.
        rows: Rows, shuffled in each epoch; or a function from an epoch to its rows.
        count: Rows of an epoch.
        context: Context of the training.
        process: `accelerate` process.
        identity: Hash of everything that determines the result.
        loss: Loss function.
        figures: Figures known before training.
        save: Function that writes the checkpoint; None saves the adapter `TUNED`.
        title: Title of the model card.
    """
    config = tuned.config

    def epoch_rows(epoch: int) -> Sequence[Any]:
        return rows(epoch) if callable(rows) else Draws("tuning", stage, config.seed, epoch).sample(rows, len(rows))

    def step(some: Sequence[Any], epoch: int, number: int) -> Figures:
        key = "tuning", stage, config.seed, number
        parts = [some[start : start + micro.size] for start in range(0, len(some), micro.size)]
        return {"loss": in_parts(parts, lambda part: loss(tuned, part, some), key, process, process.device)}

    micro = MicroBatch(train.micro_batch, f"micro_batch of {stage}")
    place = LoopPlace.of(replace(context, work=context.work / stage), fingerprint(identity, stage), process)
    more: dict[str, Any] = {"weight_decay": config.weight_decay, "max_grad_norm": config.max_grad_norm, "trainable_only": True}
    more["micro"] = micro
    loop = loop_over_rows(stage, {"model": tuned.module}, train, epoch_rows, count, step, place, **more)

    def written(folder: Path, results: Figures) -> None:
        (save or partial(tuned.save, TUNED))(folder)
        shutil.copyfile(loop.curve, folder / "curve.jsonl")
        if save is None:
            write_card(folder, title, config, results)

    return PreparedRun(loop, written, {"rows": float(count), **(figures or {})})


def write_card(folder: Path, title: str, config: TuningConfig, figures: Figures) -> None:
    """Write the model card of an adapter."""
    text = "A PEFT adapter of the base. Only replies were learned, behind prompts as the system writes them when it is used."
    write_model_card(folder, ADAPTER, title, text, base=[config.base], data=config.data, seed=config.seed, facts=figures)

"""Train RankLLaMA (`ragmeter train rankllama`): an adapter and scoring head, by contrasting positives with hard negatives.

A group is a positive with negatives from BM25 and from the question's other candidates.

Source: Ma et al. 2024, Fine-Tuning LLaMA for Multi-Stage Text Retrieval (arXiv:2310.08319); whose negatives come from RepLLaMA.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.registry import Benchmark
from methods.baselines.rerank.pairs import head_scores
from methods.baselines.rerank.rankllama import BASE, HEAD, NAME, PairLengths, classifier, pair_ids
from methods.models.likelihood import padded
from methods.presets import read_presets
from methods.training import LengthsOf, TrainingContext, known_data, register_training
from methods.training.adapters import LoraOptions
from methods.training.candidates import mined
from methods.training.contrast import ContrastConfig, GroupObjective, drawn, mrr, prepared
from methods.training.loop import Figures, KeepBest
from methods.training.material import chosen_by, load_data
from methods.training.model_card import PATH, ModelKind, write_model_card
from methods.training.ranks import first
from methods.training.stages import OneStageTraining, PreparedRun
from methods.work import StageWork, learn, needs_of, steps, total

if TYPE_CHECKING:
    from torch import Tensor

STAGE = "reranker"
BEST = "validation_mrr"
ADAPTER = ModelKind(
    "peft",
    "text-ranking",
    (),
    f"""from peft import AutoPeftModelForSequenceClassification

model = AutoPeftModelForSequenceClassification.from_pretrained("{PATH}", num_labels=1)""",
)


class RankLlamaTrainingConfig(PairLengths, ContrastConfig):
    """Options of RankLLaMA's training."""

    base: str = Field(BASE, description="folder or hub id of the causal language model to adapt")
    lora: LoraOptions = LoraOptions.model_validate({"r": 32, "alpha": 64})
    part: int = Field(8, ge=1, description=ContrastConfig.model_fields["part"].description)
    pool: int = Field(100, ge=1, description="passages that BM25 finds in the whole corpus, from which negatives are sampled")
    own: bool = Field(True, description="sample from the question's own other candidates first, if it has some")
    answers: bool = Field(
        False, description="allow passages that contain an answer as negatives; use true if every positive is annotated (worlds)"
    )
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="dtype of the frozen base")

    @property
    def model(self) -> str:
        """Return the base."""
        return self.base


PRESETS = read_presets(Path(__file__).with_name("rankllama_presets.yaml"))


def _work(config: RankLlamaTrainingConfig, of: LengthsOf) -> list[StageWork]:
    """Return the work: positives with their negatives, assuming one positive per question."""
    data = known_data(config, of)
    each = config.epochs * (1 + config.negatives)
    rows = sum(lengths.questions for lengths in data)
    work = total(
        learn(config, each * lengths.questions, lengths.question + lengths.passage, config.precision, causal=True, adapted=True)
        for lengths in data
    )
    return [StageWork(STAGE, work, rows, steps(rows, config.batch_size, config.epochs))]


@register_training(
    "rankllama",
    summary="RankLLaMA: an adapter and a score head, trained with a softmax over a positive and negatives from BM25",
    stages=(STAGE,),
    config=RankLlamaTrainingConfig,
    paper="Ma et al. 2024, Fine-Tuning LLaMA for Multi-Stage Text Retrieval (arXiv:2310.08319)",
    presets=PRESETS,
    work=_work,
    needs=needs_of,
)
class RankLlamaTraining(OneStageTraining):
    """Training of RankLLaMA: an adapter and a score head, with one positive against sampled negatives."""

    stage = STAGE

    def load(self) -> tuple[list[Benchmark], Sequence[str]]:
        benchmarks = load_data(self.config.data, self.config.data_options)
        return benchmarks, [benchmark.fingerprint for benchmark in benchmarks]

    def inputs(self, data: list[Benchmark]) -> Sequence[str]:
        return chosen_by(self._validation())

    def _validation(self) -> list[Benchmark]:
        return load_data(self.config.validation, self.config.validation_options, train=False)

    def begin(self, data: list[Benchmark], context: TrainingContext, process: Any, identity: str) -> PreparedRun:
        config = self.config
        rows_of = partial(mined, n=config.pool, own=config.own, answers=config.answers, services=context.services)
        with first(process):
            rows = [row for benchmark in data for row in rows_of(benchmark)]
        if not rows:
            raise UserError(
                "no question has a positive in the corpus and other passages",
                code="no-question-with-positives",
                where="data",
                try_this="nq:train",
            )
        held_out = [row for benchmark in self._validation() for row in rows_of(benchmark)]
        objective = PairObjective(config, process)
        count = sum(len(row.positives) for row in rows)
        left_out = sum(len(benchmark.questions) for benchmark in data) - len(rows)
        return prepared(
            NAME,
            config,
            context,
            identity,
            objective,
            lambda epoch: drawn(rows, config.negatives, NAME, config.seed, epoch),
            count,
            lambda folder, figures: save(objective.model, config, folder, figures),
            {"questions": float(len(rows)), "rows": float(count), "questions_left_out": float(left_out)},
            validate=(lambda: {BEST: mrr(objective, held_out)}) if held_out else None,
            keep_best=KeepBest(BEST) if held_out else None,
            trainable_only=True,
        )


class PairObjective(GroupObjective):
    """Contrastive objective for pairs scored by a causal language model with adapter and scoring head."""

    def __init__(self, config: RankLlamaTrainingConfig, process: Any) -> None:
        import torch
        from peft import get_peft_model

        torch.manual_seed(config.seed)
        self._tokenizer, base = classifier(config.base, config.revision, config.dtype, str(process.device))
        model: Any = get_peft_model(base, config.lora.settings(task_type="SEQ_CLS", modules_to_save=[HEAD], exclude_modules=[HEAD]))
        model.peft_config["default"].base_model_name_or_path = config.base
        super().__init__(model, config.part, process)
        self._config = config

    def scores(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """Compute the raw scores of (question, passage) pairs: shape (pairs,)."""
        import torch

        def tokens(texts: Sequence[str], most: int | None) -> list[list[int]]:
            return [list(ids[:most]) for ids in self._tokenizer(list(texts), add_special_tokens=False)["input_ids"]]

        rows = [
            pair_ids(self._tokenizer, tokens, self._config, self._config.layout, query, [" ".join(text.split())])[0]
            for query, text in pairs
        ]
        ids, mask = (torch.tensor(part, device=self.model.device) for part in padded(rows, 0))
        return head_scores(self.model.get_base_model(), ids, mask)


def save(model: Any, config: RankLlamaTrainingConfig, folder: Path, figures: Figures) -> None:
    """Write the adapter and its model card."""
    model.save_pretrained(str(folder))
    # PEFT's settings contain its version, and list layers without an order.
    path = folder / "adapter_config.json"
    settings = json.loads(path.read_text("utf-8"))
    settings.pop("peft_version", None)
    settings = {name: sorted(value) if isinstance(value, list) else value for name, value in settings.items()}
    path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", "utf-8")
    write_model_card(
        folder,
        ADAPTER,
        "A reranker trained as RankLLaMA is",
        "A PEFT adapter with the score head in it, for a sequence classifier with one label on the base. Query and passage are read as "
        "`query: …` and `document: …`, the base's BOS before each.",
        base=[config.base],
        data=config.data,
        seed=config.seed,
        facts={"negatives": config.negatives, "epochs": config.epochs, "positives of a step": config.batch_size, **figures},
    )

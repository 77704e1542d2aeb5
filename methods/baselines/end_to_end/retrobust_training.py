"""Train RetRobust (`ragmeter train retrobust`): a reader that is robust to irrelevant contexts.

A row is a text in the released layout (`released_text`) with one of three kinds of contexts, equally often: top-ranked,
low-ranked, or random passages. The loss covers only the text after "Are follow up questions needed here: No.". Rows are those
of the NQ variant, without follow-up questions, because no dataset here has the sub-questions for the multi-hop variants.

Source: Yoran et al. 2023 (arXiv:2310.01558); equal shares of the three kinds for single-hop questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from benchmarks.core.random import Draws
from benchmarks.schema import Passage
from methods.baselines.end_to_end.self_ask import released_text
from methods.baselines.tuned import PRESETS, Example, StageCost, SystemTuned, TunedTraining, tuned_needs, tuned_work
from methods.prompts import shipped
from methods.training import register_training
from methods.training.stages import PreparedRun
from methods.training.tuning import TUNED, Row, StepOptions, TuningConfig, tuning

READER = "reader"
KINDS = ("first", "low", "random")


class RetRobustTrainingConfig(TuningConfig):
    """Options of RetRobust's training."""

    k: int = Field(1, ge=1, description="contexts per question; paper: 1")
    train: StepOptions = StepOptions.model_validate({"epochs": 5, "batch_size": 4, "learning_rate": 2e-4, "warm_up": 0.03})


def contexts(example: Example, others: Sequence[Passage], k: int, seed: int) -> tuple[str, tuple[Passage, ...]]:
    """Choose the kind of a row's contexts, and the contexts.

    Args:
        example: Question with retrieved passages, best first.
        others: Passages of other questions, used as random contexts.
        k: Number of contexts.
        seed: Random seed.
    """
    draws = Draws("retrobust", seed, example.question.id)
    kind = draws.pick(KINDS)
    low = example.passages[k:]
    if kind == "low" and low:
        return kind, tuple(draws.sample(low, min(k, len(low))))
    if kind == "random":
        own = {passage.id for passage in example.passages}
        return kind, tuple(draws.sample([passage for passage in others if passage.id not in own], k))
    return KINDS[0], example.passages[:k]


@register_training(
    "retrobust",
    summary="RetRobust: an adapter trained to answer from contexts that help and from contexts that do not",
    stages=(READER,),
    config=RetRobustTrainingConfig,
    paper="Yoran et al. 2023, RetRobust (arXiv:2310.01558)",
    presets={"worlds": PRESETS["retrobust"], "paper": PRESETS["retrobust-paper"]},
    work=tuned_work(lambda config: [StageCost(READER, config.train, config.k)]),
    needs=tuned_needs,
)
class RetRobustTraining(TunedTraining):
    """Training of RetRobust: a reader that withstands unhelpful contexts."""

    stages = (READER,)

    def begin(self, stage: str, data: Sequence[Example], before: Mapping[str, Path], where: tuple[Any, Any, str]) -> PreparedRun:
        config = self.config
        tuned = SystemTuned(config, where[0])
        prompt = shipped(__package__, "retrobust")["retrobust"].load()
        others = list({passage.id: passage for example in data for passage in example.passages}.values())
        rows, counts = [], dict.fromkeys(KINDS, 0.0)
        for example in data:
            kind, shown = contexts(example, others, config.k, config.seed)
            ids = tuned.asking(released_text(prompt, example.text, shown, False, ""))
            if len(ids) <= tuned.causal.room:
                rows.append(Row(ids, tuned.reply(ids, f"\nSo the final answer is: {example.question.golds[0]}")))
                counts[kind] += 1
        tuned.train(TUNED)
        title = "A reader trained as RetRobust is"
        return tuning(tuned, stage, config.train, rows, len(rows), *where, figures=counts, title=title)

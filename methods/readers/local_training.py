"""`ragmeter train reader`: an adapter by which a local model answers from what a retriever finds.

The control of every system that tunes its model: plain retrieval with the same base, tuned for as many steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from methods.training import register_training
from methods.training.stages import PreparedRun
from methods.training.tuning import PRESETS, TUNED, Example, Row, Tuned, TuneOptions, Tuning, TuningConfig, tuned_needs, tuned_work, tuning

READER = "reader"


class ReaderTrainingConfig(TuningConfig):
    """Options of the training."""

    train: TuneOptions = TuneOptions.model_validate({"batch_size": 64})


def answer_rows(tuned: Tuned, data: Sequence[Example]) -> list[Row]:
    """Return a row per question: the reader's prompt with the first `k` passages, and the first gold answer."""
    rows = []
    for example in data:
        prompt = tuned.reading(example.text, example.passages[: tuned.config.k])
        if prompt is not None:
            rows.append(Row(prompt, tuned.reply(prompt, example.question.golds[0])))
    return rows


@register_training(
    READER,
    summary="a local reader: an adapter that answers from retrieved passages, the control of systems that tune their model",
    stages=(READER,),
    config=ReaderTrainingConfig,
    presets={"worlds": PRESETS["reader"]},
    work=tuned_work((READER, "train", 1, 0)),
    needs=tuned_needs,
)
class ReaderTraining(Tuning):
    """The training."""

    stages = (READER,)

    def begin(self, stage: str, data: Sequence[Example], before: Mapping[str, Path], where: tuple[Any, Any, str]) -> PreparedRun:
        tuned = Tuned(self.config, where[0])
        rows = answer_rows(tuned, data)
        tuned.train(TUNED)
        return tuning(tuned, stage, self.config.train, rows, len(rows), *where, title="A reader of retrieved passages")

"""The training of one stage: what is contrasted in a step, in the loop that all trainings share.

Nothing random outlives a step: batches are drawn from (seed, stage, epoch) and dropout from (seed, stage, step).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from methods.ark.batches import plan
from methods.ark.config import STAGES, ArkTrainingConfig
from methods.ark.loss import batch_of
from methods.ark.rows import TrainRow
from methods.ark.tower import Tower
from methods.torch_loop import Loop, LoopOptions, Schedule, Validate
from methods.training import Progress


@dataclass(frozen=True)
class StagePlan:
    """What distinguishes a stage.

    Attributes:
        name: `stage1` …
        rows: Its training rows.
        epochs: Times that each row is used.
        learning_rate: At its peak.
        warm_up: Share of the steps below 1, else their number.
    """

    name: str
    rows: Sequence[TrainRow]
    epochs: int
    learning_rate: float
    warm_up: float


def stage_plan(name: str, rows: Sequence[TrainRow], config: ArkTrainingConfig) -> StagePlan:
    """A stage as the options say; of mixed stages the epochs are added up, and the first one's rate holds."""
    train, place = config.train, STAGES.index(name)
    if train.curriculum == "mixed":
        return StagePlan(name, rows, sum(train.epochs), train.learning_rate[0], train.warm_up[0])
    return StagePlan(name, rows, train.epochs[place], train.learning_rate[place], train.warm_up[place])


class StageTrainer:
    """Trains a stage.

    Args:
        tower: The encoder as the stage begins.
        stage: Rows and rates.
        texts: Chunk texts by id.
        config: All options.
        folder: Where the curve and the point to go on from are kept.
        identity: Hash of everything that decides the result; a point of another training is not taken up.
        progress: Told of steps.
        validate: Called after each epoch.
    """

    def __init__(
        self,
        tower: Tower,
        stage: StagePlan,
        texts: Mapping[str, str],
        config: ArkTrainingConfig,
        folder: Path,
        identity: str,
        progress: Progress,
        validate: Validate | None = None,
    ) -> None:
        self.tower, self.stage, self.texts, self.config = tower, stage, texts, config
        self.plan = plan(stage.rows, config.train, stage.epochs, config.seed, stage.name)
        self.loop = Loop(
            {"encoder": tower.model},
            self._options(),
            lambda step: self._step(step),
            folder,
            identity,
            progress,
            stage.name,
            tower.accelerator,
            validate,
        )

    def _options(self) -> LoopOptions:
        train, steps = self.config.train, len(self.plan.steps)
        return LoopOptions(
            steps,
            max(1, steps // self.stage.epochs),
            Schedule(self.stage.learning_rate, self.stage.warm_up, "cosine"),
            weight_decay=train.weight_decay,
            betas=(0.9, train.beta2),
            max_grad_norm=train.max_grad_norm,
            save_every=train.save_every,
        )

    @property
    def curve(self) -> Path:
        """The file of losses and figures."""
        return self.loop.curve

    def run(self) -> Mapping[str, float]:
        """Train to the end.

        Returns:
            Steps, rows, the mean loss of the last epoch, and the last validation's figures.
        """
        figures = self.loop.run()
        return {"steps": figures.pop("steps"), "rows": float(len(self.stage.rows)), **figures}

    def forget(self) -> None:
        """Delete the point to go on from: the stage is finished."""
        self.loop.forget()

    def _step(self, step: int) -> dict[str, float]:
        """The gradient of one step of the optimiser."""
        batches = self.plan.steps[step]
        loss = 0.0
        for number, places in enumerate(batches):
            for part, share in self._parts([self.stage.rows[place] for place in places]):
                batch = batch_of(part, self.texts, self.config.loss)
                seed = (self.config.seed, self.stage.name, step, number, part[0].question_id)
                weight = share / len(batches)
                loss += weight * self.tower.backward(batch, self.config.loss.temperature, seed, weight)
        return {"loss": loss}

    def _parts(self, rows: list[TrainRow]) -> list[tuple[list[TrainRow], float]]:
        """A batch in parts whose rows share no candidates, with the share of each in the mean loss."""
        if any(self.config.loss.in_batch[STAGES.index(row.stage)] != "none" for row in rows):
            return [(rows, 1.0)]
        # Rows of one document share negatives, which are then encoded once.
        rows = sorted(rows, key=lambda row: (row.document_id, row.question_id, row.positive_id))
        parts: list[list[TrainRow]] = []
        texts: set[str] = set()
        for row in rows:
            own = {row.query, row.positive_id, *row.negative_ids}
            if not parts or len(texts | own) > self.config.train.held:
                parts.append([])
                texts = set()
            parts[-1].append(row)
            texts |= own
        return [(part, len(part) / len(rows)) for part in parts]

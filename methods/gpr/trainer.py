"""Pretraining of the two towers, in the loop that all trainings share.

The loss is a mean over rows, so a batch in parts has the gradient of the whole: exactly, but for dropout, which is
drawn from the seed, the step and the part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from methods.gpr.config import GprTrainingConfig
from methods.gpr.loss import Cosines, cosines, row_losses
from methods.gpr.rows import Material, Texts
from methods.gpr.towers import Towers
from methods.torch_loop import Loop, LoopOptions, Schedule, Validate
from methods.training import Progress


class GprTrainer:
    """Trains two towers.

    Args:
        towers: As training begins.
        material: What is trained on.
        config: All options.
        folder: Where the curve and the point to go on from are kept.
        identity: Hash of everything that decides the result; a point of another training is not taken up.
        progress: Told of steps.
        validate: Called after each epoch.
    """

    def __init__(
        self,
        towers: Towers,
        material: Material,
        config: GprTrainingConfig,
        folder: Path,
        identity: str,
        progress: Progress,
        validate: Validate | None = None,
    ) -> None:
        self.towers, self.material, self.config = towers, material, config
        train = config.train
        self._epoch = -(-len(material) // train.batch_size)
        options = LoopOptions(
            train.epochs * self._epoch,
            self._epoch,
            Schedule(train.learning_rate, train.warm_up, train.schedule),
            train.weight_decay,
            max_grad_norm=train.max_grad_norm,
            save_every=train.save_every,
        )
        self.loop = Loop(towers.modules, options, self._step, folder, identity, progress, "gpr", towers.accelerator, validate)

    def _step(self, step: int) -> dict[str, float]:
        """The gradient of one batch; each process adds that of its own parts."""
        epoch, place = divmod(step, self._epoch)
        size, accelerator = self.config.train.batch_size, self.towers.accelerator
        batch = self.material.rows(epoch).take(slice(place * size, (place + 1) * size))
        parts = batch.parts(self.config.train.micro_batch)
        first, ranks = (accelerator.process_index, accelerator.num_processes) if accelerator else (0, 1)
        total = np.zeros(2)
        for number in range(first, len(parts), ranks):
            total += self._part(self.material.texts(parts[number]), (self.config.seed, step, number), len(batch))
        if ranks > 1:
            import torch

            total = accelerator.reduce(torch.tensor(total, device=accelerator.device), "sum").cpu().numpy()
        loss, ordered = (total / len(batch)).tolist()
        return {"loss": loss, "ordered": ordered}

    def _part(self, texts: Texts, seed: tuple[int, ...], rows: int) -> tuple[float, float]:
        """Add the gradient of some rows of so many; returns the sum of their losses, and how many are in order."""
        found = cosines_of(self.towers, texts, seed)
        loss = row_losses(found, self.config.loss).sum()
        scaled = loss / rows
        if self.towers.accelerator is None:
            scaled.backward()
        else:
            self.towers.accelerator.backward(scaled)
        return float(loss.detach()), float(found.ordered().sum())


def cosines_of(towers: Towers, texts: Texts, seed: tuple[int, ...]) -> Cosines:
    """The cosines of some rows, with gradients; every distinct text is encoded once."""
    import torch

    asked = towers.vectors("question", texts.questions, seed)
    triples = towers.vectors("triple", texts.triples, seed)

    def at(vectors: Any, places: np.ndarray) -> Any:
        return vectors[torch.from_numpy(places).to(vectors.device)]

    return cosines(at(asked, texts.question), at(triples, texts.anchor), at(triples, texts.neighbour), at(triples, texts.negative))

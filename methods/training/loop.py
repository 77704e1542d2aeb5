"""A training loop in plain torch under `accelerate`, taken up again at any step with identical results.

Nothing random may outlive a step: a step must draw its rows and its dropout from the seed and the step's
number. Then weights and optimizer at a step are all that a resumed run needs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.core.errors import Broke
from benchmarks.core.files import whole, whole_text
from benchmarks.core.fingerprint import fingerprint
from methods.training import Progress, TrainingContext
from methods.training.parts import Figures, MicroBatch, TooLarge
from methods.training.ranks import gathered, require_equal, wait

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

Step = Callable[[int], Figures]
"""From a step's number (from 0) to its figures, `loss` among them; adds the step's gradient to the parameters.

Of several processes each adds the gradient of its own share: the loop sums them up. If it raises `TooLarge`, the loop
halves the `MicroBatch` and calls it again.
"""
Validate = Callable[[], Figures]
"""Figures of the modules as they are now."""
LAYOUT = 2
"""Of the points to go on from; bump it when what they hold changes."""


@dataclass(frozen=True)
class Schedule:
    """How the learning rate goes: rising to its peak along a line, then as `shape` says.

    Attributes:
        peak: The highest rate.
        warm_up: Share of the steps in which it rises, below 1; else their number.
        shape: cosine: down to the floor along a cosine; linear: along a line; constant: it stays.
        floor: Where it ends, as a share of the peak.
    """

    peak: float
    warm_up: float = 0.0
    shape: Literal["cosine", "linear", "constant"] = "constant"
    floor: float = field(default=0.0, kw_only=True)

    def rate(self, step: int, steps: int) -> float:
        """The rate of a step (from 0) of so many."""
        rising = math.ceil(self.warm_up * steps) if self.warm_up < 1 else int(self.warm_up)
        if step < rising:
            return self.peak * (step + 1) / rising
        done = (step - rising) / max(1, steps - rising)
        if self.shape == "constant":
            return self.peak
        left = 0.5 * (1 + math.cos(math.pi * done)) if self.shape == "cosine" else 1 - done
        return self.peak * (self.floor + (1 - self.floor) * left)


@dataclass(frozen=True)
class KeepBest:
    """End with the weights of the best validation.

    Attributes:
        figure: The validation figure that decides; of equal ones the first.
        lowest: Whether less is better.
    """

    figure: str
    lowest: bool = False


@dataclass(frozen=True)
class LoopOptions:
    """What a loop does around its steps.

    Attributes:
        steps: Of the optimizer.
        epoch: Steps of an epoch; behind each one is validated.
        schedule: Learning rate.
        weight_decay: Of AdamW.
        decayed: matrices: biases and norms are not decayed; all: they are.
        betas: Of AdamW.
        max_grad_norm: Gradients are scaled down to this norm.
        save_every: Steps between two points to go on from.
        keep_best: Which validation's weights are the result; None: those of the last step.
        trainable_only: Points hold only parameters that are trained, for adapters on a large model.
    """

    steps: int
    epoch: int
    schedule: Schedule
    weight_decay: float = 0.01
    decayed: Literal["matrices", "all"] = "matrices"
    betas: tuple[float, float] = (0.9, 0.999)
    max_grad_norm: float = 1.0
    save_every: int = 50
    keep_best: KeepBest | None = None
    trainable_only: bool = False

    def __post_init__(self) -> None:
        if min(self.steps, self.epoch, self.save_every) < 1:
            raise ValueError("steps, epoch and save_every are at least 1")


@dataclass(frozen=True)
class LoopPlace:
    """Where a loop works, and what watches it.

    Attributes:
        folder: Where the curve (`curve.jsonl`) and the point to go on from are kept.
        identity: Hash of everything that decides the result; a point of another training is not taken up.
        progress: Reports steps.
        accelerator: Of `accelerate` (`accelerator`); None: one process in the modules' own precision.
        validate: Called after each epoch, with the modules in evaluation mode.
    """

    folder: Path
    identity: str
    progress: Progress
    accelerator: Any = None
    validate: Validate | None = None

    @classmethod
    def of(cls, context: TrainingContext, identity: str, accelerator: Any, validate: Validate | None = None) -> LoopPlace:
        """Return the place of a training's only loop."""
        return cls(context.work / "train", identity, context.progress, accelerator, validate)


@dataclass
class _Best:
    """The best validation so far: after which step, and its figure."""

    step: int
    figure: float


class Loop:
    """Trains modules, step after step.

    Args:
        modules: What is trained, by name.
        options: Steps, rates, points.
        step: One step's gradient.
        place: Where it works.
        name: Of what is trained, for people who watch.
        micro: How much a step reads at once; None: a step that does not fit into memory ends the training.

    Raises:
        ValueError: `keep_best` is asked for and nothing is validated.
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        options: LoopOptions,
        step: Step,
        place: LoopPlace,
        name: str = "",
        micro: MicroBatch | None = None,
    ) -> None:
        if options.keep_best is not None and place.validate is None:
            raise ValueError("keep_best needs a validation")
        self.modules, self.options, self.step, self.place, self.name = dict(modules), options, step, place, name
        self.micro = micro or MicroBatch(1, "batch_size")
        self.accelerator, self.validate = place.accelerator, place.validate
        self.optimizer = adamw(self.parameters(), options)
        if self.accelerator is not None:
            self.optimizer = self.accelerator.prepare(self.optimizer)
        self._curve: list[dict[str, float]] = []
        self._best: _Best | None = None

    @property
    def curve(self) -> Path:
        """The file of losses and figures."""
        return self.place.folder / "curve.jsonl"

    def parameters(self) -> list[nn.Parameter]:
        """The parameters that are trained, each once."""
        results = (parameter for module in self.modules.values() for parameter in module.parameters() if parameter.requires_grad)
        return list(dict.fromkeys(results))

    def run(self) -> dict[str, float]:
        """Train to the end, from the last point on.

        Returns:
            Steps, the mean loss of the last epoch, and the figures of the validation that the weights are of.

        Raises:
            Broke: The loss is not a number, or a step does not fit into memory.
            UserError: The processes of the group are about to train different things.
        """
        self.place.folder.mkdir(parents=True, exist_ok=True)
        first = self._resume()
        if self.accelerator is not None and self.accelerator.num_processes > 1:
            what = {"options": fingerprint(self.place.identity, repr(self.options)), "steps": self.options.steps}
            what |= {"finished steps": first, "weights": self._checksum()}
            require_equal(what, self.accelerator, str(self.place.folder))
        self.place.progress.begin(f"training {self.name}".strip(), self.options.steps, first)
        for step in range(first, self.options.steps):
            self._curve.append(self._stepped(step))
            self.place.progress.log({name: self._curve[-1][name] for name in ("loss", "learning_rate")})
            self.place.progress.advance()
            better = self._ends_epoch(step) and self._validated(step)
            last = step + 1 == self.options.steps
            if better or last or (step + 1) % self.options.save_every == 0:
                self._save(step + 1)
        if self.accelerator is not None:
            # Else it would hold these parameters for as long as it lives.
            self.accelerator.free_memory()
        self._take_best()
        return self._figures()

    def forget(self) -> None:
        """Delete the points to go on from: the training is finished."""
        if self._main:
            for path in self.place.folder.glob("*.pt"):
                path.unlink()

    def _stepped(self, step: int) -> dict[str, float]:
        rate = self.options.schedule.rate(step, self.options.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        for module in self.modules.values():
            module.train()
        figures = self._gradient(step)
        if not math.isfinite(figures["loss"]):
            raise Broke(
                f"the loss of step {step} of {self.name or 'the training'} is {figures['loss']}",
                code="loss-not-finite",
                where=str(self.curve),
                try_this="a lower learning rate, or precision bf16 or no in place of fp16",
            )
        norm = self._clipped()
        self.optimizer.step()
        return {"step": step, **figures, "learning_rate": rate, "gradient_norm": norm}

    def _gradient(self, step: int) -> Figures:
        """Put the gradient of a step on the parameters, in smaller parts if memory runs out."""
        while True:
            self.optimizer.zero_grad()
            try:
                return self.step(step)
            except TooLarge as error:
                # The traceback holds the activations of what did not fit.
                too_large = error.with_traceback(None)
            self._make_room(too_large)

    def _make_room(self, error: TooLarge) -> None:
        import torch

        device = next(iter(self.parameters())).device
        self.micro.halve(error, device)
        self.optimizer.zero_grad()
        if device.type == "cuda":
            torch.cuda.empty_cache()

    def _checksum(self) -> int:
        """Return a number that tells the trained parameters from those of another initialization."""
        import torch

        return sum(int(item.detach().reshape(-1).view(torch.uint8).sum(dtype=torch.int64)) for item in self.parameters())

    def _clipped(self) -> float:
        """Gradients summed over processes and scaled down to a norm; returns the norm that they had."""
        import torch

        parameters, most = self.parameters(), self.options.max_grad_norm
        if self.accelerator is None:
            return float(torch.nn.utils.clip_grad_norm_(parameters, most))
        if self.accelerator.num_processes > 1:
            for parameter in parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                parameter.grad = self.accelerator.reduce(parameter.grad, "sum")
        return float(self.accelerator.clip_grad_norm_(parameters, most))

    def _ends_epoch(self, step: int) -> bool:
        return (step + 1) % self.options.epoch == 0

    def _validated(self, step: int) -> bool:
        """Validate after a step; returns whether these are the best weights so far."""
        if self.validate is None:
            return False
        for module in self.modules.values():
            module.eval()
        figures = gathered(dict(self.validate()), self.accelerator)[0]
        self._curve.append({"step": step, **figures})
        return self._improved(step, figures)

    def _improved(self, step: int, figures: Figures) -> bool:
        keep = self.options.keep_best
        if keep is None:
            return False
        figure, best = figures[keep.figure], self._best
        if best is None or (figure < best.figure if keep.lowest else figure > best.figure):
            self._best = _Best(step, figure)
            self._write(self._best_point(step), {"modules": self._weights()})
            return True
        return False

    def _take_best(self) -> None:
        if self._best is None:
            return
        # The main process writes it before, and may delete it behind.
        wait(self.accelerator)
        self._load_weights(_read(self._best_point(self._best.step))["modules"])
        wait(self.accelerator)

    @property
    def _main(self) -> bool:
        return self.accelerator is None or bool(self.accelerator.is_main_process)

    @property
    def _point(self) -> Path:
        return self.place.folder / "point.pt"

    def _best_point(self, step: int) -> Path:
        return self.place.folder / f"best-{step}.pt"

    def _weights(self) -> dict[str, dict[str, Tensor]]:
        if not self.options.trainable_only:
            return {name: module.state_dict() for name, module in self.modules.items()}
        return {
            name: {key: item.detach() for key, item in module.named_parameters() if item.requires_grad}
            for name, module in self.modules.items()
        }

    def _load_weights(self, weights: Mapping[str, Mapping[str, Tensor]]) -> None:
        for name, module in self.modules.items():
            result = module.load_state_dict(weights[name], strict=not self.options.trainable_only)
            assert not result.unexpected_keys

    def _save(self, step: int) -> None:
        """Write the curve and the point after which `step` comes; the other processes wait for the main one."""
        if self._main:
            self._write_point(step)
        wait(self.accelerator)

    def _write_point(self, step: int) -> None:
        lines = "".join(json.dumps(line) + "\n" for line in self._curve)
        whole_text(self.curve, lines)
        scaler = getattr(self.accelerator, "scaler", None)
        self._write(
            self._point,
            {
                "layout": LAYOUT,
                "step": step,
                "identity": self.place.identity,
                "modules": self._weights(),
                "optimizer": self.optimizer.state_dict(),
                "scaler": scaler.state_dict() if scaler is not None else None,
                "curve": self._curve,
                "best": vars(self._best) if self._best is not None else None,
                "micro_batch": self.micro.size,
            },
        )
        # Only now: a run that was cut off before goes on from the point before, whose best these were.
        for path in self.place.folder.glob("best-*.pt"):
            if self._best is None or path != self._best_point(self._best.step):
                path.unlink()

    def _write(self, path: Path, state: Mapping[str, Any]) -> None:
        import torch

        if self._main:
            whole(path, lambda partial: torch.save(dict(state), partial))

    def _resume(self) -> int:
        """Take up the last point of this very training; returns the step that comes next."""
        if not self._point.exists():
            return 0
        state = _read(self._point)
        if (state.get("layout"), state["identity"]) != (LAYOUT, self.place.identity):
            return 0
        self._load_weights(state["modules"])
        self.optimizer.load_state_dict(state["optimizer"])
        scaler = getattr(self.accelerator, "scaler", None)
        if scaler is not None and state["scaler"]:
            scaler.load_state_dict(state["scaler"])
        self._curve = list(state["curve"])
        self._best = _Best(**state["best"]) if state["best"] else None
        # Dropout is drawn for each part: the same parts must follow.
        self.micro.size = state.get("micro_batch", self.micro.size)
        return int(state["step"])

    def _figures(self) -> dict[str, float]:
        losses = [line["loss"] for line in self._curve if "loss" in line]
        last = losses[-self.options.epoch :]
        validated = [line for line in self._curve if "loss" not in line]
        if self._best is not None:
            validated = [line for line in validated if line["step"] == self._best.step]
        figures = {name: value for name, value in validated[-1].items() if name != "step"} if validated else {}
        return {"steps": float(len(losses)), "loss": math.fsum(last) / len(last)} | figures


def loop_options(train: Any, epoch: int, **more: Any) -> LoopOptions:
    """Return the options of a loop, as far as those of a training state them.

    Args:
        train: Options `epochs`, `learning_rate` and, where there are some, others of `LoopOptions` and `Schedule`.
        epoch: Steps of an epoch.
        more: Options of the loop that replace these.
    """
    stated = {name: getattr(train, name) for name in ("weight_decay", "max_grad_norm", "save_every") if hasattr(train, name)}
    shape: Any = getattr(train, "schedule", "linear")
    schedule = Schedule(train.learning_rate, getattr(train, "warm_up", 0.0), shape, floor=getattr(train, "floor", 0.0))
    return LoopOptions(**{"steps": train.epochs * epoch, "epoch": epoch, "schedule": schedule, **stated, **more})


def loop_over_rows(
    name: str,
    modules: Mapping[str, nn.Module],
    train: Any,
    rows: Callable[[int], Any],
    count: int,
    step: Callable[[Any, int, int], Figures],
    place: LoopPlace,
    *,
    size: int | None = None,
    micro: MicroBatch | None = None,
    **more: Any,
) -> Loop:
    """Make a loop over rows, epoch after epoch.

    Args:
        name: For people who watch.
        modules: What is trained, by name.
        train: As for `loop_options`; `steps` limits them, whatever the epochs.
        rows: From an epoch to its rows, in their order.
        count: Of the rows of an epoch.
        step: From a step's rows, its epoch and its number to its figures; adds the gradient.
        place: Where it works.
        size: Rows of a step; None: `train.batch_size`.
        micro: As of `Loop`.
        more: Options of the loop that replace those.
    """
    size = size or train.batch_size
    epoch = -(-count // size)
    total = min(train.epochs * epoch, getattr(train, "steps", None) or train.epochs * epoch)
    rows_of = lru_cache(2)(rows)

    def numbered_step(number: int) -> Figures:
        nth, position = divmod(number, epoch)
        return step(rows_of(nth)[position * size : (position + 1) * size], nth, number)

    # In even parts of an epoch at most, so that the last weights are validated, too.
    options = loop_options(train, **{"epoch": total // -(-total // epoch), "steps": total, **more})
    return Loop(modules, options, numbered_step, place, name, micro)


def adamw(parameters: list[nn.Parameter], options: LoopOptions) -> Optimizer:
    """The optimizer; its rate is set before each step."""
    import torch

    if options.decayed == "all":
        return torch.optim.AdamW(parameters, lr=0.0, betas=options.betas, weight_decay=options.weight_decay)
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": options.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=0.0, betas=options.betas)


def _read(path: Path) -> dict[str, Any]:
    import torch

    # On the CPU first: the optimizer's counters stay there, wherever the weights are.
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state

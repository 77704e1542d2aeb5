"""Training loop in plain torch with `accelerate` that can resume at any step with identical results.

No random state may outlive a step: rows and dropout must be derived from the seed and the step number. Weights and optimizer
state are then sufficient to resume.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.core.errors import Broke, UserError, message_of
from benchmarks.core.files import whole, whole_text
from benchmarks.core.fingerprint import fingerprint
from methods.training import Progress, TrainingContext
from methods.training.parts import Figures, MicroBatch, TooLarge
from methods.training.ranks import gathered, require_equal, wait

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

Step = Callable[[int], Figures]
"""Function that computes the gradient of step number n (from 0), adds it to the parameters, and returns metrics including
`loss`.

With several processes, each adds the gradient of its share, and the loop sums them. If the function raises `TooLarge`, the loop
halves the `MicroBatch` and retries.
"""
Validate = Callable[[], Figures]
"""Function that computes validation metrics of the current weights."""
LAYOUT = 2
"""Layout version of saved snapshots; increase it if their contents change."""


@dataclass(frozen=True)
class Schedule:
    """Learning-rate schedule: linear warm-up to the peak, then decay.

    Attributes:
        peak: Maximum learning rate.
        warm_up: Warm-up as a fraction of the steps if below 1, else as a number of steps.
        shape: `cosine` or `linear` decay to the floor, or `constant`.
        floor: Final rate as a fraction of the peak.
    """

    peak: float
    warm_up: float = 0.0
    shape: Literal["cosine", "linear", "constant"] = "constant"
    floor: float = field(default=0.0, kw_only=True)

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step (from 0) out of `steps`."""
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
    """Criterion for ending with the weights of the best validation.

    Attributes:
        figure: Validation metric to compare; ties go to the first.
        lowest: Whether lower is better.
    """

    figure: str
    lowest: bool = False


@dataclass(frozen=True)
class LoopOptions:
    """Options of the training loop.

    Attributes:
        steps: Number of optimizer steps.
        epoch: Steps per epoch; validation runs after each epoch.
        schedule: Learning-rate schedule.
        weight_decay: Weight decay of AdamW.
        decayed: Parameters with weight decay: `matrices` excludes biases and norms, `all` includes them.
        betas: Betas of AdamW.
        max_grad_norm: Maximum gradient norm for clipping.
        save_every: Steps between snapshots for resuming.
        keep_best: Criterion for the best epoch, whose weights are the result; None for the last step.
        trainable_only: Whether snapshots contain only trainable parameters (for adapters of large models).
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
    """Working folder of a training loop, with progress display and validation.

    Attributes:
        folder: Folder of the loss curve (`curve.jsonl`) and the snapshot.
        identity: Hash of everything that determines the result; a snapshot with another hash is ignored.
        progress: Progress display.
        accelerator: `accelerate` process; None for a single process in the modules' precision.
        validate: Validation function, called after each epoch in evaluation mode.
    """

    folder: Path
    identity: str
    progress: Progress
    accelerator: Any = None
    validate: Validate | None = None

    @classmethod
    def of(cls, context: TrainingContext, identity: str, accelerator: Any, validate: Validate | None = None) -> LoopPlace:
        """Create the place of a training with a single loop."""
        return cls(context.work / "train", identity, context.progress, accelerator, validate)


@dataclass
class _Best:
    """The best validation so far: step and metric."""

    step: int
    figure: float


class Loop:
    """Resumable training loop.

    Args:
        modules: Modules to train, by name.
        options: Options of the loop.
        step: Function that computes one step's gradient.
        place: Working folder.
        name: Name for the progress display.
        micro: Size of the parts of a step, halved when memory runs out; None ends the training in that case.

    Raises:
        ValueError: `keep_best` is set without validation.
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
        """Return the path of the file with losses and metrics."""
        return self.place.folder / "curve.jsonl"

    def parameters(self) -> list[nn.Parameter]:
        """Return the distinct trainable parameters."""
        results = (parameter for module in self.modules.values() for parameter in module.parameters() if parameter.requires_grad)
        return list(dict.fromkeys(results))

    def run(self) -> dict[str, float]:
        """Train to the end, resuming from the last snapshot.

        Returns:
            Number of steps, mean loss of the last epoch, and the validation metrics of the final weights.

        Raises:
            Broke: The loss is NaN, or a step does not fit into memory.
            UserError: The processes of the group have different inputs.
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
        """Delete the snapshots after the training is finished."""
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
                try_this="a lower learning rate, or precision bf16 or no instead of fp16",
            )
        norm = self._clipped()
        self.optimizer.step()
        return {"step": step, **figures, "learning_rate": rate, "gradient_norm": norm}

    def _gradient(self, step: int) -> Figures:
        """Compute the gradient of a step, in smaller parts if memory runs out."""
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
        """Return a checksum of the trained parameters, to detect different initializations."""
        import torch

        return sum(int(item.detach().reshape(-1).view(torch.uint8).sum(dtype=torch.int64)) for item in self.parameters())

    def _clipped(self) -> float:
        """Sum gradients over processes, clip them, and return the norm before clipping."""
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
        """Write the curve and a snapshot from which `step` is next; other processes wait for the main one."""
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
        # Only now: a run that was cut off before resumes from the point before, whose best these were.
        for path in self.place.folder.glob("best-*.pt"):
            if self._best is None or path != self._best_point(self._best.step):
                path.unlink()

    def _write(self, path: Path, state: Mapping[str, Any]) -> None:
        import torch

        if self._main:
            whole(path, lambda partial: torch.save(dict(state), partial))

    def _resume(self) -> int:
        """Load the last snapshot of this training, and return the next step."""
        if not self._point.exists():
            return 0
        state = _read(self._point)
        if (state.get("layout"), state["identity"]) != (LAYOUT, self.place.identity):
            if self._main:
                warnings.warn(
                    f"{self._point} (step {state.get('step')}) was made from other data, weights or code: the training starts from its "
                    "first step and will replace it; to continue that one, stop now and restore what has changed",
                    stacklevel=2,
                )
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
    """Build loop options from a training's options.

    Args:
        train: Options `epochs` and `learning_rate`, and any others of `LoopOptions` and `Schedule`.
        epoch: Steps per epoch.
        more: Loop options that take precedence.
    """
    options = {name: getattr(train, name) for name in ("weight_decay", "max_grad_norm", "save_every") if hasattr(train, name)}
    shape: Any = getattr(train, "schedule", "linear")
    schedule = Schedule(train.learning_rate, getattr(train, "warm_up", 0.0), shape, floor=getattr(train, "floor", 0.0))
    return LoopOptions(**{"steps": train.epochs * epoch, "epoch": epoch, "schedule": schedule, **options, **more})


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
    """Build a loop over the rows of each epoch.

    Args:
        name: Name for the progress display.
        modules: Modules to train, by name.
        train: As in `loop_options`; `steps` limits the number of steps.
        rows: Function from an epoch to its ordered rows.
        count: Number of rows per epoch.
        step: Function that adds the gradient of a step, given its rows, epoch and number, and returns metrics.
        place: Working folder.
        size: Rows per step; None for `train.batch_size`.
        micro: As in `Loop`.
        more: Loop options that take precedence.
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
    """Create the AdamW optimizer; the loop sets its learning rate before each step."""
    import torch

    if options.decayed == "all":
        return torch.optim.AdamW(parameters, lr=0.0, betas=options.betas, weight_decay=options.weight_decay)
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": options.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=0.0, betas=options.betas)


def _read(path: Path) -> dict[str, Any]:
    """Read a snapshot.

    Raises:
        UserError: The file is damaged, for example because the machine crashed while it was written.
    """
    import torch

    # On the CPU first: the optimizer's counters stay there, wherever the weights are.
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UserError(
            f"this snapshot of the training cannot be read: {message_of(error)}",
            code="unreadable-snapshot",
            where=str(path),
            try_this=f"delete {path.parent}: this stage is then trained from its first step",
        ) from error
    return state

"""Create, switch and train several LoRA adapters on one frozen base model.

PEFT's own switching is not used for two reasons. `set_adapter` makes the active adapter trainable and freezes the others, so
that the backward pass silently skips an adapter that was frozen in the meantime. And several active adapters are summed. Here,
exactly one adapter (or none) is active in a forward pass, independently of which adapters are trainable.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.models import FrozenModel

if TYPE_CHECKING:
    from torch import nn

MARK = "lora_"
"""Part of the parameter names of adapters."""


class LoraOptions(FrozenModel):
    """Options of the LoRA adapters."""

    r: int = Field(16, ge=1, description="rank; released 16")
    alpha: float = Field(32.0, gt=0, description="updates are scaled by alpha / r; released 32")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout of an update's input in training; released 0.1")
    targets: Literal["all-linear"] | tuple[str, ...] = Field(
        "all-linear", description="layers to adapt, by the end of their names; all-linear: all but the output layer"
    )

    def settings(self, **more: Any) -> Any:
        """Return the options as a PEFT `LoraConfig`."""
        from peft import LoraConfig

        targets = self.targets if isinstance(self.targets, str) else list(self.targets)
        return LoraConfig(r=self.r, lora_alpha=self.alpha, lora_dropout=self.dropout, target_modules=targets, **more)


class Adapters:
    """Set of LoRA adapters of a base model.

    Args:
        base: A `transformers` causal language model, frozen; its linear layers are wrapped in place.
        options: Rank, scale, dropout, layers.
        names: Names of the adapters, at least one. A new adapter does not change the output, since its second factor is zero.
        seed: Random seed of the first factors.
        reference: Name of the base in the adapters' files.
    """

    def __init__(self, base: Any, options: LoraOptions, names: Sequence[str], seed: int, reference: str) -> None:
        import torch
        from peft import get_peft_model
        from peft.tuners.tuners_utils import BaseTunerLayer

        self._settings = options.settings(task_type="CAUSAL_LM")
        self.seed = seed
        self.names: list[str] = list(names)
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            # PEFT asks the base by an old name whether it recomputes activations.
            warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*", category=FutureWarning)
            torch.manual_seed(seed)
            try:
                self.model = get_peft_model(base, self._copied(), adapter_name=names[0])
            except ValueError as error:
                raise UserError(
                    f"the base cannot be given adapters: {error}",
                    code="base-without-adapter-support",
                    where="lora.targets",
                    try_this="all-linear",
                ) from error
            for name in names[1:]:
                self.model.add_adapter(name, self._copied())
        for settings in self.model.peft_config.values():
            settings.base_model_name_or_path = reference
        self._layers = [module for module in self.model.modules() if isinstance(module, BaseTunerLayer)]
        self._parameters = [item for name, item in self.model.named_parameters() if MARK in name]
        self._active: str | None = names[-1]
        for item in self._parameters:
            item.requires_grad_(False)
        self._activate(names[0])

    def _copied(self) -> Any:
        from copy import deepcopy

        return deepcopy(self._settings)

    @property
    def active(self) -> str | None:
        """Return the active adapter; None for the bare base."""
        return self._active

    @contextmanager
    def use(self, name: str | None) -> Iterator[None]:
        """Context manager that activates one adapter, or none, for forward passes; trainability is unchanged.

        Raises:
            KeyError: The adapter does not exist.
        """
        before = self._active
        self._activate(name)
        try:
            yield
        finally:
            self._activate(before)

    def _activate(self, name: str | None) -> None:
        if name is not None and name not in self.names:
            raise KeyError(name)
        if name == self._active:
            return
        flags = [parameter.requires_grad for parameter in self._parameters]
        # The model's own `set_adapter` does the same after a search through all modules, at every switch.
        for layer in self._layers:
            if (name is None) != (self._active is None):
                layer.enable_adapters(name is not None)
            if name is not None:
                layer.set_adapter(name)
        self._active = name
        for item, flag in zip(self._parameters, flags, strict=True):
            item.requires_grad_(flag)

    def of(self, name: str) -> dict[str, nn.Parameter]:
        """Return the parameters of one adapter by name."""
        return {full: item for full, item in self.model.named_parameters() if MARK in full and f".{name}." in full}

    def copy(self, source: str, target: str) -> None:
        """Copy one adapter's values to another."""
        import torch

        theirs = self.of(source)
        with torch.no_grad():
            for full, item in self.of(target).items():
                item.copy_(theirs[full.replace(f".{target}.", f".{source}.")])

    def reset(self, name: str, seed: int) -> None:
        """Reinitialize an adapter: random first factors, zero second factors."""
        import torch
        from peft.tuners.lora import LoraLayer

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for module in self.model.modules():
                if isinstance(module, LoraLayer):
                    module.reset_lora_parameters(name, init_lora_weights=True)

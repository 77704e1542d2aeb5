"""Keep loaded models in memory, so that tasks of one process that use the same model load it once.

Code that changes a model (training, adapters) must load separate weights. If weights were changed in place anyway, the model is
not shared further, and others load it again.
"""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

SHARE = 0.25
"""Maximum fraction of a device's memory for models that no task uses."""
CROWDED = 0.5
"""Fraction of a GPU's memory that must be free before loading; otherwise unused models are removed first."""


def memory_of(device: str) -> tuple[int, int]:
    """Return free and total bytes of a device; for a CPU, the total twice."""
    if device.startswith("cuda"):
        import torch

        free, total = torch.cuda.mem_get_info(device)
        return int(free), int(total)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return total, total


def _bytes(model: Any) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def _state(model: Any) -> tuple[tuple[int, int], ...]:
    """Return the memory addresses and in-place version counters of the weights."""
    return tuple((weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in model.parameters())


class Kept:
    """Cache of loaded models by key.

    A model stays while a task holds a reference. Unused models stay in order of last use, up to `SHARE` of the device's memory.
    """

    def __init__(self) -> None:
        self._alive: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
        self._held: OrderedDict[Hashable, tuple[Any, str, int]] = OrderedDict()
        self._loaded_as: dict[Hashable, tuple[tuple[int, int], ...]] = {}
        self._lock = threading.RLock()

    def get(self, key: Hashable, device: str, load: Callable[[], Any]) -> Any:
        """Return the cached model of a key, or load it.

        Args:
            key: Everything that determines the loaded model, including the hash of its files.
            device: Device of the model.
            load: Function that loads the torch module in evaluation mode on the device.
        """
        with self._lock:
            model = self._alive.get(key)
            if model is None or _state(model) != self._loaded_as[key]:
                model = self._alive[key] = self._loaded(device, load)
                self._loaded_as[key] = _state(model)
            self._held.pop(key, None)
            self._hold(key, model, device)
            return model

    def clear(self) -> None:
        """Remove all models that no task uses."""
        with self._lock:
            self._held.clear()
        gc.collect()

    def _loaded(self, device: str, load: Callable[[], Any]) -> Any:
        if not self._held:
            return load()
        free, total = memory_of(device)
        if free < CROWDED * total:
            self._free(device)
        try:
            return load()
        except Exception as error:
            if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryError":
                raise
        # Outside the handler, whose traceback holds the half-loaded model.
        self._free(device)
        return load()

    def _free(self, device: str) -> None:
        self.clear()
        if device.startswith("cuda"):
            import torch

            torch.cuda.empty_cache()

    def _hold(self, key: Hashable, model: Any, device: str) -> None:
        size = _bytes(model)
        room = SHARE * memory_of(device)[1] - size
        if room < 0:
            return
        mine = [(other, bytes_) for other, (_, where, bytes_) in self._held.items() if where == device]
        used = sum(bytes_ for _, bytes_ in mine)
        for other, bytes_ in mine:
            if used <= room:
                break
            del self._held[other]
            used -= bytes_
        self._held[key] = model, device, size


KEPT = Kept()
"""Model cache of this process."""

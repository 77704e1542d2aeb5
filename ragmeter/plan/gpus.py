"""Hours and memory of GPUs for what models do.

A forward pass takes 2·N operations per token (N: parameters) plus 4·layers·width·L for attention in a text of L tokens, half of
that if it is causal; learning takes three passes (Kaplan et al. 2020, Scaling Laws), four if activations are
computed again, at `utilization` of the peak. Writing a
token reads all weights, and the keys and values before it, once per batch at 60 % of the bandwidth (Pope et al. 2022, Efficiently
Scaling Transformer Inference). Full training takes 16 bytes per parameter (weights, gradient, two means of AdamW in float32),
adapters take the weights. Activations of the tokens held at once are added (Korthikanti et al. 2022, Reducing Activation
Recomputation; attention keeps no matrix of scores). Exchange between GPUs, loading and waiting are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from methods.work import Use
from ragmeter.runner.sizes import ModelSize


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU by its maker's data sheet: memory, peak operations a second in 16 bits (dense) and float32, bytes a second."""

    name: str
    gigabytes: int
    half: float
    single: float
    bandwidth: float


GPUS = (Gpu("RTX 4090", 24, 165.2e12, 82.6e12, 1.008e12), Gpu("H100", 80, 989e12, 67e12, 3.35e12), Gpu("H200", 141, 989e12, 67e12, 4.8e12))
COUNTS = (1, 8)
UTILIZATION, BANDWIDTH = 0.4, 0.6
"""Shares of the peak and of the bandwidth that large models reach in a tuned loop."""
_BYTES: dict[str | None, int] = {"float32": 4}
Hours = dict[tuple[Gpu, int], float | None]
"""Hours by GPU and number of GPUs; None: the models do not fit."""


def operations(size: ModelSize, tokens: float, length: float, *, causal: bool = True) -> float:
    """Return the operations of forward passes; attention is left out if the model's shape is unknown."""
    attention = (2.0 if causal else 4.0) * (size.layers or 0) * (size.width or 0) * length
    return tokens * (2.0 * size.computing + attention)


def seconds(use: Use, size: ModelSize, gpu: Gpu, utilization: float = UTILIZATION) -> float:
    """Return the seconds of one GPU for what a model of known size does."""
    tokens = use.prompt + use.encoded + (4 if use.checkpointed else 3) * use.trained
    peak = gpu.single if use.dtype == "float32" else gpu.half
    read = operations(size, tokens, use.length, causal=use.causal) / (peak * utilization)
    at_once = min(use.batch, use.calls)
    if not at_once:
        return read
    weights = _BYTES.get(use.dtype, 2) * ((size.parameters or 0.0) + at_once * _kept(size, use.length + use.completion / use.calls / 2))
    return read + use.completion / at_once * weights / (gpu.bandwidth * BANDWIDTH)


def memory(use: Use, size: ModelSize) -> float:
    """Return the bytes of a GPU that a model of known size takes."""
    if use.trained:
        weights = _BYTES.get(use.dtype, 2) if use.adapted else 16.0
        return weights * (size.parameters or 0.0) + activations(use, size)
    most = use.length + use.completion / use.calls if use.calls else 0.0
    return _BYTES.get(use.dtype, 2) * ((size.parameters or 0.0) + min(use.batch, use.calls) * _kept(size, most))


def activations(use: Use, size: ModelSize) -> float:
    """Return the bytes of the activations that a step holds; 0 if the model's shape is unknown.

    A layer keeps 34 bytes per token and number of its width in 16 bits, twice that in float32. If activations are computed
    again, a layer keeps its input alone, and one layer at a time is whole.
    """
    factor = _BYTES.get(use.dtype, 2) / 2
    layers, width = size.layers or 0, size.width or 0
    whole = 34.0 * factor * width * use.held
    return 2.0 * factor * layers * width * use.held + whole if use.checkpointed else layers * whole


def _kept(size: ModelSize, length: float) -> float:
    """Return how many numbers the keys and values of a text have."""
    return 2.0 * (size.layers or 0) * (size.kv_width or 0) * length

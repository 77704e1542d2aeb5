"""Hours and memory of GPUs for what models do.

A forward pass takes 2·N operations per token (N: parameters) plus 4·layers·width·L for attention in a text of L tokens, half of
that if it is causal, at `utilization` of the peak; learning takes three passes (Kaplan et al. 2020, Scaling Laws), four if
activations are computed again. Between its products a layer also reads and writes `TRAFFIC` bytes per token and number of its
width. Writing a token reads all weights, and the keys and values before it, once per batch at 60 % of the bandwidth (Pope et al.
2022, Efficiently Scaling Transformer Inference), and takes at least `LAUNCH` seconds a layer where `transformers` generates.

Full training takes 16 bytes per parameter (weights, gradient, two means of AdamW in float32), adapters take the weights.
Activations of the tokens held at once are added: `ACTIVATION` bytes per layer, token and number of its width. `TRAFFIC`, `LAUNCH`
and `ACTIVATION` were measured by `make gpu-real` (perf/measured/gpu_real.json). Exchange between GPUs, loading and waiting are
not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from methods.work import Use
from ragmeter.runner.sizes import ModelSize


@dataclass(frozen=True, slots=True)
class Gpu:
    """GPU model with data-sheet values: memory, peak operations per second (16-bit dense, and float32) and memory bandwidth in
    bytes per second.
    """

    name: str
    gigabytes: int
    half: float
    single: float
    bandwidth: float


GPUS = (Gpu("RTX 4090", 24, 165.2e12, 82.6e12, 1.008e12), Gpu("H100", 80, 989e12, 67e12, 3.35e12), Gpu("H200", 141, 989e12, 67e12, 4.8e12))
COUNTS = (1, 8)
UTILIZATION, BANDWIDTH = 0.4, 0.6
"""Fractions of peak performance and bandwidth that large models reach in a tuned loop."""
TRAFFIC = {"read": 100.0, "learned": 450.0}
"""Bytes per token, layer and unit of width in a pass: without gradients, and in mixed-precision training."""
LAUNCH = 8e-4
"""Seconds per layer for launching the kernels of one generated token."""
ACTIVATION = 96.0
"""Bytes per token, layer and unit of width that training keeps for the backward pass."""
_BYTES: dict[str | None, int] = {"float32": 4}
Hours = dict[tuple[Gpu, int], float | None]
"""Hours by GPU and number of GPUs; None: the models do not fit."""


def operations(size: ModelSize, tokens: float, length: float, *, causal: bool = True) -> float:
    """Estimate the operations of forward passes over tokens; attention is left out if the model's shape is unknown."""
    attention = (2.0 if causal else 4.0) * (size.layers or 0) * (size.width or 0) * length
    return tokens * (2.0 * size.computing + attention)


def seconds(use: Use, size: ModelSize, gpu: Gpu, utilization: float = UTILIZATION) -> float:
    """Estimate the seconds that one GPU needs for a model's work."""
    passes, read_only = (4 if use.checkpointed else 3) * use.trained, use.prompt + use.encoded
    peak, bandwidth = gpu.single if use.dtype == "float32" else gpu.half, gpu.bandwidth * BANDWIDTH
    read = operations(size, read_only + passes, use.length, causal=use.causal) / (peak * utilization)
    numbers = (size.layers or 0) * (size.width or 0)
    read += numbers * (TRAFFIC["read"] * read_only + TRAFFIC["learned"] * passes) / bandwidth
    at_once = min(use.batch, use.calls)
    if not at_once:
        return read
    weights = _BYTES.get(use.dtype, 2) * ((size.parameters or 0.0) + at_once * _kept(size, use.length + use.completion / use.calls / 2))
    launched = LAUNCH * (size.layers or 0) if use.where == "here" else 0.0
    return read + use.completion / at_once * max(weights / bandwidth, launched)


def memory(use: Use, size: ModelSize) -> float:
    """Estimate the GPU memory that a model's work needs, in bytes."""
    if use.trained:
        weights = _BYTES.get(use.dtype, 2) if use.adapted else 16.0
        return weights * (size.parameters or 0.0) + activations(use, size)
    most = use.length + use.completion / use.calls if use.calls else 0.0
    return _BYTES.get(use.dtype, 2) * ((size.parameters or 0.0) + min(use.batch, use.calls) * _kept(size, most))


def activations(use: Use, size: ModelSize) -> float:
    """Estimate the memory of the activations of a training step, in bytes; 0 if the model's shape is unknown.

    With activation checkpointing, each layer stores only its input (float32), and one layer at a time is complete.
    """
    layers, whole = size.layers or 0, ACTIVATION * (size.width or 0) * use.held
    return whole + 4.0 * layers * (size.width or 0) * use.held if use.checkpointed else layers * whole


def _kept(size: ModelSize, length: float) -> float:
    """Return how many numbers the KV cache of a text has."""
    return 2.0 * (size.layers or 0) * (size.kv_width or 0) * length

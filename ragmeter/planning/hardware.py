"""From tokens to seconds of a GPU, by the plainest of models: floating-point operations, or bytes of weights read.

A forward pass over a token takes 2·N operations (N: parameters) and, for attention over a text of L tokens,
4·layers·width·L, half of that where attention is causal; a training step takes three times a forward pass. That is
done at a share of the device's peak. Writing a token reads all weights and what is kept of the text before it once a
batch, at a share of the memory's bandwidth.

Sources: Kaplan et al. 2020, Scaling Laws (2·N and 6·N); Pope et al. 2022, Efficiently Scaling Transformer Inference
(decoding bound by memory); peaks without sparsity and bandwidths are those of the makers' data sheets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.errors import UserError, unknown_name
from ragmeter.sizing.sizes import ModelSize

HOUR = 3600.0
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
HALF = ("bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A kind of GPU.

    Attributes:
        name: As in `--device-class`.
        half: Peak operations a second in 16 bits, dense.
        single: In float32, without tensor cores.
        bandwidth: Bytes a second from memory.
    """

    name: str
    half: float
    single: float
    bandwidth: float

    def peak(self, dtype: str) -> float:
        """Operations a second in a type."""
        return self.half if dtype in HALF else self.single


DEVICES: Mapping[str, DeviceClass] = {
    one.name: one
    for one in (
        DeviceClass("h200", 989e12, 67e12, 4.8e12),
        DeviceClass("h100", 989e12, 67e12, 3.35e12),
        DeviceClass("a100", 312e12, 19.5e12, 2.039e12),
        DeviceClass("l40s", 362e12, 91.6e12, 0.864e12),
        DeviceClass("l4", 121e12, 30.3e12, 0.3e12),
        DeviceClass("4090", 165e12, 82.6e12, 1.008e12),
        DeviceClass("v100", 125e12, 15.7e12, 0.9e12),
    )
}
DEFAULT_DEVICE = "h100"
UTILISATION = 0.4
"""Share of the peak that a tuned loop of a large model reaches; small models and short texts reach less."""
BANDWIDTH = 0.6
"""Share of the memory's bandwidth that decoding reaches."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What hours are computed with; printed beside them.

    Attributes:
        device: The kind of GPU, one of them.
        utilisation: Share of its peak that is reached in training and in reading prompts.
        bandwidth: Share of its memory's bandwidth that is reached in writing.
    """

    device: DeviceClass = DEVICES[DEFAULT_DEVICE]
    utilisation: float = UTILISATION
    bandwidth: float = BANDWIDTH

    @classmethod
    def of(cls, device: str | None = None, utilisation: float | None = None) -> Assumptions:
        """From a device's name and a share.

        Raises:
            UserError: There is no such device, or the share is not above 0 and at most 1.
        """
        name = DEFAULT_DEVICE if device is None else device
        if name not in DEVICES:
            raise unknown_name("device class", name, DEVICES, where="--device-class")
        share = UTILISATION if utilisation is None else utilisation
        if not 0 < share <= 1:
            raise UserError(f"{share:g} is no share of a peak", where="--utilisation", try_this="a number above 0, at most 1")
        return cls(DEVICES[name], share)

    def __str__(self) -> str:
        device = self.device
        return (
            f"one {device.name}: {device.half / 1e12:g} TFLOP/s in 16 bits, {device.single / 1e12:g} in float32, "
            f"{device.bandwidth / 1e12:g} TB/s; {self.utilisation:.0%} of the peak in training and reading, "
            f"{self.bandwidth:.0%} of the bandwidth in writing"
        )

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**asdict(self), "device": asdict(self.device)}

    def reading(self, size: ModelSize, tokens: float, length: float, dtype: str, *, causal: bool = True) -> float:
        """Seconds of forward passes.

        Args:
            size: The model, its parameters known.
            tokens: Of all texts.
            length: Of one of them, for attention.
            dtype: In which it computes.
            causal: Whether a token sees only those before it.
        """
        return operations(size, tokens, length, causal=causal) / (self.device.peak(dtype) * self.utilisation)

    def training(self, size: ModelSize, tokens: float, length: float, dtype: str, *, causal: bool = True) -> float:
        """Seconds of forward and backward passes: three times `reading`, 6·N a token."""
        return 3 * self.reading(size, tokens, length, dtype, causal=causal)

    def writing(self, size: ModelSize, texts: float, tokens: float, context: float, batch: int, dtype: str) -> float:
        """Seconds of writing.

        Args:
            size: The model, its parameters known.
            texts: How many are written.
            tokens: Of each of them.
            context: Tokens before and in a text whose keys and values are read, on average.
            batch: Texts written at once.
            dtype: Of weights, keys and values.
        """
        width = BYTES[dtype]
        assert size.parameters is not None
        kept = 0.0 if size.layers is None or size.kv_width is None else 2.0 * size.layers * size.kv_width * context
        at_once = min(batch, texts) if texts else 0
        if not at_once:
            return 0.0
        read = width * (size.parameters + at_once * kept)
        return (texts / at_once) * tokens * read / (self.device.bandwidth * self.bandwidth)


def operations(size: ModelSize, tokens: float, length: float, *, causal: bool = True) -> float:
    """Floating-point operations of forward passes; of a model whose shape is unknown without attention."""
    assert size.parameters is not None
    attention = 0.0
    if size.layers is not None and size.width is not None:
        attention = (2.0 if causal else 4.0) * size.layers * size.width * length
    return tokens * (2.0 * size.computing + attention)

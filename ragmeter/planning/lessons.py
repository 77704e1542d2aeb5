"""What a stage of a training comes to: rows, steps, and tokens through a model, at most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from benchmarks.fingerprint import fingerprint
from benchmarks.registry import resolve
from methods.models.chat_options import ChatConfig
from ragmeter.planning.asking import Calls, asked
from ragmeter.planning.cost import Cost, total, unknown
from ragmeter.planning.hardware import Assumptions
from ragmeter.planning.shape import Shape
from ragmeter.planning.shapes import options, shape_of
from ragmeter.planning.weights import Weights
from ragmeter.sizing.sizes import ModelSize

DATA = "data"
"""The stage in which data are prepared: scores, synthesis, frozen documents."""
FULL = "float32"
OPTIMISER = 12
"""Bytes a trained parameter takes in a point to go on from: float32 itself, and the two means of AdamW."""
GRADIENT_CACHING = 4 / 3
"""Gradient caching reads every text once more without a gradient."""
DTYPES = {"no": FULL, "bf16": "bfloat16", "fp16": "float16"}
"""Types that `precision` computes in."""


@dataclass(frozen=True)
class Lesson:
    """A stage of a training, as planned.

    Attributes:
        stage: Its name, or `DATA`.
        rows: Training rows, at most; None: unknown.
        steps: Of the optimiser, at most; None: unknown, or not a stage that trains.
        cost: At most.
        scratch: Bytes on disk while it runs: points to go on from, frozen documents.
        once: What is done once for all trainings that need it: replies and indexes are kept, by what they are of.
    """

    stage: str
    rows: float | None
    steps: float | None
    cost: Cost
    scratch: float = 0.0
    once: Mapping[str, Cost] = field(default_factory=dict)


@dataclass
class Classroom:
    """What planning trainings needs.

    Attributes:
        assume, weights: Device and sizes.
        shapes: Of data that were looked at, by reference and options.
        done: What an earlier training of the plan does for the later ones.
    """

    assume: Assumptions
    weights: Weights
    shapes: dict[str, Shape] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)

    def once(self, lesson: Lesson) -> Cost:
        """What a stage takes beside what an earlier training does, too."""
        new = {key: cost for key, cost in lesson.once.items() if key not in self.done}
        self.done |= set(new)
        return total((lesson.cost, *new.values()))

    def shape(self, reference: str, given: Mapping[str, Mapping[str, Any]]) -> Shape:
        """The shape of training data, whose options are given by dataset id, or by id/subset."""
        chosen = resolve(reference)[0].options_in(given)
        key = f"{reference} {chosen}"
        if key not in self.shapes:
            self.shapes[key] = shape_of(*options(reference, chosen))
        return self.shapes[key]

    def shapes_of(self, references: Iterable[str], given: Mapping[str, Mapping[str, Any]]) -> list[Shape]:
        """The shapes of several."""
        return [self.shape(one, given) for one in references]

    def ask(self, chat: ChatConfig | None, number: float, prompt: float, longest: float | None = None) -> Cost:
        """Calls of an endpoint; None: nobody is asked."""
        if chat is None:
            return Cost()
        return asked(Calls(number, prompt, chat.max_tokens if longest is None else longest), chat, self.assume)

    def read(self, size: ModelSize, texts: float, length: float, dtype: str, *, causal: bool) -> Cost:
        """Forward passes of a local model over so many texts."""
        cost = Cost(encoded_tokens=texts * length)
        if not size.known:
            return cost + unknown(f"GPU hours of {size.model}: its size is unknown")
        return cost + Cost(gpu_seconds=self.assume.reading(size, texts * length, length, dtype, causal=causal))

    def train(self, size: ModelSize, texts: float, length: float, dtype: str, *, causal: bool) -> Cost:
        """Forward and backward passes over so many texts."""
        cost = Cost(encoded_tokens=texts * length)
        if not size.known:
            return cost + unknown(f"GPU hours of training {size.model}: its size is unknown")
        return cost + Cost(gpu_seconds=self.assume.training(size, texts * length, length, dtype, causal=causal))


def once(what: str, *parts: BaseModel | Sequence[str]) -> str:
    """A key of work that trainings share: equal where it is of equal options and data."""
    return fingerprint(what, [one.model_dump(mode="json") if isinstance(one, BaseModel) else list(one) for one in parts])


def steps_of(rows: float, batch: int, epochs: int) -> int:
    """Steps of the optimiser: the last one of an epoch may be smaller."""
    return math.ceil(rows / batch) * epochs if rows else 0


def saved(size: ModelSize, towers: int = 1) -> Cost:
    """The checkpoint of a model whose parameters are all kept in float32."""
    if size.parameters is None:
        return unknown(f"disk of the checkpoint: the size of {size.model} is unknown")
    return Cost(disk=towers * 4 * size.parameters)


def points(size: ModelSize, towers: int = 1) -> float:
    """Bytes of the point that an interrupted training goes on from; 0 where the size is unknown."""
    return towers * OPTIMISER * (size.parameters or 0.0)


def unclear(shapes: Iterable[Shape], what: str) -> Cost:
    """What data whose numbers or lengths are unknown leave unknown."""
    return total(
        unknown(f"{what} on {one.reference}: " + ("its lengths are" if one.questions else "how much there is, is") + " unknown")
        for one in shapes
        if one.questions is None or not one.asked
    )

"""The endpoints that an experiment asks: whether they answer is seen only when it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from judges.judging import JUDGES
from methods.models.chat_options import ChatConfig
from methods.training import TrainingConfig
from ragmeter.experiment import Experiment


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """A model at an endpoint.

    Attributes:
        url: Where it is asked.
        model: Its name there.
        needed_by: Who asks it.
    """

    url: str
    model: str
    needed_by: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"url": self.url, "model": self.model, "needed_by": list(self.needed_by)}


def endpoint_rows(experiment: Experiment) -> list[EndpointRow]:
    """Every model at every endpoint, once."""
    found: dict[tuple[str, str], list[str]] = {}
    for who, chat in _chats(experiment):
        askers = found.setdefault((chat.url, chat.model), [])
        if who not in askers:
            askers.append(who)
    return [EndpointRow(url, model, tuple(askers)) for (url, model), askers in found.items()]


def _chats(experiment: Experiment) -> Iterator[tuple[str, ChatConfig]]:
    for plan in experiment.trainings:
        for chat in _of_training(plan.config):
            yield plan.name, chat
    for method in experiment.methods:
        for component in method.components:
            for chat in chats_in(component.config):
                yield method.name, chat
    for judge in experiment.judges:
        for chat in chats_in(judge.judge.config):
            yield str(judge.judge), chat


def _of_training(config: TrainingConfig) -> Iterator[ChatConfig]:
    # What a training's options hold and do not use (another generator) is left out where it says what it asks.
    used = getattr(config, "chats", None)
    yield from chats_in(config) if used is None else used
    if config.wanted_judge is not None:
        name, given = config.wanted_judge
        yield from chats_in(JUDGES.get(name).config.model_validate(given))


def chats_in(config: BaseModel) -> Iterator[ChatConfig]:
    """The options of endpoints that options are or hold."""
    if isinstance(config, ChatConfig):
        yield config
        return
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            yield from chats_in(value)

"""Options classes keep a group's own defaults when only some options of the group are given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import BaseModel, Field, ValidationError

from benchmarks.core.models import FrozenModel
from judges.judge import JUDGES
from methods.clara.teacher import TeacherConfig
from methods.registry import METHODS
from methods.training import TRAININGS


class Steps(FrozenModel):
    rate: float = 1e-4
    batch: int = 128


class Bounds(FrozenModel):
    least: int
    most: int


class Group(FrozenModel):
    steps: Steps = Steps(rate=6e-3)
    bounds: Bounds | None = Bounds(least=3, most=10)


class Options(FrozenModel):
    train: Steps = Steps(rate=6e-3, batch=384)
    later: Steps = Field(default_factory=lambda: Steps(batch=8))
    group: Group = Group(steps=Steps(batch=4))
    either: Steps | Bounds = Steps(batch=16)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"train": {"batch": 2}}, Options(train=Steps(rate=6e-3, batch=2))),
        ({"train": {"rate": 1.0}}, Options(train=Steps(rate=1.0, batch=384))),
        ({"train": {}}, Options()),
        ({"train": Steps()}, Options(train=Steps())),
        ({"later": {"rate": 1.0}}, Options(later=Steps(rate=1.0, batch=8))),
        ({"group": {"steps": {"rate": 1.0}}}, Options(group=Group(steps=Steps(rate=1.0, batch=4)))),
        ({"group": {"bounds": {"least": 1}}}, Options(group=Group(steps=Steps(batch=4), bounds=Bounds(least=1, most=10)))),
        ({"group": {"bounds": None}}, Options(group=Group(steps=Steps(batch=4), bounds=None))),
        ({"either": {"least": 1, "most": 2}}, Options(either=Bounds(least=1, most=2))),
    ],
)
def test_partly_given_group_keeps_the_defaults_of_its_field(options: dict[str, object], expected: Options) -> None:
    assert Options.model_validate(options) == expected


def test_unknown_option_of_a_group_is_refused() -> None:
    with pytest.raises(ValidationError, match="speed"):
        Options.model_validate({"train": {"speed": 1}})


def test_partly_given_training_options_keep_the_training_s_defaults() -> None:
    config = TRAININGS.get("xrag").validate({"data": ["worlds/multihop:train"], "base": "pocket", "pretrained": {"epochs": 2}})
    steps = config.model_dump()["pretrained"]
    assert (steps["epochs"], steps["learning_rate"], steps["batch_size"]) == (2, 0.006, 384)


def test_teacher_reads_five_documents_of_a_retriever() -> None:
    assert TeacherConfig.model_validate({"llm": {"local": "pocket"}, "pool": {"source": "retriever"}}).pool.depth == 5


def groups(options: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[tuple[type[BaseModel], str]]:
    """Yield the options whose default sets something itself, with the class that has them."""
    if options in seen:
        return
    seen.add(options)
    for name, field in options.model_fields.items():
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            if default.model_fields_set:
                yield options, name
            yield from groups(type(default), seen)


def test_every_class_with_such_defaults_keeps_them() -> None:
    seen: set[type[BaseModel]] = set()
    classes = [entry.config for registry in (METHODS, TRAININGS, JUDGES) for entry in registry]
    pairs = [item for options in classes if isinstance(options, type) for item in groups(options, seen)]
    assert len(pairs) > 10
    assert [(owner.__name__, name) for owner, name in pairs if not issubclass(owner, FrozenModel)] == []

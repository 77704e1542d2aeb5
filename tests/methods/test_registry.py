"""The parts of a registration that follow from the options of a method."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field

from benchmarks.core.errors import UserError
from methods.api import Services
from methods.models.weights import weights_hash
from methods.registry import METHODS, Component, MethodConfig, ModelMethodConfig, register
from methods.work import Checkpoint, Needs
from tests.support.errors import raises


class NamingConfig(ModelMethodConfig):
    model: str = Field("minilm", description="a model")
    revision: str | None = Field(None, description="of it")


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Remove the methods that a test registers."""
    list(METHODS)
    before = dict(METHODS._entries)
    yield
    METHODS._entries.clear()
    METHODS._entries.update(before)


def registered(name: str, **stated: Any) -> Component:
    register(name, kind="retriever", summary="", config=NamingConfig, work=lambda config, lengths: None, **stated)(object)  # type: ignore[arg-type,return-value]
    return Component.of(name)


def test_model_options_determine_extra_weights_and_needs() -> None:
    component = registered("naming_test")
    assert component.entry.extra == "models"
    assert component.describe()["weights"] == weights_hash("minilm")
    assert component.needs == Needs((Checkpoint("minilm"),))


def test_registration_arguments_override_those_derived_from_options() -> None:
    component = registered("stated_test", extra="llm", checkpoint_hash=lambda config: "own", needs=lambda config: Needs())
    assert component.entry.extra == "llm"
    assert component.describe()["weights"] == "own"
    assert component.needs == Needs()


def test_missing_folder_is_refused_before_loading(tmp_path: Path) -> None:
    registered("naming_test")
    with pytest.raises(UserError) as caught:
        Component.of("naming_test", {"model": str(tmp_path / "none")}).config.preflight()
    assert str(tmp_path / "none") in str(caught.value)


class Named:
    def __init__(self, config: NamingConfig, services: Services) -> None: ...


def test_options_class_is_the_factorys_annotation() -> None:
    register("annotated_test", kind="retriever", summary="")(Named)
    register("heir_test", kind="retriever", summary="")(type("Heir", (Named,), {"__module__": __name__}))
    register("plain_test", kind="retriever", summary="")(lambda config, services: None)
    classes = [METHODS.get(name).config for name in ("annotated_test", "heir_test", "plain_test")]
    assert classes == [NamingConfig, NamingConfig, MethodConfig]


def test_options_class_unknown_to_the_module_must_be_passed() -> None:
    class LocalConfig(MethodConfig): ...

    def made(config: LocalConfig, services: Services) -> None: ...

    with raises("unknown-options-class", where="made"):
        register("local_test", kind="retriever", summary="")(made)
    register("local_test", kind="retriever", summary="", config=LocalConfig)(made)
    assert METHODS.get("local_test").config is LocalConfig


OWN_FORMAT = {
    "pocket": "the shipped model knows the format of its training alone",
    "self_rag": "the text around its tags is what it was trained on",
    "clara_reader": "memory tokens",
    "clara_text": "memory tokens",
    "memory_reader": "memory tokens",
    "extractive": "no model",
    "retrieval_only": "no model",
}
"""Systems without an option for their prompt, and why."""


def test_every_system_with_an_llm_has_a_prompt_option() -> None:
    asking = {entry.id: entry for entry in METHODS if entry.kind == "reader" or "llm" in entry.config.model_fields}
    options = ("prompt", "prompts", "forward_prompt")
    without = {name for name, entry in asking.items() if not set(options) & set(entry.config.model_fields)}
    assert without <= set(OWN_FORMAT)

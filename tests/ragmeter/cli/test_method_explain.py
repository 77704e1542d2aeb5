"""`ragmeter method explain`: the option `checkpoint` selects a trained model for every method."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.registry import load
from methods.clara.explain import ClaraExplainConfig
from methods.registry import EXPLAINERS
from tests.support.errors import raises

Command = Callable[..., tuple[int, str, str]]
DATA = "worlds/multihop:test"


@pytest.mark.parametrize("name", ["ark", "clara", "gpr"])
def test_every_explainable_approach_accepts_a_checkpoint(name: str, call: Command, tmp_path: Path) -> None:
    assert {entry.id for entry in EXPLAINERS} == {"ark", "clara", "gpr"}, "a new one is to be named here"
    assert "checkpoint" in EXPLAINERS.get(name).config.model_fields
    code, out, err = call("method", "explain", name, "q", "--benchmark", DATA, "--set", f"checkpoint={tmp_path}")
    assert (code, out) == (2, "")
    assert "checkpoint of" in err.lower()
    assert str(tmp_path) in err.replace("\n", "")


def test_clara_explain_accepts_checkpoint_or_model_but_not_both(call: Command) -> None:
    by_one = ClaraExplainConfig.model_validate({"checkpoint": "clara-pocket", "k": 2})
    assert by_one == ClaraExplainConfig.model_validate({"model": "clara-pocket", "k": 2})
    assert by_one.model == by_one.checkpoint == "clara-pocket"
    with raises("checkpoint-and-model"):
        ClaraExplainConfig.model_validate({"model": "clara-pocket", "checkpoint": "clara-pocket"})
    both = ("--set", "checkpoint=clara-pocket", "--set", "model=clara-pocket")
    code, out, err = call("method", "explain", "clara", "q", "--benchmark", DATA, *both)
    assert (code, out) == (2, "")
    assert "two names of the same option" in err
    assert "give one of them: --set checkpoint=FOLDER" in err


@pytest.mark.parametrize(
    ("options", "response"),
    [
        ((), "clara needs checkpoint"),
        (("--set", "chekpoint=x"), "did you mean 'checkpoint'?"),
        (("--set", "checkpoint=null"), "option checkpoint of clara: a text is wanted"),
        (("--set", "checkpoint=nowhere"), "clara, option checkpoint"),
    ],
)
def test_explain_errors_name_the_option_checkpoint(options: tuple[str, ...], response: str, call: Command) -> None:
    code, out, err = call("method", "explain", "clara", "q", "--benchmark", DATA, *options)
    assert (code, out) == (2, "")
    assert response in err


@pytest.mark.slow
def test_shipped_adapters_explain_a_question(call: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGMETER_STORE", str(tmp_path / "store"))
    query = load(DATA).questions[0].id
    options = ("--set", "checkpoint=clara-pocket", "--set", "max_new_tokens=2", "--set", "shown=2", "--set", "top=5")
    code, out, err = call("method", "explain", "clara", query, "--benchmark", DATA, "--device", "cpu", *options, "--json")
    assert code == 0, err
    assert '"title": "Documents by their memory"' in out

"""Local models with a thinking switch: readers switch it off, users can switch it on, and stop strings end a reply."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.schema import Passage, Query
from methods.api import FAILED, Answer, Context, Services
from methods.flow import each
from methods.models.llm import open_llm
from methods.models.local_llm import LocalConfig
from methods.registry import Component
from tests.support.errors import raises

ASKED = [{"role": "user", "content": "Where?"}]
THOUGHT = "<think> hm1 hm2 hm3 </think>"


@pytest.fixture(scope="module")
def model(tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_models.thinker(tmp_path_factory.mktemp("thinker")))


def answer(kind: str, model: str, longest: int = 30, **options: Any) -> Answer:
    """Return what a reader answers: `causal`, or `chat` with a local model."""
    own = {"model": model, "max_new_tokens": longest, **options}
    config = own if kind == "causal" else {"llm": {"local": model, "max_tokens": longest, **options}}
    reader = Component.of(kind, config).build(Services(device="cpu"))
    (result,) = each(reader, "read", [Query("q", "Where?")], [Context("q", (Passage("p", "", "Works"),))])
    return result


@pytest.mark.parametrize("kind", ["causal", "chat"])
def test_reader_switches_thinking_off_by_default(kind: str, model: str) -> None:
    plain = answer(kind, model)
    assert (plain.text, plain.raw, plain.usage.completion_tokens) == ("Lyon for sure", "", 4)
    thinks = answer(kind, model, template={"enable_thinking": True})
    assert (thinks.text, thinks.raw) == ("Lyon for sure", f"{THOUGHT} Lyon for sure")
    cut = answer(kind, model, longest=3, template={"enable_thinking": True})
    assert (cut.text, cut.notes[FAILED]) == ("", "still thinking when max_tokens were used up")


def test_components_with_short_replies_switch_thinking_off_unless_their_format_has_thoughts(model: str) -> None:
    reply = open_llm(LocalConfig(local=model, max_tokens=30), Services(device="cpu"), role="r").complete([ASKED])[0]
    assert (reply.text, reply.thought) == ("Lyon for sure", "")
    for program, options, thinks in (("self_ask", {}, False), ("search_r1", {"prompt": "ours"}, True)):
        built = Component.of(program, {"llm": {"local": model}, "retriever": "bm25", **options}).build(Services(device="cpu"))
        assert built.model._backend.variables == ({} if thinks else {"enable_thinking": False})


@pytest.mark.parametrize("kind", ["causal", "chat"])
def test_stop_text_ends_a_reply_before_its_tokens_are_written(kind: str, model: str) -> None:
    stopped = answer(kind, model, stop=["for", "never"])
    assert (stopped.text, stopped.usage.completion_tokens) == ("Lyon", 2)


def test_unknown_template_variable_is_named(tiny_models: ModuleType, model: str, tmp_path: Path) -> None:
    with raises("unknown-template-variable"):
        answer("chat", model, template={"enable_thought": True})
    plain = "{% for m in messages %}{{ m.content }} {% endfor %}assistant"
    other = str(tiny_models.thinker(tmp_path, plain))
    assert answer("causal", other).raw == f"{THOUGHT} Lyon for sure"
    with raises("unknown-template-variable"):
        answer("causal", other, template={"enable_thinking": False})


def test_thought_opened_by_the_template_is_detected(tiny_models: ModuleType, tmp_path: Path) -> None:
    begun = str(tiny_models.thinker(tmp_path, tiny_models.THINKING_TEMPLATE.replace("</think>", "").replace(" is false", " is true")))
    for longest, expected in ((30, "Lyon for sure"), (2, "")):
        cut = answer("causal", begun, longest=longest, template={"enable_thinking": True})
        assert cut.text == expected
    assert cut.notes[FAILED] == "still thinking when max_tokens were used up"


def test_template_variables_change_the_cache_key_only_if_the_template_uses_them(model: str, tmp_path: Path) -> None:
    def reply(**options: Any) -> Any:
        thinks = options.pop("thinks", True)
        opened = open_llm(
            LocalConfig(local=model, max_tokens=30, **options), Services(cache=tmp_path / "c", device="cpu"), role="r", thinks=thinks
        )
        return opened.complete([ASKED])[0]

    default, off, on = reply(), reply(thinks=False), reply(template={"enable_thinking": True})
    assert [bool(item.thought) for item in (default, off, on)] == [True, False, True]
    assert len({default.key, off.key, on.key}) == 3
    assert "template" not in LocalConfig(local=model).model_dump()
    assert LocalConfig(local=model, template={"a": 1}).model_dump()["template"] == {"a": 1}

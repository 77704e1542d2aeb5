"""Python functions as methods: allowed return values, arguments, and the code as identity."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from benchmarks.core.plugins import load_file
from benchmarks.schema import Query, Turn
from methods.api import CAUSE, CODE, FAILED, Prediction, Services, Usage
from methods.apps.function import CallingConfig, Function
from methods.pipeline import Whole
from methods.record import Shown, Statement
from methods.registry import METHODS, Component
from ragmeter import experiment
from tests.support.errors import raises


@pytest.fixture(autouse=True)
def _modules() -> Iterator[None]:
    """Forget the modules that a test loads."""
    known, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - known:
        if name.startswith("acme"):
            del sys.modules[name]
    sys.path[:] = path
    METHODS._entries.pop("acme_own", None)


def called(answer: Callable[..., Any], query: Query | None = None, **config: Any) -> Prediction:
    (prediction,) = Whole(Function(answer, CallingConfig(**config))).answer([query or Query("q", "Where?")])
    return prediction


async def slowly(question: str) -> str:
    await asyncio.sleep(5)
    return question


async def waiting(question: str) -> tuple[str, list[str]]:
    await asyncio.sleep(0)
    return "Lyon", ["a"]


DOCUMENT = SimpleNamespace(page_content="a", metadata={"source": "u"})
KEYED = SimpleNamespace(page_content="a", id=None, metadata={"doc_id": "p7", "link": "u"})
NODE = SimpleNamespace(node=SimpleNamespace(text="a", metadata={"file_path": "u"}, node_id="n"), score=0.5)
RETURNED = {
    "text": ("Lyon", None),
    "pair": (("Lyon", ["a"]), (Shown("a"),)),
    "documents": (("Lyon", [DOCUMENT, NODE]), (Shown("a", url="u"), Shown("a", "n", "u", 0.5))),
    "ids in metadata": (("Lyon", [KEYED]), (Shown("a", "p7", "u"),)),
    "thought": ("<think>Paris?</think>\n\nLyon", None),
    "object": ({"answer": "Lyon", "contexts": [{"text": "a", "score": 1}]}, (Shown("a", score=1.0),)),
    "no contexts": (("Lyon", []), ()),
}


@pytest.mark.parametrize("name", RETURNED)
def test_answers_and_contexts_in_common_forms(name: str) -> None:
    returned, contexts = RETURNED[name]
    prediction = called(lambda question: returned)
    assert (prediction.answer, prediction.contexts) == ("Lyon", contexts)


def test_functions_may_be_async_and_return_the_whole_record() -> None:
    assert called(waiting).contexts == (Shown("a"),)
    full = {
        "answer": "Lyon",
        "statements": [{"text": "Lyon", "cites": [0]}],
        "confidence": 0.5,
        "usage": {"prompt_tokens": 3, "cost_usd": 0.1},
    }
    prediction = called(lambda question: full)
    assert (prediction.statements, prediction.confidence) == ((Statement("Lyon", (0,)),), 0.5)
    assert (prediction.usage.prompt_tokens, prediction.usage.cost_usd) == (3, 0.1)
    assert Usage() != prediction.usage


def test_functions_with_parameters_for_turns_and_id_receive_them() -> None:
    query = Query("q", "And?", turns=(Turn("user", "Hi"),))
    assert called(lambda question, turns, id: f"{id} {turns[0]['content']}", query).answer == "q Hi"
    with raises("no-place-for-turns"):
        called(lambda question: "Lyon", query)


@pytest.mark.parametrize(
    "returned",
    [
        *(None, 3, ["a"], ("Lyon", "context"), ("Lyon", [3]), {"text": "Lyon"}, {"answer": "a", "confidence": "x"}),
        *({"answer": "a", "usage": usage} for usage in ({"tokens": 5}, {"prompt_tokens": -5}, {"model_calls": "1"}, {"cost_usd": -1.0})),
        {"answer": "a", "usage": Usage(cost_usd=float("nan"))},
    ],
)
def test_wrong_return_type_is_reported_as_an_error_of_the_users_code(returned: Any) -> None:
    prediction = called(lambda question: returned)
    assert prediction.notes[FAILED].startswith("TypeError: the function returned")
    assert prediction.notes[CAUSE] == CODE


def test_exceptions_empty_answers_and_timeouts_fail_the_question() -> None:
    def broken(question: str) -> str:
        raise ValueError("no index")

    assert "no index" in called(broken).notes[FAILED]
    assert "StopIteration" in called(lambda question: next(iter(())), timeout_s=30).notes[FAILED]
    assert "empty answer" in called(lambda question: " ").notes[FAILED]
    assert "empty answer" in called(lambda question: "\u200b").notes[FAILED]
    assert "retriever" not in called(lambda question: ("", [])).notes[FAILED]
    assert "retriever" in called(lambda question: ("", ["a passage"])).notes[FAILED]
    assert "thought" in called(lambda question: "<think>Is it Paris").notes[FAILED]
    assert "timed out" in called(slowly, timeout_s=0.02).notes[FAILED]


def test_text_of_an_error_is_no_answer_of_a_function() -> None:
    prediction = called(lambda question: "Error: Connection error.")
    assert (prediction.answer, FAILED in prediction.notes) == ("", True)


def test_blocking_functions_run_in_parallel() -> None:
    others = threading.Barrier(8)

    def meeting(question: str) -> str:
        others.wait(60)
        return question

    queries = [Query(f"q{number}", "Where?") for number in range(8)]
    predictions = list(Whole(Function(meeting, CallingConfig(concurrency=8))).answer(queries))
    assert [prediction.answer for prediction in predictions] == ["Where?"] * 8


EXPERIMENT = """name: mine
plugins: [acme_app.py]
benchmarks: [{id: worlds/multihop, limit: 2}]
methods: [{id: function, config: {call: "acme_app:answer"}}, {id: acme_own}]
"""
MODULE = """from methods.apps.function import register_function
from acme_helper import WORD

def answer(question):
    return WORD

@register_function("acme_own", summary="says a word")
async def own(question):
    return WORD, []
"""


def identities(folder: Path, word: str) -> list[str]:
    (folder / "acme_app.py").write_text(MODULE)
    (folder / "acme_helper.py").write_text(f"WORD = {word!r}\n")
    (folder / "e.yaml").write_text(EXPERIMENT)
    plans = experiment.load(str(folder / "e.yaml")).methods
    built = [plan.composition.build(Services()) for plan in plans]
    assert [next(iter(method.answer([Query("q", "?")]))).answer for method in built] == [word, word]
    return [plan.composition.method.fingerprint for plan in plans]


def test_plugin_files_of_an_experiment_are_loaded_and_their_code_enters_the_identity(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "same", "other")]
    seen = []
    for folder, word in zip(folders, ("Lyon", "Lyon", "Paris"), strict=True):
        folder.mkdir()
        seen.append(identities(folder, word))
        for name in ("acme_app", "acme_helper"):
            del sys.modules[name]
        sys.path.remove(str(folder))
    assert seen[0] == seen[1]
    assert not set(seen[0]) & set(seen[2])


@pytest.mark.parametrize(
    ("name", "text", "code", "place"),
    [
        ("acme_missing.py", None, "missing-file", "e.yaml:2"),
        ("json.py", "x = 1\n", "plugin-name-taken", "e.yaml:2"),
        ("acme_broken.py", "x = 1\nimport no_such_package_here\n", "plugin-cannot-be-loaded", "acme_broken.py:2"),
        ("acme_syntax.py", "x = 1\ndef (:\n", "plugin-cannot-be-loaded", "acme_syntax.py:2"),
        ("acme_exit.py", "import sys\nsys.exit(3)\n", "plugin-cannot-be-loaded", "acme_exit.py:2"),
    ],
)
def test_plugin_that_cannot_be_loaded_names_cause_and_line(tmp_path: Path, name: str, text: str | None, code: str, place: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    (tmp_path / "e.yaml").write_text(EXPERIMENT.replace("acme_app.py", name))
    with raises(code) as caught:
        experiment.load(str(tmp_path / "e.yaml"))
    assert place in str(caught.value.where)


@pytest.mark.parametrize("call", ["acme_app", "acme_none:answer", "acme_app:nothing", "acme_app:WORD", ":answer", "no/such.py:answer"])
def test_call_without_an_existing_function_is_refused(tmp_path: Path, call: str) -> None:
    (tmp_path / "acme_app.py").write_text("WORD = 'Lyon'\n")
    load_file(tmp_path / "acme_app.py")
    with pytest.raises(ValidationError):
        Component.of("function", {"call": call})


def test_call_may_name_a_file_without_plugins(tmp_path: Path) -> None:
    (tmp_path / "acme_alone.py").write_text("def answer(question):\n    return 'Lyon'\n")
    component = Component.of("function", {"call": f"{tmp_path}/acme_alone.py:answer"})
    assert next(iter(component.codes.values())).id

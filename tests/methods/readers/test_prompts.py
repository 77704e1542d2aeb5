"""A reader with a benchmark's instructions: its prompt and its answer length, the same for every method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry as datasets
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import TRUNCATED, Context, Reading, Services
from methods.flow import each
from methods.pipeline import Composition, assemble
from methods.registry import Component
from tests.support.errors import raises
from tests.support.server import ChatRequest, OpenAIServer, Written

READING = Reading("Passages:\n$passages\n\nSay it: $question", 7, "middle")
QUERY = Query("q", "Who came?")
PASSAGES = (Passage("a", "Ann", "Ann came  early."), Passage("b", "", "Bob did not."))


class Server:
    """Server that records requests and replies with two lines."""

    def __init__(self) -> None:
        self.requests: list[ChatRequest] = []

    def __call__(self, request: ChatRequest) -> Written:
        self.requests.append(request)
        return Written("Answer: Ann.\nAnd a second line.", 1, 1)


@pytest.fixture
def server() -> Iterator[tuple[Server, str]]:
    kept = Server()
    with OpenAIServer("m", kept, any_model=True).running() as url:
        yield kept, url


def chat(url: str, brought: Reading | None = READING, **config: Any) -> Any:
    options = {"llm": {"model": "m", "base_url": url, "key_variable": None}, "reading": "benchmark", **config}
    return Component.of("chat", options).build(Services(reading=brought))


def test_benchmark_prompt_is_sent_with_verbatim_passages(server: tuple[Server, str]) -> None:
    kept, url = server
    (answer,) = each(chat(url), "read", [QUERY], [Context("q", PASSAGES)])
    (request,) = kept.requests
    assert request.prompt == "Passages:\nAnn\nAnn came  early.\n\nBob did not.\n\nSay it: Who came?"
    assert len(request.messages) == 1
    assert request.max_tokens == 7
    assert answer.text == "Answer: Ann.\nAnd a second line."


def test_benchmark_prompt_mode_uses_only_the_benchmarks_prompt(server: tuple[Server, str]) -> None:
    kept, url = server
    each(
        chat(url, reading="benchmark_prompt", llm={"model": "m", "base_url": url, "key_variable": None, "max_tokens": 512}),
        "read",
        [QUERY],
        [Context("q", PASSAGES)],
    )
    assert kept.requests[0].max_tokens == 512
    assert kept.requests[0].prompt.endswith("Say it: Who came?")


def test_own_mode_ignores_benchmark_instructions(server: tuple[Server, str]) -> None:
    kept, url = server
    each(chat(url, reading="own"), "read", [QUERY], [Context("q", PASSAGES)])
    assert "Say it" not in kept.requests[0].prompt
    assert kept.requests[0].max_tokens == 64


def test_benchmark_mode_without_instructions_is_refused(server: tuple[Server, str]) -> None:
    with raises("missing-benchmark-instructions") as caught:
        chat(server[1], None)
    assert caught.value.try_this == "reading: own"


def test_too_long_context_loses_its_middle_for_an_endpoint(server: tuple[Server, str]) -> None:
    kept, url = server
    long = Passage("l", "", "".join(f"{n:03d}." for n in range(200)))  # a token each, by characters / 4
    (answer,) = each(chat(url, max_prompt_tokens=100), "read", [QUERY], [Context("q", (long,))])
    prompt = kept.requests[0].prompt
    assert len(prompt) / 4 + 4 <= 100
    assert answer.notes[TRUNCATED]["of"] == 200
    assert 80 <= answer.notes[TRUNCATED]["kept"] < 100
    assert "\n000.001." in prompt
    assert "198.199.\n" in prompt
    assert prompt.endswith("Say it: Who came?")
    short = each(chat(url, max_prompt_tokens=1000), "read", [QUERY], [Context("q", (long,))])[0]
    assert TRUNCATED not in short.notes


@pytest.mark.slow
def test_prompts_depend_only_on_passages_and_not_on_the_retriever(server: tuple[Server, str]) -> None:
    kept, url = server
    corpus = Corpus.of([Passage("x", "Xa", "Ann came to Xa."), Passage("y", "Ya", "Nobody came.")])
    query = Query("q", "Who came to Xa?", candidates=("x",))
    options = {"llm": {"model": "m", "base_url": url, "key_variable": None}, "reading": "benchmark"}
    for name in ("bm25", "dense", "random", "full_context"):
        reader = Component.of("chat", options)
        method = assemble(Component.of(name), Services(device="cpu", reading=READING), reader=reader)
        method.index(corpus)
        list(method.answer([query]))
    prompts = {str(request.messages) for request in kept.requests}
    assert len(kept.requests) == 4
    assert len(prompts) == 1


def test_local_model_uses_the_benchmark_prompt_of_an_endpoint(tiny_llama: str) -> None:
    options = {"model": tiny_llama, "reading": "benchmark", "chat_template": False}
    reader = Component.of("causal", options).build(Services(device="cpu", reading=READING))
    prompt, _ = reader._fitted(QUERY.text, PASSAGES)
    assert prompt == "Passages:\nAnn\nAnn came  early.\n\nBob did not.\n\nSay it: Who came?"
    (answer,) = each(reader, "read", [QUERY], [Context("q", PASSAGES)])
    assert answer.usage.completion_tokens <= 7


def test_samples_depend_only_on_seed_and_prompt(tiny_llama: str) -> None:
    def read(seed: int, count: int) -> str:
        options = {"model": tiny_llama, "temperature": 2.0, "top_p": 0.9, "max_new_tokens": 12}
        reader = Component.of("causal", options).build(Services(seed=seed, device="cpu"))
        queries = [Query(str(n), f"Who came {n}?") for n in range(count)]
        return str(each(reader, "read", queries, [Context(query.id, PASSAGES) for query in queries])[0].text)

    assert read(1, 1) == read(1, 3)
    assert read(1, 1) != read(2, 1)


def test_method_description_includes_benchmark_instructions() -> None:
    def described(brought: Reading | None, **config: Any) -> dict[str, Any]:
        reader = Component.of("chat", {"llm": {"model": "m"}, **config})
        return Composition(Component.of("bm25"), reader=reader).describe(brought)

    assert "reading" not in described(READING)
    followed = described(READING, reading="benchmark")
    assert followed["reading"] == {"prompt": READING.prompt, "max_new_tokens": 7, "truncation": "middle"}
    assert described(replace(READING, chat=False), reading="benchmark") != followed
    assert followed != described(Reading("$passages $question", 7, "middle"), reading="benchmark")


def test_completion_instructions_skip_the_chat_template_and_keep_indentation(tiny_llama: str) -> None:
    options = {"model": tiny_llama, "reading": "benchmark"}
    prompts, answers = [], []
    for is_chat in (False, True):
        reader = Component.of("causal", options).build(Services(device="cpu", reading=replace(READING, chat=is_chat)))
        prompts.append(reader._fitted(QUERY.text, PASSAGES)[0])
        answers.append(reader._instructions.answer("    return x\n", (), "").text)
    assert prompts[0] == "Passages:\nAnn\nAnn came  early.\n\nBob did not.\n\nSay it: Who came?" != prompts[1]
    assert answers == ["    return x\n", "return x"]


def test_ultradomain_reading_equals_arks(data_folder: Path) -> None:
    brought = datasets.load("ultradomain/mix", {"path": str(data_folder / "ultradomain" / "mix.jsonl")}).extra
    qasper = datasets.load("longbench/qasper:test", {"path": str(data_folder / "longbench" / "qasper.jsonl")}).extra
    assert brought["reading"] == {**qasper["reading"], "max_new_tokens": 512}

"""`ragmeter method serve`: a real local model behind the protocol answers as it does at home, alone or in company."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core.errors import UserError
from methods.models.causal import CausalConfig, CausalModel
from methods.models.chat import ChatModel
from methods.models.endpoint import ChatConfig
from methods.models.server import LocalServer, OpenAIServer, Written

STARTS = ["Once upon a time", "Lily went to the park", "The big dog", "Tom and his mom", "One day, a little cat"]


@pytest.fixture(scope="module")
def stories(data_folder: Path) -> str:
    folder = data_folder / "models" / "stories260K"
    if not folder.is_dir():
        pytest.skip(f"no stories260K in {data_folder}")
    return str(folder)


@pytest.fixture(scope="module")
def local(stories: str) -> Iterator[LocalServer]:
    local = LocalServer(CausalConfig(model=stories, max_new_tokens=24, batch_size=4), device="cpu")
    yield local
    local.close()


@pytest.fixture(scope="module")
def url(local: LocalServer) -> Iterator[str]:
    with local.server().running() as url:
        yield url


def chat(url: str, **options: Any) -> ChatModel:
    options = {"model": "stories260K", "base_url": url, "key_variable": None, "max_tokens": 24, **options}
    return ChatModel(ChatConfig(**options))


def asked(*texts: str) -> list[list[dict[str, str]]]:
    return [[{"role": "user", "content": text}] for text in texts]


@pytest.mark.slow
def test_the_endpoint_says_what_the_model_says(url: str, stories: str) -> None:
    model = CausalModel(CausalConfig(model=stories, max_new_tokens=24), "cpu")
    expected = model.generate([model.render("", text) for text in STARTS])
    together = chat(url).complete(asked(*STARTS))
    alone = [chat(url).complete(asked(text))[0] for text in STARTS]
    assert all(item.text for item in expected)
    for replies in (together, alone):
        assert [(r.text, r.prompt_tokens, r.completion_tokens, r.failed) for r in replies] == [
            (e.text.strip(), e.prompt_tokens, e.completion_tokens, None) for e in expected
        ]
    assert {reply.model for reply in together} == {"stories260K"}
    assert not together[0].scripted


@pytest.mark.slow
def test_a_shorter_reply_is_the_beginning_of_a_longer_one(url: str) -> None:
    short = chat(url, max_tokens=5).complete(asked(STARTS[0]))[0]
    long = chat(url).complete(asked(STARTS[0]))[0]
    assert short.completion_tokens == 5
    assert long.text.startswith(short.text)
    assert long.text != short.text


@pytest.mark.slow
def test_the_plain_client_can_continue_a_prompt(url: str, stories: str) -> None:
    import openai

    model = CausalModel(CausalConfig(model=stories, max_new_tokens=12), "cpu")
    (expected,) = model.generate([STARTS[1]])
    with openai.OpenAI(api_key="none", base_url=url, max_retries=0) as client:
        done = client.completions.create(model="stories260K", prompt=STARTS[1], max_tokens=12, temperature=0)
        assert done.choices[0].text == expected.text
        assert (done.usage.prompt_tokens, done.choices[0].finish_reason) == (expected.prompt_tokens, "length")
        word = expected.text.split()[2]
        stopped = client.completions.create(model="stories260K", prompt=STARTS[1], max_tokens=12, temperature=0, stop=[word])
        assert stopped.choices[0].text == expected.text[: expected.text.index(word)]
        assert stopped.choices[0].finish_reason == "stop"


@pytest.mark.slow
def test_sampling_follows_its_seed_whatever_the_company(url: str) -> None:
    import openai

    with openai.OpenAI(api_key="none", base_url=url, max_retries=0) as client:

        def draw(seed: int) -> str:
            done = client.completions.create(model="stories260K", prompt=STARTS[0], max_tokens=12, temperature=1.0, seed=seed)
            return done.choices[0].text

        alone = [draw(seed) for seed in range(4)]
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(draw, range(4))) == alone
        assert len(set(alone)) > 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"parameters": {"logit_bias": {"1": 2}}}, "does not know logit_bias"),
        ({"parameters": {"tools": [1]}}, "does not know tools"),
        ({"parameters": {"top_p": 7}, "temperature": 1.0}, "top_p"),
        ({"temperature": 3.0}, "between 0 and 2"),
    ],
)
def test_what_it_cannot_do_it_refuses(url: str, options: dict[str, Any], reason: str) -> None:
    (reply,) = chat(url, **options).complete(asked("Once"))
    assert (reply.text, reply.calls) == ("", 1)
    assert reason in reply.failed


def test_a_prompt_that_is_too_long_fails_its_question_alone(url: str) -> None:
    good, bad = chat(url).complete(asked(STARTS[0], "word " * 2000))
    assert good.failed is None
    assert "maximum context length" in bad.failed
    assert bad.calls == 1


def test_another_model_is_unknown_and_the_right_one_is_named(url: str) -> None:
    with pytest.raises(UserError, match="stories260K"):
        chat(url, model="stories260k").preflight()


def test_an_address_that_is_taken_is_named(local: LocalServer) -> None:
    with OpenAIServer("m", lambda request: Written("x")) as server, pytest.raises(UserError, match="cannot listen on"):
        local.server(port=server.server_address[1])


def _listen_to_sigint() -> None:
    """A job that a shell put into the background ignores SIGINT, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
def test_the_command_serves_until_interrupted(stories: str) -> None:
    command = [sys.executable, "-m", "ragmeter.cli", "method", "serve", stories, "--port", "0", "--json", "--device", "cpu"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}, preexec_fn=_listen_to_sigint
    )
    assert process.stdout is not None
    try:
        lines = ""
        while not lines.endswith("}\n"):
            line = process.stdout.readline()
            assert line, "it ended before it served"
            lines += line
        served = json.loads(lines)
        assert served["model"] == "stories260K"
        (reply,) = chat(served["base_url"]).complete(asked(STARTS[0]))
        assert reply.text
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
        process.stdout.close()
    assert process.returncode == 0

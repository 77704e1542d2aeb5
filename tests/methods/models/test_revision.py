"""Revisions of deployments: texts, probes on real servers and commands, and `created` in a list of models."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from methods.models.chat import ChatModel
from methods.models.chat_config import ChatConfig
from methods.models.deployments import PAUSE_S, Deployment, identify
from methods.models.reply_cache import Call, ResponseCache
from methods.models.revision import Probe, Revision, ask, found
from tests.support import deployment
from tests.support.errors import raises

pytest.importorskip("openai")


class Options(BaseModel):
    revision: Revision = None


@pytest.fixture
def server() -> Iterator[deployment.Deployment]:
    server = deployment.Deployment()
    with server.running():
        yield server


def root(server: deployment.Deployment) -> str:
    return server.url.removesuffix("/v1")


def test_revision_expands_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APP_SHA", "3f2c1a7\n")
    assert Options(revision=" app-${APP_SHA} ").revision == "app-3f2c1a7"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("a\nb", "line break"),
        ("a\r", "line break"),
        ("", "empty"),
        ("   ", "empty"),
        ("x" * 201, "201"),
        ("a\tb", "U\\+0009"),
        ("a\u200bb", "U\\+200B"),
        ("${NO_SUCH_VARIABLE}", "NO_SUCH_VARIABLE is not set"),
        ("$GITHUB_SHA", "not filled in"),
        ("${{ github.sha }}", "not filled in"),
        ("unknown", "identifies no deployment"),
        (20261127, "quotes"),
        (1.10, "quotes"),
        (["a"], "a text, or a probe"),
        ({"url": "http://x"}, "json, header and command"),
        ({"url": "http://x", "json": "a", "header": "b"}, "json and header"),
        ({"url": "http://x", "jason": "a"}, "jason"),
        ({"url": "ftp://x", "json": "a"}, "http://"),
        ({"url": "http://u:p@x", "json": "a"}, "password"),
        ({"url": "http://x?api_key=a", "json": "a"}, "secret"),
        ({"url": "http://x", "json": "a..b"}, "not a JSON path"),
        ({"url": "http://x", "json": "a", "headers": {"Authorization": "Bearer abc"}}, "environment variable"),
        ({"command": "true", "url": "http://x"}, "no url"),
        ({"command": "true", "timeout_s": 0}, "more than 0"),
    ],
)
def test_invalid_revision_is_refused(value: Any, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem) as caught:
        Options(revision=value)
    assert len(caught.value.errors()) == 1


@pytest.mark.parametrize(
    ("path", "value"), [("build.commit", "3f2c"), ("data[1].created", "17"), ('["a.b"]', "1.5"), ("$.data[0]['id']", "m"), ("n[1][0]", "x")]
)
def test_json_path_finds_texts_and_numbers(path: str, value: str) -> None:
    document = {"build": {"commit": "3f2c"}, "data": [{"id": "m"}, {"created": 17}], "a.b": 1.5, "n": [[], ["x"]]}
    assert found(document, path) == value


@pytest.mark.parametrize("path", ["build.sha", "build.commit.x", "data[2]", "data.id", "build", "flag", "nothing", "[0]"])
def test_json_path_without_a_match_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="finds n"):
        found({"build": {"commit": "a"}, "data": [{}, {}], "flag": True, "nothing": None}, path)


def test_each_kind_of_probe_gives_a_revision(server: deployment.Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    server.documents["/version"] = (200, {"build": {"commit": "3f2c"}}, {"x-revision": "r7"})
    url = f"{root(server)}/version"
    assert ask(Probe(url=url, path="build.commit")) == "3f2c"
    assert ask(Probe(url=url, header="X-Revision")) == "r7"
    assert ask(Probe(command="echo one; echo two")) == "one"
    monkeypatch.setenv("SHA", "from-shell")
    assert ask(Probe(command=("sh", "-c", "echo $SHA"))) == "from-shell"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((404, {}, {}), "unreadable-revision"),
        ((503, {}, {}), "unreadable-revision"),
        ((302, {}, {"location": "http://login/"}), "unreadable-revision"),
        ((200, b"<html>", {"content-type": "text/html"}), "unreadable-revision"),
        ((200, {"build": {}}, {}), "unreadable-revision"),
        ((200, {"build": {"commit": "a\nb"}}, {}), "unreadable-revision"),
        ((200, {"build": {"commit": "unknown"}}, {}), "unreadable-revision"),
        ((200, {"build": {"commit": "${git.commit}"}}, {}), "unreadable-revision"),
    ],
)
def test_probe_without_a_revision_is_an_error(server: deployment.Deployment, answer: Any, problem: str) -> None:
    server.documents["/version"] = answer
    with raises(problem) as caught:
        ask(Probe(url=f"{root(server)}/version", path="build.commit"))
    assert f"{root(server)}/version" in caught.value.what


def test_probe_has_a_time_limit(server: deployment.Deployment) -> None:
    server.documents["/version"] = (200, {"a": "b"}, {})
    server.delay = 20
    began = time.monotonic()
    for probe in (Probe(url=f"{root(server)}/version", path="a", timeout_s=0.05), Probe(command="sleep 20 & sleep 20", timeout_s=0.05)):
        with raises("unreadable-revision"):
            ask(probe)
    assert time.monotonic() - began < 15


@pytest.mark.parametrize(
    ("command", "problem"),
    [("echo why >&2; exit 3", "unreadable-revision"), ("true", "unreadable-revision"), (("no-such",), "unreadable-revision")],
)
def test_failing_probe_command_is_an_error(command: Any, problem: str) -> None:
    with raises(problem):
        ask(Probe(command=command))


def test_unreachable_probe_is_an_error() -> None:
    with raises("unreadable-revision"):
        ask(Probe(url="http://127.0.0.1:9/version", path="a"))


def test_probe_headers_come_from_variables_and_are_never_dumped(server: deployment.Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    server.documents["/version"] = (200, {"a": "b"}, {})
    probe = Probe(url=f"{root(server)}/version", path="a", headers={"Authorization": "Bearer ${APP_TOKEN}"})
    with raises("unreadable-revision"):
        ask(probe)
    monkeypatch.setenv("APP_TOKEN", "very-secret")
    assert ask(probe) == "b"
    assert probe.model_dump(mode="json") == {"url": probe.url, "json": "a"}


def test_header_probe_of_a_model_requests_its_endpoint(server: deployment.Deployment) -> None:
    config = ChatConfig.model_validate({"model": "m", "base_url": server.url, "key_variable": None, "revision": {"header": "x-build"}})
    server.documents["/v1"] = (200, {}, {"x-build": "b1"})
    assert config.resolved_revision() == "b1"
    server.documents["/v1/models"] = (200, {"data": []}, {"x-build": "b2"})
    assert config.resolved_revision() == "b2"
    server.documents.clear()
    with raises("unreadable-revision"):
        config.resolved_revision()


def test_options_without_a_revision_are_dumped_without_the_field() -> None:
    assert "revision" not in ChatConfig(model="m").model_dump(mode="json")
    assert ChatConfig(model="m", revision="r1").model_dump(mode="json")["revision"] == "r1"


def test_changed_revision_never_reuses_a_cached_reply(server: deployment.Deployment, tmp_path: Path) -> None:
    def reply(revision: str | None, **options: Any) -> Any:
        config = ChatConfig(model="m", base_url=server.url, key_variable=None, revision=revision)
        return ChatModel(config, cache=tmp_path / "c.sqlite", **options).complete([[{"role": "user", "content": "Who?"}]])[0]

    began = time.time()
    first = reply("r1")
    assert (first.cached, first.created) == (False, None)
    server.answer_text = "Bob"
    again = reply("r1")
    assert (again.text, again.cached, again.key) == ("Ann", True, first.key)
    assert began <= again.created <= time.time()
    assert [(item.text, item.cached) for item in (reply("r2"), reply(None), reply("r2"))] == [("Bob", False), ("Bob", False), ("Bob", True)]
    server.answer_text = "Cat"
    fresh = reply("r1", replies="aaaaaaaa")
    assert (fresh.text, fresh.cached) == ("Cat", False)
    newest = reply("r1")
    assert (newest.text, newest.key) == ("Cat", fresh.key)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ResponseCache]:
    cache = ResponseCache(tmp_path / "cache.sqlite")
    yield cache
    cache.close()


class Asked:
    """Repeated runs with one endpoint; `waits` records how long each waited."""

    def __init__(self, server: deployment.Deployment, cache: ResponseCache) -> None:
        self.cache, self.waits = cache, list[float]()
        self.config = ChatConfig(model="m", base_url=server.url, key_variable=None)

    def __call__(self) -> Deployment:
        return identify(self.config, self.cache, self.waits.append)


def test_constant_created_field_is_the_revision_and_is_remembered(server: deployment.Deployment, cache: ResponseCache) -> None:
    run = Asked(server, cache)
    server.created = lambda: 1_700_000_000
    assert run() == Deployment("created:1700000000", "created")
    assert run.waits == [PAUSE_S]
    assert run() == Deployment("created:1700000000", "created")
    assert run.waits == [PAUSE_S], "one quick request is enough once it is known"
    server.created = lambda: 1_700_000_500
    assert run() == Deployment("created:1700000500", "created", before="created:1700000000")
    server.created = lambda: 1_700_000_000
    assert run() == Deployment("created:1700000000", "created", before="created:1700000500")
    assert server.asked == ["/v1/models"] * 6


def test_created_field_that_changes_per_request_is_ignored_without_waiting_again(
    server: deployment.Deployment, cache: ResponseCache
) -> None:
    run, ticks = Asked(server, cache), itertools.count(int(time.time()))
    server.created = lambda: next(ticks)
    assert [run(), run()] == [Deployment("", "per request")] * 2
    assert run.waits == [PAUSE_S]
    server.created = lambda: 1_700_000_000
    assert run() == Deployment("created:1700000000", "created"), "the server was replaced by one that identifies itself"


@pytest.mark.parametrize("created", [0, 1677610602, None, "today", True])
def test_placeholder_created_values_do_not_identify_a_deployment(server: deployment.Deployment, cache: ResponseCache, created: Any) -> None:
    run = Asked(server, cache)
    server.created = lambda: created
    assert run() == Deployment("", "nothing")
    assert run.waits == []


def test_deployment_of_an_endpoint_without_model_list_is_unknown(server: deployment.Deployment, cache: ResponseCache) -> None:
    run = Asked(server, cache)
    server.created = None
    assert run() == Deployment("", "nothing")
    server.documents["/v1/models"] = (200, {"data": [{"id": "other", "created": 7}]}, {})
    assert run() == Deployment("", "nothing")


def test_last_known_revision_is_used_if_the_endpoint_is_unreachable(server: deployment.Deployment, cache: ResponseCache) -> None:
    run = Asked(server, cache)
    server.documents["/v1/models"] = (503, {}, {})
    assert run() == Deployment("", "last known")
    call = Call(server.url, "m", [{"role": "user", "content": "Who?"}], revision="created:1690000000")
    cache.put(call, {"text": "Ann", "finish_reason": "stop", "prompt_tokens": 1, "completion_tokens": 1, "model": "m"})
    assert run().revision == "created:1690000000", "of the newest reply, which may have been imported"
    del server.documents["/v1/models"]
    server.created = lambda: 1_700_000_000
    run()
    run.config = ChatConfig(model="m", base_url=server.url, key_variable=None, timeout_s=0.05)
    server.delay = 0.2
    last = run()
    assert (last.revision, last.source) == ("created:1700000000", "last known")
    assert last.seen == pytest.approx(time.time(), abs=60)

"""`ragmeter data pretraining-rows`: output, messages, refused input and resuming."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, passage_id
from methods.clara.data import scp_rows
from methods.models.chat import PREFLIGHT
from ragmeter.cli import main
from ragmeter.scripted import NAME
from tests.support.scripted import WorldTruth
from tests.support.server import ChatRequest, OpenAIServer, Written

REF = "worlds/multihop:train"
WORLD: dict[str, Any] = {"entities": 120, "community": 60, "questions": 12}
SMALL = (*(word for key, value in WORLD.items() for word in ("--set", f"data.{key}={value}")), "--count", "4")


class Done(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., Done]


@pytest.fixture
def synthesize(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs the real command line with a store of this test, in this process."""
    for name, value in {"COLUMNS": "150", "NO_COLOR": "1", "RAGMETER_STORE": str(tmp_path / "store")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def call(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["ragmeter", "data", "pretraining-rows", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        response = capsys.readouterr()
        return Done(int(caught.value.code or 0), response.out, response.err)

    return call


@pytest.fixture(scope="module")
def truth() -> WorldTruth:
    return WorldTruth.of(REF, WORLD)


@pytest.fixture
def url(truth: WorldTruth) -> Iterator[str]:
    with truth.server().running() as result:
        yield result


def at(url: str) -> list[str]:
    """Return options of an endpoint."""
    every = {"model": "m", "base_url": url, "key_variable": "null", "backoff_s": 0.001, "concurrency": 1}
    return [word for name, value in every.items() for word in ("--set", f"llm.{name}={value}")]


@pytest.mark.slow
def test_rows_are_written_and_reused_for_another_mix_and_table_9_is_shown(synthesize: Command, url: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    done = synthesize(REF, "-o", str(file), *SMALL, *at(url))
    assert done.code == 0, done.err
    assert "12 of 12 loops to go: about" in done.err
    assert "output words" in done.out
    assert f"by {NAME}" in done.out
    rows = scp_rows("clara_stages/pretraining:train", options={"path": str(file)})
    assert len({row.document for row in rows}) == 4
    kept = json.loads((tmp_path / "rows.statistics.json").read_text("utf-8"))
    assert sum(item["documents"] for item in kept["types"].values()) == len(rows)
    pairs = sum(item["pairs"] for item in kept["types"].values())
    assert pairs == sum(len(row.answers) for row in rows)

    again = synthesize(REF, "-o", str(file), *SMALL, *at(url), "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["types"] == kept["types"]

    # Another mix uses the existing rows.
    wanted = synthesize(REF, "-o", str(file), *SMALL, *at(url), "--mix", "paraphrase", "--json")
    assert wanted.code == 0, wanted.err
    chosen = scp_rows("clara_stages/pretraining:train", options={"path": str(file)})
    assert [row.document for row in chosen] == [row.document for row in rows if row.kind == "paraphrase"]
    assert json.loads(wanted.out)["mix"] == "paraphrase"


def test_dry_run_sends_no_requests_and_writes_nothing(synthesize: Command, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    done = synthesize(REF, "-o", str(file), *SMALL, *at("http://localhost:9/v1"), "--dry-run", "--json")
    assert done.code == 0, done.err
    wanted = json.loads(done.out)["outlook"]
    assert (wanted["documents"], wanted["loops"], wanted["done"], wanted["fewest_calls"]) == (4, 12, 0, 24)
    assert list(tmp_path.glob("rows*")) == []


def test_worlds_need_no_model_for_pretraining_rows(synthesize: Command, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    done = synthesize(REF, "-o", str(file), *SMALL, "--by", "worlds", "--json")
    assert done.code == 0, done.err
    result = json.loads(done.out)["types"]
    assert result["simple"]["documents"] == result["paraphrase"]["documents"] == 4
    rows = scp_rows("clara_stages/pretraining:train", options={"path": str(file)})
    assert len(rows) == sum(item["documents"] for item in result.values())


def test_rows_are_synthesized_from_a_corpus_folder(synthesize: Command, tmp_path: Path) -> None:
    texts = [f"Entity {number} was made in {1800 + number}." for number in range(5)]
    Corpus.of(Passage(passage_id("", text), "", text) for text in texts).save(tmp_path / "wiki")
    done = synthesize(
        str(tmp_path / "wiki"),
        "-o",
        str(tmp_path / "r.jsonl"),
        *at("http://localhost:9/v1"),
        "--dry-run",
        "--mix",
        "simple+complex",
        "--count",
        "3",
        "--json",
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["outlook"]["loops"] == 6


@pytest.mark.parametrize(
    ("arguments", "response"),
    [
        (["worlds/multihop:test", "-o", "OUT", "--set", "llm.model=m", "--set", "llm.key_variable=null"], "test split"),
        (["worlds/multihop:test", "-o", "OUT", "--by", "worlds"], "test split"),
        (["hotpotqa:train", "-o", "OUT", "--by", "worlds"], "is not a world"),
        ([REF, "-o", "OUT", "--by", "magic"], "writer"),
        ([REF, "-o", "OUT", "--mix", "none"], "mix"),
        ([REF, "-o", "OUT"], "needs llm"),
        ([REF, "-o", "OUT", "--set", "llm.model=m", "--set", "llm.modle=x"], "modle"),
        ([REF, "-o", "OUT", "--by", "worlds", "--set", "model=m"], "no model"),
    ],
)
def test_impossible_synthesis_is_refused(synthesize: Command, tmp_path: Path, arguments: list[str], response: str) -> None:
    file = tmp_path / "rows.jsonl"
    done = synthesize(*[str(file) if word == "OUT" else word for word in arguments])
    assert done.code == 2
    assert response in " ".join(done.err.split())
    assert not file.exists()


def test_unreachable_endpoint_stops_synthesis_before_the_first_request(synthesize: Command, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    done = synthesize(REF, "-o", str(file), *SMALL, *at("http://localhost:9/v1"))
    assert done.code == 1
    assert not file.exists()


@pytest.mark.slow
def test_limited_synthesis_reports_the_rest_and_the_next_run_completes_it(synthesize: Command, url: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    done = synthesize(REF, "-o", str(file), *SMALL, *at(url), "--set", "llm.run_tokens=9000", "--json")
    assert done.code == 1
    assert sum(json.loads(done.out)["put_aside"].values()) > 0
    again = synthesize(REF, "-o", str(file), *SMALL, *at(url), "--json")
    assert again.code == 0
    assert json.loads(again.out)["put_aside"] == {}


@pytest.mark.slow
def test_killed_synthesis_resumes_without_repeating_requests(truth: WorldTruth, tmp_path: Path, call: Command) -> None:
    queries: Counter[str] = Counter()

    def slowly(request: ChatRequest) -> Written:
        queries[request.prompt] += 1
        time.sleep(0.01)
        return truth.respond(request)

    file = tmp_path / "rows.jsonl"
    with OpenAIServer(NAME, slowly, any_model=True).running() as url:
        command = [sys.executable, "-m", "ragmeter.cli", "data", "pretraining-rows", REF, "-o", str(file), *SMALL, "--store",
                   str(tmp_path / "store"), "--quiet", *at(url), "--set", "documents_at_once=1"]  # fmt: skip
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and queries.total() < 15:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        before = queries.total()
        assert not file.exists()
        assert call(*command[3:]).code == 0
    assert 15 <= before < queries.total()
    del queries[PREFLIGHT]
    # With one call in flight at a time, the kill can have cost that one.
    assert sum(number - 1 for number in queries.values()) <= 1
    assert scp_rows("clara_stages/pretraining:train", options={"path": str(file)})

"""`ragmeter data restyle`, `mix` and `style-…`: output, messages, refused input and resuming."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.registry import DataReference, load
from benchmarks.settings import Setting
from benchmarks.styles.mix import styled
from benchmarks.styles.pairs import load_pairs, read_pairs
from judges.metrics.entities import entity_preservation_of_pairs
from leaderboard.elements.formats import board_key, board_label
from methods.api import Services
from ragmeter.api import run
from ragmeter.experiment import in_setting
from results.boards.board import boards
from results.store import queries
from results.store.store import Store
from tests.support.scripted import WorldTruth
from tests.support.server import ChatRequest, OpenAIServer, Written

REF = "worlds/multihop:test"
REQUESTED = 3
SIZE = ("--limit", str(REQUESTED))


Command = Callable[..., Any]


@pytest.fixture
def ragmeter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Command) -> Command:
    """Return a function that runs the real command line with a store of this test, in this process."""
    for name, value in {"COLUMNS": "150", "NO_COLOR": "1", "RAGMETER_STORE": str(tmp_path / "store")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return call


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with WorldTruth.of(REF).server().running() as result:
        yield result


def at(url: str, *roles: str) -> list[str]:
    """Return options of an endpoint, for the rewriter and for judges in roles."""
    every = {"model": "m", "base_url": url, "key_variable": "null", "backoff_s": 0.001}
    prefixes = ("llm.", *(f"{role}.llm." for role in roles))
    return [word for prefix in prefixes for name, value in every.items() for word in ("--set", f"{prefix}{name}={value}")]


def by_rule(ragmeter: Command, file: Path, *more: str) -> None:
    done = ragmeter("data", "restyle", REF, "-o", str(file), "--style", "informal", "--rewriter", "rule", *SIZE, *more)
    assert done.code == 0, done.err


@pytest.mark.slow
def test_model_rewrites_every_candidate_and_judges_validate_it(ragmeter: Command, url: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    command = ["data", "restyle", REF, "-o", str(file), "--style", "informal", "--style", "humor", *SIZE,
               *at(url, "style", "content"), "--validate", "style", "--validate", "content=content"]  # fmt: skip
    done = ragmeter(*command, "--json")
    assert done.code == 0, done.err
    response = json.loads(done.out)
    candidates = {c for question in load(REF).limited(REQUESTED).questions for c in question.candidates or ()}
    assert response["asked"] == 2 * len(candidates)
    for row in response["styles"]:
        assert row["at_first_try"] + row["after_more_tries"] + row["given_up"] == len(candidates)
    estimate = response["estimate"]
    assert estimate["calls"] == 2 * len(candidates)
    # The style judge gets only the informal texts, the content judge all texts.
    assert estimate["judging_calls"] == 3 * len(candidates)
    pairs = load_pairs(file)
    assert pairs.styles == ("informal", "humor")
    assert len(pairs) == response["pairs"]


@pytest.mark.slow
def test_repeated_command_sends_no_requests(ragmeter: Command, url: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    command = ["data", "restyle", REF, "-o", str(file), "--style", "romance", *SIZE, *at(url)]
    first = ragmeter(*command)
    before = file.read_bytes()
    again = ragmeter(*command)
    assert (first.code, again.code) == (0, 0)
    assert "passages to rewrite" in first.err
    assert "one try for each: about" in first.err
    assert "0 passages to rewrite" in again.err
    assert "0 passages rewritten now" in again.out
    assert file.read_bytes() == before


@pytest.mark.slow
def test_refused_texts_are_counted_by_reason_and_not_retried(ragmeter: Command, tmp_path: Path) -> None:
    corrupt = WorldTruth.of(REF, corruption=0.5)
    file = tmp_path / "pairs.jsonl"
    with corrupt.server().running() as url:
        options = [*at(url), "--set", "tries=2", "--validate", "entities=1"]
        done = ragmeter("data", "restyle", REF, "-o", str(file), "--style", "informal", *SIZE, *options)
    assert done.code == 0, done.err
    rows = {pair.key[1:]: pair for pair in read_pairs(file)}.values()
    given_up = sum(row.styled is None for row in rows)
    tries = sum(len(row.failed) for row in rows)
    assert given_up
    shown = next(line.split() for line in done.out.splitlines() if line.startswith("informal"))
    assert int(shown[-1]) == given_up
    block = done.out.split("refused because of")[1].splitlines()[1:]
    assert sum(int(line.split()[-1]) for line in block if line.strip()) == tries


@pytest.mark.slow
def test_refused_texts_are_retried_on_request(ragmeter: Command, url: str, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    command = ["data", "restyle", REF, "-o", str(file), "--style", "informal", *SIZE, *at(url)]
    assert ragmeter(*command, "--json").code == 0
    lines = file.read_text("utf-8").splitlines()
    row = json.loads(lines[1])
    for key in ("styled", "by", "tries", "sentences"):
        row.pop(key, None)
    lines[1] = json.dumps(row | {"failed": ["refusal: the reply declines"]})
    file.write_text("\n".join(lines) + "\n", "utf-8")
    left = json.loads(ragmeter(*command, "--json").out)
    assert (left["asked"], left["styles"][0]["given_up"]) == (0, 1)
    rendering = json.loads(ragmeter(*command, "--retry-failed", "--json").out)
    assert (rendering["asked"], rendering["styles"][0]["given_up"]) == (1, 0)


def test_candidates_may_come_from_a_retriever(ragmeter: Command, tmp_path: Path) -> None:
    file, mixed = tmp_path / "pairs.jsonl", tmp_path / "mixed.jsonl"
    setting = ("--setting", "corpus(retriever=bm25,n=4)")
    by_rule(ragmeter, file, *setting)
    per_question = {}
    for pair in read_pairs(file):
        per_question.setdefault(pair.question, set()).add(pair.formal.id)
    assert [len(result) for result in per_question.values()] == [4] * REQUESTED
    command = ["data", "mix", REF, str(file), "--mix", "informal=0.5", *SIZE, "-o", str(mixed)]
    done = ragmeter(*command, *setting, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["candidates"] == {"formal": 2 * REQUESTED, "informal": 2 * REQUESTED}


def _slow(url: str, file: Path, store: Path) -> list[str]:
    return ["data", "restyle", REF, "-o", str(file), "--style", "informal",
            "--limit", "20", "--store", str(store), "--quiet", *at(url), "--set", "llm.concurrency=1"]  # fmt: skip


@pytest.mark.slow
def test_interrupted_rewriting_resumes_to_the_same_file(tmp_path: Path, call: Command) -> None:
    """The command is stopped twice after whole batches are on disk; the resumed file equals an uninterrupted one."""
    stopped, calm = tmp_path / "stopped.jsonl", tmp_path / "calm.jsonl"
    truth = WorldTruth.of(REF)

    def slowly(request: ChatRequest) -> Written:
        time.sleep(0.01)
        return truth.respond(request)

    def stop(url: str, how: signal.Signals, lines: int) -> tuple[int, str]:
        """Return exit code and output of a command that is stopped once the file has more than a number of lines."""
        process = subprocess.Popen(
            [sys.executable, "-m", "ragmeter.cli", *_slow(url, stopped, tmp_path / "one")],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline and not (stopped.exists() and stopped.read_bytes().count(b"\n") > lines):
            time.sleep(0.05)
        os.kill(process.pid, how)
        _, response = process.communicate(timeout=60)
        return process.returncode, response

    with OpenAIServer("m", slowly).running() as url:
        stop(url, signal.SIGKILL, 1)
        killed = stopped.read_bytes().count(b"\n")
        code, response = stop(url, signal.SIGINT, killed)
        kept = stopped.read_bytes().count(b"\n")
        assert code == 130
        assert "interrupted; everything finished is kept: the same command continues" in response
        assert call(*_slow(url, calm, tmp_path / "two")).code == 0
        whole = calm.read_bytes()
        assert 1 < killed < kept < whole.count(b"\n"), "it was not stopped in the middle"
        assert call(*_slow(url, stopped, tmp_path / "one")).code == 0
    assert stopped.read_bytes() == whole


def test_quality_reports_n_mean_and_interval(ragmeter: Command, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    by_rule(ragmeter, file)
    done = ragmeter("data", "style-quality", str(file), "--benchmark", REF, "--strength", "rule_style", "--json")
    assert done.code == 0, done.err
    rows = {row["measure"]: row for row in json.loads(done.out)["measures"]}
    pairs = list(load_pairs(file))
    kept = entity_preservation_of_pairs([pair.formal.text for pair in pairs], [pair.styled.text for pair in pairs])
    assert rows["entities"]["n"] == len(pairs)
    assert rows["entities"]["value"] == pytest.approx(float(np.mean(kept)))
    assert rows["entities"]["passages"] == len({pair.formal.id for pair in pairs})
    assert rows["answer_kept"]["n"] + rows["answer_kept"]["missing"] == len(pairs)
    for row in rows.values():
        assert row["insufficient_data"] or row["low"] <= row["value"] <= row["high"]
    assert not all(row["insufficient_data"] for row in rows.values())
    assert rows["informal"]["value"] > rows["informal_source"]["value"]
    text = ragmeter("data", "style-quality", str(file), "--benchmark", REF).out
    assert f"informal: {len(pairs)} pairs, 0 failed" in text
    assert "95 % interval" in text


def test_written_mix_equals_the_styled_benchmark(ragmeter: Command, tmp_path: Path) -> None:
    file, mixed = tmp_path / "pairs.jsonl", tmp_path / "mixed.jsonl"
    by_rule(ragmeter, file)
    command = ["data", "mix", REF, str(file), "--mix", "informal=0.3", "--seed", "5", *SIZE, "-o", str(mixed)]
    assert ragmeter(*command).code == 0
    expected = styled(load(REF).limited(REQUESTED), load_pairs(file), {"informal": 0.3}, seed=5)
    read = load("sark", {"path": str(mixed)})
    for item, other in zip(read.questions, expected.questions, strict=True):
        assert item.text == other.text
        mine, theirs = read.corpus.get(item.candidates or ()), expected.corpus.get(other.candidates or ())
        assert [passage.text for passage in mine] == [passage.text for passage in theirs]
    assert ragmeter(*command).code == 2
    assert ragmeter(*command, "--overwrite").code == 0


@pytest.mark.parametrize(("setting", "passages", "size"), [(None, None, 10), ("corpus(retriever=bm25,n=7)", 3, 3)])
def test_candidates_round_trip_through_a_file(
    setting: str | None, passages: int | None, size: int, ragmeter: Command, tmp_path: Path
) -> None:
    file = tmp_path / "test.jsonl"
    more = [*(["--setting", setting] if setting else []), *(["--passages", str(passages)] if passages else [])]
    done = ragmeter("data", "style-export", REF, "-o", str(file), *SIZE, *more, "--json")
    assert done.code == 0, done.err
    response = json.loads(done.out)
    assert (response["records"], response["candidates"], response["notes"]) == (REQUESTED, REQUESTED * size, [])
    base = load(REF).limited(REQUESTED)
    if setting:
        base = in_setting(Setting.parse(setting), base, Services(artifacts=tmp_path / "artifacts"))
    again = load("sark:test", {"path": str(file)})
    for before, after in zip(base.questions, again.questions, strict=True):
        assert (after.text, after.answers) == (before.text, before.golds)
        expected = [(item.title, item.text) for item in base.corpus.get((before.candidates or ())[:passages])]
        assert [(item.title, item.text) for item in again.corpus.get(after.candidates or ())] == expected
    # The exported file is the input of `rewrite` and `styled`.
    pairs = tmp_path / "pairs.jsonl"
    rendering = ragmeter(
        "data", "restyle", "sark:test", "-o", str(pairs), "--set", f"data.path={file}", "--style", "informal", "--rewriter", "rule", "-q"
    )
    assert rendering.code == 0, rendering.err
    mixed = styled(again, load_pairs(pairs), informal=1.0)
    assert {q.metadata["styled"]["counts"]["informal"] for q in mixed.questions} == {size}
    in_the_way = ragmeter("data", "style-export", REF, "-o", str(file), *SIZE)
    assert in_the_way.code == 2
    assert "--overwrite" in in_the_way.err


def test_fields_outside_the_layout_are_dropped_and_reported(ragmeter: Command, tmp_path: Path) -> None:
    """DPR results as its tool writes them: one question twice, one without a passage."""
    rows = [
        {
            "question": text,
            "answers": ["two"],
            "ctxs": [{"id": f"wiki:{n}", "title": "T", "text": f"{text} {n}", "score": "80.1", "has_answer": False} for n in range(size)],
        }
        for text, size in (("a?", 3), ("b?", 0), ("a?", 3), ("c?", 1))
    ]
    results, file = tmp_path / "nq-test.json", tmp_path / "test.jsonl"
    results.write_text(json.dumps(rows), "utf-8")
    command = ("data", "style-export", "nq:test", "--set", f"path={results}", "-o", str(file), "--passages", "2")
    done = ragmeter(*command)
    assert done.code == 0, done.err
    assert "2 records of nq" in done.out
    for response in ("earlier one: 1 question", "without a candidate: 1 question", "fewer than 2 candidates: 1 question"):
        assert response in done.err
    again = load("sark:test", {"path": str(file)})
    assert [(question.text, len(question.candidates or ())) for question in again.questions] == [("a?", 2), ("c?", 1)]
    none = ragmeter(*command[:-2], "--overwrite", "--limit", "1", "--setting", "corpus")
    assert none.code == 2
    assert "no list of candidates" in none.err
    assert "corpus(retriever=bm25,n=50)" in none.err


def test_parallel_texts_are_imported_by_field_names(ragmeter: Command, tmp_path: Path) -> None:
    texts, file = tmp_path / "texts.jsonl", tmp_path / "pairs.jsonl"
    texts.write_text('{"v": {"KJV": ["Let there be light."], "BBE": ["Light!"]}, "q": "a"}\n', "utf-8")
    command = ["data", "style-pairs", str(texts), "-o", str(file), "--field", "formal=v.KJV", "--field", "bbe=v.BBE"]
    done = ragmeter(*command, "--question", "q", "--by", "translators", "--json")
    assert (done.code, json.loads(done.out)["styles"]) == (0, {"bbe": 1})
    (item,) = load_pairs(file)
    assert (item.question, item.formal.text, item.styled.text, item.by) == ("a", "Let there be light.", "Light!", "translators")


def test_all_missing_fields_of_a_record_are_reported_together(ragmeter: Command, tmp_path: Path) -> None:
    texts, file = tmp_path / "texts.jsonl", tmp_path / "pairs.jsonl"
    texts.write_text('{"v": {"KJV": "Let there be light."}}\n', "utf-8")
    done = ragmeter("data", "style-pairs", str(texts), "-o", str(file), "--field", "formal=w", "--field", "bbe=v.BBE", "--question", "q")
    assert (done.code, file.exists()) == (2, False)
    assert "fields 'w', 'v.BBE', 'q' are missing" in done.err
    assert "the record has v" in done.err


def test_two_sark_files_are_paired_row_by_row(ragmeter: Command, tmp_path: Path) -> None:
    for name, text in (("formal", "The mill burned."), ("informal", "Wow, the mill burned!")):
        row = {"question": "What burned?", "answers": ["mill"], "rank_list": [text]}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    files = [str(tmp_path / f"{name}.jsonl") for name in ("formal", "informal")]
    done = ragmeter("data", "style-pairs", *files, "--style", "humor", "-o", str(tmp_path / "pairs.jsonl"))
    assert done.code == 0, done.err
    (item,) = load_pairs(tmp_path / "pairs.jsonl")
    assert (item.style, item.formal.text, item.styled.text) == ("humor", "The mill burned.", "Wow, the mill burned!")


@pytest.mark.slow
def test_runs_on_different_mixes_have_distinct_names(tmp_path: Path) -> None:
    config = "{base_config: {questions: 5}, mix: {informal: SHARE}}"
    mix = f"  - {{id: styled, split: test, limit: 3, config: {config}}}\n"
    mixes = "".join(mix.replace("SHARE", share) for share in ("0.2", "0.8"))
    text = f"name: mixed\nbenchmarks:\n{mixes}  - {{id: worlds/multihop, split: test, limit: 3}}\n"
    (tmp_path / "x.yaml").write_text(text + "methods: [{id: random}]\nmetrics: [recall@5]\n")
    run(tmp_path / "x.yaml", store=tmp_path / "store")
    store = Store(tmp_path / "store")
    every = queries.runs(store)
    names = [row.dataset for row in every]
    assert names == [
        "styled:test(worlds/multihop,informal=0.2,by=rule,seed=0)",
        "styled:test(worlds/multihop,informal=0.8,by=rule,seed=0)",
        "worlds/multihop:test",
    ]
    assert [board.dataset for board in boards(store, "mixed")] == names
    assert len({board_label([row]) for row in every}) == len({board_key(row) for row in every}) == 3
    for row in every:
        assert queries.find_run(store, row.path).run == row.run
    assert {str(DataReference.of_name(name)) for name in names} == {"styled:test", REF}


RESTYLE = f"data restyle {REF} -o {{tmp}}/p.jsonl --style informal"


@pytest.mark.parametrize(
    ("arguments", "what", "where", "remedy"),
    [
        (RESTYLE, "the rewriter needs llm", "--set", "--set llm.model=…"),
        (f"{RESTYLE} --rewriter rul", "unknown rewriter 'rul'", "--rewriter", "did you mean 'rule'?"),
        (f"{RESTYLE} --set llm.model=m --set tris=2", "unknown option of the rewriter 'tris'", "--set", "'tries'"),
        (f"{RESTYLE} --set model=m", "belong under `llm:`", "--set", ""),
        (f"{RESTYLE} --set model", "'model' sets nothing", "--set", "key=value"),
        (f"{RESTYLE} --set llm.model=m", "OPENAI_API_KEY is not set", "key_variable", "key_variable: null"),
        (f"{RESTYLE} --rewriter rule --set opner=1", "rewriter 'opner'", "--set", "'opener'"),
        (f"{RESTYLE} --rewriter rule --set opener=much", "not 'much'", "--set", "opener=0.5"),
        (f"{RESTYLE} --rewriter rule --validate style=rule_style", "not validated", "--validate", "--rewriter llm"),
        (f"{RESTYLE} --set llm.model=m --validate styl", "unknown validator 'styl'", "--validate", "style"),
        (f"{RESTYLE} --set llm.model=m --validate style=match", "does not measure 'informal'", "--validate", "rule_style"),
        (f"{RESTYLE} --set llm.model=m --validate content", "content needs llm", "--set", "--set content.llm.model=…"),
        (f"{RESTYLE} --set llm.model=m --set style.llm.model=x", "style is not validated", "--set style", "--validate"),
        (f"{RESTYLE} --set llm.model=m --validate entities=2", "not a share of names", "--validate", "entities=0.9"),
        (f"{RESTYLE} --rewriter rule --setting corpus(retriever=gold_answer,n=3)", "control", "--setting", "retriever"),
        (f"{RESTYLE} --rewriter rule --setting nowhere", "nowhere", "--setting", "corpus"),
        (f"data restyle {REF} -o {{tmp}}/p.jsonl --style baroque --rewriter rule", "style 'baroque'", "--style", "humor"),
        (f"data restyle {REF} -o {{tmp}} --style humor --rewriter rule", "this is a folder", "{tmp}", "name a file"),
        ("data restyle nowhere:test -o {tmp}/p.jsonl --style humor --rewriter rule", "'nowhere'", "REF", "hotpotqa"),
        ("data style-quality {tmp}/none.jsonl", "none.jsonl", "none.jsonl", ""),
        ("data style-quality {tmp}/other.jsonl", "not a file of style pairs", "other.jsonl", "import"),
        ("data style-quality {tmp}/other.jsonl --set llm.model=m", "no judge that uses them", "--set", "--strength"),
        ("data style-quality {tmp}/other.jsonl --strength content", "does not measure", "--strength", "rule_style"),
        (f"data mix {REF} {{tmp}}/other.jsonl --mix half -o {{tmp}}/m.jsonl", "'half'", "--mix", "informal=0.5"),
        (f"data mix {REF} {{tmp}}/p --mix a=1 -o {{tmp}}/m --draw dice", "draw 'dice'", "--draw", "coin"),
        (f"data mix {REF} {{tmp}}/p --mix a=1 -o {{tmp}}/m --layout csv", "layout 'csv'", "--layout", "ranked"),
        (f"data mix {REF} {{tmp}}/p --mix a=1 -o {{tmp}}/other.jsonl", "already exists", "other.jsonl", "--overwrite"),
        ("data style-pairs {tmp}/other.jsonl -o {tmp}/p", "need --field", "--field, --style", "--style informal"),
        ("data style-pairs {tmp}/other.jsonl -o {tmp}/p --field a=b", "fields of formal", "--field", "--field formal"),
        ("data style-pairs {tmp}/other.jsonl -o {tmp}/p --field formal", "names no field", "--field", "formal=text"),
        ("data style-pairs {tmp}/other.jsonl -o {tmp}/p --style humor", "two files are required", "FILE", "two"),
    ],
)
def test_invalid_input_is_reported_with_position_and_remedy(
    ragmeter: Command, tmp_path: Path, arguments: str, what: str, where: str, remedy: str
) -> None:
    (tmp_path / "other.jsonl").write_text('{"some": "thing"}\n', "utf-8")
    done = ragmeter(*arguments.replace("{tmp}", str(tmp_path)).split(), "--json")
    assert done.code == 2, done.err
    response = json.loads(done.err.splitlines()[-1])["error"]
    assert what in response["what"] + str(response["where"])
    assert where.replace("{tmp}", str(tmp_path)) in str(response["where"])
    assert remedy in str(response["try"])
    assert not (tmp_path / "p.jsonl").exists(), "nothing is begun by a command that is refused"


def test_pairs_of_another_benchmark_are_refused(ragmeter: Command, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    by_rule(ragmeter, file)
    other = "worlds/multihop:validation"
    done = ragmeter("data", "style-quality", str(file), "--benchmark", other)
    assert (done.code, "no pair belongs to a question of" in done.err) == (2, True)
    done = ragmeter("data", "mix", other, str(file), "--mix", "informal=0.5", *SIZE, "-o", str(tmp_path / "m.jsonl"))
    assert (done.code, "no pair has the text of a candidate of" in done.err) == (2, True)
    assert not (tmp_path / "m.jsonl").exists()


def test_unreachable_endpoint_stops_rewriting_before_writing(ragmeter: Command, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    options = [*at("http://127.0.0.1:9/v1"), "--set", "llm.attempts=1"]
    done = ragmeter("data", "restyle", REF, "-o", str(file), "--style", "informal", *SIZE, *options)
    assert done.code == 1
    assert "127.0.0.1:9" in done.err
    assert not file.exists()

"""`ragmeter judge`: output, refused input, exit codes, and the commands of its page."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from judges import llm as judge_templates
from judges.judge import JUDGES, Judge
from ragmeter.runner import judging
from results.judging import judgments
from results.store.store import Store
from tests.support.scripted import WorldTruth
from tests.support.server import ChatRequest

QUESTIONS = 8
"""Number of questions of the experiment."""
Command = Callable[..., Any]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with WorldTruth.of("worlds/multihop:test").server().running() as result:
        yield result


def at(url: str, **options: object) -> list[str]:
    """Return options of a judge at an endpoint, for the command line."""
    model = {"llm.model": "m", "llm.base_url": url, "llm.key_variable": "null", "llm.backoff_s": 0.001}
    every = model | {name.replace("__", "."): value for name, value in options.items()}
    return [word for name, value in every.items() for word in ("--set", f"{name}={value}")]


def read(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file.read_text("utf-8"))))


def leaves(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Return the path and value of each leaf of a document, in order, so that pytest prints the first difference."""
    if not isinstance(value, dict | list) or not value:
        return [(path, value)]
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [leaf for key, item in items for leaf in leaves(item, f"{path}/{key}")]


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "what", "where", "remedy"),
    [
        ("judge run mtch", "unknown judge 'mtch'", "JUDGE", "did you mean 'match'?"),
        ("judge mtch", "unknown judge 'mtch'", "NAME", "did you mean 'match'?"),
        ("judge run match", "match needs llm", "--set", "--set llm.model=…"),
        ("judge run match --set model=m", "match: options of the language model belong under `llm:`", "--set", None),
        ("judge run match --set llm.model=m --set partal=drop", "unknown option of match 'partal'", "--set", "'partial'"),
        ("judge run match --set llm.model=m --set llm.timeot_s=1", "unknown option of match 'llm.timeot_s'", "--set", "'llm.timeout_s'"),
        ("judge run match --set llm.scripted=w --set llm.corrupton=1", "option of match 'llm.corrupton'", "--set", "'llm.corruption'"),
        ("judge run match --set llm.model=m --set partial=dorp", "unknown value of partial 'dorp'", "--set", "'drop'"),
        ("judge run match --set llm.model=m --set llm.temperature=hot", "a number is wanted", "--set", None),
        ("judge run match --set llm.model=m --set repetitions=0", "must be at least 1", "--set", None),
        ("judge run match --set llm", "'llm' sets nothing", "--set", "--set key=value"),
        ("judge run match --set llm.model=m", "OPENAI_API_KEY is not set", "key_variable", "export OPENAI_API_KEY"),
        ("judge run match --set llm.model=m --set llm.key_variable=null --set prompt=x.txt", "cannot be read", "x.txt", None),
        ("judge run rule_match --experiment smal", "unknown experiment 'smal'", "store", "did you mean 'small'?"),
        ("judge run rule_match bm25 --experiment small", "runs and an experiment", "--experiment", "one of the two"),
        ("judge run rule_match bm52", "tag 'bm52'", None, "small/bm25"),
        ("judge run rule_pairwise bm25", "compares two runs", "RUNS", "two or more"),
        ("judge win-rates --ties halb", "unknown tie rule 'halb'", "--ties", "did you mean 'half'?"),
        ("judge win-rates smal", "unknown experiment 'smal'", "store", "did you mean 'small'?"),
        ("judge card rule", "unknown judge in this store 'rule'", "store", None),
        ("judge replay rule", "unknown judge in this store 'rule'", "store", None),
        ("judge score bm25", "a metric is required", "judge score", "--metric METRIC"),
        ("judge score bm25 --metric f11", "unknown metric 'f11'", "--metric", "did you mean 'f1'?"),
        ("judge score bm25 --metric recall", "recall needs k", "--metric", "recall@5"),
        ("judge labels import none.csv --annotator ann", "cannot be read", "none.csv", None),
        ("judge labels export bm25 -o x.csv --criterion overall --pairs", "two answers to one question", "store", None),
    ],
)
def test_invalid_judge_option_is_refused_with_position_and_nearest_name(
    ragmeter: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, what: str, where: str | None, remedy: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    done = ragmeter(*arguments.split())
    assert done.code == 2, done.err
    assert what in flat(done.err)
    assert where is None or f"where: {where}" in flat(done.err).replace(str(tmp_path) + "/", "")
    assert remedy is None or remedy in flat(done.err)
    assert "Traceback" not in done.err


def test_invalid_judge_is_reported_as_json(ragmeter: Command) -> None:
    done = ragmeter("judge", "run", "mtch", "--json")
    assert done.code == 2
    assert json.loads(done.out or done.err)


def test_judge_plan_reports_the_number_of_calls(ragmeter: Command, tmp_path: Path) -> None:
    file = tmp_path / "planned.yaml"
    file.write_text(
        """
name: planned
benchmarks: [{id: worlds/multihop, split: test, setting: distractor, limit: 5}]
methods: [{id: bm25}, {id: no_retrieval}, {id: random}]
judges:
  - rule_match
  - {id: match, config: {llm: {model: m, key_variable: null}, repetitions: 2}}
  - {id: pairwise, config: {llm: {model: m, key_variable: null}, repetitions: 3}}
  - {id: pairwise, opponents: all, config: {llm: {model: other, key_variable: null}, repetitions: 1}}
"""
    )
    rows = json.loads(ragmeter("run", str(file), "--dry-run", "--json").out)["judges"]
    # Three answers per question, requested twice; two pairs with the reference and three in total, in both orders.
    assert [row["judgments"] for row in rows] == [3 * 5 * 2, 2 * 5 * 2 * 3, 3 * 5 * 2 * 1]


def test_unreachable_endpoint_stops_the_judging(ragmeter: Command, store: Store) -> None:
    done = ragmeter("judge", "run", "match", *at("http://127.0.0.1:9/v1", llm__attempts=1))
    assert done.code == 1
    assert "nothing answers" in done.err
    assert judgments.judges(store) == {}


def test_interrupted_judging_announces_its_resume(ragmeter: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(judging, "execute", stop)
    done = ragmeter("judge", "run", "rule_match")
    assert done.code == 130
    assert "interrupted; everything finished is kept" in done.err


@pytest.mark.parametrize(
    ("judges", "what", "line"),
    [
        ("  - rule_mtch", "unknown judge 'rule_mtch'", 7),
        ("  - rule_match\n  - {id: match, config: {llm: {model: m, modle: m}}}", "modle", 8),
        ("  - {id: rule_match, opponents: all}", "does not compare answers", 7),
        ("  - {id: rule_pairwise, opponents: none}", "opponents", 7),
        ("  - {id: match, config: {partial: drop}}", "llm", 7),
    ],
)
def test_experiment_with_an_invalid_judge_names_the_line(
    ragmeter: Command, experiment_text: str, tmp_path: Path, judges: str, what: str, line: int
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"{experiment_text}judges:\n{judges}\n")
    done = ragmeter("run", str(file), "--dry-run")
    assert done.code == 2
    assert what in done.err
    assert f"x.yaml:{line}" in "".join(done.err.split())


@pytest.mark.slow
def test_rule_judges_run_offline_and_are_labeled_rule_everywhere(ragmeter: Command) -> None:
    done = ragmeter("judge", "run", "rule_match", "-q")
    assert done.code == 0, done.err
    for shown in (done.out, ragmeter("results").out):
        assert re.search(r"accuracy( |[^\n]*\n[^\n]*)\(rule\)", shown)
    listed = ragmeter("judge").out
    assert {line.split()[0] for line in listed.splitlines()} >= {"match", "pairwise", "grounding", "style", "rule_match"}
    assert [card["rule"] for card in json.loads(ragmeter("judge", "--json").out)["stored"]] == [True]
    shown = ragmeter("judge", "match").out
    for word in ("accuracy", "partial", "repetitions", "SARK"):
        assert word in shown
    assert "rules, no model" in ragmeter("judge", "card", "rule_match").out
    assert "by rules, not by a model" in ragmeter("judge", "run", "rule_pairwise", "-q").out
    for board in json.loads(ragmeter("judge", "win-rates", "--json").out):
        assert board["rule"] is True
        assert "model=rule" in board["judge"]


@pytest.mark.slow
def test_endpoint_judge_reports_its_scores_as_json(ragmeter: Command, store: Store, url: str) -> None:
    done = ragmeter("judge", "run", "match", *at(url), "--json")
    assert done.code == 0, done.err
    results = json.loads(done.out)
    gold = next(row for row in results if row["method"] == "gold_answer" and row["metric"].startswith("accuracy"))
    assert (gold["value"], gold["low_if_wrong"], gold["high_if_right"], gold["unscored"]) == (1.0, 1.0, 1.0, 0)
    assert gold["n"] + gold["unscorable"] == QUESTIONS
    assert "accuracy (m)" in ragmeter("results").out


@pytest.mark.slow
def test_unscored_answers_are_shown_with_both_values(ragmeter: Command, tmp_path: Path) -> None:
    truth = WorldTruth.of("worlds/multihop:test", corruption=0.5)
    with truth.server().running() as url:
        done = ragmeter("judge", "run", "match", "random", *at(url, exact="none"), "--json")
    (row,) = [row for row in json.loads(done.out) if row["metric"].startswith("accuracy")]
    assert row["unscored"] > 0
    wrong = row["value"] * row["n"] / row["scorable"]
    assert (row["low_if_wrong"], row["high_if_right"]) == pytest.approx((wrong, wrong + row["unread"] / row["scorable"]))
    assert f"the judge gave {row['unscored']} question" in flat(ragmeter("results").out)


@pytest.mark.slow
def test_pairwise_judge_compares_named_runs_or_all_pairs(ragmeter: Command) -> None:
    done = ragmeter("judge", "run", "rule_pairwise", "bm25", "random", "--json")
    assert {(item["method"], item["opponent"]) for board in json.loads(done.out) for item in board["pairings"]} == {("bm25", "random")}
    done = ragmeter("judge", "run", "rule_pairwise", "--all-pairs", "--json")
    (board,) = json.loads(done.out)
    assert len(board["pairings"]) == 3 * 3
    assert set(board["strengths"]) == {"overall", "faithfulness", "conciseness"}
    shown = ragmeter("judge", "win-rates")
    assert "strength (Bradley–Terry, Elo scale)" in shown.out
    assert {item["opponent"] for item in board["pairings"]} == {"bm25", "gold_answer"}
    assert ragmeter("judge", "win-rates", "--ties", "win", "--length").code == 0


@pytest.mark.slow
def test_replay_reads_replies_without_server_or_key(ragmeter: Command, store: Store) -> None:
    server = WorldTruth.of("worlds/multihop:test", corruption=0.2).server()
    with server.running() as url:
        assert ragmeter("judge", "run", "match", *at(url, exact="none"), "-q").code == 0
        assert ragmeter("judge", "run", "pairwise", *at(url, repetitions=1), "-q").code == 0
        query = server.calls
    shown = ("judge", "win-rates", "--json"), ("results", "--json")
    before = [json.loads(ragmeter(*command).out) for command in shown]
    for name in ("match", "pairwise"):
        value = json.loads(ragmeter("judge", "replay", name, "--json").out)
        assert value["from"] == value["to"]
        assert value["calls_made"] == 0
        assert [(item["changed"], item["lost"]) for item in value["replayed"]] == [(0, 0)] * len(value["replayed"])
    assert leaves([json.loads(ragmeter(*command).out) for command in shown]) == leaves(before)
    # No server is needed to find that everything is judged.
    assert ragmeter("judge", "run", "match", *at(url, exact="none"), "-q").code == 0
    assert server.calls == query
    assert "no call was made" in ragmeter("judge", "replay", "match", "--set", "partial=drop").out
    assert len([card for card in judgments.judges(store).values() if card["judge"] == "match"]) == 2
    (board,) = json.loads(ragmeter("results", "--json").out)["boards"]
    judged = [metric for metric in board["rows"][0]["metrics"] if metric.startswith("accuracy")]
    assert len(judged) == 2  # a replay with another policy has its own column
    done = ragmeter("judge", "replay", "match")
    assert done.code == 2
    assert "means 2 judges" in done.err


@pytest.mark.slow
def test_replay_may_change_prices_and_prompt_path_but_not_the_requests(ragmeter: Command, url: str, tmp_path: Path) -> None:
    shipped = Path(judge_templates.__file__).parent / "templates" / "match.txt"
    text = shipped.read_text("utf-8")
    for name, written in (("equal", text), ("other", text.replace("You", "You, yes you,", 1) + "\nBe fair.")):
        (tmp_path / f"{name}.txt").write_text(written)
    assert ragmeter("judge", "run", "match", "bm25", *at(url), "-q").code == 0
    for setting in ("llm.usd_per_million_prompt_tokens=3.0", f"prompt={tmp_path / 'equal.txt'}"):
        done = ragmeter("judge", "replay", "match", "--set", setting, "--json")
        assert done.code == 0, done.err
        assert json.loads(done.out)["from"] == json.loads(done.out)["to"]
    other = f"prompt={tmp_path / 'other.txt'}"
    for setting in ("llm.model=other", "repetitions=2", "exact=none", "golds=first", "llm.temperature=1.0", other):
        done = ragmeter("judge", "replay", "match", "--set", setting)
        assert done.code == 2
        assert f"{re.split('[.=]', setting)[0]} changes the prompts of match" in flat(done.err)
        assert "a replay can change partial" in flat(done.err)


@pytest.mark.slow
def test_judge_card_reports_agreement(ragmeter: Command, url: str, tmp_path: Path) -> None:
    assert ragmeter("judge", "run", "match", *at(url, exact="none", llm__usd_per_million_prompt_tokens=1.0), "-q").code == 0
    assert ragmeter("judge", "run", "rule_match", "-q").code == 0
    file = tmp_path / "labels.csv"
    assert ragmeter("judge", "labels", "export", "-o", str(file), "--criterion", "accuracy", "--count", "8").code == 0
    rows = read(file)
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0].keys())
        writer.writeheader()
        writer.writerows({**row, "label": "right" if row["answer_1"] == row["gold"].split(" | ")[0] else "wrong"} for row in rows)
    done = ragmeter("judge", "labels", "import", str(file), "--annotator", "ann")
    assert done.code == 0, done.err
    assert "8 labels by ann" in done.out
    shown = flat(ragmeter("judge", "card", "match").out)
    for words in ("calls", "price $", "with ann (person)", "corrected: prediction-powered mean"):
        assert words in shown
    agreement = json.loads(ragmeter("judge", "card", "match", "--json").out)["with_judges"]["accuracy"]
    assert [name.partition("(")[0] for name in agreement] == ["rule_match"]
    card = json.loads(ragmeter("judge", "card", "match", "--json").out)
    assert card["failure_rate"] == 0.0
    assert card["work"]["cost_usd"] > 0
    assert {item["measure"] for item in card["corrected"]} == {"accuracy"}


def test_every_judge_lists_its_needs() -> None:
    for name in ("match", "pairwise", "grounding", "style", "content", "rule_match", "rule_pairwise"):
        config = {} if name.startswith("rule") else {"llm": {"model": "m"}}
        assert Judge.of(name, config).describe()["needs"]


PAGE = Path(__file__).resolve().parents[3] / "docs" / "judges.md"
ADDRESS = "http://localhost:8000/v1"


def blocks(language: str) -> list[str]:
    """Return the page's code blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.mark.slow
def test_every_command_on_the_page_works(
    ragmeter: Command, store: Store, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = next(text for text in blocks("yaml") if text.startswith("name: judged"))
    # The method does not affect its judges; the page's encoder takes longer than everything else here.
    hybrid, instead = "{id: hybrid}", "{id: bm25, name: hybrid, config: {k1: 0.6}}"
    assert hybrid in file
    (tmp_path / "judged.yaml").write_text(file.replace(hybrid, instead).replace(ADDRESS, url).replace("limit: 60", f"limit: {QUESTIONS}"))
    assert ragmeter("run", "judged.yaml", "-q").code == 0
    lines = [line for text in blocks("bash") for line in text.splitlines() if line.startswith("ragmeter ")]
    queries = [line for line in lines if "gpt-4.1" not in line and "polite" not in line]
    assert len(queries) > 12
    for line in queries:
        # The store of this test has another experiment with the same runs, so runs are named with their experiment.
        words = [f"judged/{word}" if word in ("bm25", "hybrid") else word for word in shlex.split(line, comments=True)]
        done = ragmeter(*[word.replace(ADDRESS, url) for word in words[1:]], "-q")
        assert done.code == 0, f"{line}: {done.err}"


@pytest.mark.slow
def test_judge_on_the_page_works(ragmeter: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    before = dict(JUDGES._entries) if list(JUDGES) else {}
    (code,), (prompt,) = ([text for text in blocks(name) if word in text] for name, word in (("python", "Polite"), ("text", "Polite")))
    module = types.ModuleType("polite_of_the_page")
    exec(compile(code, str(PAGE), "exec"), module.__dict__)
    (tmp_path / "polite.txt").write_text(prompt)
    monkeypatch.chdir(tmp_path)
    truth = WorldTruth.of("worlds/multihop:test")

    @truth.handle
    def manners(_: WorldTruth, request: ChatRequest) -> str | None:
        return "Polite" if "You judge manners" in str(request.messages) else None

    (line,) = [line for text in blocks("bash") for line in text.splitlines() if "polite" in line]
    try:
        with truth.server().running() as url:
            done = ragmeter(*[word.replace(ADDRESS, url) for word in shlex.split(line)[1:]], "--json")
    finally:
        JUDGES._entries.clear()
        JUDGES._entries.update(before)
    assert done.code == 0, done.err
    assert {row["metric"].partition("(")[0] for row in json.loads(done.out)} == {"polite"}
    assert {row["value"] for row in json.loads(done.out)} == {1.0}
    assert truth.unrecognized == 0

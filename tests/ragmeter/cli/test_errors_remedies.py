"""Suggestions for wrong names, and final messages of commands."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import pytest

from benchmarks.core import errors
from benchmarks.core.errors import MissingPackage, UserError
from ragmeter.cli import doctor
from ragmeter.cli.config_options import given_options
from ragmeter.plan.show import dollars
from ragmeter.runner.rewriting import judge_of
from results.store import queries, tags

Command = Callable[..., Any]
KEY = "sk-abcdefghijklmnopqrstuvwxyz123456"


def test_error_for_an_unscored_metric_suggests_scoring_it(ragmeter: Command) -> None:
    for line in (
        ("results", "--metric", "mrr@10"),
        ("results", "compare", "bm25", "random", "--metric", "mrr@10"),
        ("gate", "--baseline", "bm25", "--candidate", "random", "--metric", "mrr@10", "--margin", "1pp"),
    ):
        done = ragmeter(*line)
        assert done.code == 2, line
        assert "ragmeter judge score --metric 'mrr@10'" in done.err, line
    done = ragmeter("results", "--metric", "f11")
    assert "judge score" not in done.err
    assert "unknown stored metric 'f11'" in done.err


def test_gate_error_lists_each_scored_metric_once(ragmeter: Command) -> None:
    done = ragmeter("gate", "--baseline", "bm25", "--candidate", "random", "--metric", "zzz", "--margin", "1pp")
    assert done.code == 2
    assert done.err.count("em(rules=squad)#v2") == 1


@pytest.mark.slow
def test_error_suggests_run_names_and_hashes_for_a_hash(ragmeter: Command, store: Any) -> None:
    response = ragmeter("results", "compare", "nothing-like-it", "bm25").err
    first = min(row.path for row in queries.runs(store))
    assert first in response
    run = queries.runs(store)[0].run
    assert run not in response
    wrong = run[:-2] + ("00" if run[-2:] != "00" else "11")
    for find in (queries.find_run, tags.find_run):
        with pytest.raises(UserError) as caught:
            find(store, wrong)
        assert f"did you mean {run!r}?" in str(caught.value.try_this)


def test_deletion_requires_confirmation(ragmeter: Command) -> None:
    done = ragmeter("store", "prune", "--orphans")
    assert done.code == 0
    assert (done.out + done.err).count("no run to delete") == 1
    done = ragmeter("store", "prune", "bm25")
    assert "nothing was deleted; --yes deletes these" in done.out


@pytest.mark.slow
def test_report_that_takes_the_place_of_another_is_announced(ragmeter: Command, tmp_path: Path) -> None:
    output = tmp_path / "keep.html"
    assert "replaced" not in ragmeter("results", "report", "-o", str(output)).out
    again = ragmeter("results", "report", "-o", str(output))
    assert (again.code, "(replaced)" in again.out) == (0, True)


@pytest.mark.parametrize(
    "option",
    [
        KEY,
        f"{KEY}=1",
        f"repetitions={KEY}",
        f"llm={KEY}",
        f"llm.{KEY}=1",
        f"llm.key_variable={KEY}",
        f"llm.base_url=http://user:{KEY}@host",
    ],
)
def test_api_key_in_option_set_is_never_printed(option: str) -> None:
    with pytest.raises(UserError) as caught:
        judge_of("match", given_options(None, ["llm.model=m", option]))
    assert "abcdefghijklm" not in str(caught.value)


def test_small_dollar_amounts_are_not_rounded_to_zero() -> None:
    assert [dollars(value) for value in (0.0037, 0.01, 1234.5)] == ["<0.01", "0.01", "1,234.50"]


def test_doctor_and_errors_suggest_working_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def remedies() -> dict[str, str]:
        return {finding.what.removeprefix("extra "): finding.remedy for finding in doctor._extras()}

    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    results = remedies()
    assert {"notebook", "ann"} <= set(results)
    assert all("pip install '.[" in remedy and "-c constraints.txt" in remedy for remedy in results.values())
    # An installed wheel has no pyproject.toml next to it.
    monkeypatch.setattr(errors, "HOME", tmp_path)
    results = remedies()
    assert results["ann"].startswith("pip install 'faiss-cpu")
    assert "'openai" in results["grounding"], "an extra's own extras come along"
    assert not any("ragmeter" in remedy for remedy in results.values())
    assert {extra: MissingPackage("it", extra, "this").try_this for extra in results} == results


def installed_with(requirement: str, extras: dict[str, list[str]]) -> Iterator[str]:
    """Yield the names of the packages that a requirement installs, its own requirements included."""
    name, named = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", requirement).groups()  # type: ignore[union-attr]
    if name == "ragmeter":
        for extra in named.split(","):
            for inner in extras[extra]:
                yield from installed_with(inner, extras)
        return
    pending, seen = [name], set[str]()
    while pending:
        plain = re.sub(r"[-_.]+", "-", pending.pop()).lower()
        if plain in seen:
            continue
        seen.add(plain)
        try:
            lines = requires(plain) or []
        except PackageNotFoundError:
            continue
        pending += [re.match(r"[\w.-]+", line)[0] for line in lines if "extra ==" not in line]  # type: ignore[index]
    yield from seen


def test_extra_that_an_error_names_installs_the_missing_package() -> None:
    extras = tomllib.loads((errors.HOME / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = set[tuple[str, str]]()
    for package in ("benchmarks", "methods", "judges", "results", "leaderboard", "ragmeter"):
        for file in (errors.HOME / package).rglob("*.py"):
            pairs = re.findall(r'MissingPackage\((?:error\.name or )?"([\w-]+)", "(\w+)"', file.read_text("utf-8"))
            named |= {(missing.lower().replace("_", "-"), extra) for missing, extra in pairs}
    assert len(named) > 15
    provided = {extra: {name for line in extras[extra] for name in installed_with(line, extras)} for _, extra in named}
    assert [pair for pair in sorted(named) if pair[0] not in provided[pair[1]]] == []

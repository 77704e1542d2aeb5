"""Which runs are one system: those of one name that are made of the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from results.boards.systems import System, key_of, systems
from results.store.queries import RunRow
from results.store.variants import style_of_name

DAY = datetime(2026, 3, 1)


def run(number: int, name: str = "ours", method: str = "bm25", k: int = 5, experiment: str = "e", **facts: Any) -> RunRow:
    described = {
        "method": {"id": method, "config": {"seed": number}, "weights": None},
        "reader": None,
        "k": k,
        "reading": {"prompt": f"of benchmark {number}"},
    }
    plain = RunRow(f"{number:016x}"[::-1], experiment, name, method, "retriever", "nq:test", "f" * 16, "distractor", 0,
                   10, 10, 0, "finished", None, DAY, DAY, "run", described, {}, {}, None, None, style_of_name("nq:test"))  # fmt: skip
    return replace(plain, **facts)


def sent(number: int, name: str) -> RunRow:
    return run(number, name, f"submitted:{name}", experiment="-", origin="submitted", description={"submission": name}, card={"models": []})


def rows(**columns: list[RunRow]) -> list[System]:
    return systems(columns, {}, {})


def names_of(results: list[System]) -> dict[str, list[str]]:
    assert len({row.name for row in results}) == len({row.key for row in results}) == len(results)
    return {row.name: sorted(row.runs) for row in results}


def test_pipelines_of_one_name_are_distinguished_by_their_methods() -> None:
    results = rows(a=[run(1, experiment="x")], b=[run(2, method="dense", k=50, experiment="y")], c=[run(3, "other")])
    assert names_of(results) == {"ours · bm25": ["a"], "ours · dense": ["b"], "other": ["c"]}
    assert results[2].key == key_of("other")
    assert key_of("ours") not in {row.key for row in results}


def test_pipelines_of_one_method_are_distinguished_by_their_experiments_and_else_by_a_run() -> None:
    assert names_of(rows(a=[run(1, experiment="x")], b=[run(2, k=50, experiment="y")])) == {"ours · x": ["a"], "ours · y": ["b"]}
    first, second = run(1, experiment="-"), run(2, k=50, experiment="-")
    assert names_of(rows(a=[first], b=[second])) == {f"ours · {first.run[:8]}": ["a"], f"ours · {second.run[:8]}": ["b"]}


def test_a_name_that_somebody_has_is_not_given_again() -> None:
    result = rows(a=[run(1, experiment="x")], b=[run(2, method="dense", experiment="y")], c=[run(3, "ours · bm25")])
    assert names_of(result) == {"ours · x": ["a"], "ours · y": ["b"], "ours · bm25": ["c"]}


def test_one_pipeline_is_one_system_in_whatever_experiments_and_under_its_own_key() -> None:
    result = rows(a=[run(1, experiment="x")], b=[run(2, experiment="y")], c=[run(3, experiment="-")])
    assert names_of(result) == {"ours": ["a", "b", "c"]}
    assert result[0].key == key_of("ours")


def test_within_an_experiment_a_name_is_one_system_whichever_training_seed_stands_for_it() -> None:
    weights = [{"method": {"id": "sark", "config": {"model": f"seed-{seed}"}, "weights": str(seed)}} for seed in (0, 1)]
    result = rows(a=[run(1, description=weights[0])], b=[run(2, description=weights[1])])
    assert names_of(result) == {"ours": ["a", "b"]}
    apart = rows(a=[run(1, description=weights[0], experiment="x")], b=[run(2, description=weights[1])])
    assert len(names_of(apart)) == 2


def test_one_pipeline_twice_in_a_column_is_two_systems() -> None:
    again = run(17)
    assert names_of(rows(a=[run(1), again], b=[run(2)])) == {"ours": ["a", "b"], f"ours · {again.run[:8]}": ["a"]}


def test_submissions_keep_name_and_version_and_never_merge_with_own_runs() -> None:
    results = rows(a=[sent(1, "ours@1")], b=[run(2, "ours@1")], c=[sent(3, "ours@1")])
    assert names_of(results) == {"ours@1": ["a", "c"], "ours@1 · bm25": ["b"]}
    assert next(row for row in results if row.name == "ours@1").key == key_of("ours@1")

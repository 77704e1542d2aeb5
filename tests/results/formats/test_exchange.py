"""Parquet out and in, merging, pruning, vacuum: no row lost, none doubled."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.schema import Passage
from judges.judge import AS_GIVEN, FIRST, SECOND, SWAPPED, TIE, Judge, JudgeCall, Parsed, Score
from methods.api import CAUSE, CODE, FAILED, Call, Evidence, Prediction, Usage
from results.formats import exchange, pruning
from results.judging import judgments
from results.judging.judgments import Match
from results.judging.labels import labels, standing
from results.store import queries
from results.store.annotations import with_present
from results.store.invariants import check_run, violations
from results.store.rows import insert
from results.store.store import BY_RUN, FINISHED, INCOMPLETE, INTERRUPTED, RUNNING, Run, Store, fingerprint_of
from tests.support.errors import raises
from tests.support.stores import change_answer, score_again

METRIC = "em(rules=squad)#v2"
QUESTIONS = 6


def run_of(name: str) -> Run:
    return Run(name, name, "bm25", "retriever", {"id": name}, "toy:dev", "d1", "corpus", 0, QUESTIONS, {}, {"python": "3"})


def fill(store: Store, name: str, numbers: Sequence[int], *, failed: bool = False, metric: str = METRIC, status: str | None = None) -> None:
    """Answer questions of a run; question n scores n / 10."""
    store.start(run_of(name))
    responses = [
        Prediction(
            f"q{n}",
            "" if failed else f"{name} {n}",
            (Evidence(f"p{n}", 1.0),),
            Usage(),
            {FAILED: "cut"} if failed else {},
            tuple(Call("reader", f"{step}", f"{name} {n}", "cut" if failed else "yes", failed=failed) for step in range(n % 3)),
        )
        for n in numbers
    ]
    values = np.zeros(len(numbers)) if failed else np.array(numbers, float) / 10
    store.append(name, responses, {metric: values}, [Passage(f"p{n}", "T", "x") for n in numbers])
    if status is not None or len(store.finished_questions(name)) == QUESTIONS:
        store.end(name, status or FINISHED)


def rows(store: Store, table: str) -> list[tuple[object, ...]]:
    with store.database.reading() as connection:
        return connection.execute(f"FROM {table} ORDER BY ALL").fetchall()


def content(store: Store) -> dict[str, list[tuple[object, ...]]]:
    """All that runs wrote; means without the last bit, which depends on the order of adding."""
    with store.database.reading():
        results = {table: rows(store, table) for table in (*BY_RUN, "passages")}
    results["summaries"] = [tuple(round(value, 12) if isinstance(value, float) else value for value in row) for row in results["summaries"]]
    return results


def summary(store: Store, run: str, metric: str = METRIC) -> tuple[object, ...]:
    query = "SELECT scored, n, mean, variance FROM summaries WHERE run = ? AND metric = ?"
    with store.database.reading() as connection:
        return connection.execute(query, [run, metric]).fetchone() or ()


@pytest.mark.slow
def test_an_export_merged_into_an_empty_store_is_the_store(tmp_path: Path) -> None:
    store, copy = Store(tmp_path / "a"), Store(tmp_path / "b")
    fill(store, "r1", range(QUESTIONS))
    fill(store, "r2", range(3))
    store.put_experiment("e", "name: e", None, None, "r1", ["r1", "r2"], metrics=[[METRIC], [METRIC]])
    counted = exchange.export(store, tmp_path / "out")
    assert counted["predictions"] == QUESTIONS + 3
    assert exchange.merge(copy, tmp_path / "out") == exchange.Merged(2, 0, QUESTIONS + 3)
    assert content(copy) == content(store)
    assert [run.status for run in queries.runs(copy, "e")] == [FINISHED, RUNNING]
    assert queries.runs(copy, "e")[0].environment == {"python": "3"}
    assert queries.runs(copy, "e")[0].metrics == (METRIC,)


def test_export_of_schema_9_imports_its_clusters(tmp_path: Path) -> None:
    store, copy, old = Store(tmp_path / "a"), Store(tmp_path / "b"), tmp_path / "old"
    fill(store, "r1", [0])
    with store.database.writing() as connection:
        connection.execute("UPDATE runs SET cluster = 'topic'")
        connection.execute("INSERT INTO experiment_runs VALUES ('e', 0, 'r1', NULL, NULL, 'topic')")
        connection.execute("INSERT INTO datasets VALUES ('d1', 'toy:dev', '{}', 1, 0, '{}', 'document', [])")
        connection.execute("INSERT INTO clusters VALUES ('d1', 'document', 'q0', 'x')")
    exchange.export(store, old)
    manifest = json.loads((old / exchange.MANIFEST).read_text("utf-8"))
    manifest |= {"schema": 9, "rows": {{"clusters": "units"}.get(name, name): count for name, count in manifest["rows"].items()}}
    del manifest["runs"]
    (old / exchange.MANIFEST).write_text(json.dumps(manifest), "utf-8")
    for now, then in {"runs": "runs", "datasets": "datasets", "clusters": "units"}.items():
        rows_then = duckdb.sql(f"SELECT * RENAME (cluster AS unit) FROM '{old / now}.parquet'").to_arrow_table()
        (old / f"{now}.parquet").unlink()
        pq.write_table(rows_then, old / f"{then}.parquet")
    members = old / "experiment_runs.parquet"
    pq.write_table(pq.read_table(members).drop_columns("cluster"), members)
    exchange.merge(copy, old)
    for table in ("runs", "experiment_runs", "datasets", "clusters"):
        assert rows(copy, table) == rows(store, table)


@pytest.mark.slow
def test_merging_twice_changes_nothing(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    fill(store, "r1", [0, 1])
    fill(other, "r1", [1, 2, 3])
    exchange.merge(store, other.folder)
    before = content(store)
    assert exchange.merge(store, other.folder) == exchange.Merged(0, 0, 0)
    assert content(store) == before


@pytest.mark.slow
def test_halves_of_a_run_become_a_whole_finished_one(tmp_path: Path) -> None:
    store, other, whole = Store(tmp_path / "a"), Store(tmp_path / "b"), Store(tmp_path / "c")
    fill(store, "r1", [0, 2, 4])
    fill(other, "r1", [1, 3, 5])
    fill(whole, "r1", range(QUESTIONS))
    assert exchange.merge(store, other.folder) == exchange.Merged(0, 1, 3)
    assert content(store) == content(whole)
    assert store.status("r1") == FINISHED


@pytest.mark.slow
def test_an_answer_replaces_a_failure_and_never_the_other_way_round(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    fill(store, "r1", [1], failed=True)
    fill(store, "r1", [2])
    fill(other, "r1", [1])
    fill(other, "r1", [2], failed=True)
    exchange.merge(store, other.folder)
    assert [prediction.answer for prediction in store.predictions("r1") if not prediction.notes.get(FAILED)] == ["r1 1", "r1 2"]
    assert summary(store, "r1")[:3] == (2, 2, pytest.approx(0.15))


@pytest.mark.slow
@pytest.mark.parametrize("there", [range(3), range(QUESTIONS)])
def test_unfinished_run_is_not_completed_by_other_answers(tmp_path: Path, there: Sequence[int]) -> None:
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    fill(store, "r1", [0, 1])
    fill(other, "r1", there)
    change_answer(other, "r1", "q1", "another")
    merged = exchange.merge(store, other.folder)
    assert (merged.new_runs, merged.completed_runs, merged.separate) == (1, 0, 1)
    assert [prediction.answer for prediction in store.predictions("r1")] == ["r1 0", "r1 1"]
    (id_,) = {row.run for row in queries.runs(store)} - {"r1"}
    assert [prediction.answer for prediction in store.predictions(id_)] == ["r1 0", "another", *(f"r1 {n}" for n in there[2:])]
    assert len(merged.in_words()) == 1 + len(merged.scores.in_words())


def test_answers_that_a_finished_run_does_not_take_are_counted(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    fill(store, "r1", range(QUESTIONS))
    fill(other, "r1", [0, 1])
    fill(other, "r1", [2], failed=True)
    change_answer(other, "r1", "q1", "another")
    merged = exchange.merge(store, other.folder)
    assert (merged.new_runs, merged.separate, merged.dropped) == (0, 0, 1)
    assert [prediction.answer for prediction in store.predictions("r1")] == [f"r1 {n}" for n in range(QUESTIONS)]
    assert len(merged.in_words()) == 1 + len(merged.scores.in_words())


def statuses(store: Store) -> dict[str, str]:
    """By the part of a run's id before the token: its status."""
    return {fingerprint_of(run.run): run.status for run in queries.runs(store)}


@pytest.mark.parametrize("begun_here", [False, True])
def test_merge_does_not_finish_a_run_whose_failures_make_it_incomplete(tmp_path: Path, begun_here: bool) -> None:
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    fill(other, "failed", range(QUESTIONS), failed=True, status=INCOMPLETE)
    fill(other, "accepted", range(QUESTIONS), failed=True)
    fill(other, "code", range(1, QUESTIONS), status=INCOMPLETE)
    fault = Prediction("q0", "", (), Usage(), {FAILED: "ValueError: x", CAUSE: CODE})
    other.append("code", [fault], {METRIC: np.zeros(1)})
    fill(store, "here", [0])
    if begun_here:
        for name in ("failed", "accepted", "code"):
            fill(store, name, [1], failed=name != "code", status=INTERRUPTED)
    exchange.merge(store, tmp_path / "b")
    assert statuses(store) == {"failed": INCOMPLETE, "accepted": FINISHED, "code": INCOMPLETE, "here": RUNNING}


def test_answers_of_the_other_store_finish_an_incomplete_run(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    fill(store, "r", range(QUESTIONS), failed=True, status=INCOMPLETE)
    fill(other, "r", range(QUESTIONS), status=INTERRUPTED)
    exchange.merge(store, tmp_path / "b")
    assert statuses(store) == {"r": FINISHED}


@pytest.mark.parametrize("here", [range(3), range(QUESTIONS)])
def test_runs_without_answers_that_found_other_passages_are_kept_apart(tmp_path: Path, here: Sequence[int]) -> None:
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    for one, numbers, first in ((store, here, 0), (other, range(QUESTIONS), 1)):
        one.start(run_of("r"))
        responses = [Prediction(f"q{n}", "", (Evidence(f"p{n + first}", 1.0), Evidence("p", 0.5)), Usage(), {}) for n in numbers]
        one.append("r", responses, {METRIC: np.full(len(numbers), first)}, [Passage(f"p{n}", "T", "x") for n in range(QUESTIONS + 1)])
        if len(numbers) == QUESTIONS:
            one.end("r", FINISHED)
    before = rows(store, "evidence")
    assert exchange.merge(store, tmp_path / "b").separate == 1
    assert set(before) < set(rows(store, "evidence"))
    assert sorted(run.done for run in queries.runs(store)) == sorted([len(here), QUESTIONS])


@pytest.mark.slow
def test_runs_that_only_the_source_shows_in_an_experiment_are_counted(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    for place, names in ((store, ("r1", "r2")), (other, ("r1", "r3"))):
        for name in names:
            fill(place, name, range(QUESTIONS))
        with place.database.writing() as connection:
            connection.execute("INSERT INTO experiments VALUES ('e', 'name: e', NULL, NULL, NULL, NULL, now())")
            for position, name in enumerate(names):
                connection.execute("INSERT INTO experiment_runs VALUES ('e', ?, ?, NULL, NULL, NULL)", [position, name])
    merged = exchange.merge(store, other.folder)
    assert (merged.not_shown, len(merged.in_words())) == ({"e": 1}, 1 + len(merged.scores.in_words()))
    assert exchange.merge(Store(tmp_path / "c"), other.folder).not_shown == {}


@pytest.mark.slow
def test_scores_of_further_metrics_come_along(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    fill(store, "r1", [1])
    fill(other, "r1", [1], metric="recall@5#v2")
    exchange.merge(store, other.folder)
    assert store.scored("r1") == {METRIC: 1, "recall@5#v2": 1}


@pytest.mark.slow
@given(
    left=st.lists(st.integers(0, QUESTIONS - 1), unique=True, min_size=1),
    right=st.lists(st.integers(0, QUESTIONS - 1), unique=True, min_size=1),
)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_two_parts_of_a_run_merge_to_their_union(tmp_path_factory: pytest.TempPathFactory, left: list[int], right: list[int]) -> None:
    folder = tmp_path_factory.mktemp("union")
    store, other, union = Store(folder / "a"), Store(folder / "b"), Store(folder / "c")
    fill(store, "r1", left)
    fill(other, "r1", right)
    fill(union, "r1", sorted({*left, *right}))
    exchange.merge(store, other.folder)
    assert content(store) == content(union)


def test_summaries_are_the_aggregates_of_the_rows(store: Store) -> None:
    fill(store, "r1", [1, 2, 6])
    store.put_scores("r1", ["q1", "q2", "q6"], {"other#v1": np.array([0.5, np.nan, 1.0])})
    assert summary(store, "r1", "other#v1") == (3, 2, 0.75, 0.125)


@pytest.mark.slow
def test_some_runs_can_be_exported_with_what_belongs_to_them(tmp_path: Path) -> None:
    store, copy = Store(tmp_path / "a"), Store(tmp_path / "b")
    fill(store, "r1", [1])
    fill(store, "r2", [2])
    exchange.export(store, tmp_path / "out", ["r2"])
    exchange.merge(copy, tmp_path / "out")
    assert [run.run for run in queries.runs(copy)] == ["r2"]
    assert [row[0] for row in rows(copy, "passages")] == ["p2"]


def test_what_is_no_store_and_what_would_be_overwritten_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "a")
    fill(store, "r1", [1])
    with raises("not-store-or-export"):
        exchange.merge(store, tmp_path)
    with raises("target-is-the-store"):
        exchange.merge(store, store.folder)
    with raises("folder-not-empty"):
        exchange.export(store, store.folder)
    with raises("unknown-run"):
        exchange.export(store, tmp_path / "out", ["r9"])
    with raises("unreadable-store"):
        exchange.export(Store(tmp_path / "nowhere"), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["a"], "nothing half made is left"
    exchange.export(store, tmp_path / "out")
    (tmp_path / "out" / "scores.parquet").unlink()
    with raises("export-table-missing"):
        exchange.merge(store, tmp_path / "out")
    (tmp_path / "out" / exchange.MANIFEST).write_text('{"format": 1, "schema": 99, "rows": {}}')
    with raises("export-too-new"):
        exchange.merge(store, tmp_path / "out")


@pytest.mark.slow
def test_pruning_takes_a_run_with_what_only_it_needed(store: Store) -> None:
    fill(store, "r1", [1, 2])
    fill(store, "r2", [2, 3])
    gone = pruning.prune(store, ["r1"])
    assert (gone.runs, gone.passages) == (1, 1)
    assert [run.run for run in queries.runs(store)] == ["r2"]
    assert [row[0] for row in rows(store, "passages")] == ["p2", "p3"]
    assert {row[0] for table in BY_RUN for row in rows(store, table)} == {"r2"}


@pytest.mark.slow
def test_orphans_are_runs_that_nothing_names(store: Store) -> None:
    for name in ("shown", "tagged", "lost"):
        fill(store, name, [1])
    store.put_experiment("e", "name: e", None, None, None, ["shown"])
    with store.database.writing() as connection:
        connection.execute("INSERT INTO tags VALUES ('main', 'tagged', NULL, NULL, now()::TIMESTAMP)")
    assert [run.run for run in pruning.orphans(store, queries.runs(store))] == ["lost"]


@pytest.mark.slow
def test_vacuum_shrinks_the_file_and_keeps_every_row(store: Store) -> None:
    run = run_of("big")
    store.start(run)
    responses = [Prediction(f"q{n}", f"{n} " * 50, (), Usage()) for n in range(20_000)]
    store.append("big", responses, {METRIC: np.zeros(len(responses))})
    fill(store, "r1", range(QUESTIONS))
    store.forget("big")
    before_rows = content(store)
    before, after = pruning.vacuum(store.database)
    assert after < before / 2
    assert content(store) == before_rows
    fill(store, "r2", [1])
    assert len(queries.runs(store)) == 2


MATCH = Judge.of("match", {"llm": {"model": "m"}})
PAIRWISE = Judge.of("pairwise", {"llm": {"model": "m"}, "repetitions": 1})
Judged = Callable[[Store], Store]
JUDGED = ("judges", "judge_calls", "scores", "battle_calls", "battles", "annotations")
PAIR = Match("d1", "corpus", "r1", "r2")


def judge_match(store: Store, run: str, number: int, value: float | None) -> None:
    """Let the match judge say something of a question; None: it failed."""
    parsed = Parsed(None, "no verdict") if value is None else Parsed({"verdict": f"worth {value}"})
    score = Score(value, parsed.unscored)
    judgments.put_judge(store, MATCH)
    judgments.put_judgments(
        store, run, MATCH, [f"q{number}"], [[JudgeCall("match", 0, f"k{number}", parsed, "m")]], [dict.fromkeys(MATCH.metrics, score)]
    )


def judge_pair(store: Store, number: int, verdict: str) -> None:
    calls = [JudgeCall(part, 0, f"p{number}", Parsed({"said": verdict}), "m") for part in (AS_GIVEN, SWAPPED)]
    response = [dict.fromkeys(PAIRWISE.entry.criteria, verdict)] * 2
    judgments.put_judge(store, PAIRWISE)
    judgments.put_battles(store, PAIR, PAIRWISE, [f"q{number}"], [calls], [response])


def label(store: Store, number: int, other: str | None, response: str, annotator: str = "ann") -> None:
    """Let a person say something of what is answered at present."""
    with store.database.writing() as connection:
        known = connection.execute("SELECT 1 FROM questions WHERE question = ?", [f"q{number}"]).fetchone()
        if not known:
            insert(connection, "questions", {"dataset_fingerprint": ["d1"], "question": [f"q{number}"],
                   "position": [number], "text": ["?"], "answers": [[]], "golds": [[]], "evidence": [[]],
                   "supporting_facts": [[]], "type": [""], "document_id": [None], "record": ["{}"]})  # fmt: skip
        item = f"(SELECT 'd1' AS dataset_fingerprint, 'q{number}' AS question, 'r1' AS one, ?::VARCHAR AS other)"
        connection.execute(
            f"""INSERT INTO annotations SELECT dataset_fingerprint, 'corpus', question, one, other, 'overall', ?, ?, '',
                now()::TIMESTAMP, present FROM ({with_present(item)})""",
            [annotator, response, other],
        )


def with_judgments(store: Store) -> None:
    """Two runs, of which judges and people have said something."""
    for run in ("r1", "r2"):
        fill(store, run, range(3))
        judge_match(store, run, 0, 1.0)
        judge_match(store, run, 1, None)
    judge_pair(store, 0, FIRST)
    judge_pair(store, 1, TIE)
    label(store, 0, "r2", "one")
    label(store, 0, None, "right")


@pytest.fixture
def judged(once: Callable[..., None]) -> Judged:
    def fill(store: Store) -> Store:
        once(store, by=with_judgments)
        return store

    return fill


def said(store: Store) -> dict[str, list[tuple[object, ...]]]:
    with store.database.reading():
        return {table: rows(store, table) for table in JUDGED}


@pytest.mark.slow
def test_judgments_battles_and_labels_survive_an_export(judged: Judged, tmp_path: Path) -> None:
    store, copy = judged(Store(tmp_path / "a")), Store(tmp_path / "b")
    exchange.export(store, tmp_path / "out")
    exchange.merge(copy, tmp_path / "out")
    assert said(copy) == said(store)
    assert all(said(copy).values())
    assert content(copy) == content(store)
    before = said(store)
    exchange.merge(store, copy.folder)
    assert said(store) == before


@pytest.mark.slow
def test_an_export_of_one_run_takes_no_battle_with_another_along(judged: Judged, tmp_path: Path) -> None:
    store, copy = judged(Store(tmp_path / "a")), Store(tmp_path / "b")
    exchange.export(store, tmp_path / "out", ["r1"])
    exchange.merge(copy, tmp_path / "out")
    assert rows(copy, "battles") == rows(copy, "battle_calls") == []
    assert [row[5] for row in rows(copy, "annotations")] == ["overall"]
    assert judgments.judged(copy, "r1", MATCH) == {"q0", "q1"}
    assert judgments.judged_runs(copy, str(MATCH)) == ["r1"]


@pytest.mark.slow
def test_judges_of_two_stores_come_together(judged: Judged, tmp_path: Path) -> None:
    store, other = judged(Store(tmp_path / "a")), Store(tmp_path / "b")
    for run in ("r1", "r2"):
        fill(other, run, range(3))
    judge_match(other, "r1", 0, 0.0)  # judged here too: what is here stays
    judge_match(other, "r1", 2, 0.0)
    judge_pair(other, 0, SECOND)
    judge_pair(other, 2, SECOND)
    label(other, 0, "r2", "other")
    label(other, 0, "r2", "other", "bob")
    exchange.merge(store, other.folder)
    result = judgments.scores(store, "r1", str(MATCH))
    assert {question: score["accuracy"].value for question, score in result.items()} == {"q0": 1.0, "q1": None, "q2": 0.0}
    assert judgments.calls(store, "r1", str(MATCH))["q0"][0].parsed.value == {"verdict": "worth 1.0"}
    battles = judgments.battles(store, "d1", "corpus", str(PAIRWISE))
    assert len(battles) == 3 * 2 * len(PAIRWISE.entry.criteria)
    assert {battle.verdict for battle in battles if battle.question == "q1"} == {TIE}
    assert sorted((row[6], row[7]) for row in rows(store, "annotations") if row[4]) == [("ann", "one"), ("bob", "other")]


@pytest.mark.slow
def test_calls_of_two_judgings_are_never_mixed(judged: Judged, tmp_path: Path) -> None:
    store, other = judged(Store(tmp_path / "a")), judged(Store(tmp_path / "b"))
    parsed = Parsed({"verdict": "x"})
    again = [JudgeCall("match", repetition, "k9", parsed, "m") for repetition in range(3)]
    judgments.put_judgments(other, "r1", MATCH, ["q0"], [again], [{name: Score(0.0) for name in MATCH.metrics}])
    exchange.merge(store, other.folder)
    assert len(judgments.calls(store, "r1", str(MATCH))["q0"]) == 1


@pytest.mark.slow
def test_what_was_said_of_a_failure_goes_when_the_answer_comes(judged: Judged, tmp_path: Path) -> None:
    store, other = Store(tmp_path / "a"), judged(Store(tmp_path / "b"))
    fill(store, "r1", [0, 1], failed=True)
    fill(store, "r2", [0, 1])
    judge_match(store, "r1", 0, 0.0)
    judge_pair(store, 0, SECOND)
    label(store, 0, None, "wrong", "bob")
    exchange.merge(store, other.folder)
    assert judgments.scores(store, "r1", str(MATCH))["q0"]["accuracy"].value == 1.0
    mine = {battle.part: battle.verdict for battle in judgments.battles(store, "d1", "corpus", str(PAIRWISE)) if battle.question == "q0"}
    assert mine == {AS_GIVEN: "one", SWAPPED: "other"}
    assert "bob" not in {label.annotator for label in labels(store)}
    assert standing(store) == (2, 1)  # of a failure people said something, too


@pytest.mark.slow
def test_what_is_said_elsewhere_of_a_failure_is_not_taken_for_the_answer_here(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    for run in ("r1", "r2"):
        fill(store, run, [0])
        fill(other, run, [0], failed=run == "r1", metric="cover_em#v1")
        judge_match(other, run, 0, 0.0)
    judge_pair(other, 0, SECOND)
    label(other, 0, None, "wrong")
    exchange.merge(store, other.folder)
    assert judgments.judged(store, "r1", MATCH) == set()
    assert judgments.judged(store, "r2", MATCH) == {"q0"}
    assert store.scored("r1") == {METRIC: 1}
    assert store.scored("r2").keys() >= {METRIC, "cover_em#v1"}
    assert rows(store, "battles") == labels(store) == []
    assert standing(store) == (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("old", [False, True])
def test_a_label_from_elsewhere_counts_where_the_answer_is_the_same(tmp_path: Path, old: bool) -> None:
    """Those of an export that does not say what was labeled were about what was said there."""
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    fill(other, "r1", [0, 1])
    label(other, 0, None, "right")
    label(other, 1, None, "right")
    fill(store, "r1", [0, 1])
    change_answer(store, "r1", "q1", "another answer")
    exchange.export(other, tmp_path / "out")
    if old:
        manifest = json.loads((tmp_path / "out" / exchange.MANIFEST).read_text())
        (tmp_path / "out" / exchange.MANIFEST).write_text(json.dumps({key: manifest[key] for key in manifest if key != "runs"}))
        path = tmp_path / "out" / "annotations.parquet"
        with duckdb.connect() as connection:
            connection.execute(f"CREATE TABLE t AS SELECT * EXCLUDE (labeled) FROM '{path}'")
            connection.execute(f"COPY t TO '{path}'")
    exchange.merge(store, tmp_path / "out")
    assert [label.question for label in labels(store)] == ["q0"]
    assert standing(store) == (1, 1)


@pytest.mark.slow
def test_an_export_of_an_older_ragmeter_merges_into_a_judged_store(judged: Judged, tmp_path: Path) -> None:
    """As version 2 wrote it: without unscored, record and judge; with two tables that were never used."""
    store, older = judged(Store(tmp_path / "a")), judged(Store(tmp_path / "b"))
    fill(older, "r3", range(QUESTIONS))
    folder = tmp_path / "out"
    exchange.export(older, folder)
    without = {"scores": "unscored", "summaries": "unscored", "metrics": "judge", "questions": "record"}
    with duckdb.connect() as connection:
        for table, column in without.items():
            path = folder / f"{table}.parquet"
            connection.execute(f"CREATE OR REPLACE TABLE t AS SELECT * EXCLUDE ({column}) FROM '{path}'")
            connection.execute(f"COPY t TO '{path}'")
        for table in ("judge_calls", "battles"):
            connection.execute(f"COPY (SELECT 'x' AS never_written WHERE false) TO '{folder / table}.parquet'")
    manifest = json.loads((folder / exchange.MANIFEST).read_text())
    kept = {name: n for name, n in manifest["rows"].items() if name not in {"judges", "battle_calls", "annotations", "violations", "calls"}}
    (folder / exchange.MANIFEST).write_text(json.dumps({"format": manifest["format"], "schema": 2, "rows": kept}))
    before = said(store)
    exchange.merge(store, folder)
    assert store.status("r3") == FINISHED
    assert {table: said(store)[table] for table in JUDGED if table != "scores"} == {
        table: before[table] for table in JUDGED if table != "scores"
    }
    assert set(before["scores"]) < set(said(store)["scores"])


@pytest.mark.slow
def test_a_violation_of_half_a_run_is_not_one_of_the_whole(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    fill(store, "r1", [0, 2])
    score_again(store, "r1", ["q0"], {METRIC: np.array([7.0])})
    fill(other, "r1", [1, 3])
    assert check_run(store, "r1")
    exchange.merge(other, store.folder)
    (what,) = violations(other, ["r1"])["r1"]
    assert "for 1 question, first in row 0" in what
    score_again(store, "r1", ["q0"], {METRIC: np.array([0.0])})
    exchange.merge(store, other.folder)
    assert violations(store, ["r1"]) == {}


@pytest.mark.slow
def test_pruning_takes_what_was_said_of_a_run(judged: Judged, store: Store) -> None:
    judged(store)
    pruning.prune(store, ["r1"])
    assert rows(store, "battles") == rows(store, "battle_calls") == labels(store) == []
    assert standing(store) == (0, 2)  # people's work is kept
    assert judgments.judged_runs(store, str(MATCH)) == ["r2"]
    assert {row[0] for table in BY_RUN for row in rows(store, table)} == {"r2"}

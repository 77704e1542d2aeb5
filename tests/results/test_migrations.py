"""Older store files open, newer and foreign ones are refused, and nothing is lost on the way."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

import duckdb
import pytest

from benchmarks.errors import UserError
from benchmarks.schema import Question
from judges.judging import Judge, Score
from methods.api import Services
from results import judgements, migrations, queries, records
from results.database import FILE
from results.rows import complete_gold
from results.store import Store

OLD_RUN = ("r1", "bm25", "bm25", "retriever", "{}", "d:test", "f1", "corpus", 0, 2, "finished")


def version_one(folder: Path) -> Path:
    """A store file as schema version 1 had it, with one run of two questions."""
    folder.mkdir(parents=True)
    path = folder / FILE
    with duckdb.connect(str(path)) as connection:
        connection.execute(importlib.resources.files("results").joinpath("schema/0001.sql").read_text("utf-8"))
        connection.execute("INSERT INTO ragmeter_schema VALUES (1, now()::TIMESTAMP, '0.1')")
        connection.execute(
            "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, now()::TIMESTAMP, now()::TIMESTAMP, ?)",
            [*OLD_RUN, '{"python": "3.11.1"}'],
        )
        connection.execute("INSERT INTO experiments VALUES ('e', 'name: e', NULL, NULL, 'bm25', NULL, now()::TIMESTAMP)")
        connection.execute("INSERT INTO experiment_runs VALUES ('e', 0, 'r1', 'bm25')")
        for question, value in (("q1", 0.25), ("q2", None)):
            connection.execute("INSERT INTO predictions VALUES ('r1', ?, 'a', NULL, '{}')", [question])
            connection.execute("INSERT INTO scores VALUES ('r1', ?, 'em(rules=squad)#v1', ?)", [question, value])
    return path


def test_an_old_file_is_migrated_when_read_and_kept_as_a_backup(tmp_path: Path) -> None:
    path = version_one(tmp_path / "s")
    before = path.read_bytes()
    store = Store(tmp_path / "s")
    (run,) = queries.runs(store, "e")
    assert (run.run, run.origin, run.environment, run.provenance) == ("r1", "run", {"python": "3.11.1"}, {})
    assert run.done == 2
    assert queries.metric_ids(store, ["r1"]) == ["em(rules=squad)#v1"]
    with store.database.reading() as connection:
        assert connection.execute("SELECT scored, n, mean FROM summaries").fetchall() == [(2, 1, 0.25)]
        versions = connection.execute("SELECT version FROM ragmeter_schema ORDER BY 1").fetchall()
    assert versions == [(number,) for number in range(1, migrations.newest() + 1)]
    (backup,) = (tmp_path / "s").glob(f"{FILE}.v1-*")
    assert store.database.backup == backup
    assert backup.read_bytes() == before


def test_a_migrated_file_is_not_migrated_again(tmp_path: Path) -> None:
    version_one(tmp_path / "s")
    queries.runs(Store(tmp_path / "s"))
    queries.runs(Store(tmp_path / "s"))
    assert len(list((tmp_path / "s").glob(f"{FILE}.v1-*"))) == 1


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = version_one(tmp_path / "s")
    script = migrations.scripts()[1]
    monkeypatch.setattr(migrations, "scripts", lambda: (migrations_one, script + "SELECT nothing_such;"))
    with pytest.raises(UserError, match="schema version 1 to 2"):
        queries.runs(Store(tmp_path / "s"))
    with duckdb.connect(str(path), read_only=True) as connection:
        assert connection.execute("SELECT max(version) FROM ragmeter_schema").fetchone() == (1,)
        tables = {row[0] for row in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        assert "summaries" not in tables
        assert connection.execute("SELECT count(*) FROM scores").fetchone() == (2,)


migrations_one = migrations.scripts()[0]


def test_a_file_of_a_newer_ragmeter_is_refused_with_the_reason(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    with store.database.writing() as connection:
        connection.execute("INSERT INTO ragmeter_schema VALUES (99, now()::TIMESTAMP, '9.9')")
    with pytest.raises(UserError, match=r"version 99.*speaks") as found:
        queries.runs(Store(tmp_path / "s"))
    assert "9.9" in str(found.value)


def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / FILE
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE theirs (x INTEGER)")
    before = path.read_bytes()
    with pytest.raises(UserError, match="another program"):
        queries.runs(Store(tmp_path))
    with pytest.raises(UserError, match="another program"), Store(tmp_path).database.writing():
        pass
    assert path.read_bytes() == before


# -- version 2, before judges --------------------------------------------------------------------------------------


def version_two(folder: Path) -> Path:
    """A store file as schema version 2 had it: a run that was scored, with its gold as far as it was kept."""
    folder.mkdir(parents=True)
    path = folder / FILE
    with duckdb.connect(str(path)) as connection:
        for number, script in enumerate(migrations.scripts()[:2], start=1):
            connection.execute(script)
            connection.execute("INSERT INTO ragmeter_schema VALUES (?, now()::TIMESTAMP, '0.2')", [number])
        connection.execute(
            """INSERT INTO datasets VALUES ('f1', 'd:test', '{}', 2, 1, '{}');
               INSERT INTO questions BY NAME SELECT 'f1' AS dataset_fingerprint, 'q' || n AS question, n AS position,
                   'what?' AS text, ['ann'] AS answers, ['ann'] AS golds, [] AS evidence, [] AS supporting_facts,
                   '' AS type, NULL AS document_id FROM range(2) t(n);
               INSERT INTO runs BY NAME SELECT 'abcd' AS run, 'bm25' AS method, 'bm25' AS method_id,
                   'retriever' AS kind, '{}' AS description, 'd:test' AS dataset, 'f1' AS dataset_fingerprint,
                   'corpus' AS setting, 0 AS seed, 2 AS questions, 'finished' AS status,
                   now()::TIMESTAMP AS started_at, now()::TIMESTAMP AS updated_at, '{}' AS provenance, 'run' AS origin;
               INSERT INTO predictions SELECT 'abcd', 'q' || n, 'ann', NULL, '{}' FROM range(2) t(n);
               INSERT INTO usage BY NAME SELECT 'abcd' AS run, 'q' || n AS question, 0 AS prompt_tokens,
                   0 AS completion_tokens, 0 AS memory_tokens, 0 AS model_calls, 0.0 AS seconds, '{}' AS stages,
                   0 AS peak_memory_bytes, 0.0 AS cost_usd FROM range(2) t(n);
               INSERT INTO scores SELECT 'abcd', 'q' || n, 'em(rules=squad)#v1', CASE n WHEN 0 THEN 1.0 END
                   FROM range(2) t(n);
               INSERT INTO summaries SELECT 'abcd', 'em(rules=squad)#v1', 2, 1, 1.0, NULL;
               INSERT INTO metrics BY NAME SELECT 'em(rules=squad)#v1' AS id, 'equal' AS definition, 0.0 AS low,
                   1.0 AS high, true AS higher_is_better, 'answer' AS metric_group, 'squad' AS source;"""
        )
    return path


def test_scores_of_version_two_are_neither_lost_nor_taken_for_failures_of_a_judge(tmp_path: Path) -> None:
    before = version_two(tmp_path / "s").read_bytes()
    store = Store(tmp_path / "s")
    (run,) = queries.runs(store)
    columns = queries.score_columns(store, "f1", [run.run])
    key = (run.run, "em(rules=squad)#v1")
    assert columns.values[key][0] == 1.0
    assert (columns.unscorable[key], columns.unscored[key]) == (1, 0)
    with store.database.reading() as connection:
        kept = connection.execute("SELECT scored, n, mean, unscored FROM summaries").fetchall()
        assert kept == [(2, 1, 1.0, 0)]
        assert connection.execute("SELECT DISTINCT unscored FROM scores").fetchall() == [(None,)]
    assert queries.definitions(store)["em(rules=squad)#v1"]["judge"] is None
    (backup,) = (tmp_path / "s").glob(f"{FILE}.v2-*")
    assert backup.read_bytes() == before


def test_a_migrated_store_is_judged_once_its_gold_is_whole(tmp_path: Path) -> None:
    version_two(tmp_path / "s")
    store = Store(tmp_path / "s")
    (run,) = queries.runs(store)
    with pytest.raises(UserError, match="run the experiment again"):
        records.items(store, run)
    with store.database.writing() as connection:
        complete_gold(connection, "f1", [Question(f"q{n}", "what?", ("ann",)) for n in range(2)])
    assert [item.question.golds for item in records.items(store, run)] == [("ann",)] * 2
    judge = Judge.of("rule_match")
    calls = judge.build(Services()).ask(records.items(store, run))
    judgements.put_judge(store, judge)
    score = {name: Score(1.0) for name in judge.metrics}
    judgements.put_judgements(store, run.run, judge, ["q0", "q1"], calls, [score] * 2)
    assert judgements.judged(store, run.run, judge) == {"q0", "q1"}

"""Older store files open, newer and foreign ones are refused, and nothing is lost on the way."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

import duckdb
import pytest

from benchmarks.errors import UserError
from results import migrations, queries
from results.database import FILE
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
        connection.execute(
            "INSERT INTO experiments VALUES ('e', 'name: e', NULL, NULL, 'bm25', NULL, now()::TIMESTAMP)"
        )
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

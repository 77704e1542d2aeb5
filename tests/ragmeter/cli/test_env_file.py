"""Variables from `.env`: which are set, what is reported, and where values must never appear."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from methods.models import secrets
from ragmeter.cli import env_file
from tests.support.app import app
from tests.support.errors import raises

SECRET = "acme-5ecret-0123456789"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty working directory; remove variables that `.env` sets afterwards."""
    for name in ("ACME_KEY", "ACME_MODE", "ACME_EMPTY"):
        monkeypatch.setenv(name, "x")
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(secrets, "_used", {})
    return tmp_path


def test_environment_overrides_the_env_file(folder: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]) -> None:
    (folder / ".env").write_text(f'﻿ACME_KEY="{SECRET}"\nexport ACME_MODE=file\nACME_EMPTY\nBAD LINE\n', encoding="utf-8")
    monkeypatch.setenv("ACME_MODE", "environment")
    done = call("list", "metrics", "em")
    assert (os.environ["ACME_KEY"], os.environ["ACME_MODE"], "ACME_EMPTY" in os.environ) == (SECRET, "environment", False)
    assert "ACME_KEY" in done.err
    assert not {"ACME_MODE", "ACME_EMPTY", SECRET} & set(done.err.split())
    assert ".env, line 4" in done.err
    assert SECRET not in done.err + done.out


@pytest.mark.parametrize("options", [["--no-env"], ["-q"], ["--json"]])
def test_env_file_can_be_disabled_and_is_not_mentioned_in_quiet_mode(folder: Path, options: list[str], call: Callable[..., Any]) -> None:
    (folder / ".env").write_text(f"ACME_KEY={SECRET}\n")
    done = call("list", "metrics", "em", *options)
    assert ("ACME_KEY" in os.environ) == ("--no-env" not in options)
    assert "ACME_KEY" not in done.err + done.out


def test_env_file_can_set_the_store(folder: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]) -> None:
    monkeypatch.setenv("RAGMETER_STORE", "x")
    monkeypatch.delenv("RAGMETER_STORE")
    (folder / ".env").write_text("RAGMETER_STORE=elsewhere\n")
    assert json.loads(call("store", "--json").out)["folder"].endswith("elsewhere")


def test_folder_named_env_is_ignored_and_a_file_in_another_encoding_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]
) -> None:
    (folder / ".env").mkdir()
    assert call("list", "metrics", "em").code == 0
    (folder / ".env").rmdir()
    (folder / ".env").write_bytes(b"ACME_KEY=caf\xe9\n")
    assert call("list", "metrics", "em").code == 2
    with raises("not-utf8", where=".env"):
        env_file.begin(off=False)
    env_file.begin(off=True)


def test_missing_dotenv_package_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]) -> None:
    (folder / ".env").write_text(f"ACME_KEY={SECRET}\n")
    monkeypatch.setitem(sys.modules, "dotenv", None)
    done = call("list", "metrics", "em")
    assert (done.code, "python-dotenv" in done.err, "ACME_KEY" in os.environ) == (0, True, False)


def test_env_file_next_to_the_experiment_is_read_but_not_stored(folder: Path, call: Callable[..., Any]) -> None:
    beside = folder / "beside"
    beside.mkdir()
    (beside / ".env").write_text(f"ACME_KEY={SECRET}\n")
    with app(lambda request: {"answer": f"you sent {request.headers['authorization']}"}) as (url, requests):
        (beside / "x.yaml").write_text(
            "name: x\nbenchmarks: [{id: worlds/multihop, split: test, limit: 3}]\nmetrics: [em]\nmethods:\n"
            f"  - {{id: http, config: {{url: '{url}', headers: {{Authorization: 'Bearer ${{ACME_KEY}}'}}}}}}\n"
        )
        done = call("run", "beside/x.yaml", "--store", "store")
    assert done.code == 0, done.err
    assert {request.headers["authorization"] for request in requests} == {f"Bearer {SECRET}"}
    assert "ACME_KEY" in done.err
    kept = b"".join(path.read_bytes() for path in (folder / "store").rglob("*") if path.is_file())
    assert SECRET.encode() not in kept
    assert SECRET not in done.out + done.err

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ragmeter.cli import app, doctor
from results.store import mounts


def findings(store: Path) -> tuple[int, list[dict[str, str]]]:
    result = CliRunner().invoke(app, ["doctor", "--json", "--store", str(store)])
    return result.exit_code, json.loads(result.stdout)


def test_store_on_a_network_file_system_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mountinfo").write_text(f"1 0 0:1 / {tmp_path} rw - nfs server:/x rw\n")
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "mountinfo")
    code, results = findings(tmp_path / "store")
    (problem,) = (finding for finding in results if finding["what"] == "store" and finding["state"] == "problem")
    assert code == 1
    assert "--store" in problem["remedy"]


def test_missing_ray_and_tantivy_are_listed_with_their_extras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name in ("ray", "tantivy") else sys.modules[__name__].__spec__)
    missing = {finding.what: finding.remedy for finding in doctor._extras() if finding.state == "missing"}
    assert set(missing) == {"extra ray", "extra tantivy"}
    assert "[ray]" in missing["extra ray"]

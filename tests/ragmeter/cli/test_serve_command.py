"""`serve` says where no store is, and refuses what cannot be one."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.core.errors import UserError
from ragmeter.cli.commands.results import expect_store
from results.database import FILE


def test_a_place_without_a_store_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expect_store(tmp_path / "typo", quiet=False)
    shown, said = capsys.readouterr()
    assert f"no store at {tmp_path / 'typo'} yet" in said
    assert shown == ""
    assert not (tmp_path / "typo").exists()
    expect_store(tmp_path / "typo", quiet=True)
    (tmp_path / FILE).touch()
    expect_store(tmp_path, quiet=False)
    assert capsys.readouterr() == ("", "")


def test_a_file_is_no_folder_of_a_store(tmp_path: Path) -> None:
    (tmp_path / "results.csv").touch()
    for place in (tmp_path / "results.csv", tmp_path / "results.csv" / "store"):
        with pytest.raises(UserError, match="this is a file") as wrong:
            expect_store(place, quiet=False)
        assert wrong.value.where == str(tmp_path / "results.csv")

"""`ragmeter published`."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from benchmarks.core.errors import UserError
from ragmeter.cli import app
from results.published import figures, papers


def said(*arguments: str) -> str:
    found = CliRunner().invoke(app, ["published", *arguments], catch_exceptions=False)
    assert found.exit_code == 0
    return found.stdout


def test_every_paper_is_listed_with_its_tables() -> None:
    listed = json.loads(said("--json"))
    assert set(listed) == set(papers())
    assert {"2", "3", "4", "7"} <= set(listed["ark"])
    numbers = [int(table) for table in listed["clara"] if table.isdigit()]
    assert numbers == sorted(numbers)
    assert listed["clara"][: len(numbers)] == list(map(str, numbers)), "tables stand before what the text says"


@pytest.mark.slow
def test_a_table_is_given_as_the_file_holds_it() -> None:
    given = json.loads(said("ark", "--table", "4", "--json"))
    assert [one["value"] for one in given] == [figure.value for figure in figures("ark") if figure.table == "4"]
    assert given[0]["value"] in said("ark", "--table", "4")


def test_slips_are_the_figures_with_something_wrong() -> None:
    given = json.loads(said("ark", "--slips", "--json"))
    assert given
    assert all("slip: " in one["note"] for one in given)
    assert len(given) == sum(figure.slip is not None for figure in figures("ark"))


@pytest.mark.parametrize("arguments", [("arc",), ("ark", "--table", "99"), ("ark", "--method", "nobody")])
def test_what_is_not_printed_is_an_error(arguments: tuple[str, ...]) -> None:
    with pytest.raises(UserError):
        CliRunner().invoke(app, ["published", *arguments], catch_exceptions=False)

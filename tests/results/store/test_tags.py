from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.core.errors import UserError
from results.formats import pruning
from results.store import queries, tags
from results.store.checkpoints import describe, register
from results.store.store import INTERRUPTED, Store
from tests.support.checkpoints import model, run_with
from tests.support.errors import raises
from tests.support.planted import Planted


def test_a_checkpoint_is_found_by_hash_folder_and_name(store: Store, tmp_path: Path) -> None:
    made = describe(model(tmp_path / "ark-2"), method="ark", stage="s")
    with raises("unregistered-checkpoint"):
        tags.find_checkpoint(store, str(tmp_path / "ark-2"))
    register(store, tmp_path / "ark-2")
    for text in (made.sha256, made.sha256[:6], "ark-2", str(tmp_path / "ark-2")):
        assert tags.find_checkpoint(store, text).sha256 == made.sha256
    with raises("unknown-checkpoint"):
        tags.find_checkpoint(store, "ark-3")


def test_a_checkpoints_run_is_sought_on_the_other_sides_benchmark(store: Store, tmp_path: Path) -> None:
    made = describe(model(tmp_path / "m"), method="ark", stage="s")
    register(store, tmp_path / "m")
    on_d = run_with(store, "d", made.sha256)
    run_with(store, "e", made.sha256, dataset="e")
    other, third = run_with(store, "other", None), run_with(store, "third", None, dataset="f")
    checkpoint = tags.find_checkpoint(store, "m")
    assert tags.run_of(store, checkpoint, tags.find_run(store, other)).run == on_d
    with raises("checkpoint-on-several-benchmarks"):
        tags.run_of(store, checkpoint)
    with raises("no-run-of-checkpoint"):
        tags.run_of(store, checkpoint, tags.find_run(store, third))


def test_a_tag_comes_first_and_moves(store: Store) -> None:
    item, two = run_with(store, "one", None), run_with(store, "two", None)
    assert tags.tag_run(store, "two", tags.find_run(store, "one"), "the first") is None
    assert tags.find_run(store, "two").run == item
    before = tags.tag_run(store, "two", tags.find_run(store, two))
    assert before is not None
    assert (before.run, before.note) == (item, "the first")
    assert tags.find_run(store, "two").run == two
    assert [name.name for name in tags.all_tags(store)] == ["two"]
    tags.untag(store, "two")
    assert tags.all_tags(store) == []
    with raises("unknown-tag"):
        tags.untag(store, "two")


def test_a_name_for_what_is_gone_says_so(store: Store) -> None:
    run = run_with(store, "one", None)
    tags.tag_run(store, "main", tags.find_run(store, "one"))
    run_with(store, "two", None)
    pruning.prune(store, [run])
    with raises("dangling-tag"):
        tags.find_run(store, "main")


@pytest.mark.slow
def test_only_finished_runs_that_compete_are_tagged_under_names_that_can_be_typed(store: Store) -> None:
    run_with(store, "half", None, status=INTERRUPTED)
    with pytest.raises(UserError, match="not finished"):
        tags.tag_run(store, "main", tags.find_run(store, "half"))
    run_with(store, "whole", None)
    for name in ("", "-x", "a b", "a/b", "é", "x" * 101, "a\n"):
        with pytest.raises(UserError, match="cannot be a tag"):
            tags.tag_run(store, name, tags.find_run(store, "whole"))


def test_what_means_a_run_and_a_checkpoint_is_asked_back(store: Store, tmp_path: Path) -> None:
    describe(model(tmp_path / "twin"), method="ark", stage="s")
    register(store, tmp_path / "twin")
    run_with(store, "twin", None)
    with raises("ambiguous-name"):
        tags.resolve(store, "twin")
    tags.tag_run(store, "main", tags.find_checkpoint(store, "twin"))
    with raises("unknown-run,-checkpoint-or-tag"):
        tags.resolve(store, "mian")


@pytest.mark.parametrize("origin", ["held", "rejected", "withdrawn"])
def test_unknown_name_suggests_submissions_that_no_board_shows(tmp_path: Path, origin: str) -> None:
    planted = Planted(tmp_path, origins={"other-words@1": origin})
    planted.experiment("e", {"d": {"bm25": [1.0, 0.0], "other-words@1": [0.0, 1.0]}})
    (hidden,) = {run.short for run in queries.runs(planted.store, hidden=True)} - {run.short for run in queries.runs(planted.store)}
    with pytest.raises(UserError) as caught:
        tags.find_run(planted.store, "other-words")
    assert hidden in (caught.value.try_this or "")

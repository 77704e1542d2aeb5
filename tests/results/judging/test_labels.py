"""Labels by people: drawn at random, blind, safe in spreadsheets, and taken in all or not at all."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.core.errors import UserError
from methods.api import Prediction
from results.formats import pruning
from results.judging import labels as labeling
from results.judging.judgments import ONE, OTHER
from results.judging.labels import BOTH_COLUMNS, COLUMNS, Imported, Label, export_both, export_items, import_labels, labels
from results.statistics.judges import krippendorff_alpha
from results.store.annotations import digest, with_present
from results.store.rows import storable
from results.store.store import Run, Store
from tests.support.errors import raises
from tests.support.stores import change_answer, hide, reopen

GOLDS = [f"gold{n}" for n in range(30)]
STATED = {"secret-method": [f"mine {n}" for n in range(30)], "other-method": [f"=cmd|'/c calc'!A{n}" for n in range(30)]}


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def written(path: Path, rows: list[dict[str, str]], columns: tuple[str, ...] = COLUMNS, **options: Any) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", **options)
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture
def runs(store: Store, fill: Any) -> dict[str, Any]:
    results: dict[str, Any] = fill(store, STATED, GOLDS, metrics=())
    return results


def single(store: Store, runs: dict[str, Any], number: int = 5, **options: Any) -> list[dict[str, str]]:
    return rows_of(export_items(store, list(runs.values()), "accuracy", number, pairs=False, **options))


def pairs(store: Store, runs: dict[str, Any], number: int = 30, **options: Any) -> list[dict[str, str]]:
    return rows_of(export_items(store, list(runs.values()), "overall", number, pairs=True, **options))


@pytest.mark.slow
def test_an_export_names_nobody_and_has_an_empty_label(store: Store, runs: dict[str, Any]) -> None:
    for pair in (False, True):
        text = export_items(store, list(runs.values()), "overall", 20, pairs=pair)
        assert "method" not in text
        for row in rows_of(text):
            assert tuple(row) == COLUMNS
            assert (row["label"], row["note"], row["criterion"]) == ("", "", "overall")
            assert row["gold"].startswith("gold")
            assert bool(row["answer_2"]) == pair


def test_labeling_item_shows_the_passages_of_the_answer(store: Store, runs: dict[str, Any]) -> None:
    (row,) = single(store, runs, 1)
    number = row["item"].rpartition("q")[2]
    assert row["question"] == f"what {number}?"
    assert f"{number}: gold{number}" in row["passages"]


def test_the_sample_is_drawn_by_seed_from_all_runs(store: Store, runs: dict[str, Any]) -> None:
    first = single(store, runs, 20)
    assert single(store, runs, 20) == first
    assert single(store, runs, 20, seed=1) != first
    assert single(store, runs, 10) == first[:10]  # more can be drawn later without losing what is labeled
    assert len({row["item"] for row in single(store, runs, 1000)}) == 60
    # 20 of 60: each run and each question has its chance, none is left out by its place.
    assert len({row["item"].partition("~")[0] for row in first}) == 2
    assert len({row["item"].partition("/")[2] for row in first}) > 10


def both(store: Store, runs: dict[str, Any], number: int = 30, **options: Any) -> list[dict[str, str]]:
    return rows_of(export_both(store, list(runs.values()), "accuracy", number, **options))


def test_both_answers_to_a_question_are_labeled_in_one_row_and_blindly(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    rows = both(store, runs)
    assert len({row["question"] for row in rows}) == len(rows) == 30
    assert {row["answer_1"].startswith("mine") for row in rows} == {True, False}
    assert all(tuple(row) == BOTH_COLUMNS and "gold" in row["passages_1"] and "gold" in row["passages_2"] for row in rows)
    for row in rows[:20]:
        row["label_1"], row["label_2"] = ("right" if row[f"answer_{side}"].startswith("mine") else "0.25" for side in "12")
    rows[19]["label_2"] = ""
    done = import_labels(store, written(tmp_path / "l.csv", rows, BOTH_COLUMNS), "ann")
    assert done == Imported(39, 21, 0)
    by_run = {name: {label.value for label in labels(store) if label.one == run.run} for name, run in runs.items()}
    assert by_run == {"secret-method": {1.0}, "other-method": {0.25}}
    assert all(label.other is None for label in labels(store))
    assert import_labels(store, written(tmp_path / "l.csv", rows, BOTH_COLUMNS), "ann").replaced == 39


@pytest.mark.parametrize(
    ("criterion", "words", "values"),
    [
        ("accuracy", ("right", "wrong", "match", "partial", "mismatch"), [1, 0, 1, 0, 0]),
        ("partial", ("right", "wrong", "match", "partial", "mismatch"), [0, 0, 0, 1, 0]),
        ("mismatch", ("right", "wrong", "match", "partial", "mismatch"), [0, 1, 0, 0, 1]),
        ("formal", ("formal", "informal", "yes", "no", "0,5"), [1, 0, 1, 0, 0.5]),
        ("informal", ("formal", "informal", "yes", "no", "0.5"), [0, 1, 1, 0, 0.5]),
        ("faithfulness", ("right", "wrong", "yes", "no", "1"), [1, 0, 1, 0, 1]),
    ],
)
def test_word_label_has_the_value_of_its_criterion(
    store: Store, runs: dict[str, Any], tmp_path: Path, criterion: str, words: tuple[str, ...], values: list[float]
) -> None:
    rows = rows_of(export_items(store, list(runs.values()), criterion, 5, pairs=False))
    for row, word in zip(rows, words, strict=True):
        row["label"] = word
    import_labels(store, written(tmp_path / "l.csv", rows), "ann")
    by_question = {(label.question, label.one): label.value for label in labels(store)}
    items = [re.fullmatch(r"(\w+)~\w+/(.*)", row["item"]) for row in rows]
    assert [by_question[item[2], item[1]] for item in items if item] == values


@pytest.mark.parametrize(
    ("criterion", "word"), [("accuracy", "formal"), ("formal", "right"), ("faithfulness", "match"), ("partial", "1.5")]
)
def test_word_that_its_criterion_does_not_accept_is_refused(
    store: Store, runs: dict[str, Any], tmp_path: Path, criterion: str, word: str
) -> None:
    rows = rows_of(export_items(store, list(runs.values()), criterion, 1, pairs=False))
    with raises("bad-label"):
        import_labels(store, written(tmp_path / "l.csv", [{**rows[0], "label": word}]), "ann")
    # An earlier version took such words.
    import_labels(store, written(tmp_path / "l.csv", [{**rows[0], "label": "1"}]), "ann")
    with store.database.writing() as connection:
        connection.execute("UPDATE annotations SET label = ?", [word])
    assert labels(store) == []


@pytest.mark.parametrize("item", ["{one}/q0", "{one}~ab+{one}~ab/q0", "nothing+else/q0"])
def test_an_item_that_is_not_of_two_runs_is_refused_in_a_file_of_both(
    store: Store, runs: dict[str, Any], tmp_path: Path, item: str
) -> None:
    row = {"item": item.format(one=runs["secret-method"].run), "criterion": "accuracy", "label_1": "right", "label_2": "right"}
    with raises("unknown-item", where="line 2"):
        import_labels(store, written(tmp_path / "l.csv", [row], BOTH_COLUMNS), "ann")


def test_order_of_the_two_answers_is_random(store: Store, runs: dict[str, Any]) -> None:
    drawn = pairs(store, runs)
    first = [row["answer_1"].startswith("mine") for row in drawn]
    assert 5 < sum(first) < 25
    assert [row["answer_1"].startswith("mine") for row in pairs(store, runs, seed=3)] != first
    mine = runs["secret-method"].run
    for row in drawn:
        assert row["item"].startswith(mine) == row["answer_1"].startswith("mine")


def test_a_spreadsheet_runs_nothing_of_an_answer(store: Store, runs: dict[str, Any]) -> None:
    shown = [row[name] for row in pairs(store, runs) for name in ("answer_1", "answer_2")]
    assert any("cmd" in cell for cell in shown)
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in shown)


def test_runs_without_answers_or_without_a_common_question_cannot_be_labeled(store: Store, runs: dict[str, Any], fill: Any) -> None:
    with raises("runs-without-value"):
        export_items(store, [runs["secret-method"]], "overall", 5, pairs=True)
    with raises("runs-without-value"):
        export_items(store, [], "accuracy", 5, pairs=False)


def test_labels_come_in_and_blanks_are_counted(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    drawn = single(store, runs, 4)
    for row, label in zip(drawn, ("right", " Wrong ", "", "0.25"), strict=True):
        row["label"], row["note"] = label, "sure"
    path = written(tmp_path / "a.csv", drawn)
    assert import_labels(store, path, "ann") == Imported(3, 1, 0)
    known = {label.question: label for label in labels(store, "accuracy")}
    assert [known[row["item"].partition("/")[2]].value for row in (drawn[0], drawn[1], drawn[3])] == [1.0, 0.0, 0.25]
    assert {label.annotator for label in known.values()} == {"ann"}
    assert labels(store, "overall") == []


@pytest.mark.parametrize("pair", [False, True])
def test_a_dash_removes_an_earlier_label_and_an_empty_cell_keeps_it(store: Store, runs: dict[str, Any], tmp_path: Path, pair: bool) -> None:
    drawn = pairs(store, runs, 4) if pair else single(store, runs, 4)
    for name in ("ann", "bob"):
        import_labels(store, written(tmp_path / "a.csv", [{**row, "label": "1"} for row in drawn[:3]]), name)
    again = [{**row, "label": text} for row, text in zip(drawn, ("-", "", "0" if not pair else "2", "–"), strict=True)]
    assert import_labels(store, written(tmp_path / "a.csv", again), "ann") == Imported(1, 1, 1, kept=1, removed=1)
    assert sorted(label.annotator for label in labels(store)) == ["ann", "ann", "bob", "bob", "bob"]


def test_label_file_of_a_german_excel_is_read(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    drawn = [{**row, "label": text, "note": "für später"} for row, text in zip(single(store, runs, 2), ("0,25", "1,0"), strict=True)]
    path = written(tmp_path / "a.csv", drawn, delimiter=";")
    path.write_bytes(path.read_text("utf-8").encode("cp1252"))
    import_labels(store, path, "ann")
    assert sorted(label.value for label in labels(store)) == [0.25, 1.0]


@pytest.mark.slow
def test_a_person_who_changes_their_mind_is_not_counted_twice(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    drawn = single(store, runs, 2)
    for label, replaced in (("right", 0), ("wrong", 2)):
        path = written(tmp_path / "a.csv", [{**row, "label": label} for row in drawn])
        assert import_labels(store, path, "ann").replaced == replaced
    assert [label.label for label in labels(store)] == ["wrong", "wrong"]
    import_labels(store, path, "bob")
    assert len(labels(store)) == 4


@pytest.mark.slow
def test_the_order_shown_is_undone(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    """A person who always prefers one method says so, whichever answer it was shown as."""
    drawn = pairs(store, runs)
    for row in drawn:
        row["label"] = "1" if row["answer_1"].startswith("mine") else "2"
    import_labels(store, written(tmp_path / "a.csv", drawn), "ann")
    mine, other = runs["secret-method"].run, runs["other-method"].run
    assert {(label.one, label.other) for label in labels(store)} == {(min(mine, other), max(mine, other))}
    assert {label.label for label in labels(store)} == {ONE if mine < other else OTHER}


def test_ties_and_nobody_are_labels_of_pairs(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    drawn = pairs(store, runs, 2)
    drawn[0]["label"], drawn[1]["label"] = "Tie", "none"
    import_labels(store, written(tmp_path / "a.csv", drawn), "ann")
    assert sorted(label.label for label in labels(store)) == ["none", "tie"]


@pytest.mark.parametrize(
    ("field", "value", "what", "remedy"),
    [
        ("item", "nonsense", "item 'nonsense' is not in", "--store"),
        ("item", "0123456789abcdef/q1", "is not in this store", "--store"),
        ("item", "{run}/q99", "the runs have no question 'q99'", None),
        ("label", "maybe", "'maybe' is not a label", "right"),
        ("label", "1.5", "'1.5' is not a label", "0 to 1"),
        ("label", "nan", "'nan' is not a label", "0 to 1"),
        ("label", "-0.5", "'-0.5' is not a label", "0 to 1"),
        ("criterion", " ", "does not name its labeler", "criterion"),
    ],
)
def test_a_wrong_row_names_its_line_and_nothing_comes_in(
    store: Store, runs: dict[str, Any], tmp_path: Path, field: str, value: str, what: str, remedy: str | None
) -> None:
    drawn = [{**row, "label": "right"} for row in single(store, runs, 3)]
    drawn[1][field] = value.format(run=runs["secret-method"].run)
    path = written(tmp_path / "a.csv", drawn)
    with pytest.raises(UserError, match=what.replace("(", r"\(")) as caught:
        import_labels(store, path, "ann")
    line = 3 + drawn[0]["passages"].count("\n")
    assert caught.value.where == f"{path}, line {line}"
    assert remedy is None or remedy in str(caught.value.try_this)
    assert labels(store) == []


def test_a_label_of_one_answer_is_none_of_two(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    (row,) = pairs(store, runs, 1)
    with raises("bad-pair-label") as caught:
        import_labels(store, written(tmp_path / "a.csv", [{**row, "label": "right"}]), "ann")
    assert "tie" in str(caught.value.try_this)


def test_pair_labels_that_a_data_frame_saved_as_numbers_are_read(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    rows = pairs(store, runs, 3)
    drawn = [{**row, "label": text} for row, text in zip(rows, ("1.0", "2,0", "2"), strict=True)]
    assert import_labels(store, written(tmp_path / "a.csv", drawn), "ann").labels == 3
    first = {label.question: label.label for label in labels(store)}
    turned = {ONE: OTHER, OTHER: ONE}
    for row, shown in zip(rows, (ONE, OTHER, OTHER), strict=True):
        sides, _, question = row["item"].partition("/")
        one, other = (side.partition("~")[0] for side in sides.split("+"))
        assert first[question] == (shown if one < other else turned[shown])


@pytest.mark.parametrize(("again", "people"), [(" ren\u00e9", {"René"}), ("RENE\u0301\n", {"René"}), ("bob", {"René", "bob"})])
def test_one_person_is_not_held_against_themselves(
    store: Store, runs: dict[str, Any], tmp_path: Path, again: str, people: set[str]
) -> None:
    drawn = [{**row, "label": "right"} for row in single(store, runs, 3)]
    import_labels(store, written(tmp_path / "a.csv", drawn), "Ren\u00e9 ")
    assert import_labels(store, written(tmp_path / "a.csv", drawn), again).replaced == 3 * (people == {"René"})
    assert {label.annotator for label in labels(store)} == people
    for name in ("", " ", "\u202ebob"):
        with raises("bad-annotator"):
            import_labels(store, written(tmp_path / "a.csv", drawn), name)


def test_labels_of_a_submission_that_was_withdrawn_meanwhile_are_kept(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    drawn = [{**row, "label": "right"} for row in single(store, runs, 60)]
    hide(store, runs["other-method"].run)
    assert import_labels(store, written(tmp_path / "a.csv", drawn), "ann").labels == 60


def test_the_same_item_twice_is_refused(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    (row,) = single(store, runs, 1)
    with raises("duplicate-label"):
        import_labels(store, written(tmp_path / "a.csv", [{**row, "label": item} for item in ("right", "wrong")]), "ann")


def test_file_without_labels_is_refused(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    with raises("unreadable-file"):
        import_labels(store, tmp_path / "none.csv", "ann")
    path = tmp_path / "a.csv"
    table = written(path, [{**row, "label": "right"} for row in single(store, runs, 3)]).read_text("utf-8").encode("utf-16")
    for content in (b"\xff\xfe\x00", table[:-1]):
        path.write_bytes(content)
        with raises("unreadable-file"):
            import_labels(store, path, "ann")
    for heads, code in (("item,criterion,label,label", "bad-header"), ("item,criterion,label", "bad-row")):
        path.write_text(f"{heads}\n1,2,right,wrong\n")
        with raises(code):
            import_labels(store, path, "ann")
    assert labels(store) == []
    for heads in ("item,criterion", "label,note"):
        path.write_text(f"{heads}\n1,2\n")
        with raises("missing-columns") as caught:
            import_labels(store, path, "ann")
        assert "judge labels export" in str(caught.value.try_this)


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"delimiter": ";"}, {"lineterminator": "\r\n"}, {"quoting": csv.QUOTE_ALL}])
def test_label_files_saved_by_spreadsheets_are_read(store: Store, runs: dict[str, Any], tmp_path: Path, change: dict[str, Any]) -> None:
    drawn = [{**row, "label": "0,5" if "delimiter" in change else "0.5"} for row in single(store, runs, 3)]
    path = written(tmp_path / "a.csv", drawn, **change)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert import_labels(store, path, "ann").labels == 3
    assert {label.value for label in labels(store)} == {0.5}


@pytest.mark.parametrize(
    "saved",
    [
        lambda table: table.replace(",", "\t").encode("utf-16"),  # Excel's Unicode text
        lambda table: ("sep=;\r\n" + table.replace(",", ";")).encode("utf-8-sig"),
        lambda table: table.replace(",right,\r\n", ",right\r\n").encode(),  # Excel leaves out empty cells at the end of a row
        lambda table: (table.replace("\r\n", ",,\r\n") + ",,,,\r\n" * 3).encode(),
        lambda table: table.replace(",right,", ',"RIGHT ",').encode("cp1252"),
    ],
)
def test_tables_in_other_forms_of_spreadsheets_are_read(
    store: Store, runs: dict[str, Any], tmp_path: Path, saved: Callable[[str], bytes]
) -> None:
    drawn = [{**row, "label": "right", "note": ""} for row in single(store, runs, 3)]
    path = written(tmp_path / "a.csv", drawn, ("item", "criterion", "label", "note"))
    path.write_bytes(saved(path.read_bytes().decode()))
    assert import_labels(store, path, "ann").labels == 3
    assert {label.value for label in labels(store)} == {1.0}


def test_columns_that_a_person_took_away_are_not_missed(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    drawn = [{**row, "label": "right"} for row in single(store, runs, 3)]
    path = written(tmp_path / "a.csv", drawn, ("label", "criterion", "item"))
    assert import_labels(store, path, "ann").labels == 3


@pytest.mark.slow
def test_passages_as_long_as_a_book_go_out_and_come_in(store: Store, fill: Any, tmp_path: Path) -> None:
    runs = fill(store, {"bm25": ["x"]}, ["word " * 60_000], metrics=())
    (row,) = single(store, runs, 1)
    assert len(row["passages"]) > 250_000
    assert import_labels(store, written(tmp_path / "a.csv", [{**row, "label": "wrong"}]), "ann").labels == 1


def labeled(store: Store, rows: list[dict[str, str]], tmp_path: Path, label: str = "right") -> Imported:
    return import_labels(store, written(tmp_path / "a.csv", [{**row, "label": label} for row in rows]), "ann")


def questions_labeled(store: Store) -> set[str]:
    return {label.question for label in labels(store)}


@pytest.mark.slow
def test_a_label_rests_while_the_answer_is_another_and_counts_again_with_it(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    labeled(store, single(store, {"mine": runs["secret-method"]}, 30), tmp_path)
    run = runs["secret-method"].run
    change_answer(store, run, "q2", "now another")
    assert questions_labeled(store) == {f"q{n}" for n in range(30)} - {"q2"}
    assert labeling.standing(store, [run]) == (29, 1)
    change_answer(store, run, "q2", "mine 2")
    assert labeling.standing(store) == (30, 0)


@pytest.mark.slow
def test_people_have_not_worked_in_vain_when_a_run_is_forgotten(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    """The answers of an open run go, and the labels wait for answers that are equal."""
    single_items = single(store, {"mine": runs["secret-method"]}, 30)
    labeled(store, single_items, tmp_path)
    pair_items = pairs(store, runs, 30)
    labeled(store, pair_items, tmp_path, "1")
    before = set(labels(store))
    mine, other = runs["secret-method"].run, runs["other-method"].run
    reopen(store, mine)
    store.forget(mine)
    assert labels(store) == []
    assert labeling.standing(store, [mine]) == (0, 60)
    assert labeling.standing(store, [other]) == (0, 30)
    row = runs["secret-method"]
    known = (row.method, row.method_id, row.kind, row.description, row.dataset, row.dataset_fingerprint, row.setting)
    store.start(Run(mine, *known, row.seed, row.questions, {}))
    store.append(mine, [Prediction(f"q{n}", "new" if n == 3 else f"mine {n}") for n in range(30)], {})
    assert set(labels(store)) == {label for label in before if label.question != "q3"}
    change_answer(store, mine, "q3", "mine 3")
    assert set(labels(store)) == before


@pytest.mark.slow
def test_labels_survive_a_pruning_and_say_so(store: Store, runs: dict[str, Any], fill: Any, tmp_path: Path) -> None:
    labeled(store, single(store, runs, 1000), tmp_path)
    before = set(labels(store))
    assert pruning.prune(store, [run.run for run in runs.values()]).resting == len(before) == 60
    assert labels(store) == []
    fill(store, STATED, GOLDS, metrics=())
    assert set(labels(store)) == before


@pytest.mark.slow
def test_label_belongs_to_the_labeled_answer_after_the_run_answered_again(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    drawn = single(store, {"mine": runs["secret-method"]}, 30)
    change_answer(store, runs["secret-method"].run, "q2", "now another")
    assert labeled(store, drawn, tmp_path) == Imported(30, 0, 0, resting=1)
    assert "q2" not in questions_labeled(store)
    # The new answer is labeled too; neither label takes the other's place.
    assert labeled(store, single(store, {"mine": runs["secret-method"]}, 30), tmp_path, "wrong").replaced == 29
    (label,) = (label for label in labels(store) if label.question == "q2")
    assert label.label == "wrong"
    change_answer(store, runs["secret-method"].run, "q2", "mine 2")
    (label,) = (label for label in labels(store) if label.question == "q2")
    assert label.label == "right"


@pytest.mark.slow
def test_a_label_does_not_pass_to_another_question_of_the_same_name(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    labeled(store, single(store, {"mine": runs["secret-method"]}, 30), tmp_path)
    with store.database.writing() as connection:
        connection.execute("UPDATE questions SET text = 'who else?' WHERE question = 'q7'")
    assert questions_labeled(store) == {f"q{n}" for n in range(30)} - {"q7"}


@pytest.mark.slow
def test_label_of_an_older_store_without_the_labeled_text_is_unused(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    labeled(store, single(store, runs, 4), tmp_path)
    with store.database.writing() as connection:
        connection.execute("UPDATE annotations SET labeled = NULL")
        connection.execute("DELETE FROM predictions")
    assert labels(store) == []
    assert labeling.standing(store) == (0, 4)


def test_files_of_an_earlier_export_are_taken_as_about_the_present_answers(store: Store, runs: dict[str, Any], tmp_path: Path) -> None:
    drawn = [{**row, "item": re.sub("~[0-9a-f]+/", "/", row["item"])} for row in single(store, runs, 8)]
    assert labeled(store, drawn, tmp_path) == Imported(8, 0, 0)
    assert len(labels(store)) == 8


@pytest.mark.parametrize("other", [None, "", "two\nlines"])
@pytest.mark.parametrize("answer", ["", "Zürich – 東京 🦆", "a\x1fb", "half a pair \ud83e"])
def test_python_and_sql_compute_equal_label_hashes(
    store: Store, runs: dict[str, Any], tmp_path: Path, answer: str, other: str | None
) -> None:
    """The one writes into items what the other looks for."""
    mine, theirs = (runs[name] for name in ("secret-method", "other-method"))
    first, second = sorted((mine.run, theirs.run))
    change_answer(store, first, "q1", answer)
    if other is not None:
        change_answer(store, second, "q1", other)
    with store.database.reading() as connection:
        made = f"(SELECT *, '{first}' AS one, {'NULL' if other is None else repr(second)} AS other FROM questions)"
        (result,) = connection.execute(f"SELECT present FROM ({with_present(made)}) WHERE question = 'q1'").fetchall()
    texts = ["what 1?", storable(answer), *([] if other is None else [other])]
    assert result == (digest(*texts),)


def test_people_agree_as_krippendorff_says() -> None:
    def said(annotator: str, *values: str | None) -> list[Label]:
        return [Label(f"q{n}", "r", None, "accuracy", annotator, v) for n, v in enumerate(values) if v is not None]

    result = labeling.between_annotators(said("ann", "right", "wrong", "right", None) + said("bob", "right", "wrong", "wrong", "right"))
    expected = krippendorff_alpha(np.array([[1, 0, 1, np.nan], [1, 0, 0, 1]]))
    assert result["accuracy"].corrected.value == pytest.approx(expected.corrected.value)
    assert result["accuracy"].raw.value == pytest.approx(2 / 3)
    assert labeling.between_annotators(said("ann", "right")) == {}
    grades = labeling.between_annotators(said("ann", "0.1", "0.5", "0.9", "1") + said("bob", "0.2", "0.5", "0.8", "0.9"))["accuracy"]
    assert (grades.difference, grades.corrected.value > 0.9) == ("interval", True)
    pairs = [Label(f"q{n}", "r", "s", "overall", who, label) for who in ("ann", "bob") for n, label in enumerate((ONE, OTHER))]
    assert labeling.between_annotators(pairs)["overall"].difference == "nominal"

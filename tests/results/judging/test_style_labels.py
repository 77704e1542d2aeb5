"""Labels of style pairs: blind, about texts as they are, taken in all or not at all."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from benchmarks.schema import Passage
from benchmarks.styles.pairs import Rewriting, StylePairs
from results.judging.labels import Imported
from results.judging.style_labels import COLUMNS, checked, export_style_items, import_style_labels, items_of, place, read_style_labels
from tests.support.errors import raises


def pairs_of(count: int = 12, ending: str = "") -> StylePairs:
    texts = [(f"The bridge {n} was built.", f"So bridge {n} went up{ending}!") for n in range(count)]
    rows = [(Passage(f"p{n}", "", formal), Passage(f"p{n}", "", styled)) for n, (formal, styled) in enumerate(texts)]
    refused = Rewriting("", Passage("p99", "", "A refused text."), "informal", None, "llm", ("refusal",))
    return StylePairs([*(Rewriting("", formal, "informal", styled, "llm") for formal, styled in rows), refused])


def exported(pairs: StylePairs, criterion: str, count: int = 100) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(export_style_items(pairs, criterion, count))))


def filled(path: Path, rows: list[dict[str, str]], labels: list[str]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows({**row, "label": label} for row, label in zip(rows, labels, strict=True))
    return path


def test_style_items_mix_sources_and_rewritings_without_a_hint() -> None:
    rows = exported(pairs_of(), "style", 10)
    assert [row["item"] for row in rows] == sorted(row["item"] for row in rows)
    assert {row["source"] for row in rows} == {""}
    assert sum("built" in row["text"] for row in rows) == 5
    assert len({row["text"] for row in rows}) == 10


@pytest.mark.parametrize(("criterion", "shown"), [("content", True), ("fluency", False)])
def test_only_the_content_criterion_shows_sources(criterion: str, shown: bool) -> None:
    rows = exported(pairs_of(), criterion)
    assert len(rows) == 12
    assert all(bool(row["source"]) == shown and row["text"].startswith("So bridge") for row in rows)


def test_labels_give_shares_by_style_and_two_coefficients_of_agreement(tmp_path: Path) -> None:
    pairs, file = pairs_of(), tmp_path / "pairs.jsonl"
    rows = exported(pairs, "style")
    right = ["formal" if "built" in row["text"] else "informal" for row in rows]
    wrong = [("informal", "formal")[label == "informal"] if number == 3 else label for number, label in enumerate(right)]
    for name, labels in (("ann", right), ("bob", wrong)):
        done = import_style_labels(pairs, file, filled(tmp_path / f"{name}.csv", rows, labels), name)
        assert done == Imported(24, 0, 0)
    shares = {row.style: row for row in checked(pairs, read_style_labels(file))}
    assert {name: row.share.n for name, row in shares.items()} == {"formal": 12, "informal": 12}
    assert sorted(row.share.value for row in shares.values()) == [pytest.approx(23 / 24), 1.0]
    again = import_style_labels(pairs, file, filled(tmp_path / "bob.csv", rows, ["", *right[1:]]), "bob")
    assert again == Imported(23, 1, 23, kept=1)
    assert len(read_style_labels(file)) == 48
    gone = import_style_labels(pairs, file, filled(tmp_path / "bob.csv", rows, ["-", *right[1:]]), "bob")
    assert gone == Imported(23, 0, 23, removed=1)
    assert len(read_style_labels(file)) == 47


def test_labels_of_changed_texts_are_left_out(tmp_path: Path) -> None:
    pairs, file = pairs_of(), tmp_path / "pairs.jsonl"
    rows = exported(pairs, "fluency")
    import_style_labels(pairs, file, filled(tmp_path / "a.csv", rows, ["0,5", *["yes"] * 11]), "ann")
    (row,) = checked(pairs, read_style_labels(file))
    assert (row.criterion, row.share.value, row.alpha, row.kappa) == ("fluency", pytest.approx(11.5 / 12), None, None)
    assert checked(pairs_of(ending=" fast"), read_style_labels(file)) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"item": "nothing"}, "unknown-style-item"),
        ({"criterion": "style"}, "unknown-style-item"),
        ({"label": "maybe"}, "bad-label"),
        ({"label": "1.2"}, "bad-label"),
    ],
)
def test_a_row_that_cannot_be_leaves_everything_as_it_was(tmp_path: Path, change: dict[str, str], code: str) -> None:
    pairs, file = pairs_of(), tmp_path / "pairs.jsonl"
    rows = exported(pairs, "content")
    path = filled(tmp_path / "a.csv", [*rows[:-1], {**rows[-1], **change}], [*["yes"] * 11, change.get("label", "no")])
    with raises(code):
        import_style_labels(pairs, file, path, "ann")
    assert not place(file).exists()


def test_damaged_labels_unknown_criteria_and_files_without_pairs_are_refused(tmp_path: Path) -> None:
    with raises("unknown-style-criterion"):
        items_of(pairs_of(), "tone")
    with raises("no-text-pairs"):
        export_style_items(pairs_of(0), "fluency", 5)
    place(tmp_path / "pairs.jsonl").write_text('{"item": 1}\n')
    with raises("bad-style-label-line"):
        read_style_labels(tmp_path / "pairs.jsonl")

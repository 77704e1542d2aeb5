"""The published figures are complete, valid and as printed."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.core.errors import UserError
from judges.metric import METRICS
from judges.metric import parse as parse_metric
from methods.registry import METHODS
from results.boards import paper_figures
from results.boards.paper_figures import COLUMNS, KEYS, figures, find, read
from tests.support.errors import raises

ROOT = Path(__file__).resolve().parents[3]
APPROACHES = {"ark", "gpr", "sark", "clara"}
"""Ids of the four papers' own methods, registered or to come."""

TABLES = {
    # paper, table: printed rows x value columns, and gains printed in cells beside values, or cells left empty.
    ("ark", "2"): (20, 10, 0),
    ("ark", "3"): (7, 4, 0),
    ("ark", "4"): (4, 5, 0),
    ("ark", "5"): (8, 1, 0),
    ("ark", "6"): (5, 1, 0),
    ("ark", "7"): (18, 10, 0),
    ("gpr", "1"): (21, 8, 0),
    ("sark", "1"): (7, 4, -2),
    ("sark", "2"): (8, 4, 0),
    ("sark", "3"): (12, 4, 0),
    ("sark", "4"): (3, 2, 0),
    ("sark", "6"): (7, 8, 0),
    ("clara", "2"): (30, 5, 12 * 5),
    ("clara", "3"): (21, 10, 0),
    ("clara", "4"): (10, 5, 8 * 5),
    ("clara", "5"): (4, 5, 2 * 5),
    ("clara", "6"): (42, 5, 24 * 5),
    ("clara", "7"): (57, 8, 0),
    ("clara", "8"): (53, 12, 0),
    ("clara", "9"): (4, 3, 0),
    ("clara", "10"): (4, 2, 0),
    ("clara", "11"): (14, 1, 0),
    ("clara", "12"): (12, 5, 0),
    ("clara", "13"): (16, 5, 0),
    ("clara", "14"): (16, 4, 0),
    ("clara", "15"): (8, 4, 0),
    ("clara", "16"): (14, 3, -4),
    ("clara", "17"): (12, 8, 0),
    ("clara", "18"): (48, 10, 0),
    ("clara", "20"): (10, 5, 8 * 5),
    ("clara", "21"): (4, 5, 2 * 5),
}
"""Tables of examples in words (ARK 1, GPR 2, SARK 5, CLaRa 1 and 19) hold no figures."""

MISPRINTS = {
    ("ark", "2", "22.41"),
    ("ark", "text abstract", "14.5"),
    ("ark", "text 1", "14.5"),
    ("ark", "text 3.3.1", "1.0"),
    ("ark", "text 3.3.1", "0.3"),
    ("gpr", "1", "15.41"),
    ("gpr", "1", "22.93"),
    ("sark", "text 3.2", "4.99"),
    ("sark", "6", "0.5960"),
    *(("sark", "2", value) for value in ("0.4805", "0.3040", "0.7085", "0.5465")),
    ("clara", "2", "-1.42"),
    ("clara", "18", "54.69"),
    ("clara", "18", "41.13"),
    *(("clara", t, value) for t in "37" for value in ("41.27", "35.44", "28.76", "40.74", "10.57", "13.54")),
    ("clara", "3", "28.29"),
    ("clara", "3", "30.36"),
    ("clara", "text 4.2", "6.36"),
    ("clara", "text 4.3", "51.41"),
    ("clara", "text 4.3", "47.18"),
    ("clara", "text 5", "0.3"),
}


def test_every_table_is_complete() -> None:
    counts = Counter((figure.paper, figure.table) for figure in figures())
    expected = {key: rows * columns + more for key, (rows, columns, more) in TABLES.items()}
    assert {key: n for key, n in counts.items() if key[1].isdecimal()} == expected
    assert set(paper_figures.papers()) == {"ark", "gpr", "sark", "clara"}
    for paper, stated in {"ark": 11, "gpr": 7, "sark": 44, "clara": 30}.items():
        in_text = [figure for figure in figures(paper) if not figure.table.isdecimal()]
        assert len(in_text) == stated, paper


@pytest.mark.parametrize(("paper", "table"), [key for key, (_, columns, _) in TABLES.items() if columns >= 4])
def test_every_column_of_a_table_has_its_rows(paper: str, table: str) -> None:
    rows, columns, _ = TABLES[paper, table]
    values = [f for f in find(paper=paper, table=table) if not f.metric.endswith("_gain") or paper == "ark"]
    side = {"6": ("style",), "17": ("seen",)}.get(table, ()) if paper != "ark" else ()
    by_metric = (paper, table) != ("ark", "2")  # there, F1, gains and win rates stand below each other
    held = Counter((f.dataset, f.metric if by_metric else "", *(f.conditions.get(key) for key in side)) for f in values)
    assert len(held) == columns
    if (paper, table) != ("sark", "1"):  # its last row has no values, only drops
        assert set(held.values()) == {rows}


def test_no_figure_stands_twice() -> None:
    assert max(Counter(figure.key for figure in figures()).values()) == 1


def test_metrics_that_look_like_ours_are_ours() -> None:
    for metric in {figure.metric for figure in figures()}:
        name = re.split(r"[@(]", metric)[0]
        if name != metric or name in METRICS:
            assert str(parse_metric(metric)).startswith(metric), metric


def test_ids_name_registered_methods_and_options_that_they_have() -> None:
    for identity in {figure.id for figure in figures() if figure.id}:
        name, _, options = identity.partition("(")
        if name in APPROACHES:
            continue
        config = METHODS.get(name).config.model_fields
        assert set(paper_figures.options_of(options.rstrip(")"))) <= set(config), identity


def test_values_are_plausible_for_their_units() -> None:
    for figure in figures():
        value, metric = figure.number, figure.metric
        if value is None:
            assert figure.unit == "text"
        elif figure.unit == "percent":
            assert 0 <= value <= 100, figure
        elif figure.unit == "fraction":
            assert 0 <= value <= 1, figure
        elif figure.unit == "points":
            assert "gain" in metric, figure
            assert -20 <= value <= 32, figure
        elif figure.unit in ("ms", "ms/query"):
            assert 50 <= value <= 2500, figure
        else:
            assert 0 < value <= 2_000_000, figure
        if re.match(r"(f1|em|cover_em|recall|graph_\w+|win_rate)\b", metric) and "_" not in metric.partition("(")[0]:
            assert figure.unit in paper_figures.SCALES, figure


def test_misprints_are_exactly_the_known_ones() -> None:
    assert {(figure.paper, figure.table, figure.value) for figure in figures() if figure.misprint} == MISPRINTS


GOOD = "mine,1,BM25,bm25,hotpotqa,retrieval=normal;k=5,recall@5,41.0,percent,"


@pytest.mark.parametrize(
    ("row", "response"),
    [
        (GOOD.replace("percent", "per cent"), "unit"),
        (GOOD.replace("41.0", "forty"), "not a number"),
        (GOOD.replace("41.0", "41 .0"), "not a number"),
        (GOOD.replace("recall@5", "Recall@5"), "names no metric"),
        (GOOD.replace("recall@5", "recall@5#v2"), "names no metric"),
        (GOOD.replace("hotpotqa", "Hotpot QA"), "not a data reference"),
        (GOOD.replace("k=5", "depth=5"), "key of a setting"),
        (GOOD.replace("k=5", "k="), "lacks its value"),
        (GOOD.replace("retrieval=normal;k=5", "k=5;retrieval=normal"), "is listed after"),
        (GOOD.replace("k=5", "k=5;k=6"), "is listed after"),
        (GOOD.replace("normal", "corpus"), "retrieval"),
        (GOOD.replace("BM25", ""), "method"),
        (GOOD.replace("BM25", "BM25 "), "method"),
        (GOOD.replace(",bm25,", ",bm 25,"), "names no method"),
        (GOOD.replace("mine", "yours"), "is of 'yours'"),
        (GOOD + ",more", "cells"),
        (GOOD + "\n" + GOOD.replace("41.0", "42.0"), "twice"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(tmp_path: Path, row: str, response: str) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(",".join(COLUMNS) + "\n" + row + "\n", "utf-8")
    with pytest.raises(UserError, match=re.escape(response)) as refused:
        read(path)
    assert "mine.csv, line " in (refused.value.where or "")


def test_a_good_row_is_read_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_bytes(("\r\n".join([",".join(COLUMNS), GOOD]) + "\r\n").encode())
    (figure,) = read(path)
    assert (figure.value, figure.number, figure.fraction) == ("41.0", 41.0, pytest.approx(0.41))
    assert figure.conditions == {"retrieval": "normal", "k": "5"}
    assert figure.source == "mine, table 1"


@pytest.mark.parametrize("content", [b"", b"paper,table\n", b"\xff\xfe"])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.csv"
    path.write_bytes(content)
    with pytest.raises(UserError):
        read(path)


def test_finding_by_paper_name_key_and_id() -> None:
    assert len(find(paper="clara", table="7", setting="retrieval=corpus;cr=16")) == 4 * 8
    assert {figure.method for figure in find(method="gpr", dataset="webqsp")} == {"GPR"}
    assert not find(dataset="hotpotqa", metric="recall@20")
    with raises("unknown-paper"):
        find(paper="carla")
    with raises("unknown-key"):
        find(setting="ratio=4")
    with raises("not-key-value"):
        find(setting="oracle")


def test_every_key_is_used_and_explained() -> None:
    assert {key for figure in figures() for key in figure.conditions} == set(KEYS)
    assert all(KEYS.values())


REWRITTEN = {"1e-6", "16094"}
"""Printed 1 × 10^-6 and 16 094."""
WORDS = {("sark", "hyperparameter.runs_averaged"), ("ark", "hyperparameter.judge_repetitions")}
"""Numbers printed as words."""
WIDE = {key for key, (_, columns, _) in TABLES.items() if columns >= 4}
BESIDE = {"questions", "judge", "style", "seen", "over"}
"""Keys that change from cell to cell of a printed row."""
WIDE_ROWS = sum(rows for key, (rows, columns, _) in TABLES.items() if key in WIDE)
NO_VALUES = re.compile(r"</?b>|\{[\d.]+\}|[\d.]+M |Llama3\.1|Qwen2\.5")
"""Numbers that are markup or names."""


@pytest.fixture(scope="module")
def papers() -> dict[str, str]:
    folder = ROOT.parent / "shared" / "papers"
    if not folder.is_dir():
        pytest.skip("the papers' texts are not beside the repository, in ../shared/papers")
    return {paper: (folder / f"{paper}.txt").read_text("utf-8") for paper in paper_figures.papers()}


def test_every_value_stands_in_its_paper(papers: dict[str, str]) -> None:
    for paper, text in papers.items():
        numbers = {result.strip(",.") for result in re.findall(r"\d[\d,]*\.?\d*(?:e-\d+)?", text)}
        for figure in figures(paper):
            if figure.value not in REWRITTEN and (paper, figure.metric) not in WORDS:
                known = figure.value in text if figure.unit == "text" else figure.value.lstrip("+-") in numbers
                assert known, figure


def test_every_row_of_a_wide_table_is_one_line_of_its_paper(papers: dict[str, str]) -> None:
    printed = [figure for figure in figures() if (figure.paper, figure.table) in WIDE]
    rows = itertools.groupby(
        printed,
        lambda f: (
            f.paper,
            f.table,
            f.method,
            f.metric == "f1_gain",
            tuple(item for item in f.conditions.items() if item[0] not in BESIDE),
        ),
    )
    lines = {
        paper: {tuple(re.findall(r"[+-]?\d+\.\d+", NO_VALUES.sub("", line))) for line in text.split("\n")} for paper, text in papers.items()
    }
    checked = 0
    for key, row in rows:
        assert tuple(figure.value for figure in row) in lines[key[0]], key
        checked += 1
    assert checked == WIDE_ROWS

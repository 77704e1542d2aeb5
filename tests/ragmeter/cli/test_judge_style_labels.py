"""Labels of style pairs by people, from export to agreement."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.schema import Passage, passage_id
from benchmarks.styles.pairs import Rewriting, write_pairs


def passage_of(text: str) -> Passage:
    return Passage(passage_id("", text), "", text)


def test_pairs_are_exported_labeled_imported_and_compared(tmp_path: Path, ragmeter: Callable[..., Any]) -> None:
    pairs, items = tmp_path / "pairs.jsonl", tmp_path / "items.csv"
    texts = [(f"Text {n}.", f"So, text {n}!") for n in range(6)]
    rewritings = [Rewriting("", passage_of(formal), "informal", passage_of(styled), "test") for formal, styled in texts]
    write_pairs(pairs, rewritings, rewriter="test", made_from="test")
    of_pairs = ("--style-pairs", str(pairs))
    assert ragmeter("judge", "labels", "export", *of_pairs, "-o", str(items), "--criterion", "content", "--count", "4").code == 0
    with items.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    for name in ("ann", "bob"):
        with items.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows({**row, "label": "no" if number else "yes"} for number, row in enumerate(rows))
        done = ragmeter("judge", "labels", "import", str(items), "--annotator", name, *of_pairs)
        assert done.code == 0, done.err
        assert "4 labels" in done.out
    (check,) = json.loads(ragmeter("judge", "labels", "show", *of_pairs, "--json").out)["checks"]
    assert (check["style"], check["criterion"], check["annotators"], check["share"]["value"]) == ("informal", "content", 2, 0.25)
    assert check["kappa"]["corrected"]["value"] == check["alpha"]["corrected"]["value"] == 1.0
    assert ragmeter("judge", "labels", "export", "some-run", *of_pairs, "-o", str(tmp_path / "x"), "--criterion", "style").code == 2

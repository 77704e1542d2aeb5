"""The comment on a pull request: what it lists, and that untrusted text cannot act in it."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark, DataReference
from benchmarks.schema import Question
from judges.metric import parse
from methods.api import Prediction
from results.gate.comment import MARK, comment_of, worse_questions
from results.gate.decision import ask
from results.gate.many import decide_cells
from results.gate.verdicts import Gate
from results.store import queries
from results.store.store import FINISHED, Run, Store
from tests.support.toy import CARD

F1 = "f1(rules=squad)#v2"
COUNT = 60
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1)) ![x](https://evil.example/x.png)",
    "https://evil.example www.evil.example",
    "@everyone @org/team #1 GH-2 org/repo#3",
    "a | b\n\n## heading\n\n- [x] done\n<!-- ragmeter gate -->",
    "`code` ``` fence",
    "\u202egnirts desrever\u202c \x1b[31mred\x07",
    "**bold** _it_ ~~no~~ \\ $x$ &lt;b&gt;",
)


def compared(store: Store, names: tuple[str, ...] = (), second: dict[str, Any] | None = None, first: dict[str, Any] | None = None) -> Gate:
    """Decide on two runs whose second half of questions got worse; ids and texts of questions come from `names`."""
    texts = [names[n % len(names)] + f" {n}" if names else f"question {n}" for n in range(COUNT)]
    items = [Question(text if names else f"q{n}", text, ("a",)) for n, text in enumerate(texts)]
    benchmark = Benchmark(DataReference("toy", None, "dev"), 1, CARD, items, Corpus.of([]))
    store.put_benchmark(benchmark, benchmark.fingerprint)
    store.put_cards([], [parse("f1")])
    rows = []
    for name, changed in (("one", first), ("two", second)):
        fields: dict[str, Any] = {"description": {"method": {"id": "m"}}, "provenance": {}} | (changed or {})
        run = Run(
            f"{name}-0123456789",
            name,
            "m",
            "retriever",
            fields.pop("description"),
            "toy:dev",
            benchmark.fingerprint,
            "distractor",
            0,
            COUNT,
            **fields,
        )
        store.start(run)
        store.append(run.run, [Prediction(q.id, "x") for q in items], {})
        scores = np.ones(COUNT) if name == "one" else np.r_[np.ones(COUNT // 2), np.linspace(0, 0.5, COUNT // 2)]
        store.put_scores(run.run, [q.id for q in items], {F1: scores})
        store.end(run.run, FINISHED)
        rows.append(queries.find_run(store, run.run))
    return ask(store, *rows, metrics=["f1"], margin=0.01)


def test_the_worst_questions_come_first_with_their_values_and_command(store: Store) -> None:
    gate = compared(store)
    assert gate.outcome == "regressed"
    worse = worse_questions(store, gate, gate.verdicts[0])
    assert [item.question for item in worse] == [f"q{n}" for n in range(30, 60)]
    assert (worse[0].before, worse[0].after, worse[-1].after) == (1.0, 0.0, 0.5)
    text = comment_of(store, gate, "main", "mine")
    assert text.startswith(f"{MARK}\n")
    assert "30 of 60 questions got worse; the worst 10" in text
    assert re.findall(r"`ragmeter results show two-0123456789 (\S+)`", text) == [f"q{n}" for n in range(30, 40)]
    assert "q30 100.00 → 0.00: question 30" in text


def test_verdict_on_the_two_sides_comes_before_the_table(store: Store) -> None:
    lines = comment_of(store, compared(store), "main", "@candidate", None).splitlines()
    assert lines[0] == MARK
    line = next(number for number, text in enumerate(lines) if "**main**" in text)
    assert line < next(number for number, text in enumerate(lines) if text.startswith("|"))
    assert "**main** is best on f1" in lines[line]
    assert "@candidate" not in lines[line]
    assert "candidate**: +37.5" in lines[line]
    assert not any("is best" in text for text in comment_of(store, compared(store), "same", "same").splitlines())


def test_worse_means_higher_if_less_is_better(store: Store) -> None:
    gate = compared(store)
    turned = replace(gate.verdicts[0], higher_is_better=False)
    assert worse_questions(store, gate, turned) == []


def test_untrusted_text_is_shown_and_does_not_act(store: Store) -> None:
    described = {"description": {"method": {"id": "m", "config": {"prompt": " ".join(HOSTILE), "`k": 1}}}}
    gate = compared(store, HOSTILE, described, {"description": {"method": {"id": "m", "config": {"prompt": "p", "`k": 2}}}})
    gate = replace(gate, remarks=(*gate.remarks, *HOSTILE))
    text = comment_of(store, gate, HOSTILE[0], HOSTILE[3], address=lambda *_: "https://board.example.org/questions?question=q")
    assert text.splitlines()[0] == MARK
    assert text.count("<!--") == 1
    assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e]", text)
    tokens = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table").parse(text)
    kinds = [token.type for token in tokens]
    assert kinds.count("heading_open") == 1
    assert [token.content.strip() for token in tokens if token.type == "html_block"] == [MARK]
    inner = [child for token in tokens for child in token.children or ()]
    assert not {"html_inline", "image"} & {child.type for child in inner}
    links = {child.attrs["href"] for child in inner if child.type == "link_open"}
    assert links == {"https://board.example.org/questions?question=q"}
    shown = "\n".join(child.content for child in inner if child.type == "text")
    # GitHub reads mentions, references to issues and bare addresses from text, but not from code.
    assert not re.search(r"(?i)(?<![a-z0-9])@\w|#\d|\bgh-\d|://|www\.\w", shown)
    assert "onerror" in shown


def test_a_command_quotes_the_question_for_a_shell(store: Store) -> None:
    gate = compared(store, ("-rf $(touch x) `id` 'a'",))
    text = comment_of(store, gate, "main", "mine")
    command = re.findall(r"(`+) ?(ragmeter results show .+?) ?\1(?!`)", text)[0][1]
    assert shlex.split(command) == ["ragmeter", "results", "show", "--", "two-0123456789", "-rf $(touch x) `id` 'a' 30"]


def test_a_comment_is_never_longer_than_github_takes(store: Store) -> None:
    gate = compared(store)
    text = comment_of(store, replace(gate, remarks=("x" * 10_000,) * 20), "main", "mine")
    assert len(text) < 65_536
    cells = decide_cells([gate] * 80, [True] * 80)
    assert "… and 30 more cells" in comment_of(store, cells, "main", "mine")


def test_a_cell_that_may_be_inconclusive_is_marked(store: Store) -> None:
    gate = compared(store)
    few = replace(gate, verdicts=(replace(gate.verdicts[0], outcome="inconclusive"),), outcome="inconclusive")
    text = comment_of(store, decide_cells([few, few], [False, True]), "main", "mine")
    assert [line.split(" | ")[2] for line in text.splitlines() if "inconclusive |" in line or "(allowed)" in line] == [
        "❔ inconclusive (allowed)",
        "❔ inconclusive",
    ]


def test_changes_between_runs_are_listed(store: Store) -> None:
    def made(model: str, weights: str, code: str, files: dict[str, str], revision: str) -> dict[str, Any]:
        return {
            "description": {
                "method": {"id": "acme", "version": 1, "config": {"model": model, "k": 5}, "weights": None, "code": code},
                "rerankers": [{"id": "cross", "version": 1, "config": {}, "weights": weights}],
                "revision": revision,
            },
            "provenance": {"code": {"method acme": {"identity": "code", "hash": code, "files": files}}},
        }

    old = made("good", "a" * 64, "c1", {"a.py": "1", "b.py": "1", "c.py": "1"}, "v1")
    new = made("bad", "b" * 64, "c2", {"a.py": "2", "b.py": "1", "d.py": "1"}, "v2")
    gate = compared(store, (), new, old)
    lines = [line for line in comment_of(store, gate, "main", "mine").split("**What changed**")[1].splitlines() if line.startswith("- ")][
        :4
    ]
    expected = [["- `acme` changed", "a.py", "c.py", "d.py"], ["model good → bad"], ["weights", "cross"], ["revision", "v1 → v2"]]
    assert [all(word in line for word in words) for line, words in zip(lines, expected, strict=True)] == [True] * 4
    same = ask(store, gate.baseline, gate.baseline, metrics=["f1"], margin=0.5, allow_same=True)
    assert "nothing in the description" in comment_of(store, same, "main", "main")

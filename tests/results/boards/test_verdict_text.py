"""The sentences of planted verdicts: which facts they state, and which they leave out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from results.boards.verdict import Against, BoardVerdict, CostRatio, Entrant, Needed, Place
from results.boards.verdict_text import Headline, headline_parts, headlines, place_names, text, verdict_parts, verdict_text

F1 = Place((("hotpotqa:dev", "distractor"),), "f1#v2", "f1", questions=500, clusters=500)
EM = replace(F1, metric="em#v2", name="em")
BEST = Entrant("gpr", 0.634, 0.613, 0.655, 500)
AHEAD = Against("bm25", 0.042, 0.023, 0.061, 0.001, 500, 500, cost=CostRatio("tokens", 2.13))
LEVEL = Against("bm25", 0.004, -0.018, 0.026, 0.7, 500, 500, needed=Needed(4100, 4100))
FEW = Against("bm25", 0.25, -0.5, 0.9, 1.0, 4, 4, "4 questions, fewer than 10")

CLEAR = BoardVerdict(F1, BEST, worse=("bm25", "dense"), next=AHEAD)
TIED = BoardVerdict(F1, BEST, equal=("bm25",), worse=("dense",), next=LEVEL)
LITTLE = BoardVerdict(replace(F1, questions=4, clusters=4), BEST, untested=("bm25", "dense"), next=FEW)
SINGLE = BoardVerdict(F1, BEST)
NOBODY = BoardVerdict(F1, left_out={"leak": "contaminated: hotpotqa was trained on"})


@pytest.mark.parametrize(
    ("verdict", "stated", "absent"),
    [
        (
            CLEAR,
            ["gpr is best on f1: 63.4 ± 2.1", "bm25: +4.2 ± 1.9 (significant)", "2.1× its tokens", "500 questions"],
            ["dense", "takes"],
        ),
        (
            TIED,
            ["No single best", "gpr", "bm25", "+0.4 ± 2.2 (not significant)", "4,100 questions", "80 % power"],
            ["is best", "×", "dense"],
        ),
        (LITTLE, ["Insufficient data", "gpr", "bm25 and dense", "4 questions, fewer than 10"], ["is best on", "takes"]),
        (
            replace(LITTLE, worse=("far",)),
            ["gpr is best on f1 among the methods tested", "insufficient data against bm25"],
            ["Insufficient"],
        ),
        (SINGLE, ["Only gpr is ranked on f1: 63.4 ± 2.1", "500 questions", "add a second"], ["best", "Difference"]),
        (replace(SINGLE, left_out={"dense": "running: 1 of 2"}), ["Only gpr is ranked on f1 so far", "dense (running)"], ["add a second"]),
        (NOBODY, ["No method is ranked on f1", "leak (contaminated)"], ["hotpotqa"]),
        (replace(CLEAR, place=replace(F1, scale=1.0, higher_is_better=False, name="seconds")), ["seconds (lower is better)"], ["63.4"]),
        (replace(TIED, place=replace(F1, higher_is_better=False)), ["lowest value", "lower is better"], ["highest"]),
        (replace(CLEAR, best=replace(BEST, failed=12)), ["gpr failed on 12 questions, counted as wrong"], []),
        (replace(CLEAR, next=replace(AHEAD, generalizes="new questions, this checkpoint only")), ["this checkpoint only"], []),
        (replace(TIED, next=replace(LEVEL, needed=Needed(None, None))), ["No number of questions"], ["takes"]),
        (replace(TIED, next=replace(LEVEL, needed=Needed(None, None, 5))), ["takes 5 training seeds"], ["questions in"]),
        (
            replace(TIED, place=replace(F1, clusters=30, kind="world"), next=replace(LEVEL, needed=Needed(240, 4000))),
            ["500 questions in 30 worlds", "about 4,000 questions in 240 worlds"],
            [],
        ),
        (replace(CLEAR, left_out={f"m{n}": "running: 1 of 2" for n in range(4)}), ["4 methods (4 running)"], ["m0"]),
    ],
)
def test_sentences_state_the_outcome(verdict: BoardVerdict, stated: list[str], absent: list[str]) -> None:
    sentence = verdict_text(verdict)
    assert [piece for piece in stated if piece not in sentence] == []
    assert [piece for piece in absent if piece in sentence] == []


def test_reference_is_stated_unless_the_next_method_is_the_reference_with_the_same_mark() -> None:
    dense = replace(AHEAD, name="dense", value=0.07, low=0.05, high=0.09)
    assert "dense: +7.0" in verdict_text(replace(CLEAR, reference=dense))
    assert verdict_text(replace(CLEAR, reference=AHEAD)) == verdict_text(CLEAR)
    assert "(significant)" in verdict_text(replace(TIED, reference=AHEAD))


def test_benchmark_is_named_where_asked_and_a_suite_always() -> None:
    assert verdict_text(CLEAR, where="main: distractor").startswith("main: distractor: gpr is best")
    suite = replace(CLEAR, place=replace(F1, benchmarks=(("a", "full"), ("b", "full"))))
    assert verdict_text(suite).startswith("Mean over 2 benchmarks: ")


def test_many_methods_are_counted_instead_of_named() -> None:
    assert "299 methods" in verdict_text(replace(TIED, equal=tuple(f"m{n}" for n in range(299))))


def test_names_of_methods_are_parts_of_their_own() -> None:
    evil = "<script>.** "
    parts = verdict_parts(replace(CLEAR, best=replace(BEST, name=evil), left_out={evil: "running"}))
    assert [part.kind for part in parts if evil in part.text] == ["method", "method"]


def test_headline_states_what_other_metrics_say() -> None:
    other = replace(CLEAR, place=EM, best=replace(BEST, name="dense"))
    (whole,) = headlines([CLEAR, other, replace(TIED, place=replace(EM, name="recall@5"))])
    sentence = text(headline_parts(whole))
    assert "dense is best on em" in sentence
    assert "no single best method on recall@5" in sentence
    assert headline_parts(Headline(CLEAR)) == verdict_parts(CLEAR)
    assert len(headlines([CLEAR, replace(CLEAR, place=replace(F1, benchmarks=(("other", "full"),)))])) == 2


def test_names_of_benchmarks_are_as_short_as_tells_them_apart() -> None:
    def about(dataset: str, print_: str) -> Headline:
        return Headline(replace(CLEAR, place=replace(F1, benchmarks=((dataset, "full"),), fingerprints=(print_,))))

    assert place_names([about("a:test(seed=1)", "x"), about("b:test(seed=1)", "y")]) == ["a:test, full", "b:test, full"]
    assert place_names([about("a:test(seed=1)", "x"), about("a:test(seed=2)", "y")]) == ["a:test(seed=1), full", "a:test(seed=2), full"]
    assert place_names([about("a:test", "x1"), about("a:test", "y2")]) == ["a:test, full (x1)", "a:test, full (y2)"]

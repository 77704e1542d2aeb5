"""The contexts of RetRobust's rows."""

from __future__ import annotations

from collections import Counter

from benchmarks.schema import Passage, Question
from methods.baselines.end_to_end.retrobust_training import KINDS, contexts
from methods.baselines.tuned import Example


def test_contexts_are_top_ranked_low_ranked_or_random_with_equal_frequency() -> None:
    own = tuple(Passage(f"own{n}", "", "") for n in range(5))
    others = [*own, *(Passage(f"other{n}", "", "") for n in range(5))]
    examples = [Example(Question(str(n), "q", ("a",)), own) for n in range(600)]
    drawn = [contexts(example, others, 2, 0) for example in examples]
    counts = Counter(kind for kind, _ in drawn)
    assert set(counts) == set(KINDS)
    assert min(counts.values()) > 160
    for kind, shown in drawn:
        ids = {passage.id for passage in shown}
        assert len(ids) == 2
        if kind == "first":
            assert shown == own[:2]
        elif kind == "low":
            assert ids <= {"own2", "own3", "own4"}
        else:
            assert all(item.startswith("other") for item in ids)
    assert drawn == [contexts(example, others, 2, 0) for example in examples]
    assert contexts(Example(examples[0].question, own[:2]), own[:2], 2, 0)[1] in (own[:2], ())

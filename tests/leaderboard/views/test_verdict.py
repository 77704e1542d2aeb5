"""The first line names metrics as the heads of the tables do."""

from __future__ import annotations

from leaderboard.elements.formats import PERCENT, metric_label, metric_name
from leaderboard.elements.nodes import facts
from leaderboard.views.verdict import named_for_people
from results.boards.tables import labels
from results.boards.verdict import BoardVerdict, Place


def test_label_of_a_short_name_is_the_head_of_its_column() -> None:
    for metric in ("cover_em#v1", "mrr@5#v1", "em#v2", "f1(rules=hotpotqa)#v2"):
        assert metric_label(labels([metric])[metric]) == metric_name(metric, [metric])[0]
    assert metric_label("faithfulness (small)") == "faithfulness (small)"


def test_verdict_keeps_everything_but_the_spelling_of_its_metric() -> None:
    place = Place((("wiki", "distractor"),), "cover_em#v1", "cover_em")
    shown = named_for_people(BoardVerdict(place))
    assert (shown.place.name, shown.place.metric, shown.place.benchmarks) == ("cover EM", place.metric, place.benchmarks)


def test_regions_of_facts_have_their_own_labels() -> None:
    assert facts([("a", "b")], "Settings").to_json() != facts([("a", "b")]).to_json()


def test_asymmetric_interval_of_a_difference_has_signs() -> None:
    assert PERCENT.around(0.038, -0.209, 0.267, signed=True) == "[−20.9, +26.7]"
    assert PERCENT.around(0.038, -0.209, 0.267) == "[−20.9, 26.7]"

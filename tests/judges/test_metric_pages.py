"""Pages about metrics: the reference equals the registry, and the guide names only existing metrics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs._site.reference import metrics_page
from judges.metric import METRICS, NEEDS, MetricEntry, parse, written

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
GROUPS = ("answer", "text", "graph", "retrieval", "support", "triples", "joint")


@pytest.fixture(scope="module")
def reference() -> str:
    return metrics_page()


def ours() -> list[MetricEntry]:
    return [entry for entry in METRICS if METRICS.source(entry.id).startswith("judges.metrics.")]


def section(reference: str, metric: str) -> str:
    """Return the page's section on a metric."""
    (result,) = re.findall(rf"^### [^\n]*{{ #{metric} }}\n(.*?)(?=^##|\Z)", reference, re.MULTILINE | re.DOTALL)
    return str(result)


def test_reference_page_defines_every_registered_metric(reference: str) -> None:
    for entry in ours():
        response = section(reference, entry.id)
        assert entry.definition in response
        assert f"- source: {entry.source}" in response
        for end in (entry.low, entry.high):
            assert end is None or f"{end:g}" in response.partition("- range: ")[2].partition("\n")[0], entry.id
        assert ("lower is better" in response) is not entry.higher_is_better, entry.id
        for parameter in entry.parameters:
            if parameter.name != "k":
                assert f"| `{parameter.name}` |" in response
                assert all(f"`{written(choice)}`" in response for choice in parameter.choices), entry.id


def test_every_metric_group_has_a_section(reference: str) -> None:
    assert {entry.group for entry in ours()} == set(GROUPS)
    assert len(re.findall("^## ", reference, re.MULTILINE)) >= len(GROUPS) + 1


def test_metric_ids_in_the_guide_parse() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    ids = re.findall(r"`([a-z]\w*(?:@\d+|\([a-z]+=[\w.,=-]+\))(?:#v\d+)?)`", guide)
    assert len(set(ids)) > 12
    for text in ids:
        assert str(parse(text)).startswith(re.split(r"[@(]", text)[0])


def test_reference_page_explains_every_need(reference: str) -> None:
    for need, meaning in NEEDS.items():
        assert f"| `{need}` | {meaning} |" in reference

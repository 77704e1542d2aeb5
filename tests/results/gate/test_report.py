"""The JUnit report of a gate, whose readers show its text as it is."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

from benchmarks.core.unseen import UNSEEN
from results.gate.report import junit_of
from results.store.store import Store
from tests.results.gate.test_comment import HOSTILE, compared


def test_junit_has_no_characters_that_turn_or_color_text(store: Store) -> None:
    gate = compared(store)
    hostile = replace(gate, candidate=replace(gate.candidate, method=" ".join(HOSTILE)), remarks=HOSTILE)
    text = junit_of(hostile)
    assert not UNSEEN.search(text.replace("\n", ""))
    (case,) = ET.fromstring(text).iter("testcase")
    assert "<img src=x onerror=alert(1)>" in str(case.get("classname"))

"""Rerankers and end-to-end systems that are language models: measured rows, scripted rows, and rows on random checkpoints."""

from __future__ import annotations

import pytest

from methods.models.scripts import ScriptedConfig
from ragmeter import experiment

END_TO_END = {
    "GenGround (prompted)",
    "In-context RAG (prompted)",
    "In-context RAG (as published)",
    "RetRobust (released for NQ)",
    "RetRobust (released for 2Wiki)",
    "ChatQA (released)",
    "Self-RAG (released)",
    "DPA-RAG (untrained)",
    "DDR-RAG (released)",
    "DRO (untrained)",
}
ROWS = {
    "sark/table1": {"RankGPT", "RankLlama"},
    "sark/table2": {"RankGPT", "RankLlama"},
    "sark/table6": {"RankGPT", "RankLlama"},
    "clara/table8": {"RankZephyr-7B", "Setwise", "Rank-R1", "Sup-Instruct"},
    "clara/table3": END_TO_END,
    "clara/table7": END_TO_END,
}


def test_measured_and_scripted_rows_are_never_in_one_table() -> None:
    def scripted(name: str) -> set[bool]:
        made = [method.composition for method in experiment.load(name).methods]
        parts = [part for item in made for part in (item.method, item.reader, *item.rerankers) if part is not None]
        return {isinstance(part.config.llm, ScriptedConfig) for part in parts if hasattr(part.config, "llm")}

    for folder in ("rerank", "end_to_end"):
        assert scripted(f"{folder}/worlds") == {False}
        assert scripted(f"{folder}/scripted") == {True}
        assert "check of the plumbing" in experiment.load(f"{folder}/scripted").description


@pytest.mark.parametrize("name", ROWS)
def test_paper_rows_equal_the_rows_run_on_random_checkpoints(name: str) -> None:
    whole, tiny = experiment.load(name), experiment.load(name, profile="tiny")
    assert {method.name for method in tiny.methods} == ROWS[name]
    named = {method.name: [part.id for part in method.composition.rerankers] for method in whole.methods}
    for method in tiny.methods:
        like = [parts for other, parts in named.items() if other == method.name or (method.name, other[:4]) == ("Sup-Instruct", "Sup-")]
        assert like
        assert all(parts == [part.id for part in method.composition.rerankers] for parts in like)

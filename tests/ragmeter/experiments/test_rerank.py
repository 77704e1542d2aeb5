"""Rerankers and end-to-end systems that are language models: what is measured, what is scripted, tables on random checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import registry as datasets
from methods.models.llm import ScriptedConfig
from ragmeter import experiment
from tools.tiny_checkpoints import make

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


def test_measured_rows_and_scripted_ones_never_stand_in_one_table() -> None:
    def scripted(name: str) -> set[bool]:
        made = [method.composition for method in experiment.load(name).methods]
        parts = [part for item in made for part in (item.method, item.reader, *item.rerankers) if part is not None]
        return {isinstance(part.config.llm, ScriptedConfig) for part in parts if hasattr(part.config, "llm")}

    for folder in ("rerank", "end_to_end"):
        assert scripted(f"{folder}/worlds") == {False}
        assert scripted(f"{folder}/scripted") == {True}
        assert "check of the plumbing" in experiment.load(f"{folder}/scripted").description


@pytest.mark.parametrize("name", ROWS)
def test_the_rows_of_the_papers_are_those_that_run_on_random_checkpoints(name: str) -> None:
    whole, tiny = experiment.load(name), experiment.load(name, profile="tiny")
    assert {method.name for method in tiny.methods} == ROWS[name]
    named = {method.name: [part.id for part in method.composition.rerankers] for method in whole.methods}
    for method in tiny.methods:
        like = [parts for other, parts in named.items() if other == method.name or (method.name, other[:4]) == ("Sup-Instruct", "Sup-")]
        assert like
        assert all(parts == [part.id for part in method.composition.rerankers] for parts in like)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sark/table2", "clara/table8", "clara/table3"])
def test_a_table_runs_end_to_end_on_random_checkpoints(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    make(Path("tiny"))
    done = call("run", name, "--profile", "tiny", "--limit", "2", "--store", str(tmp_path / "store"))
    assert done.code == 0, done
    assert all(row in done.out for row in ROWS[name])
    if "GenGround (prompted)" in ROWS[name]:
        run = ("clara-table3/GenGround (prompted)", "--store", str(tmp_path / "store"))
        assert "ended plain 2" in " ".join(call("results", "show", *run).out.split())
        question = datasets.load("worlds/multihop:test", {"worlds": 2, "questions": 4, "candidates": 20}).questions[0].id
        steps = call("results", "show", run[0], question, *run[1:]).out
        assert "genground/genground_deduce" in steps
        assert "genground/read" in steps

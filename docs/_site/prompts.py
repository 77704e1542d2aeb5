"""The reference page of prompts: which one each system uses, where it comes from, and its license."""

from __future__ import annotations

from benchmarks.published_prompts import registry
from docs._site.markdown import page, table
from methods.baselines.end_to_end.search_r1 import TEMPLATES
from methods.baselines.hyde import PROMPT as HYDE
from methods.baselines.rerank.log_odds import PROMPTS as LOG_ODDS
from methods.baselines.rerank.prompts import PROMPTS as RERANKERS
from methods.readers.end_to_end import RALM
from methods.registry import METHODS

KINDS = {
    "Rerankers": "methods.baselines.rerank.",
    "Compressors": "methods.baselines.compress.",
    "Graph RAG": "methods.baselines.graph_rag.",
    "End-to-end systems": "methods.baselines.end_to_end.",
}
ELSEWHERE = {
    "End-to-end systems": ("chatqa", "ddr_generator", "in_context_rag", "in_context_ralm", "rq_rag_prompted"),
    "Graph RAG": ("hyde",),
}
NAMED = {"in_context_ralm": "ic_ralm"}
"""Systems whose published prompts have another name."""
RELEASED_ONLY = {
    "rankllama": "layout of its model card",
    "self_rag": "layout of its training (Self-RAG, MIT)",
    "retrobust": "ours; layout `released`: that of its training",
    "chatqa": "format of its model card",
    "recomp_abstractive": "published words (RECOMP, MIT)",
    "memorag": "`memory: long_llm` and `lite`: ours",
    "search_r1": "R1-Searcher: ours",
    "memory_reader": "that of the checkpoint that compressed the passages",
}


DEFAULTS = {
    **{shipped.published: shipped for shipped in (*RERANKERS.values(), *LOG_ODDS.values(), *TEMPLATES.values(), *RALM.values())},
    "hyde": HYDE,
    "ic_ralm_one": RALM["ic_ralm"],
}
"""Templates by the name of the published prompt that may stand in their place; readers of compressors have it by default."""


OF_TRAININGS = {"graphrag_claims": ("`train ark`", "with `kg.claims: published`: ")}
"""Published prompts that a training asks with, by name: the training, and when it does."""


def prompts_page() -> str:
    """Return the page of prompts: source and license per system."""
    lead = (
        "Which prompt each system uses, and its license. Published prompts are downloaded, not shipped; *ours* ships with ragmeter. "
        "The option `prompt` (or a folder, `prompts`) replaces a prompt by [a file of yours](../models.md#prompt-files); with prompts of "
        "your own, published figures have another setting. How the prompts compare with the authors' code: "
        "[released checkpoints](released.md)."
    )
    heads = ("system", "prompt", "license")
    of_kinds = {kind: prompts_of(kind) for kind in KINDS} | {"Trainings": prompts_of_trainings()}
    return page("Prompts", lead, (f"## {kind}\n\n{table(heads, rows)}" for kind, rows in of_kinds.items()))


def prompts_of_trainings() -> list[tuple[str, str, str]]:
    """Return training, prompt and license, one row per published prompt."""
    rows = ((training, condition, registry()[name]) for name, (training, condition) in OF_TRAININGS.items())
    return [(training, condition + entry.source, entry.license) for training, condition, entry in rows]


def prompts_of(kind: str) -> list[tuple[str, str, str]]:
    """Return system, prompt and license of a kind, one row per system and published prompt."""
    entries = [entry for entry in METHODS if entry.factory.__module__.startswith(KINDS[kind]) or entry.id in ELSEWHERE.get(kind, ())]
    rows = []
    for entry in sorted(entries, key=lambda entry: entry.id):
        own = NAMED.get(entry.id, entry.id)
        graph = list(dict.fromkeys(getattr(entry.config, "published", {}).values()))
        known = graph or [name for name in registry() if name == own or name.startswith(f"{own}_")]
        for name in known:
            condition = "" if name not in DEFAULTS or DEFAULTS[name].released else "with `prompt: published`: "
            condition = "preset `released` (`prompts: published`): " if graph else condition
            rows.append((f"`{entry.id}`", condition + registry()[name].source, registry()[name].license))
        options = {"prompt", "prompts", "llm"} & set(entry.config.model_fields)
        if (text := RELEASED_ONLY.get(entry.id)) or (options and not known):
            rows.append((f"`{entry.id}`", text or "ours", "–"))
    return list(dict.fromkeys(rows))

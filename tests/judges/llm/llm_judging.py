"""LLM judges at an endpoint, and their questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.schema import Passage, Question
from judges.judge import Item, Judge, JudgeCall, Pair
from methods.api import Prediction, Services
from methods.models.chat_config import ChatConfig

PARIS = Question("1", "What is the capital of France?", ("Paris",), {"Paris": ("City of Light",)})


def build(name: str, url: str, cache: Path | None = None, **options: Any) -> Any:
    """Build a judge; options of the endpoint are among the options."""
    endpoint = {option: options.pop(option) for option in ChatConfig.model_fields if option in options}
    model = {"model": "m", "base_url": url, "key_variable": None, "backoff_s": 0.001, **endpoint}
    return Judge.of(name, {"llm": model, **options}).build(Services(cache=cache))


def item(question: Question, answer: str, **notes: Any) -> Item:
    return Item(question, Prediction(question.id, answer, notes=notes))


def pair(entry: str, other: str, question: Question = PARIS, passages: tuple[Passage, ...] = ()) -> Pair:
    return Pair(question, Prediction(question.id, entry), Prediction(question.id, other), passages)


def verdict_of(calls: list[JudgeCall]) -> Any:
    return calls[0].parsed.value["verdict"] if calls and calls[0].parsed.value else None

"""Every parser of untrusted text takes linear time, and raises only its documented error.

The texts resemble looping models and hostile files: one character 100,000 times, 16,000 nested brackets, and one tag or key
repeated many times.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from benchmarks import registry
from benchmarks.core.errors import UserError
from benchmarks.io.judged import Kind, read_table
from benchmarks.registry import DataReference
from benchmarks.settings import Setting
from benchmarks.text import is_abstention
from benchmarks.worlds.dataset import WorldsConfig
from judges import metric
from judges.llm import fences, grounding, reading
from methods import program
from methods.baselines import rq_rag
from methods.baselines.end_to_end import self_ask, self_rag
from methods.baselines.rerank import replies
from methods.gpr import questions
from methods.graphs import augmented_queries, extraction, knowledge_graph
from methods.models import bounded, rewriter, structured
from methods.readers import extract
from methods.sark import lists
from ragmeter import experiment
from ragmeter.show import console
from results.formats import trec
from results.formats.outputs import FORMATS
from results.offered import LIMITS
from results.store import failures, redaction
from results.submission import Findings
from results.submission.card import parse_card
from results.submission.validate import Target, validate

LENGTH, DEPTH = 100_000, 16_000
LIMIT_S = 5.0
"""Maximum CPU seconds per text; the slowest parser takes a tenth of it, a quadratic one would take minutes."""
CHARACTERS = "{[(\"'<*#- \n`}>:.|\\/_a0\t\u200b\u202e"
REPEATED = (
    "<think>",
    "</think>",
    "<answer>",
    "```\n",
    "[1]",
    "[1 ",
    '\\"',
    "1. ",
    "Answer: ",
    "sk-",
    '("entity"<|>',
    "'\"",
    "a\n",
    "\n ",
    "✅",
    "1, ",
)
TEXTS = {
    **{repr(character): character * LENGTH for character in CHARACTERS},
    **{repr(part): part * (LENGTH // len(part)) for part in REPEATED},
    "nested [": "[" * DEPTH + "]" * DEPTH,
    "nested {": '{"a":' * DEPTH + "1" + "}" * DEPTH,
    "nested (": "(" * DEPTH + ")" * DEPTH,
    "nested {}": "{" * 5000 + "}" * 5000,
    "open [{": "[{" * DEPTH,
    "open {": '{"a":' * DEPTH,
}


class _Shape(BaseModel):
    claims: list[str]


BENCHMARK = registry.load("worlds/multihop:validation", WorldsConfig(worlds=1, entities=22, community=22, questions=2))


def _reader(name: str) -> Callable[[str], Any]:
    read = FORMATS[name].reader(BENCHMARK)
    return lambda text: list(read(BytesIO(text.encode()), Findings(), LIMITS))


def _row(text: str) -> Any:
    row = json.dumps({"question_id": "q", "answer": text, "notes": {"failed": text[:60_000]}})
    return _reader("jsonl")(row)


def _from_file(read: Callable[[Path], Any], folder: Path) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        (folder / "file").write_text(text, encoding="utf-8")
        return read(folder / "file")

    return parse


MODEL_REPLIES: Mapping[str, Callable[[str], Any]] = {
    "JSON of a shape": lambda text: structured.parse(text, _Shape),
    "bare answer": extract.short_answer,
    "search queries": rq_rag.queries_of,
    "tagged answer": lambda text: program.tagged(text, "answer"),
    "answer behind a mark": lambda text: program.behind(f"So the answer is{text}", "So the answer is"),
    "text between tags": lambda text: bounded.between(text, "<search>", "</search>"),
    "self_ask": lambda text: (self_ask.FOLLOW_UP.search(text), self_ask.INTERMEDIATE.search(text)),
    "self_rag": self_rag.judged,
    "order": lambda text: replies.order_of(text, 5),
    "tagged order": lambda text: replies.order_of(text, 5, tagged=True),
    "label": lambda text: replies.label_of(text, 5),
    "number in a tag": lambda text: replies.answer_of(text, 5, thinks=True),
    "SARK's order": lambda text: lists.parse_order(text, 5),
    "GPR's question": questions.parse,
    "rewriting": lambda text: rewriter.lines_of(rewriter.bare_text(text)),
    "graph records": knowledge_graph.parse,
    "list of strings": extraction.strings_in,
    "augmented queries": augmented_queries.read_queries,
}
JUDGE_REPLIES: Mapping[str, Callable[[str], Any]] = {
    "word": lambda text: reading.read_word(text, ("Match", "Mismatch")),
    "criteria": lambda text: reading.read_criteria(text, ("overall", "style"), ("A", "B", "Tie")),
    "claims": lambda text: grounding.read_reply(grounding.STATEMENTS, text),
    "verdicts on claims": lambda text: grounding.read_reply("nli", text),
    "abstention": is_abstention,
    "text that is judged": fences.neutralized,
}
CARD = f"method: {{name: m, version: 1}}\nbenchmark: {BENCHMARK.name}\nsetting: distractor\ntraining_data: []\n"
METRICS = [metric.parse(name) for name in ("em", "f1", "recall@5")]


def _whole(text: str) -> Any:
    """Check a submission whose answers and prompts are this text."""
    row = {"answer": text, "prompt": text}
    rows = "".join(json.dumps(row | {"question_id": question.id}) + "\n" for question in BENCHMARK.questions)
    target = Target(BENCHMARK, BENCHMARK)
    return validate(parse_card(CARD.encode(), "card.yaml"), BytesIO(rows.encode()), target, file="p", metrics=METRICS).lines()


SUBMISSIONS: Mapping[str, Callable[[str], Any]] = {
    **{f"format {name}": _reader(name) for name in FORMATS},
    "answer of a row": _row,
    "answers and prompts": _whole,
    "card": lambda text: parse_card(text.encode(), "card.yaml"),
    "value in a card": lambda text: parse_card(b"format: 1\nnotes: " + text.encode(), "card.yaml"),
    "run": lambda text: trec.read_run(BytesIO(text.encode()), Findings(), LIMITS),
    "escaped id": lambda text: trec.escape(text),
}
OWN_TEXTS: Mapping[str, Callable[[str], Any]] = {
    "experiment": lambda text: experiment.parse(text, "file.yaml"),
    "setting": Setting.parse,
    "metric": metric.parse,
    "data reference": DataReference.parse,
    "cause of a failure": failures.cause_of,
    "secrets": redaction.without_secrets,
    "stored JSON": lambda text: redaction.shareable(json.dumps({"a": text})),
    "wrong value in an error": lambda text: redaction.echoed(text, ("api_key",)),
    "name of a field": redaction.names_secret,
    "terminal": console.printable,
}
PARSERS = {**MODEL_REPLIES, **JUDGE_REPLIES, **SUBMISSIONS, **OWN_TEXTS}


def require_linear(parse: Callable[[str], Any]) -> None:
    for name, text in TEXTS.items():
        began = time.process_time()
        try:
            parse(text)
        except UserError:
            pass
        except Exception as error:
            pytest.fail(f"{name}: {type(error).__name__}: {str(error)[:200]}")
        assert time.process_time() - began < LIMIT_S, name


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
def test_parsers_take_linear_time_and_raise_only_user_errors(name: str) -> None:
    require_linear(PARSERS[name])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["run", "qrels"])
def test_file_readers_take_linear_time_and_raise_only_user_errors(kind: Kind, tmp_path: Path) -> None:
    require_linear(_from_file(lambda path: read_table(path, kind), tmp_path))


def test_json_is_repaired_up_to_the_depth_limit() -> None:
    assert structured.parse('{claims: ["a", "b",]', _Shape).value == _Shape(claims=["a", "b"])
    deep = '{"claims": [' + "[" * bounded.DEEPEST
    assert structured.parse(deep, _Shape).value is None
    assert str(bounded.DEEPEST) in (structured.parse(deep, _Shape).failed or "")


@pytest.mark.parametrize("text", ["<Answer>a</answer> <answer>b</answer>", "</answer><answer>a</answer>", "<answer><answer>a</answer>"])
def test_first_pair_of_tags_is_found(text: str) -> None:
    match = bounded.between(text, "<answer>", "</answer>")
    assert match is not None
    assert match[1] in ("a", "<answer>a")
    assert bounded.between("<answer>a", "<answer>", "</answer>") is None

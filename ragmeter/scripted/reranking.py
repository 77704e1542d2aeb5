"""Answer the prompts of rerankers as the scripted LLM: passages with a fact of the question's proof come first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.registry import Benchmark
from benchmarks.schema import Question
from methods.baselines.rerank.prompts import PROMPTS
from methods.baselines.rerank.replies import LABELS
from methods.prompts import OURS, Prompt
from ragmeter.scripted.prompt_patterns import Request, Shown, Truth, answers, flat, handler, template_pattern

NUMBERS = tuple(str(number) for number in range(1, 101))


@handler
def order_window(truth: Truth, request: Request) -> str | None:
    """Reply to listwise reranking prompts with an order of the passages; after a short thought, if the system reasons first."""
    for name in ("rankgpt", "rankzephyr", "reasonrank", "dro"):
        ranked = _ranked(truth, name, request, NUMBERS)
        if ranked is not None:
            order = " > ".join(f"[{place + 1}]" for place in (ranked[:5] if name == "dro" else ranked))
            return f"<think>Facts first.</think> <answer>{order}</answer>" if name == "reasonrank" else order
    return None


@handler
def choose_passage(truth: Truth, request: Request) -> str | None:
    """Reply to Setwise's prompt with the label of the best passage."""
    ranked = _ranked(truth, "setwise", request, LABELS)
    return None if ranked is None else f"Passage {LABELS[ranked[0]]}"


@handler
def choose_document(truth: Truth, request: Request) -> str | None:
    """Reply to the prompts of Rank-R1, with and without reasoning, with the label of the best document."""
    for name, thought in (("rank_r1", "<think>The one with a fact.</think> "), ("rank_r1_direct", "")):
        ranked = _ranked(truth, name, request, NUMBERS)
        if ranked is not None:
            return f"{thought}<answer>[{ranked[0] + 1}]</answer>"
    return None


@answers(PROMPTS["ddr_refiner"].load(OURS))
def keep_passage(truth: Truth, shown: Shown) -> str:
    """Reply to DDR's refinement prompt: YES if the passage contains a fact of the proof."""
    question = truth.question(shown["query"])
    facts = [replace(question, triples=(triple,)) for triple in question.triples] if question else []
    return "YES" if any(truth.proven_by(fact, [shown["passage"]]) for fact in facts) else "NO"


def _ranked(truth: Truth, name: str, request: Request, labels: Sequence[str]) -> list[int] | None:
    """Return the order of a prompt's passages, those with a fact first; None for another prompt."""
    result = conversation(PROMPTS[name].load(OURS), request, labels)
    if result is None:
        return None
    query, passages = result
    # A long query is shown by its beginning, and so is a long passage.
    question = truth.questions.get(query) or next((q for text, q in truth.questions.items() if text.startswith(query)), None)
    if question is None:
        return list(range(len(passages)))
    proof = [text for benchmark in truth.benchmarks for text in _texts(benchmark, question)]
    holds = [any(text.startswith(passage) for text in proof) for passage in passages]
    if not any(holds):  # passages that were rewritten count by the names that they still hold
        facts = [replace(question, triples=(triple,)) for triple in question.triples]
        holds = [any(truth.proven_by(fact, [passage]) for fact in facts) for passage in passages]
    return sorted(range(len(passages)), key=lambda place: not holds[place])


def _texts(benchmark: Benchmark, question: Question) -> list[str]:
    """Return the texts of a question's evidence with collapsed white space."""
    ids = [identifier for identifier in question.evidence if identifier in benchmark.corpus]
    return [flat(passage.full_text) for passage in benchmark.corpus.get(ids)]


def conversation(prompt: Prompt, request: Request, labels: Sequence[str]) -> tuple[str, list[str]] | None:
    """Extract query and passages from a conversation made from a prompt; None if it was not."""
    messages = request.messages
    opening = next(part for part in prompt.parts if "$count" in part.text)
    counts = [template_pattern(opening.text.strip()).match(message["content"]) for message in messages]
    count = next((int(match["count"]) for match in counts if match and match["count"].isdecimal()), 0)
    each = [{"label": label, "passage": f"$passage{number}"} for label, number in zip(labels, range(count), strict=False)]
    expected = prompt.messages(each, query="$query", count=count)
    if not count or len(expected) != len(messages):
        return None
    filled: dict[str, str] = {}
    for wanted, message in zip(expected, messages, strict=True):
        match = template_pattern(wanted["content"]).fullmatch(message["content"])
        if match is None:
            return None
        filled.update(match.groupdict())
    return filled["query"], [filled[f"passage{number}"] for number in range(count)]

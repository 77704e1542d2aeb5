"""How the scripted LLM answers the prompts of end-to-end systems.

A question is a chain of hops: the steps that its gold names, or one for each thing that it compares. From memory the script
knows four answers of ten, so that a system that never looks is mostly wrong; what passages prove it says as they have it.
It goes on from what it said before: one wrong answer makes the rest wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from benchmarks.core.random import Draws
from benchmarks.schema import Question
from benchmarks.text import normalize
from methods.gpr.questions import MASK, MaskedTriple, WorldsQuestions
from methods.prompts import Shipped
from ragmeter.scripted.prompt_patterns import Request, filled

KNOWN = 0.4
"""Share of the hops whose answer it knows by heart."""
UNKNOWN = "unknown"
_STEP = re.compile(r"^Question \d+: (.*)\nAnswer \d+: (.*)$", re.MULTILINE)
_FOLLOW = re.compile(r"^Follow up: (.*)\nIntermediate answer:[ ]?(.*)$", re.MULTILINE)


class Knows(Protocol):
    """What of the scripted LLM is needed here."""

    @property
    def questions(self) -> Mapping[str, Question]: ...

    def answer_to(self, text: str) -> str | None: ...
    def proven_by(self, question: Question, passages: Sequence[str]) -> bool: ...


@dataclass(frozen=True)
class Hop:
    """A simple question with its answer, and the question's facts that prove it (as a question of their own)."""

    text: str
    answer: str
    proof: Question


def hops_of(truth: Knows, question: Question) -> list[Hop]:
    """The chain of a question; steps are written with the answers of those before."""
    steps = question.metadata.get("steps", ())
    if steps and question.answerable:
        hops: list[Hop] = []
        for step, triple in zip(steps, question.triples, strict=True):
            text = re.sub(r"#(\d+)", lambda match: hops[int(match[1]) - 1].answer, step["question"])
            hops.append(Hop(text, step["answer"], replace(question, triples=(triple,))))
        return hops
    if question.answer_set or not question.answerable:
        return [Hop(question.text, truth.answer_to(question.text) or UNKNOWN, question)]
    masked = [MaskedTriple((head, relation, MASK), "tail") for head, relation, _ in question.triples]
    texts = [made or question.text for made in WorldsQuestions().generate(masked)]
    return [Hop(text, triple[2], replace(question, triples=(triple,))) for text, triple in zip(texts, question.triples, strict=True)]


_HOPS: WeakKeyDictionary[Any, dict[str, Hop]] = WeakKeyDictionary()


def known_hops(truth: Knows) -> dict[str, Hop]:
    """All hops by their text."""
    if truth not in _HOPS:
        _HOPS[truth] = {_flat(hop.text): hop for question in truth.questions.values() for hop in hops_of(truth, question)}
    return _HOPS[truth]


def recalled(truth: Knows, text: str) -> str:
    """What it believes to be the answer of a hop, right or wrong, always the same."""
    hop, draws = known_hops(truth).get(_flat(text)), Draws("by heart", text)
    if hop is not None and draws.chance(KNOWN):
        return hop.answer
    others = sorted({other.answer for other in known_hops(truth).values() if hop is None or other.answer != hop.answer})
    return draws.pick(others)


def said_of(truth: Knows, text: str, passages: Sequence[str]) -> str | None:
    """What passages say of a hop; None where they do not prove its answer."""
    hop = known_hops(truth).get(_flat(text))
    return hop.answer if hop is not None and truth.proven_by(hop.proof, passages) else None


def next_of(truth: Knows, text: str, steps: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """The next simple question behind some answered ones, and what it concludes: one of them is ""."""
    question = truth.questions.get(_flat(text))
    if question is None:
        return "", UNKNOWN
    hops = hops_of(truth, question)
    right = all(normalize(answer) == normalize(hop.answer) for hop, (_, answer) in zip(hops, steps, strict=False))
    if len(steps) < len(hops):
        wanted = hops[len(steps)].text
        for hop, (_, answer) in zip(hops, steps, strict=False):
            wanted = wanted.replace(hop.answer, answer)
        return wanted, ""
    return "", (truth.answer_to(text) or UNKNOWN) if right else steps[-1][1]


# -- The prompts --


def deduce(truth: Knows, request: Request) -> str | None:
    """GenGround's next question with an answer from memory, or the end."""
    shown = _shown("genground_deduce", request)
    if shown is None:
        return None
    question, final = next_of(truth, shown["question"], _STEP.findall(shown["steps"]))
    if final:
        return f"<finish>{final}</finish>"
    return f"<question>{question}</question>\n<answer>{recalled(truth, question)}</answer>"


def ground(truth: Knows, request: Request) -> str | None:
    """GenGround's revision."""
    shown = _shown("genground_ground", request)
    if shown is None:
        return None
    passages = _passages(shown["passages"])
    proven = said_of(truth, shown["question"], passages)
    return f"<ref>{passages[0]}</ref>\n<revise>{proven}</revise>" if proven else "<ref>Empty</ref>\n<revise>Empty</revise>"


def follow_up(truth: Knows, request: Request) -> str | None:
    """The next lines of a transcript of Self-Ask."""
    shown = _shown("self_ask", request)
    if shown is None:
        return None
    steps, lines = _FOLLOW.findall(shown["transcript"]), []
    if steps and not steps[-1][1]:
        text = steps[-1][0]
        answer = said_of(truth, text, _passages(shown["passages"])) or recalled(truth, text)
        steps[-1] = (text, answer)
        lines.append(f"Intermediate answer: {answer}")
    question, final = next_of(truth, shown["question"], steps)
    return "\n".join([*lines, f"So the final answer is: {final}" if final else f"Follow up: {question}"])


def need(truth: Knows, request: Request) -> str | None:
    """Self-RAG's question whether to look up: it does."""
    return "yes" if _shown("self_rag_need", request) else None


def read_segment(truth: Knows, request: Request) -> str | None:
    """Self-RAG's lines on a passage."""
    shown = _shown("self_rag_segment", request)
    if shown is None:
        return None
    question, passages = truth.questions.get(_flat(shown["question"])), _passages(shown["passages"])
    facts = [replace(question, triples=(triple,)) for triple in question.triples] if question else []
    relevant = any(truth.proven_by(fact, passages) for fact in facts)
    proven = question is not None and truth.proven_by(question, passages)
    answer = (truth.answer_to(shown["question"]) if proven else None) or UNKNOWN
    support, useful = ("fully", 5) if proven else ("no", 1)
    return f"Relevant: {'yes' if relevant else 'no'}\nAnswer: {answer}\nSupported: {support}\nUseful: {useful}"


def reason(truth: Knows, request: Request) -> str | None:
    """Iter-RetGen's reasoning: what the passages prove, hop by hop, and the answer where they prove all."""
    shown = _shown("iter_retgen", request)
    if shown is None:
        return None
    steps, open_one = _proven(truth, shown["question"], _passages(shown["passages"]))
    _, final = next_of(truth, shown["question"], steps) if not open_one else ("", UNKNOWN)
    return " ".join([*(f"{text.rstrip('?')}: {answer}." for text, answer in steps), open_one, f"\nSo the answer is: {final}"]).strip()


def next_sentence(truth: Knows, request: Request) -> str | None:
    """IRCoT's next sentence: what the passages prove next, or what has to be found out."""
    shown = _shown("ircot", request)
    if shown is None:
        return None
    steps, open_one = _proven(truth, shown["question"], _passages(shown["passages"]))
    stated = [f"{text.rstrip('?')}: {answer}." for text, answer in steps]
    fresh = next((sentence for sentence in stated if sentence not in shown["chain"]), "")
    if fresh or open_one:
        return fresh or open_one
    return f"So the answer is: {next_of(truth, shown['question'], steps)[1]}"


def think(truth: Knows, request: Request) -> str | None:
    """The next turn of Search-R1 and R1-Searcher."""
    for name, opening, closing in (("search_r1", "<search>", "</search>"), ("r1_searcher", "<|begin_of_query|>", "<|end_of_query|>")):
        first = Request(request.messages[:1])
        if request.messages and (shown := _shown(name, first)):
            turns = request.messages[1]["content"] if len(request.messages) > 1 else ""
            passages = re.split(r"\n(?=Doc \d+\(Title: )|<\|?/?(?:information|begin_of_documents|end_of_documents)\|?>", turns)
            steps, open_one = _proven(truth, shown["question"], passages)
            if open_one:
                return f"<think>I have to look this up.</think>\n{opening} {open_one} {closing}"
            return f"<think>I know it.</think>\n<answer> {next_of(truth, shown['question'], steps)[1]} </answer>"
    return None


PROGRAMS: tuple[Callable[[Any, Request], str | None], ...] = (deduce, ground, follow_up, need, read_segment, reason, next_sentence, think)


def _proven(truth: Knows, text: str, passages: Sequence[str]) -> tuple[list[tuple[str, str]], str]:
    """The hops that passages prove, in order, and the text of the first that they do not ("" for none)."""
    question = truth.questions.get(_flat(text))
    steps: list[tuple[str, str]] = []
    for hop in hops_of(truth, question) if question else []:
        if said_of(truth, hop.text, passages) is None:
            return steps, hop.text
        steps.append((hop.text, hop.answer))
    return steps, ""


def _passages(text: str) -> list[str]:
    return re.split(r"\n\n(?=\[\d+\] )", text)


def _flat(text: str) -> str:
    return " ".join(text.split())


def _shown(name: str, request: Request) -> dict[str, str] | None:
    return filled(Shipped("methods.baselines.end_to_end", name).load(), request)

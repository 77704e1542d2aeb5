"""Answer the prompts of end-to-end systems as the scripted LLM.

A question is a chain of hops: the steps that its gold names, or one for each thing that it compares. From memory the script
knows four answers of ten, so that a system that never looks is mostly wrong; what passages prove it says as they have it.
It resumes from what it said before: one wrong answer makes the rest wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from benchmarks.core.random import Draws
from benchmarks.schema import Question
from benchmarks.text import normalize
from methods.gpr.masked import MASK, MaskedTriple
from methods.gpr.wordings import WorldsQuestions
from methods.prompts import shipped
from ragmeter.scripted.prompt_patterns import UNKNOWN, Request, Shown, Truth, answers, filled, flat, handler, numbered_passages, steps_of

PROMPTS = shipped(
    "methods.baselines.end_to_end",
    *("genground_deduce", "genground_ground", "genground_cite", "genground_revise"),
    *("self_ask", "self_rag_need", "self_rag_segment", "iter_retgen", "ircot"),
    *("search_r1", "r1_searcher"),
)
KNOWN = 0.4
"""Share of the hops whose answer the scripted model knows without passages."""
_STEP = re.compile(r"^Question \d+: (.*)\nAnswer \d+: (.*)$", re.MULTILINE)
_FOLLOW = re.compile(r"^Follow up: (.*)\nIntermediate answer:[ ]?(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Hop:
    """Single-hop step of a question, with its answer and the facts that prove it."""

    text: str
    answer: str
    proof: Question


def hops_of(truth: Truth, question: Question) -> list[Hop]:
    """Split a question into its hops; earlier answers are filled into later steps."""
    steps = steps_of(question)
    if steps and question.answerable:
        proofs = [replace(question, triples=(triple,)) for triple in question.triples]
        return [Hop(text, answer, proof) for (text, answer), proof in zip(steps, proofs, strict=True)]
    if question.answer_set or not question.answerable:
        return [Hop(question.text, truth.answer_to(question.text) or UNKNOWN, question)]
    masked = [MaskedTriple((head, relation, MASK), "tail") for head, relation, _ in question.triples]
    texts = [made or question.text for made in WorldsQuestions().generate(masked)]
    return [Hop(text, triple[2], replace(question, triples=(triple,))) for text, triple in zip(texts, question.triples, strict=True)]


@lru_cache(maxsize=4)
def known_hops(truth: Truth) -> dict[str, Hop]:
    """Return all hops of all questions by their text."""
    return {flat(hop.text): hop for question in truth.questions.values() for hop in hops_of(truth, question)}


def recalled(truth: Truth, text: str) -> str:
    """Return the oracle's answer to a hop from memory, right or wrong, but always the same."""
    hop, draws = known_hops(truth).get(flat(text)), Draws("by heart", text)
    if hop is not None and draws.chance(KNOWN):
        return hop.answer
    others = sorted({other.answer for other in known_hops(truth).values() if hop is None or other.answer != hop.answer})
    return draws.pick(others)


def said_of(truth: Truth, text: str, passages: Sequence[str]) -> str | None:
    """Return the answer to a hop if the passages prove it, else None."""
    hop = known_hops(truth).get(flat(text))
    return hop.answer if hop is not None and truth.proven_by(hop.proof, passages) else None


def next_of(truth: Truth, text: str, steps: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return (next hop's question, "") or, after the last hop, ("", final answer), given the steps answered so far."""
    question = truth.question(text)
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


@answers(PROMPTS["genground_deduce"])
def deduce(truth: Truth, shown: Shown) -> str:
    """Reply to GenGround's deduction prompt with the next question and an answer from memory, or with the final answer."""
    question, final = next_of(truth, shown["question"], _STEP.findall(shown["steps"]))
    if final:
        return f"<finish>{final}</finish>"
    return f"<question>{question}</question>\n<answer>{recalled(truth, question)}</answer>"


@answers(PROMPTS["genground_ground"])
def ground(truth: Truth, shown: Shown) -> str:
    """Reply to GenGround's grounding prompt with a revised answer."""
    passages = numbered_passages(shown["passages"])
    proven = said_of(truth, shown["question"], passages)
    return f"<ref>{passages[0]}</ref>\n<revise>{proven}</revise>" if proven else "<ref>Empty</ref>\n<revise>Empty</revise>"


@answers(PROMPTS["genground_cite"])
def cite(truth: Truth, shown: Shown) -> str:
    """Reply to GenGround's released citation prompt."""
    passages = numbered_passages(shown["passages"])
    proof = next((passage for passage in passages if said_of(truth, shown["question"], [passage])), "Empty")
    return f"<ref>{proof}</ref>"


@answers(PROMPTS["genground_revise"])
def revise(truth: Truth, shown: Shown) -> str:
    """Reply to GenGround's released revision prompt."""
    proven = said_of(truth, shown["question"], numbered_passages(shown["passages"]))
    return json.dumps({"answer": proven or shown["answer"], "citation": shown["passages"][:40]}, ensure_ascii=False)


@answers(PROMPTS["self_ask"])
def follow_up(truth: Truth, shown: Shown) -> str:
    """Reply to Self-Ask's prompt with the next lines of the transcript."""
    steps, lines = _FOLLOW.findall(shown["transcript"]), []
    if steps and not steps[-1][1]:
        text = steps[-1][0]
        answer = said_of(truth, text, numbered_passages(shown["passages"])) or recalled(truth, text)
        steps[-1] = (text, answer)
        lines.append(f"Intermediate answer: {answer}")
    question, final = next_of(truth, shown["question"], steps)
    return "\n".join([*lines, f"So the final answer is: {final}" if final else f"Follow up: {question}"])


@answers(PROMPTS["self_rag_need"])
def need(truth: Truth, shown: Shown) -> str:
    """Reply to Self-RAG's prompt whether retrieval is needed: always yes."""
    return "yes"


@answers(PROMPTS["self_rag_segment"])
def read_segment(truth: Truth, shown: Shown) -> str:
    """Reply to Self-RAG's prompt about a passage: relevance, segment and support."""
    question, passages = truth.question(shown["question"]), numbered_passages(shown["passages"])
    facts = [replace(question, triples=(triple,)) for triple in question.triples] if question else []
    relevant = any(truth.proven_by(fact, passages) for fact in facts)
    proven = question is not None and truth.proven_by(question, passages)
    answer = (truth.answer_to(shown["question"]) if proven else None) or UNKNOWN
    support, useful = ("fully", 5) if proven else ("no", 1)
    return f"Relevant: {'yes' if relevant else 'no'}\nAnswer: {answer}\nSupported: {support}\nUseful: {useful}"


@answers(PROMPTS["iter_retgen"])
def reason(truth: Truth, shown: Shown) -> str:
    """Reply to Iter-RetGen's prompt with the steps that the passages prove, and with the answer if they prove all."""
    steps, open_one = _proven(truth, shown["question"], numbered_passages(shown["passages"]))
    _, final = next_of(truth, shown["question"], steps) if not open_one else ("", UNKNOWN)
    return " ".join([*(f"{text.rstrip('?')}: {answer}." for text, answer in steps), open_one, f"\nSo the answer is: {final}"]).strip()


@answers(PROMPTS["ircot"])
def next_sentence(truth: Truth, shown: Shown) -> str:
    """Reply to IRCoT's prompt with the next sentence: what the passages prove next, or what must be looked up."""
    steps, open_one = _proven(truth, shown["question"], numbered_passages(shown["passages"]))
    sentences = [f"{text.rstrip('?')}: {answer}." for text, answer in steps]
    fresh = next((sentence for sentence in sentences if sentence not in shown["chain"]), "")
    if fresh or open_one:
        return fresh or open_one
    return f"So the answer is: {next_of(truth, shown['question'], steps)[1]}"


@handler
def think(truth: Truth, request: Request) -> str | None:
    """Reply to the prompts of Search-R1 and R1-Searcher with the next turn."""
    for name, opening, closing in (("search_r1", "<search>", "</search>"), ("r1_searcher", "<|begin_of_query|>", "<|end_of_query|>")):
        first = Request(request.messages[:1])
        if request.messages and (shown := filled(PROMPTS[name], first)):
            turns = request.messages[1]["content"] if len(request.messages) > 1 else ""
            passages = re.split(r"\n(?=Doc \d+\(Title: )|<\|?/?(?:information|begin_of_documents|end_of_documents)\|?>", turns)
            steps, open_one = _proven(truth, shown["question"], passages)
            if open_one:
                return f"<think>I have to look this up.</think>\n{opening} {open_one} {closing}"
            return f"<think>I know it.</think>\n<answer> {next_of(truth, shown['question'], steps)[1]} </answer>"
    return None


def _proven(truth: Truth, text: str, passages: Sequence[str]) -> tuple[list[tuple[str, str]], str]:
    """Return the hops that passages prove, in order, and the text of the first unproven one ("" for none)."""
    question = truth.question(text)
    steps: list[tuple[str, str]] = []
    for hop in hops_of(truth, question) if question else []:
        if said_of(truth, hop.text, passages) is None:
            return steps, hop.text
        steps.append((hop.text, hop.answer))
    return steps, ""

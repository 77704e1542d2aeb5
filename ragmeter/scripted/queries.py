"""Answer prompts that request search queries as the scripted LLM: HyDE's and RQ-RAG's.

A passage that answers a question says what the world knows of it, fact by fact; a question is taken apart into the
steps that its gold names, each with what the earlier ones answered put in.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache, partial

from benchmarks.core.random import Draws
from benchmarks.styles.rules import STYLES, RuleRewriter
from benchmarks.text import sentences
from methods.baselines.hyde import PROMPT
from methods.baselines.rq_rag import PROMPTS
from methods.gpr.masked import MASK, MaskedTriple
from methods.gpr.questions import PROMPT as TRIPLE
from methods.gpr.wordings import WorldsQuestions
from methods.models.rewriter import PROMPTS as REWRITING
from methods.sark.prompts import ANSWER, ORDER
from ragmeter.scripted.prompt_patterns import UNKNOWN, Request, Shown, Truth, answers, handler, steps_of, template_pattern


@answers(PROMPT)
def write_passage(truth: Truth, shown: Shown) -> str:
    """Reply to HyDE's prompt with the facts of the question in sentences, or with the question if it is unknown."""
    question = truth.question(shown["question"])
    if question is None or not question.triples:
        return shown["question"]
    return " ".join(f"{head} {relation.replace('_', ' ')} {tail}." for head, relation, tail in question.triples)


@answers(PROMPTS["rewrite"])
def rewrite(truth: Truth, shown: Shown) -> str:
    """Reply to RQ-RAG's prompt for a rewritten query with the question, without its question mark."""
    return shown["question"].rstrip(" ?")


@answers(PROMPTS["decompose"])
def decompose(truth: Truth, shown: Shown) -> str:
    """Reply to RQ-RAG's prompt for sub-questions with the steps of the question, one per line."""
    question = truth.question(shown["question"])
    steps = [text for text, _ in steps_of(question)] if question is not None else []
    return "\n".join(steps or [shown["question"]])


@answers(PROMPTS["disambiguate"])
def disambiguate(truth: Truth, shown: Shown) -> str:
    """Reply to RQ-RAG's prompt for the meanings of a question with the question, one short name replaced by the full one."""
    question = truth.question(shown["question"])
    if question is None:
        return shown["question"]
    heads = {head for head, _, _ in question.triples}
    for world in truth.worlds.values():
        for entity in world.entities:
            if entity.name in heads and entity.name not in shown["question"]:
                for alias in sorted(entity.aliases, key=len, reverse=True):
                    if alias in shown["question"]:
                        return shown["question"].replace(alias, entity.name, 1)
    return shown["question"]


def rewrite_passage(truth: Truth, shown: Shown, style: str) -> str:
    """Reply to the shipped rewriting prompts with the text in the requested style, as text or JSON, whole or by sentence."""
    return _reply(shown["text"], shown["form"], shown["again"], style)


for _style in STYLES:
    answers(REWRITING[_style])(partial(rewrite_passage, style=_style))


def _reply(text: str, form: str, again: str, style: str) -> str:
    by_lines = "each sentence rewritten" in form
    styled = _restyled(text.split("\n") if by_lines else sentences(text), again, style)
    if "JSON" not in form:
        return "\n".join(styled) if by_lines else " ".join(styled)
    value = {"sentences": styled} if by_lines else {"text": " ".join(styled)}
    return json.dumps(value, ensure_ascii=False)


def _restyled(plain: list[str], again: str, style: str) -> list[str]:
    """Return sentences in a style, worded differently at another attempt; the first one always shows the style."""
    draws = Draws("world-truth rewriting", style, again, *plain)
    first, rest = _rewriters()
    return [(rest if number else first).sentence(sentence.strip(), style, draws) for number, sentence in enumerate(plain)]


@lru_cache(maxsize=1)
def _rewriters() -> tuple[RuleRewriter, RuleRewriter]:
    return RuleRewriter("test", opener=1.0, closer=0.3), RuleRewriter("test", opener=0.3, closer=0.3)


KNOWN = 0.4
"""Share of the questions that the scripted model answers without passages."""


@answers(ANSWER)
def answer_for_labels(truth: Truth, shown: Shown) -> str:
    """Reply to SARK's answer prompt if the passage proves the answer; without a passage, with probability `KNOWN`."""
    question, passage = truth.question(shown["question"]), shown["context"]
    if question is None or not question.answers:
        return UNKNOWN
    known = truth.proven_by(question, [passage]) if passage else Draws("known by heart", question.id).chance(KNOWN)
    return question.answers[0] if known else UNKNOWN


@handler
def order_passages(truth: Truth, request: Request) -> str | None:
    """Reply to SARK's ordering prompt: passages that prove the answer first, then those that name it."""
    opening, _, turn, *_ = ORDER.load().texts
    about = template_pattern(opening).fullmatch(request.messages[0]["content"])
    if about is None:
        return None
    question = truth.question(about["question"])
    shown = [template_pattern(turn).fullmatch(message["content"]) for message in request.messages[2:-1:2]]

    def worth(match: re.Match[str]) -> tuple[bool, bool]:
        return question is not None and truth.proven_by(question, [match["passage"]]), about["answer"] in match["passage"]

    best = sorted((match for match in shown if match is not None), key=worth, reverse=True)
    return " > ".join(f"[{match['number']}]" for match in best)


@answers(TRIPLE)
def ask_about_triple(truth: Truth, shown: Shown) -> str:
    """Reply to GPR's prompt for a question about a triple, in the worlds' wording for the relation."""
    inside = shown["triple"].removeprefix("(").removesuffix(")")
    if shown["side"] == "tail":
        head, _, relation = inside.removesuffix(f", {MASK}").rpartition(", ")
        masked = MaskedTriple((head, relation, MASK), "tail")
    else:
        relation, _, tail = inside.removeprefix(f"{MASK}, ").partition(", ")
        masked = MaskedTriple((MASK, relation, tail), "head")
    return WorldsQuestions().generate([masked])[0] or "I cannot ask that."

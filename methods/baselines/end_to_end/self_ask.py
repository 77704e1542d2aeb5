"""Self-Ask and RetRobust: follow-up questions in one transcript, each answered from its own search results.

RetRobust reads all contexts found so far and is trained to be robust to irrelevant ones. For untrained models, an NLI model can
check whether the contexts entail the answers; if not, the answer without retrieval is used. Released checkpoints continue a
text in their training layout (`layout: released`): contexts (oldest first), question, transcript.

Source: Press et al. 2023, Measuring and Narrowing the Compositionality Gap (arXiv:2210.03350); Yoran et al. 2024, Making
Retrieval-Augmented Language Models Robust to Irrelevant Context (arXiv:2310.01558).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from pydantic import Field, model_validator

from benchmarks.core.errors import UserError
from benchmarks.schema import Passage
from methods.api import Services
from methods.flow import Batcher, together
from methods.models.chat_config import ChatConfig
from methods.models.llm import LLM, defaults
from methods.models.local_llm import LocalConfig
from methods.models.nli import NliConfig, NliModel
from methods.models.weights import has_chat_template
from methods.program import NO_END, NOTHING_FOUND, ProgramConfig, Session, behind, register_program
from methods.prompts import Messages, Prompt
from methods.readers.extract import short_answer
from methods.training.stages import card_of

_LINE = (
    r"^[^\S\n]*(?:[-*>#]{{1,4}}[ \t]*|\d{{1,2}}[.)][ \t]*)?[*_]{{0,3}}{}(?:[ \t]*\d{{1,2}})?[*_]{{0,3}}[ \t]*[:：][*_]{{0,3}}[ \t]*(\S.*)"
)
FOLLOW_UP = re.compile(_LINE.format("Follow[- ]?up(?: questions?)?"), re.IGNORECASE | re.MULTILINE)
INTERMEDIATE = re.compile(_LINE.format("Intermediate answers?"), re.IGNORECASE | re.MULTILINE)
FINAL = "(?<!intermediate )answer is"
_NO_QUESTION = re.compile(r"\W*(?:none|no|n/?a|no (?:more|further)\b.*|not needed\b.*)\W*", re.IGNORECASE)
"""Pattern of a follow-up that asks nothing."""
_FOLLOWS, _FINALLY, _NEXT = "Follow up: ", "So the final answer is: ", re.compile("Follow up:.*\n")
_STEP = re.compile(r"^Follow[- ]?up\s*:\s*(.+)\nIntermediate answer\s*:\s*(.+)", re.IGNORECASE | re.MULTILINE)


class SelfAskConfig(ProgramConfig):
    """Options of Self-Ask."""

    llm: Annotated[LLM, defaults(max_tokens=128, stop=("Context",))] = Field(description="the model")
    hops: int = Field(5, ge=1, description="maximum follow-up questions")


class RetRobustConfig(SelfAskConfig):
    """Options of RetRobust."""

    nli: NliConfig | None = Field(
        None,
        description="NLI model; if it does not entail the answer from the contexts, the answer without retrieval is used. null: no check",
    )
    threshold: float = Field(0.5, ge=0, le=1, description="an answer is not trusted if its probability of entailment is at most this")
    layout: Literal["chat", "released"] = Field(
        "chat",
        description="chat: a request in our words; released: the text that the released checkpoints continue, for models without "
        "a chat template",
        exclude_if=lambda value: value == "chat",
    )
    follow_ups: bool = Field(
        True, description="layout released: whether follow-up questions are needed (for NQ: false)", exclude_if=lambda value: value is True
    )

    @model_validator(mode="after")
    def _continues_a_text(self) -> RetRobustConfig:
        if self.layout == "released" and isinstance(self.llm, ChatConfig):
            raise ValueError(
                "layout: released is a text that the model continues, and a chat endpoint puts a chat template around it: llm: {local: …}"
            )
        if self.layout == "chat" and not self.follow_ups:
            raise ValueError("follow_ups: false has an effect only with layout: released")
        return self

    def preflight(self) -> None:
        """Check the models; a model for the released layout must have no chat template, unless ragmeter trained it with one."""
        super().preflight()
        local = self.llm if isinstance(self.llm, LocalConfig) else None
        trained = local is not None and local.adapter is not None and card_of(local.adapter) is not None
        if self.layout == "released" and local is not None and has_chat_template(local.local) and not trained:
            raise UserError(
                f"layout: released is a text that the model continues, and {local.local!r} has a chat template",
                code="chat-template-unexpected",
                where="retrobust, option layout",
                try_this="layout: chat, or a model without a chat template",
            )


@dataclass(frozen=True)
class Transcript:
    """Follow-up questions with answers and search results, and the final answer (None if not reached)."""

    answer: str | None
    steps: Sequence[tuple[str, str]]
    contexts: Sequence[Sequence[Passage]]


def released_text(
    prompt: Prompt, question: str, contexts: Sequence[Passage], follow_ups: bool, written: str, most: int | None = None
) -> Messages:
    """Build the prompt of RetRobust's released checkpoints, with the first `most` contexts."""
    lines = "".join(f"\nContext{number}: {item.title}: {item.text}" for number, item in enumerate(contexts[:most], 1))
    return prompt.messages(contexts=lines, question=question, follow_ups="Yes." if follow_ups else "No.", written=written)


def released_reply(reply: str, first: bool, follow_ups: bool) -> str:
    """Truncate a reply where the released code stops generation."""
    reply = reply.partition("#")[0]
    ends = [match.start() for match in re.finditer("Intermediate answer", reply)] if follow_ups else []
    return reply[: ends[0]] if first and ends else reply[: ends[1]] if len(ends) > 1 else reply


def released_step(written: str, reply: str, first: bool, follow_ups: bool) -> str:
    """Extend a transcript by a reply, up to the first follow-up question, as in the released code."""
    reply = released_reply(reply, first, follow_ups)
    follow = None if first else _NEXT.search(reply)
    kept = reply.partition("Intermediate answer:")[0] if first else reply[: follow.end()] if follow else reply
    return (written + kept).removesuffix("\n")


async def released_transcript(q: Session, first: Sequence[Passage], *, searches: bool = True) -> Transcript:
    """Continue a text in the released layout until the final answer; arguments as in `self_asked`."""
    shown, written, contexts = list(first), "", [first]
    for step in range(q.config.hops + 1):
        text = partial(released_text, q.prompts["retrobust"], q.text, shown, q.config.follow_ups, written)
        whole = await q.fitted(text, len(shown), "retrobust", raw=True)
        before, written = written, released_step(written, whole, not step, q.config.follow_ups)
        reply = released_reply(whole, not step, q.config.follow_ups)
        steps = [(follow.strip(), short_answer(answer)) for follow, answer in _STEP.findall(written)]
        question = next((line.rpartition(_FOLLOWS)[2] for line in reply.split("\n") if _FOLLOWS in line), None)
        if question is not None:
            passages = await q.search(question.strip()) if searches and question.strip() else []
            if searches and not passages:
                q.fallback(NOTHING_FOUND)
            contexts.append(passages)
            shown += passages
        elif _FINALLY in reply or written == before:  # an equal text would be continued equally
            if not (final := behind(reply, FINAL)):
                q.unusable(whole)
            return Transcript(final, steps, contexts)
    q.fallback(NO_END)
    return Transcript(None, (), contexts)


async def self_asked(q: Session, first: Sequence[Passage], *, searches: bool = True, keeps: bool = True) -> Transcript:
    """Ask follow-up questions until the final answer.

    Args:
        q: The question.
        first: Search results for the question itself.
        searches: Whether to search for follow-up questions.
        keeps: Whether to keep the contexts of earlier follow-up questions.
    """
    shown, steps, contexts = list(first), list[tuple[str, str]](), [first]
    waiting = ""
    for _ in range(q.config.hops + 1):
        lines = [f"Follow up: {question}\nIntermediate answer: {answer}" for question, answer in steps]
        lines += [f"Follow up: {waiting}\nIntermediate answer:"] if waiting else []
        reply = await q.ask("self_ask", shown, question=q.text, transcript="\n".join(lines) or "(nothing yet)")
        follow = FOLLOW_UP.search(reply)
        followed = follow[1].strip(' \t*_"“”') if follow else ""
        if follow and not _NO_QUESTION.fullmatch(followed):
            reply, question = reply[: follow.start()], followed
        else:
            question = ""
        if waiting:
            intermediate = INTERMEDIATE.search(reply)
            # Models continue behind the words that they were left with, or repeat them.
            answer = intermediate[1] if intermediate else next((line for line in reply.splitlines() if line.strip()), "")
            steps.append((waiting, short_answer(answer) or "unknown"))
        if not question:
            final = behind(reply, FINAL)
            if not final:
                q.unusable(reply)
            return Transcript(final, steps, contexts)
        waiting = question
        passages = await q.search(question) if searches else []
        if searches and not passages:
            q.fallback(NOTHING_FOUND)
        contexts.append(passages)
        shown = list({passage.id: passage for passage in [*passages, *(shown if keeps else [])]}.values())
    q.fallback(NO_END)
    return Transcript(None, steps, contexts)


@register_program(
    "self_ask",
    summary="asks follow-up questions and answers each from the passages found for it; only the newest passages are shown",
    version=2,
    config=SelfAskConfig,
    prompts=("self_ask",),
    calls=lambda config: config.hops + 2,
    searches=lambda config: config.hops + 2,
    paper="Press et al. 2023, Measuring and Narrowing the Compositionality Gap (arXiv:2210.03350)",
)
async def self_ask(q: Session) -> str:
    """Run Self-Ask on a question, and return the final answer, else the answer of plain reading."""
    transcript = await self_asked(q, [], keeps=False)
    return transcript.answer or await q.plain()


class Entailment:
    """NLI check of answers against contexts: P(entailment | entailment or contradiction).

    Args:
        model: NLI model; pairs of all waiting questions are batched.
    """

    def __init__(self, model: NliModel) -> None:
        self._judge: Batcher[tuple[str, str], float] = Batcher(lambda pairs: self._judged(model, pairs), device=model.device)

    async def least(self, contexts: Sequence[Passage], claims: Sequence[tuple[str, str]]) -> float:
        """Return the lowest entailment probability among (question, answer) claims, given all contexts; 1 without claims."""
        premise = "\n".join(passage.full_text for passage in contexts)
        pairs = [(premise, f"{question} The answer is: {answer}") for question, answer in claims]
        return min(await together(*map(self._judge, pairs)), default=1.0)

    @staticmethod
    def _judged(model: NliModel, pairs: list[tuple[str, str]]) -> list[float]:
        judged = model.infer(*zip(*pairs, strict=True))
        return [float(share) for share in judged.entailment / (judged.entailment + judged.contradiction)]


@register_program(
    "retrobust",
    summary="asks follow-up questions with one context each; if an NLI model rejects the answer, uses the one without retrieval",
    version=4,
    config=RetRobustConfig,
    prompts=("self_ask", "retrobust"),
    calls=lambda config: 2 * (config.hops + 1) + 1,
    searches=lambda config: config.hops + 2,
    tool=lambda config, services: opened(config, services),
    models=lambda config: [config.nli] if config.nli else [],
    paper="Yoran et al. 2024, Making Retrieval-Augmented Language Models Robust to Irrelevant Context (arXiv:2310.01558)",
    presets={
        "paper": {"k": 1, "nli": {"model": "facebook/bart-large-mnli"}},
        **{
            f"released-{data}": {
                "k": 1,
                "layout": "released",
                "follow_ups": data != "nq",
                "llm": {
                    "local": "meta-llama/Llama-2-13b-hf",
                    "adapter": f"Ori/llama-2-13b-peft-{data}-retrobust",
                    "dtype": "bfloat16",
                    "max_tokens": 512,
                    "stop": ["#"],
                },
            }
            for data in ("nq", "2wikihop", "strategyqa")
        },
    },
)
async def retrobust(q: Session) -> str:
    """Run RetRobust on a question, and return the final answer; if the contexts do not entail it, the answer without retrieval."""
    ask = released_transcript if q.config.layout == "released" else self_asked
    first = await q.search(q.text)
    transcript = await ask(q, first)
    if transcript.answer and q.tool is not None:
        everything = list({passage.id: passage for some in transcript.contexts for passage in some}.values())
        claims = [(q.text, transcript.answer), *transcript.steps]
        if await q.tool.least(everything, claims) <= q.config.threshold:
            q.ended = "without retrieval"
            alone = await ask(q, [], searches=False)
            return alone.answer or transcript.answer
    return transcript.answer or await q.plain()


def opened(config: RetRobustConfig, services: Services) -> Entailment | None:
    """Load the NLI check if the options enable it, else None."""
    return Entailment(NliModel(config.nli, services.device)) if config.nli else None

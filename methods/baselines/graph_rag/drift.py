"""GraphRAG's DRIFT search: community reports lead to follow-up questions, which local searches answer and extend.

The model writes a hypothetical report that answers the question, in the style of a randomly drawn report. The most similar
reports are read in folds; each fold gives part of a first answer and follow-up questions (the primer). Then, up to `depth`
times, randomly drawn open questions are answered by local search, which adds further questions. The final answer is written
from all answers, in the order of their questions.

Source: microsoft/graphrag 3.1 (`query/structured_search/drift_search`): 20 reports in 5 folds, 20 questions per step, 3 steps,
and 12,000 tokens per local search, of which 10 % are reports and 90 % passages, leaving none for entities and relations. Ours:
empty folds are skipped; if no fold brings a question, the question itself is searched (released: an error); the hypothetical
report is encoded as a passage; tokens are characters / 4; a short answer unless `answer` says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, Field

from benchmarks.core.random import Draws
from benchmarks.schema import Query
from methods.api import FAILED, Evidence, Prediction, Usage
from methods.baselines.graph_rag.common import LONG, Group, alternating, nearest, register, within
from methods.baselines.graph_rag.graphrag import (
    INSTRUCTIONS,
    PER_COMMUNITY,
    GraphRagIndex,
    GraphRagMethod,
    Report,
    Reported,
    ReportsConfig,
    building,
    report_passages,
)
from methods.flow import together
from methods.models.structured import parse as parse_json
from methods.prompts import Prompt
from methods.work import Lengths, Work, ask

REPORTS_SHARE, SOURCES_SHARE = 0.1, 0.9
"""Fractions of a local search's tokens for reports and passages."""
EVIDENCE = 100
"""Maximum passages in a prediction's evidence."""


class DriftConfig(ReportsConfig):
    """Options of DRIFT search."""

    published: ClassVar[Mapping[str, str]] = {
        **ReportsConfig.published,
        **{name: name for name in ("drift_primer", "drift_local", "drift_reduce")},
    }

    reports: int = Field(20, ge=1, description="reports most similar to the hypothetical report; released: drift_k_followups")
    folds: int = Field(5, ge=1, description="number of calls that these reports are divided among")
    questions: int = Field(20, ge=1, description="maximum questions answered per step, and new questions per answer")
    depth: int = Field(3, ge=0, description="steps of local searches")
    entities: int = Field(20, ge=1, description="entities most similar to a question; released: top_k_mapped_entities 10, doubled")
    tokens: int = Field(12_000, ge=1, description="tokens of the reports and passages of a local search")

    def templates(self) -> list[Prompt]:
        drift = [self.template(f"drift_{name}") for name in ("hypothesis", "primer", "local", "reduce")]
        return [*self.reading_templates(), self.template("report"), *drift]


class _Primed(BaseModel):
    intermediate_answer: str
    score: float = 0.0
    follow_up_queries: list[str] = []


class _Answered(BaseModel):
    response: str
    score: float = 0.0
    follow_up_queries: list[str] = []


@dataclass
class Action:
    """A follow-up question with its answer, if any.

    Attributes:
        question: Text of the question, which identifies the action.
        answer: The answer; None if still open.
        score: How well the answer serves the whole question, from 0 to 100.
        sources: Passages that its local search showed, by id.
        tries: Number of attempts.
    """

    question: str
    answer: str | None = None
    score: float = 0.0
    sources: tuple[str, ...] = ()
    tries: int = 0


class Actions:
    """Follow-up questions of a search, without duplicates, in order of occurrence."""

    def __init__(self, first: Action) -> None:
        self._by_question = {first.question: first}

    def add(self, questions: Iterable[str]) -> None:
        """Add the questions that are new."""
        for question in questions:
            self._by_question.setdefault(question, Action(question))

    @property
    def all(self) -> list[Action]:
        """Return all actions."""
        return list(self._by_question.values())

    def drawn(self, draws: Draws, most: int) -> list[Action]:
        """Draw up to `most` open actions at random."""
        opened = [action for action in self.all if action.answer is None]
        draws.shuffle(opened)
        return opened[:most]


def in_folds(reports: list[Report], folds: int) -> list[list[Report]]:
    """Divide reports into parts of nearly equal size, in order; empty parts are dropped."""
    return [[reports[place] for place in part] for part in np.array_split(np.arange(len(reports)), folds) if len(part)]


def _work(config: DriftConfig, lengths: Lengths) -> Work:
    reports = min(config.reports, max(1.0, lengths.document / 20 / PER_COMMUNITY))
    folds, actions = min(config.folds, reports), config.depth * config.questions
    shown = config.tokens * REPORTS_SHARE + min(config.tokens * SOURCES_SHARE, lengths.document)
    calls = ask(config.llm, lengths.questions, INSTRUCTIONS + LONG, LONG)
    calls += ask(config.llm, lengths.questions * folds, INSTRUCTIONS + reports / folds * LONG, LONG)
    calls += ask(config.llm, lengths.questions * actions, INSTRUCTIONS + shown, LONG)
    return building(config, lengths) + calls + ask(config.llm, lengths.questions, INSTRUCTIONS + (folds + actions) * LONG, LONG)


@register(
    "graphrag_drift",
    summary="GraphRAG's DRIFT search: reports raise follow-up questions, local searches answer them, and the final "
    "answer combines all answers",
    config=DriftConfig,
    paper="Edge et al. 2024, From Local to Global (arXiv:2404.16130); DRIFT search of microsoft/graphrag",
    work=_work,
)
class GraphRagDrift(GraphRagMethod):
    """Whole method: answers with DRIFT search."""

    async def answer_one(self, query: Query) -> Prediction:
        """Answer a question; the evidence consists of the passages shown in local searches, by descending score."""
        if (read := await self.reported(query)) is None:
            return Prediction(query.id, "", notes={self.note: {"fallback": "nothing to read"}})
        index, group, reported = read
        chosen, why, usage = await self.most_like(query, index, group, reported)
        note: dict[str, Any] = {"reports": len(chosen), **({"reports by the question itself": why} if why else {})}
        actions, lost, cost = await self.primed(query, chosen)
        usage += cost
        if lost:
            note["fallbacks"] = {"fold without an answer": len(lost)}
        if actions.all == [Action(query.text, "")]:
            note["fallback"] = "no first answer: the question itself is searched"
            actions = Actions(Action(query.text))
        for step in range(self.config.depth):
            drawn = actions.drawn(Draws(self.note, self._services.seed, query.id, step), self.config.questions)
            if not drawn:
                break
            steps = await together(*(self.step(query, index, group, reported, action) for action in drawn))
            for raised, reason, cost in steps:
                actions.add(raised)
                lost.append(reason)
                usage += cost
        answers = [action.answer for action in actions.all if action.answer]
        note |= {"questions": len(actions.all), "answers": len(answers)}
        if tried := sum(action.tries > 0 and action.answer is None for action in actions.all):
            note["questions without a readable answer"] = tried
        shown = alternating(*(action.sources for action in sorted(actions.all, key=lambda action: -action.score)))
        evidence = tuple(Evidence(identifier, 1 / rank) for rank, identifier in enumerate(shown[:EVIDENCE], 1))
        if not answers:
            failed = {FAILED: lost_call} if (lost_call := next(filter(None, lost), "")) else {}
            return Prediction(query.id, "", evidence, usage, {self.note: note, **index.label, **failed})
        return await self.written(query, "drift_reduce", {"answers": "\n\n".join(answers)}, evidence, usage, note)

    async def most_like(self, query: Query, index: GraphRagIndex, group: Group, reported: Reported) -> tuple[list[Report], str, Usage]:
        """Return the reports most similar to a hypothetical report (best first), the reason if the question was used instead,
        and the cost.
        """
        reports = list(reported.up_to(self.config.level).values())
        if not reports:
            return [], "", Usage()
        example = Draws(self.note, self._services.seed, query.id, "example").pick(reports).full
        messages = self.config.template("drift_hypothesis").messages(question=query.text, report=example)
        reply = await self._model.ask(messages, step="hypothesis")

        def order() -> list[int]:
            vectors = group.index.once("reports", lambda: group.index.vectors([report.full for report in reports]))
            return nearest(vectors, group.index.vectors([reply.text or query.text])[0], self.config.reports).tolist()

        why = "" if reply.text else reply.failed or "empty reply"
        return [reports[place] for place in await index.compute(order)], why, reply.usage

    async def primed(self, query: Query, reports: list[Report]) -> tuple[Actions, list[str], Usage]:
        """Run the primer: returns the follow-up questions, the failure reason of each fold ("" on success), and the cost."""
        prompt = self.config.template("drift_primer")
        prompts = [
            prompt.messages(question=query.text, reports="\n\n".join(report.full for report in fold))
            for fold in in_folds(reports, self.config.folds)
        ]
        replies = await together(*(self._model.ask(messages, shape=_Primed, step="primer") for messages in prompts))
        reads = [parse_json(reply.text, _Primed) for reply in replies]
        primed = [read.value for read in reads if read.value is not None]
        lost = [reply.failed or "" for reply, read in zip(replies, reads, strict=True) if read.value is None]
        score = sum(one.score for one in primed) / len(primed) if primed else 0.0
        actions = Actions(Action(query.text, "\n\n".join(one.intermediate_answer for one in primed), score))
        actions.add(question for one in primed for question in one.follow_up_queries)
        return actions, lost, sum((reply.usage for reply in replies), Usage())

    async def step(
        self, query: Query, index: GraphRagIndex, group: Group, reported: Reported, action: Action
    ) -> tuple[list[str], str, Usage]:
        """Answer a follow-up question by local search; returns new questions, the failure reason, and the cost."""
        ranking = await index.compute(lambda: index.ranked(replace(query, text=action.question), len(group.rows)))
        nearby = ranking.notes[index.note].get("entities", [])
        reports = within(report_passages(reported, nearby, self.config.level), self.config.tokens * REPORTS_SHARE)
        sources = within(index.corpus.get(ranking.ids), self.config.tokens * SOURCES_SHARE)
        tables = {"Reports": reports, "Passages": sources}
        context = "\n\n".join(f"{name}:\n" + "\n\n".join(p.full_text for p in some) for name, some in tables.items() if some)
        messages = self.config.template("drift_local").messages(
            question=action.question, overall=query.text, context=context, followups=self.config.questions
        )
        reply = await self._model.ask(messages, shape=_Answered, repetition=action.tries, step="local")
        action.tries += 1
        read = parse_json(reply.text, _Answered)
        if read.value is None:
            return [], reply.failed or "", reply.usage
        action.answer, action.score = read.value.response, read.value.score
        action.sources = tuple(passage.id for passage in sources)
        return read.value.follow_up_queries, "", reply.usage

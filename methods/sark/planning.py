"""Estimate requirements and work of `ragmeter train sark` from its options, without loading anything."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.core.fingerprint import fingerprint
from methods.prompts import Shipped
from methods.registry import Component
from methods.sark.config import STAGE, SarkDataConfig, SarkTrainingConfig
from methods.sark.prompts import ANSWER, ORDER
from methods.sark.rows import LENGTH
from methods.training import LengthsOf
from methods.work import (
    DATA,
    Checkpoint,
    Lengths,
    Needs,
    Once,
    StageWork,
    Work,
    all_needs,
    ask,
    learn,
    longest_reply,
    needs_of,
    steps,
    tokens,
    total,
    whole_stage,
)

RESTYLING = 160
"""Assumed tokens of the instructions for rewriting a passage."""


def needs(config: SarkTrainingConfig) -> Needs | None:
    """Return the required models, the base model first."""
    parts = [*_retrievers(config), *([config.labels.component] if config.labels.by == "reader" else [])]
    own = Needs((Checkpoint(config.base, config.revision),)) + needs_of(*config.llms)
    return all_needs((own, *(part.needs for part in parts)))


def _retrievers(config: SarkDataConfig) -> list[Component]:
    wanted = [config.candidates.component] if config.candidates.source == "retriever" else []
    return wanted if config.labels.extra is None else [*wanted, config.labels.extra.component]


def work_of(config: SarkTrainingConfig, of: LengthsOf) -> list[StageWork]:
    """Estimate the work: answers, verdicts, list orders and rewritten passages; then training on every row and list in both
    styles.
    """
    data = [(item, _used(config, of(item, config.data_options))) for item in config.data]
    validation = [(item, _used(config.held_out, of(item, config.validation_options))) for item in config.validation]
    rows_of = [*((config, *item) for item in data), *((config.held_out, *item) for item in validation)]
    prepared = total(_made_by(part, name, lengths) for part, name, lengths in rows_of)
    rows = sum(_labeled(config, lengths) for _, lengths in data)
    train, size = config.train, data[0][1].size(config.base, config.revision)
    texts = (2 if config.loss.styles else 1) * ((1 if config.loss.passage else 0) + (LENGTH if config.loss.listwise else 0))
    work = total(
        learn(
            Checkpoint(config.base, config.revision),
            train.epochs * _labeled(config, lengths) * texts,
            min(lengths.question + lengths.passage, config.model.max_length),
            train.precision,
            held=train.token_budget,
        )
        for _, lengths in data
    )
    taken = steps(rows, train.batch_size * train.accumulation, train.epochs)
    return [StageWork(DATA, prepared, rows), whole_stage(STAGE, work, size, config.base, rows=rows, taken=taken)]


def _used(config: SarkTrainingConfig, lengths: Lengths) -> Lengths:
    """Return the data statistics with the maximum number of processed questions."""
    limits = [lengths.questions]
    if config.rows is not None and _tried(config, lengths) >= LENGTH:
        # A question gives a row at least, its list; that some orders cannot be read is left out of account.
        limits.append(config.rows)
    return replace(lengths, questions=min(limits))


def _tried(config: SarkTrainingConfig, lengths: Lengths) -> float:
    """Return the maximum number of passages tried per question."""
    if config.labels.passages != "all":
        return float(LENGTH)
    depth = float(config.candidates.depth)
    return depth if config.candidates.source == "retriever" else min(depth, lengths.candidates)


def _unlabeled(config: SarkTrainingConfig) -> bool:
    return config.labels.passages == "none"


def _labeled(config: SarkTrainingConfig, lengths: Lengths) -> float:
    """Return the maximum number of rows."""
    extra = config.labels.extra
    every = lengths.questions * (1 if _unlabeled(config) else _tried(config, lengths) + (0 if extra is None else extra.n))
    return min(every, every if config.rows is None else config.rows)


def _made_by(config: SarkTrainingConfig, name: str, lengths: Lengths) -> Work:
    """Estimate the work of building rows: searches and local readers per training, replies shared by all."""
    labels, lists, styles = config.labels, config.lists, config.styles
    attempts = 0.0 if _unlabeled(config) else lengths.questions * (1 + _tried(config, lengths) + (labels.extra.n if labels.extra else 0))

    def prompt(template: Shipped, path: str | None) -> float:
        return sum(map(tokens, template.load(path).texts)) + lengths.question

    shared = ask(labels.active_llm, attempts, prompt(ANSWER, labels.prompt) + lengths.passage)
    if (judge := config.wanted_judge) is not None:
        shared += lengths.judging(judge, attempts, 32 if labels.llm is None else longest_reply(labels.llm))
    shared += ask(lists.active_llm, lengths.questions, prompt(ORDER, lists.prompt) + LENGTH * lengths.passage)
    if styles.active_llm is not None:
        # Those of the rows and of each question's list; no rewriting is much longer than its source.
        restyled = _labeled(config, lengths) + (0 if config.rows is None else LENGTH * lengths.questions)
        shared += ask(styles.active_llm, restyled, RESTYLING + lengths.passage, min(longest_reply(styles.active_llm), 2 * lengths.passage))
    parts = (config.candidates, labels, lists, styles)
    key = fingerprint("sark", name, config.rows, [part.model_dump(mode="json") for part in parts])
    own = total(retriever.work(lengths) for retriever in _retrievers(config))
    if labels.by == "reader":
        own += labels.component.work(replace(lengths, questions=attempts, k=1))
    return own + Work(once=(Once(shared, key),))

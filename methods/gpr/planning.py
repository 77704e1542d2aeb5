"""Estimate requirements and work of `ragmeter train gpr` from its options, without loading anything."""

from __future__ import annotations

from benchmarks.core.fingerprint import fingerprint
from methods.gpr.config import STAGE, GprTrainingConfig
from methods.gpr.questions import PROMPT, TRIES
from methods.training import LengthsOf
from methods.work import DATA, Needs, Once, StageWork, Work, ask, learn, needs_of, steps, tokens, whole_stage

TEXTS = 3
"""Triples per row: the triple of the question, a neighbor and a negative."""


def needs(config: GprTrainingConfig) -> Needs:
    """Return the required models, the base model first."""
    return needs_of(config.encoder, config.questions.active_llm)


def work_of(config: GprTrainingConfig, of: LengthsOf) -> list[StageWork]:
    """Estimate the work: generated questions, then two encoders with one question and three triples per row."""
    graphs = [of(item, config.graph_options) for item in config.graph]
    for item in config.validation:
        of(item, config.validation_options)
    triples = sum(graph.corpus for graph in graphs)
    length = sum(graph.corpus * graph.passage for graph in graphs) / triples if triples else 0.0
    masked = min(triples, config.questions.triples or triples) * len(config.questions.sides)
    prompt, train = PROMPT.load(config.questions.prompt), config.train
    written = ask(config.questions.active_llm, TRIES * masked, sum(map(tokens, prompt.texts)) + length)
    shared = Once(written, fingerprint("gpr", config.graph, config.questions.model_dump(mode="json")))
    rows, size = masked, graphs[0].size(config.encoder.model, config.revision)
    batch_tokens = train.micro_batch * length
    work = learn(config.encoder, train.epochs * rows, length, train.precision, held=batch_tokens)
    work += learn(config.encoder, train.epochs * rows * TEXTS, length, train.precision, held=TEXTS * batch_tokens)
    taken = steps(rows, train.batch_size, train.epochs)
    learned = whole_stage(STAGE, work, size, config.base, rows=rows, taken=taken, towers=2)
    return [StageWork(DATA, Work(once=(shared,)), masked), learned]

"""What trainings over graphs take: GPR's towers, SKP's encoder, the cross-encoder of triples."""

from __future__ import annotations

from methods.baselines.graph.cross_encoder_training import GraphCrossEncoderTrainingConfig
from methods.baselines.graph.skp_training import SkpTrainingConfig
from methods.gpr.config import GprTrainingConfig
from methods.gpr.questions_llm import TRIES
from methods.gpr.questions_llm import load_prompt as questions_prompt
from ragmeter.planning.cost import Cost, total
from ragmeter.planning.lessons import DATA, DTYPES, GRADIENT_CACHING, Classroom, Lesson, once, points, saved, steps_of, unclear
from ragmeter.planning.shape import Shape, tokens

TEXTS_OF_ROW = 3
"""Triples of a row of GPR: the one asked about, a neighbour, a negative."""


def triples_of(shapes: list[Shape]) -> tuple[float, float]:
    """Triples of a graph, at most (graphs of questions overlap), and mean tokens of one."""
    number = sum(float(one.corpus or 0) for one in shapes)
    return number, sum(float(one.corpus or 0) * one.passage for one in shapes) / number if number else 0.0


def gpr_lessons(config: GprTrainingConfig, room: Classroom) -> list[Lesson]:
    """Questions about triples, and two towers."""
    shapes = room.shapes_of(config.graph, config.graph_options)
    triples, length = triples_of(shapes)
    questions = config.questions
    about = triples if questions.triples is None else min(triples, questions.triples)
    masked = about * len(questions.sides)
    written = Cost()
    if questions.generator == "llm" and questions.chat is not None:
        prompt = questions_prompt(questions.prompt)
        written = room.ask(questions.chat, TRIES * masked, tokens(prompt.system) + tokens(prompt.user) + length)
    rows = masked * config.train.rows_per_question
    size = room.weights.size(config.question_encoder.model, config.revision)
    third = room.weights.size(config.triple_encoder.model, config.triple_revision)
    dtype, epochs = DTYPES[config.train.precision], config.train.epochs
    text = min(length, config.max_length)
    cost = room.train(size, epochs * rows, text, dtype, causal=False)
    cost += room.train(third, epochs * rows * TEXTS_OF_ROW, text, dtype, causal=False)
    steps = steps_of(rows, config.train.batch_size, epochs)
    return [
        Lesson(DATA, masked, None, unclear(shapes, "questions"), once={once("gpr", config.graph, questions): written}),
        Lesson("towers", rows, steps, cost + saved(size, towers=2), points(size, towers=2)),
    ]


def skp_lessons(config: SkpTrainingConfig, room: Classroom) -> list[Lesson]:
    """Masked words and contrast: every text and its copy; a batch that does not fit is read once more in parts."""
    shapes = room.shapes_of(config.graph, config.graph_options)
    triples, length = triples_of(shapes)
    if config.unit == "subgraph":
        # A head with one triple alone is a subgraph, too, so there are at most as many as triples.
        length *= config.subgraph_triples
    size = room.weights.size(config.base, config.revision)
    longest = config.max_length or (64 if config.unit == "triple" else 200)
    read = min(length, longest)
    cost = room.train(size, 2 * config.epochs * triples, read, DTYPES[config.precision], causal=False)
    cost = cost.times(GRADIENT_CACHING if config.batch_size > config.part else 1.0)
    steps = steps_of(triples, config.batch_size, config.epochs)
    known = cost + saved(size) + unclear(shapes, "training")
    return [Lesson("encoder", triples, steps, known, points(size))]


def cross_encoder_lessons(config: GraphCrossEncoderTrainingConfig, room: Classroom) -> list[Lesson]:
    """Right triples, each against others; a question is taken to have two of them."""
    shapes = room.shapes_of(config.data, config.data_options)
    rows = 2 * sum(float(one.questions or 0) for one in shapes)
    size = room.weights.size(config.base, config.revision)
    dtype = DTYPES[config.precision]
    cost = total(
        room.train(
            size,
            2 * config.epochs * float(one.questions or 0) * (1 + config.negatives),
            min(one.question + one.passage, config.max_length),
            dtype,
            causal=False,
        )
        for one in shapes
    )
    steps = steps_of(rows, config.batch_size, config.epochs)
    return [Lesson("reranker", rows, steps, cost + saved(size) + unclear(shapes, "training"), points(size))]

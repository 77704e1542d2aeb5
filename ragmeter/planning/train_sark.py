"""What SARK's training takes: answers with each passage, verdicts, orders, passages told otherwise, and one stage."""

from __future__ import annotations

from dataclasses import replace

from judges.judging import JUDGES
from methods.models.chat_options import ChatConfig
from methods.models.rewriter import RewriterConfig
from methods.registry import Component
from methods.sark.config import SarkTrainingConfig
from methods.sark.data_config import AnswerChat
from methods.sark.prompts import load_prompt
from methods.sark.rows import LENGTH
from ragmeter.planning.cost import Cost, total, unknown
from ragmeter.planning.lessons import DATA, DTYPES, Classroom, Lesson, once, points, saved, steps_of, unclear
from ragmeter.planning.parts import Work, indexes, searching
from ragmeter.planning.readers import reading_cost
from ragmeter.planning.shape import Shape, tokens

STYLES = 2
VERDICT = 120
"""Tokens of a judge's instructions, beside question, gold and answer."""
RETELLING = 160
"""Tokens of the instructions to tell a passage otherwise."""
STAGE = "reranker"


def lessons(config: SarkTrainingConfig, room: Classroom) -> list[Lesson]:
    """The rows, and the stage."""
    shapes = [_used(config, one) for one in room.shapes_of(config.data, config.data_options)]
    held = [_used(config.held_out, one) for one in room.shapes_of(config.validation, config.validation_options)]
    shared: dict[str, Cost] = {}
    own = Cost()
    for options, one in (*((config, one) for one in shapes), *((config.held_out, one) for one in held)):
        shared |= {**_indexes(options, room, one), **_asked(options, room, one)}
        own += _own(options, room, one)
    rows = sum(_labelled(config, one) for one in shapes)
    size = room.weights.size(config.base, config.revision)
    steps = steps_of(rows, config.train.batch_size * config.train.accumulation, config.train.epochs)
    cost = total(_trained(config, room, one) for one in shapes)
    return [
        Lesson(DATA, rows, None, own + unclear((*shapes, *held), "rows"), once=shared),
        Lesson(STAGE, rows, steps, cost + saved(size), points(size)),
    ]


def _used(config: SarkTrainingConfig, shape: Shape) -> Shape:
    """A shape with the questions that are mined, at most."""
    if shape.questions is None:
        return shape
    limits = [shape.questions] if config.questions is None else [shape.questions, config.questions]
    if config.rows is not None and _tried(config, shape) >= LENGTH:
        # A question gives a row at least, its list; that some orders cannot be read is left out of account.
        limits.append(config.rows)
    return replace(shape, questions=min(limits))


def _tried(config: SarkTrainingConfig, shape: Shape) -> float:
    """Passages that a question is tried with at most: its candidates, or those of its list."""
    if config.labels.passages == "list":
        return float(LENGTH)
    if config.candidates.source == "retriever":
        return float(config.candidates.depth)
    return min(float(config.candidates.depth), shape.candidates)


def _labelled(config: SarkTrainingConfig, shape: Shape) -> float:
    """Rows at most: a label of every passage that was tried, as far as rows are wanted."""
    every = float(shape.questions or 0) * (_tried(config, shape) + _further(config))
    return every if config.rows is None else min(every, float(config.rows))


def _told(config: SarkTrainingConfig, shape: Shape) -> float:
    """Passages told otherwise at most: all that were tried, or those of the rows and of each question's list."""
    questions = float(shape.questions or 0)
    every = questions * (_tried(config, shape) + _further(config))
    return every if config.rows is None else min(every, config.rows + LENGTH * questions)


def _further(config: SarkTrainingConfig) -> float:
    extra = config.labels.extra
    return 0.0 if extra is None else float(extra.most or extra.n)


def _attempts(config: SarkTrainingConfig, shape: Shape) -> float:
    """Answers: one without context, one with each passage that is tried."""
    extra = config.labels.extra
    return float(shape.questions or 0) * (1 + _tried(config, shape) + (extra.n if extra else 0))


def _asked(config: SarkTrainingConfig, room: Classroom, shape: Shape) -> dict[str, Cost]:
    """Answers, verdicts, orders and retellings by endpoints; who wants the same finds the replies."""
    questions, labels, attempts = float(shape.questions or 0), config.labels, _attempts(config, shape)
    cost = Cost()
    if labels.by == "llm":
        prompt = _template("answer", labels.prompt) + shape.question + shape.passage
        cost += room.ask(labels.chat, attempts, prompt)
    if labels.judge is not None:
        cost += _judged(config, room, shape, attempts)
    if config.lists.by == "llm":
        prompt = _template("order", config.lists.prompt) + shape.question + LENGTH * shape.passage
        cost += room.ask(config.lists.chat, questions, prompt)
    llm = config.styles.llm if config.styles.by == "llm" else None
    if isinstance(llm, RewriterConfig):
        # No retelling is much longer than what is told.
        longest = min(llm.max_tokens, 2 * shape.passage)
        cost += room.ask(llm, _told(config, shape), RETELLING + shape.passage, longest)
    made_of = (config.candidates, config.labels, config.lists, config.styles)
    # Fewer rows are of fewer questions.
    return {once("sark", [str(shape.reference), f"{config.rows}, {config.rows_seed}"], *made_of): cost}


def _retrievers(config: SarkTrainingConfig) -> list[Component]:
    """What finds candidates, and further negatives."""
    wanted = [config.candidates.component] if config.candidates.source == "retriever" else []
    return wanted if config.labels.extra is None else [*wanted, config.labels.extra.component]


def _work(room: Classroom, shape: Shape) -> Work:
    return Work(shape, float(shape.questions or 0), room.assume, room.weights)


def _indexes(config: SarkTrainingConfig, room: Classroom, shape: Shape) -> dict[str, Cost]:
    """Indexes of the whole corpus, which the splits of a dataset share."""
    found = (index for one in _retrievers(config) for index in indexes(one, _work(room, shape)))
    corpus = [shape.reference.name, str(shape.corpus)]
    return {once("index", corpus, index.component.config): index.cost for index in found}


def _own(config: SarkTrainingConfig, room: Classroom, shape: Shape) -> Cost:
    """What each training does for itself: searching, and answers of a reader of this machine."""
    cost = total(searching(one, _work(room, shape), None) for one in _retrievers(config))
    if config.labels.by == "reader":
        reader = config.labels.component
        cost += reading_cost(reader, shape, _attempts(config, shape), 1, room.assume, room.weights)
    return cost


def _judged(config: SarkTrainingConfig, room: Classroom, shape: Shape, attempts: float) -> Cost:
    """A verdict on each answer that no gold equals: at most all."""
    wanted = config.wanted_judge
    assert wanted is not None
    judge = JUDGES.get(wanted[0]).config.model_validate(wanted[1])
    if not isinstance(judge, ChatConfig):
        return Cost() if not hasattr(judge, "model") else unknown(f"verdicts of {wanted[0]}")
    longest = config.labels.chat.max_tokens if isinstance(config.labels.chat, AnswerChat) else 32
    return room.ask(judge, attempts, VERDICT + shape.question + shape.answer + longest)


def _template(name: str, path: str | None) -> int:
    return sum(map(tokens, load_prompt(name, path).parts))


def _trained(config: SarkTrainingConfig, room: Classroom, shape: Shape) -> Cost:
    """Every row with its passage and its list, in both styles: 14 sequences."""
    loss = config.loss
    told = STYLES if loss.styles else 1
    sequences = told * ((1 if loss.passage else 0) + (LENGTH if loss.listwise else 0))
    length = min(shape.question + shape.passage, config.model.max_length)
    size = room.weights.size(config.base, config.revision)
    texts = config.train.epochs * _labelled(config, shape) * sequences
    return room.train(size, texts, length, DTYPES[config.train.precision], causal=False)

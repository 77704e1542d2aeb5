"""What ARK's training takes: scoring chunks, graphs and queries by language models, mining, and three stages."""

from __future__ import annotations

from methods.ark.config import STAGES, ArkTrainingConfig
from methods.ark.preparation import SIZES
from methods.knowledge.chunking import ChunkConfig
from methods.knowledge.prompts import load_prompt
from ragmeter.planning.cost import Cost, total
from ragmeter.planning.lessons import DATA, DTYPES, GRADIENT_CACHING, Classroom, Lesson, once, points, saved, steps_of, unclear
from ragmeter.planning.shape import Shape, tokens

SENTENCE = 25
"""Tokens of a sentence."""
INSTRUCTIONS = 40
"""Tokens of the prompts by which chunks are scored, beside chunk, question and answer."""
GIVEN = 60
"""Triples of a neighbourhood shown for queries, each of about `TRIPLE` tokens."""
TRIPLE = 15


def lessons(config: ArkTrainingConfig, room: Classroom) -> list[Lesson]:
    """The stages of a training, its preparation first."""
    shapes = room.shapes_of(config.data, config.data_options)
    known = [one for one in shapes if one.questions is not None and one.asked]
    missing = unclear(shapes, "training")
    written = {}
    if config.augments:
        what = [config.kg, config.neighbourhood.seeds, config.queries]
        written = {once("ark", config.data, *what): total(_synthesis(config, room, one) for one in known)}
    cost = total(_prepared(config, room, one) for one in known) + missing
    prepared = Lesson(DATA, None, None, cost, once=written)
    stages = config.train.stages
    if config.train.curriculum == "mixed":
        return [prepared, _mixed(config, room, known)]
    return [prepared, *(_stage(config, room, known, STAGES.index(one)) for one in stages)]


def chunk(config: ArkTrainingConfig, shape: Shape) -> tuple[float, float]:
    """Chunks of a document, and tokens of one."""
    return _cut(config.chunks, shape) if isinstance(config.chunks, ChunkConfig) else (shape.candidates, shape.passage)


def _cut(chunks: ChunkConfig, shape: Shape) -> tuple[float, float]:
    units = {"token": 1.0, "word": 4 / 3, "sentence": float(SENTENCE)}[chunks.unit]
    size = min(chunks.size * units, shape.document)
    step = (chunks.size - chunks.overlap) * units
    return max(1.0, -(-max(0.0, shape.document - chunks.overlap * units) // step)), size


def _documents(shape: Shape) -> float:
    return (shape.corpus or 0) / shape.candidates if shape.candidates else 0.0


def _prepared(config: ArkTrainingConfig, room: Classroom, shape: Shape) -> Cost:
    questions, (number, length) = float(shape.questions or 0), chunk(config, shape)
    pairs, score = questions * number, config.score
    cost = Cost()
    asked = [bool(score.f.weight), bool(score.b.weight)].count(True)
    if asked:
        size = room.weights.size(score.scorer, score.revision)
        scored = length + shape.question + shape.answer + INSTRUCTIONS
        dtype = score.dtype if score.dtype not in (None, "auto") else "bfloat16"
        cost += room.read(size, asked * pairs, scored, str(dtype), causal=True)
    if score.v.weight:
        encoder = config.vector_encoder
        size = room.weights.size(encoder.model, encoder.revision)
        cost += room.read(size, _documents(shape) * number, length, encoder.dtype, causal=False)
        cost += room.read(size, questions, shape.question, encoder.dtype, causal=False)
    return cost


def _synthesis(config: ArkTrainingConfig, room: Classroom, shape: Shape) -> Cost:
    """One call a piece of a document for its graph, one a question for its names, two for its queries."""
    questions, (pieces, length) = float(shape.questions or 0), _cut(config.kg.chunk, shape)
    number, cost = _documents(shape) * pieces, Cost()
    if config.kg.extractor == "llm":
        cost += room.ask(config.kg.chat, number, length + _template("extraction", config.kg.prompt))
    seeds = config.neighbourhood.seeds
    if seeds.namer == "llm":
        cost += room.ask(seeds.chat, questions, shape.question + shape.answer + _template("names", seeds.prompt))
    if config.queries.generator == "llm":
        prompt = GIVEN * TRIPLE + _template("queries", config.queries.prompt)
        cost += room.ask(config.queries.chat, len(SIZES) * questions, prompt)
    return cost


def _template(name: str, path: str | None) -> int:
    prompt = load_prompt(name, path)
    return tokens(prompt.system) + tokens(prompt.user)


def _stage(config: ArkTrainingConfig, room: Classroom, shapes: list[Shape], place: int) -> Lesson:
    name = STAGES[place]
    rows = sum(float(one.questions or 0) for one in shapes) * config.score.positives
    cost = total(_trained(config, room, one, name, config.train.epochs[place]) for one in shapes)
    return _lesson(config, room, name, rows, config.train.epochs[place], cost)


def _mixed(config: ArkTrainingConfig, room: Classroom, shapes: list[Shape]) -> Lesson:
    stages, epochs = config.train.stages, sum(config.train.epochs)
    rows = len(stages) * sum(float(one.questions or 0) for one in shapes) * config.score.positives
    cost = total(_trained(config, room, one, name, epochs) for one in shapes for name in stages)
    return _lesson(config, room, stages[-1], rows, epochs, cost)


def _lesson(config: ArkTrainingConfig, room: Classroom, name: str, rows: float, epochs: int, cost: Cost) -> Lesson:
    size = room.weights.size(config.encoder.model, config.encoder.revision)
    steps = steps_of(rows, config.train.batch_size * config.train.accumulation, epochs)
    return Lesson(name, rows, steps, cost + saved(size), points(size))


def _trained(config: ArkTrainingConfig, room: Classroom, shape: Shape, name: str, epochs: int) -> Cost:
    """Rows of one dataset: question, positive, negatives; texts that rows of a batch share are encoded once."""
    encoder, (number, length) = config.encoder, chunk(config, shape)
    size = room.weights.size(encoder.model, encoder.revision)
    longest = min(length, config.train.max_length or encoder.max_length or length)
    negatives = min(config.mine.sample if name in SIZES else config.mine.stage1_random, number - 1)
    rows = epochs * float(shape.questions or 0) * config.score.positives
    dtype = DTYPES[config.train.precision]
    texts = config.train.batch_size * (2 + negatives)
    again = GRADIENT_CACHING if texts > config.train.held else 1.0
    cost = room.train(size, rows * (1 + negatives), longest, dtype, causal=False).times(again)
    cost += room.train(size, rows, shape.question, dtype, causal=False).times(again)
    if name in SIZES and config.mine.source != "random":
        cost += room.read(size, _documents(shape) * number, length, encoder.dtype, causal=False)
    return cost

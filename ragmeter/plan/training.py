"""What an experiment's trainings take, stage by stage; stages that are trained already take nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from benchmarks.core.fingerprint import fingerprint
from benchmarks.registry import resolve
from judges.judge import JUDGES
from methods.ark.config import STAGES, ArkTrainingConfig
from methods.ark.train import SIZES
from methods.baselines.graph.cross_encoder_training import GraphCrossEncoderTrainingConfig
from methods.baselines.graph.skp import SkpTrainingConfig
from methods.clara.config import TYPES, ClaraConfig, ClaraTrainingConfig, Stage, StepOptions
from methods.gpr.config import GprTrainingConfig
from methods.gpr.questions import TRIES
from methods.gpr.questions import load_prompt as questions_prompt
from methods.graphs.chunking import ChunkConfig
from methods.graphs.extraction import load_prompt
from methods.models.endpoint import ChatConfig
from methods.models.rewriter import RewriterConfig
from methods.registry import Component
from methods.sark.config import AnswerChat, SarkTrainingConfig
from methods.sark.prompts import load_prompt as load_sark_prompt
from methods.sark.rows import LENGTH
from methods.training.adapters import LoraOptions
from ragmeter.plan.cost import BYTES, Assumptions, Calls, Cost, Weights, Work, asked, indexes, reading_cost, searching, total, unknown
from ragmeter.plan.shapes import Shape, options, shape_of, tokens
from ragmeter.sizes import ModelSize
from ragmeter.trainings import TrainingPlan

# -- What a stage of a training comes to: rows, steps, and tokens through a model, at most --


DATA = "data"
"""The stage in which data are prepared: scores, synthesis, frozen documents."""
FULL = "float32"
OPTIMIZER = 12
"""Bytes a trained parameter takes in a point to go on from: float32 itself, and the two means of AdamW."""
GRADIENT_CACHING = 4 / 3
"""Gradient caching reads every text once more without a gradient."""
DTYPES = {"no": FULL, "bf16": "bfloat16", "fp16": "float16"}
"""Types that `precision` computes in."""


@dataclass(frozen=True)
class TrainingExample:
    """A stage of a training, as planned.

    Attributes:
        stage: Its name, or `DATA`.
        rows: Training rows, at most; None: unknown.
        steps: Of the optimizer, at most; None: unknown, or not a stage that trains.
        cost: At most.
        scratch: Bytes on disk while it runs: points to go on from, frozen documents.
        once: What is done once for all trainings that need it: replies and indexes are kept, by what they are of.
    """

    stage: str
    rows: float | None
    steps: float | None
    cost: Cost
    scratch: float = 0.0
    once: Mapping[str, Cost] = field(default_factory=dict)


@dataclass
class Planner:
    """What planning trainings needs.

    Attributes:
        assume, weights: Device and sizes.
        shapes: Of data that were looked at, by reference and options.
        done: What an earlier training of the plan does for the later ones.
    """

    assume: Assumptions
    weights: Weights
    shapes: dict[str, Shape] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)

    def once(self, example: TrainingExample) -> Cost:
        """What a stage takes beside what an earlier training does, too."""
        new = {key: cost for key, cost in example.once.items() if key not in self.done}
        self.done |= set(new)
        return total((example.cost, *new.values()))

    def shape(self, reference: str, settings: Mapping[str, Mapping[str, Any]]) -> Shape:
        """The shape of training data, whose options are given by dataset id, or by id/subset."""
        chosen = resolve(reference)[0].options_in(settings)
        key = f"{reference} {chosen}"
        if key not in self.shapes:
            self.shapes[key] = shape_of(*options(reference, chosen))
        return self.shapes[key]

    def shapes_of(self, references: Iterable[str], settings: Mapping[str, Mapping[str, Any]]) -> list[Shape]:
        """The shapes of several."""
        return [self.shape(reference, settings) for reference in references]

    def ask(self, chat: ChatConfig | None, number: float, prompt: float, longest: float | None = None) -> Cost:
        """Calls of an endpoint; None: nobody is asked."""
        if chat is None:
            return Cost()
        return asked(Calls(number, prompt, chat.max_tokens if longest is None else longest), chat, self.assume)

    def read(self, size: ModelSize, texts: float, length: float, dtype: str, *, causal: bool) -> Cost:
        """Forward passes of a local model over so many texts."""
        cost = Cost(encoded_tokens=texts * length)
        if not size.known:
            return cost + unknown(f"GPU hours of {size.model}: its size is unknown")
        return cost + Cost(gpu_seconds=self.assume.reading(size, texts * length, length, dtype, causal=causal))

    def train(self, size: ModelSize, texts: float, length: float, dtype: str, *, causal: bool) -> Cost:
        """Forward and backward passes over so many texts."""
        cost = Cost(encoded_tokens=texts * length)
        if not size.known:
            return cost + unknown(f"GPU hours of training {size.model}: its size is unknown")
        return cost + Cost(gpu_seconds=self.assume.training(size, texts * length, length, dtype, causal=causal))


def once(what: str, *parts: BaseModel | Sequence[str]) -> str:
    """A key of work that trainings share: equal where it is of equal options and data."""
    return fingerprint(what, [part.model_dump(mode="json") if isinstance(part, BaseModel) else list(part) for part in parts])


def steps_of(rows: float, batch: int, epochs: int) -> int:
    """Steps of the optimizer: the last one of an epoch may be smaller."""
    return math.ceil(rows / batch) * epochs if rows else 0


def saved(size: ModelSize, towers: int = 1) -> Cost:
    """The checkpoint of a model whose parameters are all kept in float32."""
    if size.parameters is None:
        return unknown(f"disk of the checkpoint: the size of {size.model} is unknown")
    return Cost(disk=towers * 4 * size.parameters)


def points(size: ModelSize, towers: int = 1) -> float:
    """Bytes of the point that an interrupted training goes on from; 0 where the size is unknown."""
    return towers * OPTIMIZER * (size.parameters or 0.0)


def unclear(shapes: Iterable[Shape], what: str) -> Cost:
    """What data whose numbers or lengths are unknown leave unknown."""
    return total(
        unknown(f"{what} on {shape.reference}: " + ("its lengths are" if shape.questions else "how much there is, is") + " unknown")
        for shape in shapes
        if shape.questions is None or not shape.sampled
    )


# -- What ARK's training takes: scoring chunks, graphs and queries by language models, mining, and three stages --


SENTENCE = 25
"""Tokens of a sentence."""
INSTRUCTIONS = 40
"""Tokens of the prompts by which chunks are scored, beside chunk, question and answer."""
GIVEN = 60
"""Triples of a neighborhood shown for queries, each of about `TRIPLE` tokens."""
TRIPLE = 15


def ark_stages(config: ArkTrainingConfig, room: Planner) -> list[TrainingExample]:
    """The stages of a training, its preparation first."""
    shapes = room.shapes_of(config.data, config.data_options)
    known = [shape for shape in shapes if shape.questions is not None and shape.sampled]
    missing = unclear(shapes, "training")
    written = {}
    if config.augments:
        what = [config.kg, config.neighborhood.seeds, config.queries]
        written = {once("ark", config.data, *what): total(_synthesis(config, room, item) for item in known)}
    cost = total(_prepared(config, room, item) for item in known) + missing
    prepared = TrainingExample(DATA, None, None, cost, once=written)
    stages = config.train.stages
    if config.train.curriculum == "mixed":
        return [prepared, _mixed(config, room, known)]
    return [prepared, *(_stage(config, room, known, STAGES.index(stage)) for stage in stages)]


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


def _prepared(config: ArkTrainingConfig, room: Planner, shape: Shape) -> Cost:
    questions, (number, length) = float(shape.questions or 0), chunk(config, shape)
    pairs, score = questions * number, config.score
    cost = Cost()
    passes = [bool(score.f.weight), bool(score.b.weight)].count(True)
    if passes:
        size = room.weights.size(score.scorer, score.revision)
        scored = length + shape.question + shape.answer + INSTRUCTIONS
        dtype = score.dtype if score.dtype not in (None, "auto") else "bfloat16"
        cost += room.read(size, passes * pairs, scored, str(dtype), causal=True)
    if score.v.weight:
        encoder = config.vector_encoder
        size = room.weights.size(encoder.model, encoder.revision)
        cost += room.read(size, _documents(shape) * number, length, encoder.dtype, causal=False)
        cost += room.read(size, questions, shape.question, encoder.dtype, causal=False)
    return cost


def _synthesis(config: ArkTrainingConfig, room: Planner, shape: Shape) -> Cost:
    """One call a piece of a document for its graph, one a question for its names, two for its queries."""
    questions, (pieces, length) = float(shape.questions or 0), _cut(config.kg.chunk, shape)
    number, cost = _documents(shape) * pieces, Cost()
    if config.kg.extractor == "llm":
        cost += room.ask(config.kg.chat, number, length + _template("extraction", config.kg.prompt))
    seeds = config.neighborhood.seeds
    if seeds.namer == "llm":
        cost += room.ask(seeds.chat, questions, shape.question + shape.answer + _template("names", seeds.prompt))
    if config.queries.generator == "llm":
        prompt = GIVEN * TRIPLE + _template("queries", config.queries.prompt)
        cost += room.ask(config.queries.chat, len(SIZES) * questions, prompt)
    return cost


def _template(name: str, path: str | None) -> int:
    prompt = load_prompt(name, path)
    return tokens(prompt.system) + tokens(prompt.user)


def _stage(config: ArkTrainingConfig, room: Planner, shapes: list[Shape], position: int) -> TrainingExample:
    name = STAGES[position]
    rows = sum(float(shape.questions or 0) for shape in shapes) * config.score.positives
    cost = total(_trained(config, room, shape, name, config.train.epochs[position]) for shape in shapes)
    return _example(config, room, name, rows, config.train.epochs[position], cost)


def _mixed(config: ArkTrainingConfig, room: Planner, shapes: list[Shape]) -> TrainingExample:
    stages, epochs = config.train.stages, sum(config.train.epochs)
    rows = len(stages) * sum(float(shape.questions or 0) for shape in shapes) * config.score.positives
    cost = total(_trained(config, room, shape, name, epochs) for shape in shapes for name in stages)
    return _example(config, room, stages[-1], rows, epochs, cost)


def _example(config: ArkTrainingConfig, room: Planner, name: str, rows: float, epochs: int, cost: Cost) -> TrainingExample:
    size = room.weights.size(config.encoder.model, config.encoder.revision)
    steps = steps_of(rows, config.train.batch_size * config.train.accumulation, epochs)
    return TrainingExample(name, rows, steps, cost + saved(size), points(size))


def _trained(config: ArkTrainingConfig, room: Planner, shape: Shape, name: str, epochs: int) -> Cost:
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


# -- What CLaRa's stages take, each a pass of one base with adapters: documents to memory, replies from memory --


PROMPT = 60
"""Tokens of a prompt, beside memory and question."""
ADAPTER_BYTES = 4
MATRICES = 3
"""Of a gated feed-forward layer."""


def clara_stages(config: ClaraTrainingConfig, room: Planner) -> list[TrainingExample]:
    """The stages that are carried out."""
    return [_clara_stage(config, room, stage) for stage in config.planned]


def _clara_stage(config: ClaraTrainingConfig, room: Planner, stage: Stage) -> TrainingExample:
    model = room.weights.clara_model(config)
    size = room.weights.size(model.base, model.revision)
    shapes = room.shapes_of(config.references(stage), config.data.options)
    train = _steps(config, stage)
    rows = sum(_rows(config, stage, shape) for shape in shapes)
    steps = steps_of(rows, train.batch_size, train.epochs)
    limited = steps if train.steps is None else min(steps, train.steps)
    times = train.epochs * limited / steps if steps else 0.0
    cost = total(_pass(config, room, stage, model, size, shape).times(times) for shape in shapes)
    frozen, scratch = _frozen(config, room, stage, model, size, shapes)
    made = cost + frozen + _checkpoint(model.lora, size) + unclear(shapes, stage)
    return TrainingExample(stage, rows, limited, made, scratch)


def _steps(config: ClaraTrainingConfig, stage: Stage) -> StepOptions:
    stages: dict[Stage, StepOptions] = {
        "scp": config.scp.train,
        "instruction": config.instruction.train,
        "supervised": config.supervised.train,
        "joint": config.joint.train,
    }
    return stages[stage]


def _rows(config: ClaraTrainingConfig, stage: Stage, shape: Shape) -> float:
    """Training examples of a stage, of pretraining those of the wanted types and documents."""
    number = float(shape.questions or 0)
    if stage == "instruction":
        return number / config.instruction.together
    if stage != "scp":
        return number
    data = config.scp.rows
    share = len(data.types) / len(TYPES)
    if shape.reference.name == "worlds":
        # Rows are made of documents, not of questions: one of each type.
        number = float(shape.corpus or 0) * len(TYPES)
    if config.scp.questions is not None:
        # A training example is then all questions about a document.
        return min(number / len(TYPES), data.documents if data.documents is not None else number)
    return min(number * share, len(data.types) * data.documents if data.documents is not None else number * share)


def _pass(config: ClaraTrainingConfig, room: Planner, stage: Stage, model: ClaraConfig, size: ModelSize, shape: Shape) -> Cost:
    """All rows once: what is read with a gradient."""
    rows, dtype = _rows(config, stage, shape), _dtype(config, model)
    document = min(shape.passage, model.max_length) + model.memory_tokens
    documents, memory = _clara_documents(config, stage, model)
    prompt = PROMPT + memory * model.memory_tokens + shape.question + shape.answer
    if stage == "supervised":
        return room.train(size, rows, shape.question + model.memory_tokens, dtype, causal=True)
    # Questions about one set of documents share its reading.
    questions = {"scp": config.scp.questions or 1, "instruction": config.instruction.together}.get(stage, 1)
    cost = room.train(size, rows * questions, prompt, dtype, causal=True)
    if documents:
        return cost + room.train(size, rows * documents, document, dtype, causal=True)
    return cost + room.train(size, rows, shape.question + model.memory_tokens, dtype, causal=True)


def _clara_documents(config: ClaraTrainingConfig, stage: Stage, model: ClaraConfig) -> tuple[int, int]:
    """Documents of a row that are compressed with a gradient, and those whose memory stands in its prompt."""
    if stage == "scp":
        return 1, 1
    if stage == "instruction":
        return config.instruction.documents, config.instruction.documents
    return 0, (config.joint.k or model.k) if stage == "joint" else 0


def _frozen(
    config: ClaraTrainingConfig, room: Planner, stage: Stage, model: ClaraConfig, size: ModelSize, shapes: list[Shape]
) -> tuple[Cost, float]:
    """Candidates that a frozen compressor encodes, and the bytes of what it keeps until the stage ends."""
    if stage not in ("supervised", "joint"):
        return Cost(), 0.0
    dtype = _dtype(config, model)
    options = config.joint if stage == "joint" else config.supervised
    train, cost, scratch = options.train, Cost(), 0.0
    for shape in shapes:
        each = float(shape.questions or 0) * min(config.data.pool.depth, shape.candidates or config.data.pool.depth)
        documents = min(each, float(shape.corpus or each))
        kept = options.documents == "kept"
        read = each * train.epochs
        if train.steps:
            candidates = each / max(1.0, float(shape.questions or 0))
            read = min(read, candidates * train.steps * train.batch_size)
        cost += room.read(size, documents if kept else read, min(shape.passage, model.max_length) + model.memory_tokens, dtype, causal=True)
        scratch += kept * documents * model.memory_tokens * (size.width or 0) * BYTES[_stored(model)]
    return cost, scratch


def _dtype(config: ClaraTrainingConfig, model: ClaraConfig) -> str:
    return DTYPES[config.precision] if config.precision != "no" else _stored(model)


def _stored(model: ClaraConfig) -> str:
    return "bfloat16" if model.dtype in (None, "auto") else str(model.dtype)


def adapter_parameters(options: LoraOptions, size: ModelSize) -> float | None:
    """Parameters of one adapter on all linear layers: rank × (inputs + outputs) of each.

    The width of the feed-forward layer is what the parameters leave for it, embeddings counted with it: at most.
    """
    width, layers, keys = size.width, size.layers, size.kv_width
    if size.parameters is None or width is None or layers is None or keys is None:
        return None
    inner = max(0.0, size.parameters / layers - 2 * width * width - 2 * width * keys) / (MATRICES * width)
    attention = 2 * (width + width) + 2 * (width + keys)
    return layers * options.r * (attention + MATRICES * (width + inner))


def _checkpoint(options: LoraOptions, size: ModelSize) -> Cost:
    """Three adapters; memory rows are small."""
    parameters = adapter_parameters(options, size)
    if parameters is None:
        return unknown(f"disk of the adapters: the shape of {size.model} is unknown")
    return Cost(disk=3 * ADAPTER_BYTES * parameters)


# -- What trainings over graphs take: GPR's towers, SKP's encoder, the cross-encoder of triples --


TEXTS_OF_ROW = 3
"""Triples of a row of GPR: the one asked about, a neighbor, a negative."""


def triples_of(shapes: list[Shape]) -> tuple[float, float]:
    """Triples of a graph, at most (graphs of questions overlap), and mean tokens of one."""
    number = sum(float(shape.corpus or 0) for shape in shapes)
    return number, sum(float(shape.corpus or 0) * shape.passage for shape in shapes) / number if number else 0.0


def gpr_stages(config: GprTrainingConfig, room: Planner) -> list[TrainingExample]:
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
        TrainingExample(DATA, masked, None, unclear(shapes, "questions"), once={once("gpr", config.graph, questions): written}),
        TrainingExample("towers", rows, steps, cost + saved(size, towers=2), points(size, towers=2)),
    ]


def skp_stages(config: SkpTrainingConfig, room: Planner) -> list[TrainingExample]:
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
    return [TrainingExample("encoder", triples, steps, known, points(size))]


def cross_encoder_stages(config: GraphCrossEncoderTrainingConfig, room: Planner) -> list[TrainingExample]:
    """Right triples, each against others; a question is taken to have two of them."""
    shapes = room.shapes_of(config.data, config.data_options)
    rows = 2 * sum(float(shape.questions or 0) for shape in shapes)
    size = room.weights.size(config.base, config.revision)
    dtype = DTYPES[config.precision]
    cost = total(
        room.train(
            size,
            2 * config.epochs * float(shape.questions or 0) * (1 + config.negatives),
            min(shape.question + shape.passage, config.max_length),
            dtype,
            causal=False,
        )
        for shape in shapes
    )
    steps = steps_of(rows, config.batch_size, config.epochs)
    return [TrainingExample("reranker", rows, steps, cost + saved(size) + unclear(shapes, "training"), points(size))]


# -- What SARK's training takes: answers with each passage, verdicts, orders, restyled passages, and one stage --


STYLES = 2
VERDICT = 120
"""Tokens of a judge's instructions, beside question, gold and answer."""
RESTYLING = 160
"""Tokens of the instructions to rewrite a passage in another style."""
STAGE = "reranker"


def sark_stages(config: SarkTrainingConfig, room: Planner) -> list[TrainingExample]:
    """The rows, and the stage."""
    shapes = [_used(config, item) for item in room.shapes_of(config.data, config.data_options)]
    held = [_used(config.held_out, item) for item in room.shapes_of(config.validation, config.validation_options)]
    shared: dict[str, Cost] = {}
    own = Cost()
    for part, item in (*((config, shape) for shape in shapes), *((config.held_out, item) for item in held)):
        shared |= {**_indexes(part, room, item), **_request(part, room, item)}
        own += _own(part, room, item)
    rows = sum(_labeled(config, shape) for shape in shapes)
    size = room.weights.size(config.base, config.revision)
    steps = steps_of(rows, config.train.batch_size * config.train.accumulation, config.train.epochs)
    cost = total(_sark_trained(config, room, shape) for shape in shapes)
    return [
        TrainingExample(DATA, rows, None, own + unclear((*shapes, *held), "rows"), once=shared),
        TrainingExample(STAGE, rows, steps, cost + saved(size), points(size)),
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


def _labeled(config: SarkTrainingConfig, shape: Shape) -> float:
    """Rows at most: a label of every passage that was tried, as far as rows are wanted."""
    every = float(shape.questions or 0) * (_tried(config, shape) + _further(config))
    return every if config.rows is None else min(every, float(config.rows))


def _restyled(config: SarkTrainingConfig, shape: Shape) -> float:
    """Restyled passages at most: all that were tried, or those of the rows and of each question's list."""
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


def _request(config: SarkTrainingConfig, room: Planner, shape: Shape) -> dict[str, Cost]:
    """Answers, verdicts, orders and rewritings by endpoints; equal requests share the cached replies."""
    questions, labels, attempts = float(shape.questions or 0), config.labels, _attempts(config, shape)
    cost = Cost()
    if labels.by == "llm":
        prompt = _sark_template("answer", labels.prompt) + shape.question + shape.passage
        cost += room.ask(labels.chat, attempts, prompt)
    if labels.judge is not None:
        cost += _judged(config, room, shape, attempts)
    if config.lists.by == "llm":
        prompt = _sark_template("order", config.lists.prompt) + shape.question + LENGTH * shape.passage
        cost += room.ask(config.lists.chat, questions, prompt)
    llm = config.styles.llm if config.styles.by == "llm" else None
    if isinstance(llm, RewriterConfig):
        # No rewriting is much longer than its source.
        longest = min(llm.max_tokens, 2 * shape.passage)
        cost += room.ask(llm, _restyled(config, shape), RESTYLING + shape.passage, longest)
    made_of = (config.candidates, config.labels, config.lists, config.styles)
    # Fewer rows are of fewer questions.
    return {once("sark", [str(shape.reference), f"{config.rows}, {config.rows_seed}"], *made_of): cost}


def _retrievers(config: SarkTrainingConfig) -> list[Component]:
    """What finds candidates, and further negatives."""
    wanted = [config.candidates.component] if config.candidates.source == "retriever" else []
    return wanted if config.labels.extra is None else [*wanted, config.labels.extra.component]


def _work(room: Planner, shape: Shape) -> Work:
    return Work(shape, float(shape.questions or 0), room.assume, room.weights)


def _indexes(config: SarkTrainingConfig, room: Planner, shape: Shape) -> dict[str, Cost]:
    """Indexes of the whole corpus, which the splits of a dataset share."""
    results = (index for retriever in _retrievers(config) for index in indexes(retriever, _work(room, shape)))
    corpus = [shape.reference.name, str(shape.corpus)]
    return {once("index", corpus, index.component.config): index.cost for index in results}


def _own(config: SarkTrainingConfig, room: Planner, shape: Shape) -> Cost:
    """What each training does for itself: searching, and answers of a reader of this machine."""
    cost = total(searching(retriever, _work(room, shape), None) for retriever in _retrievers(config))
    if config.labels.by == "reader":
        reader = config.labels.component
        cost += reading_cost(reader, shape, _attempts(config, shape), 1, room.assume, room.weights)
    return cost


def _judged(config: SarkTrainingConfig, room: Planner, shape: Shape, attempts: float) -> Cost:
    """A verdict on each answer that no gold equals: at most all."""
    wanted = config.wanted_judge
    assert wanted is not None
    judge = JUDGES.get(wanted[0]).config.model_validate(wanted[1])
    if not isinstance(judge, ChatConfig):
        return Cost() if not hasattr(judge, "model") else unknown(f"verdicts of {wanted[0]}")
    longest = config.labels.chat.max_tokens if isinstance(config.labels.chat, AnswerChat) else 32
    return room.ask(judge, attempts, VERDICT + shape.question + shape.answer + longest)


def _sark_template(name: str, path: str | None) -> int:
    return sum(map(tokens, load_sark_prompt(name, path).parts))


def _sark_trained(config: SarkTrainingConfig, room: Planner, shape: Shape) -> Cost:
    """Every row with its passage and its list, in both styles: 14 sequences."""
    loss = config.loss
    styles = STYLES if loss.styles else 1
    sequences = styles * ((1 if loss.passage else 0) + (LENGTH if loss.listwise else 0))
    length = min(shape.question + shape.passage, config.model.max_length)
    size = room.weights.size(config.base, config.revision)
    texts = config.train.epochs * _labeled(config, shape) * sequences
    return room.train(size, texts, length, DTYPES[config.train.precision], causal=False)


PLANNERS: Mapping[str, Callable[[Any, Planner], list[TrainingExample]]] = {
    "ark": ark_stages,
    "gpr": gpr_stages,
    "skp": skp_stages,
    "graph_cross_encoder": cross_encoder_stages,
    "sark": sark_stages,
    "clara": clara_stages,
}
"""By the training's name; of any other the cost is unknown."""

Named = tuple[str, Mapping[str, Mapping[str, Any]]]
"""A data reference, and options of loaders by dataset id."""


@dataclass(frozen=True)
class TrainingRow:
    """A stage of a training.

    Attributes:
        name, id, seed: The training.
        stage: The stage, or `data` for what is prepared before the first.
        trained: Whether it is done.
        rows, steps: At most; None: unknown, or not a stage that trains.
        origin: Where the numbers of its data are from, the least sure of several.
        cost: What is left, at most.
        scratch: Bytes on disk while it runs.
    """

    name: str
    id: str
    seed: int
    stage: str
    trained: bool
    rows: float | None
    steps: float | None
    origin: str
    cost: Cost
    scratch: float

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "training": self.name,
            "id": self.id,
            "seed": self.seed,
            "stage": self.stage,
            "trained": self.trained,
            "rows": None if self.rows is None else round(self.rows),
            "steps": None if self.steps is None else round(self.steps),
            "lengths": self.origin,
            "scratch_bytes": round(self.scratch),
            "cost": self.cost.to_json(),
        }


def training_rows(plans: Sequence[TrainingPlan], room: Planner, store: Path) -> list[TrainingRow]:
    """The stages of trainings, in order."""
    return [row for plan in plans for row in _all_rows(plan, room, store)]


def _all_rows(plan: TrainingPlan, room: Planner, store: Path) -> list[TrainingRow]:
    planner = PLANNERS.get(plan.entry.id)
    done = set(plan.trained(store))
    if planner is None:
        reason = unknown(f"training {plan.name}: {plan.entry.id} says nothing of its cost")
        examples = [TrainingExample(stage, None, None, reason) for stage in plan.stages]
    else:
        examples = planner(plan.config, room)
    return [_row(plan, room, example, done) for example in examples]


def _row(plan: TrainingPlan, room: Planner, example: TrainingExample, done: set[str]) -> TrainingRow:
    # Data are made before the first stage; where all are trained, nothing of them is needed.
    trained = example.stage in done or (example.stage == DATA and done >= set(plan.stages))
    cost = Cost() if trained else room.once(example)
    return TrainingRow(
        plan.name,
        plan.entry.id,
        plan.config.seed,
        example.stage,
        trained,
        example.rows,
        example.steps,
        origin_of(plan, room),
        cost,
        0.0 if trained else example.scratch,
    )


def references_of(plan: TrainingPlan) -> list[Named]:
    """The data that a training names, held-out ones too, with the options of their loaders by dataset id."""
    config: Any = plan.config
    results: list[Named] = []
    if isinstance(config, ClaraTrainingConfig):
        results += [(reference, config.data.options) for stage in config.planned for reference in config.references(stage)]
        held = config.validation
        results += [(item, held.options) for item in (*held.scp, *held.instruction, *held.joint)]
    else:
        for name in ("graph", "data", "validation"):
            value = getattr(config, f"{name}_options", {})
            results += [(item, value) for item in getattr(config, name, ())]
    return list({item: (item, value) for item, value in results}.values())


ORDER = ("counted", "sampled", "stated", "unknown")
"""From sure to unsure."""


def origin_of(plan: TrainingPlan, room: Planner) -> str:
    """Where the lengths of a training's data are from: the least sure of several."""
    origins = [room.shape(item, value).origin for item, value in references_of(plan)]
    return max(origins, key=ORDER.index, default="unknown")

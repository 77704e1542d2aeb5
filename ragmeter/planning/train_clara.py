"""What CLaRa's stages take, each a pass of one base with adapters: documents to memory, replies from memory."""

from __future__ import annotations

from methods.clara.adapters import LoraOptions
from methods.clara.config import ClaraConfig
from methods.clara.data_config import TYPES
from methods.clara.training_config import ClaraTrainingConfig, Stage, StepOptions
from ragmeter.planning.cost import Cost, total, unknown
from ragmeter.planning.hardware import BYTES
from ragmeter.planning.lessons import DTYPES, Classroom, Lesson, steps_of, unclear
from ragmeter.planning.shape import Shape
from ragmeter.sizing.sizes import ModelSize

PROMPT = 60
"""Tokens of a prompt, beside memory and question."""
ADAPTER_BYTES = 4
MATRICES = 3
"""Of a gated feed-forward layer."""


def lessons(config: ClaraTrainingConfig, room: Classroom) -> list[Lesson]:
    """The stages that are carried out."""
    return [_lesson(config, room, stage) for stage in config.planned]


def _lesson(config: ClaraTrainingConfig, room: Classroom, stage: Stage) -> Lesson:
    model = room.weights.clara_model(config)
    size = room.weights.size(model.base, model.revision)
    shapes = room.shapes_of(config.references(stage), config.data.options)
    train = _steps(config, stage)
    rows = sum(_rows(config, stage, one) for one in shapes)
    steps = steps_of(rows, train.batch_size, train.epochs)
    limited = steps if train.steps is None else min(steps, train.steps)
    times = train.epochs * limited / steps if steps else 0.0
    cost = total(_pass(config, room, stage, model, size, one).times(times) for one in shapes)
    frozen, scratch = _frozen(config, room, stage, model, size, shapes)
    made = cost + frozen + _checkpoint(model.lora, size) + unclear(shapes, stage)
    return Lesson(stage, rows, limited, made, scratch)


def _steps(config: ClaraTrainingConfig, stage: Stage) -> StepOptions:
    stages: dict[Stage, StepOptions] = {
        "scp": config.scp.train,
        "instruction": config.instruction.train,
        "supervised": config.supervised.train,
        "joint": config.joint.train,
    }
    return stages[stage]


def _rows(config: ClaraTrainingConfig, stage: Stage, shape: Shape) -> float:
    """Lessons of a stage, of pretraining those of the wanted types and documents."""
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
    if config.scp.asked is not None:
        # A lesson is then all that is asked of a document.
        return min(number / len(TYPES), data.documents if data.documents is not None else number)
    return min(number * share, len(data.types) * data.documents if data.documents is not None else number * share)


def _pass(config: ClaraTrainingConfig, room: Classroom, stage: Stage, model: ClaraConfig, size: ModelSize, shape: Shape) -> Cost:
    """All rows once: what is read with a gradient."""
    rows, dtype = _rows(config, stage, shape), _dtype(config, model)
    document = min(shape.passage, model.max_length) + model.memory_tokens
    documents, memory = _documents(config, stage, model)
    prompt = PROMPT + memory * model.memory_tokens + shape.question + shape.answer
    if stage == "supervised":
        return room.train(size, rows, shape.question + model.memory_tokens, dtype, causal=True)
    # Questions about one set of documents share its reading.
    asked = {"scp": config.scp.asked or 1, "instruction": config.instruction.together}.get(stage, 1)
    cost = room.train(size, rows * asked, prompt, dtype, causal=True)
    if documents:
        return cost + room.train(size, rows * documents, document, dtype, causal=True)
    return cost + room.train(size, rows, shape.question + model.memory_tokens, dtype, causal=True)


def _documents(config: ClaraTrainingConfig, stage: Stage, model: ClaraConfig) -> tuple[int, int]:
    """Documents of a row that are compressed with a gradient, and those whose memory stands in its prompt."""
    if stage == "scp":
        return 1, 1
    if stage == "instruction":
        return config.instruction.documents, config.instruction.documents
    return 0, (config.joint.k or model.k) if stage == "joint" else 0


def _frozen(
    config: ClaraTrainingConfig, room: Classroom, stage: Stage, model: ClaraConfig, size: ModelSize, shapes: list[Shape]
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

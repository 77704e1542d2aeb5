"""Estimate requirements and work of `ragmeter train clara` from its options, without loading anything."""

from __future__ import annotations

from benchmarks.registry import resolve
from methods.clara.config import ADAPTERS, TEXT, TYPES, ClaraConfig, ClaraTrainingConfig, Stage
from methods.registry import Component
from methods.training import LengthsOf
from methods.work import FLOAT, HALF, Checkpoint, Lengths, Needs, StageWork, Work, all_needs, encode, learn, saved_adapters, steps, total

PROMPT = 60
"""Assumed tokens of a prompt besides memory and question."""


def needs(config: ClaraTrainingConfig) -> Needs | None:
    """Return the required models, the starting model first."""
    own = Checkpoint(config.model.base, config.model.revision, config.model.dtype)
    if config.start is not None and "model" not in config.model_fields_set:
        own = Checkpoint(config.start)
    return all_needs((Needs((own,)), *(part.needs for part in _pool(config))))


def _pool(config: ClaraTrainingConfig) -> list[Component]:
    """Return the retriever for questions without candidates."""
    return [] if config.pool.source == "record" else [config.pool.component]


def work_of(config: ClaraTrainingConfig, of: LengthsOf) -> list[StageWork]:
    """Estimate the work of each stage: passes that encode documents to memory, and passes over replies."""
    from methods.clara.checkpoint import trained_model

    validation = config.validation
    for item in (*validation.scp, *validation.instruction, *validation.joint):
        of(item, validation.options)
    stages = []
    for stage in config.planned:
        data = [(resolve(item)[0].name, of(item, config.data.options)) for item in config.references(stage)]
        stages.append(_stage_work(config, stage, trained_model(config, data[0][1]), data))
    return stages


def _stage_work(config: ClaraTrainingConfig, stage: Stage, clara: ClaraConfig, data: list[tuple[str, Lengths]]) -> StageWork:
    train, size = config.steps_of(stage), data[0][1].size(clara.base, clara.revision)
    rows = sum(_count_rows(config, stage, *item) for item in data)
    every = steps(rows, train.batch_size, train.epochs)
    wanted = every if train.steps is None else min(every, train.steps)
    work = total(_pass(config, stage, clara, lengths, _count_rows(config, stage, name, lengths)) for name, lengths in data)
    work = work * (train.epochs * wanted / every if every else 0.0)
    if stage != "scp":
        work += total(part.work(lengths) for part in _pool(config) for _, lengths in data)
    scratch = 0.0
    if stage in ("supervised", "joint"):
        frozen, scratch = _frozen(config, stage, clara, [lengths for _, lengths in data])
        work += frozen
    kept = saved_adapters(size, clara.base, clara.lora.r, len(TEXT if config.reads == "text" else ADAPTERS))
    return StageWork(stage, work + kept, rows, wanted, scratch)


def _count_rows(config: ClaraTrainingConfig, stage: Stage, name: str, lengths: Lengths) -> float:
    """Return the number of training examples; in pretraining, only those of the wanted types and documents."""
    number = lengths.questions
    if stage == "instruction":
        return number / config.instruction.together
    if stage != "scp":
        return number
    data = config.scp.rows
    if name == "worlds":
        # Rows are made of documents, not of questions: one of each type.
        number = lengths.corpus * len(TYPES)
    most = number if data.documents is None else float(data.documents)
    if config.scp.questions is not None:
        # A training example is then all questions about a document.
        return min(number / len(TYPES), most)
    return min(number * len(data.types) / len(TYPES), most if data.documents is None else len(data.types) * most)


def _pass(config: ClaraTrainingConfig, stage: Stage, clara: ClaraConfig, lengths: Lengths, rows: float) -> Work:
    """Estimate the work of one pass over all rows with gradient."""
    base, micro = Checkpoint(clara.base, clara.revision), getattr(config, stage).train.micro_batch

    def read(texts: float, length: float) -> Work:
        batch_tokens = micro * length * texts / rows if rows else 0.0
        computes = _computes(config, clara)
        return learn(base, texts, length, computes, causal=True, adapted=True, held=batch_tokens, checkpointed=config.recompute)

    question = read(rows, lengths.question + clara.memory_tokens)
    if stage == "supervised":
        return question
    documents = 1 if stage == "scp" else config.instruction.documents if stage == "instruction" else clara.k
    prompt = PROMPT + documents * clara.memory_tokens + lengths.question + lengths.answer
    if stage == "joint":
        return read(rows, prompt) + question
    if config.reads == "text":
        prompt += documents * (min(lengths.passage, clara.max_length) - clara.memory_tokens)
    # Questions about one set of documents share its reading.
    together = config.instruction.together if stage == "instruction" else config.scp.questions or 1
    replies = read(rows * together, prompt)
    if config.reads == "text":
        return replies
    return replies + read(rows * documents, min(lengths.passage, clara.max_length) + clara.memory_tokens)


def _frozen(config: ClaraTrainingConfig, stage: Stage, clara: ClaraConfig, data: list[Lengths]) -> tuple[Work, float]:
    """Estimate encoding candidates with the frozen compressor, and the bytes stored until the stage ends."""
    base, work, scratch = Checkpoint(clara.base, clara.revision, _computes(config, clara)), Work(), 0.0
    for lengths in data:
        pool = min(config.pool.depth, lengths.candidates or config.pool.depth)
        documents = min(lengths.questions * pool, lengths.corpus or lengths.questions * pool)
        length = min(lengths.passage, clara.max_length) + clara.memory_tokens
        work += encode(base, documents, length, causal=True)
        width = FLOAT if clara.dtype == "float32" else HALF
        scratch += documents * clara.memory_tokens * (lengths.size(clara.base, clara.revision).width or 0) * width
    return work, scratch


def _computes(config: ClaraTrainingConfig, clara: ClaraConfig) -> str:
    return config.precision if config.precision != "no" else clara.dtype or "auto"

"""Estimate requirements and work of `ragmeter train ark` from its options, without loading anything."""

from __future__ import annotations

from benchmarks.core.fingerprint import fingerprint
from methods.ark.config import SIZES, STAGES, ArkTrainingConfig
from methods.graphs.chunking import ChunkConfig
from methods.graphs.claims import PROMPT as CLAIMS
from methods.graphs.extraction import PROMPTS
from methods.served import scoring_work
from methods.training import LengthsOf, known_data
from methods.work import (
    DATA,
    WORDS_PER_TOKEN,
    Lengths,
    Needs,
    Once,
    StageWork,
    Work,
    ask,
    encode,
    learn,
    needs_of,
    steps,
    tokens,
    total,
    whole_stage,
)

PROMPT, SENTENCE = 40, 25
"""Assumed tokens of the scoring prompts besides chunk, question and answer; and of a sentence."""
GIVEN = 60 * 15
"""Assumed tokens of a neighborhood's triples in the prompt for queries."""
EVIDENCE = 2
"""Assumed evidence passages per question, if these are the positives; typical of multi-hop data."""
GRADIENT_CACHING = 4 / 3
"""Cost factor of gradient caching, which encodes each batch once more without gradient."""


def needs(config: ArkTrainingConfig) -> Needs:
    """Return the required models, the base model first."""
    similarity = config.kg.similarity
    return needs_of(
        config.encoder,
        (config.score.causal.served or config.score.causal) if config.scores and (config.score.f.weight or config.score.b.weight) else None,
        config.vector_encoder if config.scores and config.score.v.weight else None,
        similarity.encoder if config.makes_graphs and similarity.enabled else None,
        *config.llms,
    )


def work_of(config: ArkTrainingConfig, of: LengthsOf) -> list[StageWork]:
    """Estimate the work: scored chunks, extracted graphs and queries, and per stage the questions with positives and negatives."""
    data = known_data(config, of)
    prepared = total(_scored(config, lengths) for lengths in data) if config.scores else Work()
    if config.makes_graphs:
        key = fingerprint(
            "ark", config.data, *(part.model_dump(mode="json") for part in (config.kg, config.neighborhood.seeds, config.queries))
        )
        prepared += Work(once=(Once(total(_writing_work(config, lengths) for lengths in data), key),))
    train, base = config.train, config.encoder
    size = data[0].size(base.model, base.revision)
    groups = [((stage,), train.epochs[STAGES.index(stage)]) for stage in train.stages]
    if train.curriculum == "mixed":
        groups = [(train.stages, sum(train.epochs))]  # type: ignore[list-item]
    works = [StageWork(DATA, prepared)]
    for stages, epochs in groups:
        rows = len(stages) * _positives(config) * sum(lengths.questions for lengths in data)
        work = total(_learned(config, lengths, stage, epochs) for lengths in data for stage in stages)
        taken = steps(rows, train.batch_size * train.accumulation, epochs)
        works.append(whole_stage(stages[-1], work, size, base.model, rows=rows, taken=taken))
    return works


def _cut(chunks: ChunkConfig, lengths: Lengths) -> tuple[float, float]:
    """Return the number of chunks per document, and tokens per chunk."""
    unit = {"token": 1.0, "word": 1 / WORDS_PER_TOKEN, "sentence": SENTENCE}[chunks.unit]
    step = (chunks.size - chunks.overlap) * unit
    return max(1.0, -(-max(0.0, lengths.document - chunks.overlap * unit) // step)), min(chunks.size * unit, lengths.document)


def _chunks(config: ArkTrainingConfig, lengths: Lengths) -> tuple[float, float]:
    return _cut(config.chunks, lengths) if isinstance(config.chunks, ChunkConfig) else (lengths.candidates, lengths.passage)


def _positives(config: ArkTrainingConfig) -> int:
    return config.score.positives if config.scores else EVIDENCE


def _documents(lengths: Lengths) -> float:
    return lengths.corpus / lengths.candidates if lengths.candidates else 0.0


def _scored(config: ArkTrainingConfig, lengths: Lengths) -> Work:
    number, length = _chunks(config, lengths)
    score, read = config.score, length + lengths.question + lengths.answer + PROMPT
    passes = [bool(score.f.weight), bool(score.b.weight)].count(True)
    work = scoring_work(score.causal, passes * lengths.questions * number, read)
    if not score.v.weight:
        return work
    encoder = config.vector_encoder
    return work + encode(encoder, _documents(lengths) * number, length) + encode(encoder, lengths.questions, lengths.question)


def _writing_work(config: ArkTrainingConfig, lengths: Lengths) -> Work:
    """Estimate the calls: one per chunk for the graph, one per question for names, and two for queries."""

    def template(name: str, path: str | None) -> int:
        return sum(map(tokens, PROMPTS[name].load(path).texts))

    pieces, length = _cut(config.kg.chunk, lengths)
    seeds, queries = config.neighborhood.seeds, config.queries
    work = ask(config.kg.active_llm, _documents(lengths) * pieces, length + template("extraction", config.kg.prompt))
    if config.kg.claims is not None:
        claims = sum(map(tokens, CLAIMS.load(config.kg.claims).texts))
        # The chunk is read again, with the names of its entities.
        work += ask(config.kg.active_llm, _documents(lengths) * pieces, 2 * length + claims)
    if config.kg.similarity.enabled:
        # Names are compared by their vectors: together they are at most as long as the text.
        work += encode(config.kg.similarity.encoder, _documents(lengths) * pieces, length)
    work += ask(seeds.active_llm, lengths.questions, lengths.question + lengths.answer + template("names", seeds.prompt))
    return work + ask(queries.active_llm, len(SIZES) * lengths.questions, GIVEN + template("queries", queries.prompt))


def _learned(config: ArkTrainingConfig, lengths: Lengths, stage: str, epochs: int) -> Work:
    """Estimate training: question, positive and negatives of every row; texts shared in a batch are encoded once."""
    train, (number, length) = config.train, _chunks(config, lengths)
    negatives = max(0.0, min(config.mine.sample if stage in SIZES else config.mine.stage1_random, number - 1))
    rows = epochs * lengths.questions * _positives(config)
    longest = min(length, train.max_length or length)
    batch = train.batch_size * ((1 + negatives) * longest + lengths.question)
    shares = config.loss.in_batch[STAGES.index(stage)] != "none"
    row, micro = batch / train.batch_size, train.micro_batch * longest
    # Rows that share no candidates are parted until they are held; else, or if a row alone is too long, texts are encoded twice.
    cached = (batch if shares else row) > train.held_tokens
    batch_tokens = micro if cached else min(batch, train.held_tokens)

    def learned(texts: float, length: float) -> Work:
        return learn(config.encoder, texts, length, train.precision, held=batch_tokens, checkpointed=train.recompute)

    work = learned(rows * (1 + negatives), longest) + learned(rows, lengths.question)
    work = work * (GRADIENT_CACHING if cached else 1.0)
    mined = stage in SIZES and config.mine.source != "random"
    return work + encode(config.encoder, _documents(lengths) * number, length) if mined else work

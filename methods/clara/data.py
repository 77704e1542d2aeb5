"""Load training rows from data references: the authors' files, PISCO's, synthesized rows, worlds, or any benchmark.

Files of training rows are streamed unchanged. For any other benchmark, `PoolConfig` selects the documents of each question: its
candidates or a retriever's results. Gold data only adds the positives for training, in shuffled order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

from benchmarks import read_questions, registry
from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.random import Draws
from benchmarks.datasets import clara, pisco
from benchmarks.datasets.clara import RowsConfig, StageRow
from benchmarks.registry import Benchmark, DataReference, DatasetConfig, SkippedRecord, resolve
from benchmarks.schema import Question
from benchmarks.worlds.dataset import WorldsConfig
from benchmarks.worlds.names import out_of_vocabulary_in, out_of_vocabulary_words, replaced, training_words
from methods.api import Services
from methods.clara.config import ClaraTrainingConfig, DataOptions, InstructionStage, PoolConfig, ScpDataConfig, ScpStage, Stage
from methods.clara.prompts import PARAPHRASES, Request, answer, paraphrase, qa_pairs, qa_target, query
from methods.clara.rows import InstructionRow, JointRow, ScpRow, instruction_row, joint_row, pooled, scp_row, world_rows
from methods.training.candidates import retrieved
from methods.training.material import require_no_test


@dataclass(frozen=True, slots=True)
class Exchange:
    """One prompt about the documents of a training example, with its target reply."""

    prompt: Request
    target: str


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """Documents with one or more prompts about them.

    Attributes:
        documents: Documents whose memory is part of every prompt.
        exchanges: One exchange, as in the paper, or several that share the encoded documents.
    """

    documents: tuple[str, ...]
    exchanges: tuple[Exchange, ...]


def scp_example(row: ScpRow, wording: int) -> TrainingExample:
    """Convert a pretraining row to a training example; `wording` selects the paraphrase instruction (modulo their number)."""
    if row.kind == "paraphrase":
        return TrainingExample((row.document,), (Exchange(paraphrase(wording % PARAPHRASES), row.paraphrase),))
    return TrainingExample((row.document,), (Exchange(qa_pairs(), qa_target(row.questions, row.answers)),))


def instruction_example(row: InstructionRow, documents: int) -> TrainingExample:
    """Convert an instruction-tuning row with its first `documents` documents to a training example."""
    kept = row.documents[:documents]
    return TrainingExample(kept, (Exchange(answer(row.question, len(kept)), row.answer),))


def scp_examples(rows: Sequence[ScpRow], options: ScpStage, seed: int) -> list[TrainingExample]:
    """Convert pretraining rows to training examples: one per row, or one per document (`scp.questions`, ragmeter's addition).

    Args:
        rows: The rows; those of one document are adjacent.
        options: Options of the stage.
        seed: Random seed for wordings and the choice of questions.
    """
    if options.questions is None:
        return [scp_example(row, _number(seed, position)) for position, row in enumerate(rows)]
    about: dict[str, list[ScpRow]] = {}
    for row in rows:
        about.setdefault(row.document, []).append(row)
    results = []
    for text, same in about.items():
        pairs = [pair for row in same if row.kind == "qa" for pair in zip(row.questions, row.answers, strict=True)]
        draws = Draws("clara asked", seed, text)
        chosen = draws.sample(pairs, min(options.questions, len(pairs)))
        queries = [Exchange(answer(question, 1), reply) for question, reply in chosen]
        rephrased = [exchange for row in same if row.kind == "paraphrase" for exchange in scp_example(row, _number(seed, text)).exchanges]
        results.append(TrainingExample((text,), (*queries, *rephrased)))
    return results


def instruction_examples(rows: Sequence[InstructionRow], options: InstructionStage, seed: int) -> list[TrainingExample]:
    """Convert instruction-tuning rows to training examples: one per row, optionally with other rows' questions (`together`,
    ragmeter's addition).

    With `together`, randomly drawn questions whose evidence is among a row's documents are added to its example. A question may
    occur in several examples; questions without known evidence only occur in their own.

    Args:
        rows: The rows, in any order.
        options: Options of the stage.
        seed: Random seed for the choice of added questions.
    """
    if options.together == 1:
        return [instruction_example(row, options.documents) for row in rows]
    needs = [_evidence(row, options.documents) for row in rows]
    about: dict[str, list[int]] = {}
    for position, texts in enumerate(needs):
        if texts:
            about.setdefault(texts[0], []).append(position)
    results = []
    for position, row in enumerate(rows):
        kept = row.documents[: options.documents]
        others = {
            rows[item].question: item
            for text in kept
            for item in about.get(text, ())
            if set(needs[item]).issubset(kept) and rows[item].question != row.question
        }
        joining = list(others.values())
        drawn = Draws("clara together", seed, position).sample(joining, min(options.together - 1, len(joining)))
        exchanges = (Exchange(answer(rows[item].question, len(kept)), rows[item].answer) for item in (position, *drawn))
        results.append(TrainingExample(kept, tuple(exchanges)))
    return results


def _evidence(row: InstructionRow, documents: int) -> tuple[str, ...]:
    """Return the documents that contain a row's answer; empty if unknown or not used."""
    if any(position >= documents for position in row.evidence):
        return ()
    return tuple(row.documents[position] for position in row.evidence)


def as_text(examples: Sequence[TrainingExample]) -> list[TrainingExample]:
    """Convert training examples so that documents are read as text in the prompt, not as memory."""
    return [
        TrainingExample((), tuple(replace(one, prompt=replace(one.prompt, documents=0, texts=item.documents)) for one in item.exchanges))
        for item in examples
    ]


def documents_of(item: TrainingExample | JointRow) -> tuple[str, ...]:
    """Return the documents of a training example, as memory or in its prompts, or of a row of joint training."""
    if isinstance(item, JointRow):
        return item.documents
    return (*item.documents, *(text for exchange in item.exchanges for text in exchange.prompt.texts))


def _number(*parts: int | str) -> int:
    return int(fingerprint(*parts), 16)


Item = TypeVar("Item")
_SLACK = 16
"""Extra tokens that may arise at the boundary of two texts."""


def fits(generator: Any) -> Callable[[Request, str], bool]:
    """Return a function that tells whether a prompt with its reply fits the model's context.

    Since a text has at most as many tokens as bytes, most rows are decided without tokenizing.

    Args:
        generator: A `Generator`, which counts tokens and knows the limit.
    """

    @lru_cache(64)
    def frame(prompt: Request) -> int:
        return int(generator.length(prompt))

    def decide(prompt: Request, target: str) -> bool:
        texts = (prompt.question, *prompt.texts, target)
        bound = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) + _SLACK * len(texts)
        empty = replace(prompt, question="", texts=("",) * len(prompt.texts))
        return frame(empty) + bound <= generator.room or generator.length(prompt, target) <= generator.room

    return decide


def fitting_examples(examples: Sequence[TrainingExample], generator: Any, skip: bool) -> list[TrainingExample]:
    """Drop training exchanges that are too long, and examples without any exchange left.

    Args:
        examples: The training examples.
        generator: See `fits`.
        skip: Whether to drop long exchanges; otherwise they raise an error.

    Raises:
        UserError: An exchange is too long and `skip` is off, or nothing is left.
    """
    decide = fits(generator)
    every = [(exchange.prompt, exchange.target) for example in examples for exchange in example.exchanges]
    _require(every, decide, generator, skip)
    kept = (
        replace(example, exchanges=tuple(exchange for exchange in example.exchanges if decide(exchange.prompt, exchange.target)))
        for example in examples
    )
    return _some([example for example in kept if example.exchanges])


def fitting_rows(rows: Sequence[JointRow], generator: Any, k: int, skip: bool) -> list[JointRow]:
    """Drop joint-training rows that are too long with k documents.

    Raises:
        UserError: As in `fitting_examples`.
    """
    decide = fits(generator)

    def asked(row: JointRow) -> tuple[Request, str]:
        return answer(row.question, min(k, len(row.documents))), row.answer

    _require([asked(row) for row in rows], decide, generator, skip)
    return _some([row for row in rows if decide(*asked(row))])


def held_out_that_fit(
    examples: Sequence[TrainingExample], questions: Sequence[JointRow], generator: Any, k: int | None, longest: int, *, text: bool = False
) -> tuple[list[TrainingExample], list[JointRow]]:
    """Drop validation rows that are too long, so that validation never stops a training.

    Args:
        examples: Validation examples.
        questions: Validation questions.
        generator: See `fits`.
        k: Number of documents per answer; None for all.
        longest: Maximum answer length in tokens.
        text: Whether documents are read as text.
    """
    decide = fits(generator)

    def answered(row: JointRow) -> bool:
        prompt = query(row.question, row.documents[:k], text=text)
        return decide(prompt, row.answer) and generator.length(prompt) + longest <= generator.room

    kept = [example for example in examples if all(decide(exchange.prompt, exchange.target) for exchange in example.exchanges)]
    return kept, [row for row in questions if answered(row)]


def _require(every: Iterable[tuple[Request, str]], decide: Callable[[Request, str], bool], generator: Any, skip: bool) -> None:
    if skip:
        return
    long = [(prompt, target) for prompt, target in every if not decide(prompt, target)]
    if long:
        prompt, target = long[0]
        raise UserError(
            f"{len(long):,} prompts are too long with their replies; the first, of kind {prompt.kind}, takes "
            f"{generator.length(prompt, target):,} tokens where {generator.room:,} fit",
            code="prompts-too-long",
            where=(prompt.question or target)[:80],
            try_this="a higher model.max_prompt, or skip_long=true, which leaves them out",
        )


def _some(kept: list[Item]) -> list[Item]:
    if not kept:
        raise UserError("no row fits the longest prompt", code="rows-too-long", where="model.max_prompt", try_this="a higher one")
    return kept


STREAMED: Mapping[str, Callable[[DataReference, RowsConfig, list[SkippedRecord]], Iterator[StageRow]]] = {
    "clara_stages": clara.read_rows,
    "pisco": pisco.read_rows,
}
"""Row parsers of datasets that consist of training rows, by dataset name."""
PRETRAINING = "pretraining"
_OF_MIX = {"all": ("qa", "paraphrase"), "paraphrase": ("paraphrase",), "simple+complex": ("qa",)}
"""Row kinds by mix; files do not distinguish simple from complex questions."""


def scp_rows(reference: str, data: ScpDataConfig | None = None, options: Mapping[str, Any] | None = None) -> list[ScpRow]:
    """Load pretraining rows from worlds, or from `clara_stages/pretraining` (whose `path` may be a synthesized file).

    Args:
        reference: Data reference.
        data: Row types and number of documents.
        options: Dataset options.

    Raises:
        UserError: The dataset has no such rows, or not the requested mix.
    """
    data = data or ScpDataConfig()
    if not data.types:
        return []
    result, config = _resolved(reference, options)
    if isinstance(config, WorldsConfig):
        parts = (replace(result, split=split) for split in (result.split or "").split("+"))
        rows = [row for part in parts for row in world_rows(part, config, data)]
        read_questions.note(text for row in rows for text in row.questions)
        return rows
    if result.name != "clara_stages" or result.subset != PRETRAINING:
        raise UserError(
            f"{result} has no pretraining rows",
            code="no-pretraining-rows",
            where="data",
            try_this="worlds/…:train, clara_stages/pretraining:train with its path, or ragmeter data pretraining-rows",
        )
    kinds = _OF_MIX.get(data.mix)
    if kinds is None:
        raise UserError(
            "the rows of this file do not say which questions are simple",
            code="simple-questions-unknown",
            where=f"mix: {data.mix}",
            try_this="a file that ragmeter data pretraining-rows wrote with --mix simple, read with mix: simple+complex",
        )
    return _drawn([row for row in map(scp_row, _streamed(result, config)) if row.kind in kinds], data)


def instruction_rows(
    reference: str,
    pool: PoolConfig | None = None,
    options: Mapping[str, Any] | None = None,
    services: Services | None = None,
    *,
    limit: int | None = None,
) -> list[InstructionRow]:
    """Load instruction-tuning rows.

    Args:
        reference: Data reference.
        pool: Choice of documents; for files of training rows, only `depth` matters.
        options: Dataset options.
        services: Services for building the retriever.
        limit: Maximum number of rows.

    Raises:
        UserError: The dataset cannot provide such rows.
    """
    pool = pool or PoolConfig(depth=5)
    result, config = _resolved(reference, options)
    if result.name in STREAMED:
        return [instruction_row(row, pool.depth) for row in islice(_streamed(result, config), limit)]
    rows = joint_rows_of(registry.load(result, config).limited(limit), pool, services)
    return [InstructionRow(row.question, row.documents, row.answer, row.golds[0], row.id, row.positives) for row in rows]


def joint_rows(
    reference: str,
    pool: PoolConfig | None = None,
    options: Mapping[str, Any] | None = None,
    services: Services | None = None,
    *,
    limit: int | None = None,
) -> list[JointRow]:
    """Load rows for joint training or evaluation; arguments and errors as in `instruction_rows`."""
    pool = pool or PoolConfig()
    result, config = _resolved(reference, options)
    if result.name in STREAMED:
        return [joint_row(row, pool.depth) for row in islice(_streamed(result, config), limit)]
    return joint_rows_of(registry.load(result, config).limited(limit), pool, services)


def joint_rows_of(benchmark: Benchmark, pool: PoolConfig, services: Services | None = None) -> list[JointRow]:
    """Convert a benchmark's answerable questions to rows with their documents.

    Raises:
        UserError: There are no answerable questions, or neither candidates nor a retriever.
    """
    questions = [question for question in benchmark.questions if question.answerable and question.golds]
    if not questions:
        raise UserError(f"{benchmark.reference} has no question with an answer", code="no-answered-question", where="data")
    without = {question.id for question in benchmark.questions} - {question.id for question in questions}
    read_questions.note_left_out((f"{benchmark.reference} {name}" for name in without), "questions_without_answer")
    ranked = ranked_documents(benchmark, questions, pool, services or Services())
    rows = []
    for question in questions:
        others = [passage.full_text for passage in benchmark.corpus.get(ranked[question.id])]
        present = [fromkey for fromkey in dict.fromkeys(question.evidence) if fromkey in benchmark.corpus]
        positives = [passage.full_text for passage in benchmark.corpus.get(present)]
        documents, positions = pooled(question.id, positives, others, pool.depth)
        taught = _answer(question, [documents[position] for position in positions])
        rows.append(JointRow(question.id, question.text, documents, taught, positions, question.golds))
    return rows


def _answer(question: Question, evidence: Sequence[str]) -> str:
    """Return the target: the first answer (or all required ones), in the evidence's wording if possible."""
    if question.answer_set:
        return ", ".join(question.wanted)
    found_golds = (gold for gold in sorted(question.golds, key=len, reverse=True) if any(gold in text for text in evidence))
    first = question.answers[0]
    return first if any(first in text for text in evidence) else next(found_golds, first)


def ranked_documents(benchmark: Benchmark, questions: list[Question], pool: PoolConfig, services: Services) -> dict[str, tuple[str, ...]]:
    """Return each question's candidate document ids, best first."""
    options = {question.id: tuple(question.candidates or ()) for question in questions if pool.source != "retriever"}
    if pool.source == "record" and not any(options.values()):
        raise UserError(
            f"{benchmark.reference} gives its questions no candidates",
            code="no-candidates",
            where="pool.source: record",
            try_this="pool.source: retriever, as in --set pool.source=retriever",
        )
    if pool.source == "record":
        return options
    result = retrieved(benchmark, questions, pool.component, pool.depth, services)
    return {question.id: (*options.get(question.id, ()), *result[question.id]) for question in questions}


def _resolved(reference: str, options: Mapping[str, Any] | None) -> tuple[DataReference, DatasetConfig]:
    result, entry = registry.resolve(reference, where="data")
    return result, registry.options_of(entry, options or {})


def _streamed(reference: DataReference, config: DatasetConfig) -> Iterable[StageRow]:
    assert isinstance(config, RowsConfig)
    """Yield the rows of files; those with a blank teacher answer are left out and counted, like `teacher` does."""
    skipped: list[SkippedRecord] = []
    for split in (reference.split or "").split("+"):
        for row in STREAMED[reference.name](replace(reference, split=split), config, skipped):
            if row.target is None:
                read_questions.note_left_out([f"{reference} {row.id}"], "rows_without_answer")
                continue
            read_questions.note(text for text, _ in row.pairs)
            yield row
    read_questions.note_left_out(record.where for record in skipped)


def _drawn(rows: list[ScpRow], data: ScpDataConfig) -> list[ScpRow]:
    """Draw the rows of `documents` documents; a larger sample contains smaller ones with the same seed."""
    texts = list(dict.fromkeys(row.document for row in rows))
    if data.documents is None or data.documents >= len(texts):
        return rows
    chosen = set(Draws("clara documents", data.seed).sample(texts, data.documents))
    return [row for row in rows if row.document in chosen]


Row = ScpRow | InstructionRow | JointRow


def training_rows(config: ClaraTrainingConfig, stage: Stage, services: Services) -> tuple[list[Row], list[str]]:
    """Load the training rows of a stage.

    Returns:
        The rows, and a fingerprint per data reference.

    Raises:
        UserError: A reference is a test split, or provides no rows.
    """
    parts = [_read_rows(config, config.data, stage, reference, services) for reference in config.references(stage)]
    rows = [row for part in parts for row in part]
    if stage == "supervised":
        rows = _ranked_rows([row for row in rows if isinstance(row, JointRow)])
    if not rows:
        raise UserError(
            f"{stage} has no row to train on",
            code="no-training-row",
            where=f"data: {', '.join(config.references(stage))}",
            try_this="a positive and a negative document per question for supervised; questions with answers and documents for the others",
        )
    return rows, [fingerprint([asdict(row) for row in part]) for part in parts]


def _ranked_rows(rows: Sequence[JointRow]) -> list[Row]:
    """Return the rows with positive and negative documents; the others teach no ranking, and are counted."""
    read_questions.note_left_out((row.id for row in rows if not row.positives), "rows_without_positive")
    read_questions.note_left_out((row.id for row in rows if 0 < len(row.documents) == len(row.positives)), "rows_without_negative")
    return [row for row in rows if 0 < len(row.positives) < len(row.documents)]


def held_out(config: ClaraTrainingConfig, stage: Stage, services: Services, rows: Sequence[Row]) -> list[JointRow]:
    """Load a stage's validation questions with the documents to answer from; empty if no validation data is configured.

    For pretraining, which reads single documents, questions come only with their evidence, if known.

    Args:
        config: All options.
        stage: The stage.
        services: Services for building retrievers.
        rows: Training rows, which must not overlap.

    Raises:
        UserError: A question is also in the training rows.
    """
    data, most = config.validation, config.validate_on.questions
    alone = stage in ("scp", "instruction")
    depth = config.instruction.documents if alone else config.pool.depth
    results: list[JointRow] = []
    for reference in data.instruction if alone else data.joint:
        require_no_test(reference, "validation")
        pool = config.pool.model_copy(update={"depth": depth})
        results += joint_rows(reference, pool, _options(data, reference), services, limit=most)
    known = {(row.question, row.documents) for row in rows if not isinstance(row, ScpRow)}
    for row in results:
        if (row.question, row.documents) in known:
            raise UserError(
                f"the question {row.question!r} is both in training and in validation data",
                code="question-held-out-and-trained",
                where="validation",
                try_this="another split for validation",
            )
    if stage == "scp":
        results = [_alone(row) for row in results]
    return results[:most]


def _alone(row: JointRow) -> JointRow:
    """Return a question with only its evidence; unchanged if unknown."""
    if not row.positives:
        return row
    texts = tuple(row.documents[positive] for positive in row.positives)
    return replace(row, documents=texts, positives=tuple(range(len(texts))))


def set_aside(config: ClaraTrainingConfig, stage: Stage, rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Split a stage's rows randomly into training rows and rows for the loss curve, unless `validation` data is configured.

    Whole documents (in pretraining) or questions (in other stages) are drawn with the seed, so that all their rows go to the
    same side.

    Raises:
        UserError: No training rows would be left.
    """
    data, most = config.validation, config.validate_on.held_out
    named = data.scp if stage == "scp" else data.instruction if stage == "instruction" else data.joint
    if not most or named:
        return list(rows), []

    def unit(row: Row) -> str:
        return row.document if isinstance(row, ScpRow) else row.question

    every = list(dict.fromkeys(map(unit, rows)))
    if most >= len(every):
        raise UserError(
            f"{stage} has {len(every)} documents or questions, and {most} must be held out",
            code="too-few-to-set-aside",
            where="validate_on.held_out",
            try_this="use a smaller number",
        )
    # The choice depends on the text, not on the stage, because supervised and joint training may read the same questions.
    aside = set(sorted(every, key=lambda text: fingerprint("clara set aside", config.seed, text))[:most])
    return [row for row in rows if unit(row) not in aside], [row for row in rows if unit(row) in aside]


def held_out_pretraining(config: ClaraTrainingConfig) -> list[ScpRow]:
    """Load pretraining rows for validation; empty if none are configured."""
    data = config.validation
    for reference in data.scp:
        require_no_test(reference, "validation")
    every = (row for reference in data.scp for row in scp_rows(reference, config.scp.rows, _options(data, reference)))
    return list(islice(every, config.validate_on.questions))


def _read_rows(config: ClaraTrainingConfig, data: DataOptions, stage: Stage, reference: str, services: Services) -> Iterable[Row]:
    require_no_test(reference, "data")
    options = _options(data, reference)
    if stage == "scp":
        return scp_rows(reference, config.scp.rows, options)
    if stage == "instruction":
        pool: PoolConfig = config.pool.model_copy(update={"depth": config.instruction.documents})
        return instruction_rows(reference, pool, options, services)
    return joint_rows(reference, config.pool, options, services)


def _options(data: DataOptions, reference: str) -> Mapping[str, Any]:
    return resolve(reference)[0].options_in(data.options)


# A word of the train worlds is one token, an out-of-vocabulary one is several tokens, in documents, questions and answers alike.
# The pocket model was trained to copy such pieces (`tools.tiny_lm.tasks`); memory must keep them, too.


def in_examples(examples: Sequence[TrainingExample], share: float, seed: int) -> list[TrainingExample]:
    """Replace a share of the names in training examples with new invented names, independently per example.

    Args:
        examples: Training examples of worlds; other texts stay unchanged.
        share: Fraction of name words to replace.
        seed: Random seed.
    """
    if not share:
        return list(examples)
    return [_example(item, share, Draws("clara unheard", seed, position)) for position, item in enumerate(examples)]


def in_rows(rows: Sequence[JointRow], share: float, seed: int) -> list[JointRow]:
    """Replace a share of the names in questions, with one mapping for all rows, so that shared documents stay equal."""
    if not share:
        return list(rows)
    swaps = out_of_vocabulary_words(training_words(), share, Draws("clara unheard", seed, "rows"))
    return [
        replace(
            row,
            question=replaced(row.question, swaps),
            answer=replaced(row.answer, swaps),
            documents=_all(row.documents, swaps),
            golds=_all(row.golds, swaps),
        )
        for row in rows
    ]


def _example(example: TrainingExample, share: float, draws: Draws) -> TrainingExample:
    texts = [*example.documents, *(exchange.prompt.question for exchange in example.exchanges)]
    swaps = out_of_vocabulary_in(texts, share, draws)
    exchanges = (
        Exchange(replace(exchange.prompt, question=replaced(exchange.prompt.question, swaps)), replaced(exchange.target, swaps))
        for exchange in example.exchanges
    )
    return TrainingExample(_all(example.documents, swaps), tuple(exchanges))


def _all(texts: Iterable[str], swaps: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(replaced(text, swaps) for text in texts)

"""Shared code of systems that fine-tune their own model (retrieved passages, sampled replies, rewards), and their control, a
fine-tuned reader.

A roll-out is a sampled reply to the prompt that the system uses at inference. Its reward comes from
`methods/training/verdicts.py`: exact match, else `Services.judge`, which `ragmeter/` provides.

`ragmeter train reader` is the control: plain retrieve-and-read with the same base, fine-tuned for as many steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question
from methods.flow import in_order
from methods.models.weights import weights_hash
from methods.presets import read_presets
from methods.readers.extract import short_answer
from methods.readers.local import CausalReader, CausalReaderConfig, PocketReader, PocketReaderConfig
from methods.training import LengthsOf, Progress, TrainedStage, TrainingContext, register_training
from methods.training.candidates import Search
from methods.training.journal import Journal
from methods.training.material import load_data
from methods.training.ranks import accelerator, first
from methods.training.stages import PreparedRun, train_stage
from methods.training.tuning import TUNED, Row, StepOptions, Tuned, TuningConfig, tuning
from methods.training.verdicts import MATCH, MISMATCH, PARTIAL, Verifier
from methods.work import Checkpoint, Lengths, Needs, StageWork, ask, learn, steps, total

READER = "reader"
REWARDS: Mapping[str | None, float | None] = {MATCH: 1.0, PARTIAL: 0.5, MISMATCH: 0.0, None: None}
CHUNK = 64
"""Questions per write of the roll-outs file."""
PRESETS = read_presets(Path(__file__).with_name("tuned_presets.yaml"))


@dataclass(frozen=True, slots=True)
class Example:
    """A question with its retrieved passages, best first."""

    question: Question
    passages: tuple[Passage, ...]

    @property
    def text(self) -> str:
        """Return the question's text."""
        return self.question.text

    @property
    def made_of(self) -> str:
        """Return a hash of question and passages."""
        return fingerprint(self.text, list(self.question.golds), [passage.id for passage in self.passages])


def examples(config: TuningConfig, benchmarks: Sequence[Benchmark], context: TrainingContext) -> list[Example]:
    """Retrieve passages for all answerable questions; questions without passages are dropped.

    Raises:
        UserError: No question has passages.
    """
    results = []
    for benchmark in benchmarks:
        questions = [question for question in benchmark.questions if question.golds]
        retrieved = Search(benchmark, config.component, config.retrieved, context.services, own=True)(questions)
        pairs = ((question, tuple(benchmark.corpus.get(retrieved[question.id]))) for question in questions)
        results += [Example(question, passages) for question, passages in pairs if passages]
    if not results:
        raise UserError(
            "no question has an answer and passages", code="no-answerable-question", where="data", try_this="worlds/multihop:train"
        )
    return results


class SystemTuned(Tuned):
    """A model in fine-tuning, with the reader whose prompts it learns and the rewards of its answers.

    Args:
        config: Options.
        context: Context with device and judge.
        names: Names of the adapters.
    """

    def __init__(self, config: TuningConfig, context: TrainingContext, names: Sequence[str] = (TUNED,)) -> None:
        super().__init__(config, context.services.device, names)
        self.services = context.services
        self.reader = _reader(config, context, self.causal)

    def reading(self, question: str, passages: Sequence[Passage]) -> tuple[int, ...] | None:
        """Return the reader's prompt as token ids; None if the question does not fit."""
        text = self.reader.written(question, passages)
        return None if text is None else tuple(self.causal.encode(text))

    def rewards(self, answers: Sequence[tuple[Question, str]]) -> list[float | None]:
        """Return the reward of each answer: 1 if correct, ½ if partially correct, 0 if wrong; None if the judge's reply cannot
        be parsed.
        """
        verifier = Verifier(self.services.judge)

        async def one(item: tuple[Question, str]) -> float | None:
            return REWARDS[(await verifier.verdict(item[0], short_answer(item[1]))).verdict]

        return list(in_order(one, answers, CHUNK))

    def answers(self, requests: Sequence[tuple[str, Sequence[Passage]]], name: str | None) -> list[str]:
        """Generate the reader's answers from passages; "" if the question does not fit."""
        prompts = [self.reading(question, passages) for question, passages in requests]
        written = iter(self.write([prompt for prompt in prompts if prompt is not None], name))
        return [next(written) if prompt is not None else "" for prompt in prompts]


def _reader(config: TuningConfig, context: TrainingContext, causal: Any) -> CausalReader:
    options = {"model": config.base, "revision": config.revision, "max_new_tokens": config.max_new_tokens}
    if config.reader == "pocket":
        return PocketReader(PocketReaderConfig.model_validate(options), context.services, causal)
    return CausalReader(CausalReaderConfig.model_validate(options), context.services, causal)


def once(
    path: Path, items: Sequence[Example], made_of: str, compute: Callable[[Sequence[Example]], Sequence[Any]], progress: Progress, what: str
) -> list[Any]:
    """Return one JSON value per question, computed in chunks and saved; saved values are reused.

    Args:
        path: File of values.
        items: Questions with their passages.
        made_of: Hash of everything except the questions that determines the values.
        compute: Function from some questions to their values.
        progress: Progress display.
        what: Name of the work, for the progress display.
    """
    progress.begin(what, len(items))
    keys = [fingerprint(made_of, item.made_of) for item in items]
    with Journal(path) as journal:
        values = {n: journal.get(item.question.id, keys[n]) for n, item in enumerate(items)}
        missing = [n for n, value in values.items() if value is None]
        progress.advance(len(items) - len(missing))
        for start in range(0, len(missing), CHUNK):
            numbers = missing[start : start + CHUNK]
            for n, value in zip(numbers, compute([items[n] for n in numbers]), strict=True):
                journal.add(items[n].question.id, keys[n], value)
                values[n] = value
            progress.advance(len(numbers))
    return [values[n] for n in range(len(items))]


class TunedTraining(ABC):
    """Base class of trainings with one or several stages on one base model.

    Args:
        config: Options.
    """

    stages: ClassVar[tuple[str, ...]]

    def __init__(self, config: Any) -> None:
        self.config = config

    @abstractmethod
    def begin(self, stage: str, data: Sequence[Example], before: Mapping[str, Path], where: tuple[Any, Any, str]) -> PreparedRun:
        """Prepare a stage.

        Args:
            stage: Name of the stage.
            data: Questions with their passages.
            before: Checkpoints of earlier stages.
            where: Context, `accelerate` process, and a hash of everything that determines the result.
        """

    def run(self, context: TrainingContext) -> Iterator[TrainedStage]:
        """Train all stages in order, or reuse finished ones, and yield each.

        Raises:
            UserError: The data must not be trained on or provides no rows, or the folders contain other work.
            Broke: The loss is NaN.
        """
        config = self.config
        benchmarks = load_data(config.data, config.data_options)
        process = accelerator(config.precision, context.services.device)
        loaded: list[Example] = []

        def begin(stage: str, identity: str) -> PreparedRun:
            if not loaded:
                with first(process):
                    loaded.extend(examples(config, benchmarks, context))
            return self.begin(stage, loaded, {name: context.checkpoints / name for name in done}, (context, process, identity))

        done: list[str] = []
        fingerprints = [benchmark.fingerprint for benchmark in benchmarks]
        for stage in config.stages_of(self.stages):
            others = [(str(context.checkpoints / name), None) for name in done]
            base = (config.base, config.revision)
            judge = [] if context.services.judge is None else [context.services.judge.fingerprint]
            yield from train_stage(stage, config, base, fingerprints, context, process, partial(begin, stage), others=others, inputs=judge)
            done.append(stage)


@dataclass(frozen=True)
class StageCost:
    """Cost of a stage per question, for estimates.

    Attributes:
        stage: Its name.
        train: Optimization options.
        passages: Passages per row.
        rows: Rows per question, as counted in steps.
        reads: Texts per row.
        calls, shown: Roll-outs per question, and passages per roll-out.
        encoder: Model that is trained instead of an adapter of the base.
    """

    stage: str
    train: StepOptions
    passages: float
    rows: float = 1
    reads: float = 1
    calls: float = 0
    shown: float = 0
    encoder: Checkpoint | None = None

    def work(self, config: TuningConfig, data: Sequence[Lengths]) -> StageWork:
        """Estimate the work for some data."""
        count = self.rows * sum(lengths.questions for lengths in data)
        every = steps(count, self.train.batch_size, self.train.epochs)
        wanted = min(every, self.train.steps or every)
        uses = self.rows * self.reads * (self.train.epochs * wanted / every if every else 0.0)
        model, adapted = self.encoder or Checkpoint(config.base, config.revision), self.encoder is None
        works = []
        for lengths in data:
            length = lengths.question + self.passages * lengths.passage + lengths.answer
            works.append(learn(model, uses * lengths.questions, length, config.precision, causal=adapted, adapted=adapted))
            works.append(ask(config.local, self.calls * lengths.questions, lengths.question + self.shown * lengths.passage))
        return StageWork(self.stage, total(works), count, wanted)


def tuned_work(costs: Callable[[Any], Sequence[StageCost]]) -> Callable[[Any, LengthsOf], list[StageWork]]:
    """Return the `work` function of a training, from a function that gives its stages' costs."""
    return lambda config, of: [cost.work(config, [of(item, config.data_options) for item in config.data]) for cost in costs(config)]


def tuned_needs(config: TuningConfig, *more: tuple[str, str | None]) -> Needs:
    """Return the base model and further models with revisions as requirements."""
    return Needs((Checkpoint(config.base, config.revision, config.dtype), *(Checkpoint(*model) for model in more)))


def made_of(config: TuningConfig, *more: Any) -> str:
    """Return a hash of everything except the questions that determines roll-outs: base, prompts and further values."""
    return fingerprint(
        weights_hash(config.base, config.revision), config.reader, config.k, config.max_new_tokens, *(config.wanted_judge or ()), *more
    )


class ReaderTrainingConfig(TuningConfig):
    """Options of the fine-tuned reader's training."""

    train: StepOptions = StepOptions.model_validate({"batch_size": 64})


def answer_rows(tuned: SystemTuned, data: Sequence[Example]) -> list[Row]:
    """Build one training row per question: the reader's prompt with the first `k` passages, and the first gold answer."""
    rows = []
    for example in data:
        prompt = tuned.reading(example.text, example.passages[: tuned.config.k])
        if prompt is not None:
            rows.append(Row(prompt, tuned.reply(prompt, example.question.golds[0])))
    return rows


@register_training(
    "reader",
    summary="a local reader: an adapter trained to answer from retrieved passages, as the control of systems that tune their model",
    stages=(READER,),
    config=ReaderTrainingConfig,
    presets={"worlds": PRESETS["reader"]},
    work=tuned_work(lambda config: [StageCost(READER, config.train, config.k)]),
    needs=tuned_needs,
)
class ReaderTraining(TunedTraining):
    """Training of the fine-tuned reader."""

    stages = (READER,)

    def begin(self, stage: str, data: Sequence[Example], before: Mapping[str, Path], where: tuple[Any, Any, str]) -> PreparedRun:
        tuned = SystemTuned(self.config, where[0])
        rows = answer_rows(tuned, data)
        tuned.train(TUNED)
        return tuning(tuned, stage, self.config.train, rows, len(rows), *where, title="A reader of retrieved passages")

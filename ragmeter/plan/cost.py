"""What work takes, in the units that people pay in; costs add up, and what is unknown stays unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.schema import Passage
from judges.llm.ask import LLMJudgeConfig
from methods.api import Reading
from methods.ark.config import ArkTrainingConfig
from methods.baselines.bge_m3 import BgeM3Config
from methods.baselines.bm25 import BM25Config
from methods.baselines.graph.cross_encoder import GraphHybridConfig
from methods.baselines.graph.cross_encoder_training import GraphCrossEncoderTrainingConfig
from methods.baselines.graph.skp import SkpTrainingConfig
from methods.baselines.hyde import HydeConfig
from methods.baselines.rq_rag import PROMPTS, QUERY_TOKENS, PromptedConfig, TreeConfig
from methods.clara.checkpoint import read_config, require_checkpoint
from methods.clara.config import ClaraConfig, ClaraTrainingConfig
from methods.clara.methods import (
    CheckpointOptions,
    ClaraCompressorConfig,
    ClaraMethodConfig,
    ClaraReaderConfig,
    ClaraRerankerConfig,
    ClaraRetrieverConfig,
    ClaraTextConfig,
    WritingOptions,
)
from methods.clara.prompts import answer, answer_from_text, messages
from methods.gpr.config import GprTrainingConfig
from methods.models.causal import CausalConfig
from methods.models.cross_encoder import CrossEncoderConfig
from methods.models.encoder import EncoderConfig
from methods.models.endpoint import CHARACTERS_PER_TOKEN, PER_MESSAGE, ChatConfig, TokenCounter
from methods.models.late_interaction import LateInteractionConfig, M3Config
from methods.models.pocket import answer_prompt
from methods.models.seq2seq import Seq2SeqConfig
from methods.models.weights import locate
from methods.readers.chat import ChatReaderConfig
from methods.readers.local import PocketReaderConfig
from methods.readers.prompts import Instructions, ReadingOptions
from methods.registry import Component, MethodConfig
from methods.retrieval.dense import CACHED, DenseConfig
from methods.retrieval.triples import TripleSearchConfig
from methods.sark.config import SarkTrainingConfig
from methods.training import TrainingConfig
from ragmeter.experiment import BenchmarkPlan, Experiment, JudgePlan, MethodPlan, candidate_retriever
from ragmeter.plan.shapes import SampledQuestion, Shape, mean, tokens
from ragmeter.sizes import ModelSize, encoder_of, retrievers_in, size_of
from ragmeter.trainings import TrainingPlan

# -- From tokens to seconds of a GPU, by the plainest of models: floating-point operations, or bytes of weights read --
# A forward pass over a token takes 2·N operations (N: parameters) and, for attention over a text of L tokens,
# 4·layers·width·L, half of that where attention is causal; a training step takes three times a forward pass. That is
# done at a share of the device's peak. Writing a token reads all weights and what is kept of the text before it once a
# batch, at a share of the memory's bandwidth.
#
# Sources: Kaplan et al. 2020, Scaling Laws (2·N and 6·N); Pope et al. 2022, Efficiently Scaling Transformer Inference
# (decoding bound by memory); peaks without sparsity and bandwidths are those of the makers' data sheets.


HOUR = 3600.0
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
HALF = ("bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A kind of GPU.

    Attributes:
        name: As in `--gpu`.
        half: Peak operations a second in 16 bits, dense.
        single: In float32, without tensor cores.
        bandwidth: Bytes a second from memory.
    """

    name: str
    half: float
    single: float
    bandwidth: float

    def peak(self, dtype: str) -> float:
        """Operations a second in a type."""
        return self.half if dtype in HALF else self.single


DEVICES: Mapping[str, DeviceClass] = {
    item.name: item
    for item in (
        DeviceClass("h200", 989e12, 67e12, 4.8e12),
        DeviceClass("h100", 989e12, 67e12, 3.35e12),
        DeviceClass("a100", 312e12, 19.5e12, 2.039e12),
        DeviceClass("l40s", 362e12, 91.6e12, 0.864e12),
        DeviceClass("l4", 121e12, 30.3e12, 0.3e12),
        DeviceClass("4090", 165e12, 82.6e12, 1.008e12),
        DeviceClass("v100", 125e12, 15.7e12, 0.9e12),
    )
}
DEFAULT_DEVICE = "h100"
UTILIZATION = 0.4
"""Share of the peak that a tuned loop of a large model reaches; small models and short texts reach less."""
BANDWIDTH = 0.6
"""Share of the memory's bandwidth that decoding reaches."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What hours are computed with; printed beside them.

    Attributes:
        device: The kind of GPU, one of them.
        utilization: Share of its peak that is reached in training and in reading prompts.
        bandwidth: Share of its memory's bandwidth that is reached in writing.
    """

    device: DeviceClass = DEVICES[DEFAULT_DEVICE]
    utilization: float = UTILIZATION
    bandwidth: float = BANDWIDTH

    @classmethod
    def of(cls, device: str | None = None, utilization: float | None = None) -> Assumptions:
        """From a device's name and a share.

        Raises:
            UserError: There is no such device, or the share is not above 0 and at most 1.
        """
        name = DEFAULT_DEVICE if device is None else device
        if name not in DEVICES:
            raise unknown_name("GPU", name, DEVICES, where="--gpu")
        share = UTILIZATION if utilization is None else utilization
        if not 0 < share <= 1:
            raise UserError(f"{share:g} is no share of a peak", where="--utilization", try_this="a number above 0, at most 1")
        return cls(DEVICES[name], share)

    def __str__(self) -> str:
        device = self.device
        return (
            f"one {device.name}: {device.half / 1e12:g} TFLOP/s in 16 bits, {device.single / 1e12:g} in float32, "
            f"{device.bandwidth / 1e12:g} TB/s; {self.utilization:.0%} of the peak in training and reading, "
            f"{self.bandwidth:.0%} of the bandwidth in writing"
        )

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {**asdict(self), "device": asdict(self.device)}

    def reading(self, size: ModelSize, tokens: float, length: float, dtype: str, *, causal: bool = True) -> float:
        """Seconds of forward passes.

        Args:
            size: The model, its parameters known.
            tokens: Of all texts.
            length: Of one of them, for attention.
            dtype: In which it computes.
            causal: Whether a token sees only those before it.
        """
        return operations(size, tokens, length, causal=causal) / (self.device.peak(dtype) * self.utilization)

    def training(self, size: ModelSize, tokens: float, length: float, dtype: str, *, causal: bool = True) -> float:
        """Seconds of forward and backward passes: three times `reading`, 6·N a token."""
        return 3 * self.reading(size, tokens, length, dtype, causal=causal)

    def writing(self, size: ModelSize, texts: float, tokens: float, context: float, batch: int, dtype: str) -> float:
        """Seconds of writing.

        Args:
            size: The model, its parameters known.
            texts: How many are written.
            tokens: Of each of them.
            context: Tokens before and in a text whose keys and values are read, on average.
            batch: Texts written at once.
            dtype: Of weights, keys and values.
        """
        width = BYTES[dtype]
        assert size.parameters is not None
        kept = 0.0 if size.layers is None or size.kv_width is None else 2.0 * size.layers * size.kv_width * context
        at_once = min(batch, texts) if texts else 0
        if not at_once:
            return 0.0
        read = width * (size.parameters + at_once * kept)
        return (texts / at_once) * tokens * read / (self.device.bandwidth * self.bandwidth)


def operations(size: ModelSize, tokens: float, length: float, *, causal: bool = True) -> float:
    """Floating-point operations of forward passes; of a model whose shape is unknown without attention."""
    assert size.parameters is not None
    attention = 0.0
    if size.layers is not None and size.width is not None:
        attention = (2.0 if causal else 4.0) * size.layers * size.width * length
    return tokens * (2.0 * size.computing + attention)


@dataclass(frozen=True, slots=True)
class Cost:
    """What something takes, at most.

    Attributes:
        calls: Of generating models, here or at an endpoint.
        prompt_tokens, completion_tokens: Of these; completions at most.
        memory_tokens: Soft tokens in prompts in place of text.
        encoded_tokens: Read by encoders, rerankers, compressors and scorers.
        gpu_seconds: Of one GPU here.
        served_seconds: Of the GPU behind an endpoint of one's own, where the model's size is known.
        usd: At the configured prices.
        disk: Bytes that stay.
        unknown: What is not in these numbers, and why.
    """

    calls: float = 0
    prompt_tokens: float = 0
    completion_tokens: float = 0
    memory_tokens: float = 0
    encoded_tokens: float = 0
    gpu_seconds: float = 0.0
    served_seconds: float = 0.0
    usd: float = 0.0
    disk: float = 0
    unknown: tuple[str, ...] = ()

    def __add__(self, other: Cost) -> Cost:
        summed = {name: getattr(self, name) + getattr(other, name) for name in NUMBERS}
        return Cost(**summed, unknown=tuple(dict.fromkeys((*self.unknown, *other.unknown))))

    def times(self, factor: float) -> Cost:
        """So many times as much."""
        return replace(self, **{name: getattr(self, name) * factor for name in NUMBERS})

    @property
    def gpu_hours(self) -> float:
        return self.gpu_seconds / HOUR

    @property
    def served_hours(self) -> float:
        return self.served_seconds / HOUR

    def to_json(self) -> dict[str, Any]:
        """As a JSON object: whole numbers of calls, tokens and bytes, hours in place of seconds."""
        return {
            "calls": round(self.calls),
            "prompt_tokens": round(self.prompt_tokens),
            "completion_tokens": round(self.completion_tokens),
            "memory_tokens": round(self.memory_tokens),
            "encoded_tokens": round(self.encoded_tokens),
            "gpu_hours": self.gpu_hours,
            "served_gpu_hours": self.served_hours,
            "usd": self.usd,
            "disk_bytes": round(self.disk),
            "unknown": list(self.unknown),
        }


NUMBERS = tuple(field.name for field in fields(Cost) if field.name != "unknown")


def unknown(what: str) -> Cost:
    """A cost of which nothing is known but that it is there."""
    return Cost(unknown=(what,))


def total(costs: Iterable[Cost]) -> Cost:
    """All of them together."""
    return sum(costs, Cost())


# -- What generating costs: calls of a model here, or behind an endpoint --


DEFAULT_DTYPE = "bfloat16"
"""Of models whose options leave the type to the checkpoint: what nearly all are published in."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of a generating model.

    Attributes:
        number: How many.
        prompt: Mean tokens of a prompt, soft tokens included.
        completion: Most tokens of a reply.
        memory: Of the prompt's tokens those that are soft.
    """

    number: float
    prompt: float
    completion: float
    memory: float = 0.0

    @property
    def cost(self) -> Cost:
        """Calls and tokens alone."""
        return Cost(
            calls=self.number,
            prompt_tokens=self.number * (self.prompt - self.memory),
            completion_tokens=self.number * self.completion,
            memory_tokens=self.number * self.memory,
        )


def here(calls: Calls, size: ModelSize, dtype: str | None, batch: int, assume: Assumptions) -> Cost:
    """Calls of a model on a GPU of one's own: prompts are read, replies are written token by token."""
    if not size.known:
        return calls.cost + unknown(f"GPU hours of {size.model}: its size is unknown")
    return calls.cost + Cost(gpu_seconds=_seconds(calls, size, dtype, batch, assume))


def asked(calls: Calls, chat: ChatConfig, assume: Assumptions) -> Cost:
    """Calls of an endpoint: dollars where prices are configured, GPU time of its own where it wants no key."""
    cost = calls.cost
    if not calls.number:
        return cost
    if chat.usd_per_million_prompt_tokens or chat.usd_per_million_completion_tokens:
        return cost + Cost(usd=chat.usd(round(cost.prompt_tokens), round(cost.completion_tokens)))
    if chat.key_variable is not None:
        return cost + unknown(f"dollars of {chat.model}: usd_per_million_prompt_tokens and …_completion_tokens not set")
    size = size_of(chat.model)
    if not size.known:
        return cost + unknown(f"GPU hours of the endpoint of {chat.model}: its size is unknown")
    return cost + Cost(served_seconds=_seconds(calls, size, None, chat.concurrency, assume))


def _seconds(calls: Calls, size: ModelSize, dtype: str | None, batch: int, assume: Assumptions) -> float:
    kind = DEFAULT_DTYPE if dtype in (None, "auto") else str(dtype)
    read = assume.reading(size, calls.number * calls.prompt, calls.prompt, kind)
    context = calls.prompt + calls.completion / 2
    return read + assume.writing(size, calls.number, calls.completion, context, batch, kind)


@lru_cache(maxsize=64)
def counter_of(model: str) -> TokenCounter:
    """Counts in the tokens of a local model, where its tokenizer is here; else in characters / 4."""
    try:
        path = Path(locate(model)) / "tokenizer.json"
        return TokenCounter(str(path) if path.is_file() else None)
    except UserError:
        return TokenCounter()


# -- Which model a name or a checkpoint stands for; checkpoints still to be trained are as large as their bases --


class Weights:
    """Sizes of models, those of an experiment's trainings among them.

    Args:
        trainings: Of the experiment.
        store: Folder in which their checkpoints lie.
    """

    def __init__(self, trainings: Iterable[TrainingPlan], store: Path) -> None:
        self._homes = {plan.folder(store).absolute(): plan for plan in trainings}
        self._trainings: dict[str, TrainingPlan | None] = {}
        self._sizes: dict[tuple[str, str | None], ModelSize] = {}

    def training(self, model: str) -> TrainingPlan | None:
        """The training whose checkpoint a folder is, or will be; None: of none."""
        if model not in self._trainings:
            path = Path(model).expanduser().absolute()
            # A stage's folder, or a tower's in it.
            homes = (self._homes.get(item) for item in (path, *path.parents[:2]))
            self._trainings[model] = next(filter(None, homes), None)
        return self._trainings[model]

    def size(self, model: str, revision: str | None = None) -> ModelSize:
        """The size of a model: of a checkpoint that of its base."""
        key = (model, revision)
        if key not in self._sizes:
            self._sizes[key] = self._size(model, revision)
        return self._sizes[key]

    def _size(self, model: str, revision: str | None) -> ModelSize:
        plan = self.training(model)
        if plan is not None:
            base = self.base(plan.config)
            return ModelSize(model) if base is None else self.size(*base)
        clara = self._read(model)
        if clara is not None:
            return size_of(clara.base, clara.revision)
        # GPR's towers lie one beside the other.
        question = Path(model).expanduser() / "question"
        return size_of(str(question) if question.is_dir() else model, revision)

    def clara(self, model: str) -> ClaraConfig | None:
        """The options of a checkpoint of CLaRa; None where it is none of this experiment and not here."""
        plan = self.training(model)
        if plan is None or not isinstance(plan.config, ClaraTrainingConfig):
            return self._read(model)
        return self.clara_model(plan.config)

    def clara_model(self, config: ClaraTrainingConfig) -> ClaraConfig:
        """The model that a training of CLaRa is of: that of the checkpoint that it begins from, if it does not say."""
        if config.start is None or "model" in config.model_fields_set:
            return config.model
        return self.clara(config.start) or config.model

    def base(self, config: TrainingConfig) -> tuple[str, str | None] | None:
        """What a training begins from, and its revision; None where it is not known."""
        match config:
            case ArkTrainingConfig():
                return config.encoder.model, config.encoder.revision
            case GprTrainingConfig():
                return config.question_encoder.model, config.revision
            case ClaraTrainingConfig():
                model = self.clara_model(config)
                return model.base, model.revision
            case SarkTrainingConfig() | SkpTrainingConfig() | GraphCrossEncoderTrainingConfig():
                return config.base, config.revision
        return None

    def _read(self, model: str) -> ClaraConfig | None:
        try:
            return read_config(require_checkpoint(model, where="model"))[0]
        except UserError:
            return None


# -- What reading takes: prompts of a few questions, as the reader itself writes them, and its longest answer --


T5_PROMPT = 512
"""Longest prompt of encoder-decoder models that name none (T5)."""
MEMORY = "."
"""Stands for documents in a prompt whose memory is counted apart."""
Passages = Sequence[Passage]


def reading_cost(
    reader: Component, shape: Shape, questions: float, k: int | None, assume: Assumptions, weights: Weights, *, compressed: bool = False
) -> Cost:
    """What a reader takes.

    Args:
        reader: The reader.
        shape: The benchmark.
        questions: That are still to be answered.
        k: Passages that it is handed; None: all.
        assume, weights: Device and sizes.
        compressed: Whether a compressor makes the memory that it reads.
    """
    config = reader.config
    if isinstance(config, ClaraReaderConfig):
        return memory_cost(config, config.model, shape, questions, k, assume, weights, compressed=compressed)
    if not isinstance(config, ReadingOptions | PocketReaderConfig | ClaraTextConfig):
        # Readers without a language model (extractive, retrieval_only) cost next to nothing; others are not known.
        silent = type(config).__module__.startswith("methods.")
        return Cost() if silent else unknown(f"reading by {reader.id}")
    if not shape.sampled:
        return unknown(f"tokens of {shape.reference}: its lengths are unknown")
    if isinstance(config, ReadingOptions) and config.follows_benchmark and shape.reading is None:
        return unknown(f"prompts of {reader.id}: it follows instructions that {shape.reference} does not bring")
    if isinstance(config, ClaraTextConfig):
        return _text_cost(config, shape, questions, k, assume, weights)
    return _model_cost(config, shape, questions, k, assume, weights)


def _model_cost(
    config: ReadingOptions | PocketReaderConfig, shape: Shape, questions: float, k: int | None, assume: Assumptions, weights: Weights
) -> Cost:
    counter = _counter(config)
    count, longest = _prompts(config, shape.reading, counter)
    limit = getattr(config, "max_prompt_tokens", None)
    if isinstance(config, Seq2SeqConfig):
        limit = limit or T5_PROMPT
    lengths = [count(item.question, _handed_to_reader(item, k)) for item in shape.sampled]
    calls = Calls(questions, mean([min(length, limit or length) for length in lengths]), longest)
    if isinstance(config, ChatConfig):
        return asked(calls, config, assume)
    assert isinstance(config, CausalConfig | Seq2SeqConfig)
    return here(calls, weights.size(config.model, config.revision), config.dtype, config.batch_size, assume)


def _counter(config: ReadingOptions | PocketReaderConfig) -> TokenCounter:
    if isinstance(config, ChatReaderConfig):
        return TokenCounter(config.tokenizer)
    return counter_of(str(getattr(config, "model", "")))


def _prompts(
    config: ReadingOptions | PocketReaderConfig, reading: Reading | None, counter: TokenCounter
) -> tuple[Callable[[str, Passages], int], int]:
    """How long a prompt is, and the longest answer."""
    if isinstance(config, PocketReaderConfig):
        return lambda question, passages: sum(counter.counts([answer_prompt(question, passages)])), config.max_new_tokens
    instructions = Instructions(config, reading)

    def count(question: str, passages: Passages) -> int:
        texts = [text for text in instructions.filled(question, instructions.evidence(passages)) if text]
        return PER_MESSAGE * len(texts) + sum(counter.counts(texts))

    own = config.max_tokens if isinstance(config, ChatConfig) else getattr(config, "max_new_tokens", 0)
    return count, instructions.longest(int(own))


def _handed_to_reader(item: SampledQuestion, k: int | None) -> Passages:
    return item.passages if k is None else item.passages[:k]


# -- CLaRa ----------------------------------------------------------------------------------------------------------


def memory_cost(
    config: WritingOptions,
    model: str,
    shape: Shape,
    questions: float,
    k: int | None,
    assume: Assumptions,
    weights: Weights,
    *,
    compressed: bool,
) -> Cost:
    """What answering from memory takes; of passages that come as text their compression, too."""
    clara = weights.clara(model)
    if clara is None:
        return unknown(f"reading by {model}: it is no checkpoint that is here or trained by this experiment")
    if not shape.sampled:
        return unknown(f"tokens of {shape.reference}: its lengths are unknown")
    documents = mean([len(_handed_to_reader(item, k)) for item in shape.sampled])
    prompt = mean([_tokens(messages(answer(item.question, 1), MEMORY)) for item in shape.sampled])
    memory = documents * clara.memory_tokens
    calls = Calls(questions, prompt + memory, config.max_new_tokens, memory)
    size = weights.size(model)
    cost = here(calls, size, clara.dtype, config.batch_size, assume)
    return cost if compressed else cost + compressing(clara, shape, questions * documents, assume, weights, model)


def compressing(clara: ClaraConfig, shape: Shape, documents: float, assume: Assumptions, weights: Weights, model: str) -> Cost:
    """What so many documents take to become memory."""
    length = min(shape.passage, clara.max_length) + clara.memory_tokens
    size = weights.size(model)
    cost = Cost(encoded_tokens=documents * length)
    if not size.known:
        return cost + unknown(f"GPU hours of {size.model}: its size is unknown")
    dtype = clara.dtype if clara.dtype not in (None, "auto") else "bfloat16"
    return cost + Cost(gpu_seconds=assume.reading(size, documents * length, length, str(dtype)))


def _text_cost(config: ClaraTextConfig, shape: Shape, questions: float, k: int | None, assume: Assumptions, weights: Weights) -> Cost:
    base = weights.clara(config.model)
    model = base or ClaraConfig.model_validate({"max_length": config.max_length, "rate": config.max_length})
    most = CHARACTERS_PER_TOKEN * model.max_length

    def count(item: SampledQuestion) -> int:
        texts = [passage.full_text[:most] for passage in _handed_to_reader(item, k)]
        return _tokens(messages(answer_from_text(item.question, texts), "\n".join(texts)))

    prompt = mean([min(count(item), model.max_prompt - config.max_new_tokens) for item in shape.sampled])
    calls = Calls(questions, prompt, config.max_new_tokens)
    return here(calls, weights.size(config.model, config.revision), config.dtype, config.batch_size, assume)


def _tokens(texts: Sequence[str]) -> int:
    return sum(TokenCounter().counts(list(texts)))


# -- What the parts of a method take: building indexes once, and finding, ordering, shortening for every question --
# Parts are known by their options: whoever brings an encoder's, a cross-encoder's or a language model's is planned
# without another word, plug-ins included; of any other part it is said that its cost is unknown.


FLOAT, HALF_BYTES, POSTING = 4, 2, 8
"""Bytes of a float32, of a float16, and of a word's entry in an index of BM25 (row and score)."""
WORDS_PER_TOKEN = 0.75
PROMPT = 60
"""Tokens of the instructions in a prompt that asks for a query or a passage, beside the question."""


@dataclass(frozen=True)
class Work:
    """Where parts are planned: a benchmark, the questions that are left, the device, the sizes of models."""

    shape: Shape
    questions: float
    assume: Assumptions
    weights: Weights


@dataclass(frozen=True)
class Index:
    """An index to build; methods with the same retriever over the same corpus share one.

    Attributes:
        component: The retriever.
        cost: Of building it.
    """

    component: Component
    cost: Cost


# -- indexes --------------------------------------------------------------------------------------------------------


def indexes(component: Component, work: Work) -> Iterator[Index]:
    """The indexes that a retriever, or those underneath it, search."""
    config = component.config
    inner = list(retrievers_in(config))
    for item in inner:
        yield from indexes(item, work)
    cost = _index_cost(component, work)
    if cost is not None:
        yield Index(component, cost)


def _index_cost(component: Component, work: Work) -> Cost | None:
    config, shape = component.config, work.shape
    passages = shape.corpus
    # What only reads candidates (cross-encoders, a retriever of retrievers) keeps nothing itself.
    keeps = isinstance(config, BM25Config | EncoderConfig | M3Config | TripleSearchConfig | ClaraRetrieverConfig)
    if not keeps or isinstance(config, GraphHybridConfig):
        return None
    if passages is None or shape.origin == "unknown":
        return unknown(f"the index of {component.id} over {shape.reference}: its corpus is unknown")
    if isinstance(config, BM25Config):
        return Cost(disk=passages * shape.passage * WORDS_PER_TOKEN * POSTING)
    if isinstance(config, ClaraRetrieverConfig):
        return _store_cost(config, work) if config.offline else None
    encoder = encoder_of(config)
    cost = encoding(config, passages, shape.passage, work)
    width = work.weights.size(encoder.model, encoder.revision).width
    if width is None:
        return cost + unknown(f"disk of the vectors of {encoder.model}")
    if isinstance(config, BgeM3Config):
        # One vector of every token in 16 bits, one of the whole, and a weight of every token.
        return cost + Cost(disk=passages * (FLOAT * width + shape.passage * (HALF_BYTES * width + 3 * FLOAT)))
    rows = passages * parts_of(config, shape)
    copies = 2 if passages <= CACHED else 1
    return cost + Cost(disk=copies * rows * FLOAT * (getattr(config, "dimension", None) or width))


def parts_of(config: MethodConfig, shape: Shape) -> float:
    """Vectors of a passage."""
    words = config.part_words if isinstance(config, DenseConfig) else None
    return 1.0 if words is None else float(max(1, round(shape.passage * WORDS_PER_TOKEN / words)))


def _store_cost(config: ClaraRetrieverConfig, work: Work) -> Cost:
    clara, size = work.weights.clara(config.model), work.weights.size(config.model)
    if clara is None or work.shape.corpus is None:
        return unknown(f"the store of {config.model}: it is no checkpoint that is known here")
    cost = compressing(clara, work.shape, work.shape.corpus, work.assume, work.weights, config.model)
    if size.width is None:
        return cost + unknown(f"disk of the memory of {size.model}")
    return cost + Cost(disk=work.shape.corpus * clara.memory_tokens * size.width * HALF_BYTES)


def encoding(config: MethodConfig, texts: float, length: float, work: Work) -> Cost:
    """What so many texts of a length take to become vectors."""
    encoder = encoder_of(config)
    longest = min(length, getattr(encoder, "max_length", None) or length)
    cost, size = Cost(encoded_tokens=texts * longest), work.weights.size(encoder.model, encoder.revision)
    if not size.known:
        return cost + unknown(f"GPU hours of {size.model}: its size is unknown")
    return cost + Cost(gpu_seconds=work.assume.reading(size, texts * longest, longest, encoder.dtype, causal=False))


# -- questions ------------------------------------------------------------------------------------------------------


def searching(component: Component, work: Work, depth: int | None) -> Cost:
    """What finding passages takes for all questions that are left."""
    config, shape, questions = component.config, work.shape, work.questions
    if config.__class__ is MethodConfig or isinstance(config, BM25Config):
        return Cost()
    cost = Cost()
    for item in retrievers_in(config):
        cost += searching(item, work, depth)
    if isinstance(config, HydeConfig):
        calls = Calls(questions * config.samples, shape.question + PROMPT, config.llm.max_tokens)
        written = encoding(config.retriever.config, calls.number, calls.completion, work)
        return cost + asked(calls, config.llm, work.assume) + written
    if isinstance(config, PromptedConfig):
        calls = Calls(questions * len(PROMPTS), shape.question + PROMPT, config.llm.max_tokens)
        return cost + asked(calls, config.llm, work.assume)
    if isinstance(config, TreeConfig):
        return cost + _tree_cost(config, work)
    if isinstance(config, GraphHybridConfig):
        both = min(config.sparse_depth + config.dense_depth, shape.candidates)
        return cost + pairs_cost(config, questions * both, work)
    if isinstance(config, ClaraRetrieverConfig):
        return cost + clara_search(config, work, None if config.offline else shape.candidates)
    if isinstance(config, EncoderConfig | M3Config | TripleSearchConfig):
        return cost + encoding(config, questions, shape.question, work)
    own = type(config).__module__.startswith("methods.")
    return cost if own else cost + unknown(f"finding by {component.id}")


def _tree_cost(config: TreeConfig, work: Work) -> Cost:
    """A node has an answer, and above the last level a child for every way of asking; evidence adds up on the way."""
    ways, shape = len(QUERY_TOKENS), work.shape
    result = config.per_query * min(shape.passage, (config.evidence_words or shape.passage) / WORDS_PER_TOKEN)
    calls = tokens = 0.0
    for level in range(config.depth + 1):
        nodes = ways**level
        written = nodes * (1 + (ways if level < config.depth else 0))
        calls += written
        tokens += written * (PROMPT + shape.question + level * (result + config.max_new_tokens))
    number = work.questions * calls
    size = work.weights.size(config.model, config.revision)
    return here(Calls(number, tokens / calls, config.max_new_tokens), size, config.dtype, config.batch_size, work.assume)


def clara_search(config: CheckpointOptions, work: Work, documents: float | None) -> Cost:
    """Memory of questions, and of so many documents of each; None: theirs is kept already."""
    clara, size = work.weights.clara(config.model), work.weights.size(config.model)
    if clara is None:
        return unknown(f"finding by {config.model}: it is no checkpoint that is known here")
    length = work.shape.question + clara.memory_tokens
    cost = Cost(encoded_tokens=work.questions * length)
    if size.known:
        dtype = clara.dtype if clara.dtype not in (None, "auto") else "bfloat16"
        cost += Cost(gpu_seconds=work.assume.reading(size, work.questions * length, length, str(dtype)))
    if documents is None:
        return cost
    return cost + compressing(clara, work.shape, work.questions * documents, work.assume, work.weights, config.model)


def ordering(component: Component, work: Work, depth: int | None) -> Cost:
    """What a reranker takes for all questions that are left."""
    config = component.config
    own = getattr(config, "depth", None)
    limits = [limit for limit in (depth, own, work.shape.candidates) if limit is not None]
    pairs = work.questions * min(limits)
    if isinstance(config, CrossEncoderConfig):
        return pairs_cost(config, pairs, work)
    if isinstance(config, ClaraRerankerConfig):
        return clara_search(config, work, min(limits))
    if isinstance(config, LateInteractionConfig):
        # Nothing is kept: every candidate of every question is encoded.
        return encoding(config, pairs, work.shape.passage, work) + encoding(config, work.questions, work.shape.question, work)
    if isinstance(config, EncoderConfig):
        # Passages are encoded once and kept by their text: at most all that are ranked, or the whole corpus.
        texts = pairs if work.shape.corpus is None else min(pairs, work.shape.corpus)
        return encoding(config, texts, work.shape.passage, work) + encoding(config, work.questions, work.shape.question, work)
    return Cost() if isinstance(config, BM25Config) else unknown(f"reranking by {component.id}")


def pairs_cost(config: CrossEncoderConfig, pairs: float, work: Work) -> Cost:
    """What reading so many pairs of question and passage takes."""
    length = min(work.shape.question + work.shape.passage, config.max_length)
    cost, size = Cost(encoded_tokens=pairs * length), work.weights.size(config.model, config.revision)
    if not size.known:
        return cost + unknown(f"GPU hours of {size.model}: its size is unknown")
    return cost + Cost(gpu_seconds=work.assume.reading(size, pairs * length, length, config.dtype, causal=False))


# -- What answering a benchmark's questions by one method takes, part by part --


ROW, RANKED = 1_200, 45
"""Bytes of a prediction in the store, and of each ranked passage with it."""
WITHOUT_PASSAGES = frozenset({"no_retrieval"})
"""Retrievers that find nothing, so that nothing is read."""
OURS = "methods."


def parts(method: MethodPlan, benchmark: BenchmarkPlan, work: Work) -> dict[str, Cost]:
    """What each step takes for all questions that are left: candidates, retrieve, rerank, compress, read, store."""
    made_of = method.composition
    results: dict[str, Cost] = {}
    prescribed = candidate_retriever(benchmark.setting)
    if prescribed is not None:
        results["candidates"] = searching(prescribed, work, None)
    work = replace(work, shape=_handed(made_of.method, work.shape))
    results["retrieve"] = searching(made_of.method, work, made_of.kept)
    for reranker in made_of.rerankers:
        results["rerank"] = results.get("rerank", Cost()) + ordering(reranker, work, made_of.kept)
    if made_of.method.entry.whole:
        results["read"] = _whole(made_of.method, work)
    if made_of.compressor is not None:
        results["compress"] = _compressed(made_of.compressor, work, made_of.handed_on)
    reader = made_of.answering
    if reader is not None:
        compressed = made_of.compressor is not None and isinstance(made_of.compressor.config, ClaraCompressorConfig)
        results["read"] = reading_cost(
            reader, work.shape, work.questions, made_of.handed_on, work.assume, work.weights, compressed=compressed
        )
    kept = work.shape.candidates if made_of.kept is None else min(made_of.kept, work.shape.candidates)
    results["store"] = Cost(disk=work.questions * (ROW + RANKED * kept))
    return {name: cost for name, cost in results.items() if cost != Cost()}


def _handed(method: Component, shape: Shape) -> Shape:
    if method.id not in WITHOUT_PASSAGES:
        return shape
    return replace(shape, sampled=tuple(replace(item, passages=(), candidates=0) for item in shape.sampled), whole=False)


def _whole(method: Component, work: Work) -> Cost:
    """A system that answers by itself."""
    config = method.config
    if isinstance(config, ClaraMethodConfig):
        clara = work.weights.clara(config.model)
        k = config.k or (clara.k if clara else None)
        return memory_cost(config, config.model, work.shape, work.questions, k, work.assume, work.weights, compressed=True)
    # The answers of a tree are counted with its searches; controls of ours ask nobody.
    silent = isinstance(config, TreeConfig) or (method.entry.kind == "control" and type(config).__module__.startswith(OURS))
    return Cost() if silent else unknown(f"answering by {method.id}")


def _compressed(compressor: Component, work: Work, k: int | None) -> Cost:
    config = compressor.config
    if isinstance(config, ClaraCompressorConfig):
        clara = work.weights.clara(config.model)
        if clara is None:
            return unknown(f"compressing by {config.model}: it is no checkpoint that is known here")
        documents = mean([len(item.passages if k is None else item.passages[:k]) for item in work.shape.sampled])
        return compressing(clara, work.shape, work.questions * documents, work.assume, work.weights, config.model)
    return Cost() if type(config).__module__.startswith(OURS) else unknown(f"compressing by {compressor.id}")


# -- How often judges are asked, at most, and what that takes --


ORDERS = 2


@dataclass(frozen=True)
class JudgeRow:
    """A judge that asks a model.

    Attributes:
        judge: Its id.
        judgments: Judgments at most: answers, or pairs of them in both orders, repeated. What is judged already, or
            needs no opinion, is not taken off; a judge may need several calls for one of them.
        cost: At most, one call each.
    """

    judge: str
    judgments: int
    cost: Cost

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"judge": self.judge, "judgments": self.judgments, "cost": self.cost.to_json()}


def judge_rows(experiment: Experiment, shapes: Sequence[Shape], answer: float, assume: Assumptions) -> list[JudgeRow]:
    """The judges of an experiment that ask a model.

    Args:
        experiment: Validated.
        shapes: Of its benchmarks.
        answer: Tokens of an answer that is judged, at most.
        assume: Device.
    """
    rows = []
    for plan in experiment.judges:
        if plan.judge.rule:
            continue
        numbers = [_request(plan, shape.questions or 0, len(experiment.methods)) for shape in shapes]
        cost = total(_cost(plan, shape, number, answer, assume) for shape, number in zip(shapes, numbers, strict=True))
        rows.append(JudgeRow(str(plan.judge), sum(numbers), cost))
    return rows


def _request(plan: JudgePlan, questions: int, methods: int) -> int:
    repetitions = int(getattr(plan.judge.config, "repetitions", 1))
    if plan.judge.entry.kind == "point":
        return questions * methods * repetitions
    pairs = methods * (methods - 1) // 2 if plan.everyone else methods - 1
    return ORDERS * questions * pairs * repetitions


def _cost(plan: JudgePlan, shape: Shape, number: int, answer: float, assume: Assumptions) -> Cost:
    config = plan.judge.config
    if not isinstance(config, ChatConfig):
        return unknown(f"judging by {plan.judge.entry.id}")
    if not isinstance(config, LLMJudgeConfig):
        return Cost(calls=number) + unknown(f"tokens of {plan.judge.entry.id}: how many calls a judgment takes varies")
    if not shape.sampled:
        return Cost(calls=number) + unknown(f"tokens of {plan.judge.entry.id} on {shape.reference}")
    prompt = config.load()
    shown = 1 if plan.judge.entry.kind == "point" else 2
    length = tokens(prompt.system) + tokens(prompt.user) + shape.question + shape.answer
    longest = min(answer, tokens("x" * config.max_answer_chars))
    if getattr(config, "reference", None) == "document":
        length += 2 * shape.passage
    return asked(Calls(number, length + shown * longest, config.max_tokens), config, assume)

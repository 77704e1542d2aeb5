"""What reading takes: the prompts of a few questions, as the reader itself would write them, and its longest answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.schema import Passage
from methods.api import Reading
from methods.clara.config import ClaraConfig
from methods.clara.prompting import answer, answer_from_text, messages
from methods.clara.reader import ClaraReaderConfig, ClaraTextConfig, WritingOptions
from methods.models.causal import CausalConfig
from methods.models.chat_options import ChatConfig
from methods.models.pocket.prompt import answer_prompt
from methods.models.seq2seq import Seq2SeqConfig
from methods.models.tokens import CHARACTERS_PER_TOKEN, PER_MESSAGE, TokenCounter
from methods.readers.chat import ChatReaderConfig
from methods.readers.instructions import Instructions, ReadingOptions
from methods.readers.pocket import PocketReaderConfig
from methods.registry import Component
from ragmeter.planning.asking import Calls, asked, counter_of, here
from ragmeter.planning.cost import Cost, unknown
from ragmeter.planning.hardware import Assumptions
from ragmeter.planning.shape import Asked, Shape, mean
from ragmeter.planning.weights import Weights

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
    if not shape.asked:
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
    lengths = [count(one.question, _handed(one, k)) for one in shape.asked]
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


def _handed(one: Asked, k: int | None) -> Passages:
    return one.passages if k is None else one.passages[:k]


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
    if not shape.asked:
        return unknown(f"tokens of {shape.reference}: its lengths are unknown")
    documents = mean([len(_handed(one, k)) for one in shape.asked])
    prompt = mean([_tokens(messages(answer(one.question, 1), MEMORY)) for one in shape.asked])
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

    def count(one: Asked) -> int:
        texts = [passage.full_text[:most] for passage in _handed(one, k)]
        return _tokens(messages(answer_from_text(one.question, texts), "\n".join(texts)))

    prompt = mean([min(count(one), model.max_prompt - config.max_new_tokens) for one in shape.asked])
    calls = Calls(questions, prompt, config.max_new_tokens)
    return here(calls, weights.size(config.model, config.revision), config.dtype, config.batch_size, assume)


def _tokens(texts: Sequence[str]) -> int:
    return sum(TokenCounter().counts(list(texts)))

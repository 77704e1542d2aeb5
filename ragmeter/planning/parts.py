"""What the parts of a method take: building indexes once, and finding, ordering, shortening for every question.

Parts are known by their options: whoever brings an encoder's, a cross-encoder's or a language model's is planned
without another word, plug-ins included; of any other part it is said that its cost is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from methods.baselines.bge_m3 import BgeM3Config
from methods.baselines.bm25 import BM25Config
from methods.baselines.dense import CACHED, DenseConfig
from methods.baselines.graph.hybrid import GraphHybridConfig
from methods.baselines.graph.towers import TripleSearchConfig
from methods.baselines.hyde import HydeConfig
from methods.baselines.rq_rag_prompted import PROMPTS, PromptedConfig
from methods.baselines.rq_rag_tree import QUERY_TOKENS, TreeConfig
from methods.clara.reranker import ClaraRerankerConfig
from methods.clara.retriever import ClaraRetrieverConfig
from methods.clara.use import CheckpointOptions
from methods.models.cross_encoder import CrossEncoderConfig
from methods.models.encoder import EncoderConfig
from methods.models.late_interaction import LateInteractionConfig
from methods.models.sparse_multivector import M3Config
from methods.registry import Component, MethodConfig
from ragmeter.planning.asking import Calls, asked, here
from ragmeter.planning.cost import Cost, unknown
from ragmeter.planning.hardware import Assumptions
from ragmeter.planning.readers import compressing
from ragmeter.planning.shape import Shape
from ragmeter.planning.weights import Weights
from ragmeter.sizing.named import encoder_of, retrievers_in

FLOAT, HALF, POSTING = 4, 2, 8
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
    for one in inner:
        yield from indexes(one, work)
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
        return cost + Cost(disk=passages * (FLOAT * width + shape.passage * (HALF * width + 3 * FLOAT)))
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
    return cost + Cost(disk=work.shape.corpus * clara.memory_tokens * size.width * HALF)


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
    for one in retrievers_in(config):
        cost += searching(one, work, depth)
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
    found = config.per_query * min(shape.passage, (config.evidence_words or shape.passage) / WORDS_PER_TOKEN)
    calls = tokens = 0.0
    for level in range(config.depth + 1):
        nodes = ways**level
        written = nodes * (1 + (ways if level < config.depth else 0))
        calls += written
        tokens += written * (PROMPT + shape.question + level * (found + config.max_new_tokens))
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

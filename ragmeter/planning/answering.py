"""What answering a benchmark's questions by one method takes, part by part."""

from __future__ import annotations

from dataclasses import replace

from methods.baselines.rq_rag_tree import TreeConfig
from methods.clara.compressing import ClaraCompressorConfig
from methods.clara.whole import ClaraMethodConfig
from methods.registry import Component
from ragmeter.candidates import candidate_retriever
from ragmeter.experiment import BenchmarkPlan, MethodPlan
from ragmeter.planning.cost import Cost, unknown
from ragmeter.planning.parts import Work, ordering, searching
from ragmeter.planning.readers import compressing, memory_cost, reading_cost
from ragmeter.planning.shape import Shape, mean

ROW, RANKED = 1_200, 45
"""Bytes of a prediction in the store, and of each ranked passage with it."""
WITHOUT_PASSAGES = frozenset({"no_retrieval"})
"""Retrievers that find nothing, so that nothing is read."""
OURS = "methods."


def parts(method: MethodPlan, benchmark: BenchmarkPlan, work: Work) -> dict[str, Cost]:
    """What each step takes for all questions that are left: candidates, retrieve, rerank, compress, read, store."""
    made_of = method.composition
    found: dict[str, Cost] = {}
    prescribed = candidate_retriever(benchmark.setting)
    if prescribed is not None:
        found["candidates"] = searching(prescribed, work, None)
    work = replace(work, shape=_handed(made_of.method, work.shape))
    found["retrieve"] = searching(made_of.method, work, made_of.kept)
    for reranker in made_of.rerankers:
        found["rerank"] = found.get("rerank", Cost()) + ordering(reranker, work, made_of.kept)
    if made_of.method.entry.whole:
        found["read"] = _whole(made_of.method, work)
    if made_of.compressor is not None:
        found["compress"] = _compressed(made_of.compressor, work, made_of.handed_on)
    reader = made_of.answering
    if reader is not None:
        compressed = made_of.compressor is not None and isinstance(made_of.compressor.config, ClaraCompressorConfig)
        found["read"] = reading_cost(
            reader, work.shape, work.questions, made_of.handed_on, work.assume, work.weights, compressed=compressed
        )
    kept = work.shape.candidates if made_of.kept is None else min(made_of.kept, work.shape.candidates)
    found["store"] = Cost(disk=work.questions * (ROW + RANKED * kept))
    return {name: cost for name, cost in found.items() if cost != Cost()}


def _handed(method: Component, shape: Shape) -> Shape:
    if method.id not in WITHOUT_PASSAGES:
        return shape
    return replace(shape, asked=tuple(replace(one, passages=(), candidates=0) for one in shape.asked), whole=False)


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
        documents = mean([len(one.passages if k is None else one.passages[:k]) for one in work.shape.asked])
        return compressing(clara, work.shape, work.questions * documents, work.assume, work.weights, config.model)
    return Cost() if type(config).__module__.startswith(OURS) else unknown(f"compressing by {compressor.id}")

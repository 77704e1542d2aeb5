"""What each step leaves in a folder of work, and how a later run takes it up: what lies there is not made again.

    kg/DOCUMENT.json            a graph
    subgraphs/QUESTION.json     seeds, scores and both cuts
    queries/QUESTION.json       the queries of both sizes

Ids in file names are hashed, since they may hold anything. Every file says what it was made from; one that was made
from something else (other options, another model, another text) is made anew, and replaces the old.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from benchmarks.errors import Broke, UserError
from benchmarks.fingerprint import content_hash, fingerprint
from benchmarks.schema import Question
from methods.kept import write_json
from methods.knowledge.augmented import AugmentedQueries, QueryGenerator, QueryRequest
from methods.knowledge.chunking import Chunk
from methods.knowledge.extraction import FAILED, Extractor
from methods.knowledge.graph import KnowledgeGraph, read_json
from methods.knowledge.neighbourhoods import SIZES, Neighbourhood, NeighbourhoodConfig, neighbourhoods
from methods.knowledge.seeds import GraphNamer, Namer
from methods.knowledge.similarity import SimilarityConfig, TextEncoder, with_similarity_edges


def file_of(folder: Path, step: str, identifier: str, ending: str = "json") -> Path:
    """The file of a document or question in a step."""
    return folder / step / f"{content_hash((identifier,))}.{ending}"


def graph_of(
    document_id: str,
    chunks: Sequence[Chunk],
    extractor: Extractor,
    folder: Path,
    similarity: SimilarityConfig | None = None,
    encoder: TextEncoder | None = None,
) -> KnowledgeGraph:
    """The graph of a document, from the folder or made and kept there.

    A graph that lacks chunks, because calls failed, is kept, and made again when next asked for: kept replies make
    that cheap.

    Args:
        document_id: The document.
        chunks: Its chunks.
        extractor: Makes the graph.
        folder: The folder of work.
        similarity: Which entities are joined besides; None: none.
        encoder: Needed where `similarity` is enabled.

    Raises:
        Broke: Not one chunk could be read, because every call failed.
        ValueError: `similarity` is enabled and there is no encoder.
    """
    joined = similarity if similarity is not None and similarity.enabled else None
    if joined is not None and encoder is None:
        raise ValueError("edges of similarity need an encoder")
    made_of = fingerprint(
        extractor.fingerprint,
        content_hash(chunk.text for chunk in chunks),
        {**joined.model_dump(mode="json"), "weights": joined.encoder.weights()} if joined else None,
    )
    path = file_of(folder, "kg", document_id)
    if path.exists():
        kept = KnowledgeGraph.load(path)
        if kept.made_of == made_of and FAILED not in kept.counts:
            return kept
    graph = extractor.extract(document_id, chunks)
    if chunks and graph.counts.get(FAILED, 0) == len(chunks):
        raise Broke(
            f"no graph for document {document_id!r}: all {len(chunks)} calls failed",
            where="kg.chat",
            try_this="try again when the endpoint answers; replies that came are kept",
        )
    if joined is not None and encoder is not None:
        graph = with_similarity_edges(graph, joined, encoder)
    graph = KnowledgeGraph(graph.document_id, graph.nodes, graph.edges, graph.counts, made_of)
    graph.save(path)
    return graph


def neighbourhoods_of(
    graph: KnowledgeGraph,
    questions: Sequence[Question],
    config: NeighbourhoodConfig,
    folder: Path,
    namer: Namer | None = None,
    encoder: TextEncoder | None = None,
) -> list[Neighbourhood]:
    """The neighbourhoods of questions about one document, from the folder or made and kept there.

    One whose names could not be had, because a call failed, is not kept.
    """
    namer = namer or GraphNamer()
    base = fingerprint(graph.made_of or _graph_hash(graph), config.model_dump(mode="json"), namer.fingerprint)
    keys = [fingerprint(base, one.id, one.text, list(one.answers[:1])) for one in questions]
    paths = [file_of(folder, "subgraphs", one.id) for one in questions]
    found = {n: kept for n, key in enumerate(keys) if (kept := _kept(paths[n], key, Neighbourhood)) is not None}
    missing = [number for number in range(len(questions)) if number not in found]
    made = neighbourhoods(graph, [questions[number] for number in missing], config, namer, encoder) if missing else []
    for number, around in zip(missing, made, strict=True):
        found[number] = around
        if around.seeds.failed is None:
            _keep(paths[number], keys[number], around)
    return [found[number] for number in range(len(questions))]


def queries_of(
    graph: KnowledgeGraph, questions: Sequence[Question], around: Sequence[Neighbourhood], generator: QueryGenerator, folder: Path
) -> list[dict[str, AugmentedQueries]]:
    """The augmented queries of questions about one document by size, from the folder or made and kept there.

    Args:
        graph: The document's graph.
        questions: The questions.
        around: Their neighbourhoods, in the same order.
        generator: Writes queries.
        folder: The folder of work.

    Returns:
        Per question `large` and `small`; empty for a question that is left out.
    """
    found: list[dict[str, AugmentedQueries]] = [{} for _ in questions]
    missing: list[tuple[int, str, QueryRequest]] = []
    keys: list[str] = []
    for number, (question, one) in enumerate(zip(questions, around, strict=True)):
        requests = {size: QueryRequest(question, tuple(one.size(size).nodes(graph)), one.seeds.names) for size in SIZES if not one.skipped}
        told = [[asdict(node) for node in request.entities] for request in requests.values()]
        keys.append(fingerprint(generator.fingerprint, question.text, list(question.answers[:1]), told))
        kept = _kept(file_of(folder, "queries", question.id), keys[-1], dict[str, AugmentedQueries])
        if kept is not None:
            found[number] = kept
        else:
            missing += [(number, size, request) for size, request in requests.items()]
    made = generator.generate([request for _, _, request in missing]) if missing else []
    for (number, size, _), queries in zip(missing, made, strict=True):
        found[number][size] = queries
    for number in dict.fromkeys(number for number, _, _ in missing):
        if all(one.lasting for one in found[number].values()):
            _keep(file_of(folder, "queries", questions[number].id), keys[number], found[number])
    return found


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid")

    made_of: str
    value: Any


def _kept(path: Path, made_of: str, kind: Any) -> Any:
    """What a file holds, None where there is none or it was made from something else."""
    if not path.exists():
        return None
    kept = read_json(path, _Kept, "an artefact of a training")
    if kept.made_of != made_of:
        return None
    try:
        return TypeAdapter(kind).validate_python(kept.value)
    except ValueError as error:
        raise UserError(
            f"this file does not hold what its folder is for: {error}", where=str(path), try_this="remove it, so that it is made anew"
        ) from None


def _keep(path: Path, made_of: str, value: Any) -> None:
    plain = {size: asdict(one) for size, one in value.items()} if isinstance(value, dict) else asdict(value)
    write_json(path, {"made_of": made_of, "value": plain}, nan=False)


def _graph_hash(graph: KnowledgeGraph) -> str:
    return fingerprint([asdict(node) for node in graph.nodes], [asdict(edge) for edge in graph.edges])

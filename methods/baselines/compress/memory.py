"""A checkpoint in use: the compressor that a system becomes, and the index of a whole corpus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np
from pydantic import Field

from benchmarks.core.errors import Broke, UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import TRUNCATED, Context, Ranking, Services
from methods.baselines.compress.soft import LAYOUT, DType, System, models_of, require_checkpoint, typical_count
from methods.models.embeddings import read_array, write_vectors
from methods.models.weights import device_of, locate, weights_hash
from methods.registry import MethodConfig
from methods.retrieval.ranking import built_once
from methods.work import HALF, Checkpoint, Lengths, Needs, Once, Work, encode, unknown, vectors

if TYPE_CHECKING:
    from torch import Tensor


class SoftOptions(MethodConfig):
    """Which checkpoint, and in what precision."""

    model: str = Field(description="folder of a checkpoint that `ragmeter train` or `train checkpoints convert` made")
    dtype: DType | None = Field(None, description="of the models' weights; null: as the checkpoint says")

    def preflight(self) -> None:
        """Check that the model is such a checkpoint, and the models below it those that it was trained on."""
        require_checkpoint(self.model, where="option model")


class SoftCompressorConfig(SoftOptions):
    """Options of a compressor into vectors."""

    offline: bool = Field(
        False, description="encode the whole corpus before the first question, and keep it; false: a question's passages, each time"
    )
    keep: int | None = Field(
        None, ge=1, description="passages of a question that stay, the most relevant by the checkpoint itself (oscar with ranks); null: all"
    )


@dataclass(frozen=True, slots=True)
class SoftMemory:
    """What passes from a compressor to `memory_reader`.

    Attributes:
        vectors: float32 [m, h] of each passage, in the order of the ranking.
        checkpoint: Hash of what made them.
    """

    vectors: tuple[Tensor, ...]
    checkpoint: str


class Loaded:
    """A checkpoint in memory, and the hash of what decides a passage's vectors."""

    def __init__(self, folder: Path, dtype: str | None, device: str) -> None:
        from methods.baselines.compress.model import SoftModel

        self.model = SoftModel.load(folder, device, dtype)
        self.hash = fingerprint(weights_hash(str(folder)), str(self.model.base.dtype))


_LOADED: WeakValueDictionary[tuple[Any, ...], Loaded] = WeakValueDictionary()


def loaded(options: SoftOptions, device: str | None, system: str | None = None) -> Loaded:
    """The model of a checkpoint; parts of a pipeline that name the same one share it as long as one of them lives."""
    folder, _ = require_checkpoint(options.model, system, where="option model")
    key = (weights_hash(str(folder)), options.dtype, device_of(device))
    result = _LOADED.get(key)
    if result is None:
        result = _LOADED[key] = Loaded(folder, options.dtype, key[2])
    return result


CHUNK = 256
"""Passages between two writes; fixed, so that an index continued after a cut equals one made in one go."""


@dataclass(frozen=True, slots=True)
class Built:
    """An index of vectors on disk: its folder, passages, vectors, width, bytes."""

    folder: Path | None
    documents: int
    vectors: int
    width: int
    bytes: int


class SoftCompressor:
    """Compressor of a checkpoint; a system's own class says which.

    Numbers are rounded to float16 wherever they come from, so that an answer is the same with an index.

    Args:
        config: The checkpoint.
        services: Provides the device, and the folder of indexes.
    """

    memory: ClassVar[str]

    def __init__(self, config: SoftCompressorConfig, services: Services) -> None:
        self._loaded = loaded(config, services.device, self.memory)
        self._config, self._services = config, services
        self.device = str(self._loaded.model.device)
        self._open: tuple[str, Any, Any] | None = None
        if config.offline and self._loaded.model.system.queried:
            raise UserError(f"{self.memory} encodes passages with their question: nothing can be kept", where="option offline")
        if config.keep is not None and not self._loaded.model.system.ranks:
            raise UserError(f"this {self.memory} does not rank passages", where="option keep", try_this="keep: null")

    def compress(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus, budget: int | None) -> list[Context]:
        """Vectors of each ranking's passages, of as many of the first as the budget holds whole."""
        return [self._context(query.text, ranking, corpus, budget) for query, ranking in zip(queries, rankings, strict=True)]

    def _context(self, question: str, ranking: Ranking, corpus: Corpus, budget: int | None) -> Context:
        model, ids = self._loaded.model, self._kept(question, ranking, corpus)
        counts = [model.system.count(model, passage.full_text) for passage in corpus.get(ids)]
        fitting = len(counts) if budget is None else sum(total <= budget for total in np.cumsum(counts).tolist())
        kept, of = sum(counts[:fitting]), sum(counts)
        notes = {TRUNCATED: {"unit": "tokens", "kept": kept, "of": of}} if kept < of else {}
        if not kept:
            return Context(ranking.query_id, notes=notes)
        memory = SoftMemory(tuple(self._of(question, corpus, ids[:fitting])), self._loaded.hash)
        return Context(ranking.query_id, memory=memory, notes=notes)

    def _kept(self, question: str, ranking: Ranking, corpus: Corpus) -> Sequence[str]:
        """The passages that stay: all as ranked, or the most relevant first."""
        if self._config.keep is None or not ranking.ids:
            return ranking.ids
        import torch

        model, texts = self._loaded.model, [passage.full_text for passage in corpus.get(ranking.ids)]
        with torch.inference_mode():
            scores = model.system.scored(model, texts, [question] * len(texts))[1]
        order = scores.argsort(descending=True, stable=True).tolist()
        return [ranking.ids[at] for at in order[: self._config.keep]]

    def _of(self, question: str, corpus: Corpus, ids: Sequence[str]) -> list[Tensor]:
        if self._config.offline:
            import torch

            vectors, starts = self.index(corpus)
            rows = [corpus.row(identifier) for identifier in ids]
            return [torch.from_numpy(np.array(vectors[starts[row] : starts[row + 1]])).float() for row in rows]
        texts = [passage.full_text for passage in corpus.get(ids)]
        return [vectors.float() for vectors in self._encoded(texts, [question] * len(texts))]

    def _encoded(self, texts: Sequence[str], queries: Sequence[str] | None = None) -> list[Tensor]:
        import torch

        with torch.inference_mode():
            results = [item.cpu().half() for item in self._loaded.model.encode(texts, queries)]
        if not all(bool(item.isfinite().all()) for item in results):
            raise Broke("a vector is too large for float16", where=self._config.model, try_this="dtype: float32")
        return results

    # -- an index of the whole corpus --

    def index(self, corpus: Corpus, folder: Path | None = None, done: Callable[[int], None] = lambda passages: None) -> tuple[Any, Any]:
        """The vectors of a corpus, and where those of each passage begin: opened, or finished, or made.

        Args:
            corpus: The passages.
            folder: Where they are kept, in place of the usual folder.
            done: Called with how many passages a chunk had.
        """
        if self._open is None or self._open[0] != corpus.fingerprint:
            model = self._loaded.model
            counts = [model.system.count(model, passage.full_text) for passage in corpus]
            starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

            def chunk(start: int) -> Any:
                some = corpus[start : start + CHUNK]
                rows = [item.numpy() for item in self._encoded([passage.full_text for passage in some])]
                done(len(some))
                return np.concatenate(rows) if rows else np.empty((0, model.width), np.float16)

            folder = folder or self.folder(corpus)
            chunks = range(0, len(corpus), CHUNK)
            if folder is None:
                made = [chunk(start) for start in chunks]
                self._open = corpus.fingerprint, np.concatenate(made) if made else np.empty((0, model.width), np.float16), starts
            else:
                path = folder / "vectors.npy"
                built_once(folder, len(corpus), lambda _: write_vectors(path, chunks, chunk, model.width, np.float16))
                self._open = corpus.fingerprint, read_array(path, mapped=bool(starts[-1])), starts
        return self._open[1:]

    def folder(self, corpus: Corpus) -> Path | None:
        """Where the index of a corpus lies; None where nothing is kept."""
        return self._services.folder("memory", fingerprint(LAYOUT, self._loaded.hash, corpus.fingerprint))

    def built(self, corpus: Corpus, folder: Path | None, done: Callable[[int], None]) -> Built:
        """Build the index, or take it over, and say what it is."""
        array, starts = self.index(corpus, folder, done)
        return Built(
            folder or self.folder(corpus), len(corpus), int(starts[-1]), self._loaded.model.width, int(starts[-1]) * array.shape[1] * 2
        )


# -- What it takes --


def known_system(model: str, lengths: Lengths) -> System | None:
    """The system of a checkpoint, of one that is still to be trained too; None where it is neither."""
    training = lengths.training(model)
    if getattr(training, "system", None) is not None:
        return training.system
    try:
        return require_checkpoint(model, where="model")[1]
    except UserError:
        return None


def soft_work(config: SoftCompressorConfig, lengths: Lengths) -> Work:
    """The whole corpus once, or the passages of every question."""
    system = known_system(config.model, lengths)
    if system is None:
        return unknown(f"what {config.model} takes: it is no checkpoint that is here or trained by this experiment")
    source, revision = list(models_of(system).values())[-1]
    base, count = Checkpoint(source, revision, config.dtype or system.config.dtype), typical_count(system, lengths.passage)
    if not config.offline:
        return encode(base, lengths.questions * lengths.handed, lengths.passage + count, causal=True)
    kept = vectors(Checkpoint(system.config.base, system.config.revision), lengths, lengths.corpus * count, HALF)
    index = encode(base, lengths.corpus, lengths.passage + count, causal=True) + kept
    return Work(once=(Once(index, f"memory by {config.model} of {lengths.data}"),))


def soft_needs(config: Any) -> Needs:
    """The models below a checkpoint; of one that is still to be trained its folder; of any other `preflight` says what is missing."""
    try:
        system = require_checkpoint(config.model, where="model")[1]
    except UserError:
        return Needs((Checkpoint(config.model, None, config.dtype),) if Path(config.model).is_absolute() else ())
    folder = Path(locate(config.model))
    named = {name: item for name, item in models_of(system).items() if not (folder / name).is_dir()}
    return Needs(tuple(Checkpoint(source, revision, config.dtype or system.config.dtype) for source, revision in named.values()))


def compressor_of(system: type[System]) -> dict[str, Any]:
    """What the registrations of all compressors into vectors share."""
    return {
        "kind": "compressor",
        "config": SoftCompressorConfig,
        "paper": system.paper,
        "extra": "models",
        "checkpoint_hash": lambda config: weights_hash(config.model),
        "work": soft_work,
        "needs": soft_needs,
    }

"""Compressor role and corpus index of soft compressors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np
from pydantic import Field

from benchmarks.core.errors import Broke, UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import TRUNCATED, Context, Ranking, Services
from methods.baselines.compress.soft import LAYOUT, DType, System, require_checkpoint
from methods.models.embeddings import read_array, write_vectors
from methods.models.pretrained import device_of
from methods.models.weights import locate, weights_hash
from methods.registry import ModelMethodConfig
from methods.retrieval.ranking import built_once
from methods.work import HALF, Checkpoint, Lengths, Needs, Once, Work, encode, unknown, vectors

if TYPE_CHECKING:
    from torch import Tensor

    from methods.baselines.compress.model import SoftModel

CHUNK = 256
"""Passages per write; fixed, so that a resumed index equals one built without interruption."""


class SoftOptions(ModelMethodConfig):
    """Options with a soft compressor's checkpoint and precision."""

    model: str = Field(description="folder of a checkpoint that `ragmeter train` or `train checkpoints convert` made")
    dtype: DType | None = Field(None, description="dtype of the models' weights; null: as in the checkpoint")

    def preflight(self) -> None:
        """Check that the model is such a checkpoint, and that its base models are those it was trained on."""
        require_checkpoint(self.model, where="option model")


class SoftCompressorConfig(SoftOptions):
    """Options of a soft compressor."""

    offline: bool = Field(
        False,
        description="encode the whole corpus before the first question and keep the result; false: encode a question's passages each time",
    )
    keep: int | None = Field(
        None,
        ge=1,
        description="number of passages to keep per question, the most relevant by the checkpoint's own scores (oscar with "
        "ranks); null: all",
    )


@dataclass(frozen=True, slots=True)
class SoftMemory:
    """Memory passed from compressor to reader: float32 [m, h] per passage in ranking order, and the compressor's hash
    (`SoftModel.hash`).
    """

    vectors: tuple[Tensor, ...]
    checkpoint: str


_LOADED: WeakValueDictionary[tuple[Any, ...], SoftModel] = WeakValueDictionary()


def loaded(options: SoftOptions, device: str | None, system: str | None = None) -> SoftModel:
    """Load a checkpoint; pipeline parts that use the same one share it while any of them exists."""
    from methods.baselines.compress.model import SoftModel

    folder, _ = require_checkpoint(options.model, system, where="option model")
    key = (weights_hash(str(folder)), options.dtype, device_of(device))
    result = _LOADED.get(key)
    if result is None:
        result = _LOADED[key] = SoftModel.load(folder, key[2], options.dtype)
    return result


class SoftCompressor:
    """Compressor role: encodes passages as vectors. `training.register_system` makes a subclass per system.

    Vectors are always rounded to float16, so that answers are the same with and without an index.

    Raises:
        UserError: The checkpoint belongs to another system, or an option does not apply to it.
    """

    memory: ClassVar[str]

    def __init__(self, config: SoftCompressorConfig, services: Services) -> None:
        self._model = loaded(config, services.device, self.memory)
        self._config, self._services = config, services
        self.device = str(self._model.device)
        self._open: tuple[str, Any, Any] | None = None
        if config.offline and self._model.system.queried:
            raise UserError(
                f"{self.memory} encodes passages together with the question, so their memory cannot be stored",
                code="nothing-to-keep",
                where="option offline",
            )
        if config.keep is not None and not self._model.system.ranks:
            raise UserError(
                f"this {self.memory} does not rank passages", code="not-passage-ranker", where="option keep", try_this="keep: null"
            )

    def compress(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus, budget: int | None) -> list[Context]:
        """Return the vectors of each ranking's first passages, as many as fit the budget completely."""
        return [self._context(query.text, ranking, corpus, budget) for query, ranking in zip(queries, rankings, strict=True)]

    def _context(self, question: str, ranking: Ranking, corpus: Corpus, budget: int | None) -> Context:
        ids = self._kept(question, ranking, corpus)
        counts = self._counts(corpus.get(ids))
        fitting = len(counts) if budget is None else sum(total <= budget for total in np.cumsum(counts).tolist())
        kept, of = sum(counts[:fitting]), sum(counts)
        notes = {TRUNCATED: {"unit": "tokens", "kept": kept, "of": of}} if kept < of else {}
        if not kept:
            return Context(ranking.query_id, notes=notes)
        memory = SoftMemory(tuple(self._of(question, corpus, ids[:fitting])), self._model.hash)
        return Context(ranking.query_id, memory=memory, notes=notes)

    def _counts(self, passages: Iterable[Passage]) -> list[int]:
        return [self._model.system.count(self._model, passage.full_text) for passage in passages]

    def _kept(self, question: str, ranking: Ranking, corpus: Corpus) -> Sequence[str]:
        """Return the passages to keep: all as ranked, or the most relevant ones."""
        if self._config.keep is None or not ranking.ids:
            return ranking.ids
        import torch

        texts = [passage.full_text for passage in corpus.get(ranking.ids)]
        with torch.inference_mode():
            scores = self._model.system.scored(self._model, texts, [question] * len(texts))[1]
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
            results = [item.cpu().half() for item in self._model.encode(texts, queries)]
        if not all(bool(item.isfinite().all()) for item in results):
            raise Broke("a vector is too large for float16", code="vector-overflow", where=self._config.model, try_this="dtype: float32")
        return results

    def folder(self, corpus: Corpus) -> Path | None:
        """Return the folder of a corpus's index; None if indexes are not saved."""
        return self._services.folder("memory", fingerprint(LAYOUT, self._model.hash, corpus.fingerprint))

    def index(self, corpus: Corpus, folder: Path | None = None, done: Callable[[int], None] = lambda passages: None) -> tuple[Any, Any]:
        """Open, resume or build the index of a corpus: vectors float16 [n, h], and the start of each passage.

        Args:
            corpus: The passages.
            folder: Folder that replaces the default one.
            done: Called after each chunk with its number of passages.
        """
        if self._open is None or self._open[0] != corpus.fingerprint:
            starts = np.concatenate([[0], np.cumsum(self._counts(corpus))]).astype(np.int64)

            def chunk(start: int) -> Any:
                some = corpus[start : start + CHUNK]
                rows = [item.numpy() for item in self._encoded([passage.full_text for passage in some])]
                done(len(some))
                return np.concatenate(rows)

            folder = folder or self.folder(corpus)
            chunks, width = range(0, len(corpus), CHUNK), self._model.width
            if folder is None:
                array = np.concatenate([np.empty((0, width), np.float16), *map(chunk, chunks)])
            else:
                path = folder / "vectors.npy"
                built_once(folder, len(corpus), lambda _: write_vectors(path, chunks, chunk, width, np.float16))
                array = read_array(path, mapped=bool(starts[-1]))
            self._open = corpus.fingerprint, array, starts
        return self._open[1:]


def known_system(model: str, lengths: Lengths) -> System | None:
    """Return the system of a checkpoint, or of one that is still to be trained; None if the name is neither."""
    training = lengths.training(model)
    if getattr(training, "system", None) is not None:
        return training.system
    try:
        return require_checkpoint(model, where="model")[1]
    except UserError:
        return None


def unknown_system(model: str) -> Work:
    """Return unknown work, for a checkpoint that cannot be identified."""
    return unknown(f"what {model} takes: it is not a checkpoint that is here or trained by this experiment")


def soft_work(config: SoftCompressorConfig, lengths: Lengths) -> Work:
    """Estimate the work of encoding the whole corpus once, or the passages of every question."""
    system = known_system(config.model, lengths)
    if system is None:
        return unknown_system(config.model)
    base = Checkpoint(*list(system.models.values())[-1], config.dtype or system.config.dtype)
    count = system.typical_count(lengths.passage)
    if not config.offline:
        return encode(base, lengths.questions * lengths.handed, lengths.passage + count, causal=True)
    kept = vectors(Checkpoint(system.config.base, system.config.revision), lengths, lengths.corpus * count, HALF)
    index = encode(base, lengths.corpus, lengths.passage + count, causal=True) + kept
    return Work(once=(Once(index, f"memory by {config.model} of {lengths.data}"),))


def soft_needs(config: Any) -> Needs:
    """Return the base models of a checkpoint; for one that is still to be trained, its folder."""
    try:
        system = require_checkpoint(config.model, where="model")[1]
    except UserError:
        return Needs((Checkpoint(config.model, None, config.dtype),) if Path(config.model).is_absolute() else ())
    named = [item for name, item in system.models.items() if not (Path(locate(config.model)) / name).is_dir()]
    return Needs(tuple(Checkpoint(*item, config.dtype or system.config.dtype) for item in named))

"""Passages as vectors: what a system says of itself, its checkpoint, and the compressor that it becomes.

    memory.json             system, options, hashes of the models that it stands on
    weights.safetensors     what was trained beside them: adapters, learned rows, projectors
    language_model/ encoder/    models that were trained as a whole

Models that stayed frozen are not in a checkpoint, and must be those that it was trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from weakref import WeakValueDictionary

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from benchmarks.core.errors import Broke, UserError, unknown_name
from benchmarks.core.fingerprint import fingerprint
from benchmarks.corpus import Corpus
from benchmarks.schema import Query
from methods.api import TRUNCATED, Context, Ranking, Services
from methods.models.embeddings import read_array, write_vectors
from methods.models.weights import device_of, locate, weights_hash
from methods.registry import MethodConfig
from methods.retrieval.ranking import built_once
from methods.training.stages import read_json
from methods.work import HALF, Checkpoint, Lengths, Needs, Once, Work, encode, unknown, vectors

if TYPE_CHECKING:
    from torch import Tensor, nn

    from methods.baselines.compress.model import SoftModel
    from methods.training.pieces import Piece

CARD, WEIGHTS, LANGUAGE_MODEL, ENCODER = "memory.json", "weights.safetensors", "language_model", "encoder"
LAYOUT = 1
"""Of a checkpoint's folder; bump it when what it holds changes."""
DType = Literal["float32", "bfloat16", "float16", "auto"]
MISTRAL = "mistralai/Mistral-7B-Instruct-v0.2"


class SoftConfig(BaseModel):
    """Options of a model that reads vectors: what all systems share."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: str = Field(MISTRAL, description="causal language model that answers: a folder, hub id or `pocket`, the model that ships")
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: DType | None = Field(None, description="of the base's weights; null: float32 on CPU, the checkpoint's own elsewhere")
    max_length: int = Field(128, ge=1, description="tokens encoded at once; a longer passage is split, none of it is lost")
    max_prompt: int = Field(2048, ge=16, description="longest prompt with its answer in tokens; a longer one fails")
    template: Literal["auto", "pocket", "plain"] = Field(
        "auto", description="auto: the base's chat template where it has one, the pocket model's format for that; plain: without"
    )
    memory_init: Literal["mean", "spread"] = Field(
        "mean", description="where learned rows begin: all at the mean of the base's embeddings (released), or drawn about it (ours)"
    )


class System:
    """What sets a system apart; made of its options, without loading anything.

    Attributes:
        name: Of the system, of its compressor and of its training.
        config_class: Of its options.
        stages: Of its training.
        adapters: Low-rank adapters on the base.
        reads: The adapter that answers; None: the base itself.
        queried: Whether a passage's memory depends on the question.
    """

    name: ClassVar[str]
    config_class: ClassVar[type[SoftConfig]] = SoftConfig
    stages: ClassVar[tuple[str, ...]] = ("tuned",)
    adapters: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[str | None] = None
    queried: ClassVar[bool] = False

    def __init__(self, config: Any) -> None:
        self.config = config

    @property
    def whole(self) -> tuple[str, ...]:
        """Models that train as a whole, and lie in the checkpoint."""
        return ()

    @property
    def encoder(self) -> tuple[str, str] | None:
        """Class of `transformers`, and folder or hub id, of the model that encodes; None: the base."""
        return None

    def parts(self, model: SoftModel) -> dict[str, nn.Module]:
        """What it learns beside adapters and whole models."""
        raise NotImplementedError

    def count(self, model: SoftModel, text: str) -> int:
        """Vectors of a passage; 0 for an empty one."""
        raise NotImplementedError

    def encode(self, model: SoftModel, texts: Sequence[str], queries: Sequence[str] | None = None) -> list[Tensor]:
        """Memory of passages, float32 [count, h] each; the result depends on each text (and its question) alone."""
        raise NotImplementedError

    def block(self, model: SoftModel, memory: Tensor) -> list[Piece]:
        """How a passage's memory stands in a prompt."""
        return [memory]

    def prompt(self, model: SoftModel, question: str, memory: Sequence[Tensor]) -> list[Piece]:
        """The prompt that asks a question about passages in memory."""
        return model.prompt(question, [self.block(model, item) for item in memory])

    def restoring(self, model: SoftModel, memory: Tensor, draw: int) -> list[Piece]:
        """The prompt behind which a passage is written out again; `draw` chooses among wordings."""
        raise NotImplementedError

    def continuing(self, model: SoftModel, memory: Tensor) -> list[Piece]:
        """The prompt behind which a text goes on."""
        return [model.bos, *self.block(model, memory)]

    def losses(self, model: SoftModel, rows: Sequence[Any]) -> tuple[Tensor, int] | None:
        """The loss of rows summed over what is predicted, and how much that is; None: of replies behind prompts (`training.py`)."""
        return None

    def predicted(self, model: SoftModel, row: Any) -> int:
        """Tokens of a row that its loss is over."""
        return len(model.reply(row.target))

    def trained(self, stage: str) -> set[str]:
        """What a stage trains: adapters by name, `parts`, `parts.NAME`, `language_model`, `encoder`."""
        return {*self.adapters, *self.whole, "parts"}


SYSTEMS: dict[str, str] = {"autocompressor": "AutoCompressor", "xrag": "Xrag", "cocom": "Cocom", "pcc": "Pcc", "pisco": "Pisco"}
"""Systems, and the class of each in the module of its name."""


def system_of(name: str, options: Mapping[str, Any] | SoftConfig) -> System:
    """A system with its options.

    Raises:
        UserError: There is no such system.
        pydantic.ValidationError: An option is unknown or of the wrong type.
    """
    from importlib import import_module

    if name not in SYSTEMS:
        raise unknown_name("compressor", name, SYSTEMS)
    kind = getattr(import_module(f"methods.baselines.compress.{name}"), SYSTEMS[name])
    return kind(options if isinstance(options, SoftConfig) else kind.config_class.model_validate(options))


def require_checkpoint(model: str, system: str | None = None, *, where: str) -> tuple[Path, System]:
    """The folder of a checkpoint, and what it is of.

    Args:
        model: A folder.
        system: What it must be of; None: of any system.
        where: The option that names it, for the message.

    Raises:
        UserError: It is none, of another system, damaged, or a model below it is not the one that it was trained on.
    """
    remedy = f"a folder that `ragmeter train {system or 'pisco'}` or `ragmeter train checkpoints convert` wrote"
    try:
        folder = Path(locate(model))
    except UserError as error:
        raise UserError(error.what, where=where, try_this=remedy) from None
    if not (folder / CARD).is_file():
        raise UserError(f"{model!r} is not a checkpoint of a compressor into vectors", where=where, try_this=remedy)
    path = folder / CARD
    card = read_json(path)
    try:
        if card["layout"] != LAYOUT:
            raise UserError(f"this checkpoint has layout {card['layout']}; {LAYOUT} is read", where=str(path), try_this="make it again")
        made, hashes = system_of(card["system"], card["config"]), dict(card["models"])
    except (KeyError, TypeError, ValidationError) as error:
        raise UserError(f"the checkpoint is damaged: {error}", where=str(path), try_this="its original files") from error
    if system not in (None, made.name):
        raise UserError(f"this checkpoint is of {made.name}, not of {system}", where=where, try_this=f"compressor: {made.name}")
    for name, (source, revision) in models_of(made).items():
        if hashes.get(name) is not None and weights_hash(source, revision) != hashes[name]:
            raise UserError(
                f"the {name.replace('_', ' ')} {source!r} is not the one that this checkpoint was trained on",
                where=str(path),
                try_this="the model as it was, or train again",
            )
    return folder, made


def models_of(system: System) -> dict[str, tuple[str, str | None]]:
    """The published models that a system stands on, by role, each with its revision."""
    own = {LANGUAGE_MODEL: (system.config.base, system.config.revision)}
    return own if system.encoder is None else {**own, ENCODER: (system.encoder[1], None)}


# -- A checkpoint in use --


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

    def compress(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus, budget: int | None) -> list[Context]:
        """Vectors of each ranking's passages, of as many of the first as the budget holds whole."""
        return [self._context(query.text, ranking, corpus, budget) for query, ranking in zip(queries, rankings, strict=True)]

    def _context(self, question: str, ranking: Ranking, corpus: Corpus, budget: int | None) -> Context:
        model = self._loaded.model
        counts = [model.system.count(model, passage.full_text) for passage in corpus.get(ranking.ids)]
        fitting = len(counts) if budget is None else sum(total <= budget for total in np.cumsum(counts).tolist())
        kept, of = sum(counts[:fitting]), sum(counts)
        notes = {TRUNCATED: {"unit": "tokens", "kept": kept, "of": of}} if kept < of else {}
        if not kept:
            return Context(ranking.query_id, notes=notes)
        memory = SoftMemory(tuple(self._of(question, corpus, ranking.ids[:fitting])), self._loaded.hash)
        return Context(ranking.query_id, memory=memory, notes=notes)

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


def typical_count(system: System, length: float) -> float:
    """Vectors of a passage of so many tokens."""
    segments = -(-length // system.config.max_length)
    return float(segments * getattr(system.config, "memory_tokens", 1))


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


SOFT: dict[str, Any] = {
    "kind": "compressor",
    "config": SoftCompressorConfig,
    "extra": "models",
    "checkpoint_hash": lambda config: weights_hash(config.model),
    "work": soft_work,
    "needs": soft_needs,
}
"""What the registrations of all compressors into vectors share."""

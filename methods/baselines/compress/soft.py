"""Interface of soft compressors (passages as vectors), and their checkpoint format.

    memory.json             system, options, hashes of the models that it is on
    weights.safetensors     what was trained next to them: adapters, learned rows, projectors
    language_model/ encoder/    models that were trained as a whole

Frozen models are not included in a checkpoint; loading checks that they are the ones used in training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar

from pydantic import Field, ValidationError

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.core.models import LaterOptions
from methods.models.weights import has_hash, locate
from methods.training import TRAININGS
from methods.training.stages import read_card

if TYPE_CHECKING:
    from torch import Tensor, nn

    from methods.training.pieces import Piece

CARD, WEIGHTS, LANGUAGE_MODEL, ENCODER = "memory.json", "weights.safetensors", "language_model", "encoder"
LAYOUT = 1
"""Layout version of a checkpoint's folder; increase it if the contents change."""
SYSTEMS = ("autocompressor", "xrag", "cocom", "pcc", "pisco", "oscar")
"""Names of the systems; each is registered in the module of the same name."""
T = TypeVar("T")
SoftModel: TypeAlias = Any
"""Placeholder type for `model.SoftModel`, which imports this file."""
DType = Literal["float32", "bfloat16", "float16", "auto"]
MISTRAL = "mistralai/Mistral-7B-Instruct-v0.2"


class SoftConfig(LaterOptions):
    """Options shared by all soft compressors."""

    later: ClassVar[tuple[str, ...]] = ("encoding",)

    base: str = Field(MISTRAL, description="causal language model that answers: a folder, hub id or `pocket`, the model that ships")
    revision: str | None = Field(None, description="revision of a hub id")
    dtype: DType | None = Field(None, description="dtype of the base's weights; null: float32 on CPU, the checkpoint's own elsewhere")
    max_length: int = Field(128, ge=1, description="tokens encoded at once; a longer passage is split, nothing is dropped")
    max_prompt: int = Field(2048, ge=16, description="longest prompt with its answer in tokens; a longer prompt fails")
    template: Literal["auto", "pocket", "plain"] = Field(
        "auto", description="auto: the base's chat template if it has one, or the pocket model's format; plain: no template"
    )
    memory_init: Literal["mean", "spread"] = Field(
        "mean",
        description="initial value of learned embeddings: mean, the mean of the base's embeddings (released), or spread, sampled "
        "around it (ours)",
    )
    positions: Literal["after", "spread"] = Field(
        "after",
        description="positions of memory tokens in attention: after the text, or spread, each at the end of its share of the text (ours)",
    )
    memory_length: Literal["state", "embedding"] = Field(
        "state", description="length of vectors in a prompt: as they were made, or the mean length of the base's embeddings (ours)"
    )
    encoding: Literal["segments", "published"] = Field(
        "segments",
        description="segments: split a long passage; published: read passages as the authors' code does (pisco, cocom: one part, "
        "cut at max_length, its first token tokenized as if after the beginning-of-text token; light: padded with "
        "[PAD]; autocompressor: no beginning-of-text token; xrag: vectors are never scaled), with the published "
        "question format (`prompt` of memory_reader). Converted checkpoints use published",
    )

    @property
    def published(self) -> bool:
        """Return whether passages are formatted as in the authors' code."""
        return self.encoding == "published"


class System(ABC):
    """Interface of a soft compressor. An instance has its options, but no weights.

    Attributes:
        name: Name of the system, its compressor and its training.
        paper: The publication.
        config_class: Class of its options.
        stages: Training stages.
        adapters: Names of the LoRA adapters on the base.
        reads: Adapter for answering; None for the bare base.
        learned: Names of `parts` that every stage trains.
        queried: Whether a passage's memory depends on the question.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    config_class: ClassVar[type[SoftConfig]]
    stages: ClassVar[tuple[str, ...]] = ("tuned",)
    adapters: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[str | None] = None
    learned: ClassVar[tuple[str, ...]]
    queried: ClassVar[bool] = False

    def __init__(self, config: Any) -> None:
        self.config = config

    @property
    def encoder(self) -> tuple[str, str] | None:
        """Return the `transformers` class and folder or hub id of the separate encoder; None if the base encodes."""
        return None

    @property
    def whole(self) -> tuple[str, ...]:
        """Return the roles of models that are fully trained and stored in the checkpoint."""
        return (ENCODER,) if self.encoder else ()

    @property
    def models(self) -> dict[str, tuple[str, str | None]]:
        """Return the published models by role, each with its revision; the encoder is last."""
        own = {LANGUAGE_MODEL: (self.config.base, self.config.revision)}
        return {**own, ENCODER: (self.encoder[1], None)} if self.encoder else own

    @property
    def ranks(self) -> bool:
        """Return whether the system also predicts the relevance of passages (`scored`)."""
        return bool(getattr(self.config, "ranks", False))

    def typical_count(self, length: float) -> float:
        """Return the expected number of vectors for a passage of this many tokens."""
        return float(-(-length // self.config.max_length) * getattr(self.config, "memory_tokens", 1))

    @abstractmethod
    def parts(self, model: SoftModel) -> dict[str, nn.Module]:
        """Return the trained modules other than adapters and whole models."""

    @abstractmethod
    def count(self, model: SoftModel, text: str) -> int:
        """Return the number of memory vectors of a passage; 0 if it is empty."""

    @abstractmethod
    def encode(self, model: SoftModel, texts: Sequence[str], queries: Sequence[str]) -> list[Tensor]:
        """Encode passages, float32 [count, h] each; results depend only on each text (and its question)."""

    def scored(self, model: SoftModel, texts: Sequence[str], queries: Sequence[str]) -> tuple[list[Tensor], Tensor]:
        """Encode passages, and predict the relevance of each to its question, float32 [N].

        Raises:
            UserError: The system does not rank.
        """
        raise UserError(
            f"this {self.name} does not rank passages",
            code="not-passage-ranker",
            where="model",
            try_this="a checkpoint of oscar with model.ranks=true",
        )

    def block(self, model: SoftModel, memory: Tensor) -> list[Piece]:
        """Return the prompt pieces for a passage's memory."""
        return [memory]

    def prompt(self, model: SoftModel, question: str, memory: Sequence[Tensor]) -> list[Piece]:
        """Build the prompt for a question about passages in memory."""
        return model.prompt(question, [self.block(model, item) for item in memory])

    def continuing(self, model: SoftModel, memory: Tensor) -> list[Piece]:
        """Build the prompt for continuing a text from its memory."""
        return [model.bos, *self.block(model, memory)]

    def restoring(self, model: SoftModel, memory: Tensor, draw: int) -> list[Piece]:
        """Build the prompt for restoring a passage from its memory; `draw` selects the wording."""
        return self.continuing(model, memory)

    def losses(self, model: SoftModel, rows: Sequence[Any]) -> tuple[Tensor, int] | None:
        """Compute a system-specific loss, summed over predictions, and their number; None for the default loss of replies
        (`training.py`).
        """
        return None

    def predicted(self, model: SoftModel, row: Any) -> int:
        """Return the number of tokens of a row in the loss."""
        return sum(len(model.reply(target)) for _, target in row.asked)

    def trained(self, stage: str) -> set[str]:
        """Return the parts that a stage trains: adapter names, `language_model`, `encoder`, `parts.NAME`."""
        return {*self.adapters, *self.whole, *(f"parts.{name}" for name in self.learned)}


class SegmentSystem(System):
    """Base class of systems that encode a passage in segments, with `memory_tokens` vectors each."""

    def segments(self, model: SoftModel, text: str) -> list[list[int]]:
        """Tokenize a passage and split it into segments of at most `max_length` tokens; [] if it is empty."""
        return cut(model.ids(text), self.config.max_length)

    @abstractmethod
    def row(self, model: SoftModel, ids: Sequence[int], query: str) -> list[Piece]:
        """Return the encoder input of a segment, with memory tokens at the end."""

    @abstractmethod
    def vectors(self, model: SoftModel, rows: Sequence[Sequence[Piece]]) -> Tensor:
        """Encode rows to memory, float32 [N, memory_tokens, h]."""

    def pieces_of(self, model: SoftModel, parts: Sequence[Sequence[Sequence[int]]], queries: Sequence[str]) -> list[list[Piece]]:
        """Return the encoder inputs of all segments of passages, in order."""
        return [self.row(model, ids, query) for own, query in zip(parts, queries, strict=True) for ids in own]

    def count(self, model: SoftModel, text: str) -> int:
        return len(self.segments(model, text)) * int(self.config.memory_tokens)

    def encode(self, model: SoftModel, texts: Sequence[str], queries: Sequence[str]) -> list[Tensor]:
        parts = [self.segments(model, text) for text in texts]
        return list(model.joined(parts, self.vectors(model, self.pieces_of(model, parts, queries))))


def cut(items: Sequence[T], most: int) -> list[list[T]]:
    """Split a sequence into parts of at most `most` items."""
    return [list(items[start : start + most]) for start in range(0, len(items), most)]


def system_of(name: str, options: Mapping[str, Any]) -> System:
    """Create a system from its name and options.

    Raises:
        UserError: The system does not exist.
        pydantic.ValidationError: An option is unknown or of the wrong type.
    """
    if name not in SYSTEMS:
        raise unknown_name("compressor", name, SYSTEMS)
    import_module(f"methods.baselines.compress.{name}")
    kind: type[System] = TRAININGS.get(name).config.system_class  # type: ignore[attr-defined]
    return kind(kind.config_class.model_validate(options))


def require_checkpoint(model: str, system: str | None = None, *, where: str) -> tuple[Path, System]:
    """Return the folder of a checkpoint and its system.

    Args:
        model: A folder.
        system: Required system; None for any.
        where: The option that names it, for the message.

    Raises:
        UserError: The folder is not a checkpoint, belongs to another system or is damaged, or a base model is not the one it
            was trained on.
    """
    remedy = f"a folder that `ragmeter train {system or 'pisco'}` or `ragmeter train checkpoints convert` wrote"
    try:
        folder = Path(locate(model))
    except UserError as error:
        raise UserError(error.what, code=error.code, where=where, try_this=remedy) from None
    path = folder / CARD
    if not path.is_file():
        raise UserError(
            f"{model!r} is not a checkpoint of a compressor into vectors", code="not-compressor-checkpoint", where=where, try_this=remedy
        )
    card = read_card(path)
    try:
        if card["layout"] != LAYOUT:
            raise UserError(
                f"this checkpoint has layout {card['layout']}; {LAYOUT} is read",
                code="checkpoint-layout-mismatch",
                where=str(path),
                try_this="create the checkpoint again",
            )
        made, hashes = system_of(card["system"], card["config"]), dict(card["models"])
    except (KeyError, TypeError, ValidationError) as error:
        raise UserError(
            f"the checkpoint is damaged: {error}", code="checkpoint-damaged", where=str(path), try_this="its original files"
        ) from error
    if system not in (None, made.name):
        raise UserError(
            f"this checkpoint belongs to {made.name}, not to {system}",
            code="checkpoint-of-other-system",
            where=where,
            try_this=f"compressor: {made.name}",
        )
    for name, (source, revision) in made.models.items():
        if hashes.get(name) is not None and not has_hash(source, revision, hashes[name]):
            raise UserError(
                f"the {name.replace('_', ' ')} {source!r} is not the one that this checkpoint was trained on",
                code="part-base-mismatch",
                where=str(path),
                try_this="restore the original model, or train again",
            )
    return folder, made

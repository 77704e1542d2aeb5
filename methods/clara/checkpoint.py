"""A checkpoint: which base, one PEFT folder per adapter, and the rows of the new tokens.

    clara.json              options, adapters, and a hash of the base
    compressor/ generator/ reasoner/    each loads by plain `PeftModel.from_pretrained(base, folder)`
    memory.safetensors      memory [M, h], and marks [2, h]

The base is not in it, and must be the one that it was trained on. In use it is loaded once for all parts of a pipeline; what
its authors published is converted into this layout.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

from pydantic import Field, ValidationError

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import file_sha256, fingerprint
from benchmarks.corpus import Corpus
from methods.api import Services
from methods.clara.config import ADAPTERS, TEXT, Adapter, ClaraConfig, ClaraTrainingConfig
from methods.clara.store import Compressed, HalfType, Identity, MemoryStore, Progress, in_memory, write
from methods.models.weights import CLARA_POCKET, device_of, locate, weights_hash
from methods.registry import ModelMethodConfig
from methods.training.adapters import Adapters
from methods.training.released import ADAPTERS as PUBLISHED
from methods.training.released import ENDS, Released, adapter_names, new_rows, pickled
from methods.training.stages import read_json, write_json
from methods.work import Checkpoint, Lengths, Needs

if TYPE_CHECKING:
    from torch import Tensor

    from methods.training.soft_prompts import MemoryRows

CONFIG, ROWS = "clara.json", "memory.safetensors"
LAYOUT = 1
"""Of the folder; bump it when what it holds changes."""


def model_of(model: str, lengths: Lengths) -> ClaraConfig | None:
    """The model of a checkpoint, of one that is still to be trained too; None where it is neither."""
    training = lengths.training(model)
    if isinstance(training, ClaraTrainingConfig):
        return trained_model(training, lengths)
    try:
        return read_config(require_checkpoint(model, where="model"))[0]
    except UserError:
        return None


def trained_model(config: ClaraTrainingConfig, lengths: Lengths) -> ClaraConfig:
    """The model that a training is of: that of the checkpoint which it begins from, where it does not say."""
    if config.start is None or "model" in config.model_fields_set:
        return config.model
    return model_of(config.start, lengths) or config.model


def needs(config: Any) -> Needs:
    """The base of a checkpoint, or the base that is named; of a checkpoint that is not here the folder."""
    try:
        base = read_config(require_checkpoint(config.model, where="model"))[0]
    except UserError:
        return Needs((Checkpoint(config.model, getattr(config, "revision", None), config.dtype),))
    return Needs((Checkpoint(base.base, base.revision, config.dtype or base.dtype),))


def save(adapters: Adapters, rows: MemoryRows, config: ClaraConfig, folder: Path) -> None:
    """Write a checkpoint; equal models give equal files.

    Args:
        adapters: All of them are written.
        rows: The new tokens' rows.
        config: What the model is.
        folder: Made if need be.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    adapters.model.save_pretrained(str(folder), selected_adapters=list(adapters.names), save_embedding_layers=False)
    # PEFT adds a card of its own, and its settings list layers in no order and name its version.
    (folder / "README.md").unlink(missing_ok=True)
    for name in adapters.names:
        path = folder / name / "adapter_config.json"
        settings = json.loads(path.read_text("utf-8"))
        settings.pop("peft_version", None)
        settings["target_modules"] = sorted(settings["target_modules"])
        path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", "utf-8")
    save_file({name: item.detach().cpu().contiguous() for name, item in rows.state_dict().items()}, str(folder / ROWS))
    write_json(
        folder / CONFIG,
        {
            "layout": LAYOUT,
            "config": config.model_dump(mode="json"),
            "adapters": list(adapters.names),
            "base_hash": weights_hash(config.base, config.revision),
        },
    )


def read_config(folder: Path) -> tuple[ClaraConfig, tuple[Adapter, ...]]:
    """What the model of a checkpoint is.

    Returns:
        Its options, and the adapters that it has.

    Raises:
        UserError: The folder is no checkpoint of CLaRa, or its base is not the one it was trained on.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise UserError("this is not a checkpoint of CLaRa", where=str(folder), try_this="a folder that `ragmeter train clara` wrote")
    card = read_json(path)
    try:
        if card["layout"] != LAYOUT:
            raise UserError(
                f"this checkpoint has layout {card['layout']}; {LAYOUT} is read",
                where=str(path),
                try_this="train it again with this version",
            )
        config, base_hash = ClaraConfig.model_validate(card["config"]), card["base_hash"]
        names = tuple(adapter for adapter in ADAPTERS if adapter in card["adapters"])
    except (KeyError, TypeError, ValidationError) as error:
        raise UserError(f"the checkpoint is damaged: {error}", where=str(path), try_this="its original files") from error
    if weights_hash(config.base, config.revision) != base_hash:
        raise UserError(
            f"the base {config.base!r} is not the one that this checkpoint was trained on",
            where=str(path),
            try_this="the base as it was, or train again",
        )
    return config, names


def texts_only(adapters: Sequence[str]) -> bool:
    """Whether a checkpoint with these adapters reads documents as text: it has what writes, and nothing that compresses."""
    return tuple(adapters) == TEXT


def restore(adapters: Adapters, rows: MemoryRows, folder: Path) -> None:
    """Give a model the weights of a checkpoint; nothing else changes, and nothing opens for training.

    Raises:
        UserError: A file is missing or damaged, or its tensors are not those of the model.
    """
    import torch
    from peft import get_peft_model_state_dict
    from safetensors.torch import load_file

    device = str(rows.memory.device)
    wanted = [(folder / ROWS, dict(rows.state_dict()))]
    for name in adapters.names:
        own = get_peft_model_state_dict(adapters.model, adapter_name=name, save_embedding_layers=False)
        wanted.append((folder / name / "adapter_model.safetensors", own))
    for path, own in wanted:
        try:
            result = load_file(str(path), device=device)
        except Exception as error:
            raise UserError(f"a file cannot be read: {error}", where=str(path), try_this="its original files") from error
        if {key: item.shape for key, item in result.items()} != {key: item.shape for key, item in own.items()}:
            raise UserError("the file holds other tensors than the model", where=str(path), try_this="its own base")
        with torch.no_grad():
            for key, item in own.items():
                item.copy_(result[key])


def require_checkpoint(model: str, *, where: str) -> Path:
    """The folder of a checkpoint of CLaRa.

    Args:
        model: A folder, or the name of the adapters that ship.
        where: The option that names it, for the message.

    Raises:
        UserError: It is none.
    """
    folder = Path(locate(model))
    if not (folder / CONFIG).is_file():
        raise UserError(
            f"{model!r} is not a checkpoint of CLaRa",
            where=where,
            try_this=f"a folder that `ragmeter train clara` wrote, or {CLARA_POCKET}, which ships",
        )
    return folder


VERSION = 2
"""Of how documents are read; bump it when their memory may change."""
DType = Literal["float32", "bfloat16", "float16", "auto"]


class CheckpointOptions(ModelMethodConfig):
    """Which checkpoint, and in what precision."""

    model: str = Field(description="folder of a checkpoint that `ragmeter train clara` made, or `clara-pocket`, which ships")
    dtype: DType | None = Field(None, description="of the base's weights; null: as the checkpoint says")

    def preflight(self) -> None:
        """Check that the model is a checkpoint of CLaRa, and its base the one that it was trained on."""
        read_config(require_checkpoint(self.model, where="clara, option model"))


class Loaded:
    """A checkpoint in memory.

    Args:
        folder: The checkpoint.
        dtype: Of the base's weights.
        device: Where it computes.

    Attributes:
        clara: The model.
        compressor: Hash of what decides a document's memory; equal for checkpoints that share their compressor.
    """

    def __init__(self, folder: Path, dtype: str | None, device: str) -> None:
        from methods.clara.model import Clara

        self.clara = Clara.load(folder, device, dtype)
        self.require("compressor")
        config = self.clara.config
        parts = folder / ROWS, folder / "compressor" / "adapter_model.safetensors"
        # What only the generator, the selector and training read is left out.
        reads = config.model_dump(mode="json", exclude={"base", "revision", "dtype", "max_prompt", "tau", "mask", "k"})
        self.compressor = fingerprint(
            VERSION, weights_hash(config.base, config.revision), str(self.clara.base.dtype), reads, [file_sha256(part) for part in parts]
        )

    def require(self, adapter: Adapter) -> None:
        """Check that the checkpoint has an adapter.

        Raises:
            UserError: It has not.
        """
        if adapter not in self.clara.adapters.names:
            raise UserError(
                f"this checkpoint has no {adapter}: it has {', '.join(self.clara.adapters.names)}",
                where="clara, option model",
                try_this="a checkpoint that reads memory; of `reads: text`, the reader clara_text",
            )


_LOADED: WeakValueDictionary[tuple[Any, ...], Loaded] = WeakValueDictionary()


def loaded(options: CheckpointOptions, device: str | None) -> Loaded:
    """The model of a checkpoint; parts of a pipeline that name the same one share it as long as one of them lives."""
    folder = require_checkpoint(options.model, where="clara, option model")
    key = (weights_hash(str(folder)), options.dtype, device_of(device))
    result = _LOADED.get(key)
    if result is None:
        result = _LOADED[key] = Loaded(folder, options.dtype, key[2])
    return result


STORES = "clara"
"""Folder of stores below the artifacts."""


class DocumentOptions(CheckpointOptions):
    """A checkpoint, and when documents are compressed."""

    offline: bool = Field(
        False,
        description="compress the whole corpus before the first question, and keep it; false: a question's documents, "
        "each time it is asked",
    )
    memory_dtype: HalfType | None = Field(
        None, description="in which memory is kept; null: bfloat16 where the base computes in it, else float16"
    )


class Documents:
    """Memory of the documents of corpora.

    Numbers are rounded to the type of stores wherever they come from, so that an answer is the same with a store.

    Args:
        loaded: The model.
        options: When documents are compressed, and how they are kept.
        services: Provides the folder of stores.
    """

    def __init__(self, loaded: Loaded, options: DocumentOptions, services: Services) -> None:
        self._loaded, self._options, self._services = loaded, options, services
        self._open: tuple[str, MemoryStore] | None = None

    @property
    def dtype(self) -> HalfType:
        """In which type memory is kept."""
        computes = str(self._loaded.clara.base.dtype).rpartition(".")[2]
        return self._options.memory_dtype or ("bfloat16" if computes == "bfloat16" else "float16")

    def identity(self, corpus: Corpus) -> Identity:
        """What a store of this corpus is."""
        clara = self._loaded.clara
        return Identity(self._loaded.compressor, corpus.fingerprint, len(corpus), clara.memory_tokens, clara.hidden_size, self.dtype)

    def folder(self, corpus: Corpus) -> Path | None:
        """Where the store of a corpus lies; None where nothing is kept."""
        return self._services.folder(STORES, self.identity(corpus).fingerprint)

    def store(self, corpus: Corpus, folder: Path | None = None, progress: Progress | None = None) -> MemoryStore:
        """The store of a whole corpus: opened, or finished, or made.

        Args:
            corpus: Whose documents.
            folder: Where to keep it in place of the usual folder.
            progress: Called after every chunk.
        """
        if self._open is None or self._open[0] != corpus.fingerprint:
            folder = folder or self.folder(corpus)
            identity = self.identity(corpus)
            result = (
                in_memory(corpus, identity, self._compress, progress)
                if folder is None
                else write(folder, corpus, identity, self._compress, progress)
            )
            self._open = corpus.fingerprint, result
        return self._open[1]

    def of(self, corpus: Corpus, ids: Sequence[str]) -> Tensor:
        """Memory of some documents: a float32 tensor [n, M, h] on the CPU.

        What is not in a store is compressed together, so it depends on these documents alone.
        """
        if self._options.offline:
            store = self.store(corpus)
            return store.memory(store.find_rows(ids))
        import torch

        made = self._compress([passage.full_text for passage in corpus.get(ids)]).memory
        return made.cpu().to(getattr(torch, self.dtype)).float()

    def _compress(self, texts: Sequence[str]) -> Compressed:
        import torch

        clara = self._loaded.clara
        with torch.inference_mode():
            memory = clara.encode(texts).memory
        return Compressed(memory, sum(map(len, clara.compressor.ids(texts))))


_THEIRS: tuple[tuple[str, Adapter], ...] = (
    ("encoder_adapter", "compressor"),
    ("decoder_adapter", "generator"),
    ("query_reasoner_adapter", "reasoner"),
)


def convert(source: Released, folder: Path, base: str | None, options: Mapping[str, Any], device: str | None = None) -> ClaraConfig:
    """Write a checkpoint that CLaRa's authors published as one of ours; one that has no reasoner yet ranks by its compressor.

    Args:
        source: What was published.
        folder: Where to; must not exist.
        base: The base, in place of the one that it names by a path of its authors.
        options: Of the model, over what the checkpoint says.
        device: Where the base is put.

    Raises:
        UserError: It is of another layout, or does not belong to its base.
    """
    import torch

    from methods.clara.model import Clara

    rank = int(source.config.get("lora_r", 16))
    stated = {"base": base or source.option("decoder_model_name"), "lora": {"r": rank, "alpha": 2.0 * rank}}
    sizes = {"max_length": int(source.option("doc_max_length")), "rate": int(source.option("compr_rate"))}
    config = ClaraConfig.model_validate({**stated, **sizes, **options})
    adapters, ends = pickled(source.folder / PUBLISHED), pickled(source.folder / ENDS)
    clara = Clara.open(config, device=device)
    own = {name: item for adapter in ADAPTERS for name, item in clara.adapters.of(adapter).items()}
    there: dict[str, Any] = {}
    for theirs, ours in _THEIRS:
        there |= adapter_names(adapters.get(theirs, adapters.get("encoder_adapter", {})), ours)
    if {name: item.shape for name, item in there.items()} != {name: item.shape for name, item in own.items()}:
        raise UserError("its adapters are not those of the base", where=source.source, try_this="--base: the model that it was trained on")
    # Memory tokens, then one that asks for the text again, one that a document begins with, one behind its memory.
    rows = new_rows(ends, clara.base, clara.tokens.first, clara.memory_tokens + 3, source.source)
    with torch.no_grad():
        for name, item in own.items():
            item.copy_(there[name])
        clara.module.rows.memory.copy_(rows[: clara.memory_tokens])
        clara.module.rows.marks.copy_(rows[clara.memory_tokens + 1 :])
    clara.save(folder)
    return config

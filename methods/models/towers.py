"""Load the model of one side of an encoder: a `SentenceTransformer`, transformers alone, or one of DPR's towers."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.core.fingerprint import fingerprint
from methods.models.checks import truncation
from methods.models.complete import check_finite, check_weights, complete, longest_input
from methods.models.delta import load_whole
from methods.models.encoder_config import OPTIMUM, EncoderConfig, Side
from methods.models.loaded import KEPT
from methods.models.padding import fit_padding
from methods.models.plain_encoder import POOLING, Layout, PlainEncoder, layout, passage_prompt
from methods.models.pretrained import llama_tokenizer, loading, require_kind
from methods.models.remote_code import remote_code_refused
from methods.models.static import distilled
from methods.models.weights import loaded_folder, locate, weights_hash

Vectors = NDArray[np.float32]
"""Shape (texts, dimension)."""


class Tower(Protocol):
    """Interface of a model that encodes one or both sides."""

    device: str
    dimension: int

    def encode(self, texts: Sequence[str], titles: Sequence[str] | None, batch_size: int) -> Vectors:
        """Return the model's vectors in float32."""
        ...

    def truncation(self, texts: Sequence[str]) -> dict[str, Any]:
        """Count the cut text, like `checks.truncation`."""
        ...


# `AutoModel` loads every DPR folder as a question encoder and fills a passage encoder with random weights, so the
# classes are named here.
#
# Source: Karpukhin et al. 2020, Dense Passage Retrieval (arXiv:2004.04906).


class DprTower:
    """One of DPR's two encoders.

    Args:
        model: A folder or hub id.
        side: Which encoder the folder holds.
        revision: Revision of a hub id.
        device: Device to compute on.
        dtype: Name of a torch dtype.
        max_length: Longest input in tokens; None for the tokenizer's own limit.

    Raises:
        UserError: The model cannot be loaded, or is the other tower.
    """

    def __init__(
        self, model: str, side: Literal["question", "passage"], *, revision: str | None, device: str, dtype: str, max_length: int | None
    ) -> None:
        with loading("encoder", model):
            import torch
            from transformers import AutoTokenizer, DPRContextEncoder, DPRQuestionEncoder

            source = {"pretrained_model_name_or_path": locate(model)}
            source |= {"revision": revision} if revision else {}
            self._tokenizer: Any = AutoTokenizer.from_pretrained(**source)
            wanted = DPRQuestionEncoder if side == "question" else DPRContextEncoder
            loaded, report = wanted.from_pretrained(**source, dtype=getattr(torch, dtype), output_loading_info=True)
            missing = sorted(report["missing_keys"])
            if missing:
                raise ValueError(f"it is not a {side} encoder of DPR ({missing[0]} is missing)")
        check_weights(loaded, model, "encoder", self._tokenizer)
        fit_padding(loaded, model, "encoder", self._tokenizer)
        self._model: Any = loaded.to(device).eval()
        longest = longest_input(loaded)
        self._max_length = min(max_length, longest) if max_length and longest else max_length
        self.device = device
        self.dimension = int(getattr(loaded.config, "projection_dim", 0) or loaded.config.hidden_size)

    def truncation(self, texts: Sequence[str]) -> dict[str, Any]:
        """Count the cut text, including titles, like `checks.truncation`."""
        longest = self._tokenizer.model_max_length
        return truncation(self._tokenizer, min(longest, self._max_length or longest), texts)

    def encode(self, texts: Sequence[str], titles: Sequence[str] | None, batch_size: int) -> NDArray[np.float32]:
        """Return vectors of texts, shape (texts, dimension).

        Args:
            texts: Texts to encode.
            titles: The first segments; with an empty title, the text is the only segment.
            batch_size: Inputs per batch.
        """
        import torch

        order = sorted(range(len(texts)), key=lambda position: (-len(texts[position]), position))
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for start in range(0, len(order), batch_size):
            positions = order[start : start + batch_size]
            inputs = [
                (titles[position], texts[position]) if titles is not None and titles[position] else (texts[position], None)
                for position in positions
            ]
            # A batch of pairs and a batch of single texts are different calls, so each input is cut separately.
            encoded = [self._tokenizer(*pair, truncation=True, max_length=self._max_length) for pair in inputs]
            batch = self._tokenizer.pad(encoded, return_tensors="pt").to(self.device)
            with torch.inference_mode():
                vectors[positions] = self._model(**batch).pooler_output.float().cpu().numpy()
        return vectors


def tower_of(config: EncoderConfig, side: Side, device: str, loaded: dict[str, Any]) -> Tower:
    """Load the model of one side; `loaded` lets both sides share it."""
    own = side == "query" and config.query_model is not None
    model = config.query_model if own and config.query_model else config.model
    revision = config.query_revision if own else config.revision
    if config.architecture == "dpr":
        return DprTower(
            model,
            "question" if side == "query" else "passage",
            revision=revision,
            device=device,
            dtype=config.dtype,
            max_length=config.max_length,
        )
    key = f"{model}@{revision}"
    if key not in loaded:
        options = config.model_dump(include={"backend", "dtype", "max_length", "pooling", "model_options", "trust_remote_code"})
        settings = _plain(config, model)
        weights = (
            "sentence-transformer" if settings is None else "transformers",
            weights_hash(model, revision),
            model,
            device,
            fingerprint(options),
        )

        def load() -> Any:
            if settings is not None:
                with loading("encoder", model), complete("encoder", model, pooler=False):
                    encoder = PlainEncoder.load(locate(model), settings, device, config.dtype)
                check_weights(encoder.model, model, "encoder", encoder.tokenizer)
                return encoder
            if config.backend != "static":
                return sentence_transformer(config, model, revision, device)
            return distilled(fingerprint(*weights[1:3], weights[-1]), device, lambda: sentence_transformer(config, model, revision, device))

        loaded[key] = KEPT.get(weights, device, load)
    return SentenceTower(loaded[key], config, side, model)


def _plain(config: EncoderConfig, model: str) -> Layout | None:
    """Return how to load an encoder with transformers only; None if it needs `sentence-transformers`."""
    folder = Path(locate(model))
    tasks = config.query_task is not None or config.passage_task is not None
    if config.backend != "torch" or config.model_options or config.trust_remote_code or tasks or not folder.is_dir():
        return None
    settings = layout(folder)
    pooling = config.pooling or (settings and settings.pooling)
    if settings is None or pooling not in POOLING:
        return None
    return replace(settings, pooling=pooling, max_length=config.max_length or settings.max_length)


def sentence_transformer(config: EncoderConfig, model: str, revision: str | None, device: str) -> Any:
    """Return a `SentenceTransformer` with the pooling and length of the options."""
    with remote_code_refused(model), loading("encoder", model, revision):
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.base.modules import Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling

        require_kind("encoder", model, revision, "encoder")
        options: dict[str, Any] = {"revision": revision, "device": device, "trust_remote_code": config.trust_remote_code}
        options |= {"config_kwargs": dict(config.model_options) or None}
        exported = config.backend in OPTIMUM
        if exported:
            # OpenVINO would compute in bfloat16 on processors that have it.
            options |= {"backend": config.backend}
            options |= {"model_kwargs": {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}}} if config.backend == "openvino" else {}
        else:
            options |= {"model_kwargs": {"dtype": getattr(torch, config.dtype)}}
        with complete("encoder", model, pooler=False, layers=not config.model_options):
            encoder = load_whole(locate(model), lambda folder: SentenceTransformer(folder, **options))
        _require_modules(model, revision)
        words = getattr(encoder[0], "processor", None)
        if (read := llama_tokenizer(words)) is not words:
            encoder[0].processor = read
    # A router has several transformers, each with its own tokenizer and length.
    readers = [part for part in encoder.modules() if isinstance(part, Transformer)] or [encoder]
    for reader in readers:
        check_weights(reader, model, "encoder")
        fit_padding(reader, model, "encoder")
    check_finite(encoder, model, "encoder")
    # Layers next to the transformer (a projection) are loaded in float32.
    if not exported:
        encoder.to(getattr(torch, config.dtype)).eval()
    for reader in readers:
        if limits := [limit for limit in (config.max_length or reader.max_seq_length, longest_input(reader)) if limit is not None]:
            reader.max_seq_length = min(limits)
    if config.pooling is not None:
        pooling = next((module for module in encoder if isinstance(module, Pooling)), None)
        if pooling is None:
            raise UserError(
                f"the encoder {model!r} has no pooling layer to replace",
                code="encoder-without-pooling",
                try_this="leave the option pooling out",
            )
        pooling.pooling_mode = config.pooling
        pooling.pooling_output_dimension = pooling.embedding_dimension
    return encoder


def _require_modules(model: str, revision: str | None) -> None:
    """Refuse a folder with settings of a SentenceTransformer but without modules.json: without it they are not read.

    Raises:
        UserError: The folder lacks modules.json.
    """
    folder = loaded_folder(model, revision)
    if folder is None or (folder / "modules.json").is_file():
        return
    unread = [name for name in ("1_Pooling", "config_sentence_transformers.json") if (folder / name).exists()]
    if unread:
        raise UserError(
            f"the folder of the encoder {model!r} has {' and '.join(unread)}, which are not read without modules.json",
            code="encoder-without-modules",
            where=f"model {model!r}",
            try_this="fetch modules.json too; or remove them, and set pooling and prompts as options",
        )


class SentenceTower:
    """One side of a `SentenceTransformer` or a `PlainEncoder`.

    Args:
        model: The loaded model; both sides may share it.
        config: Options.
        side: Side whose prompt and adapter are used.
        name: The model's name, for messages.

    Raises:
        UserError: The model has adapters and the options choose none or an unknown one, or its inputs do not end
            with `end_token`.
    """

    def __init__(self, model: Any, config: EncoderConfig, side: Side, name: str) -> None:
        self._model, self._name = model, name
        self._side = side
        self._prompt = config.prompt(side)
        if self._prompt is None and side == "passage":
            self._prompt = passage_prompt(getattr(model, "prompts", {})) or None
        self._task = config.query_task if side == "query" else config.passage_task
        self.device = str(model.device)
        self.dimension = int(model.get_embedding_dimension())
        self._check_task(name)
        if config.end_token is not None:
            self._check_end(config.end_token, name)

    def prompted(self, prompt: str | None) -> SentenceTower:
        """Return the same model with another prompt."""
        other = copy(self)
        other._prompt = prompt
        return other

    def keep_lengths(self) -> None:
        """Skip the model's normalization of vectors to length 1."""
        if isinstance(self._model, PlainEncoder):
            self._model = self._model.unscaled()
            return
        kept = [(name, module) for name, module in self._model.named_children() if type(module).__name__ != "Normalize"]
        self._model._modules.clear()
        self._model._modules.update(kept)

    def encode(self, texts: Sequence[str], titles: Sequence[str] | None, batch_size: int) -> Vectors:
        """Return vectors of texts, which contain their titles."""
        encode = self._model.encode_query if self._side == "query" else self._model.encode_document
        options: dict[str, Any] = {"prompt": self._prompt}
        if self._task is not None:
            # `encode_query` would set its own task, but `task` must choose the adapter.
            encode, options = self._model.encode, {"prompt": self._prompt or "", "task": self._task or None}
        try:
            vectors = encode(list(texts), batch_size=batch_size, convert_to_tensor=True, show_progress_bar=False, **options)
        except KeyError as error:
            if error.args != ("sentence_embedding",):
                raise
            raise UserError(
                f"the encoder {self._name!r} has no pooling layer: it gives a vector per token, but none per text",
                code="encoder-without-pooling",
                where="model",
                try_this="a model with one vector per text; the retriever colbert takes models with vectors of tokens",
            ) from None
        return vectors.float().cpu().numpy()

    def truncation(self, texts: Sequence[str]) -> dict[str, Any]:
        """Count the cut text after the prompt, like `checks.truncation`."""
        tokenizer = getattr(self._model, "tokenizer", None)
        return truncation(tokenizer, self._model.max_seq_length, texts, self._prompt or "")

    def _check_task(self, name: str) -> None:
        first = next(iter(self._model))
        settings = getattr(first, "config", None)
        adapters = getattr(first, "_lora_adaptations", None) or getattr(settings, "lora_adaptations", None) or ()
        option = f"{self._side}_task"
        if adapters and self._task is None:
            raise UserError(
                f"the encoder {name!r} has an adapter for each task, and {option} does not choose one",
                code="task-adapter-not-chosen",
                try_this=f'set {option} to one of {", ".join(adapters)}, or to "" to use none',
            )
        if self._task and self._task not in adapters:
            if not adapters:
                raise UserError(f"the encoder {name!r} has no adapters", code="encoder-without-adapters", try_this=f"leave {option} out")
            raise unknown_name(f"{option} of {name}", self._task, adapters)

    def _check_end(self, token: str, name: str) -> None:
        """Check that inputs end with `end_token`: if a tokenizer version omits it, another token would be pooled silently."""
        wanted = self._model.tokenizer.convert_tokens_to_ids(token)
        for text in ("probe", "probe " * (2 * (self._model.max_seq_length or 512))):
            ids = self._model.preprocess([text])["input_ids"][0].tolist()
            if ids[-1] != wanted:
                raise UserError(
                    f"inputs of the encoder {name!r} do not end with {token!r}",
                    code="encoder-end-token-missing",
                    where="end_token",
                    try_this="fetch the model's tokenizer files again, or another revision of them",
                )

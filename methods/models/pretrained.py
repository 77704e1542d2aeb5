"""Load models and tokenizers with `transformers`; its failures become errors with a remedy."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal

from benchmarks.core.errors import MissingPackage, UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.io.hub import use_cache_if_unreachable
from methods.models.complete import check_weights, complete, require_words
from methods.models.loaded import KEPT
from methods.models.weights import SETTINGS, absent_files, loaded_folder, locate, weights_hash


@contextmanager
def loading(noun: str, model: str, revision: str | None = None) -> Iterator[None]:
    """Context manager that converts a library's failure to load a model into an error with a remedy.

    Raises:
        UserError: The block raised an exception of the model libraries for missing, incompatible or damaged models, or the
            model's folder lacks files that the libraries leave out silently.
    """
    try:
        if not Path(locate(model)).is_dir():
            use_cache_if_unreachable()
        from transformers.utils import logging

        # A run only has its own progress display.
        logging.disable_progress_bar()
        yield
    except (ImportError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        quantized = _quantized(model, revision)
        # Without a name, the library says which packages a model needs.
        if isinstance(error, ImportError) and error.name and not quantized:
            raise MissingPackage(error.name, "models", f"the {noun} {model!r}") from error
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f"the {noun} {model!r} cannot be loaded: {reason}",
            code="load-failed",
            try_this=_other_kind(model)
            or _fetch_absent(model, revision)
            or quantized
            or next((remedy for sign, remedy in _UNKNOWN_KINDS.items() if sign in str(error)), "")
            or "give a folder with the model's files, or a hub id and a connection to the hub",
        ) from error
    except Exception as error:
        if isinstance(error, RuntimeError) and (quantized := _quantized(model, revision)):
            raise UserError(
                f"the quantized weights of the {noun} {model!r} cannot be loaded: {str(error).splitlines()[0]}",
                code="load-failed",
                try_this=quantized,
            ) from error
        if isinstance(error, RuntimeError) and "mismatch" in str(error):
            raise UserError(
                f"the weights of the {noun} {model!r} have other shapes than its config.json states",
                code="weight-shapes-mismatch",
                try_this="fetch all files of the model from one revision",
            ) from error
        if isinstance(error, RuntimeError) and "loading state_dict" in str(error):
            raise UserError(
                f"a layer of the {noun} {model!r} has weights of other names than it wants: {' '.join(str(error).split())[:200]}",
                code="weight-names-mismatch",
                try_this="fetch all files of the model from one revision",
            ) from error
        # safetensors has an exception class of its own, which is not a subclass of the above; the others are of torch's .bin files.
        unreadable = isinstance(error, UnpicklingError | EOFError) or "PytorchStreamReader" in str(error)
        if type(error).__name__ != "SafetensorError" and not unreadable:
            raise
        reason = "a .bin file is cut off, or holds more than weights" if unreadable else str(error)
        raise UserError(
            f"the weights of the {noun} {model!r} are damaged: {reason}",
            code="damaged-weights",
            try_this=_other_kind(model) or "fetch the model's files again",
        ) from error
    folder = loaded_folder(model, revision)
    if folder is not None and (absent := absent_files(folder, SETTINGS)):
        raise UserError(
            f"the files of the {noun} {model!r} lack {absent[0]}: the link is broken",
            code="absent-files",
            where=str(folder),
            try_this=_fetch_absent(model, revision),
        )


_UNKNOWN_KINDS = {
    "Unrecognized configuration class": "run it in a server (vLLM) and name its base_url: transformers has no class for this use of it",
    "does not recognize this architecture": "pip install -U transformers, or run it in a server and name its base_url",
}
"""Remedies for models that `transformers` has no class for, by a part of its message."""


def _quantized(model: str, revision: str | None) -> str:
    """Return a remedy for quantized weights that cannot be loaded; "" if a model's weights are not quantized."""
    folder = loaded_folder(model, revision)
    try:
        settings = json.loads((folder / "config.json").read_text("utf-8")) if folder is not None else {}
        method = settings["quantization_config"]["quant_method"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f"its weights are quantized ({method}): install what reads them (some need a GPU), or name unquantized weights or a server"


def _fetch_absent(model: str, revision: str | None) -> str:
    """Return how to fetch files of a model whose links are broken; "" without broken links."""
    folder = loaded_folder(model, revision)
    if folder is None or not (absent := absent_files(folder)):
        return ""
    if Path(locate(model)).is_dir():
        return f"copy the files and not only their links (cp -rL): {', '.join(absent[:5])}"
    return f"hf download {model}: an earlier download ended before {', '.join(absent[:5])}"


def _other_kind(model: str) -> str:
    """Return how to use a folder that holds no whole model, by its files; "" if it may be one."""
    folder = Path(locate(model))
    if not folder.is_dir():
        return ""
    if pointers := [path.name for path in sorted(folder.iterdir()) if path.is_file() and _begins(path, _POINTER)]:
        return f"{', '.join(pointers)}: pointers of Git LFS without the files; run git lfs pull in the clone"
    if (folder / "config.json").is_file():
        return ""
    if inner := sorted(path.parent for pattern in _MODELS_IN for path in folder.glob(f"{pattern}/config.json")):
        return f"name one of the models in this folder: {', '.join(path.relative_to(folder).as_posix() for path in inner)}"
    if (folder / "adapter_config.json").is_file():
        return "this folder is a PEFT adapter: name its base as the model and this folder as the adapter, or merge the two"
    if any(folder.glob("*.gguf")):
        return "GGUF files run in a server (llama.cpp, Ollama): start it and name its base_url"
    return f"the folder has no config.json: {model} must hold the model itself"


_POINTER = b"version https://git-lfs"
_MODELS_IN = ("checkpoint-*", "snapshots/*")
"""Folders of models in the output of a trainer and in a repository of the hub's cache."""


def _begins(path: Path, content: bytes) -> bool:
    with open(path, "rb") as file:
        return file.read(len(content)) == content


def load_pretrained(
    noun: str,
    kind: str,
    model: str,
    revision: str | None,
    dtype: str | None,
    device: str,
    *,
    model_options: Mapping[str, Any] | None = None,
    own: bool = False,
    **tokenizer: Any,
) -> tuple[Any, Any]:
    """Return a tokenizer and a `transformers` model, ready to compute.

    Args:
        noun: Name of the model's role in errors.
        kind: The class of `transformers` that loads it (`AutoModelForCausalLM` …).
        model, revision: As `locate` takes it, and the revision of a hub id.
        dtype: Name of a torch dtype, `auto` for the checkpoint's own, None for float32 on a CPU and `auto` elsewhere.
        device: Device of the model.
        model_options: Further options of the model.
        own: Load weights that the caller may change; otherwise equal calls share one model, each with its own tokenizer.
        tokenizer: Further options of the tokenizer.

    Raises:
        UserError: It cannot be loaded.
    """
    with loading(noun, model, revision):
        import torch
        import transformers

        source = {"pretrained_model_name_or_path": locate(model)} | ({"revision": revision} if revision else {})
        wanted = dtype or ("float32" if device == "cpu" else "auto")
        tokens = load_tokenizer(model, revision, **tokenizer)
        typed = wanted if wanted == "auto" else getattr(torch, wanted)
        if kind == "AutoModelForCausalLM":
            require_kind(noun, model, revision, "language model")

        def load() -> Any:
            with complete(noun, model, pooler=kind != "AutoModel", layers=not model_options):
                loaded = getattr(transformers, kind).from_pretrained(**source, dtype=typed, **(model_options or {}))
            check_weights(loaded, model, noun, tokens)
            return loaded.to(device).eval()

        if own:
            return tokens, load()
        key = kind, weights_hash(model, revision), str(typed), device, fingerprint(dict(model_options or {}))
        return tokens, KEPT.get(key, device, load)


def load_tokenizer(model: str, revision: str | None = None, **options: Any) -> Any:
    """Return the tokenizer of a model.

    Args:
        model, revision: As `locate` takes it, and the revision of a hub id.
        options: Further options of the tokenizer.

    Raises:
        UserError: It cannot be loaded.
    """
    with loading("tokenizer", model):
        from transformers import AutoTokenizer

        source = {"pretrained_model_name_or_path": locate(model)} | ({"revision": revision} if revision else {})
        tokens = llama_tokenizer(AutoTokenizer.from_pretrained(**source, **options), **options)
        require_words(tokens, model, "model")
        return tokens


def llama_tokenizer(tokens: Any, **options: Any) -> Any:
    """Return a tokenizer, reloaded as the class that it names if it has a Llama-like `tokenizer.model` without `tokenizer.json`.

    `AutoTokenizer` loads such a file of another model family (Mistral) without the space that begins a word.
    """
    file = Path(str(getattr(tokens, "vocab_file", None) or ""))
    if file.name != "tokenizer.model" or file.with_name("tokenizer.json").exists():
        return tokens
    from transformers import LlamaTokenizer

    named = json.loads(file.with_name("tokenizer_config.json").read_text("utf-8")).get("tokenizer_class", "")
    if not named.startswith("LlamaTokenizer") or isinstance(tokens, LlamaTokenizer):
        return tokens
    return LlamaTokenizer.from_pretrained(str(file.parent), **options)


Kind = Literal["language model", "cross-encoder", "encoder"]
_OTHER_KINDS: Mapping[Kind, re.Pattern[str]] = {
    "language model": re.compile(r"Classification|MaskedLM|QuestionAnswering|(?<!LMHead)Model$"),
    "cross-encoder": re.compile(r"CausalLM|MaskedLM|LMHead|ConditionalGeneration|QuestionAnswering|Model$"),
    "encoder": re.compile(r"Classification|QuestionAnswering"),
}
"""Architectures that lack a part which a kind of model needs: it would be random, or was trained for another purpose."""
_REMEDIES: Mapping[Kind, str] = {
    "language model": "the original checkpoint, which continues text",
    "cross-encoder": "a checkpoint that was trained to score pairs",
    "encoder": "a checkpoint that was trained to encode texts; a cross-encoder is the reranker cross_encoder",
}


def require_kind(noun: str, model: str, revision: str | None, kind: Kind) -> None:
    """Refuse a checkpoint of another kind, judged by its `architectures` and modules.

    Args:
        noun: Name of the model's role in errors.
        model, revision: As `locate` takes it, and the revision of a hub id.
        kind: The required kind.

    Raises:
        UserError: It is of another kind.
    """
    from transformers.utils import cached_file

    source = {"path_or_repo_id": locate(model), "revision": revision, "_raise_exceptions_for_missing_entries": False}
    files = {name: cached_file(filename=name, **source) for name in ("config.json", "modules.json")}
    settings = json.loads(Path(files["config.json"]).read_text("utf-8")) if files["config.json"] else {}
    modules = json.loads(Path(files["modules.json"]).read_text("utf-8")) if files["modules.json"] else []
    if modules and kind != "language model":  # they say how the model is read
        return
    pools = any(str(module.get("type", "")).endswith("Pooling") for module in modules)
    other = next((name for name in settings.get("architectures") or [] if _OTHER_KINDS[kind].search(name)), None)
    if pools or other is not None:
        raise UserError(
            f"the {noun} {model!r} cannot be used as {kind}: its folder says {'embedding model' if pools else other}",
            code=f"not-{kind.replace(' ', '-')}",
            where=f"model {model!r}",
            try_this=_REMEDIES[kind],
        )


def is_encoder_decoder(model: str, revision: str | None) -> bool:
    """Return whether a model has an encoder and a decoder by its configuration (T5, BART).

    Raises:
        UserError: It cannot be read.
    """
    return bool(_configuration(model, revision).is_encoder_decoder)


def context_length(model: str, revision: str | None) -> int | None:
    """Return the maximum tokens of a language model by its configuration, or None if it does not state them.

    Raises:
        UserError: It cannot be read.
    """
    length = getattr(_configuration(model, revision).get_text_config(), "max_position_embeddings", None)
    return int(length) if length else None


def _configuration(model: str, revision: str | None) -> Any:
    with loading("language model", model):
        from transformers import AutoConfig

        options = {"revision": revision} if revision else {}
        return AutoConfig.from_pretrained(locate(model), **options)


def device_of(wanted: str | None) -> str:
    """Return the device to run on: the requested one, else an accelerator if there is one."""
    if wanted:
        return wanted
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"

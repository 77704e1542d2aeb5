"""Replace a language model by a script that knows the answers, for trials.

A script is registered under the name before the slash of the option `scripted:`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from benchmarks.core.plugins import Registry
from methods.flow import Batcher
from methods.models.counting import Counter, TokenCounter
from methods.models.endpoint import Messages
from methods.models.in_process import InProcessBackend, InProcessOptions

if TYPE_CHECKING:
    from methods.models.reply import Completion


class ScriptedConfig(InProcessOptions):
    """Options of a script that replaces a language model; results that use it are marked and never ranked."""

    scripted: str = Field(description="source of the facts that it can answer from: a benchmark of worlds, such as worlds/multihop:test")
    options: dict[str, Any] = Field(default={}, description="options of that benchmark, as in the experiment")
    reading: Literal["evidence", "memory"] = Field("evidence", description="evidence: it only answers from passages that contain the proof")
    corruption: float = Field(0.0, ge=0, le=1, description="share of its replies that are corrupted")
    seed: int = Field(0, description="seed that chooses the corrupted replies")

    @property
    def model(self) -> str:
        """Return the model name in its replies."""
        from methods.models.chat import SCRIPTED

        return SCRIPTED + self.scripted


@dataclass(frozen=True)
class Script:
    """A registered script, which replaces a language model in trials.

    Attributes:
        id: The part of `scripted:` before the slash.
        open: Function from options to a function that replies to a conversation, or raises `Fault` if it has no reply.
    """

    id: str
    open: Callable[[ScriptedConfig], Callable[[Messages], Completion]]


SCRIPTS: Registry[Script] = Registry("script", "ragmeter.scripted", "ragmeter.scripts")


def register_script(identifier: str) -> Callable[[Callable[[ScriptedConfig], Callable[[Messages], Completion]]], Any]:
    """Register a script; decorates its `open` function."""

    def decorate(factory: Callable[[ScriptedConfig], Callable[[Messages], Completion]]) -> Any:
        SCRIPTS.add(Script(identifier, factory), factory.__module__)
        return factory

    return decorate


@lru_cache(maxsize=8)
def _open_script(options: str) -> Callable[[Messages], Completion]:
    config = ScriptedConfig.model_validate_json(options)
    return SCRIPTS.get(config.scripted.partition("/")[0], where="scripted").open(config)


class ScriptBackend(InProcessBackend):
    """`Backend` with a script.

    Raises:
        UserError: The script does not exist, or its benchmark cannot be loaded.
    """

    url = "scripted"
    charged = True
    room: int | None = None
    together = 32

    def __init__(self, config: ScriptedConfig) -> None:
        self.counter: Counter = TokenCounter()
        reply = _open_script(config.model_dump_json(exclude={"temperature", "max_tokens"}))
        self._reply: Batcher[Messages, Completion] = Batcher(lambda several: [reply(messages) for messages in several], self.together)

    async def send(self, messages: list[dict[str, str]], extra: Mapping[str, Any], repetition: int) -> Completion:
        """Return the script's reply; see `Backend.send`."""
        return await self._reply(messages)

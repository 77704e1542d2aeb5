"""Ask a model about the texts of an index, with its replies saved next to the index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from benchmarks.core.fingerprint import content_hash
from methods.api import Usage
from methods.models.chat import ChatModel
from methods.prompts import Prompt
from methods.training.journal import Journal


class AskedOnce:
    """Model calls during an index build, with replies saved next to the index, so that a resumed build repeats none.

    Args:
        model: The model.
        path: File of replies; None saves nothing.
    """

    def __init__(self, model: ChatModel, path: Path | None) -> None:
        self._model = model
        self._journal = Journal(path) if path is not None else None

    async def __call__(
        self, prompt: Prompt, step: str, text: str, shape: type[BaseModel] | None = None, usable: Callable[[str], bool] = bool
    ) -> tuple[str, Usage, str]:
        """Send a prompt with one placeholder; returns the reply, its original cost, and the reason if it is unusable."""
        (name,) = prompt.placeholders
        key = content_hash((prompt.hash, text, self._model.config.identity()))
        if self._journal is not None and (kept := self._journal.get(key, key)) is not None:
            return kept["reply"], Usage(**kept["usage"]), ""
        reply = await self._model.ask(prompt.messages(**{name: text}), shape=shape, step=step)
        if reply.failed is not None or not usable(reply.text):
            return "", reply.usage, "failed call" if reply.failed is not None else "reply that cannot be used"
        if self._journal is not None:
            with self._journal:
                self._journal.add(key, key, {"reply": reply.text, "usage": reply.usage.to_json()})
        return reply.text, reply.usage, ""

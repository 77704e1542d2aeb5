"""How `memory_reader` asks: in words of ours, as the authors of a released checkpoint do, or in a template of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.core.errors import UserError
from benchmarks.published_prompts import registry
from methods.baselines.compress.soft import SYSTEMS
from methods.prompts import OURS, PUBLISHED, Prompt, Shipped
from methods.training.released import kept_texts

if TYPE_CHECKING:
    from methods.baselines.compress.soft import System

PROMPTS = {
    name: Shipped(
        "methods.readers",
        "passages",
        published=name if name in registry() else "",
        follows=frozenset({"bos", "joined", "memories", "stop"}),
    )
    for name in SYSTEMS
}
"""Of each system: its published prompt, and what a template in its place may hold."""


def chosen(system: System, option: str | None) -> str:
    """Return the option `prompt`, or the default: published for converted checkpoints whose authors published a prompt."""
    return option or (PUBLISHED if system.config.published and PROMPTS[system.name].published else OURS)


def prompt_of(folder: Path, system: System, option: str | None, passages: bool = True) -> Prompt | None:
    """Return the prompt with which a checkpoint is asked; None: ours.

    Args:
        folder: The checkpoint; the texts that it came with win over the published ones.
        system: What it is of.
        option: `ours`, `published`, a template file, or None for the default.
        passages: Whether there are any.

    Raises:
        UserError: The published prompt cannot be had, or there is none, or the file is no such template.
    """
    template, option = PROMPTS[system.name], chosen(system, option)
    if option == OURS:
        return None
    if option != PUBLISHED:
        return template.load(option)
    if not template.published:
        raise UserError(
            f"the authors of {system.name} published no prompt", code="no-published-prompt", where="option prompt", try_this="prompt: ours"
        )
    return template.load(option, {"passages"} if passages else (), kept_texts(folder, template.published))


def prompt_hash(folder: Path, system: System, option: str | None) -> str:
    """Return a hash of the prompt, "" for ours, without fetching anything."""
    template, option = PROMPTS[system.name], chosen(system, option)
    if option == OURS:
        return ""
    return template.hash(option, own=kept_texts(folder, template.published) if option == PUBLISHED else None)

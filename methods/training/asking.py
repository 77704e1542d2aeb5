"""Option that selects the prompt of a trained checkpoint: ragmeter's, the published one, or a template file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from benchmarks.core.errors import UserError
from benchmarks.core.fingerprint import fingerprint
from benchmarks.core.models import LaterOptions
from methods.prompts import OURS, PUBLISHED, Prompt, Shipped
from methods.registry import ModelMethodConfig
from methods.training.released import kept_texts


class AskedOptions(LaterOptions, ModelMethodConfig):
    """Options with a checkpoint and its prompt."""

    later: ClassVar[tuple[str, ...]] = ("prompt",)

    prompt: str | None = Field(
        None,
        description="`ours`, `published`, or a template file with $passages (CLaRa: $background) in the place of memories; null: "
        "published for converted checkpoints whose authors published a prompt, else ours",
    )

    @abstractmethod
    def checkpoint(self) -> tuple[Path, Shipped, bool]:
        """Return the checkpoint's folder, its template, and whether its authors published it.

        Raises:
            UserError: The checkpoint does not exist.
        """

    def template(self, shown: Collection[str] = ()) -> Prompt | None:
        """Return the selected prompt, None for ragmeter's; texts stored with a converted checkpoint take precedence over the
        published ones.

        Args:
            shown: Placeholders with a value of their own (`Shipped.load`).

        Raises:
            UserError: The checkpoint does not exist, the published prompt cannot be downloaded, or the file is not a valid
                template.
        """
        folder, template, released = self.checkpoint()
        option = self._chosen(template, released)
        if option == PUBLISHED and not template.published:
            raise UserError(
                "the authors of this system published no prompt", code="no-published-prompt", where="option prompt", try_this="prompt: ours"
            )
        return None if option == OURS else template.load(option, shown, kept_texts(folder, template.published))

    def _chosen(self, template: Shipped, released: bool) -> str:
        return self.prompt or (PUBLISHED if released and template.published else OURS)

    def preflight(self) -> None:
        """Check the checkpoint and the prompt; download a published prompt."""
        super().preflight()
        self.template()

    def checkpoint_hash(self) -> str:
        """Return a hash of the weights, and of the prompt unless it is ragmeter's."""
        weights = super().checkpoint_hash()
        with suppress(UserError):  # a checkpoint that is still to be trained
            folder, template, released = self.checkpoint()
            if (option := self._chosen(template, released)) != OURS:
                return fingerprint(weights, template.hash(option, own=kept_texts(folder, template.published)))
        return weights

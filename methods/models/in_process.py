"""Define what local models and scripts share, because both reply in this process: options, and a backend without connections."""

from __future__ import annotations

from pydantic import Field

from benchmarks.core.errors import Broke
from benchmarks.core.models import FrozenModel
from methods.models.endpoint import Fault


class InProcessOptions(FrozenModel):
    """Options that local models and scripts share with endpoints."""

    temperature: float = Field(0.0, ge=0, description="0: greedy; otherwise tokens are sampled, seeded by the prompt and the task's seed")
    max_tokens: int = Field(64, ge=1, description="longest reply")

    @property
    def longest(self) -> int:
        """Return the longest reply in tokens, for estimates."""
        return self.max_tokens

    def usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return 0: local calls are free."""
        return 0.0


class InProcessBackend:
    """A `Backend` in this process: it has no connections, and a fault affects only its own conversation."""

    connected = False
    charged = False

    async def close(self) -> None:
        """Do nothing, because no connection is open."""

    def hopeless(self, fault: Fault) -> bool:
        """Return False: a fault concerns only its own conversation."""
        return False

    async def error(self, fault: Fault) -> Broke:
        """Return the fault."""
        return Broke(fault.reason, code="model-fault")

"""The scripted LLM behind a loopback endpoint, which may be faulty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.registry import Benchmark
from methods.models.endpoint import Fault
from ragmeter import scripted
from tests.support.faults import Faults
from tests.support.server import ChatRequest, OpenAIServer, Refused, Written


class WorldTruth(scripted.WorldTruth):
    """The script, with faults of its endpoint; None for no faults."""

    def __init__(self, benchmarks: Sequence[Benchmark], *, faults: Faults | None = None, **options: Any) -> None:
        super().__init__(benchmarks, **options)
        self.faults = faults

    def respond(self, request: ChatRequest) -> Written:
        """Reply to a request."""
        try:
            result = self.reply(request.messages)
        except Fault as fault:
            raise Refused(fault.status or 500, fault.reason) from None
        return Written(result.text, result.prompt_tokens, result.completion_tokens)

    def server(self) -> OpenAIServer:
        """Create a loopback endpoint; `with server.running() as url` serves from a thread."""
        return OpenAIServer(scripted.NAME, self.respond, any_model=True, intercept=self.faults)

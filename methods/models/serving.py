"""A local language model as an OpenAI-compatible endpoint.

Requests that arrive together are generated together; what a request is answered does not depend on its company.
"""

from __future__ import annotations

import copy
import queue
import threading
from collections import defaultdict
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from methods.models.causal import CausalConfig, CausalModel
from methods.models.openai_server import ChatRequest, OpenAIServer, Refused, Written
from methods.models.sampling import Sampling

GATHER_S = 0.005
"""How long the first request of a batch waits for others."""


@dataclass(frozen=True)
class _Job:
    """A request on its way through the model."""

    prompt: str
    max_tokens: int
    sampling: Sampling | None
    seed: int | None
    done: Future[Written] = field(default_factory=Future)


class LocalServer:
    """Answers requests with a local model.

    Args:
        config: The model, and the defaults of a request: `max_new_tokens` is the longest reply of all.
        name: What the model is called; the last part of its path when absent.
        device: "cpu", "cuda" …; None chooses.

    Raises:
        UserError: The model cannot be loaded.
    """

    def __init__(self, config: CausalConfig, name: str | None = None, device: str | None = None) -> None:
        self.model = CausalModel(config, device)
        self.name = name or config.model.rstrip("/").rsplit("/", 1)[-1]
        self._jobs: queue.Queue[_Job | None] = queue.Queue()
        self._worker = threading.Thread(target=self._work, name="generate", daemon=True)
        self._worker.start()

    def server(self, host: str = "127.0.0.1", port: int = 0) -> OpenAIServer:
        """An endpoint of this model.

        Raises:
            UserError: The address cannot be listened on.
        """
        return OpenAIServer(self.name, self.answer, host=host, port=port)

    def close(self) -> None:
        """End the worker after what it is at."""
        self._jobs.put(None)
        self._worker.join()

    def answer(self, request: ChatRequest) -> Written:
        """Answer one request; called from many threads.

        Raises:
            Refused: The prompt is too long, or an option is unknown.
        """
        if request.raw_prompt is None:
            prompt = self.model.render_chat(request.messages)
        else:
            prompt = request.raw_prompt
        most = self.model.config.max_new_tokens
        tokens = len(self.model.encode(prompt))
        if tokens > self.model.room:
            raise Refused(
                400,
                f"the model's maximum context length is {self.model.room + most} tokens, of which {most} are kept for "
                f"the reply; the prompt has {tokens}",
                "context_length_exceeded",
            )
        if tokens == 0:
            raise Refused(400, "the prompt is empty")
        sampling, seed = _sampling(request)
        job = _Job(prompt, min(request.max_tokens or most, most), sampling, seed)
        self._jobs.put(job)
        return _stopped(job.done.result(), request.body.get("stop"))

    def _work(self) -> None:
        while (first := self._jobs.get()) is not None:
            batch = [first]
            while len(batch) < self.model.config.batch_size:
                try:
                    job = self._jobs.get(timeout=GATHER_S)
                except queue.Empty:
                    break
                if job is None:
                    self._jobs.put(None)
                    break
                batch.append(job)
            groups: dict[Any, list[_Job]] = defaultdict(list)
            for job in batch:
                groups[job.max_tokens, job.sampling, job.seed is None].append(job)
            for jobs in groups.values():
                self._generate(jobs)

    def _generate(self, jobs: list[_Job]) -> None:
        """Generate for requests of equal options."""
        first = jobs[0]
        # The same weights with another longest reply.
        model = copy.copy(self.model)
        model.config = self.model.config.model_copy(update={"max_new_tokens": first.max_tokens})
        seeds = None if first.seed is None else [int(job.seed or 0) for job in jobs]
        try:
            generations = model.generate([job.prompt for job in jobs], sampling=first.sampling, seeds=seeds)
        except Exception as error:
            for job in jobs:
                job.done.set_exception(error)
            return
        for job, generation in zip(jobs, generations, strict=True):
            tokens = generation.completion_tokens
            reason = "length" if tokens >= job.max_tokens else "stop"
            job.done.set_result(Written(generation.text, generation.prompt_tokens, tokens, reason))


def _sampling(request: ChatRequest) -> tuple[Sampling | None, int | None]:
    """How tokens are drawn, and the seed; greedily unless a temperature is asked for."""
    body = request.body
    for name in ("frequency_penalty", "presence_penalty", "logit_bias", "response_format"):
        if body.get(name):
            raise Refused(400, f"this server does not know {name}")
    temperature = body.get("temperature") or 0.0
    if not isinstance(temperature, int | float) or not 0 <= temperature <= 2:
        raise Refused(400, "temperature must lie between 0 and 2")
    if temperature == 0:
        return None, None
    seed = body.get("seed")
    if seed is not None and not isinstance(seed, int):
        raise Refused(400, "seed must be a whole number")
    try:
        return Sampling(temperature=float(temperature), top_p=float(body.get("top_p") or 1.0)), seed
    except (TypeError, ValueError) as error:
        raise Refused(400, str(error)) from None


def _stopped(written: Written, stop: Any) -> Written:
    """The reply up to the first stop text."""
    stops = [stop] if isinstance(stop, str) else list(stop or ())
    places = [place for text in stops if text and (place := written.text.find(str(text))) >= 0]
    if not places:
        return written
    return Written(written.text[: min(places)], written.prompt_tokens, written.completion_tokens, "stop")

"""An endpoint on one event loop that replies in 20 ms: quick enough that the client decides how many calls are made."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

LATENCY_S = 0.02
ABSENT = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
TEXT = "The old bridge was built by Ann in the year when the river rose."


def serve(pipe: Any, totals: Any, log: Path, preflight: str) -> None:
    """Serve a test endpoint until the process ends; sends the base URL through the pipe.

    Args:
        pipe: Receives the URL.
        totals: Shared array; index 0 counts calls, index 3 holds the time of the first.
        log: File that prompts are appended to.
        preflight: Prompt of the test call, which is not counted.
    """
    asyncio.run(_serve(pipe, totals, log, preflight))


async def _serve(pipe: Any, totals: Any, log: Path, preflight: str) -> None:
    message = {"role": "assistant", "content": TEXT}
    reply = {"id": "q", "object": "chat.completion", "created": 0, "model": "m"}
    usage = {"prompt_tokens": 100, "completion_tokens": 16, "total_tokens": 116}
    body = json.dumps({**reply, "choices": [{"index": 0, "finish_reason": "stop", "message": message}], "usage": usage}).encode()
    whole = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    loop = asyncio.get_running_loop()
    prompts = log.open("a")

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport, self.received = transport, b""

        def data_received(self, data: bytes) -> None:
            self.received += data
            head, end, rest = self.received.partition(b"\r\n\r\n")
            if not end:
                return
            lines = head.lower().split(b"\r\n")
            length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
            if len(rest) < length:
                return
            self.received = rest[length:]
            if not head.startswith(b"POST"):  # the list of models, where a revision may be stated
                self.transport.write(ABSENT)
                return
            prompt = json.loads(rest[:length])["messages"][-1]["content"]
            if prompt != preflight:
                totals[0] += 1
                totals[3] = totals[3] or time.time()
                prompts.write(json.dumps(prompt) + "\n")
                prompts.flush()
            loop.call_later(LATENCY_S, self.transport.write, whole)

    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=1024)
    pipe.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    await server.serve_forever()

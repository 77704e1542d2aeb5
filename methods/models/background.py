"""One event loop in a thread of its own, on which all chat calls of a process run.

Callers stay ordinary functions (also inside a notebook's loop), connections outlive a batch, and calls of several
threads share them.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# Reentrant: what the garbage collector closes may come by while the lock is held.
_lock = threading.RLock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def event_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process; started when first needed, also after a fork."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="chat", daemon=True).start()
            _loops[os.getpid()] = loop
        return loop


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop to its end; an interruption of the caller cancels it.

    Raises:
        RuntimeError: Called from the loop itself, which would wait for itself.
    """
    loop = event_loop()
    try:
        inside = asyncio.get_running_loop() is loop
    except RuntimeError:
        inside = False
    if inside:
        work.close()
        raise RuntimeError("a chat model must not be called from the loop that its calls run on")
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise

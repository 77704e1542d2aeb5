"""Readers, which answer from passages: chat models, local models, and rules. This module defines the reader for runs that only
rank.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.schema import Query
from methods.api import Answer, Context, Services
from methods.registry import MethodConfig, register
from methods.work import free


@register("retrieval_only", kind="reader", summary="gives no answer: to score only rankings", work=free)
class RetrievalOnly:
    """Reader that gives no answers, for evaluating only retrieval.

    Args:
        config: No options.
        services: Unused.
    """

    batch_size = 64

    def __init__(self, config: MethodConfig, services: Services) -> None:
        pass

    def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
        """Return one empty answer per query."""
        return [Answer("") for _ in queries]

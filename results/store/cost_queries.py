"""Query the store for what runs cost: tokens, calls, seconds and dollars per question, and of indexing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from duckdb import DuckDBPyConnection

from methods.api import SPENDING
from results.store.queries import OURS
from results.store.store import Store

# Usage that submitters state; usage that they do not state is unknown, not zero. A run made here measures itself, so
# its zeros are zeros. The predictions of a submission are stored with zeros where nothing was said (`usage` is
# optional), and a submission can omit its costs.


AS_STATED = "as its sender states"
NOT_STATED = "its sender does not state it"
_TOKENS = ("prompt_tokens", "completion_tokens", "memory_tokens")
_SAYS_NOTHING = " AND ".join(f"{name} = 0" for name in (*_TOKENS, "model_calls", "seconds", "cost_usd"))
_UNSTATED = f"""SELECT run, bool_or(failed IS NULL AND {_SAYS_NOTHING}), sum({" + ".join(_TOKENS)}) = 0,
sum(model_calls) = 0, sum(seconds) = 0, sum(cost_usd) = 0
FROM runs JOIN usage USING (run) JOIN predictions USING (run, question)
WHERE origin <> '{OURS}' AND list_contains(?, run) GROUP BY run"""
_FIELDS = ((*_TOKENS, "cached_tokens"), ("model_calls",), ("seconds", "seconds_p50", "seconds_p95"), ("cost_usd",))


def unstated(connection: DuckDBPyConnection, run_ids: Sequence[str]) -> Mapping[str, frozenset[str]]:
    """Find the usage fields that a submission does not report, by run; runs made here are omitted.

    A field is unknown if it is zero for all questions. All fields are unknown if any successful question reports no usage,
    because a mean over the others would be biased.

    Args:
        connection: A connection to the store.
        run_ids: Ids of the runs.
    """
    rows = connection.execute(_UNSTATED, [list(run_ids)]).fetchall()
    return {
        run: frozenset(name for names, nothing in zip(_FIELDS, nothings, strict=True) if silent or nothing for name in names)
        for run, silent, *nothings in rows
    }


@dataclass(frozen=True, slots=True)
class Cost:
    """Mean cost of a run's answers; NaN if a submission does not report it.

    Attributes:
        seconds: Mean seconds per question over all stages, without waiting for a free slot.
        prompt_tokens, completion_tokens, memory_tokens, model_calls: Means per question.
        cost_usd: Total cost in US dollars; NaN if the cost of some call is unknown.
        cached_tokens: Prompt tokens per question that endpoints read from their own caches.
        seconds_p50, seconds_p95: Percentiles of the seconds per question; averaged if a row combines several runs.
    """

    seconds: float
    prompt_tokens: float
    completion_tokens: float
    memory_tokens: float
    model_calls: float
    cost_usd: float
    seconds_p50: float = math.nan
    seconds_p95: float = math.nan
    cached_tokens: float = 0.0

    @property
    def tokens(self) -> float:
        """Return prompt, completion and memory tokens per question."""
        return self.prompt_tokens + self.completion_tokens + self.memory_tokens

    @property
    def delivered(self) -> float:
        """Return the tokens that the reader receives per question: prompt tokens plus memory tokens (compressed passages)."""
        return self.prompt_tokens + self.memory_tokens


@dataclass(frozen=True, slots=True)
class IndexCost:
    """Total cost of indexing a run's corpus; not part of `Cost`.

    Attributes:
        seconds: Time for building indexes, or for opening existing ones.
        prompt_tokens, completion_tokens, memory_tokens, model_calls, cost_usd: Cost of model calls during indexing.
        reused: Whether all artifacts existed already, so that these costs arose in an earlier run.
    """

    seconds: float
    prompt_tokens: int
    completion_tokens: int
    memory_tokens: int
    model_calls: int
    cost_usd: float
    reused: bool

    @property
    def tokens(self) -> int:
        """Return the number of tokens of all kinds."""
        return self.prompt_tokens + self.completion_tokens + self.memory_tokens

    def in_words(self) -> str:
        """Describe the cost in one line, without items that are zero."""
        calls = f"{self.model_calls:,} model calls, {self.tokens:,} tokens, US$ {self.cost_usd:.2f}" if self.model_calls else ""
        if self.reused:
            return f"{self.seconds:.2f} s to open the artifacts of an earlier run" + (f" with {calls}" if calls else "")
        return ", ".join(filter(None, (f"{self.seconds:.2f} s", calls)))


def costs(store: Store, run_ids: Sequence[str]) -> dict[str, Cost]:
    """Read the mean cost per question of runs, by run id; NaN for unknown values, for example if a submission does not report them."""
    with store.database.reading() as connection:
        noted = spendings(connection, run_ids)
        cached, unpriced = {run: tokens for run, _, tokens, _ in noted}, {run for run, calls, _, _ in noted if calls}
        rows = store.database.rows(
            # Sums of floating-point numbers depend on their order, which threads of DuckDB vary.
            """SELECT run, avg(seconds ORDER BY seconds), avg(prompt_tokens), avg(completion_tokens), avg(memory_tokens),
               avg(model_calls), sum(cost_usd ORDER BY cost_usd), quantile_cont(seconds, 0.5), quantile_cont(seconds, 0.95)
               FROM usage WHERE list_contains(?, run) GROUP BY run""",
            [sorted(run_ids)],
        )
        unknown = unstated(connection, run_ids)
    missing = {row[0]: {*unknown.get(row[0], ()), *(("cost_usd",) if row[0] in unpriced else ())} for row in rows}
    return {
        row[0]: replace(Cost(*row[1:]), **{"cached_tokens": cached.get(row[0], 0.0), **dict.fromkeys(missing[row[0]], math.nan)})
        for row in rows
    }


def spendings(connection: DuckDBPyConnection, run_ids: Sequence[str]) -> list[tuple[str, int, float, int]]:
    """Read the stored spending notes of runs as rows (run id, calls of unknown cost, cached tokens per question, all calls)."""
    # Reading JSON is slow: only of runs that have such a note at all.
    noted = connection.execute(
        f"""SELECT DISTINCT run FROM predictions WHERE list_contains(?, run) AND contains(CAST(notes AS VARCHAR), '"{SPENDING}"')""",
        [list(run_ids)],
    ).fetchall()
    if not noted:
        return []
    return connection.execute(
        f"""SELECT run, sum(coalesce(CAST(notes -> '$.{SPENDING}.unpriced' AS BIGINT), 0))::BIGINT,
            avg(coalesce(CAST(notes -> '$.{SPENDING}.cached_tokens' AS BIGINT), 0)), sum(model_calls)::BIGINT
            FROM predictions JOIN usage USING (run, question) WHERE list_contains(?, run) GROUP BY run""",
        [[run for (run,) in noted]],
    ).fetchall()


def index_costs(store: Store, run_ids: Sequence[str]) -> dict[str, IndexCost]:
    """Read the cost of indexing the corpus by run id; runs without it, such as submissions, are omitted."""
    rows = store.database.rows(
        """SELECT run, sum(seconds ORDER BY seconds), sum(prompt_tokens)::BIGINT, sum(completion_tokens)::BIGINT,
               sum(memory_tokens)::BIGINT, sum(model_calls)::BIGINT, sum(cost_usd ORDER BY cost_usd), bool_and(reused)
               FROM indexing WHERE list_contains(?, run) GROUP BY run""",
        [list(run_ids)],
    )
    return {row[0]: IndexCost(*row[1:]) for row in rows}

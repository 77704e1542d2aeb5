"""What the senders of submissions say that their answers took; what they do not say is unknown, and not nothing.

A run made here measures itself, so its zeros are zeros. The predictions of a submission are stored with zeros where
nothing was said (`usage` is optional), and anybody can leave out what others pay for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from duckdb import DuckDBPyConnection

OURS = "run"
"""Origin of runs made here; all others are submissions, confirmed or not."""
AS_STATED = "as its sender states"
NOT_STATED = "its sender does not state it"
_TOKENS = ("prompt_tokens", "completion_tokens", "memory_tokens")
_SAYS_NOTHING = " AND ".join(f"{name} = 0" for name in (*_TOKENS, "model_calls", "seconds", "cost_usd"))
_UNSTATED = f"""SELECT run, bool_or(failed IS NULL AND {_SAYS_NOTHING}), sum({" + ".join(_TOKENS)}) = 0,
sum(model_calls) = 0, sum(seconds) = 0, sum(cost_usd) = 0
FROM runs JOIN usage USING (run) JOIN predictions USING (run, question)
WHERE origin <> '{OURS}' AND list_contains(?, run) GROUP BY run"""
_FIELDS = (_TOKENS, ("model_calls",), ("seconds",), ("cost_usd",))


def unstated(connection: DuckDBPyConnection, run_ids: Sequence[str]) -> Mapping[str, frozenset[str]]:
    """Fields of `usage` that are not known of submissions, by run; runs made here are not among them.

    A field is unknown where it is zero throughout; all are where some question says nothing at all and did not fail: a
    mean over the rest would be of other questions, and one over zeros too low.

    Args:
        connection: To a store.
        run_ids: Fingerprints.
    """
    rows = connection.execute(_UNSTATED, [list(run_ids)]).fetchall()
    return {
        run: frozenset(name for names, nothing in zip(_FIELDS, nothings, strict=True) if silent or nothing for name in names)
        for run, silent, *nothings in rows
    }

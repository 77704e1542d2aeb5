"""What to do about a metric that is known and that stored runs were not scored on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.errors import UserError
from judges.registry import parse
from results.queries import NotScored


@contextmanager
def offering_score() -> Iterator[None]:
    """Where a metric was asked for that no run here was scored on: offer to score it, if it is a metric at all."""
    try:
        yield
    except NotScored as error:
        try:
            parse(error.metric)
        except UserError:
            raise error from None
        offered = f"`ragmeter score --add '{error.metric}'` scores the stored answers on it"
        raise UserError(error.what, where=error.where, try_this=offered) from None

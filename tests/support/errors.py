"""Expect a UserError by its code and place, so that its wording may change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.core.errors import UserError


@contextmanager
def raises(code: str, where: str | None = None) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Expect an error of this code; `where` must be part of its location."""
    with pytest.raises(UserError) as caught:
        yield caught
    assert caught.value.code == code, str(caught.value)
    if where is not None:
        assert where in (caught.value.where or ""), str(caught.value)

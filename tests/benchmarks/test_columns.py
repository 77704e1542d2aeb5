from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import columns

WHEN = datetime(1969, 7, 20, 20, 17, 40, 5)


@pytest.mark.parametrize(
    ("made", "values", "kind"),
    [
        (columns.strings(["ä", None, "", "b😀"]), ["ä", None, "", "b😀"], pa.string()),
        (columns.strings([], large=True), [], pa.large_string()),
        (columns.lists([("a", None), None, (), ("ü",)]), [["a", None], None, [], ["ü"]], pa.list_(pa.string())),
        (columns.numbers([3, None, -(2**62)], np.int64), [3, None, -(2**62)], pa.int64()),
        (columns.numbers([None, 1, 0.5], np.float64), [None, 1.0, 0.5], pa.float64()),
        (columns.moments([WHEN, None]), [WHEN, None], pa.timestamp("us")),
        (columns.column(np.array([0.5, np.nan])), [0.5, None], pa.float64()),
        (columns.column(np.array([True, False] * 5)), [True, False] * 5, pa.bool_()),
    ],
)
def test_columns_equal_arrow_columns(made: pa.Array, values: list[Any], kind: pa.DataType) -> None:
    made.validate(full=True)
    assert made.equals(pa.array(values, kind))


@pytest.mark.parametrize("value", [0.5, "1", 2**64])
def test_numbers_outside_the_column_type_are_refused(value: object) -> None:
    with pytest.raises((ValueError, OverflowError)):
        columns.numbers([1, value], np.int64)

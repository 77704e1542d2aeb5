"""Code that reads replies, with the version that stored results carry.

If a test here fails, decide whether a reply may be read differently now. If so, raise the version, so that stored results
are not reused or compared with new ones. Then replace the hash by the one that the test prints.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.core.fingerprint import content_hash
from judges.llm.reading import VERSION
from methods.models.reply import READING
from tools.same_code import code_of

ROOT = Path(__file__).resolve().parent.parent
ANSWERS = "methods/models/reply.py", "methods/models/thoughts.py", "methods/readers/extract.py", "methods/readers/citations.py"
VERDICTS = "judges/llm/reading.py", "methods/models/bounded.py", "methods/models/thoughts.py"


@pytest.mark.parametrize(
    ("files", "version", "expected"),
    [(ANSWERS, READING, (3, "fdb96b4185723afb")), (VERDICTS, VERSION, (4, "b5be2f81cc9c081b"))],
    ids=["answers", "verdicts"],
)
def test_code_that_reads_replies_has_the_version_that_it_was_released_with(
    files: tuple[str, ...], version: int, expected: tuple[int, str]
) -> None:
    code = content_hash(code_of((ROOT / name).read_text(encoding="utf-8")) for name in files)
    assert (version, code) == expected

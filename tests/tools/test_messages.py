"""All user errors have a code, and a snapshot contains every message."""

from __future__ import annotations

from pathlib import Path

from tools.messages import listing, messages

ROOT = Path(__file__).resolve().parents[2]


def test_every_user_error_has_a_code_and_is_in_the_snapshot() -> None:
    """Update the snapshot with `python -m tools.messages > tests/messages.txt`, and read the difference."""
    every = list(messages(ROOT))
    assert [place for place, code, _ in every if not code] == []
    assert (ROOT / "tests" / "messages.txt").read_text("utf-8").splitlines() == listing(every)


def test_errors_of_derived_classes_are_listed(tmp_path: Path) -> None:
    folder = tmp_path / "methods"
    folder.mkdir()
    (folder / "a.py").write_text(
        'class Torn(UserError):\n    pass\n\n\nTorn(f"torn {x}", code="torn")\nOther("no")\nUserError("bare")\n', encoding="utf-8"
    )
    assert [(code, text) for _, code, text in messages(tmp_path)] == [("torn", "torn {}"), ("", "bare")]

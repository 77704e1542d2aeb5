"""Training files with a known text, and its n-grams."""

import json
from pathlib import Path

QUESTION_TEXT = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
PASSAGE = " ".join(reversed(QUESTION_TEXT.split()))


def lines(path: Path, *rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def grams(words, n):
    if len(words) < n:
        return [tuple(words)] if words else []
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]

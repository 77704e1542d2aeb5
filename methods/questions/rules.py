"""Generate questions by rules, without a model: cloze sentences and questions about headings, for testing a pipeline."""

from __future__ import annotations

import re

from benchmarks.text import sentences
from methods.questions.material import Material
from methods.questions.writing import KEPT, Written

KINDS = ("cloze", "heading")
GAP = "_____"
_NUMBER = re.compile(r"(?<![\w.,])\d[\d.,:]*\d(?![\w])|(?<![\w.,])\d(?!\w)")
_NAME = re.compile(r"(?<=[a-zß-ÿ,;:] )[A-ZÀ-Þ][\w’'-]+(?: [A-ZÀ-Þ][\w’'-]+)*")
_SHORTEST, _LONGEST = 6, 40


def cloze(item: Material) -> Written:
    """Generate a cloze question: a sentence with a number or name removed."""
    (passage,) = item.passages
    for sentence in sentences(passage.text):
        plain = " ".join(sentence.split())
        match = _NUMBER.search(plain) or _NAME.search(plain)
        if match and _SHORTEST <= len(plain.split()) <= _LONGEST and plain[0] not in "#|>-*" and plain.count(match[0]) == 1:
            gapped = plain[: match.start()] + GAP + plain[match.end() :]
            return Written(item.kind, KEPT, f"Which words fill the gap? {gapped}", match[0], (plain,), item.documents, "rule: cloze")
    return Written(item.kind, "unwritten", documents=item.documents)


def heading(item: Material) -> Written:
    """Generate a question about a section's heading, with gold evidence and without an answer."""
    (passage,) = item.passages
    title, mark, section = passage.title.rpartition(" > ")
    body = " ".join(line for line in passage.text.splitlines() if not line.startswith("#"))
    first = next((" ".join(sentence.split()) for sentence in sentences(body) if sentence.strip()), "")
    if not mark or not first:
        return Written(item.kind, "unwritten", documents=item.documents)
    question = f"What does “{title}” say about “{section}”?"
    return Written(item.kind, KEPT, question, "", (first,), item.documents, "rule: heading")


WRITE = {"cloze": cloze, "heading": heading}

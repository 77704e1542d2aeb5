"""The text of a passage on a page: gold sentences and answers marked, long texts folded around the first of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from leaderboard.elements.nodes import Node, el
from results.store import records

WHOLE = 1500
"""Maximum characters shown at once; the rest of a longer text is folded."""
MOST = 60_000
"""Characters of a passage that are sent to the browser and searched for answers."""
_LEAD = 400
"""Characters shown before the first mark of a folded text."""
_SNAP = 40
"""Maximum distance that a cut moves to a word boundary."""
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PassageText:
    """Text of a passage with gold sentences and answers to be marked.

    Attributes:
        text: The part of the passage that is sent to the browser.
        length: Length of the whole passage, in characters.
        sentences: Start and end of each sentence; empty if the dataset does not split its passages.
        gold: Indices of the sentences that support the answer.
        answers: Start and end of each accepted answer.
    """

    text: str
    length: int
    sentences: tuple[Span, ...]
    gold: frozenset[int]
    answers: tuple[Span, ...]

    def render(self, key: str) -> Node:
        """Render the text as elements; long parts are folded and open on demand; `key` is stable between reruns."""
        start, end = self.window()
        shown = el("p", *self._pieces(start, end), cls="text")
        left_out = self.length - len(self.text)
        if (start, end) == (0, len(self.text)) and not left_out:
            return shown
        before = self._folded(0, start, "before", key)
        after = self._folded(end, len(self.text), "more", key)
        rest = el("p", f"… and {left_out:,} characters that are not shown here", cls="aside") if left_out else None
        return el("div", before, el("p", *self._pieces(start, end)), after, rest, cls="text")

    def window(self) -> Span:
        """Return the part that is shown unfolded: the beginning or, if the first mark lies beyond it, the surroundings of that mark."""
        size = len(self.text)
        if size <= WHOLE:
            return 0, size
        sentences = [span for number, span in enumerate(self.sentences) if number in self.gold and span[1] <= size]
        first = min([*sentences, *self.answers], default=(0, 0))
        start = self._between(first[0] - _LEAD, 0, first[0]) if first[1] > WHOLE else 0
        end = self._between(start + WHOLE, first[1], size)
        # A fold of a line or two hides less than it takes.
        return start, size if size - end < _LEAD // 2 else end

    def _between(self, position: int, low: int, high: int) -> int:
        """Return the end of the first white space at or slightly after a position, within bounds; else the position."""
        position = min(max(position, low), high)
        gap = next((at for at in range(position, min(position + _SNAP, high)) if self.text[at].isspace()), None)
        return position if gap is None or position == low else gap + 1

    def _folded(self, start: int, end: int, where: str, key: str) -> Node | None:
        if start >= end:
            return None
        marks = sum(start <= first < end for first, _ in self.answers)
        counted = f", the answer {marks:,} times" if marks > 1 else ", the answer once" if marks else ""
        return el(
            "details",
            el("summary", f"… {end - start:,} characters {where}{counted}"),
            el("p", *self._pieces(start, end)),
            cls="fold",
            key=f"{key}-{where}",
        )

    def _pieces(self, start: int, end: int) -> Iterator[Node | str]:
        """Yield the text between two character positions with its marks."""
        done = start
        for number, (first, last) in enumerate(self.sentences):
            first, last = max(first, start), min(last, end)
            if first >= last or number not in self.gold:
                continue
            yield from marked(self.text, self.answers, done, first)
            yield el("mark", *marked(self.text, self.answers, first, last), title="gold sentence")
            done = last
        yield from marked(self.text, self.answers, done, end)


def passage_text(text: str, sentences: Sequence[str], golds: tuple[str, ...], gold: Collection[int] = ()) -> PassageText:
    """Locate gold sentences, by their indices, and accepted answers (`informative_golds`) in a text, or in its sentences if split."""
    spaced = [sentence if sentence.endswith((" ", "\n")) else f"{sentence} " for sentence in sentences]
    starts = accumulate(map(len, spaced), initial=0)
    spans = [(start, start + len(sentence)) for start, sentence in zip(starts, sentences, strict=False)]
    whole = "".join(spaced) if sentences else text
    sent = whole[:MOST]
    return PassageText(sent, len(whole), tuple(spans), frozenset(gold), records.positions(sent, golds) if golds else ())


def marked(text: str, answers: Sequence[Span], start: int, end: int) -> Iterator[Node | str]:
    """Yield a section of a text with the answers in it marked; `answers`: start and end of each answer, sorted and not overlapping."""
    for first, last in answers:
        first, last = max(first, start), min(last, end)
        if first >= last:
            continue
        if start < first:
            yield text[start:first]
        yield el("mark", text[first:last], cls="answer", title="gold answer")
        start = last
    if start < end:
        yield text[start:end]


def key(*, sentences: bool, answers: bool) -> Node | None:
    """Make the legend of the marks of supporting sentences and of answers in a passage; None if there are neither."""
    sentence = el("span", el("mark", "gold sentence"), ": the dataset names it as support", cls="fact")
    answer = el("span", el("mark", "gold answer", cls="answer"), ": the words of an accepted answer, in any case", cls="fact")
    parts = [sentence] * sentences + [answer] * answers
    return el("p", *parts, cls="facts note") if parts else None

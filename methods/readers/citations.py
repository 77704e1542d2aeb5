"""Remove citation marks around a short answer: `[1]`, `(Doc 2)`, `【1†source】`, `[citation:3]`, `[[1]](https://…)`.

A mark is removed only if all its numbers are those of shown passages, and if the answer is complete without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Shown = Callable[[int], bool]
"""Function that tells whether a passage with this number (from 1) was in the prompt."""
_MOST_MARKS = 8
_LONGEST = 200
"""Maximum characters of a mark."""
_NUMBERS = r"\d{1,3}(?:\s?(?:,(?:\s?(?:and|&))?|;|、|，|-|–|and|&)\s?\d{1,3}){0,20}"
_PASSAGE = r"(?:passages?|documents?|docs?|sources?|citations?|refs?|references?|文档|文件|文献|段落|来源|資料|文書)"
_LEAD = rf"(?:(?:see|cf\.|from|per|according to|sources?:|references?:|来源：|来源:|参见)\s?)?(?:{_PASSAGE}[\s:#_-]{{0,2}})?"
_LISTED = rf"{_LEAD}\[?{_NUMBERS}\]?(?:\s?(?:[,;、]|,?\s?(?:and|&))\s?{_LEAD}\[?{_NUMBERS}\]?){{0,20}}"
_CITED = re.compile(
    r"\s*(?:"
    rf"\^?\\?\[\^?{_LEAD}(?P<plain>{_NUMBERS})(?:†[^\]]{{0,40}})?\\?\]"
    rf"|【[^\d】]{{0,20}}(?P<wide>{_NUMBERS})(?:[†:][^】]{{0,40}})?】"
    rf"|\[(?P<named>(?={_PASSAGE}){_LISTED})\]"
    rf"|[(（](?P<listed>(?=[^\d()（）]{{0,30}}(?:\[|{_PASSAGE}|来源|see)){_LISTED})[)）]"
    rf"|<sup>\s?\[?(?P<raised>{_NUMBERS})\]?\s?</sup>"
    rf"|\[\[?(?P<linked>{_NUMBERS})\]?\]\(https?://[^()\s]{{1,150}}\)"
    r")\s*\Z",
    re.IGNORECASE,
)
_JOINED = re.compile(r"(?:[,;、，]|\s[–—-]|(?<=[\])】]),?\s(?:and|&|und|et|y|e))\Z")
"""Pattern of what joins a mark to the text before it."""
_NEEDED = re.compile(r"\b(?:in|by|from|to|per|see|of|on|with)\Z", re.IGNORECASE)
"""Pattern of a text that ends with a word to which the mark belongs ("as stated in [1]")."""
_LED = re.compile(r"\[(\d{1,3})\]:?\s+(?=\S)")


def uncited(text: str, shown: Shown, cited: list[int]) -> str:
    """Remove citation marks around an answer if they refer to shown passages.

    Args:
        text: The answer.
        shown: Whether a passage with this number was in the prompt.
        cited: List to which the numbers are added, in order.
    """
    led = _LED.match(text)
    if led and shown(int(led[1])):
        cited.append(int(led[1]))
        text = text[led.end() :]
    numbered: list[int] = []
    for _ in range(_MOST_MARKS):
        stop = text[-1] if text.endswith((".", "。")) else ""
        tail = text[-_LONGEST:].removesuffix(stop)
        match = _CITED.search(tail)
        if match is None:
            break
        kept = _JOINED.sub("", text[: len(text) - len(stop) - len(tail) + match.start()].rstrip())
        numbers = _listed(next(group for group in match.groups() if group))
        if not kept or not numbers or not all(map(shown, numbers)) or _NEEDED.search(kept):
            break
        numbered = numbers + numbered
        text = kept if kept.endswith((".", "。")) else kept + stop
    cited += numbered
    return text


def _listed(text: str) -> list[int]:
    """Parse the numbers of a citation: `1, 2`, `1-3`, `Passage 1, Passage 2`."""
    numbers: list[int] = []
    for item in re.split(r"[,;&、，]|and", text):
        ends = [int(number) for number in re.findall(r"\d+", item)]
        numbers += range(ends[0], ends[-1] + 1) if len(ends) == 2 else ends
    return numbers

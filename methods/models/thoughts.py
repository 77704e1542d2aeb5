"""Split a model's text into thought and answer, for every family of marks that models write.

Tags (`<think>`, `<thinking>`, `<thought>`, `<reasoning>`, `[THINK]` …), harmony channels, and closing tags whose opening
tag was part of the prompt. Marks inside code or quotes belong to the answer. The time is linear in the text's length.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from methods.api import CUT

_NAMES = "think|thinking|thoughts?|reasoning|scratch_?pad|reflection|inner_monologue|inner_thoughts|longcat_think|antThinking"
_NAMES += "|thought_process|chain_of_thought"
_MARK = re.compile(
    rf"(?P<open>(?i:<(?:\w{{1,20}}:)?(?:{_NAMES})(?:\s[^<>]{{0,200}})?>)|\[THINK\]|◁think▷|<\|think(?:ing)?\|>"
    r"|<\|(?:begin_of_thought|START_THINKING)\|>|<\|channel>thought\b|<unused94>thought\b|<\|inner_prefix\|>|\AThinking\.\.\.\n)"
    rf"|(?i:</(?:\w{{1,20}}:)?(?:{_NAMES})\s{{0,20}}>)|\[/THINK\]|◁/think▷|<\|/think(?:ing)?\|>"
    r"|<\|(?:end_of_thought|END_THINKING)\|>|<channel\|>|<unused95>|<\|inner_suffix\|>|(?m:^\.\.\.done thinking\.)"
)
_FENCE = re.compile(r"^[ \t]{0,3}(```|~~~)", re.MULTILINE)
_INLINE = re.compile(r"`[^`\n]+`|\"[^\"\n]{1,300}\"|“[^”\n]{1,300}”|'<[^'\n]{1,300}>'")
INVISIBLE = "\u200b\u200e\u200f\u2060\ufeff"
"""Characters of no width that mean nothing at the ends of a text."""
_LINE_START = re.compile(rf"^(?:[^\S\n]|[{INVISIBLE}])*(?=[<\[◁])", re.MULTILINE)
_ATTACHED = re.compile(r"[^\W_]<|[.?!]<")
"""Pattern of a tag that follows a word without a space, which sentences about tags do not have."""
_CONTENT = re.compile(rf"[^\s{INVISIBLE}]")
_JSON = re.compile(r"\s*(?:\{|\[\s*[\"{\[])")
_TOKENS = re.compile(rf"[\s{INVISIBLE}]*(?:(?:<\|[\w.-]{{1,40}}\|>|<s>|<bos>)[\s{INVISIBLE}]*)*")
_ANSWER_MARKS = re.compile(r"<\|(?:begin|end)_of_solution\|>|<\|(?:START|END)_RESPONSE\|>")
_HARMONY = re.compile(r"\s*(?:<\|start\|>[^<]{0,100})?<\|channel\|>")
_HEAD = re.compile(r"<\|channel\|>(?P<channel>[^<]{0,200})(?:<\|constrain\|>[^<]{0,100})?<\|message\|>")
_STOP = re.compile(r"<\|(?:end|return|call|start|channel)\|>")
_BARE_FINAL = "assistantfinal"
_BARE_THOUGHT = re.compile(r"(?:analysis|commentary)(?=[A-Z])")
_BARE_CALL = re.compile(r"assistantcommentary to=([\w.-]{1,100})")
_WRITTEN_OUT = tuple(
    (re.compile(rf"\s*{begin}"), re.compile(end, re.MULTILINE))
    for begin, end in (
        (r'<details\b[^<>]{0,200}\btype="(?:reasoning|tool_calls)"[^<>]{0,2000}>(?:\s*<summary>[^<]{0,200}</summary>)?', r"</details>"),
        (r":::\s?thinking\s*\n", r"^:::\s*$"),
        (r"(?P<words>Here(?:['’]s| is) my thought process:)", r"\**Here(?:['’]s| is) my (?:response|answer):\**"),
        (r"\*Thinking(?:\.\.\.|…)\*[^\S\n]*\n\s*(?=>)", r"^(?=[^>\s])"),
    )
)
"""Beginnings and ends of thoughts as chats write them out: Open WebUI, LibreChat, Granite, and Poe, which quotes them.

Any model may begin an answer with Granite's `words`, so they begin a thought only if an end follows or the token limit cut it.
"""
SPECIAL = frozenset({"<|channel|>", "<|message|>", "<|start|>", "<|channel>", "<channel|>", "[THINK]", "[/THINK]", "<think>", "</think>"})
SPECIAL |= {"<|inner_prefix|>", "<|inner_suffix|>"}
SPECIAL |= {"◁think▷", "◁/think▷", "<|START_THINKING|>", "<|END_THINKING|>", "<|begin_of_thought|>", "<|end_of_thought|>"}
"""Marks that some tokenizers hold as special tokens, which decoding must keep."""
_OPENINGS = re.compile(rf"(?:(?i:<(?:\w{{1,20}}:)?(?:{_NAMES})>)|\[THINK\]|◁think▷|<\|(?:begin_of_thought|START_THINKING)\|>)\s*\Z")


@dataclass(frozen=True, slots=True)
class Split:
    """A model's text in its parts.

    Attributes:
        thought: What the model thought before it answered; "" if it did not think.
        text: The answer; the whole text, unchanged, if it holds no thought.
        open: Whether the text ends within a thought.
        tool: Name of the tool that a harmony message calls; "" for none.
    """

    thought: str
    text: str
    open: bool = False
    tool: str = ""


def opening_of(prompt: str) -> str:
    """Return the opening tag that a prompt ends with, for models whose template begins the thought; else ""."""
    match = _OPENINGS.search(prompt[-100:])
    return match[0].strip() if match else ""


def split(text: str, finish_reason: str = "") -> Split:
    """Split a model's text into thought and answer.

    Args:
        text: As the model wrote it.
        finish_reason: One of `CUT` if the token limit ended it.
    """
    if _HARMONY.match(text):
        return _channels(text)
    bare = text.removeprefix("assistant")
    if bare.startswith(("analysis", "commentary")) and _BARE_FINAL in bare:  # harmony after a server removed the special tokens
        thought, _, answer = bare.removeprefix("analysis").rpartition(_BARE_FINAL)
        return Split(thought.strip(), answer)
    if begins := _BARE_THOUGHT.match(bare):
        call = _BARE_CALL.search(bare)
        return Split(bare[begins.end() :].strip(), "", open=call is None, tool=call[1] if call else "")
    cut = finish_reason.lower() in CUT
    written, after, complete = _written_out(text, cut)
    if after:
        return Split(written, text[after:], open=not complete)
    marks = list(_MARK.finditer(text))
    return _Tags(text, marks).split(cut) if marks else Split("", text)


def _written_out(text: str, cut: bool) -> tuple[str, int, bool]:
    """Return the thought that a text begins with, where it ends, and whether an end was found; `cut` as in `_Tags.split`."""
    thoughts: list[str] = []
    position = 0
    while begun := next(((first, end) for begin, end in _WRITTEN_OUT if (first := begin.match(text, position))), None):
        first, end = begun
        last = end.search(text, first.end())
        if last is None and not cut and "words" in first.re.groupindex:
            break
        thoughts.append(text[first.end() : last.start() if last else len(text)])
        if last is None:
            return _joined(thoughts), len(text), False
        position = last.end()
    return _joined(thoughts), position, True


def _channels(text: str) -> Split:
    """Parse harmony messages: the channel `final` has the answer, others have thoughts and tool calls."""
    finals: list[str] = []
    thoughts: list[str] = []
    tool, ended, end = "", False, 0
    for head in _HEAD.finditer(text):
        if head.start() < end:
            continue
        stop = _STOP.search(text, head.end())
        end = stop.start() if stop else len(text)
        channel = head["channel"].split()
        ended = stop is not None
        if channel[:1] == ["final"]:
            finals.append(text[head.end() : end])
        else:
            thoughts.append(text[head.end() : end].strip())
            tool = next((word.removeprefix("to=") for word in channel if word.startswith("to=")), tool)
    thought = "\n\n".join(filter(None, thoughts))
    if finals:
        return Split(thought, "".join(finals))
    return Split(thought, "", open=not (tool and ended), tool=tool if ended else "")


class _Tags:
    """Tags of a text outside code.

    Args:
        text: The text.
        marks: All opening and closing tags in order.
    """

    def __init__(self, text: str, marks: Sequence[re.Match[str]]) -> None:
        self.text, self.marks = text, marks
        fences = [match.start() for match in _FENCE.finditer(text)]
        spans = list(zip(fences[::2], fences[1::2], strict=False))
        inline = [match.span() for match in _INLINE.finditer(text)]
        unclosed = fences[-1] if len(fences) % 2 else len(text)
        fenced, quoted = _Spans(spans), _Spans(inline)
        self.outside = [
            mark
            for mark in marks
            # A fence that is never closed hides what opens behind it. It may belong to a thought, so it hides no end.
            if not (fenced.hold(mark.start()) or quoted.hold(mark.start()) or (mark["open"] and mark.start() > unclosed))
        ]
        self.begin_lines = {match.end() for match in _LINE_START.finditer(text)}
        self.last = len(text.rstrip())
        tokens = _TOKENS.match(text)
        self.leads = marks[0]["open"] is not None and tokens is not None and tokens.end() >= marks[0].start()

    def split(self, cut: bool) -> Split:
        """Split the text; `cut` says that the token limit ended it."""
        text = self.text
        if not self.leads and _JSON.match(text):
            return Split("", text)
        outside = self.outside
        if self.leads and outside[:1] != [self.marks[0]]:
            outside = [self.marks[0], *outside]
        thoughts: list[str] = []
        answers: list[str] = []
        position, number, content = 0, 0, _next_content(text, 0)
        while number < len(outside):
            mark = outside[number]
            first = self.leads and number == 0
            leading = first or content >= mark.start()
            if mark["open"] is None:  # the prompt held the opening tag
                if mark.end() >= self.last and not (leading or thoughts or mark.start() in self.begin_lines):
                    break  # a sentence about the tag
                thoughts += [*answers, text[position : mark.start()]]
                answers, number = [], number + 1
                position, content = mark.end(), _next_content(text, mark.end())
                continue
            close = _closing(outside, number)
            if close is None and first:  # an unclosed fence or quote of the thought hides its end
                close = _closing(self.marks, 0)
                if close is not None:
                    outside = [mark, *(item for item in self.marks if item.start() >= close.start())]
            begins = leading or mark.start() in self.begin_lines
            if close is None:
                if leading or (begins and cut):
                    return Split(_joined([*thoughts, text[mark.end() :]]), "", open=True)
                break  # no closing tag follows
            following = bisect_right(outside, close.start(), key=re.Match.start)
            if begins or _ATTACHED.match(text, mark.start() - 1) or text.find("\n", mark.start(), close.start()) >= 0:
                if not leading:
                    answers.append(text[position : mark.start()])
                thoughts.append(text[mark.end() : close.start()])
                position, content = close.end(), _next_content(text, close.end())
            number = following  # else: a sentence about the tags
        if not thoughts:
            return Split("", text)
        if position < self.last:
            if answers and self.marks[0].start() > 0 and not self.leads:
                thoughts.insert(0, answers.pop(0))  # a remark before the thought
            answers.append(text[position:])
        answer = answers[0] if len(answers) == 1 else "\n\n".join(piece.strip() for piece in answers)
        return Split(_joined(thoughts), _ANSWER_MARKS.sub("", answer))


class _Spans:
    """Spans of a text, in order."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._starts, self._spans = [start for start, _ in spans], spans

    def hold(self, position: int) -> bool:
        """Return whether a span holds a position."""
        number = bisect_right(self._starts, position) - 1
        return number >= 0 and position < self._spans[number][1]


def _joined(thoughts: Sequence[str]) -> str:
    return "\n\n".join(piece for thought in thoughts if (piece := thought.strip()))


def _next_content(text: str, position: int) -> int:
    match = _CONTENT.search(text, position)
    return match.start() if match else len(text)


def _closing(marks: Sequence[re.Match[str]], number: int) -> re.Match[str] | None:
    """Return the closing tag of the opening tag at `number`; the last one if the tags do not pair up."""
    depth, latest = 0, None
    for position in range(number, len(marks)):
        mark = marks[position]
        depth += -1 if mark["open"] is None else 1
        if mark["open"] is None:
            latest = mark
            if depth == 0:
                return mark
    return latest

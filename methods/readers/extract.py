"""Extract a short answer from a model's text, by one documented rule.

The rule `short` removes what models add around an answer: Markdown, code fences, JSON with one field, `\\boxed{}`, special
tokens, a repeated prompt, prefaces ("Based on the passages:", "Answer:"), the action with which an agent ends, quotes, a final stop, and
citation marks that number a shown passage. A plain answer does not change beyond its quotes and stop. Every step takes linear time.
"""

from __future__ import annotations

import ast
import json
import re
import string
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from pydantic import Field, field_validator

from benchmarks.core.models import FrozenModel
from methods.models.reply import gives_answer
from methods.readers.citations import Shown, uncited


class Pattern(FrozenModel):
    """A user's own rule: a regular expression."""

    regex: str = Field(description="a regular expression; the answer is the first group of its last match, or the whole match")

    @field_validator("regex")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"this is not a regular expression: {error}") from None
        return value


Extract = Literal["short", "last_line", "none"] | Pattern
"""Type of the option `extract:`."""


@dataclass(frozen=True, slots=True)
class Extracted:
    """A short answer.

    Attributes:
        text: The answer.
        cited: Passage numbers in the removed citation marks, in order.
        failed: Reason why there is no answer; None if there is one.
    """

    text: str
    cited: tuple[int, ...] = ()
    failed: str | None = None


def _nothing(number: int) -> bool:
    return False


def extract(text: str, rule: Extract, shown: Shown = _nothing) -> Extracted:
    """Extract the short answer from a model's text.

    Args:
        text: The model's text, without its reasoning.
        rule: The rule to apply.
        shown: Which passage numbers may be removed as citation marks; by default none.
    """
    if rule == "none":
        return Extracted(text.strip())
    if isinstance(rule, Pattern):
        matches = list(re.finditer(rule.regex, text))
        if not matches:
            return Extracted("", failed=f"no part of the reply matches extract: {{regex: {rule.regex}}}")
        match = matches[-1]
        return Extracted(((match[1] if match.re.groups else match[0]) or "").strip())
    if rule == "last_line":
        lines = [line for line in text.splitlines() if line.strip() and not _FENCE.fullmatch(line.strip())]
        return _extract_short(lines[-1] if lines else "", shown)
    return _extract_short(text, shown)


def short_answer(text: str, shown: Shown = _nothing) -> str:
    """Extract the short answer by the rule `short`."""
    return _extract_short(text, shown).text


_ROUNDS = 8
_BLANK = string.whitespace + "\u00a0\u3000\u200b\u200e\u200f\u2060\ufeff"
"""White space, and characters of no width that mean nothing at the ends of a text."""
_ENDS = (
    r"<\|(?:im_end|eot_id|end|return|endoftext|end_of_text|eom_id|end_of_turn|end_of_sentence)\|>|</s>|<end_of_turn>|<eos>"
    r"|<｜end▁of▁sentence｜>|\[/INST\]"
)
_TOKENS = (
    r"<\|(?:im_start|start_header_id)\|>(?:assistant\b)?|<\|[\w.-]{1,40}\|>|<｜[\w▁]{1,40}｜>|</?s>"
    r"|<(?:bos|eos|pad|unk)>|<(?:start|end)_of_turn>(?:model\b)?|\[/?INST\]"
)
_END, _TOKEN, _FIRST_TOKENS = re.compile(_ENDS), re.compile(_TOKENS), re.compile(rf"(?:\s*(?:{_TOKENS}))*")
_NEXT_TURN = re.compile(r"^[ \t]*(?:q|question|user|human|passages?)[ \t]*:", re.IGNORECASE | re.MULTILINE)
_ECHO = re.compile(
    r"^[ \t>#*_]{0,10}q(?:uestion)?[*_]{0,3}[ \t]*[:：.][^\n]*\n\s*[>#*_]{0,9}a(?:nswer)?[*_]{0,3}[ \t]*[:：.][*_]{0,3}[ \t]*",
    re.IGNORECASE | re.MULTILINE,
)
"""Pattern of a repeated question and the label of its answer."""
_ECHOED_CONTEXT = re.compile(r"[ \t>#*_]{0,10}(?:contexts?|passages?|documents?)[*_]{0,3}[ \t]*[:：]", re.IGNORECASE)
_ASKED = re.compile(r"^[ \t>#*_]{0,10}(?:q|question)[*_]{0,3}[ \t]*[:：][^\n]*\?[*_ \t]{0,10}$", re.IGNORECASE | re.MULTILINE)
_USER_TURN = re.compile(
    r"\s*(?:(?:<s>|<bos>|<\|begin_of_text\|>)\s*)?(?:<\|im_start\|>(?:user|system)\b|<\|start_header_id\|>(?:user|system)\b"
    r"|<start_of_turn>(?:user|system)\b|\[INST\]|<\|(?:user|system)\|>|(?:user|human)[ \t]*:)",
    re.IGNORECASE,
)
_MODEL_TURN = re.compile(
    r"<\|im_start\|>assistant\b|<\|start_header_id\|>assistant<\|end_header_id\|>|<start_of_turn>model\b|\[/INST\]|<\|assistant\|>"
    r"|(?<!\S)(?:assistant|ai|bot)[ \t]*:",
    re.IGNORECASE,
)
_ASSISTANT = re.compile(r"\A\s*assistant[ \t]*:\s*(?=\S)", re.IGNORECASE)
"""Patterns of the beginnings of a repeated prompt and of the model's turn after it."""
_FENCE = re.compile(r"(?:```|~~~)[\w+-]{0,20}")
_OTHERS = (
    r"ans|(?:(?:die|endgültige|finale|kurze|richtige)[ \t]+){0,3}antwort|antwoord|svar|vastaus|vastus|odpowiedź|odpověď|odpoveď"
    r"|(?:la[ \t]+)?(?:réponse|respuesta|risposta)(?:[ \t]+(?:finale?|courte|corta|breve|correcta|correcte|corretta))?"
    r"|(?:a[ \t]+)?resposta(?:[ \t]+(?:final|curta|correta))?|odgovor|válasz|răspuns|відповідь|отговор"
    r"|(?:(?:итоговый|окончательный|краткий|правильный)[ \t]+)?ответ|απάντηση|תשובה|پاسخ|उत्तर|คำตอบ"
    r"|(?:最终|最終|最終的な|正确|正確|正しい|短い|简短)?(?:答案|回答|答え|答复)|(?:최종[ \t]*)?(?:답변|정답|답)"
    r"|(?:الإجابة|الجواب)(?:[ \t]+النهائية?)?|cevap|jawaban|(?:câu[ \t]+)?trả lời|đáp án"
)
_IS = "ist|lautet|est|es|è|é|は|是|为|為|هي|هو|jest|är|er|is"
"""Words between one of these labels and its colon ("La respuesta es: …")."""
_THEN = "so|therefore|thus|hence|finally|ultimately|overall|consequently|in (?:conclusion|summary|short)|to (?:conclude|summarize|sum up)"
_SO = rf"(?:(?:{_THEN}),?[ \t]+|i (?:think|believe)(?: that)?[ \t]+)?(?:(?:the|my)[ \t]+)?"
_ANSWER = r"(?:(?:final|short|correct|concise|brief|direct|exact|best)[ \t]+)?answer"
_LABEL = rf"(?:(?:the|my)[ \t]+)?{_ANSWER}|(?:final[ \t]+)?response|output"
_LABEL += rf"|(?:{_OTHERS})(?:[ \t]*(?:{_IS}))?"
_STATES = rf"{_SO}{_ANSWER}(?: to (?:the|this|your) question)?[ \t]+(?:is|would be)"
"""Pattern of a sentence that states the answer."""
_SIGNS = "✅✔☑➡➜👉👍🎯📍📌💡🔹🔸🟢🏆📝\ufe0f"
"""Signs with which chat models decorate answers and labels."""
_MARKED = re.compile(
    rf"[ \t>#*_`{_SIGNS}-]{{0,10}}(?:(?:{_LABEL})[ \t]{{0,10}}"
    r"(?:[*_]{1,3}[ \t]{0,10}[:：]|[:：](?:[ \t]{0,10}[*_]{1,3}(?=[ \t]|$)|[*_]{0,3}))"
    rf"|(?:{_ANSWER}|{_OTHERS})[*_]{{0,3}}[ \t]{{1,5}}(?:[-–—=→➡➜]|[-=]>)[ \t]+)"
    r"(?P<rest>[^\n]*)",
    re.IGNORECASE,
)
"""Pattern of a line with a label; a title may begin with "The Answer –", so a dash must follow the bare label."""
_HEADING = re.compile(rf"[ \t>#*_{_SIGNS}]{{0,10}}(?:{_LABEL})[*_ \t]{{0,10}}[:：]?[*_ \t]{{0,10}}", re.IGNORECASE)
_PREFIX = re.compile(
    rf"(?:{_STATES}(?:\s*:\s*|\s+|$)|(?:所以|因此)?[,，]?(?:最终|正确)?答案[是为][:：]?|(?:the\s+)?{_ANSWER}\s*:\s*"
    r"|(?:also |daher )?die (?:richtige |endgültige )?antwort (?:ist|lautet)\s*:?\s+|(?:ist|lautet) die antwort\s*:?\s+"
    r"|(?:donc,? |por (?:lo )?tanto,? |quindi,? )?"
    r"(?:la (?:réponse|respuesta|risposta)|a resposta) (?:finale? |correcte |correcta |corretta |correta )?(?:est|es|è|é)\s*:?\s+)",
    re.IGNORECASE,
)
_POLITE = re.compile(
    r"(?:最終的な|正しい)?(?:答え|回答)は[、:：]?(?P<ja>.+?)です[。.]?|(?:정답|답|답변)[은는] (?P<ko>.+?)(?:입니다|이다|예요)\.?"
)
"""Pattern of a Japanese or Korean sentence that states the answer."""

_CONCLUSION = rf"(?:(?=(?:{_THEN})\b|the f){_STATES}\b|{_STATES}[ \t]*[:*])"
_CONCLUDES = re.compile(rf"[ \t>*_]{{0,10}}{_CONCLUSION}", re.IGNORECASE)
"""Pattern of a line that concludes with the answer."""
_SENTENCE = re.compile(rf"(?<=[.!?\"”’)\]*])[ \t]+(?={_CONCLUSION})", re.IGNORECASE)
"""Pattern of the space before a sentence that concludes with the answer."""
_PREFACE = re.compile(
    r"(?:based on|according to|from|given) (?:(?:the |these |this )?(?:given |provided |above |retrieved |supplied )?"
    r"(?:passages?|contexts?|documents?|texts?|information|sources?|evidence)(?: \[?\d{1,3}\]?| (?:provided|given|above))?"
    r"|\[\d{1,3}\](?:(?:,? and|,)? ?\[\d{1,3}\]){0,9})\s{0,9}[:,]\s*",
    re.IGNORECASE,
)
_SOURCES = re.compile(
    rf"(?:(?:laut|gemäß|basierend auf|auf (?:der )?(?:basis|grundlage)|d['’]après|selon|sur la base|según|de acuerdo con|con base en"
    r"|secondo|in base a|de acordo com|segundo|com base)\b[^\n,:]{1,80}?[,:]?\s+|(?:根据|根據|基于|基於|依据)[^\n,，:：。]{1,80}[,，:：]\s*"
    r"|[^\n、。]{1,60}(?:によると|によれば|に基づくと)、?|[^\n.]{1,60}에 (?:따르면|근거하면),?\s*)"
    rf"(?={_PREFIX.pattern}|{_POLITE.pattern.replace('?P<ja>', '?:').replace('?P<ko>', '?:')})",
    re.IGNORECASE,
)
"""Pattern of words in other languages that name the sources of a stated answer."""
_GREETING = re.compile(r"(?:(?:sure|certainly|of course|okay)\b[!,.]? ?)?here(?:['’]s| is| are)\b[^\n:]{0,80}:\s*", re.IGNORECASE)
_WILLING = re.compile(r"[*_]{0,3}(?:sure|certainly|of course|absolutely|okay)(?: thing)?[!,.:]{0,2}[*_]{0,3}", re.IGNORECASE)
_AGREES = re.compile(rf"(?:sure|certainly|of course|absolutely|okay)[!,.]\s+(?={_STATES}\b|{_PREFACE.pattern})", re.IGNORECASE)
_HOPES = re.compile(r"[.!]?[*$]{0,3}[ \t]{1,3}i hope (?:it|this|that) is correct[.!]?[*$]{0,3}$", re.IGNORECASE)
"""Pattern of the last words of answers to the published prompt for MATH."""
_TAGGED = re.compile(r"<(final_answer|short_answer|answer|response|final|result|output|ans)>", re.IGNORECASE)
_STYLED = re.compile(r"<(b|strong|i|em|u|p|span)>([^<>\n]+)</\1>", re.IGNORECASE)
_RULE = re.compile(r"\s*(?:={3,}|-{3,}|\*{3,}|_{3,})\s*")
_HASHED = re.compile(r"####[ \t]+(?=\S)")
_ROW = re.compile(r"\s*\|(?P<cells>[^\n]*)\|\s*")
_LINED = re.compile(r"\s*\|(?:\s*:?-+:?\s*\|)+\s*")
_BOXED = re.compile(r"\\(?:boxed|fbox)\s?\{")
_FORMULA = re.compile(r"\${1,2}([^$\n]+)\${1,2}|\\\(([^\n]+)\\\)|\\\[([^\n]+)\\\]")
_TEX = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textit|mbox)\{([^{}]*)\}")
_ESCAPED = re.compile(r"\\([$%&#_])")
_LIST = re.compile(r"(?:#{1,6}|>|[-*•])\s+(?=\S)")
_DECORATED = re.compile(rf"\A[{_SIGNS}]+\s+(?=\S)|(?<=\S)\s+[{_SIGNS}]+\Z")
_QUOTES = {'"': '"', "'": "'", "“": "”", "`": "`", "‘": "’", "«": "»", "„": "“”", "「": "」", "『": "』"}
_BOLD = re.compile(r"(?<![*\w])\*\*(?=\S)([^*\n]+)(?<=\S)\*\*(?![*\w])")
_LINK = re.compile(r"\[([^\]\[\n]+)\]\(https?://[^()\s]*\)")
_EXTRA = re.compile(r"""("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.{0,1000}?\*/|,(?=\s*[}\]])""", re.DOTALL)
"""Pattern of what models add to JSON, comments and a comma before a bracket, and of the strings in which these are text."""
_MOST_LITERAL = 10_000
"""Maximum characters of a Python literal."""
_CUT = re.compile(r"""\{\s*"(?:(?:final|short)[ _-]?)?answer"\s*:\s*"((?:[^"\\]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*)""", re.IGNORECASE)
"""Pattern of the beginning of a JSON object that is broken or cut off after its answer began."""
_ANSWER_FIELDS = ("answer", "finalanswer", "shortanswer")
"""Names of the answer's field, without case and separators (`Final Answer`, `final_answer`)."""
_ACTIONS = ("action", "name", "tool", "tool_name", "function")
_ARGUMENTS = ("action_input", "arguments", "parameters", "args", "tool_input")
"""Fields of an object that calls an action, and of its arguments: LangChain's, and those of function calls."""
_CALLS = r"(?:finish|submit(?:_answer)?|final_?answer)"
_FINISH = re.compile(
    rf"^[ \t]*[*`]{{0,3}}(?:action(?: \d{{1,2}})?[*_]{{0,3}}[ \t]*:[*_]{{0,3}}[ \t]*)?[*`]{{0,3}}{_CALLS}"
    r"(?:[ ]?\[(?P<brackets>[^\n]*)\]|\((?:\w{1,20}[ ]?=[ ]?)?(?:(?P<quote>[\"'])(?P<quoted>(?:(?!(?P=quote))[^\n])+)(?P=quote)"
    r"(?:,[^\n]*)?|(?P<bare>[^\"'()=,\n]+))\))[*`.]{0,4}[ \t]*$"
    rf"|^[ \t]*action(?: \d{{1,2}})?[ \t]*:[ \t]*(?:finish|submit|final[ _]?answer)[ \t]*\n\s*action input(?: \d{{1,2}})?[ \t]*:[ \t]*"
    r"(?P<input>[^\n]+)",
    re.IGNORECASE | re.MULTILINE,
)
"""Pattern of the action with which agents end: `Finish[…]` (ReAct), `final_answer("…")` (smolagents), an action with an input line."""
_OBJECT = re.compile(r"(?<!\S)\{(?=\s*[\"'}])")
_MOST_OBJECTS = 16
"""Maximum number of JSON objects that are looked for in a text."""


def _extract_short(text: str, shown: Shown) -> Extracted:
    cited: list[int] = []
    text = _settled(_one_turn(text), lambda part: _after_preface(_unwrapped(part)))
    text = text.split("\n", 1)[0].strip()
    text = _settled(text, lambda part: _bare(uncited(_plain(_unwrapped(part)), shown, cited)))
    return Extracted(text, tuple(dict.fromkeys(cited)))


def _settled(text: str, step: Callable[[str], str]) -> str:
    """Repeat a step until the text stops changing."""
    for _ in range(_ROUNDS):
        changed = step(text)
        if changed == text:
            break
        text = changed
    return text


def _one_turn(text: str) -> str:
    """Remove special tokens, and text after the end of the model's turn."""
    answers = _MODEL_TURN.search(text) if _USER_TURN.match(text) else None
    text = text[answers.end() :] if answers else text
    first = _FIRST_TOKENS.match(text)
    text = text[first.end() if first else 0 :]
    end = _END.search(text)
    text = _TOKEN.sub("", text if end is None else text[: end.start()]).strip(_BLANK)
    text = _ASSISTANT.sub("", text)
    echo = (_ECHO.search(text) or _ASKED.search(text)) if _ECHOED_CONTEXT.match(text) else _ECHO.match(text)
    text = text[echo.end() :] if echo else text
    following = _NEXT_TURN.search(text)
    return text[: following.start()].strip() if following and text[: following.start()].strip() else text


def _unwrapped(text: str) -> str:
    """Return the content of a box, answer tag, fence or JSON object; unchanged without one."""
    text = text.strip()
    boxes = list(_BOXED.finditer(text))
    if boxes and (inside := _braced(text[boxes[-1].end() :])) is not None:
        inside = _ESCAPED.sub(r"\1", _TEX.sub(r"\1", inside)).strip()
        return inside[1:-1].strip() if len(inside) > 2 and inside[0] == inside[-1] == "$" else inside
    if (formula := _FORMULA.fullmatch(text)) or _TEX.fullmatch(text):
        inside = next(filter(None, formula.groups())) if formula else text
        return _ESCAPED.sub(r"\1", _TEX.sub(r"\1", inside)).strip()
    tags = list(_TAGGED.finditer(text))
    if tags:
        inside = text[tags[-1].end() :]
        closing = re.search(rf"</{tags[-1][1]}>", inside, re.IGNORECASE)
        return inside[: closing.start()].strip() if closing else inside.strip()
    if text[:3] in ("```", "~~~"):
        return _unfenced(text)
    if text[:1] == "{" or (text[:1] == "[" and text[-1:] == "]"):
        return _field(text)
    if text[:1] == "|":
        return _cell(text)
    finished = _FINISH.search(text)
    if finished is None:
        return _object_within(text) or text
    return next(finished[name] for name in ("brackets", "quoted", "bare", "input") if finished[name] is not None).strip()


def _object_within(text: str) -> str | None:
    """Return the answer of the first JSON object with a field `answer` in a text; None if there is none."""
    for match in islice(_OBJECT.finditer(text), _MOST_OBJECTS):
        try:
            value, _ = json.JSONDecoder(parse_float=str).raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        if sum(_field_name(name) in _ANSWER_FIELDS for name in value) == 1:
            return _field(json.dumps(value, ensure_ascii=False))
    return None


def _field_name(name: Any) -> str:
    return re.sub(r"[\W_]+", "", str(name)).lower()


def _cell(text: str) -> str:
    """Return the answer's cell in a one-row table; other texts are unchanged."""
    rows = [match["cells"].split("|") for line in text.splitlines() if (match := _ROW.fullmatch(line)) and not _LINED.fullmatch(line)]
    if len(rows) == 1:
        return rows[0][0].strip() if len(rows[0]) == 1 else text
    if len(rows) != 2 or len(rows[0]) != len(rows[1]):
        return text
    named = [number for number, name in enumerate(rows[0]) if len(rows[0]) == 1 or _HEADING.fullmatch(name.strip())]
    return rows[1][named[0]].strip() if len(named) == 1 else text


def _braced(text: str) -> str | None:
    """Return a text up to the matching closing brace; None if there is none."""
    depth = 1
    for match in re.finditer(r"[{}]", text):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return text[: match.start()]
    return None


def _unfenced(text: str) -> str:
    """Return the content of the fence that a text begins with."""
    lines = text.split("\n")
    if len(lines) == 1:
        inside = text[3:-3] if text.endswith(text[:3]) else text[3:]
        return inside.strip() or text
    if not _FENCE.fullmatch(lines[0].strip()):
        return text
    end = next((number for number, line in enumerate(lines) if number and line.strip() == text[:3]), len(lines))
    return "\n".join(lines[1:end]).strip() or text


def _field(text: str) -> str:
    """Return the answer in a JSON object: its only field, or its field `answer`, possibly nested; other texts are unchanged."""
    value = _parsed(text)
    if value is None:
        if (within := _object_within(text)) is not None:
            return within
        return json.loads(f'"{cut[1]}"', strict=False) if (cut := _CUT.match(text)) else text
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        return value if isinstance(value, str) else text
    value = _argument(value)
    known: tuple[str, ...] = _ANSWER_FIELDS
    for _ in range(_ROUNDS):
        if not isinstance(value, dict):
            break
        named = [item for name, item in value.items() if _field_name(name) in known]
        if len(named) != 1 and len(value) != 1:
            return text
        value = named[0] if len(named) == 1 else next(iter(value.values()))
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        known = (*_ANSWER_FIELDS, "text", "value")
    if value is None or isinstance(value, bool):
        return {None: "", True: "yes", False: "no"}[value]
    return str(value).strip() if isinstance(value, str | int | float) else text


def _argument(value: dict[str, Any]) -> Any:
    """Return the argument of an action that gives the answer; other objects are unchanged."""
    call = value["function"] if isinstance(value.get("function"), dict) else value
    named = next((call[name] for name in _ACTIONS if isinstance(call.get(name), str)), "")
    arguments = [call[name] for name in _ARGUMENTS if name in call]
    return arguments[0] if len(arguments) == 1 and gives_answer(named) else value


def _parsed(text: str) -> Any:
    """Parse JSON, also with comments or a comma before a bracket, or a Python literal; None if the text is neither."""
    try:
        return json.loads(text, parse_float=str)
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(_EXTRA.sub(lambda match: match[1] or "", text), strict=False, parse_float=str)
    except (ValueError, RecursionError):
        pass
    try:
        # Python warns of unknown escapes.
        return ast.literal_eval(text) if len(text) <= _MOST_LITERAL and "\\" not in text else None
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _after_preface(text: str) -> str:
    """Return a text from the answer's line on: a labeled line, else the first after prefaces."""
    written = [line for line in _SENTENCE.sub("\n", text).splitlines() if line.strip()]
    lines = [line for line in written if not _RULE.fullmatch(line)] or written
    labeled = [number for number, line in enumerate(lines) if _MARKED.match(line) or _HEADING.fullmatch(line) or _CONCLUDES.match(line)]
    if labeled and labeled[0] != 0:
        lines = lines[labeled[-1] :]
    elif not labeled and lines and _HASHED.match(lines[-1]):  # as GSM8K writes answers
        lines = lines[-1:]
    start = 1 if len(lines) > 1 and _ASKED.fullmatch(lines[0]) else 0
    while start < len(lines) - 1 and (_HEADING.fullmatch(lines[start]) or _introduces(lines[start])):
        start += 1
    return "\n".join(lines[start:])


def _introduces(line: str) -> bool:
    return line.rstrip("*_ \t").endswith((":", "：")) or line.strip() == "assistant" or _WILLING.fullmatch(line.strip()) is not None


def _plain(line: str) -> str:
    """Remove Markdown, then prefaces and labels."""
    marked = _MARKED.match(line)
    if marked and marked["rest"].strip("*_ \t"):
        line = marked["rest"].strip()
        if line.count("**") == 1:  # the label is within the bold text: **Answer: Lyon**
            line = line.removeprefix("**").removesuffix("**").strip()
    line = _DECORATED.sub("", line)
    listed = _LIST.match(line)
    line = _BOLD.sub(r"\1", line[listed.end() :] if listed else line)
    link = _LINK.fullmatch(line)
    line = link[1] if link else line
    for mark in ("***", "**", "*", "_"):
        inside = line[len(mark) : -len(mark)]
        if inside and line == f"{mark}{inside}{mark}" and mark not in inside and inside == inside.strip():
            line = inside
    styled = _STYLED.fullmatch(line)
    line = styled[2].strip() if styled else line
    for preface in (_AGREES, _GREETING, _PREFACE, _SOURCES):
        match = preface.match(line)
        if match and line[match.end() :].strip():
            line = line[match.end() :]
    if polite := _POLITE.fullmatch(line.strip()):
        return (polite["ja"] or polite["ko"]).strip()
    match = _PREFIX.match(line)
    return (_HOPES.sub("", line[match.end() :].rstrip()) if match else line).strip()


def _bare(text: str) -> str:
    """Remove quotes around an answer and its final period, unless it belongs to an abbreviation ("Jr.", "U.S.")."""
    text = text.strip(_BLANK)
    text = text[:-1] if len(text) > 1 and text[-1] in "。｡।۔" else text
    closing = _QUOTES.get(text[:1], "")
    if closing and len(text) > 1 and text[-1] in closing and not any(mark in text[1:-1] for mark in closing):
        text = text[1:-1].strip()
    if text.endswith(".") and len(text.split()[-1]) > 4 and "." not in text.split()[-1][:-1]:
        text = text[:-1]
    return text

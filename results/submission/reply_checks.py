"""Signs that an answer is a raw reply: thoughts, special tokens, error messages and echoed prompts; and texts in a wrong encoding.

They lower the score and are not removed: the answers are scored as submitted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress

from benchmarks.text import normalize
from results.submission import Findings, shown
from results.submission.plausible import Answered

_THOUGHT = re.compile(
    r"</?(?:think|thinking|thought|reasoning|reflection)>|\[/?THINK\]|<\|channel\|>|<\|begin_of_thought\|>", re.IGNORECASE
)
_SPECIAL = re.compile(
    r"<\|[a-z_]{2,40}(?::[a-z_]{1,20})?\|>|<(?:bos|eos|pad|unk|start_of_turn|end_of_turn)>|</s>|\[/?INST\]|<</?SYS>>|\[(?:PAD|CLS|SEP|EOS)\]"
    r"|<｜[^｜\n]{2,40}｜>",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"\A\W{0,20}(?:Traceback \(most recent call last\)|Error code: \d{3}|HTTP(?:/[\d.]+)? (?:Error )?[45]\d\d\b"
    r"|\{\W{0,20}error\W{0,20}:|<!DOCTYPE html|<html\b"
    r"|(?:[A-Za-z_.]{0,60}\.)?[A-Z][A-Za-z]{2,40}(?:Error|Exception|Timeout)\b(?=\s*[:(])"
    r"|(?:Internal Server Error|Bad Gateway|Service Unavailable|Gateway Time-?out|Too Many Requests|Connection (?:refused|reset)"
    r"|Rate limit (?:reached|exceeded)|Request timed out|context_length_exceeded|CUDA out of memory)\b)"
    r"|\A\s*#(?:NAME\?|VALUE!|REF!|DIV/0!|N/A|NUM!|NULL!|ERROR!|WERT!|BEZUG!|NV)\s*\Z"
)
_MOJIBAKE = re.compile(
    "[\u00c2-\u00c5\u00d0\u00d1](?:[^\\w\\s\u00ab\u00bb\u2013-\u2026]|[\u00aa\u00b2-\u00ba\u00bc-\u00be\u0152-\u0192])|\u00e2[\u0080\u20ac]."
)
"""UTF-8 that was read as Latin-1 or cp1252: two or three characters in place of one."""
_ECHO_WORDS, _ECHO_SHARE = 5, 0.05


def check_replies(rows: Sequence[Answered], findings: Findings) -> None:
    """Warn about raw model replies among the answers, for example with reasoning tags or chat markup; one warning per kind.

    Marks that the question or a gold answer contains are ignored. Long answers sometimes repeat the question, so that is
    reported only for at least three questions and 5 % of the answers.
    """
    for row in rows:
        # A corpus may hold such texts itself: a context that matches a passage is as it should be.
        written = (row.prediction.answer, *(context.text for context in row.prediction.contexts or () if not context.matched))
        if misread := next((text for text in written if _misread(text)), None):
            findings.listed("mojibake", f"question {shown(row.question.id)}: {shown(_misread(misread))}", line=row.line)
    answered = [row for row in rows if row.prediction.answer.strip()]
    for row in answered:
        text, topic = row.prediction.answer, " ".join((row.question.text, *row.question.golds))
        for code, pattern, what, remedy in (
            ("thought_in_answer", _THOUGHT, "answers hold a model's thoughts", "submit only the text after the thought"),
            ("special_tokens", _SPECIAL, "answers hold special tokens of a model", "decode replies without special tokens"),
            ("error_as_answer", _ERROR, "answers are error messages", 'answer "" with {"notes": {"failed": "why"}}, or ask again'),
        ):
            match = next((candidate for candidate in pattern.finditer(text) if candidate[0] not in topic), None)
            if match and not (code == "special_tokens" and _THOUGHT.fullmatch(match[0])):
                detail = f"question {shown(row.question.id)}: {shown(text[max(0, match.start() - 20) :])}"
                findings.add(code, what, detail, line=row.line, severity="warning", try_this=remedy)
        if _is_json(text) and not _ERROR.match(text) and text.strip() not in row.question.golds:
            findings.listed("json_as_answer", f"question {shown(row.question.id)}: {shown(text)}", line=row.line)
    echoed = [row for row in answered if _echoes(row)]
    if len(echoed) < max(3.0, _ECHO_SHARE * len(answered)):
        return
    for row in echoed:
        findings.listed(
            "echoed_prompt",
            f"question {shown(row.question.id)}: {shown(row.prediction.answer)}",
            line=row.line,
            echoed=len(echoed),
            answered=len(answered),
        )


def _misread(text: str) -> str:
    """Return the beginning of the first sequence that is UTF-8 read as another encoding; "" without one."""
    for match in _MOJIBAKE.finditer(text):
        with suppress(UnicodeError):
            raw = b"".join(bytes([ord(mark)]) if ord(mark) < 256 else mark.encode("cp1252") for mark in match[0])
            raw.decode("utf-8")
            return text[max(0, match.start() - 20) : match.end() + 20]
    return ""


def _is_json(text: str) -> bool:
    """Return whether a text is a JSON object, or a list of texts or objects."""
    text = text.strip()
    if text[:1] + text[-1:] not in ("{}", "[]"):
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(value) and (isinstance(value, dict) or isinstance(value[0], dict | str))


def _echoes(row: Answered) -> bool:
    question = normalize(row.question.text)
    return len(question.split()) >= _ECHO_WORDS and f" {question} " in f" {normalize(row.prediction.answer)} "

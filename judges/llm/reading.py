"""Reading what a judge wrote: one word of a few, or a verdict for each criterion.

Form is forgiven: Markdown, fences, tags, labels, quotes, capitals and an explanation around the verdict. Substance is
not guessed. A verdict that was not offered, that is qualified ("Match, but only partial") or that another one
contradicts is unread, with the reason. The judge is then asked once more (`Asker`), so doubt costs one call.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import permutations
from typing import Any

from judges.judge import Parsed
from methods.models.bounded import mended
from methods.models.thoughts import split

VERSION = 7
"""Version of every judge whose replies are read here. Raise it if a reply may get another verdict."""
LONGEST = 20_000
"""Characters at the end of a reply that are parsed."""
REFUSAL = "refusal"
"""Prefix of the reason if the judge refuses to judge."""
SEVERAL, QUALIFIED = "more than one verdict", "the verdict is qualified"
_REFUSAL = re.compile(
    r"\W*(?:(?:i['’]?m|i am)(?: \w+)? sorry|sorry\b|as an ai\b|unfortunately,? i\b"
    r"|i (?:can['’]?t|can ?not|won['’]?t|am unable|am not able|must decline)|i['’]m (?:unable|not able)"
    r"|(?:es )?tut mir leid|ich kann\b[^.\n]{0,60}\bnicht|(?:je suis )?(?:désolé|navré)e?\b|je ne (?:peux|puis) pas|lo siento|no puedo"
    r"|mi dispiace|non posso|desculpe|sinto muito|(?:eu )?não posso|извините|простите|к сожалению|я не могу"
    r"|(?:非常|很)?抱歉|对不起|我(?:无法|不能)|申し訳|죄송)",
    re.IGNORECASE,
)


def without_thought(reply: str) -> tuple[str, str | None]:
    """Remove the model's reasoning from a reply; the second value is the reason if nothing is left."""
    parts = split(reply)
    if parts.open:
        return "", "the reply ends while it still thinks"
    text = parts.text.strip()[-LONGEST:]
    return text, None if text else "the reply is empty"


def refused(parsed: Parsed) -> bool:
    """Return whether the judge's model refused to judge."""
    return (parsed.unscored or "").startswith(REFUSAL)


def unreadable(text: str, lacks: str) -> Parsed:
    """Return the result for an unreadable reply, with the reason: a refusal, or `lacks`."""
    return Parsed(None, f"{REFUSAL}: {_short(text)}" if _REFUSAL.match(text) else f"{lacks}: {_short(text)}")


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= 80 else f"{flat[:79]}…")


_VERDICT = r"(?:verdict|judge?ment|label|classification|decision|rating)"
_TAGGED = re.compile(rf"<\s*({_VERDICT}|answer|result|output)\s*>(.*?)<\s*/\s*\1\s*>", re.IGNORECASE | re.DOTALL)
_BOXED = re.compile(r"\\boxed\s*\{\s*(?:\\text\w*\s*\{)?([^{}]*)\}|\[\[([^\[\]]*)\]\]")
_LABELED = re.compile(rf"\b{_VERDICT}\b\W{{0,3}}?\s*(?:[:=→|]|[-=]+>|[–—-]|\bis\b|\n)[ \t]*[:\n]?[ \t]*([^\n]*)", re.IGNORECASE)
_CONCLUDES = r"^\W*(?:(?:so|therefore|thus|hence|in (?:conclusion|summary)|to conclude)\b\W*)?(?:(?:the|my) )?"
_STATED = r"\s*(?:[:=→|]|[-=]+>|[–—-]|\bis\b)[ \t]*(\S[^\n]*)$"
_FINAL = re.compile(
    rf"{_CONCLUDES}(?:final(?: (?:answer|result|output|conclusion|assessment|evaluation))?|conclusion|overall){_STATED}",
    re.IGNORECASE | re.MULTILINE,
)
"""Pattern of a concluding line, which may contradict an earlier verdict: "Final: Mismatch"."""
_KEY = re.compile(rf"(?:final)?{_VERDICT}")
_MARKDOWN = re.compile(r"[*`]+|(?<!\w)_+|_+(?!\w)|^[ \t]*(?:#+|>|[-•·–—]|\d{1,2}[.)])[ \t]+", re.MULTILINE)
_FENCE = re.compile(r"^[ \t]*```[\w-]*[ \t]*$", re.MULTILINE)
_LINE_LABEL = re.compile(r"[^\n:=]{1,40}[:=]\s*(.*)")
_CLAUSE = re.compile(r"[.!;\n]+(?:\s+|$)")
_PIECE = re.compile(r"[.,:;!()\[\]\n/|–—→]+|\s-\s|\bor\b|\band\b")
_STATES = re.compile(
    r"(?:\b(?:is|are|as|be|say|choose|pick|select|answer|reply|with|overall|finally|therefore|thus|hence|so)\b|['’]s\b|[:=→]|->)"
    r"[,:]?\s+(?:an?\s+|the\s+)?$"
)
_UNSURE = re.compile(r"\b(?:not|no|neither|nor|never|if|whether|unless|would|could|might|may|can ?not|should|or)\b|n['’]t\b")
_GOES_ON = re.compile(r"\s*(?:$|[^\w\s/|?]|\n|(?:because|since|as|given|for|due)\b)")
_CROSSES = "❌❎✖✗✘👎⛔🚫"
"""Signs that contradict a verdict such as Match."""
_SAME_SENTENCE = re.compile(
    r"\s*[,，、](?!\s*(?:because|since|as|given|for|both|the|it|this|they|all)\b)"
    r"|[^\w\n.!]*(?:only|or|and|in part|part(?:ial|ly|ially)|most(?:ly)?|almost|"
    r"nearly|may ?be|perhaps|possibly|half|loosely|somewhat|to (?:some|a certain) (?:extent|degree)|in spirit"
    r"|not|none|nein|non|no|yes|true|false|\d)\b"
)
_CROSSED = re.compile(rf"[^\w\n.!]*[{_CROSSES}]")
_SUBJECT = r"(?:(?:the|this|that|its?|candidate|given|predicted|model|answer|response|reply)\W+){0,4}(?:is|are|was|seems)\W+(?:\w+ly\W+)?"
_WRONG = re.compile(
    rf"\W*(?:{_SUBJECT})?(?:incorrect|wrong|false|fails?|not (?:correct|right|true|equivalent|the same|an? (?!mis|in|un|non)\w+))\W*"
)
_RIGHT = re.compile(rf"\W*(?:{_SUBJECT})?(?:correct|right|true|equivalent)\W*")
"""Patterns of a remark that contradicts a verdict such as Match, and of one that contradicts its negation, such as Mismatch."""
_CORRECTS = re.compile(
    r"^\W*(?:(?:but|however|hmm+|oh|no)\W+)*(?:wait|actually|correction|on (?:reflection|second thought))\b", re.MULTILINE | re.IGNORECASE
)
_TAKES_BACK = re.compile(r"[^\w]*(?:but|however|although|though|except|yet|actually|wait|on (?:reflection|second thought)|correction)\b")


def read_word(reply: str, offered: Sequence[str], aliases: Mapping[str, str] | None = None) -> Parsed:
    """Parse a reply that gives one of a few verdicts as a word.

    The verdict is searched in a JSON object, a tag or after a label ("Verdict: Match"); else in a sentence ("This is a
    Match."); else at the beginning or end of the reply or on a line of its own. "Mismatch" is not a Match, nor "Informal"
    Formal.

    Args:
        reply: The reply.
        offered: The possible verdicts.
        aliases: Alternative wordings in lower case, with the verdict that they mean.

    Returns:
        `{"verdict": …}` with one of `offered`, or the reason why the reply is unreadable.
    """
    text, unfinished = without_thought(reply)
    if unfinished:
        return Parsed(None, unfinished)
    words = _words(tuple(offered), tuple((aliases or {}).items()))
    verdicts = _Statements(text, words).verdicts
    if len(verdicts) == 1 and None not in verdicts:
        return Parsed({"verdict": verdicts.pop()})
    if verdicts:
        return Parsed(None, f"{SEVERAL if len(verdicts - {None}) > 1 else QUALIFIED}: {_short(text)}")
    return unreadable(text, f"no verdict of {', '.join(offered)}")


def _folded(text: str) -> str:
    """Lower-case a text character by character, so that positions stay valid."""
    return text.lower() if text.isascii() else "".join(low if len(low := char.lower()) == 1 else char for char in text)


class _Words:
    """Verdicts that a prompt offers, in searchable form.

    Args:
        offered: The verdicts.
        aliases: Further wordings with the verdict that each means.
    """

    def __init__(self, offered: Sequence[str], aliases: Iterable[tuple[str, str]]) -> None:
        self.offered = offered
        self._named = {word.casefold(): word for word in offered} | dict(aliases)
        names = sorted(self._named, key=len, reverse=True)
        self._any = "|".join(re.escape(name).replace(r"\ ", r"[\s_-]+") for name in names)
        self._first = re.compile(rf"\W*(?:(?:an?|the)\s+)?({self._any})(?![\w-]*\w)")
        self._mention = re.compile(rf"\b(?:{self._any})\b")
        self._contrary: dict[str, re.Pattern[str]] = {}
        for word, other in permutations(offered, 2):
            if other.casefold() in {f"{prefix}{word.casefold()}" for prefix in ("mis", "in", "un", "non")}:
                self._contrary |= {word: _WRONG, other: _RIGHT}
        self._exact = {
            word: re.compile(
                r"(?<!\w)(?P<no>(?:\b(?:not|no|nor|than|of|neither|never)\b|n['’]t\b)\s+(?:an?\s+|the\s+)?"
                rf"(?:(?:full|complete|exact|perfect|strict)\s+)?)?{word}(?![\w-])"
            )
            for word in offered
        }

    def phrase(self, text: str) -> str | None:
        """Return the verdict that the whole text states."""
        match = None if "?" in text else re.fullmatch(rf"\W*(?:(?:an?|the)\s+)?({self._any})\W*", _folded(text))
        verdict = self._verdict(match[1]) if match else None
        return None if match is None or self._crossed(verdict, text[: match.start(1)]) else verdict

    def _crossed(self, verdict: str | None, before: str) -> bool:
        """Return whether a cross before a verdict contradicts it ("❌ Match")."""
        return verdict is not None and self._contrary.get(verdict) is _WRONG and any(sign in before for sign in _CROSSES)

    def leading_verdict(self, text: str) -> str | None:
        """Return the verdict that a text begins with, unless the following words qualify or contradict it."""
        match = self._first.match(_folded(text))
        if match is None:
            return None
        verdict, rest = self._verdict(match[1]), text[match.end() :]
        if self._crossed(verdict, text[: match.start(1)]):
            return None
        plain = _folded(rest)
        if _CROSSED.match(plain) and self._contrary.get(verdict) is not _RIGHT:
            return None
        if not _GOES_ON.match(plain) or _SAME_SENTENCE.match(plain) or _TAKES_BACK.match(plain) or re.match(r"[^\w\n]*\?", plain):
            return None
        pieces = _PIECE.split(rest)
        if any(result not in (None, verdict) for result in map(self.phrase, pieces)):
            return None
        if verdict in self._contrary and any(self._contrary[verdict].fullmatch(_folded(piece)) for piece in pieces[:4]):
            return None
        other = (word for word in self.offered if word != verdict)
        return None if any(m["no"] is None for word in other for m in self._exact[word].finditer(rest)) else verdict

    def begins(self, text: str) -> bool:
        """Return whether a text begins with a verdict, qualified or not."""
        return self._first.match(_folded(text)) is not None

    def sentence_verdict(self, clause: str) -> str | None:
        """Return the verdict of a sentence such as "So this is a Match, since both name Lyon."."""
        plain = _folded(clause)
        match = None if "?" in plain else self._mention.search(plain)
        if match is None:
            return None
        before = plain[: match.start()]
        return self.leading_verdict(clause[match.start() :]) if _STATES.search(before) and not _UNSURE.search(before) else None

    def mentioned(self, text: str) -> bool:
        """Return whether a text contains one of the verdicts."""
        return self._mention.search(_folded(text)) is not None

    def _verdict(self, result: str) -> str:
        return self._named.get(result) or self._named[re.sub(r"[\s_-]+", " ", result)]


@lru_cache(maxsize=32)
def _words(offered: tuple[str, ...], aliases: tuple[tuple[str, str], ...]) -> _Words:
    return _Words(offered, aliases)


class _Statements:
    """Places in a reply that state a verdict.

    Args:
        text: The reply without its thought.
        words: The offered verdicts.
    """

    def __init__(self, text: str, words: _Words) -> None:
        self._raw, self._words = text, words
        bare = _FENCE.sub("", unicodedata.normalize("NFKC", text))
        self._text = _MARKDOWN.sub("", "".join(c for c in bare if unicodedata.category(c) != "Cf")).strip()

    @property
    def verdicts(self) -> set[str | None]:
        """Return all stated verdicts, with None for an unreadable statement; empty if there is no statement."""
        objects = _objects(self._raw) if "{" in self._raw else []
        if self._text.startswith("{") and not objects:
            objects = list(_mended(self._raw))
            if not objects:
                return set()
        verdicts = {verdict for result in objects for verdict in self._of_object(result)}
        verdicts |= {None} if self._corrected() else set()
        if objects:
            verdicts |= set(_Statements(self._raw.rpartition("}")[2], self._words)._marked()) - {None}
        else:
            verdicts |= set(self._marked())
        if verdicts:
            verdicts |= set(map(self._words.leading_verdict, _FINAL.findall(self._text))) - {None}
        alone = [line for line in self._lines if self._words.phrase(line)]
        if verdicts:
            ends = {self._lines[0], self._lines[-1]} if self._lines else set()
            return verdicts | {self._words.phrase(line) for line in alone if line in ends}
        begins = {self._words.leading_verdict(self._text)} if self._words.begins(self._text) else set()
        verdicts = set(self._labeled_lines()) or set(self._sentences())
        return begins | (verdicts or {self._words.phrase(text) for text in (*alone, self._clauses[-1])} - {None})

    def _corrected(self) -> bool:
        """Return whether a line corrects an earlier verdict: it begins with "Wait" or the like, and verdicts precede and follow it."""
        match = _CORRECTS.search(self._text)
        return match is not None and self._words.mentioned(self._text[: match.start()]) and self._words.mentioned(self._text[match.end() :])

    @cached_property
    def _lines(self) -> list[str]:
        return [line.strip() for line in self._text.splitlines() if line.strip()]

    @cached_property
    def _clauses(self) -> list[str]:
        return [clause for clause in _CLAUSE.split(self._text) if clause.strip()] or [""]

    def _of_object(self, result: Mapping[str, Any]) -> Iterator[str | None]:
        """Return the statements of one JSON object and of objects nested in it."""
        flags = {key: value for key, value in result.items() if self._words.phrase(str(key)) and isinstance(value, bool)}
        if flags:
            true = [self._words.phrase(str(key)) for key, value in flags.items() if value]
            yield true[0] if len(true) == 1 else None
            return
        keyed = [value for key, value in result.items() if _KEY.fullmatch(_plain(str(key)))]
        for value in keyed or [value for value in result.values() if isinstance(value, dict) or self._value(value) is not None]:
            if isinstance(value, dict):
                yield from self._of_object(value)
            elif self._words.mentioned(str(value)):
                yield self._value(value)

    def _value(self, value: Any) -> str | None:
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        return self._words.leading_verdict(value) if isinstance(value, str) else None

    def _marked(self) -> Iterator[str | None]:
        """Return the contents of tags, of boxes and after labels; a label without a verdict word is ignored."""
        result = [match[2] for match in _TAGGED.finditer(self._raw)]
        result += [match[1] or match[2] for match in _BOXED.finditer(self._raw)]
        result += [match[1] for match in _LABELED.finditer(self._text)]
        for value in filter(self._words.mentioned, result):
            plain = _MARKDOWN.sub("", _BOXED.sub(r"\1\2", value)).strip(" |")
            yield self._words.leading_verdict(plain) or self._words.sentence_verdict(plain)

    def _labeled_lines(self) -> Iterator[str]:
        """Return the text after labels in any language, line by line."""
        for line in self._lines:
            match = _LINE_LABEL.fullmatch(line)
            if match and not _UNSURE.search(_folded(line)) and not self._words.mentioned(line[: match.start(1)]):
                verdict = self._words.phrase(match[1])
                if verdict is not None:
                    yield verdict

    def _sentences(self) -> Iterator[str]:
        for clause in self._clauses:
            verdict = self._words.sentence_verdict(clause)
            if verdict is not None:
                yield verdict


_ANSWER = "answer|response|candidate|assistant|option|antwort|réponse|respuesta|resposta|risposta|ответ|答案|回答|回复|답변"
"""Words for an answer, in languages of judges that translate the verdicts."""
_SIDE = rf"(?:{_ANSWER})?[\s_#:-]*([12]|one|two)\b|\b(first|second|1st|2nd)(?:[\s_-]+(?:answer|response|one))?\b"
_NAMES_SIDE = re.compile(rf"\b(?:{_ANSWER})[\s_#:-]*([12]|one|two)\b|\b(first|second|1st|2nd)\b")
_NAMES_VERDICT = re.compile(rf"{_NAMES_SIDE.pattern}|\btie\b")
_IS_SIDE = re.compile(rf"\W*(?:{_SIDE})\W*")
_ONE_SIDE = re.compile(rf"\W*(?:(?:the )?(?:overall )?winner(?: is)?[\s:]*)?(?:the )?(?:{_SIDE})(?P<rest>(?!\W*\d).*)", re.DOTALL)
_WINS = re.compile(
    r"\W*(?:$|(?:(?:is|was) )?(?:the )?(?:\w+ly |much |far |a bit )?(?:wins?|winner|better|best|stronger|preferred|preferable)\b"
    r"(?: answer| one| response)?\s*(?:$|[.,:;!)(–—-]|because|since|as\b|for\b|in\b|overall)|[.,:;!(–—]|-\s|(?:because|since|as)\b)"
)
_BEATS = re.compile(
    rf"\W*(?:the )?(?:{_SIDE})\s*(?:(?:is |was )?(?:\w+ly |much |far )?(?:better|stronger) than|wins (?:over|against)|beats|>)"
    rf"\s*(?:the )?(?:{_SIDE})\W*"
)
_DENIES = re.compile(r"\b(?:not|worse|neither|nor|loses|slightly worse|but|however|although|though|or|both|tie|equal\w*)\b|n['’]t\b")
_TIE = "unentschieden|gleichstand|égalité|empate|pareggio|ничья|平局|平手|引き分け|무승부|동점"
_EQUAL = re.compile(
    r"\W*(?:it ?(?:is|['’]s) )?(?:(?:an?|the) )?(?:(?:both|they)(?: (?:answers? )?are)? )?"
    rf"(?:tied?|draw|equal(?:ly good)?|no difference|{_TIE})\W*(?:$|[.,:;(–—-].*|(?:because|since|as) .*)",
    re.DOTALL,
)
_LONGEST_VERDICT = 500
"""Maximum characters of a paraphrased verdict; a longer text is not a verdict."""
_OVERALL = "overall"
_LAST_WORD = re.compile(
    rf"{_CONCLUDES}(?:(?:final|overall)\b[^:\n]{{0,30}}?|winner)(?:\W{{1,3}}overall(?: winner)?)?{_STATED.replace('[:=', '[,:=')}",
    re.IGNORECASE | re.MULTILINE,
)
"""Pattern of a concluding line on the criterion overall, which may contradict earlier verdicts: "Overall, Answer 2 wins."."""
_NUMBERS = {"1": 1, "one": 1, "first": 1, "1st": 1, "2": 2, "two": 2, "second": 2, "2nd": 2}
_OF_MANY = r"\d[\d.,]*\s*(?:%|/\s*\d+|(?:out )?of \d+|points?|stars?)"
_RATING = re.compile(rf"\W*{_OF_MANY}\W*", re.IGNORECASE)
_RATED = re.compile(rf"\(\s*(?:(?:score|confidence|rating)\W{{0,3}})?(?:{_OF_MANY}|0?\.\d+)\s*\)")
"""Patterns of a rating ("4 out of 5"), and of a rating in brackets after a verdict."""


def read_criteria(reply: str, criteria: Sequence[str], offered: Sequence[str]) -> Parsed:
    """Parse a reply that gives one verdict per criterion, in JSON or in lines such as `overall: Answer 1`.

    A JSON field may be flat (`"overall": "Tie"`), nested (`"Overall Winner": {"Winner": "Tie"}`) or an object that names its
    criterion; every criterion must occur. Truncated objects are ignored. Contradictions make the whole reply unreadable. The
    numbers 1 and 2 stand for the answers if no other number occurs.

    Returns:
        For each criterion one of `offered`, or None if it is unreadable; `unscored` then has the reasons.
    """
    text, unfinished = without_thought(reply)
    if unfinished:
        return Parsed(None, unfinished)
    statements = _by_criterion(_objects(text), criteria)
    if statements.keys() != set(criteria):
        statements = _by_criterion(_mended(text), criteria) if "{" in text else _in_lines(text, criteria)
    if statements.keys() != set(criteria):
        return unreadable(text, "no complete JSON object with " + ", ".join(criteria))
    after = text.rpartition("}")[2] if "{" in text else text
    if _OVERALL in criteria:
        plain = _MARKDOWN.sub("", unicodedata.normalize("NFKC", after))
        last = [value for value in _LAST_WORD.findall(plain) if _NAMES_VERDICT.search(value.casefold()) and _verdict(value, offered)[0]]
        statements[_OVERALL] = [*statements[_OVERALL], *last]
    if "{" in text and (correction := _CORRECTS.search(after)) and _NAMES_VERDICT.search(after[correction.end() :].casefold()):
        return Parsed(None, f"{QUALIFIED}: {_short(text)}")
    return _settled(text, statements, criteria, offered)


def _settled(text: str, statements: Mapping[str, Sequence[Any]], criteria: Sequence[str], offered: Sequence[str]) -> Parsed:
    """Return one verdict per criterion from all statements about it."""
    numbers = [value for values in statements.values() for value in values if _number(value) is not None]
    ambiguous = any(_number(value) not in (1, 2) for value in numbers) or any(
        isinstance(value, str) and _RATING.fullmatch(value) for values in statements.values() for value in values
    )
    verdicts: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    for criterion in criteria:
        read = [
            (None, f"not an offered verdict: {value} (numbers beside 1 and 2 are ambiguous)")
            if ambiguous and _number(value) is not None
            else _verdict(value, offered)
            for value in statements[criterion]
        ]
        known = {verdict for verdict, _ in read if verdict is not None}
        if len(known) > 1:
            return Parsed(None, f"{SEVERAL}: {criterion} in {_short(text)}")
        verdicts[criterion] = next(iter(known), None)
        if not known:
            reasons[criterion] = read[-1][1]
    if len(reasons) == len(criteria):
        return Parsed(None, "; ".join(dict.fromkeys(reasons.values())))
    return Parsed({**verdicts, "unscored": reasons} if reasons else verdicts)


def _by_criterion(objects: Iterable[Mapping[str, Any]], criteria: Sequence[str]) -> dict[str, list[Any]]:
    """Return the statements of JSON objects by criterion; nested objects are included, unless they rate a single answer."""
    statements: dict[str, list[Any]] = {}
    for result in objects:
        inner = [value for key, value in result.items() if isinstance(value, dict) and not _rates_one(str(key))]
        lists = [item for value in result.values() if isinstance(value, list) for item in value if isinstance(item, dict)]
        for candidate in (result, *inner, *lists):
            pairs = [(_plain(str(key)).removesuffix("winner"), value) for key, value in candidate.items()]
            named = dict(pairs)
            if any(_IS_SIDE.fullmatch(str(named.get(name)).casefold()) for name in _ANSWER_NAMES):
                continue  # ratings of this answer
            if named.get("criterion") is not None:
                pairs = [(_plain(str(named["criterion"])), next((named[key] for key in ("", "verdict") if key in named), None))]
            for criterion, value in _unique(pairs).items():
                if criterion in criteria:
                    statements.setdefault(criterion, []).append(_bare(value))
    return statements


_ANSWER_NAMES = ("answer", "response", "candidate", "id", "answerid", "answernumber")
"""Fields, without separators, that name the answer which an object rates."""


def _rates_one(key: str) -> bool:
    """Return whether a key names one of the answers: `Answer 1`, `answer_2_scores`."""
    plain = key.casefold().replace("_", " ")
    return bool(_IS_SIDE.fullmatch(plain) or _NAMES_SIDE.search(plain))


def _in_lines(text: str, criteria: Sequence[str]) -> dict[str, list[Any]]:
    """Return the statements of lines, table rows and tags by criterion."""
    plain = _MARKDOWN.sub("", unicodedata.normalize("NFKC", text))
    statements: dict[str, list[Any]] = {}
    for criterion in criteria:
        label = rf"^[^\w\n<]*(?:\d+[.)]\s*)?{criterion}(?:[\s_-]*winner)?\s*(?:[:=|→]|[-=]+>|[–—-]|\bis\b)\s*(\S[^\n]*)$"
        result = [match[1].strip().strip("|").strip() for match in re.finditer(label, plain, re.IGNORECASE | re.MULTILINE)]
        result += [match[1] for match in re.finditer(rf"<{criterion}>(.*?)</{criterion}>", text, re.IGNORECASE | re.DOTALL)]
        if len(result) > 1 and len(set(result)) == 1 and _number(result[0]) is not None:
            return {}  # equal numbers rate the answers, and compare nothing
        if result:
            statements[criterion] = list(result)
    return statements


def _bare(value: Any) -> Any:
    """Extract a verdict from an object with a winner, or a list of one."""
    if isinstance(value, dict):
        named = {_plain(str(key)): item for key, item in value.items()}
        value = next((named[key] for key in ("winner", "verdict") if key in named), None)
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _number(value: Any) -> float | None:
    """Return a number, possibly given as text; None for other values."""
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d+(?:\.\d+)?\s*", value):
        return float(value)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _verdict(value: Any, offered: Sequence[str]) -> tuple[str | None, str]:
    number = _number(value)
    if number is not None:
        value = f"Answer {number:g}"
    verdicts = {_plain(word): word for word in offered}
    if isinstance(value, str):
        plain = _plain(value)
        if plain in verdicts and "?" not in value:
            return verdicts[plain], ""
        read = _sentence(_MARKDOWN.sub("", unicodedata.normalize("NFKC", value)).casefold())
        if read in verdicts.values():
            return read, ""
        if sum(word in plain for word in verdicts) > 1:
            return None, f"{SEVERAL}: {_short(value)}"
    if isinstance(value, list) and len(value) > 1:
        return None, f"{SEVERAL}: {_short(str(list(value)))}"
    return None, f"not an offered verdict: {_short(str(value))}"


def _sentence(text: str) -> str | None:
    """Return the winner named in a sentence: `Answer 1 is better`, `the first answer`, `It's a tie`."""
    if "?" in text or len(text) > _LONGEST_VERDICT:
        return None
    text = _RATED.sub("", text)
    if _EQUAL.fullmatch(text):
        return None if _NAMES_SIDE.search(text) else "Tie"
    if beats := _BEATS.fullmatch(text):
        winner, loser = (_NUMBERS[name] for name in beats.groups() if name)
        return f"Answer {winner}" if winner != loser else None
    match = _ONE_SIDE.fullmatch(text)
    if match is None or not _WINS.match(match["rest"]) or _DENIES.search(match["rest"]):
        return None
    if any(map(_WRONG.fullmatch, _PIECE.split(match["rest"]))):
        return None
    number = _NUMBERS[match[1] or match[2]]
    others = {_NUMBERS[result[1] or result[2]] for result in _NAMES_SIDE.finditer(match["rest"])}
    return None if others - {number} else f"Answer {number}"


class _Recovered(list[Any]):
    """Values of a field that occurs several times with different values."""


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for key, value in pairs:
        results[key] = value if key not in results or results[key] == value else _Recovered([results[key], value])
    return results


def _objects(text: str) -> list[dict[str, Any]]:
    """Return complete outermost JSON objects in order."""
    decoder = json.JSONDecoder(object_pairs_hook=_unique)
    results = []
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
            results.append(value)
        except (ValueError, RecursionError):
            end = at + 1
        at = text.find("{", end)
    return results


def _mended(text: str) -> Iterator[dict[str, Any]]:
    """Yield complete objects that are not strict JSON (an extra comma, single quotes)."""
    start, stop = text.find("{"), text.rfind("}")
    if not 0 <= start < stop:
        return
    try:
        repaired = mended(text[start : stop + 1], "reading a verdict that is not plain JSON")
    except ValueError:
        return
    for value in repaired if isinstance(repaired, list) else [repaired]:
        if isinstance(value, dict):
            yield value


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()

"""What LLM judges share: options, prompts that judged text cannot break out of, calls, averages, and replies read.

Replies are read tolerantly in form (thoughts before them, fences, markdown, talk around an object, a comma too many),
never in substance: what was not offered, what is given twice over and what breaks off is unscored, and the reason says
so.
"""

from __future__ import annotations

import json
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from statistics import fmean
from string import Template
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, Field

from benchmarks.core.errors import MissingPackage, UserError
from benchmarks.core.fingerprint import content_hash
from benchmarks.schema import Question
from judges.judge import JudgeCall, JudgeConfig, Parsed, Score
from methods.api import Services
from methods.flow import together
from methods.models import template_text
from methods.models.chat import ChatModel
from methods.models.endpoint import Messages
from methods.models.llm import AskingConfig, LocalConfig, llm_hash, llm_name, open_llm
from methods.work import CHARACTERS, Lengths, Needs, Use, Where, Work, ask, needs_of, tokens, unknown

# -- Judged text is put between tags; here it is made unable to end them, or to pass for a verdict --
# Nothing is deleted: what looks like one of our tags, a chat template's mark, a verdict line or a key of our JSON
# stays readable, with `‹ ›` where the brackets or the colon were, and what cannot be seen becomes `�`.


VERSION = 1
"""Of these rules; part of every judge's identity, since a judge sees what they make of a text."""

TAGS = ("question", "gold", "answer", "reference", "text", "source", "rewritten")
"""Tags that our templates use; those of one's own templates are added to them."""
_CHAT_TAGS = ("think", "system", "user", "assistant", "human", "start_of_turn", "end_of_turn", "bos", "eos", "tool")
_KEYS = r"faithfulness|conciseness|overall(?:[\s_-]*winner)?|winner|(?:final[\s_-]*)?verdict|judge?ment|label|reasoning"
_QUOTE = r"\\?[\"'`“”‘’]"

# What cannot be seen, changes the direction of writing, or is no character at all.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]")
_CHAT_MARK = re.compile(r"(<)(?=\s*(?:\||<\s*/?\s*sys))|(?:\||sys\s*>)\s*(>)|(<)\s*/?\s*s\s*(>)|(\[)\s*/?\s*inst\s*(\])")
_SHOWN = {"<": "‹", ">": "›", "[": "⟦", "]": "⟧", ":": "‹:›", "=": "‹=›"}


def neutralized(text: str, tags: Iterable[str] = (), keys: Iterable[str] = ()) -> str:
    """A text that can stand between tags without ending them.

    Look-alikes that a model reads as the same (other cases, full-width letters, invisible characters in between) count
    as well.

    Args:
        text: Anything.
        tags: Further tags, beside `TAGS`.
        keys: Further keys of the JSON that is asked for.

    Returns:
        The text, of which no line, key or tag can be taken for one of ours.
    """
    text = _UNSEEN.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))
    folded, origins = _folded(text)
    marks: dict[int, str] = {}
    for pattern in (_tag_pattern(frozenset(tags)), _CHAT_MARK, *_key_patterns(frozenset(keys))):
        for match in pattern.finditer(folded):
            for group, result in enumerate(match.groups(), start=1):
                if result is not None:
                    marks[origins[match.start(group)]] = _SHOWN[result]
    return "".join(marks.get(at, char) for at, char in enumerate(text)) if marks else text


def cut(text: str, most: int) -> str:
    """The beginning of a text, which says where it was cut."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[… cut: {most:,} of {len(text):,} characters are shown]"


@lru_cache(maxsize=64)
def _tag_pattern(further: frozenset[str]) -> re.Pattern[str]:
    """Opening and closing tags, complete or not, of names that begin as ours do."""
    names = "|".join(re.escape(name.casefold()) for name in sorted({*TAGS, *_CHAT_TAGS, *further}))
    return re.compile(rf"(<)[\s/\\⁄∕]*(?:{names})(?:[^<>\n]{{0,80}}(>))?")


@lru_cache(maxsize=64)
def _key_patterns(further: frozenset[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What looks like a key of our JSON, or like a line that states a verdict."""
    names = f"(?:{'|'.join([_KEYS, *sorted(further)])})"
    line = rf"^[^a-z0-9\n]{{0,20}}{names}[^a-z0-9\n:=‹]{{0,20}}([:=])"
    return re.compile(rf"{_QUOTE}\s*{names}\s*{_QUOTE}\s*(:)"), re.compile(line, re.MULTILINE)


def _folded(text: str) -> tuple[str, range | list[int]]:
    """A text as a lenient reader sees it, with the place in the text that each character comes from."""
    if text.isascii():
        return text.lower(), range(len(text))
    pieces: list[str] = []
    origins: list[int] = []
    for at, char in enumerate(text):
        seen = _seen(char)
        pieces.append(seen)
        origins.extend([at] * len(seen))
    return "".join(pieces), origins


@lru_cache(maxsize=1 << 16)
def _seen(char: str) -> str:
    """A character without case and width; nothing where it has no width at all."""
    return "" if unicodedata.category(char) == "Cf" else unicodedata.normalize("NFKC", char).casefold()


# -- Prompts of judges: templates as text files, into which judged text is put so that it cannot break out --
# A template is two parts with a line `---` between them, the system message and the user message. Placeholders are
# written `$answer`, a dollar sign of one's own `$$`; judged text belongs between tags (`<answer>` … `</answer>`).


EMPTY = "(empty)"
"""What stands between the tags where there is nothing to judge."""
_TAG = re.compile(r"</?([A-Za-z][\w-]*)>")


@dataclass(frozen=True, slots=True)
class Shipped:
    """A prompt that ships with a judge.

    Attributes:
        name: Of its file in `templates`, without `.txt`.
        needs: Placeholders that a template of one's own must have as well.
        offers: Further placeholders that it may have.
        keys: Keys of the JSON that it asks for, which judged text cannot hold then.
    """

    name: str
    needs: frozenset[str]
    offers: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A template in its two parts.

    Attributes:
        system, user: Templates.
        tags: The tags that they use.
        keys: As in `Shipped`.
    """

    system: str
    user: str
    tags: frozenset[str]
    keys: frozenset[str] = frozenset()

    def messages(self, **texts: str) -> Messages:
        """The conversation; what is put in is neutralized, and not searched for placeholders again."""
        values = {name: neutralized(text, self.tags, self.keys).strip() or EMPTY for name, text in texts.items()}
        messages = [{"role": "user", "content": Template(self.user).substitute(values)}]
        if not self.system:
            return messages
        return [{"role": "system", "content": Template(self.system).substitute(values)}, *messages]


def load_prompt(path: str | None, shipped: Shipped) -> Prompt:
    """Read a template: one's own file, or the one that ships.

    Raises:
        UserError: The file cannot be read, lacks a placeholder, or names one that does not exist.
    """
    text = template_text("judges.llm", shipped.name, path)
    system, mark, user = text.partition("\n---\n")
    if not mark:
        system, user = "", text
    prompt = Prompt(system.strip(), user.strip(), frozenset(_TAG.findall(text)), shipped.keys)
    _check(prompt, shipped, path or f"{shipped.name}.txt")
    return prompt


def prompt_hash(path: str | None, shipped: Shipped) -> str:
    """A hash of the template's text, so that a judge with a changed prompt is another judge."""
    return content_hash([template_text("judges.llm", shipped.name, path)])


def _check(prompt: Prompt, shipped: Shipped, where: str) -> None:
    known = shipped.needs | shipped.offers
    names = " and ".join(f"${name}" for name in sorted(known))
    used: set[str] = set()
    for part in (prompt.system, prompt.user):
        template = Template(part)
        result = set(template.get_identifiers()) if template.is_valid() else {"$"}
        if result - known:
            raise UserError(
                f"the prompt template holds the unknown placeholder {min(result - known)!r}",
                where=where,
                try_this=f"use {names}, and $$ for a dollar sign",
            )
        used |= result
    if shipped.needs - used:
        raise UserError(f"the prompt template lacks ${min(shipped.needs - used)}", where=where, try_this=f"put in {names}")


# -- Options that all judges share that ask a language model --


class AskingJudgeConfig(AskingConfig, JudgeConfig):
    """Options of a model that judges, and of how often it is asked."""

    alongside: ClassVar[Mapping[str, Any]] = {"llm": {"usd_per_million_prompt_tokens", "usd_per_million_completion_tokens"}}

    repetitions: int = Field(1, ge=1, description="replies drawn to each prompt; more than one tells most with a temperature above 0")

    @property
    def label(self) -> str:
        """The model's name in ids."""
        return llm_name(self.llm)

    @property
    def weights(self) -> str:
        """Hash of a local model's."""
        return llm_hash(self.llm)

    @property
    def needs(self) -> Needs:
        """The model."""
        return needs_of(self.llm)

    def work(self, lengths: Lengths, judgments: float, answer: float, shown: int = 1) -> Work:
        """A call a judgment at least; what it reads and writes only those know that write its prompts."""
        where: Where = "here" if isinstance(self.llm, LocalConfig) else "away"
        calls = Work((Use(self.label, calls=judgments, where=where),)) if judgments else Work()
        return calls + unknown(f"tokens of judging by {self.label}: how many calls a judgment takes varies")


class LLMJudgeConfig(AskingJudgeConfig):
    """Options of a judge whose prompt is a template of ours."""

    # The template's text is hashed: `prompt_identity`.
    alongside: ClassVar[Mapping[str, Any]] = {**AskingJudgeConfig.alongside, "prompt": True}

    template: ClassVar[Shipped]
    """The prompt that ships."""

    prompt: str | None = Field(None, description="a template file of one's own; null: the one that ships")
    max_answer_chars: int = Field(8_000, ge=1, description="longest judged text shown, in characters; what is cut is marked")

    def preflight(self) -> None:
        """Check that the model can be asked, and the template."""
        super().preflight()
        self.load()

    def load(self) -> Prompt:
        """The prompt.

        Raises:
            UserError: The template cannot be read or used.
        """
        return load_prompt(self.prompt, self.template)

    def work(self, lengths: Lengths, judgments: float, answer: float, shown: int = 1) -> Work:
        """A call a judgment, its prompt with question, gold, what is judged, and the gold document where it is shown."""
        prompt = self.load()
        length = tokens(prompt.system) + tokens(prompt.user) + lengths.question + lengths.answer
        document = 2 * lengths.passage if getattr(self, "reference", None) == "document" else 0
        return ask(self.llm, judgments, length + document + shown * min(answer, self.max_answer_chars / CHARACTERS))


def prompt_identity(config: LLMJudgeConfig) -> Mapping[str, Any]:
    """What beside its options decides what a judge is shown: the template's text and the rules of fencing."""
    return {"prompt": prompt_hash(config.prompt, config.template), "fences": str(VERSION)}


# -- Cases put before a language model: every repetition of every prompt; what needs no opinion, without a call --


NO_REPLY = "no reply"
"""How the reason of a call begins that brought none."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to be judged.

    Attributes:
        part: Which of the judge's prompts.
        messages: What is asked; None where the case is settled.
        settled: What holds without an opinion.
        shape: The JSON that the reply is asked to be, None for text. A request: what comes back is read by the judge's
            own parser, now and when it is read again.
    """

    part: str
    messages: Messages | None = None
    settled: Parsed | None = None
    shape: type[BaseModel] | None = None

    @classmethod
    def ruled(cls, part: str, by: str, **value: object) -> Case:
        """A case that a rule settles; `by` says which."""
        return cls(part, settled=Parsed({**value, "by": by}))


class Asker:
    """Asks a judge's model.

    It is opened when first needed: reading cached replies again takes neither key, endpoint nor weights.

    Args:
        config: Options.
        services: Of them the cache of replies, and for a local model the device.
        parse: From a part and a raw reply to what it says.
    """

    def __init__(self, config: AskingJudgeConfig, services: Services, parse: Callable[[str, str], Parsed]) -> None:
        self.config = config
        self._services = services
        self._parse = parse

    @property
    def in_flight(self) -> int:
        """Items at once that keep the model busy; whoever is about to ask reads it, so this opens it outside the event loop."""
        return self._model.in_flight

    async def ask(self, cases: Sequence[Case]) -> list[JudgeCall]:
        """The calls of an item's cases, repetition by repetition; no case, no call.

        Raises:
            Broke: No further call could succeed.
        """
        return await together(*(self.call(case, number) for number in range(self.config.repetitions) for case in cases))

    async def call(self, case: Case, repetition: int) -> JudgeCall:
        """One call of one case."""
        if case.messages is None:
            return JudgeCall(case.part, repetition, None, case.settled or Parsed(None, NO_REPLY))
        reply = await self._model.ask(case.messages, shape=case.shape, repetition=repetition, step=case.part)
        return JudgeCall(
            case.part,
            repetition,
            reply.key,
            self._parse(case.part, reply.text) if reply.failed is None else Parsed(None, f"{NO_REPLY}: {reply.failed}"),
            reply.served,
            reply.prompt_tokens,
            reply.completion_tokens,
            reply.seconds,
            reply.cost_usd,
        )

    @cached_property
    def _model(self) -> ChatModel:
        # No seed of a task: what a judge says depends on its identity alone.
        return open_llm(
            self.config.llm, role="judge", cache=self._services.cache, device=self._services.device, replies=self._services.replies
        )


# -- From the calls made for an item to its scores: the mean over the calls that were read --


def mean_scores(calls: Sequence[JudgeCall], values: Mapping[str, Mapping[str, float | None]]) -> dict[str, Score]:
    """A score for each measure.

    Args:
        calls: Made for one item; none where it is unscorable.
        values: For each measure what a verdict counts; None leaves the call out, as one that could not be read.

    Returns:
        The mean over the calls that count; without any, the first reason; without a call, neither.
    """
    return {measure: _mean(calls, worth) for measure, worth in values.items()}


def _mean(calls: Sequence[JudgeCall], worth: Mapping[str, float | None]) -> Score:
    if not calls:
        return Score(None)
    counted: list[float] = []
    reasons: list[str] = []
    for call in calls:
        if call.parsed.value is None:
            reasons.append(call.parsed.unscored or "unscored")
            continue
        verdict = call.parsed.value["verdict"]
        value = worth[verdict]
        if value is None:
            reasons.append(f"{verdict}: left out by the judge's policy")
        else:
            counted.append(value)
    return Score(fmean(counted)) if counted else Score(None, reasons[0])


# -- A question's gold as judges are shown it, and which questions can be judged by it at all --


Golds = Literal["all", "first"]
"""Every accepted wording, or the first answer alone."""

ONE = "The gold is the right answer."
ANY = "The gold lists accepted answers, separated by |: one of them suffices."
ALL = "The gold is a set of answers, separated by |, each with other wordings in brackets: the answer must name all."


def has_gold(question: Question) -> bool:
    """Whether there is an answer to judge by; questions that the evidence does not answer have none."""
    return question.answerable and any(gold.strip() for gold in question.golds)


def gold_text(question: Question, golds: Golds) -> str:
    """The gold in one line; of a set of answers always all."""
    if question.answer_set:
        return " | ".join(_with_wordings(answer, question.aliases.get(answer, ())) for answer in question.wanted)
    return next(gold for gold in question.golds if gold.strip()) if golds == "first" else " | ".join(question.golds)


def gold_rule(question: Question, golds: Golds) -> str:
    """The sentence that says how the gold is meant, as `gold_text` writes it."""
    if question.answer_set:
        return ALL
    return ANY if golds == "all" and len(question.golds) > 1 else ONE


def _with_wordings(answer: str, wordings: tuple[str, ...]) -> str:
    return f"{answer} ({'; '.join(wordings)})" if wordings else answer


# -- Reading what a judge wrote: one word of a few, or a JSON object with a verdict for each criterion --


LONGEST = 20_000
"""Characters of a reply that are read, from its end."""
_THOUGHT = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_THINKING = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_FENCE = re.compile(r"^\s*```[\w-]*[ \t]*\n")
_REFUSAL = re.compile(
    r"\W*(?:(?:i['’]?m|i am)(?: \w+)? sorry|sorry\b|as an ai\b|unfortunately,? i\b"
    r"|i (?:can['’]?t|can ?not|won['’]?t|am unable|am not able|must decline)|i['’]m (?:unable|not able))",
    re.IGNORECASE,
)
_BETWEEN = r"\W*(?:/|\||,|&|\bor\b|\band\b)\W*"


def read_word(reply: str, offered: Sequence[str]) -> Parsed:
    """The verdict of a reply whose first word, without punctuation, must be one of those offered.

    The word must be equal, not begin or end alike: "Mismatch" is not a Match, nor "Informal" Formal.

    Returns:
        `{"verdict": …}` as offered.
    """
    text, unfinished = _after_thinking(reply)
    if unfinished:
        return Parsed(None, unfinished)
    plain = _FENCE.sub("", text).casefold()
    words = [word for part in plain.split() if (word := re.sub(r"[\W_]+", "", part))]
    verdicts = {word.casefold(): word for word in offered}
    named = "|".join(map(re.escape, sorted(verdicts, key=len, reverse=True)))
    listed = re.match(rf"\W*({named}){_BETWEEN}({named})\b", plain)
    only = set(words) - {"or", "and"}
    if (listed and listed[1] != listed[2]) or (len(only) > 1 and only <= verdicts.keys()):
        return Parsed(None, f"more than one verdict: {_short(text)}")
    if words and words[0] in verdicts:
        return Parsed({"verdict": verdicts[words[0]]})
    return Parsed(None, _unreadable(text, f"no verdict of {', '.join(offered)}"))


def read_criteria(reply: str, criteria: Sequence[str], offered: Sequence[str]) -> Parsed:
    """The verdicts of a reply that must hold a JSON object with one for each criterion; the last complete one counts.

    Complete means that each criterion is a field, flat (`"overall": "Tie"`) or nested (`"Overall Winner": {"Winner":
    "Tie"}`). An object that breaks off is none.

    Returns:
        For each criterion the verdict as offered, or None where it is none of them; then `unscored` says why.
    """
    text, unfinished = _after_thinking(reply)
    if unfinished:
        return Parsed(None, unfinished)
    for result in chain(reversed(_objects(text)), _mended(text)):
        fields = _fields(result, criteria)
        if fields is not None:
            return _verdicts(fields, criteria, offered)
    return Parsed(None, _unreadable(text, "no complete JSON object with " + ", ".join(criteria)))


def _verdicts(fields: Mapping[str, Any], criteria: Sequence[str], offered: Sequence[str]) -> Parsed:
    read = {criterion: _verdict(fields[criterion], offered) for criterion in criteria}
    reasons = {criterion: reason for criterion, (verdict, reason) in read.items() if verdict is None}
    if len(reasons) == len(criteria):
        return Parsed(None, "; ".join(dict.fromkeys(reasons.values())))
    value: dict[str, Any] = {criterion: verdict for criterion, (verdict, _) in read.items()}
    return Parsed({**value, "unscored": reasons} if reasons else value)


def _after_thinking(reply: str) -> tuple[str, str | None]:
    """What follows the last thought, or why nothing does."""
    text = _THOUGHT.split(reply)[-1].strip()
    if _THINKING.search(text):
        return "", "the reply ends while it still thinks"
    return text[-LONGEST:], None if text else "the reply is empty"


def _unreadable(text: str, lacks: str) -> str:
    return f"refusal: {_short(text)}" if _REFUSAL.match(text) else f"{lacks}: {_short(text)}"


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= 80 else f"{flat[:79]}…")


# -- JSON --


class _Recovered(list[Any]):
    """What a field holds that is given more than once, differently."""


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for key, value in pairs:
        results[key] = value if key not in results or results[key] == value else _Recovered([results[key], value])
    return results


def _objects(text: str) -> list[dict[str, Any]]:
    """Complete JSON objects in order, outermost ones only."""
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
    """Objects that are complete but not plain JSON (a comma too many, single quotes), last one first."""
    start, stop = text.find("{"), text.rfind("}")
    if not 0 <= start < stop:
        return
    try:
        import json_repair
    except ImportError as error:
        raise MissingPackage("json-repair", "llm", "reading a verdict that is not plain JSON") from error
    try:
        mended = json_repair.loads(text[start : stop + 1])
    except RecursionError:
        return
    for value in reversed(mended if isinstance(mended, list) else [mended]):
        if isinstance(value, dict):
            yield value


def _fields(results: Mapping[str, Any], criteria: Sequence[str]) -> dict[str, Any] | None:
    """A criterion's value by criterion, None where one is missing; an object around the object is looked through."""
    for candidate in (results, *(value for value in results.values() if isinstance(value, dict))):
        named = _unique((_plain(str(key)).removesuffix("winner"), value) for key, value in candidate.items())
        if all(criterion in named for criterion in criteria):
            return named
    return None


def _verdict(value: Any, offered: Sequence[str]) -> tuple[str | None, str]:
    if isinstance(value, dict):
        named = {_plain(str(key)): item for key, item in value.items()}
        value = next((named[key] for key in ("winner", "verdict") if key in named), None)
    verdicts = {_plain(word): word for word in offered}
    if isinstance(value, str):
        plain = _plain(value)
        if plain in verdicts:
            return verdicts[plain], ""
        if sum(word in plain for word in verdicts) > 1:
            return None, f"more than one verdict: {_short(value)}"
    if isinstance(value, list) and len(value) > 1:
        return None, f"more than one verdict: {_short(str(list(value)))}"
    return None, f"not an offered verdict: {_short(str(value))}"


def _plain(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


C = TypeVar("C", bound=LLMJudgeConfig)


class CaseJudge(ABC, Generic[C]):
    """A judge that puts cases before a model.

    Args:
        config: Options.
        services: Of them the cache of replies, and for a local model the device.
    """

    def __init__(self, config: C, services: Services) -> None:
        self.config = config
        self._prompt = config.load()
        self._asker = Asker(config, services, self.parse)

    @property
    def in_flight(self) -> int:
        """See `Asker`."""
        return self._asker.in_flight

    async def ask_one(self, item: Any) -> list[JudgeCall]:
        """The calls made for an item."""
        return await self._asker.ask(self.cases(item))

    @abstractmethod
    def cases(self, item: Any) -> list[Case]:
        """What of an item (or pair) is to be judged; nothing where it is unscorable."""

    @abstractmethod
    def parse(self, part: str, reply: str) -> Parsed:
        """Read a raw reply."""


class Worded(CaseJudge[C]):
    """A judge whose model answers with one word of a few."""

    verdicts: ClassVar[Sequence[str]]

    def parse(self, part: str, reply: str) -> Parsed:
        return read_word(reply, self.verdicts)

"""Text normalization and string metrics used by labels and metrics: tokens, EM, F1, cover EM, has-answer, sentences.

Each primitive scores one prediction against its accepted strings; `benchmarks.text_batch` does the same for
many pairs at once and is tested to agree. Rules are named by their owners:

- **squad**: lower-case; delete ASCII punctuation; replace the whole words a, an, the by a space; collapse white space; in that
  order. The evaluators of HotpotQA, 2Wiki, MuSiQue, LongBench and RoG normalize the very same way (RoG also drops `<pad>`,
  which cannot occur once punctuation is deleted); only their counting differs.
- **clara**: squad, after mapping the exact strings "True" and "False" to yes and no.
- **dpr**: NFD; runs of letters, digits and marks are tokens, any other visible character is one; lower-case.
- **longbench_zh**: LongBench's for Chinese: words by jieba, then lower case, ASCII and Chinese punctuation deleted from each.
- **infinitebench_zh**: ∞Bench's for Chinese: as longbench_zh, but every character is a token.
- **lenient**: ragmeter's own: ignores differences of form only, see `benchmarks.lenient`.
- **strict**: the string as it is.

Punctuation is deleted, not replaced: "well-known" becomes "wellknown" under all of them but dpr, lenient and strict.
"""

from __future__ import annotations

import logging
import re
import string
import sys
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.core.errors import MissingPackage, unknown_name
from benchmarks.lenient import lenient, same_but_form

_LONGEST_CACHED = 256
"""Maximum characters of a text whose normalized form is cached."""

# What normalizing the squad way takes, for one text here and for many in `text_batch`.
PUNCTUATION = string.punctuation.encode()
FOLD = bytes(ord(" ") if chr(code).isspace() and code < 128 else ord(chr(code).lower()) if code < 128 else code for code in range(256))
ARTICLES = re.compile(r"\b(?:an?|the)\b")
ARTICLE_WORDS = frozenset(("a", "an", "the"))
ORDINARY = bytes(code for code in range(128) if chr(code).isspace() or chr(code).isprintable())


def _squad(text: str) -> str:
    if text.isascii():
        raw = text.encode()
        if not raw.translate(None, ORDINARY):
            # Without control characters every character is a word character, white space or punctuation: words
            # are what lies between white space, and one pass over the bytes folds and deletes.
            words = raw.translate(FOLD, PUNCTUATION).decode().split()
            return " ".join([word for word in words if word not in ARTICLE_WORDS])
    # In UTF-8 a byte below 128 is always a character of its own, so deleting bytes deletes ASCII punctuation.
    folded = text.lower().encode("utf-8", "surrogatepass").translate(None, PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", folded.decode("utf-8", "surrogatepass")).split())


def _clara(text: str) -> str:
    return {"True": "yes", "False": "no"}.get(text) or _squad(text)


def _dpr(text: str) -> str:
    if text.isascii():
        return " ".join(ASCII_WORD.findall(text)).lower()
    return " ".join(dpr_word().findall(unicodedata.normalize("NFD", text))).lower()


CHINESE_PUNCTUATION = (
    "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏."
)
"""Punctuation that LongBench's `normalize_zh_answer` deletes besides ASCII punctuation; `《` is not included."""
_CHINESE_MARKS = str.maketrans("", "", string.punctuation + CHINESE_PUNCTUATION)


def _longbench_zh(text: str) -> str:
    words = ("".join(word.lower().translate(_CHINESE_MARKS).split()) for word in chinese_words(text))
    return " ".join(filter(None, words))


def _infinitebench_zh(text: str) -> str:
    return " ".join("".join(text.lower().translate(_CHINESE_MARKS).split()))


def chinese_words(text: str) -> list[str]:
    """Segment a Chinese text with jieba, including punctuation, white space and words in other scripts.

    Raises:
        MissingPackage: jieba is not installed.
    """
    return _segmenter().lcut(text)


@lru_cache(maxsize=1)
def _segmenter() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its source holds escapes that newer Pythons warn of
            import jieba
    except ImportError as error:
        raise MissingPackage("jieba", "metrics", "cutting Chinese into words") from error
    jieba.setLogLevel(logging.WARNING)
    segmenter = jieba.Tokenizer()
    # By default it reads a cache in the shared folder for temporary files, where any user may have put it.
    with TemporaryDirectory() as segmenter.tmp_dir:
        segmenter.initialize()
    return segmenter


def _strict(text: str) -> str:
    return text


ASCII_WORD = re.compile(r"[A-Za-z0-9]+|[!-~]")


@lru_cache(maxsize=1)
def dpr_word() -> re.Pattern[str]:
    """Compile DPR's token pattern `[\\p{L}\\p{N}\\p{M}]+|[^\\p{Z}\\p{C}]` for Python's `re`, which lacks Unicode properties."""
    # `[^\W_]` is exactly the letters and numbers; marks, separators and "other" are listed from the database.
    initials = "".join([category[0] for category in map(unicodedata.category, map(chr, range(sys.maxunicode + 1)))])
    marks, blanks = (
        "".join(rf"\U{run.start():08x}-\U{run.end() - 1:08x}" for run in re.finditer(wanted, initials)) for wanted in ("M+", "[ZC]+")
    )
    return re.compile(rf"(?:[^\W_]|[{marks}])+|[^{blanks}]")


@dataclass(frozen=True, slots=True)
class Rules:
    """Normalization rules of one official evaluator.

    Attributes:
        normalize: Function from a text to its normalized form, tokens separated by single spaces.
        verdict_words: Words such as "yes" that get no partial credit: if either text is one of them and the texts differ, F1 is
            0.
        both_empty: F1 of an empty prediction against a gold that normalizes to nothing.
        language: Language of the tokenizer; None if it is language-independent.
        same: Function that decides whether an answer equals a gold, given the answer and both normalized texts; None compares
            the normalized texts. Equal answers have an F1 of 1.
    """

    normalize: Callable[[str], str]
    verdict_words: frozenset[str] = frozenset()
    both_empty: float = 0.0
    language: str | None = "en"
    same: Callable[[str, str, str], bool] | None = None


_YES_NO = frozenset(("yes", "no", "noanswer"))

RULES: dict[str, Rules] = {
    "squad": Rules(_squad),
    "squad_v2": Rules(_squad, both_empty=1.0),
    "hotpotqa": Rules(_squad, verdict_words=_YES_NO),
    "musique": Rules(_squad, both_empty=1.0),
    "longbench": Rules(_squad),
    "longbench_zh": Rules(_longbench_zh, language="zh"),
    "infinitebench_zh": Rules(_infinitebench_zh, language="zh"),
    "rog": Rules(_squad),
    "clara": Rules(_clara, verdict_words=_YES_NO),
    "dpr": Rules(_dpr),
    "lenient": Rules(lenient, verdict_words=_YES_NO, both_empty=1.0, language=None, same=same_but_form),
    "strict": Rules(_strict, both_empty=1.0, language=None),
}
"""Normalization rules by name of the evaluator; 2Wiki uses HotpotQA's."""


def rules_named(name: str) -> Rules:
    """Look up normalization rules.

    Raises:
        UserError: The name is unknown.
    """
    try:
        return RULES[name]
    except KeyError:
        raise unknown_name("normalization rules", name, RULES) from None


@lru_cache(maxsize=1 << 15)
def _kept(text: str, rules: str) -> str:
    return rules_named(rules).normalize(text)


def normalize(text: str, rules: str = "squad") -> str:
    """Normalize a text as an official evaluator does.

    Args:
        text: Any text.
        rules: Name of the rules, a key of `RULES`.

    Returns:
        The normalized tokens, separated by single spaces; with `strict`, the unchanged text.

    Raises:
        UserError: The rules are unknown.

    Source:
        The evaluation scripts of SQuAD 1.1/2.0, HotpotQA, MuSiQue, LongBench, RoG and CLaRa; DPR's `SimpleTokenizer`.
    """
    return _kept(text, rules) if len(text) <= _LONGEST_CACHED else rules_named(rules).normalize(text)


def tokens(text: str, rules: str = "squad") -> list[str]:
    """Return the tokens of a text after normalization."""
    return normalize(text, rules).split()


def is_scorable_gold(gold: str, rules: str = "squad") -> bool:
    """Return whether a gold answer is non-empty after normalization. Golds such as "A" or "The The" would match anything."""
    return bool(normalize(gold, rules).strip())


_ABSTENTIONS = frozenset(
    (
        "unanswerable",
        "not answerable",
        "no answer",
        "noanswer",
        "none",
        "unknown",
        "cannot be answered",
        "cannot answer",
        "i dont know",
        "i do not know",
        "not enough information",
        "insufficient information",
    )
)


def is_abstention(text: str) -> bool:
    """Return whether a prediction abstains: it is empty after normalization, or one of a few set phrases.

    The phrases must be the whole answer after squad normalization: unanswerable, not answerable, no answer,
    noanswer, none, unknown, cannot be answered, cannot answer, I don't know, I do not know, not enough
    information, insufficient information. The apostrophe may be curly.
    """
    normal = normalize(text.replace("’", "'"))
    return not normal or normal in _ABSTENTIONS


def em(prediction: str, golds: Iterable[str], rules: str = "squad") -> float:
    """Compute exact match: 1 if the normalized prediction equals any normalized gold, else 0.

    Source:
        SQuAD's `exact_match_score` under `metric_max_over_ground_truths`.
    """
    normal, same = normalize(prediction, rules), rules_named(rules).same
    if same is not None:
        return float(any(same(prediction, normal, normalize(gold, rules)) for gold in golds))
    return float(any(normal == normalize(gold, rules) for gold in golds))


def overlap_scores(same: int, predicted: int, wanted: int, both_empty: float = 0.0) -> tuple[float, float, float]:
    """Compute precision, recall and F1 from token counts.

    Args:
        same: Tokens in common, as multisets.
        predicted: Tokens of the prediction.
        wanted: Tokens of the gold.
        both_empty: Value of all three if neither text has tokens.
    """
    if not predicted and not wanted:
        return both_empty, both_empty, both_empty
    if not same:
        return 0.0, 0.0, 0.0
    precision, recall = same / predicted, same / wanted
    return precision, recall, 2 * precision * recall / (precision + recall)


def precision_recall_f1(prediction: str, golds: Iterable[str], rules: str = "squad") -> tuple[float, float, float]:
    """Compute token precision, recall and F1, each the maximum over the golds (as in 2Wiki's evaluator); 0 without golds.

    Tokens are compared as multisets. Rules with verdict words (hotpotqa, clara) give 0 if prediction or gold is "yes", "no" or
    "noanswer" and the two differ. If both are empty after normalization, the value is 1 under musique and squad_v2, else 0.

    Source:
        `f1_score` of the SQuAD 1.1, SQuAD 2.0, HotpotQA, 2Wiki v1.1, MuSiQue and LongBench evaluators.
    """
    owner = rules_named(rules)
    normal = normalize(prediction, rules)
    predicted = normal.split()
    best = (0.0, 0.0, 0.0)
    for gold in golds:
        wanted_normal = normalize(gold, rules)
        if owner.same is not None and owner.same(prediction, normal, wanted_normal):
            return 1.0, 1.0, 1.0
        if normal != wanted_normal and (normal in owner.verdict_words or wanted_normal in owner.verdict_words):
            continue
        wanted = wanted_normal.split()
        same = common_tokens(predicted, wanted)
        scores = overlap_scores(same, len(predicted), len(wanted), owner.both_empty)
        best = (max(best[0], scores[0]), max(best[1], scores[1]), max(best[2], scores[2]))
    return best


def common_tokens(left: Collection[Hashable], right: Sequence[Hashable]) -> int:
    """Count the tokens that two sequences share, as multisets; fastest with the shorter one on the right."""
    distinct = set(right)
    shared = distinct.intersection(left)
    if not shared or len(distinct) == len(right):
        return len(shared)  # a token that occurs once on one side can count once at most
    return sum((Counter(left) & Counter(right)).values())


def f1(prediction: str, golds: Iterable[str], rules: str = "squad") -> float:
    """Compute token F1, the maximum over the golds; see `precision_recall_f1`."""
    return precision_recall_f1(prediction, golds, rules)[2]


def covers(prediction: str, gold: str, match: str) -> bool:
    """Return whether a normalized prediction contains a normalized gold; a gold without tokens is never contained.

    Args:
        prediction, gold: Normalized texts.
        match: `substring`, `word` or `tokens`, as in `cover_em`.

    Raises:
        UserError: `match` is unknown.
    """
    if not gold:
        return False
    if match == "substring":
        return gold in prediction
    if match == "word":
        return f" {gold} " in f" {prediction} "
    if match == "tokens":
        return set(gold.split()).issubset(prediction.split())
    raise unknown_name("match", match, COVER_MATCHES)


COVER_MATCHES = ("substring", "word", "tokens")
"""Values of the parameter `match` of `cover_em`."""


def cover_em(prediction: str, golds: Iterable[str], match: str = "substring", rules: str = "squad") -> float:
    """Compute cover EM: 1 if the normalized prediction contains any normalized gold, else 0 (CLaRa's ACC).

    Args:
        prediction: Any text.
        golds: Accepted strings; those that are empty after normalization are ignored.
        match: `substring` (CLaRa's wording, PISCO, BERGEN): anywhere, inside words too. `word`: as consecutive
            whole tokens. `tokens` (CLaRa's code): every token of the gold occurs, in any order and number.
        rules: Name of the normalization rules.
    """
    normal = normalize(prediction, rules)
    return float(any(covers(normal, normalize(gold, rules), match) for gold in golds))


def has_answer(text: str, golds: Iterable[str]) -> bool:
    """Return whether a text contains the tokens of any gold answer consecutively, ignoring case (DPR's rule).

    Text and golds are NFD-normalized, cut into tokens (`dpr` rules) and lower-cased. A gold without tokens never matches; in
    DPR's code it always matches.

    Source:
        `has_answer` with `match_type="string"` in DPR's `qa_validation.py`.
    """
    padded = f" {normalize(text, 'dpr')} "
    normal = (normalize(gold, "dpr") for gold in golds)
    return any(f" {gold} " in padded for gold in normal if gold)


_ABBREVIATION_LIST = """
mr mrs ms dr prof st sr jr rev hon gen col lt sgt capt cmdr maj gov sen rep pres vs etc al eg ie cf nos vol vols pp
fig figs ed eds approx dept est inc ltd co corp bros mt ft ave blvd jan feb mar apr jun jul aug sep sept oct nov dec
ca viz op resp
"""
_ABBREVIATIONS = frozenset(_ABBREVIATION_LIST.split())
# First: a stop, closing marks, white space, then a capital, a digit or the like. Second: scripts that put no space
# after the stop. Third: an empty line.
_SENTENCE_END = re.compile(
    r"""(?P<mark>[.!?…]+)["'”’)\]»]*(?P<gap>\s+)(?=["'“‘(\[«]*[^\W_a-z])
    |(?<=[。！？])(?=[^。！？”’」』）\s])
    |\s*\n[^\S\n]*\n\s*
    """,
    re.VERBOSE,
)
_LAST_WORD = re.compile(r"([^\W_]+(?:\.[^\W_]+)*)$")


def sentences(text: str) -> list[str]:
    """Split a text into sentences by rule.

    A sentence ends at an empty line; after `.`, `!`, `?` or `…` (and closing quotes or brackets) where white space
    and then anything but a lower-case ASCII letter follows; after `。`, `！`, `？`. A single full stop does not end
    one after a common abbreviation (`Dr.`, `e.g.`, `No. 5`), a single letter (`J. Smith`) or letters with dots
    (`U.S.`). Nothing but white space is lost: the sentences, in order, hold every other character of the text.

    Returns:
        The sentences without surrounding white space, none of them empty.
    """
    results: list[str] = []
    start = 0
    for end in _SENTENCE_END.finditer(text):
        if end["mark"] == "." and _is_abbreviation(text, start, end):
            continue
        cut = end.start("gap") if end["mark"] else end.start()
        results.append(text[start:cut])
        start = end.end()
    results.append(text[start:])
    return [stripped for piece in results if (stripped := piece.strip())]


def _is_abbreviation(text: str, start: int, end: re.Match[str]) -> bool:
    """Return whether the word before a full stop is an abbreviation."""
    word = _LAST_WORD.search(text, max(start, end.start() - 24), end.start())
    if word is None:
        return False
    parts = word[1].split(".")
    if all(len(part) == 1 and part.isalpha() for part in parts):
        return word[1] != "I"  # "… and so did I. Then" ends; "J. Smith", "U.S. Army" and "e.g. Rome" do not
    whole = "".join(parts).lower()
    return whole in _ABBREVIATIONS or (whole == "no" and text[end.end() : end.end() + 1].isdigit())


_RUNS = re.compile(r"[\x00-\x7f]+|[^\x00-\x7f]+")


def answer_positions(text: str, golds: Iterable[str], *, most: int = 200) -> list[tuple[int, int]]:
    """Return the character spans of gold answers in a text, matched as in `has_answer`.

    Args:
        text: Any text.
        golds: Accepted strings; those without tokens are ignored.
        most: Maximum number of occurrences per gold.

    Returns:
        Spans (start, end) in order; overlapping spans are merged.
    """
    lowered = text.lower()
    wanted = {normal for gold in golds if (normal := normalize(gold, "dpr")) and _possible(lowered, normal)}
    if not wanted:
        return []
    tokens, starts, ends = _tokens(text)
    padded = f" {' '.join(tokens).lower()} "
    results = sorted(position for gold in wanted for position in _token_positions(padded, f" {gold} ", most))
    merged: list[tuple[int, int]] = []
    for first, last in results:
        if merged and first < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return [(starts[first], ends[last - 1]) for first, last in merged]


def _possible(lowered: str, gold: str) -> bool:
    """Return whether a text can contain a gold answer, judged by plain words; a prefilter that is 100 times as fast as
    tokenizing.
    """
    return all(word in lowered for word in gold.split() if word.isascii() and word.isalnum())


def _token_positions(padded: str, gold: str, most: int) -> list[tuple[int, int]]:
    """Return start and end token of each occurrence; both texts have a space before each token and at the end."""
    results: list[tuple[int, int]] = []
    length, token, seen = gold.count(" ") - 1, 0, 0
    at = padded.find(gold)
    while at >= 0 and len(results) < most:
        token += padded.count(" ", seen, at)
        seen = at
        results.append((token, token + length))
        at = padded.find(gold, at + 1)
    return results


def _tokens(text: str) -> tuple[list[str], list[int], list[int]]:
    """Return the tokens of the dpr rules (case preserved), and their start and end characters."""
    if text.isascii():
        results = list(ASCII_WORD.finditer(text))
        return [match[0] for match in results], [match.start() for match in results], [match.end() for match in results]
    normal, origins = _decomposed(text)
    results = list(dpr_word().finditer(normal))
    return (
        [match[0] for match in results],
        [origins[match.start()] for match in results],
        [origins[match.end() - 1] + 1 for match in results],
    )


def _decomposed(text: str) -> tuple[str, list[int]]:
    """Return the NFD form, and for each of its characters the position of the original one."""
    parts: list[str] = []
    origins: list[int] = []
    for run in _RUNS.finditer(text):
        piece = run[0]
        # Marks change places within what follows one letter alone, so runs can be decomposed one by one.
        if unicodedata.is_normalized("NFD", piece):
            parts.append(piece)
            origins.extend(range(run.start(), run.end()))
            continue
        parts.append(unicodedata.normalize("NFD", piece))
        for position, character in enumerate(piece, run.start()):
            origins += [position] * len(unicodedata.normalize("NFD", character))
    return "".join(parts), origins

"""One question: its gold, what each run answered and returned, what that scored and cost, and what judges said."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from leaderboard.elements import formats
from leaderboard.elements.formats import metric_name, scale_of
from leaderboard.elements.marks import control_badge
from leaderboard.elements.nodes import Node, aside, badge, button, el, fold, named, note
from leaderboard.elements.passage import PassageText, marked, passage_text
from leaderboard.elements.tables import Cell, Column, Definitions, NumberColumn, WideColumn, metric_columns, table
from results.boards.tables import minus
from results.judging.judgments import Conversation, Verdict
from results.store import records
from results.store.answer_queries import AnswerRow, Call, EvidenceRow, Passage, QuestionRow, gold_sentences
from results.store.queries import OURS, RunRow

DEPTH = 20
"""Ranks of evidence that are read and shown."""
_BEGINNING = 80
"""Number of characters that replace a missing title of a passage."""
CALL = "call"
"""Key of a stored conversation in a prediction's notes and in the URL."""
_AT = re.compile(r"@(\d+)$")
_KEY = re.compile(r"[0-9a-f]{32}")
LONGEST = 20_000
"""Maximum characters of a displayed message."""


def question(row: QuestionRow) -> Node:
    """Build the view of a question: its text, gold answer and other accepted wordings."""
    others = [gold for gold in row.golds if gold not in row.answers]
    answers = [el("span", answer or "(empty)", cls="gold-answer") for answer in dict.fromkeys(row.answers)]
    return el(
        "section",
        el(
            "div",
            badge(row.type, "", "Question type") if row.type else None,
            el("span", row.question, cls="aside", title="The dataset's id of this question"),
            aside(f"document {row.document_id}") if row.document_id else None,
            cls="meta",
        ),
        *(el("p", el("strong", f"{turn.role}: "), turn.text, cls="aside") for turn in row.turns),
        el("h2", row.text, cls="question"),
        el("div", el("span", "Gold answer", cls="kicker"), *answers or [aside("none")], cls="gold"),
        el("p", "Also accepted: " + " · ".join(others), cls="aside") if others else None,
    )


def answer_table(
    row: QuestionRow,
    passages: Mapping[str, Passage],
    answers: Sequence[AnswerRow],
    runs: Sequence[RunRow],
    metrics: Sequence[str],
    definitions: Definitions,
) -> Node:
    """Build the table of the runs' answers, if they have one, with scores, ranks of the gold passages (up to `DEPTH`), and cost."""
    by_run = {answer.run: answer for answer in answers}
    titles = "; ".join(passages[e].title or passages[e].text[:_BEGINNING] if e in passages else e for e in row.evidence)
    ranks = f"Ranks of the gold passages within the first {DEPTH}, in this order: {titles}. – means not among them."
    gold: list[Column[RunRow]] = [Column("Gold at rank", lambda run: _ranks(row, by_run.get(run.run)), tip=ranks, cls="number")]

    answered: list[Column[RunRow]] = [WideColumn("Answer", lambda run: _answer_text(by_run.get(run.run)))]

    def score(metric: str, run: RunRow) -> Cell | Node | None:
        return _score(by_run[run.run], metric, definitions) if run.run in by_run else None

    columns: list[Column[RunRow]] = [
        Column("Method", lambda run: named(run.method, control_badge(run.kind == "control"))),
        *(answered if any(answer.answer or answer.failed is not None for answer in answers) else []),
        *metric_columns(metrics, definitions, score),
        *(gold if row.evidence else []),
        NumberColumn("Time", lambda run: _time(by_run.get(run.run)), tip="Wall time by stage, without waiting"),
        NumberColumn("Tokens", lambda run: _tokens(by_run.get(run.run), run), tip="Prompt, completion and memory tokens"),
    ]
    control = "control"
    return table("Answers and scores", "answers-scroll", runs, columns, lambda run: control if run.kind == control else "", "Answers table")


def _answer_text(answer: AnswerRow | None) -> Node | str:
    if answer is None:
        return aside("not answered yet")
    if answer.failed is not None:
        return el("td", badge("failed", "failed", "Counts as zero"), aside(answer.failed), cls="wide")
    return answer.answer or aside("empty answer")


def _ranks(row: QuestionRow, answer: AnswerRow | None) -> Cell | None:
    """Make the cell with the first rank of each gold passage in an answer's evidence."""
    if answer is None or not answer.evidence:
        return None
    first = {item.id: item.rank for item in reversed(answer.evidence)}
    ranks = [first.get(identifier) for identifier in row.evidence]
    return Cell(", ".join(str(rank or formats.NOTHING) for rank in ranks), cls="full" if all(ranks) else "")


def _time(answer: AnswerRow | None) -> Cell | None:
    if answer is None or not answer.stages:
        return None
    stages = ", ".join(f"{stage} {formats.duration(seconds)}" for stage, seconds in answer.stages.items())
    return Cell(formats.duration(sum(answer.stages.values())), tip=stages + formats.waited(answer.waited_s))


def _tokens(answer: AnswerRow | None, run: RunRow) -> Cell | None:
    if answer is None:
        return None
    total = answer.prompt_tokens + answer.completion_tokens + answer.memory_tokens
    # A submission need not say what it took.
    tokens = formats.count(total) if total or run.origin == OURS else formats.NOTHING
    dollars = formats.NOTHING if answer.spending.get("unpriced") else formats.dollars(answer.cost_usd)
    parts = (
        f"prompt {answer.prompt_tokens:,} ({answer.spending.get('cached_tokens', 0):,} cached), "
        f"completion {answer.completion_tokens:,}, memory {answer.memory_tokens:,} "
        f"tokens; {answer.model_calls:,} model calls; US$ {dollars}"
    )
    return Cell(tokens, tip=parts if total or answer.model_calls else "")


def _score(answer: AnswerRow, metric: str, definitions: Definitions) -> Cell | Node | None:
    if metric not in answer.scores:
        return None
    value, reason = answer.scores[metric], answer.unscored.get(metric)
    if reason is not None:
        return el("span", "not scored", cls="aside", tip=f"The judge gave no value: {reason}")
    if value is None:
        tip = "The gold has nothing that this metric can use; the mean leaves the question out"
        return el("span", "unscorable", cls="aside", tip=tip)
    known = definitions.get(metric, {})
    bounded = known.get("low") == 0 and known.get("high") == 1
    cls = "full" if bounded and value == 1 else "zero" if bounded and value == 0 else ""
    return Cell(scale_of(metric, definitions).value(value), cls=cls)


def gold_passages(row: QuestionRow, passages: Mapping[str, Passage]) -> Node | None:
    """Build the folds with the gold passages' texts; None if the question has none."""
    if not passages:
        return None
    golds = records.informative_golds(row.golds)
    shown = [
        el(
            "li",
            el("div", el("strong", *_title(passage.title or "untitled", golds)), badge("gold", "gold"), cls="passage-head"),
            passage_text(passage.text, passage.sentences, golds, gold_sentences(row, passage.id)).render(f"text-{row.question}-{number}"),
            cls="passage is-gold",
        )
        for number, passage in enumerate(passages.values())
    ]
    return fold(f"Read the gold passages ({len(shown)})", "", el("ol", *shown, cls="passages"), key=f"gold-{row.question}")


def cutoffs(run: RunRow, metric: str) -> dict[int, str]:
    """Return the cutoffs in a ranking, by rank: the metric's k, and the number of passages that the reader receives."""
    results: dict[int, str] = {}
    if at := _AT.search(metric_name(metric)[0]):
        results[int(at[1])] = f"{metric_name(metric)[0]} counts down to this rank"
    handed_on = run.description.get("k")
    if isinstance(handed_on, int) and run.description.get("reader"):
        read = f"the reader gets {handed_on}"
        results[handed_on] = f"{results[handed_on]}; {read}" if handed_on in results else read
    return results


def evidence(row: QuestionRow, answer: AnswerRow, passages: Mapping[str, Passage], cutoffs: Mapping[int, str], *, opened: bool) -> Node:
    """Draw a run's ranked evidence with gold sentences, answers and cutoffs marked, followed by gold passages that it missed.

    Gold passages are unfolded; without gold, the first passage that contains an answer is. Not all of them may be stored.
    """
    golds = records.informative_golds(row.golds)
    result, wanted = sum(item.gold for item in answer.evidence), len(row.evidence)
    texts = [passage_text(item.text, item.sentences, golds, gold_sentences(row, item.id) if item.gold else ()) for item in answer.evidence]
    holding = [bool(text.answers or records.positions(item.title, golds)) for item, text in zip(answer.evidence, texts, strict=True)]
    tally = f"{result} gold in {len(answer.evidence)} shown" + (f", {wanted} wanted" if wanted else "")
    if golds:
        tally += f"; an answer in {sum(holding):,}"
    tally = tally if answer.evidence else "no evidence"
    first = holding.index(True) if not wanted and any(holding) else None
    items = []
    for number, (item, text, holds) in enumerate(zip(answer.evidence, texts, holding, strict=True)):
        items.append(_item(row, answer.run, item, text, golds, holds=holds, opened=number == first))
        if ends := cutoffs.get(item.rank):
            items.append(el("li", f"rank {item.rank}: {ends}", cls="cutoff"))
    items += _missed(row, answer, passages, golds)
    return fold(answer.method, tally, el("ol", *items, cls="passages"), key=f"evidence-{answer.run}-{row.question}", opened=opened)


def _missed(row: QuestionRow, answer: AnswerRow, passages: Mapping[str, Passage], golds: tuple[str, ...]) -> Iterator[Node]:
    """Yield the gold passages that are missing in a run's evidence."""
    ranked = {item.id for item in answer.evidence}
    for number, identifier in enumerate(row.evidence):
        if identifier in ranked:
            continue
        passage = passages.get(identifier)
        head = [
            el("span", formats.NOTHING, cls="rank"),
            el("span", *(_title(passage.title, golds) if passage and passage.title else [identifier]), cls="title"),
            badge("missed gold", "failed", f"The dataset names it as evidence; it is not among the first {len(answer.evidence)}"),
        ]
        if passage is None:
            yield el("li", el("div", *head, cls="passage-line"), cls="passage is-gold")
            continue
        at = f"{answer.run}-{row.question}-missed-{number}"
        text = passage_text(passage.text, passage.sentences, golds, gold_sentences(row, passage.id)).render(f"text-{at}")
        yield el("li", el("details", el("summary", *head), text, key=at), cls="passage is-gold")


def returned(answer: AnswerRow, question: str) -> Node:
    """Build the view of what a system returned besides its answer: contexts, cited statements, searches, confidence."""
    record = answer.record
    contexts, statements, searches = (record.get(name, []) for name in ("contexts", "statements", "searches"))
    tally = [f"{name}: {len(record[name]):,}" for name in ("contexts", "statements", "searches") if name in record]
    tally += [f"confidence: {record['confidence']:.3g}"] if "confidence" in record else []
    shown = [_context(item, f"{answer.run}-{question}-{number}", number) for number, item in enumerate(contexts, 1)]
    cited = [el("li", item["text"], aside(f" cites {', '.join(map(str, item['cites'])) or 'nothing'}")) for item in statements]
    made = [el("li", item["query"], aside(f" found {len(item['found'])}, used {len(item['used'])}")) for item in searches]
    lists = (el("ol", *items, cls="passages") for items in (shown, cited, made) if items)
    return fold(answer.method, ", ".join(tally), *lists, key=f"returned-{answer.run}-{question}")


def _context(item: Mapping[str, Any], at: str, number: int) -> Node:
    """Draw a text from the model's context."""
    name = item.get("id") or item.get("url") or " ".join(item["text"].split())[:_BEGINNING]
    head = [
        el("span", str(number), cls="rank"),
        el("span", name, cls="title"),
        el("span", "not in the corpus", cls="badge", title="No passage matches this text") if item.get("matched") == [] else None,
        el("span", minus(f"{item['score']:.4g}"), cls="score", title="The system's own score") if "score" in item else None,
    ]
    text = passage_text(item["text"], (), ()).render(f"context-{at}")
    url = el("p", item["url"], cls="aside") if item.get("url") else None
    return el("li", el("details", el("summary", *head), url, text, key=f"shown-{at}"), cls="passage")


def prompts(answers: Sequence[AnswerRow], here: Mapping[str, str], opened: Mapping[str, str], question: str) -> Node | None:
    """Build one button per run that shows its stored model calls, else its reader's; `opened`: what is shown, by URL parameter."""

    def opener(answer: AnswerRow) -> Node:
        if answer.calls_kept:
            return reader("calls", answer.run, opened["calls"], f"calls-{answer.run}", f"read {answer.calls_kept:,}")
        return reader(CALL, here[answer.run], opened[CALL], f"reader-{answer.run}-{question}")

    buttons = [el("span", item.method, opener(item), cls="fact") for item in answers if item.calls_kept or item.run in here]
    return el("p", aside("Prompts and replies:"), *buttons, cls="facts") if buttons else None


def calls(answer: AnswerRow, made: Sequence[Call], question: str) -> Node:
    """Build the list of model calls behind an answer, in order, each in a fold."""
    return el(
        "section",
        el("h3", f"Calls of {answer.method}", cls="section"),
        *(_call(call, number, f"call-{answer.run}-{question}-{number}") for number, call in enumerate(made, 1)),
        label=f"Calls of {answer.method}",
        role="region",
    )


def _call(call: Call, number: int, key: str) -> Node:
    took = f"{call.prompt_tokens:,} + {call.completion_tokens:,} tokens, {formats.duration(call.seconds)}"
    marks = [badge("cached", "", "The reply came from the response cache")] * call.cached + [badge("failed", "failed")] * call.failed
    messages = [("prompt", call.prompt), ("reply", call.reply)]
    return fold(f"{number}. {call.name}", took, dialog(messages), key=key, marks=marks)


def _item(row: QuestionRow, run: str, item: EvidenceRow, text: PassageText, golds: tuple[str, ...], *, holds: bool, opened: bool) -> Node:
    gold, beginning = item.gold, [*marked(text.text, text.answers, 0, min(_BEGINNING, len(text.text)))]
    at = f"{run}-{row.question}-{item.rank}"
    head = [
        el("span", str(item.rank), cls="rank"),
        el("span", *(_title(item.title, golds) if item.title else beginning or [item.id]), cls="title"),
        badge("✓ gold", "gold", "The dataset names this as evidence for the answer") if gold else None,
        el("span", "has answer", cls="badge answer", title="It contains an accepted answer") if holds else None,
        el("span", minus(f"{item.score:.4g}"), cls="score", title="The method's own score"),
    ]
    cls = "passage is-gold" if gold else "passage"
    if not item.title and text.text and text.length <= _BEGINNING:
        return el("li", el("div", *head, cls="passage-line"), cls=cls)  # a triple is all said in its line
    shown = text.render(f"text-{at}") if text.text else el("p", "The store does not hold this passage.", cls="aside")
    opens = el("details", el("summary", *head), shown, open=gold or opened, key=f"passage-{at}")
    return el("li", opens, cls=cls)


def _title(title: str, golds: tuple[str, ...]) -> list[Node | str]:
    return list(marked(title, records.positions(title, golds), 0, len(title)))


def question_list(
    rows: Sequence[QuestionRow],
    current: str,
    scores: Mapping[str, Sequence[float | None]],
    names: Mapping[str, str],
    metric: str,
    definitions: Definitions,
    earlier: str | None = None,
    later: str | None = None,
) -> Node:
    """Build one page of the list of questions that pass the filter, each a button; `earlier`, `later`: where other pages begin."""
    shown = scale_of(metric, definitions)
    items = []
    for number, row in enumerate(rows):
        marks = []
        for run, name in names.items():
            value = scores[run][number]
            level = -1.0 if value is None else min(1.0, max(0.0, value))
            words = f"{name}: {shown.value(value)}"
            cls = "dot" if level >= 0 else "dot none"
            marks.append(el("span", cls=cls, numbers={"level": max(level, 0.0)}, role="img", label=words, title=words))
        here = row.question == current
        items.append(
            el(
                "li",
                el(
                    "button",
                    el("span", row.text, cls="line"),
                    el("span", *marks, cls="dots"),
                    cls="pick",
                    pressed="true" if here else "false",
                    action={"question": row.question},
                    key=f"pick-{row.question}",
                ),
            )
        )
    if earlier is not None:
        items.insert(0, _turn("↑ Earlier questions", earlier))
    if later is not None:
        items.append(_turn("↓ More questions", later))
    return el("div", el("ol", *items, cls="picks"), cls="list", key=f"list-{rows[0].question}")


def _turn(text: str, question: str) -> Node:
    return el("li", el("button", text, cls="pick turn", action={"question": question}, key=f"turn-{text}"))


def answered_here(answers: Sequence[AnswerRow], runs: Sequence[RunRow]) -> dict[str, str]:
    """Return the key of the reader's stored model call, by run, for runs made here.

    Submissions are left out, because their untrusted notes could name any stored call.
    """
    made = {run.run for run in runs if run.origin == OURS}
    keys = {answer.run: answer.notes.get(CALL) for answer in answers if answer.run in made}
    return {run: key for run, key in keys.items() if isinstance(key, str) and _KEY.fullmatch(key)}


def conversations(answers: Sequence[AnswerRow], here: Mapping[str, str], results: Sequence[Verdict]) -> dict[str, str]:
    """Map the keys of all stored model calls behind answers (`answered_here`) and verdicts to who made them."""
    keys = {here[answer.run]: f"Reader of {answer.method}" for answer in answers if answer.run in here}
    return keys | {item.call: f"Judge {item.judge}" for item in results if item.call is not None}


def verdicts(results: Sequence[Verdict], names: Mapping[str, str], opened: str, question: str) -> list[Node]:
    """Build one fold per judge with a line for each of its calls about a question."""
    by_judge: dict[str, list[Verdict]] = {}
    for item in results:
        by_judge.setdefault(item.judge, []).append(item)
    return [_judge(judge, made, names, opened, question) for judge, made in by_judge.items()]


def _judge(judge: str, made: Sequence[Verdict], names: Mapping[str, str], opened: str, question: str) -> Node:
    unread = sum(item.unscored is not None for item in made)
    tally = f"{len(made):,} call{'s' * (len(made) != 1)}" + (f", {unread:,} without a verdict" if unread else "")

    def judged(item: Verdict) -> Node:
        return named(names.get(item.run, item.run), None if item.other is None else aside(f"against {names.get(item.other, item.other)}"))

    def shown(item: Verdict) -> str:
        return item.part + (f", repetition {item.repetition}" if item.repetition else "")

    def tokens(item: Verdict) -> Cell:
        parts = f"prompt {item.prompt_tokens:,}, completion {item.completion_tokens:,}; US$ {formats.dollars(item.cost_usd)}"
        return Cell(formats.count(item.prompt_tokens + item.completion_tokens), tip=parts)

    parsed = "Parsed from the reply; for two answers, per criterion and in their original order"
    columns: list[Column[Verdict]] = [
        Column("Judged", judged),
        Column("Shown", shown, tip="The judge's prompt and, for two answers, their order in it"),
        WideColumn("Verdict", lambda item: _verdict(item, names), tip=parsed),
        Column("Model", lambda item: item.model or None, tip="The judging model, as its endpoint names it"),
        NumberColumn("Tokens", tokens, "prompt + completion"),
        NumberColumn("Time", lambda item: formats.duration(item.seconds) if item.seconds else None),
        Column(
            "Conversation",
            lambda item: reader(CALL, item.call, opened, f"verdict-{judge}-{item.call}-{question}"),
            tip="Prompt and reply, if the store keeps them",
        ),
    ]
    verdicts = table(f"Verdicts of {judge}", f"verdicts-{judge}-{question}", made, columns)
    return fold(judge, tally, verdicts, key=f"judge-{judge}-{question}", opened=bool(opened) and opened in {item.call for item in made})


def _verdict(item: Verdict, names: Mapping[str, str]) -> Node | str | None:
    if item.unscored is not None:
        return el("span", badge("no verdict", "failed"), aside(item.unscored))
    if item.other is None:
        words = [f"{name}: {_value(value)}" for name, value in item.response.items()]
    else:
        won = {"one": names.get(item.run, item.run), "other": names.get(item.other, item.other), "none": "neither", None: "no verdict"}
        words = [f"{criterion}: {won.get(verdict, verdict)}" for criterion, verdict in item.response.items()]
    return "; ".join(words) or None


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(inner)}" for name, inner in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(_value, value)) or "none"
    if value is None or isinstance(value, bool):
        return "none" if value is None else "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def reader(parameter: str, call: str | None, opened: str, key: str, text: str = "read") -> Node:
    """Make the button that opens or closes a conversation, whose key is in a URL parameter; a note if there is none (`call` None)."""
    if call is None:
        return aside("no model was asked")
    shown = call == opened
    return button("close" if shown else text, key, {parameter: None if shown else call}, pressed=shown)


def conversation(result: Conversation | None, whose: str) -> Node:
    """Build the view of a stored model call, or a note that it is no longer stored."""
    title = el("h3", whose, cls="section")
    if result is None:
        text = "This store does not keep the conversation: it was pruned, was not sent along with the results, or cannot be read."
        return el("section", title, note(text))
    messages = [(role or "message", text) for role, text in result.messages] + [("reply", result.reply)]
    return el("section", title, dialog(messages), label=f"Conversation: {whose}", role="region")


def dialog(messages: Sequence[tuple[str, str]]) -> Node:
    """Build a list of messages with their roles; very long ones are cut."""
    return el("dl", *(part for role, text in messages for part in (el("dt", role), el("dd", _cut(text)))), cls="conversation")


def _cut(text: str) -> str:
    left = len(text) - LONGEST
    return text if left <= 0 else f"{text[:LONGEST]}… [{left:,} more characters: `ragmeter store replies export` has them]"

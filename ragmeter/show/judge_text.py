"""A judge's card as text in a terminal: what judging took, its biases, and how far it agrees with others and with people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from rich.text import Text

from ragmeter.show.board_text import shown_share
from ragmeter.show.console import listing, out
from results.boards.tables import minus
from results.judging.judge_card import Corrected, JudgeCard
from results.statistics.judges import Agreement
from results.store.store import shortened


def show_judge_card(card: JudgeCard, methods: Mapping[str, str]) -> None:
    """Print a judge's card.

    Args:
        card: The judge's card.
        methods: Method names by run id.
    """
    judge, work = card.card, card.work
    out.print(Text(str(judge["id"]), style="bold") + Text("  " + ("rules, no model" if judge["rule"] else judge["model"])))
    out.print(Text(str(judge["definition"])))
    facts = {"calls": "none: no model was called"}
    if work.calls:
        facts = {
            "calls": f"{work.calls:,}",
            "unusable": f"{sum(work.unscored.values()):,} ({100 * work.failure_rate:.1f} %)",
            "price": f"${work.cost_usd:.4f}" if work.cost_usd else "no price configured",
            "per call": f"{work.seconds:.2f} s, {work.prompt_tokens:.0f} + {work.completion_tokens:.0f} tokens",
            "models": ", ".join(f"{model} ({number:,})" for model, number in work.models.items() if model) or "–",
        }
    listing(("", ""), facts.items(), empty="")
    if work.unscored:
        out.print()
        listing(("calls", "not scored because"), [(f"{n:,}", reason) for reason, n in work.unscored.items()], empty="")
    out.print()
    listing(("bias", "by", "× 100", "n", ""), list(_biases(card)), empty="no request was repeated")
    out.print()
    others = [agreement_row(f"with {name}", by, item) for by, judges in card.with_judges.items() for name, item in judges.items()]
    people = [agreement_row(f"with {name} (person)", by, item) for by, each in card.with_people.items() for name, item in each.items()]
    between = [agreement_row("between people (alpha)", by, item) for by, item in card.between_people.items()]
    nobody = "no other judge and no person has judged the same answers: ragmeter judge labels export -o FILE --criterion NAME"
    listing(("by", "agreement", "equal", "kappa", "items"), others + people + between, empty=nobody)
    if card.corrected:
        out.print()
        rows = [_corrected(item, methods) for item in card.corrected]
        listing(("run", "measure", "judged", "corrected by people", "people alone", "labels", "worth"), rows, empty="")
        drawn = "valid only if the labeled items are a random sample, as `ragmeter judge labels export` makes it"
        out.print(Text(f"corrected: prediction-powered mean; {drawn}", style="dim"))


def agreement_row(who: str, by: str, item: Agreement) -> tuple[str, ...]:
    """Return a row of the table of agreements: measure or criterion, raters, raw agreement, corrected agreement, number of items."""
    return by, who, shown_share(item.raw), shown_share(item.corrected), str(item.raw.n)


def _biases(card: JudgeCard) -> Iterable[tuple[str, ...]]:
    for by, item in card.repetitions.items():
        if item.pairs:
            yield "differs when asked again", by, shown_share(item.differing), f"{item.pairs:,}", ""
    for by, flips in card.flips.items():
        if flips.n:
            yield "the two orders disagree", by, shown_share(flips), f"{flips.n:,}", ""
    for by, first in card.first_shown.items():
        if first.n:
            yield "first shown wins (fair: 50)", by, shown_share(first), f"{first.n:,}", ""
    for by, longer in card.longer.items():
        if longer.decided:
            doubling = minus(f"{longer.per_doubling.value:+.2f}") + " log-odds per doubling"
            yield "the longer answer wins", by, shown_share(longer.longer_wins), f"{longer.decided:,}", doubling


def _corrected(item: Corrected, methods: Mapping[str, str]) -> tuple[str, ...]:
    mean = item.mean
    worth = "–" if math.isinf(mean.worth) else f"{mean.worth:.0f}"
    shares = f"{100 * mean.judged:.1f}", shown_share(mean.corrected), shown_share(mean.labeled)
    return methods.get(item.run, shortened(item.run)), item.measure, *shares, str(mean.corrected.n), worth

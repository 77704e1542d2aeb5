"""The health lines of a board: unusual facts about how its numbers were produced. A healthy run has none.

A score cannot say that replies were cut, that the endpoint read a part of the prompts, that another model answered or that
the encoder dropped half of the text. The store can: each check reads one kind of row and returns a line per unusual
run. Checks are functions of a store and runs in `CHECKS`; a module adds its own by appending to it.

A store without calls (`--no-calls`) has no replies, so those checks report nothing there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from benchmarks.core.errors import counted
from judges.judge import NOTHING_CLAIMED
from methods.api import TURNS_UNREAD
from results.boards.health_answers import answers, contexts, form, rankings, repeats, retrieved, written
from results.boards.health_lines import Check, HealthLine, ids_of, names_of, read_rows
from results.boards.health_models import fallbacks, indexes, judging_models, prompt_tokens, prompts, replies, served_model, unpriced
from results.store.failures import OTHER, kind_of
from results.store.queries import RunRow
from results.store.store import Store

SIGNIFICANT = 0.05
_LEADING = ("changed_judge", "changed_model")
"""Codes of lines that stand first, because values of one column cannot be compared."""


def health(store: Store, runs: Sequence[RunRow]) -> tuple[HealthLine, ...]:
    """Run all health checks over runs that share a board, and return their warnings.

    Args:
        store: The store that holds the runs.
        runs: Runs on one dataset in one setting.
    """
    if not runs or not store.database.exists:
        return ()
    order = {run.run: position for position, run in enumerate(runs)}
    lines = [line for check in CHECKS for line in check(store, runs)]
    return tuple(sorted(lines, key=lambda line: (line.code not in _LEADING, order.get(line.run, len(order)))))


def health_text(lines: Iterable[HealthLine]) -> list[str]:
    """Render health warnings as text lines; equal texts about several methods are merged."""
    methods: dict[str, list[str]] = {}
    for line in lines:
        methods.setdefault(line.text, []).extend([line.method] if line.method else [])
    return [f"{names[0] if len(names) == 1 else f'{len(names)} methods'}: {text}" if names else text for text, names in methods.items()]


def run_lines(store: Store, roles: Mapping[str, RunRow]) -> list[str]:
    """Describe how the answers of compared runs came about, one sentence each, as far as it is unusual: fallbacks, and cut or
    refused replies, prompts and passages.

    Args:
        store: The store that holds the runs.
        roles: The runs by the name that a sentence begins with.
    """
    lines = [line for check in (replies, fallbacks, prompt_tokens, indexes) for line in check(store, list(roles.values()))]
    return [f"{role}: {line.text}" for role, run in roles.items() for line in lines if line.run == run.run]


def data(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about caveats of a dataset: skipped records, synthetic questions, gold passages missing from the corpus."""
    rows = read_rows(
        store,
        "SELECT DISTINCT unnest(d.caveats) FROM datasets d JOIN runs r ON r.dataset_fingerprint = d.fingerprint WHERE r.run IN ({runs})",
        ids_of(runs),
    )
    for (text,) in sorted(rows):
        yield HealthLine("data", "", text)


def turns(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about methods that ignore the earlier turns of conversational questions."""
    for run in {run.run: run for run in runs}.values():
        if run.provenance.get(TURNS_UNREAD):
            yield HealthLine("turns_unread", run.run, "it reads the questions without their earlier turns", {}, run.method)


def verdicts(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about judges with missing or unreadable verdicts."""
    ids = ids_of(runs)
    judged = read_rows(store, "SELECT judge, unscored, count(*) FROM judge_calls WHERE run IN ({runs}) GROUP BY ALL ORDER BY ALL", ids)
    marks = ", ".join("?" * len(ids))
    with store.database.reading() as connection:
        judged += connection.execute(
            f"""SELECT judge, unscored, count(*) FROM battle_calls WHERE one IN ({marks}) AND other IN ({marks})
                GROUP BY ALL ORDER BY ALL""",
            [*ids, *ids],
        ).fetchall()
    totals: Counter[str] = Counter()
    missing: dict[str, Counter[str]] = {}
    for judge, reason, count in judged:
        totals[judge] += count
        # An answer without claims has no claim to check; its score shows it.
        if reason is not None and reason not in NOTHING_CLAIMED:
            missing.setdefault(judge, Counter())[kind_of(reason)] += count
    for judge, kinds in sorted(missing.items()):
        total, count = totals[judge], kinds.total()
        why = ", ".join(f"{kind} {number:,}" for kind, number in kinds.most_common())
        what = "could not be read" if set(kinds) == {OTHER} else f"are missing ({why})"
        text = f"{count:,} of {counted(total, 'verdict')} of {judge} {what}"
        yield HealthLine("unread_verdicts", "", text, {"judge": judge, "verdicts": total, "unread": count, "kinds": dict(kinds)})


def gold_answers(store: Store, runs: Sequence[RunRow]) -> Iterator[HealthLine]:
    """Warn about judges that prefer another row significantly to the control `gold_answer`."""
    golds = [run for run in runs if run.method_id == "gold_answer"]
    if not golds:
        return
    names = names_of(runs)
    with store.database.reading() as connection:
        rows = connection.execute(
            """SELECT judge, one, other, question, avg(CASE verdict WHEN 'one' THEN 1 WHEN 'other' THEN 0 ELSE 0.5 END)
               FROM battles JOIN judges USING (judge) WHERE dataset_fingerprint = $data AND setting = $setting
               AND verdict IS NOT NULL AND criterion = card ->> '$.criteria[0]'
               AND (list_contains($golds, one) OR list_contains($golds, other)) GROUP BY ALL""",
            {"data": runs[0].dataset_fingerprint, "setting": runs[0].setting, "golds": [run.run for run in golds]},
        ).fetchall()
    counts: dict[tuple[str, str, str], Counter[str]] = {}
    for judge, one, other, _, share in rows:
        for gold, rival, own in ((one, other, share), (other, one, 1 - share)):
            if gold in {run.run for run in golds} and rival in names:
                counts.setdefault((judge, gold, rival), Counter())["won" if own > 0.5 else "lost" if own < 0.5 else "tied"] += 1
    for (judge, gold, rival), count in sorted(counts.items()):
        won, lost = count["won"], count["lost"]
        if lost > won and _tail(won + lost, lost) < SIGNIFICANT:
            decided = counted(won + lost, "decided question")
            text = f"the control {names[gold]} loses to {names[rival]} on {lost:,} of {decided}, so check {judge}"
            values = {"judge": judge, "rival": names[rival], "won": won, "lost": lost, "tied": count["tied"]}
            yield HealthLine("gold_answer_loses", gold, text, values)


def _tail(n: int, k: int) -> float:
    """Return the probability of at least k heads in n fair coin tosses."""
    return sum(math.comb(n, hits) for hits in range(k, n + 1)) / 2**n


CHECKS: list[Check] = [
    data,
    rankings,
    replies,
    fallbacks,
    prompt_tokens,
    unpriced,
    served_model,
    prompts,
    contexts,
    retrieved,
    turns,
    answers,
    repeats,
    written,
    form,
    indexes,
    verdicts,
    judging_models,
    gold_answers,
]
"""All checks, in the order of their lines for a run."""

"""`judge list|run|replay|table|card`, `score` and `annotate`: numbers from stored answers, without answering again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from rich.text import Text

from benchmarks.core.errors import UserError, counted, unknown_name, unwritable
from judges import score as scoring
from judges.judge import JUDGES, Judge
from judges.metric import parse as parse_metric
from methods.api import Services
from methods.models.reply_cache import ResponseCache
from ragmeter.cli.commands.list import option_rows
from ragmeter.console import PROSE, emit, err, listing, out, show_battles, shown_share
from ragmeter.experiment import JudgePlan
from ragmeter.runner import judging
from ragmeter.runner.loop import Interrupted
from ragmeter.runner.progress import JudgingProgress
from ragmeter.runner.rewriting import judge_of, settings
from results import checkpoints, judgements, queries, records, store_folder
from results import labels as labelling
from results.battles import BattleBoard, battle_boards
from results.board import add_columns, remove_columns, with_failures
from results.invariants import check_run
from results.judge_card import Corrected, JudgeCard, judge_card
from results.queries import RunRow
from results.statistics.battles import TieRule
from results.statistics.judges import Agreement
from results.store import Store
from results.tables import labels, plain


def listed(name: str | None, folder: Path | None, as_json: bool) -> None:
    """List judges, or show one."""
    if name is not None:
        _show_judged(name, as_json)
        return
    stored = judgements.judges(Store(store_folder(folder)))
    rows = [(entry.id, entry.kind, "", entry.summary) for entry in JUDGES]
    rows += [(name, card["kind"], "rule" if card["rule"] else card["model"], card["summary"]) for name, card in stored.items()]
    known = [{"id": entry.id, "kind": entry.kind, "summary": entry.summary, "source": entry.source} for entry in JUDGES]
    emit(
        {"judges": known, "stored": list(stored.values())},
        as_json,
        lambda: listing(("judge", "kind", "model", "summary"), rows, empty="none"),
    )


def _show_judged(name: str, as_json: bool) -> None:
    entry = JUDGES.get(name, where="NAME")
    options = option_rows(entry.config)
    measures = {measure.name: measure.definition for measure in entry.measures}
    value = {
        "id": entry.id,
        "kind": entry.kind,
        "definition": entry.definition,
        "source": entry.source,
        "needs": list(entry.needs),
        "measures": measures,
        "criteria": list(entry.criteria),
        "options": options,
    }

    def show() -> None:
        out.print(Text(entry.id, style="bold") + Text("  " + entry.summary))
        out.print(Text(entry.definition))
        facts = {"kind": entry.kind, "needs": ", ".join(entry.needs), "source": entry.source, **measures}
        if entry.criteria:
            facts["criteria"] = ", ".join(entry.criteria)
        listing(("", ""), facts.items(), empty="")
        rows = [(o["name"], o["type"], repr(o["default"]), o["description"]) for o in options]
        listing(("option", "type", "default", ""), rows, empty="it has no options", below=PROSE)

    emit(value, as_json, show)


def run(
    name: str,
    names: Sequence[str],
    experiment: str | None,
    options: Sequence[str],
    everyone: bool,
    retry: bool,
    folder: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Judge stored answers."""
    store = Store(store_folder(folder))
    judge = judge_of(name, settings(options))
    chosen, reference = named_runs(store, names, experiment)
    if names and judge.entry.kind == "pair":
        if len({row.run for row in chosen}) < 2:
            raise UserError(f"{name!r} compares two runs", where="RUNS", try_this="name two or more, or --experiment")
        reference = None
    judge.config.preflight()
    work = judging.judgings([JudgePlan(judge, everyone)], chosen, None if everyone else reference)
    if not work:
        raise UserError(
            "no two of these runs answered the same questions in the same setting",
            where=str(store.folder),
            try_this="name runs of one benchmark",
        )
    judge.config.reach(store.cache)
    with JudgingProgress(len(work), quiet=quiet or as_json) as progress:
        try:
            judging.execute(work, store, Services(cache=store.cache), progress, retry_unscored=retry)
        except KeyboardInterrupt:
            raise Interrupted from None
    for row in chosen:
        add_columns(store, row.run, list(judge.metrics.values()))
    _report(store, judge, chosen, reference, as_json)


def _report(store: Store, judge: Judge, chosen: Sequence[RunRow], reference: str | None, as_json: bool) -> None:
    if judge.entry.kind == "pair":
        boards = [one for one in battle_boards(store, chosen, reference) if one.judge == str(judge)]
        emit([one.to_json() for one in boards], as_json, lambda: _show_boards(boards, chosen))
        return
    rows = []
    for row in {row.run: row for row in chosen}.values():
        for metric in judge.metrics.values():
            rows.append(_summary(store, row, metric))
    columns = ("measure", "run", "value", "n", "unscored", "as zero", "unscorable")
    emit(rows, as_json, lambda: listing(columns, [_line(row) for row in rows], empty="nothing was judged"))


def _summary(store: Store, row: RunRow, metric: str) -> dict[str, Any]:
    columns = queries.score_columns(store, row.dataset_fingerprint, [row.run], [metric])
    scale = queries.scale_of(metric, queries.definitions(store))
    key = row.run, metric
    values = columns.values.get(key)
    known = [] if values is None else [float(value) for value in values if value == value]
    unscored = columns.unscored.get(key, 0)
    mean = fmean(known) if known else math.nan
    return {
        "run": row.run,
        "method": row.method,
        "dataset": row.dataset,
        "metric": metric,
        "value": plain(mean),
        "n": len(known),
        "unscored": unscored,
        "value_with_failures_as_zero": plain(with_failures(mean, len(known), unscored)),
        "unscorable": columns.unscorable.get(key, 0),
        "scale": scale,
    }


def _line(row: Mapping[str, Any]) -> tuple[Any, ...]:
    def shown(value: float | None) -> str:
        return "–" if value is None else f"{row['scale'] * value:.1f}"

    label = labels([row["metric"]])[row["metric"]]
    return (
        label,
        f"{row['method']} on {row['dataset']}",
        shown(row["value"]),
        row["n"],
        row["unscored"],
        shown(row["value_with_failures_as_zero"]),
        row["unscorable"],
    )


def replay(name: str, options: Sequence[str], folder: Path | None, as_json: bool) -> None:
    """Read kept replies again."""
    store = Store(store_folder(folder))
    card = stored_judge(store, name)
    judge = _other_policy(card, settings(options))
    cache = ResponseCache(store.cache)

    def kept(keys: Sequence[str]) -> dict[str, str]:
        return {key: reply["text"].strip() for key, reply in cache.get(keys).items()}

    every = queries.runs(store)
    found = judging.replay(store, card["id"], judge, Services(), every, kept)
    if judge.entry.kind == "point":
        for run_id in judgements.judged_runs(store, str(judge)):
            add_columns(store, run_id, list(judge.metrics.values()))
    value = {"from": card["id"], "to": str(judge), "calls_made": 0, "replayed": [asdict(one) for one in found]}

    def show() -> None:
        out.print(Text(f"{card['id']} → {judge}; no call was made"))
        columns = ("judging", "questions", "read again", "lost", "changed")
        listing(columns, [(o.name, o.questions, o.calls, o.lost, o.changed) for o in found], empty="nothing to replay")

    emit(value, as_json, show)


def _other_policy(card: Mapping[str, Any], given: Mapping[str, Any]) -> Judge:
    """A stored judge with other options, none of which decides what is asked.

    Raises:
        UserError: One does: what would have been said then, no kept reply tells.
    """
    judge = judge_of(card["judge"], card["config"] | given)
    config = judge.config.model_dump(mode="json")
    changed = [name for name in given if name in config and config[name] != card["config"].get(name)]
    fixed = [name for name in changed if name not in judge.config.policy | judge.config.beside]
    # A file of the same text under another name asks the same.
    fixed += [name for name in changed if judge.identity["also"].get(name) != card["also"].get(name)]
    if fixed and not judge.rule:
        may = ", ".join(sorted(judge.config.policy)) or "none of its options"
        raise UserError(
            f"{fixed[0]} decides what {card['judge']} asks, and a replay asks nothing",
            where="--set",
            try_this=f"a replay can change {may}; for the rest: ragmeter judge run {card['judge']} --set {fixed[0]}=…",
        )
    return judge


def table(experiment: str | None, ties: str, length: bool, folder: Path | None, as_json: bool) -> None:
    """Print win rates and strengths."""
    if ties not in get_args(TieRule):
        raise unknown_name("tie rule", ties, get_args(TieRule), where="--ties")
    store = Store(store_folder(folder))
    row = queries.experiment(store, experiment)
    chosen = queries.runs(store, row.name)
    rule: Any = ties
    boards = battle_boards(store, chosen, row.reference, ties=rule, length=length)

    emit([one.to_json() for one in boards], as_json, lambda: _show_boards(boards, chosen))


def _show_boards(boards: Sequence[BattleBoard], chosen: Sequence[RunRow]) -> None:
    controls = {row.method for row in chosen if row.kind == "control"}
    for one in boards:
        show_battles(one, out, controls)
    if not boards:
        err.print("no pair judge has compared these runs yet: ragmeter judge run pairwise --set model=…")


def score(names: Sequence[str], metrics: Sequence[str], experiment: str | None, folder: Path | None, as_json: bool, quiet: bool) -> None:
    """Score stored answers on further metrics."""
    if not metrics:
        raise UserError("no metric was named", where="score", try_this="--add METRIC; `ragmeter metrics` lists them")
    wanted = [parse_metric(text, where="--add") for text in metrics]
    store = Store(store_folder(folder))
    chosen, _ = named_runs(store, names, experiment)
    store.put_cards([], wanted)
    rows = []
    for row in {row.run: row for row in chosen}.values():
        questions, said = records.answered(store, row)
        texts = store.passage_texts(list(_evidence(said)))
        with err.status(f"scoring {row.method} on {row.dataset}") if not (quiet or as_json) else nullcontext():
            scores = scoring.score(questions, said, wanted, corpus_text=texts.__getitem__)
        store.put_scores(row.run, [question.id for question in questions], scores)
        add_columns(store, row.run, [str(metric) for metric in wanted])
        rows += [_summary(store, row, str(metric)) for metric in wanted]
        for what in check_run(store, row.run):
            err.print(Text(f"{row.method} on {row.dataset}: these scores cannot be right: {what}", style="yellow"))
    columns = ("metric", "run", "value", "n", "unscorable")
    lines = [(*line[:4], line[6]) for line in map(_line, rows)]
    emit(rows, as_json, lambda: listing(columns, lines, empty="no run was named"))


def unscore(names: Sequence[str], metrics: Sequence[str], experiment: str | None, folder: Path | None, as_json: bool) -> None:
    """Take columns that were added off the tables again."""
    store = Store(store_folder(folder))
    chosen, _ = named_runs(store, names, experiment)
    gone = remove_columns(store, [row.run for row in chosen], metrics, None if names else chosen[0].experiment)
    rows = [(one.metric, one.experiment, f"{one.dataset}, {one.setting}") for one in gone]
    emit([asdict(one) for one in gone], as_json, lambda: listing(("no column any more", "of", "on"), rows, empty=""))


def _evidence(said: Sequence[Any]) -> dict[str, None]:
    return dict.fromkeys(item.id.partition("#")[0] for prediction in said for item in prediction.evidence)


# -- what was named ------------------------------------------------------------------------------------------------


def stored_judge(store: Store, name: str) -> dict[str, Any]:
    """The card of the judge in the store that a name means: its id, or a beginning of it that is no other's.

    Raises:
        UserError: None is meant, or several are.
    """
    known = judgements.judges(store)
    found = [card for judge, card in known.items() if judge == name] or [
        card for judge, card in known.items() if judge.startswith(name) or card["judge"] == name
    ]
    if len(found) == 1:
        return found[0]
    if found:
        listed_ids = ", ".join(card["id"] for card in found[:5])
        raise UserError(f"{name!r} means {len(found)} judges", try_this=f"name one: {listed_ids}")
    raise unknown_name("judge in this store", name, known, where=str(store.folder))


def named_runs(store: Store, names: Sequence[str], experiment: str | None) -> tuple[list[RunRow], str | None]:
    """The runs that were named, or those of an experiment with its reference."""
    if names and experiment is not None:
        raise UserError("runs and an experiment were named", where="--experiment", try_this="name one of the two")
    if names:
        return [checkpoints.find_run(store, name) for name in names], None
    row = queries.experiment(store, experiment)
    return queries.runs(store, row.name), row.reference


# -- `judge card` and `annotate export|import`: how far a judge can be trusted, in the eyes of people too --


def card(name: str, folder: Path | None, as_json: bool) -> None:
    """Print a judge's card."""
    store = Store(store_folder(folder))
    found = judge_card(store, stored_judge(store, name)["id"])
    methods = {run.run: f"{run.method} on {run.dataset}" for run in queries.runs(store)}
    emit(found.to_json(), as_json, lambda: _show(found, methods))
    if (resting := labelling.standing(store)[1]) and not as_json:
        err.print(Text(f"{resting} labels in this store rest: the answers that they are about are not given now"))


def _show(found: JudgeCard, methods: dict[str, str]) -> None:
    card, work = found.card, found.work
    out.print(Text(str(card["id"]), style="bold") + Text("  " + ("rules, no model" if card["rule"] else card["model"])))
    out.print(Text(str(card["definition"])))
    failed = sum(work.unscored.values())
    facts = {"calls": "none: nothing was asked of a model"}
    if work.calls:
        facts = {
            "calls": f"{work.calls:,}",
            "unusable": f"{failed:,} ({100 * work.failure_rate:.1f} %)",
            "price": f"${work.cost_usd:.4f}" if work.cost_usd else "no price configured",
            "per call": f"{work.seconds:.2f} s, {work.prompt_tokens:.0f} + {work.completion_tokens:.0f} tokens",
            "models": ", ".join(f"{model} ({number:,})" for model, number in work.models.items() if model) or "–",
        }
    listing(("", ""), facts.items(), empty="")
    if work.unscored:
        out.print()
        listing(("calls", "not scored because"), [(f"{n:,}", reason) for reason, n in work.unscored.items()], empty="")
    out.print()
    listing(("habit", "by", "× 100", "n", ""), list(_habits(found)), empty="nothing was asked twice")
    out.print()
    listing(
        ("by", "agreement", "equal", "kappa", "items"),
        list(_agreements(found)),
        empty="no other judge and no person has judged the same: ragmeter annotate export",
    )
    if found.corrected:
        out.print()
        rows = [_corrected(one, methods) for one in found.corrected]
        listing(("run", "measure", "judged", "corrected by people", "people alone", "labels", "worth"), rows, empty="")
        out.print(
            Text(
                "corrected: prediction-powered mean; right only if the labelled items were drawn at random, as "
                "`annotate export` draws them",
                style="dim",
            )
        )


def _habits(found: JudgeCard) -> Iterable[tuple[str, ...]]:
    for by, one in found.repetitions.items():
        if one.pairs:
            yield "differs when asked again", by, shown_share(one.differing), f"{one.pairs:,}", ""
    for by, flips in found.flips.items():
        if flips.n:
            yield "the two orders disagree", by, shown_share(flips), f"{flips.n:,}", ""
    for by, first in found.first_shown.items():
        if first.n:
            yield "first shown wins (fair: 50)", by, shown_share(first), f"{first.n:,}", ""
    for by, longer in found.longer.items():
        if longer.decided:
            doubling = f"{longer.per_doubling.value:+.2f} log-odds per doubling"
            yield "the longer answer wins", by, shown_share(longer.longer_wins), f"{longer.decided:,}", doubling


def _agreements(found: JudgeCard) -> Iterable[tuple[str, ...]]:
    for by, judges in found.with_judges.items():
        yield from (_agreement(f"with {name}", by, one) for name, one in judges.items())
    for by, people in found.with_people.items():
        yield from (_agreement(f"with {name} (person)", by, one) for name, one in people.items())
    yield from (_agreement("between people (alpha)", by, one) for by, one in found.between_people.items())


def _agreement(who: str, by: str, one: Agreement) -> tuple[str, ...]:
    return by, who, shown_share(one.raw), shown_share(one.corrected), str(one.raw.n)


def _corrected(one: Corrected, methods: dict[str, str]) -> tuple[str, ...]:
    mean = one.mean
    worth = "–" if math.isinf(mean.worth) else f"{mean.worth:.0f}"
    return (
        methods.get(one.run, one.run[:8]),
        one.measure,
        f"{100 * mean.judged:.1f}",
        shown_share(mean.corrected),
        shown_share(mean.labelled),
        str(mean.corrected.n),
        worth,
    )


def export_items(
    file: Path,
    criterion: str,
    names: Sequence[str],
    experiment: str | None,
    number: int,
    pairs: bool,
    seed: int,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Write items to label."""
    store = Store(store_folder(folder))
    runs, _ = named_runs(store, names, experiment)
    if not names:
        runs = [run for run in runs if run.kind != "control"]  # people's time is dear
    if file.exists():
        raise UserError("this file is there already", where=str(file), try_this="name another: labels may be in it")
    text = labelling.export_items(store, runs, criterion, number, pairs=pairs, seed=seed)
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise unwritable(error, file) from None
    words = labelling.PAIR_LABELS if pairs else (*labelling.VALUES, "a number from 0 to 1")
    emit(
        {"file": str(file), "criterion": criterion, "labels": list(words)},
        as_json,
        lambda: out.print(Text(f"{file}: fill the column `label` with {', '.join(words)}")),
    )


def import_labels(file: Path, annotator: str, folder: Path | None, as_json: bool) -> None:
    """Take labels in."""
    store = Store(store_folder(folder))
    done = labelling.import_labels(store, file, annotator)
    agreement = labelling.between_annotators(labelling.labels(store))
    value: dict[str, Any] = asdict(done) | {"agreement": {by: asdict(one) for by, one in agreement.items()}}

    def show() -> None:
        again = f", {done.replaced} of them in place of earlier ones" if done.replaced else ""
        blank = f"{counted(done.blank, 'row')} without one"
        out.print(Text(f"{counted(done.labels, 'label')} by {annotator}{again}; {blank}"))
        if done.resting:
            err.print(
                Text(
                    f"{done.resting} of them are about answers that the runs do not give now; they are kept, and count as soon as one does",
                    style="yellow",
                )
            )
        rows = [_agreement("between people (alpha)", by, one) for by, one in agreement.items()]
        if rows:
            listing(("by", "agreement", "equal", "alpha", "items"), rows, empty="")
        else:
            err.print("agreement is told once two people have labelled the same items")

    emit(plain(value), as_json, show)

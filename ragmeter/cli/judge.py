"""`ragmeter judge`: numbers from stored answers, without answering again: judges, further metrics, labels by people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from rich.text import Text

from benchmarks.core.errors import Incomplete, UserError, counted, unknown_name, unwritable
from ragmeter.cli import completion, options
from ragmeter.cli.options import App, Common, argument, option
from ragmeter.show.console import err, listing, out

if TYPE_CHECKING:
    from ragmeter.runner import judging
    from results.judging.battles import BattleBoard
    from results.store.queries import RunRow
    from results.store.store import Store

app = App(default="list", help="Stored answers: run judges, score by more metrics, cards, labels.")
labels_app = App(default="show", help="Labels by people: export items to label, import labels, measure agreement.")
app.add_typer(labels_app, name="labels")

StoredJudge = Annotated[str, argument("Judge in the store: its id or an unambiguous prefix.", completion.stored_judges)]


@app.command("list", plugin=True)
def list_all(common: Common, name: Annotated[str | None, argument("Judge to show with its options.", completion.judges)] = None) -> None:
    """List judges, including those with judgments in the store, or show one with its options."""
    from judges.judge import JUDGES
    from results.judging import judgments

    if name is not None:
        _show_judge(name, common)
        return
    stored = judgments.judges(common.store)
    rows = [(entry.id, entry.kind, "", entry.summary) for entry in JUDGES]
    rows += [(judge, card["kind"], "rule" if card["rule"] else card["model"], card["summary"]) for judge, card in stored.items()]
    known = [{"id": entry.id, "kind": entry.kind, "summary": entry.summary, "source": entry.source} for entry in JUDGES]
    value = {"judges": known, "stored": list(stored.values())}
    common.emit(value, lambda: listing(("judge", "kind", "model", "summary"), rows, empty="none"))


def _show_judge(name: str, common: Common) -> None:
    from judges.judge import JUDGES
    from ragmeter.cli.config_options import option_rows

    entry = JUDGES.get(name, where="NAME")
    rows = option_rows(entry.config)
    measures = {measure.name: measure.definition for measure in entry.measures}
    value: dict[str, Any] = {key: getattr(entry, key) for key in ("id", "kind", "definition", "source")}
    value |= {"needs": list(entry.needs), "measures": measures, "criteria": list(entry.criteria), "options": rows}

    def show() -> None:
        out.print(Text(entry.id, style="bold") + Text("  " + entry.summary))
        out.print(Text(entry.definition))
        facts = {"kind": entry.kind, "needs": ", ".join(entry.needs), "source": entry.source, **measures}
        if entry.criteria:
            facts["criteria"] = ", ".join(entry.criteria)
        listing(("", ""), facts.items(), empty="")
        options.show_options(rows)

    common.emit(value, show)


@app.command(plugin=True)
def run(
    judge: Annotated[str, argument("Judge: `ragmeter list judges` lists them.", completion.judges)],
    common: Common,
    runs: options.RunsArgument = None,
    experiment: options.OfExperiment = None,
    config: options.ConfigOption = None,
    settings: options.SetOption = None,
    all_pairs: Annotated[bool, option("Compare all pairs of methods.", "--all-pairs")] = False,
    retry: Annotated[bool, option("Retry items without a value.", "--retry-unscored")] = False,
    max_usd: options.MaxUsdOption = None,
    max_hours: options.MaxHoursOption = None,
    max_calls: options.MaxCallsOption = None,
) -> None:
    """Judge stored answers that have no judgment yet."""
    from methods.api import Services
    from methods.spending import Limits
    from ragmeter.cli.config_options import given_options
    from ragmeter.experiment import JudgePlan
    from ragmeter.runner import judging, revisions
    from ragmeter.runner.loop import stoppable
    from ragmeter.runner.progress import JudgingProgress
    from ragmeter.runner.rewriting import judge_of
    from ragmeter.runner.spending import limited_command
    from results.boards.added import add_columns
    from results.judging.battles import battle_boards

    limits = Limits.from_options(max_usd=max_usd, max_hours=max_hours, max_calls=max_calls)
    store = common.store
    chosen_judge = judge_of(judge, given_options(config, settings))
    chosen, reference = _chosen_runs(store, runs, experiment)
    pairs = chosen_judge.entry.kind == "pair"
    if runs and pairs:
        if len({row.run for row in chosen}) < 2:
            raise UserError(f"{judge!r} compares two runs", code="not-two-runs", where="RUNS", try_this="name two or more, or --experiment")
        reference = None
    chosen_judge.config.preflight()
    plans = revisions.resolve_judges([JudgePlan(chosen_judge, all_pairs)], store, talk=common.talk)
    chosen_judge = plans[0].judge
    work = judging.judgings(plans, chosen, None if all_pairs else reference)
    if not work and (lacking := [row.method for row in chosen if not judging.can_judge(chosen_judge, row)]):
        raise UserError(
            f"{judge!r} reads answers, and these runs have none: {', '.join(dict.fromkeys(lacking))}",
            code="no-answers-to-judge",
            where=str(store.folder),
            try_this="name runs with another reader than retrieval_only" + (", or --all-pairs" if pairs else ""),
        )
    for line in judging.not_judged(plans, chosen):
        err.print(Text(line, style="yellow"), soft_wrap=True)
    chosen = [row for row in chosen if judging.can_judge(chosen_judge, row)]
    if not work:
        what = "no two of these runs answered the same questions in the same setting"
        raise UserError(what, code="judge-arguments", where=str(store.folder), try_this="name runs of one benchmark")
    with limited_command(chosen_judge.config, limits):
        chosen_judge.config.reach(store.cache)
        with JudgingProgress(len(work), quiet=not common.talk) as progress, stoppable("the same command continues"):
            judging.execute(work, store, Services(cache=store.cache), progress, retry_unscored=retry)
    metrics = list(chosen_judge.metrics.values())
    for row in chosen:
        add_columns(store, row.run, metrics)
    if pairs:
        _show_boards([each for each in battle_boards(store, chosen, reference) if each.judge == str(chosen_judge)], chosen, common)
        _end(store, work)
        return
    rows = [summary for row in {row.run: row for row in chosen}.values() for summary in _summaries(store, row, metrics)]
    columns = ("measure", "run", "value", "if wrong", "if right", "n", "unscored", "unscorable")
    common.emit(rows, lambda: listing(columns, map(_line, rows), empty="nothing was judged"))
    _end(store, work)


def _end(store: Store, work: Sequence[judging.Judging]) -> None:
    """Exit with 3 if too many verdicts are missing."""
    from ragmeter.runner import judging

    if lacking := judging.incomplete(store, work):
        raise Incomplete(
            "the judging is incomplete",
            code="judging-incomplete",
            where="; ".join(lacking),
            try_this=f"{judging.READABLE}; then {judging.RETRY}",
        )


@app.command(plugin=True)
def replay(judge: StoredJudge, common: Common, config: options.ConfigOption = None, settings: options.SetOption = None) -> None:
    """Parse a judge's cached replies again, with this code or other options, without calls."""
    from methods.api import Services
    from methods.models.reply_cache import ResponseCache
    from ragmeter.cli.config_options import given_options
    from ragmeter.runner import judging
    from results.boards.added import add_columns
    from results.judging import judgments
    from results.store import queries

    store = common.store
    card = judgments.find_judge(store, judge)
    other = judging.with_policy(card, given_options(config, settings))
    cache = ResponseCache(store.cache)

    def replies(keys: Sequence[str]) -> dict[str, str]:
        return {key: kept.reply["text"].strip() for key, kept in cache.get(keys).items()}

    replayed = judging.replay(store, card["id"], other, Services(), queries.runs(store), replies)
    if other.entry.kind == "point":
        for run_id in judgments.judged_runs(store, str(other)):
            add_columns(store, run_id, list(other.metrics.values()))

    def show() -> None:
        out.print(Text(f"{card['id']} → {other}; no call was made"))
        columns = ("judging", "questions", "read again", "lost", "changed")
        listing(columns, [(o.name, o.questions, o.calls, o.lost, o.changed) for o in replayed], empty="nothing to replay")

    common.emit({"from": card["id"], "to": str(other), "calls_made": 0, "replayed": list(map(asdict, replayed))}, show)


@app.command("win-rates")
def win_rates(
    common: Common,
    experiment: options.StoredExperiment = None,
    ties: Annotated[
        str, option("Value of a tie: half, ignore, loss or win.", completes=completion.offer_words("half", "ignore", "loss", "win"))
    ] = "half",
    length: Annotated[bool, option("Correct strengths for answer length.", "--length")] = False,
) -> None:
    """Print win rates by criterion, and Bradley–Terry strengths."""
    from results.judging.battles import battle_boards
    from results.statistics.battles import TieRule

    if ties not in get_args(TieRule):
        raise unknown_name("tie rule", ties, get_args(TieRule), where="--ties")
    rule: Any = ties
    chosen, reference = _chosen_runs(common.store, None, experiment)
    _show_boards(battle_boards(common.store, chosen, reference, ties=rule, length=length), chosen, common)


def _show_boards(boards: Sequence[BattleBoard], chosen: Sequence[RunRow], common: Common) -> None:
    from ragmeter.show.board_text import show_battles

    def show() -> None:
        controls = {row.method for row in chosen if row.kind == "control"}
        for each in boards:
            show_battles(each, out, controls)
        if not boards:
            err.print("no pair judge has compared these runs yet: ragmeter judge run pairwise --set llm.model=…")

    common.emit([each.to_json() for each in boards], show)


@app.command()
def card(judge: StoredJudge, common: Common) -> None:
    """Report a judge's reliability: failures, repetitions, order, length, price, and agreement with others."""
    from ragmeter.show.judge_text import show_judge_card
    from results.judging import judgments
    from results.judging import labels as labeling
    from results.judging.judge_card import judge_card
    from results.store import queries

    store = common.store
    known = judge_card(store, judgments.find_judge(store, judge)["id"])

    def show() -> None:
        show_judge_card(known, {run.run: f"{run.method} on {run.dataset}" for run in queries.runs(store)})
        if resting := labeling.standing(store)[1]:
            err.print(Text(f"{resting} labels in this store do not count: no run gives the answers that they are about"))

    common.emit(known.to_json(), show)


@app.command(plugin=True)
def score(
    common: Common,
    runs: options.RunsArgument = None,
    metric: Annotated[list[str] | None, option("Metric id, e.g. rouge(type=rougeL); repeatable.", completes=completion.metrics)] = None,
    remove: Annotated[
        list[str] | None, option("Hide a column that was added to the tables; repeatable.", completes=completion.stored_metrics)
    ] = None,
    experiment: options.OfExperiment = None,
    trec: Annotated[bool, option("Read RUNS as two files, a run and its qrels, and print trec_eval's measures.", "--trec")] = False,
    trec_eval: Annotated[
        str, option("Version of trec_eval to reproduce with --trec: 9 or 10.", "--trec-eval", completes=completion.offer_words("9", "10"))
    ] = "9",
) -> None:
    """Score stored answers on further metrics; their columns stay until `--remove`."""
    from judges import score as scoring
    from judges.metric import Metric
    from judges.metric import parse as parse_metric
    from results.boards.added import add_columns, remove_columns
    from results.store import answer_queries, records
    from results.store.invariants import check_run

    if trec:
        if remove or experiment is not None or len(runs or ()) != 2:
            raise UserError(
                "two files are scored, and nothing of the store",
                code="files-and-runs",
                where="--trec",
                try_this="ragmeter judge score --trec RUN QRELS",
            )
        run, qrels = map(Path, runs or ())
        _score_trec(run, qrels, metric, trec_eval, common)
        return
    if trec_eval != "9":
        raise UserError(
            "this option needs --trec", code="option-without-trec", where="--trec-eval", try_this="ragmeter judge score --trec RUN QRELS"
        )
    if bool(metric) == bool(remove):
        if remove:
            raise UserError(
                "columns are added or removed", code="columns-added-and-removed", where="--remove", try_this="one after the other"
            )
        raise UserError(
            "a metric is required",
            code="no-metric-stated",
            where="judge score",
            try_this="--metric METRIC; `ragmeter list metrics` lists them",
        )
    wanted = [parse_metric(text, where="--metric") for text in metric or ()]
    store = common.store
    chosen, _ = _chosen_runs(store, runs, experiment)
    if remove:
        gone = remove_columns(store, [row.run for row in chosen], remove, None if runs else chosen[0].experiment)
        lines = [(entry.metric, entry.experiment, f"{entry.dataset}, {entry.setting}") for entry in gone]
        common.emit(list(map(asdict, gone)), lambda: listing(("removed column", "of", "on"), lines, empty=""))
        return
    store.put_cards([], wanted)
    rows, faults = [], dict[Metric, BaseException]()
    for row in {row.run: row for row in chosen}.values():
        able = [metric for metric in wanted if row.not_stated.isdisjoint(metric.entry.needs)]
        if not able:
            lacking = "answers" if "answer" in row.not_stated else "rankings"
            what = f"{row.method} on {row.dataset} gives no {lacking}: it is not scored on {', '.join(map(str, wanted))}"
            err.print(Text(what, style="yellow"), soft_wrap=True)
            continue
        questions, predictions = records.answered(store, row)
        passages = dict.fromkeys(item.id for prediction in predictions for item in prediction.evidence)
        passages |= dict.fromkeys(item for question in questions for item in question.evidence)
        known = answer_queries.passages(store, list(passages))
        with err.status(f"scoring {row.method} on {row.dataset}") if common.talk else nullcontext():
            scores = scoring.score(questions, predictions, able, known.__getitem__, faults=faults)
        store.put_scores(row.run, [question.id for question in questions], scores)
        add_columns(store, row.run, list(scores))
        rows += _summaries(store, row, list(scores)) if scores else []
        for what in check_run(store, row.run):
            err.print(Text(f"{row.method} on {row.dataset}: these scores cannot be right: {what}", style="yellow"))
    columns = ("metric", "run", "value", "n", "unscorable")
    common.emit(rows, lambda: listing(columns, [(*line[:3], line[5], line[7]) for line in map(_line, rows)], empty="nothing was scored"))
    scoring.require_no_faults(faults, "leave out its --metric")


def _score_trec(run: Path, qrels: Path, names: Sequence[str] | None, version: str, common: Common) -> None:
    """Print trec_eval's measures of a run: over its questions with documents, and over all judged questions."""
    from benchmarks.datasets.beir import qrels_of
    from benchmarks.io.files import is_zip
    from results.boards.markup import plain
    from results.formats import trec_eval

    chosen = next((known for known in trec_eval.VERSIONS if str(known) == version), None)
    if chosen is None:
        raise unknown_name("version of trec_eval", version, map(str, trec_eval.VERSIONS), where="--trec-eval")
    result = trec_eval.evaluate(run, qrels_of(qrels) if qrels.is_dir() or is_zip(qrels) else qrels, chosen)
    answered, every = result.summary(), result.summary(complete=True)
    wanted = [trec_eval.measure(name, answered, where="--metric") for name in names or answered]
    per_question = {
        question: {name: plain(float(result.values[name][row])) for name in wanted if name in result.values}
        for row, question in enumerate(result.questions)
    }
    rows = [{"measure": name, "value": plain(answered[name]), "all_judged": plain(every[name])} for name in wanted]
    equals = trec_eval.VERSIONS[chosen]
    value = {"run": str(run), "qrels": str(qrels), "trec_eval": equals, "unjudged": result.unjudged, "notes": list(result.notes)}
    whole = (*trec_eval.COUNTS, "num_q")

    def show() -> None:
        lines = [(name, *(f"{item[name]:{'.0f' if name in whole else '.4f'}}" for item in (answered, every))) for name in wanted]
        listing(("measure", "trec_eval", "trec_eval -c"), lines, empty="")
        out.print(Text(f"these numbers equal trec_eval {equals}"))
        for note in result.notes:
            out.print(Text(note))

    common.emit(value | {"measures": rows, "questions": per_question}, show)


def _summaries(store: Store, row: RunRow, metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Return the values of a judge's measures for a run, with bounds for missing verdicts."""
    from results.boards.board import board
    from results.boards.markup import plain

    (shown,) = board(store, [row], metrics=metrics).rows
    results = []
    for metric, cell in shown.cells.items():
        value = {"value": cell.estimate.value, "n": cell.estimate.n, "unscored": cell.unscored, "unscorable": cell.estimate.unscorable}
        bounds = {} if cell.bounds is None else cell.bounds.to_json()
        of_run = {"run": row.run, "method": row.method, "dataset": row.dataset, "metric": metric}
        results.append(of_run | plain(value) | bounds | {"scale": cell.scale})
    return results


def _line(row: Mapping[str, Any]) -> tuple[Any, ...]:
    from results.boards.tables import labels

    values = (row.get(name) for name in ("value", "low_if_wrong", "high_if_right"))
    value, wrong, right = ("–" if item is None else f"{row['scale'] * item:.1f}" for item in values)
    label = labels([row["metric"]])[row["metric"]]
    return label, f"{row['method']} on {row['dataset']}", value, wrong, right, row["n"], row["unscored"], row["unscorable"]


def _chosen_runs(store: Store, names: Sequence[str] | None, experiment: str | None) -> tuple[list[RunRow], str | None]:
    """Return the named runs, or those of an experiment with its reference."""
    from results.store import queries, tags

    if names and experiment is not None:
        raise UserError(
            "runs and an experiment were named", code="runs-and-experiment", where="--experiment", try_this="name one of the two"
        )
    if names:
        return [tags.find_run(store, name) for name in names], None
    row = queries.experiment(store, experiment)
    return queries.runs(store, row.name), row.reference


StylePairsOption = Annotated[
    Path | None, option("Label the pairs of this file (of `ragmeter data restyle`) in place of answers.", "--style-pairs", metavar="PAIRS")
]


@labels_app.command()
def show(common: Common, style_pairs: StylePairsOption = None) -> None:
    """Show how many items each person labeled, and the agreement between people."""
    from results.boards.markup import plain
    from results.judging import labels as labeling
    from results.judging.judge_card import between_people

    if style_pairs is not None:
        _show_style_labels(style_pairs, {}, common)
        return

    known = labeling.labels(common.store)
    numbers = Counter((label.criterion, label.annotator) for label in known)
    agreement = between_people(common.store, known)
    value = {
        "labels": [{"criterion": by, "annotator": who, "labels": number} for (by, who), number in numbers.items()],
        "agreement": {by: asdict(item) for by, item in agreement.items()},
    }
    empty = "there are no labels yet: ragmeter judge labels export -o FILE --criterion NAME"

    def print_all() -> None:
        listing(("by", "annotator", "labels"), [(*key, number) for key, number in numbers.items()], empty=empty)
        if numbers:
            _show_agreement(agreement)

    common.emit(plain(value), print_all)


@labels_app.command(plugin=True)
def export(
    output: Annotated[Path, option("CSV file to write.", "--output", "-o")],
    criterion: Annotated[str, option("Label to ask for: accuracy, faithfulness, overall …")],
    common: Common,
    runs: options.RunsArgument = None,
    experiment: options.OfExperiment = None,
    count: Annotated[int, option("Number of items, drawn at random.", min=1)] = 100,
    pairs: Annotated[bool, option("Show two answers per item, in random order.", "--pairs")] = False,
    pairs_of_runs: Annotated[bool, option("Show both runs' answers in one row, each with its own label.", "--pairs-of-runs")] = False,
    style_pairs: StylePairsOption = None,
    seed: options.SeedOption = 0,
) -> None:
    """Write items for a person to label, without the names of the methods."""
    from results.judging import labels as labeling

    if pairs and pairs_of_runs:
        raise UserError(
            "--pairs and --pairs-of-runs cannot be combined",
            code="pairs-or-pairs-of-runs",
            where="--pairs-of-runs",
            try_this="leave one of them out",
        )
    if style_pairs is not None and (runs or experiment is not None or pairs or pairs_of_runs):
        raise UserError(
            "--style-pairs exports texts of a file, not answers of runs",
            code="style-pairs-and-runs",
            where="--style-pairs",
            try_this="leave out the runs and the other options of pairs",
        )
    chosen = [] if style_pairs is not None else _chosen_runs(common.store, runs, experiment)[0]
    if not runs:
        chosen = [run for run in chosen if run.kind != "control"]  # people's time is scarce
    if output.exists():
        raise UserError("output file already exists", code="output-exists", where=str(output), try_this="name another: labels may be in it")
    words = labeling.PAIR_LABELS if pairs else (*labeling.label_words(criterion), "a number from 0 to 1")
    if style_pairs is not None:
        from benchmarks.styles.pairs import load_pairs
        from results.judging.style_labels import export_style_items

        text = export_style_items(load_pairs(style_pairs), criterion, count, seed)
        words = ("the name of a style",) if criterion == "style" else ("yes", "no", "a number from 0 to 1")
    elif pairs_of_runs:
        text = labeling.export_both(common.store, chosen, criterion, count, seed=seed)
    else:
        text = labeling.export_items(common.store, chosen, criterion, count, pairs=pairs, seed=seed)
    try:
        output.write_text(text, "utf-8-sig")  # without its mark, Excel reads another encoding
    except OSError as error:
        raise unwritable(error, output) from None
    judges = _judges_by(pairs=pairs) if style_pairs is None else {}
    value = {"file": str(output), "criterion": criterion, "labels": list(words), "judges": judges.get(criterion, [])}
    if style_pairs is None and criterion not in judges:
        kind = "criterion for pairs" if pairs else "measure of single answers"
        what = f"no judge gives the {kind} {criterion!r}, so these labels show only how people agree; known: {', '.join(sorted(judges))}"
        err.print(Text(what, style="yellow"), soft_wrap=True)
    filled = "the columns `label_1` and `label_2`" if pairs_of_runs else "the column `label`"
    common.emit(value, lambda: out.print(Text(f"{output}: fill {filled} with {', '.join(words)}")))


def _judges_by(*, pairs: bool) -> dict[str, list[str]]:
    """Return the judges that labels of single answers, or of pairs, can be compared with, by measure or criterion."""
    from judges.judge import JUDGES

    results: dict[str, list[str]] = {}
    for entry in JUDGES:
        for name in entry.criteria if pairs else [measure.name for measure in entry.measures]:
            results.setdefault(name, []).append(entry.id)
    return results


@labels_app.command("import")
def import_labels(
    file: Annotated[Path, argument("CSV of `ragmeter judge labels export` with its column `label` filled.")],
    annotator: Annotated[str, option("Name of the labeler.")],
    common: Common,
    style_pairs: StylePairsOption = None,
) -> None:
    """Import a person's labels, and show the agreement between people."""
    from results.boards.markup import plain
    from results.judging import labels as labeling
    from results.judging.judge_card import between_people

    if style_pairs is not None:
        from benchmarks.styles.pairs import load_pairs
        from results.judging.style_labels import import_style_labels

        imported = import_style_labels(load_pairs(style_pairs), style_pairs, file, annotator)
        _show_style_labels(style_pairs, asdict(imported), common)
        return
    done = labeling.import_labels(common.store, file, annotator)
    agreement = between_people(common.store, labeling.labels(common.store))

    def show() -> None:
        out.print(Text(_imported(asdict(done), f" by {annotator}")))
        if done.resting:
            gone = "are about answers that the runs do not give now; they are kept, and count as soon as one does"
            err.print(Text(f"{done.resting} of them {gone}", style="yellow"))
        _show_agreement(agreement)

    common.emit(plain(asdict(done) | {"agreement": {by: asdict(item) for by, item in agreement.items()}}), show)


def _imported(done: Mapping[str, int], who: str = "") -> str:
    """Describe the result of an import of labels."""
    again = f", {done['replaced']} of them in place of earlier ones" if done["replaced"] else ""
    gone = f"; {done['removed']} earlier ones removed" if done["removed"] else ""
    kept = f", {done['kept']} of which keep their earlier label (write - to remove it)" if done["kept"] else ""
    return f"{counted(done['labels'], 'label')}{who}{again}{gone}; {counted(done['blank'], 'row')} without one{kept}"


def _show_style_labels(pairs: Path, imported: Mapping[str, int], common: Common) -> None:
    """Show human labels of style pairs; after an import also the number of new labels."""
    from benchmarks.styles.pairs import load_pairs
    from ragmeter.show.board_text import shown_share
    from results.boards.markup import plain
    from results.judging.style_labels import checked, read_style_labels

    rows = checked(load_pairs(pairs), read_style_labels(pairs))

    def show() -> None:
        if imported:
            out.print(Text(_imported(imported)))
        lines = []
        for row in rows:
            agreement = ("–" if item is None else shown_share(item.corrected) for item in (row.alpha, row.kappa))
            lines.append((row.style, row.criterion, shown_share(row.share), *agreement, str(row.annotators), str(row.share.n)))
        empty = f"these pairs have no labels yet: ragmeter judge labels export --style-pairs {pairs} -o FILE --criterion style"
        listing(("texts", "criterion", "holds", "alpha", "kappa", "annotators", "items"), lines, empty=empty)

    common.emit(plain({**imported, "file": str(pairs), "checks": [asdict(row) for row in rows]}), show)


def _show_agreement(agreement: Mapping[str, Any]) -> None:
    from ragmeter.show.judge_text import agreement_row

    rows = [agreement_row("between people (alpha)", by, item) for by, item in agreement.items()]
    empty = "how far people agree is said once two have labeled the same items"
    listing(("by", "agreement", "equal", "alpha", "items"), rows, empty=empty)

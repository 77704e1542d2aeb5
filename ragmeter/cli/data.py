"""`ragmeter data`: datasets and corpora: what there is and where, downloaded, measured, looked at, built, made into rows.

Checking them is in `data_check.py`, writing questions in `data_questions.py`, looking for evaluated questions in training data in
`data_overlap.py`, and what has to do with styles in `data_style.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from benchmarks.core.errors import UserError, counted, require_writable
from ragmeter.cli import completion, data_check, data_overlap, data_questions, data_style, options
from ragmeter.cli.config_options import data_apart, given_options, named_data, option_rows
from ragmeter.cli.options import App, Common, argument, one_of, option, print_card
from ragmeter.show.console import err, listing, out

if TYPE_CHECKING:
    from benchmarks import corpus_build
    from benchmarks.availability import Availability
    from benchmarks.registry import DatasetEntry

app = App(default="list", help="Datasets: download, check, sample, measure, restyle; write questions.")

_MOST_TYPES, _MOST_SUBSETS = 20, 4
_AGAIN = "the same command continues"


@app.command("list", offline=True, plugin=True)
def list_all(
    common: Common,
    reference: Annotated[
        str | None, argument("Dataset or subset to show (default: list all)", completion.references, metavar="REF")
    ] = None,
) -> None:
    """List datasets with task, splits, license, hub id and availability, or show one."""
    from benchmarks.registry import DATASETS

    if reference is not None:
        show_dataset(reference, common)
        return
    positions = {entry.id: _positions(entry) for entry in DATASETS}
    value = [_card_json(entry, positions[entry.id]) for entry in DATASETS]

    def list_rows() -> Iterator[tuple[str, ...]]:
        for entry in DATASETS:
            names, states = entry.subsets, Counter(position.state for position in positions[entry.id])
            few = f"{counted(len(names), 'subset')}: {', '.join(names[:_MOST_SUBSETS])}" + " …" * (len(names) > _MOST_SUBSETS)
            here = next(iter(states)) if len(states) == 1 else ", ".join(f"{state} {count}" for state, count in states.items())
            task = f"{entry.card.task}\n{few}" if names else entry.card.task
            yield entry.id, task, "\n".join(_sizes(entry)), entry.card.license, f"{entry.card.hub_id or '–'}\n{here}"

    common.emit(value, lambda: listing(("dataset", "", "splits", "license", "hub id; here"), list_rows(), empty="none", whole=True))


def show_dataset(reference: str, common: Common) -> None:
    """Print a dataset's card and options, and the source of each split; for a subset, only its splits."""
    from benchmarks import registry
    from benchmarks.registry import DataReference

    _, entry = registry.resolve(reference)
    subset = DataReference.parse(reference).subset
    entry = entry.of_subset(subset) if subset else entry
    positions, card = _positions(entry), entry.card
    facts = {
        "title": card.title,
        "task": card.task,
        "subsets": ", ".join(entry.subsets) or "–",
        "splits": ", ".join(_sizes(entry)),
        "metrics": ", ".join(card.metrics),
        **{f"metrics of {', '.join(names)}": ", ".join(of_them) for of_them, names in registry.subsets_by_value(card.subset_metrics)},
        "languages": ", ".join(card.languages),
        **{f"languages of {', '.join(names)}": ", ".join(of_them) for of_them, names in registry.subsets_by_value(card.subset_languages)},
        "settings": ", ".join(card.settings),
        **{f"settings of {', '.join(names)}": ", ".join(of_them) for of_them, names in registry.subsets_by_value(card.subset_settings)},
        "hub": card.hub_id or "–",
        "revision": card.revision or "not pinned" if card.hub_id else "–",
        "license": card.license,
        "citation": card.citation,
        "notes": card.notes or "–",
    }

    def show() -> None:
        print_card(f"{entry.id}/{subset}" if subset else entry.id, card.description, facts, entry.config)
        out.print()
        rows = [(str(position.reference), _number(_size(entry, position)), position.state, position.read_from) for position in positions]
        listing(("split", "questions", "now", "read from"), rows, empty="")

    common.emit(_card_json(entry, positions) | {"options": option_rows(entry.config)}, show)


def _positions(entry: DatasetEntry) -> list[Availability]:
    from benchmarks.availability import availability, splits

    return [availability(reference) for reference in splits(entry)]


def _card_json(entry: DatasetEntry, positions: Sequence[Availability]) -> dict[str, Any]:
    here = [{"reference": str(position.reference), "questions": _size(entry, position), **position.to_json()} for position in positions]
    return {"id": entry.id, "version": entry.version, "subsets": entry.subsets, **entry.card.model_dump(mode="json"), "here": here}


def _size(entry: DatasetEntry, position: Availability) -> int | None:
    return entry.card.splits_of(position.reference.subset)[position.reference.split or ""]


def _number(number: int | None) -> str:
    return "?" if number is None else f"{number:,}"


def _sizes(entry: DatasetEntry) -> list[str]:
    """Return the splits of the default subset."""
    splits = entry.card.splits_of(entry.subsets[0] if entry.subsets else None)
    return [f"{name} {_number(size)}" for name, size in splits.items()]


@app.command(offline=True, plugin=True)
def download(
    references: Annotated[
        list[str], argument("Data references: name[/subset][:split]; or prompts, prompts/NAME.", completion.references, metavar="REF...")
    ],
    common: Common,
    revision: Annotated[str | None, option("Commit, tag or branch in place of the pinned one.")] = None,
) -> None:
    """Download a split's files, or the published prompts of released checkpoints, and verify them."""
    from benchmarks import published_prompts
    from benchmarks.availability import fetch, parts
    from benchmarks.io import hub

    if not common.talk:
        hub.be_quiet()
    prompts = [item for reference in references for item in published_prompts.download(reference)]
    wanted = [reference for reference in references if reference.partition("/")[0] != published_prompts.FOLDER]
    fetched = [(part, fetch(part, revision)) for reference in wanted for part in parts(reference)]
    files = [{"reference": str(part), **entry.to_json()} for part, entry in fetched]
    value = [*prompts, *files]

    def show() -> None:
        for prompt in prompts:
            out.print(Text(prompt["reference"], style="bold") + Text(f"  {prompt['source']}  license: {prompt['license']}"))
            out.print(Text(f"{prompt['sha256']}  {prompt['path']}"), soft_wrap=True)
        for item, (part, entry) in zip(files, fetched, strict=True):
            out.print(Text(str(part), style="bold") + Text(f"  {entry.repository} at {entry.revision}"))
            for file in item["files"]:
                # In the format of sha256sum, without line breaks at any width.
                line = Text(f"{file['sha256']}  {file['name']}") + Text(f"  {file['bytes']:,} bytes", style="dim")
                out.print(line, soft_wrap=True)
            if not item["pinned"]:
                note = f"not pinned: this is what {entry.pinned or hub.MAIN} was; --revision {entry.revision} is this again"
                err.print(Text(note, style="yellow"), soft_wrap=True)

    common.emit(value, show)


@app.command(offline=True, plugin=True)
def stats(
    reference: options.DataReference,
    common: Common,
    plot: Annotated[bool, option("Draw histograms in the terminal.", "--plot")] = False,
    output: Annotated[Path | None, option("Draw histograms into this .html, .svg or .png file.", "--output", "-o")] = None,
    skip_bad: options.SkipBadOption = False,
    config: options.ConfigOption = None,
    settings: options.DatasetSetOption = None,
) -> None:
    """Show counts and lengths of questions, answers, passages and documents, with evidence and types."""
    from benchmarks.verify import QUANTILES, statistics
    from ragmeter.show import histograms

    if output is not None:
        histograms.check(output)
    benchmark = common.load(*named_data(reference, given_options(config, settings), skip_bad=skip_bad))
    measured, sampled = statistics(benchmark), benchmark.sampled().in_words(len(benchmark.questions))
    pictures = {f"words of {name}": item for name, item in measured.words.items()}
    pictures |= {f"{name} per question": item for name, item in measured.each.items()}
    if output is not None:
        histograms.save(pictures, str(benchmark.reference), output)

    def show() -> None:
        out.print(Text(str(benchmark.reference), style="bold") + Text(f"  fingerprint {benchmark.fingerprint}"))
        out.print(Text(f"sampled: {sampled}"))
        listing(("", ""), [(name, f"{number:,}") for name, number in measured.counts.items() if number], empty="")
        if set(measured.types) != {"(none)"}:
            types = list(measured.types.items())[:_MOST_TYPES]
            listing(("type", "questions"), [(name, f"{number:,}") for name, number in types], empty="")
        heads = [{0.0: "least", 0.5: "median", 1.0: "most"}.get(share, f"{share:.0%}") for share in QUANTILES]
        for title, of_it in (("words", measured.words), ("characters", measured.characters), ("per question", measured.each)):
            rows = [(name, f"{len(d.values):,}", f"{d.mean:,.1f}", *(f"{value:,}" for value in d.quantiles)) for name, d in of_it.items()]
            out.print()
            listing((title, "n", "mean", *heads), rows, empty="")
        if plot:
            out.print()
            histograms.draw(pictures, out)
        if output is not None:
            out.print(Text(f"drawn in {output}"))

    value = {"reference": str(benchmark.reference), "fingerprint": benchmark.fingerprint, "sampled": sampled, **measured.to_json()}
    common.emit(value | {"plot": None if output is None else str(output)}, show)


@app.command(offline=True, plugin=True)
def sample(
    reference: options.DataReference,
    common: Common,
    count: Annotated[int, option("Number of questions.", min=1)] = 3,
    seed: Annotated[int, option("Random seed.")] = 0,
    skip_bad: options.SkipBadOption = False,
    config: options.ConfigOption = None,
    settings: options.DatasetSetOption = None,
) -> None:
    """Print sample questions with their gold; for your own file, also how its fields were read."""
    from benchmarks.core.random import Draws
    from benchmarks.registry import MAPPING
    from ragmeter.show.question_text import print_question, question_json

    benchmark = common.load(*named_data(reference, given_options(config, settings), skip_bad=skip_bad))
    questions = [benchmark.questions[row] for row in sorted(Draws("sample", seed).sample(range(len(benchmark.questions)), count))]

    mapped = MAPPING in benchmark.extra

    def show() -> None:
        for question in questions:
            print_question(question, benchmark)
        out.print(Text(f"{len(questions):,} of {len(benchmark.questions):,} of {benchmark.reference}", style="dim"))
        for note in benchmark.extra["notes"] if mapped else ():
            out.print(Text(note), soft_wrap=True)
        for item in benchmark.skipped[:count]:
            out.print(Text(f"skipped: {item.reason} ({item.where})", style="yellow"), soft_wrap=True)

    records = [question_json(question, benchmark) for question in questions]
    common.emit({"questions": records, "notes": list(benchmark.extra["notes"])} if mapped else records, show)


@app.command("build-corpus", offline=True)
def build_corpus(
    source: Annotated[Path, argument("Dump: a file, or a folder of files.")],
    output: Annotated[Path, option("Corpus folder to build; an unfinished one is continued.", "--output", "-o")],
    common: Common,
    layout: Annotated[
        str | None,
        option(
            "dpr, atlas, jsonl, parquet or beir (default: by content)",
            completes=completion.offer_words("dpr", "atlas", "jsonl", "parquet", "beir"),
        ),
    ] = None,
    skip_bad: Annotated[bool, option("Skip unreadable records; they are counted.", "--skip-bad")] = False,
) -> None:
    """Build a memory-mapped corpus from a dump of passages; an interrupted build resumes."""
    from benchmarks import corpus_build, dumps
    from benchmarks.corpus import CARD, read_card

    if layout is not None:
        one_of(layout, dumps.LAYOUTS, "layout of a dump", "--layout")
    was_there = (output / CARD).exists()
    with common.status(f"reading {source.name}") as status:

        def progress(built: corpus_build.Progress) -> None:
            share = "" if built.share is None else f" ({built.share:.0%})"
            status.update(Text(f"{source.name}{share}: {counted(built.records, 'record')}, {counted(built.passages, 'passage')}"))

        corpus = corpus_build.build_corpus(source, output, layout=layout, skip_bad=skip_bad, progress=progress)
    card = read_card(output)
    size = sum(file.stat().st_size for file in output.rglob("*") if file.is_file())

    def show() -> None:
        how = "was there already" if was_there else "built"
        out.print(Text(f"{counted(len(corpus), 'passage')}, {size / 2**20:,.1f} MiB in {output} ({how})"))
        facts = {name: fact for name, fact in card.items() if isinstance(fact, str | int) and name != "format"}
        listing(("", ""), facts.items(), empty="")
        for bad in card.get("bad_listed", ()):
            out.print(Text(f"left out: {bad}", style="yellow"))

    common.emit({"folder": str(output), "bytes": size, "was_there": was_there, **card}, show)


@app.command("pretraining-rows", offline=True, plugin=True)
def pretraining_rows(
    data: Annotated[str, argument("Data reference, or a corpus by its path (./wiki, /data/wiki).", completion.references)],
    output: Annotated[Path, option("File of rows, OUT.jsonl; OUT.states.jsonl next to it stores the progress.", "--output", "-o")],
    common: Common,
    by: Annotated[
        str, option("llm: a chat model; worlds: the world's facts, offline.", completes=completion.offer_words("llm", "worlds"))
    ] = "llm",
    mix: Annotated[str, option("all, simple, paraphrase or simple+complex.")] = "all",
    count: Annotated[int | None, option("Number of documents, drawn by the seed; larger samples contain smaller ones.", min=1)] = None,
    seed: options.SeedOption = 0,
    config: options.ConfigOption = None,
    settings: Annotated[
        list[str] | None, options.set_option("Options: llm.model=…, llm.base_url=…, rounds=…; dataset: data.KEY=VALUE")
    ] = None,
    dry_run: Annotated[bool, option("Estimate the cost without calling a model.", "--dry-run")] = False,
) -> int:
    """Write rows for CLaRa's pretraining: checked questions with answers, and paraphrases. Resumes if interrupted."""
    from benchmarks import corpus_build, registry
    from benchmarks.worlds.dataset import WorldsConfig
    from methods.clara.config import MIXES, Mix, ScpDataConfig
    from methods.clara.data import scp_rows
    from methods.clara.rows import write_rows
    from methods.clara.synthesis import Passages, Synthesis, SynthesisConfig, of_rows, of_synthesis, outlook
    from methods.training.journal import Journal
    from methods.training.material import require_no_test
    from ragmeter.runner.loop import stoppable
    from ragmeter.runner.progress import TrainingProgress
    from ragmeter.runner.rewriting import options_of

    if output.is_dir():
        raise UserError("this is a folder", code="output-is-folder", where=str(output), try_this="name a file")
    wanted_mix: Mix = one_of(mix, (name for name in MIXES if name != "none"), "mix", "--mix")
    one_of(by, ("llm", "worlds"), "writer", "--by")
    if not dry_run:
        require_writable(output)
    of_model, of_data = data_apart(given_options(config, settings))
    value = {"file": str(output), "data": data, "by": by, "mix": mix}
    if by == "worlds":
        if of_model:
            raise UserError(
                "options are given, but no model that uses them",
                code="unknown-model-options",
                where="--set",
                try_this="--by llm; options of the dataset are data.KEY=VALUE",
            )
        if not issubclass(registry.resolve(data, where="DATA")[1].config, WorldsConfig):
            raise UserError(f"{data} is not a world", code="not-world", where="--by worlds", try_this="worlds/…:train, or --by llm")
        require_no_test(data, "DATA")
        rows = scp_rows(data, ScpDataConfig(mix=wanted_mix, documents=count, seed=seed), of_data)
        if dry_run:
            common.emit({"file": str(output), "rows": len(rows)}, lambda: out.print(Text(f"{len(rows):,} rows, and no call")))
            return 0
        write_rows(output, rows)
        return _report(output, value, of_rows(rows), {}, common)
    with options_of("the model", SynthesisConfig):
        model = SynthesisConfig.model_validate(of_model)
    is_path = data.startswith(("/", ".", "~"))
    if not is_path:
        require_no_test(data, "DATA")
    corpus = corpus_build.open_corpus(Path(data).expanduser()) if is_path else common.load(data, of_data).corpus
    if not len(corpus):
        raise UserError("no document was given", code="no-document", where=data)
    types, services = MIXES[wanted_mix], common.services(seed=seed)
    with Journal(output.with_suffix(".states.jsonl")) as states:
        synthesis = Synthesis(model, states, services)
        documents = Passages.sampled(corpus, count, seed)
        wanted = outlook(synthesis, documents, types)
        if dry_run:
            common.emit({"file": str(output), "outlook": asdict(wanted)}, lambda: out.print(Text(str(wanted))))
            return 0
        if common.talk:
            err.print(Text(str(wanted)))
        if wanted.done < wanted.loops:
            model.reach(services.cache)
        with TrainingProgress(quiet=not common.talk) as progress, stoppable(_AGAIN):
            synthesis.run(documents, types, progress)
        write_rows(output, synthesis.make_rows(documents, types))
        return _report(output, value, of_synthesis(synthesis, documents, types), dict(synthesis.put_aside), common)


@app.command("instruction-rows", offline=True, plugin=True)
def instruction_rows(
    data: Annotated[str, argument("Data reference: questions with candidates, or with a corpus.", completion.references)],
    output: Annotated[Path, option("The file of rows, OUT.jsonl; OUT.states.jsonl next to it stores the progress.", "--output", "-o")],
    common: Common,
    limit: options.LimitOption = None,
    seed: options.SeedOption = 0,
    config: options.ConfigOption = None,
    settings: Annotated[
        list[str] | None, options.set_option("llm.model=…, llm.base_url=…, pool.source=retriever; of the dataset: data.KEY=VALUE")
    ] = None,
    device: options.DeviceOption = None,
    dry_run: Annotated[bool, option("Estimate the cost without calling a model.", "--dry-run")] = False,
) -> int:
    """Write rows for CLaRa's instruction tuning: a language model answers questions from the documents found for them."""
    from methods.clara.rows import write_rows
    from methods.clara.teacher import Teacher, TeacherConfig, questions_of, rows_of, statistics_of
    from methods.models.counting import price
    from methods.training.journal import Journal
    from methods.training.material import require_no_test
    from methods.training.stages import write_json
    from ragmeter.runner.loop import stoppable
    from ragmeter.runner.progress import TrainingProgress
    from ragmeter.runner.rewriting import options_of

    if output.is_dir():
        raise UserError("this is a folder", code="output-is-folder", where=str(output), try_this="name a file")
    if not dry_run:
        require_writable(output)
    of_model, of_data = data_apart(given_options(config, settings))
    with options_of("the teacher", TeacherConfig):
        teaching = TeacherConfig.model_validate(of_model)
    require_no_test(data, "DATA")
    services = common.services(device, seed)
    questions = questions_of(common.load(data, of_data, limit=limit, services=services), teaching.pool, services)
    with Journal(output.with_suffix(".states.jsonl")) as states:
        teacher = Teacher(teaching, services, states)
        wanted = teacher.estimate(questions)
        if dry_run:
            common.emit(
                {"file": str(output), "questions": len(questions), "estimate": asdict(wanted)}, lambda: out.print(Text(str(wanted)))
            )
            return 0
        if common.talk:
            err.print(Text(str(wanted)))
        if wanted.calls:
            teaching.reach(services.cache)
        with TrainingProgress(quiet=not common.talk) as progress, stoppable(_AGAIN):
            taught = teacher.answers(questions, progress)
    counts = statistics_of(taught)
    write_rows(output, rows_of(questions, taught))
    value = {"file": str(output), "data": data, "questions": len(questions), **counts}
    write_json(output.with_suffix(".statistics.json"), value)

    def show() -> None:
        out.print(Text(f"{output}: {counts.get('answered', 0):,} rows of {len(questions):,} questions"), soft_wrap=True)
        left_out = [(name, f"{counts[name]:,}") for name in ("refused", "abstained", "empty", "failed") if name in counts]
        if left_out:
            listing(("left out", "questions"), left_out, empty="")
        if "cut" in counts:
            err.print(Text(f"{counted(counts['cut'], 'answer')} cut at the limit of tokens: --set llm.max_tokens=…"))
        read, written = counts["prompt_tokens"], counts["completion_tokens"]
        spent = f"{read:,} prompt tokens, {written:,} completion tokens, {price(counts['cost_usd'], read + written)}"
        out.print(Text(f"by {', '.join(counts['by'])}: {spent}"))
        if counts["failures"]:
            err.print(Text(f"{sum(counts['failures'].values()):,} questions without a reply; {_AGAIN}"))

    common.emit(value, show)
    return 1 if counts["failures"] or not counts.get("answered") else 0


def _report(output: Path, value: Mapping[str, Any], made: Mapping[Any, Any], put_aside: Mapping[str, int], common: Common) -> int:
    """Report the result of a synthesis, and store it next to the rows; return 1 if there is none, or it is incomplete."""
    from methods.training.stages import write_json

    types = {kind: item.to_json() for kind, item in made.items()}
    write_json(output.with_suffix(".statistics.json"), {**value, "types": types})

    def cells(key: str) -> list[str]:
        values = [kind[key] for kind in types.values()]
        return ["–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.2f}" for value in values]

    def show() -> None:
        out.print(Text(str(output)), soft_wrap=True)
        means = {name: f"{name.replace(' ', '_')}_per_document" for name in ("pairs", "input words", "output words")}
        keys = {"documents": "documents", **means, "uncovered": "uncovered", "without pairs": "covered_without_pairs"}
        lines = [(name, *cells(key)) for name, key in {**keys, "unfinished": "unfinished"}.items()]
        listing(("", *types), lines if types else [], empty="nothing was made")
        if models := sorted({name for item in made.values() for name in item.by}):
            out.print(Text(f"by {', '.join(models)}"))
        for reason, number in put_aside.items():
            err.print(Text(f"{number:,} set aside: {reason}; {_AGAIN}"))

    common.emit({**value, "types": types, "put_aside": put_aside}, show)
    unfinished = any(item.unfinished for item in made.values())
    return 1 if unfinished or not any(item.documents for item in made.values()) else 0


# In the order of `--help`.
for part in (data_check, data_overlap, data_questions, data_style):
    app.registered_commands += part.app.registered_commands

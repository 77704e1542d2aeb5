"""Worlds in the native file formats of other datasets, so that their loaders can be tested on known gold.

A format includes the questions that it can express. In graph QA, RoG's rows and NSM's files contain the graphs; the official
JSON files and ToG's contain only questions. Formats have different fields: only CWQ's official file has aliases, and it
has no topic entities.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.core.errors import UserError, unknown_name
from benchmarks.core.files import whole_text
from benchmarks.core.fingerprint import content_id, fingerprint
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question, Triple, sentence_of
from benchmarks.text import has_answer

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NativeFormat:
    """A native file format.

    Attributes:
        subsets: Subsets of worlds that it can express, the default first.
        suits: Whether it can express an answerable question.
        write: Maps a benchmark and its suitable questions to texts by file name; "" is the file itself, other names
            are files beside it.
    """

    subsets: tuple[str, ...]
    suits: Callable[[Question], bool]
    write: Callable[[Benchmark, Sequence[Question]], Mapping[str, str]]


def put(files: Mapping[str, str], path: Path, overwrite: bool) -> None:
    """Write texts to a file and to related files, each atomically.

    Args:
        files: Text by name; "" is the file itself.
        path: The file.
        overwrite: Whether existing files may be replaced.

    Raises:
        UserError: A file exists.
    """
    for name, text in files.items():
        target = path.with_name(name) if name else path
        if target.exists() and not overwrite:
            raise UserError("this file is in the way", where=str(target), try_this="choose another folder, or overwrite=True")
        target.parent.mkdir(parents=True, exist_ok=True)
        whole_text(target, text)


def json_lines(rows: Iterable[Row]) -> str:
    """Return rows as JSON Lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


# Worlds of long documents in LongBench's and UltraDomain's native file formats.
# Neither has a field for evidence, types or supporting sentences; accepted wordings are among the answers.


LONGBENCH_SET = "multifieldqa_en"
"""The subset whose file is written: single documents of many kinds, short answers."""
SEPARATOR = "\n\n"
"""Separator of chunks in a document's context."""


def _longbench(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    """Return one JSON object per line, as in LongBench's `multifieldqa_en.jsonl`."""
    rows = [
        {
            "input": question.text,
            "context": context,
            "answers": list(question.golds),
            "length": len(context.split()),
            "dataset": LONGBENCH_SET,
            "language": "en",
            "all_classes": None,
            "_id": question.id,
        }
        for question, _, context in _with_documents(benchmark, questions)
    ]
    return {"": json_lines(rows)}


def _ultradomain(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    """Return one JSON object per line, as in a domain's file of UltraDomain."""
    rows = [
        {
            "input": question.text,
            "answers": list(question.golds),
            "context": context,
            "length": len(context.split()),
            "context_id": question.document_id,
            "_id": question.id,
            "label": benchmark.reference.name,
            "meta": {"title": chunks[0].title, "authors": ""},
        }
        for question, chunks, context in _with_documents(benchmark, questions)
    ]
    return {"": json_lines(rows)}


def _with_documents(benchmark: Benchmark, questions: Sequence[Question]) -> Iterator[tuple[Question, list[Passage], str]]:
    """Yield each question with its document's chunks and their text."""
    documents: dict[str, tuple[list[Passage], str]] = {}
    for question in questions:
        document = question.document_id or ""
        if document not in documents:
            chunks = benchmark.corpus.get(benchmark.corpus.by_document[document])
            documents[document] = chunks, SEPARATOR.join(chunk.text for chunk in chunks)
        yield (question, *documents[document])


def _has_one_answer(question: Question) -> bool:
    return len(question.answers) == 1


DOCUMENT_FORMATS: Mapping[str, NativeFormat] = {
    "longbench": NativeFormat(("long",), _has_one_answer, _longbench),
    "ultradomain": NativeFormat(("long",), _has_one_answer, _ultradomain),
}
"""Document formats by name."""


COMPOSITIONALITY: Mapping[str, str] = {
    "single": "composition",
    "bridge": "composition",
    "comparison": "comparative",
    "multi": "conjunction",
}
"""CWQ's kind of question for each kind of a world."""


def rog_rows(benchmark: Benchmark, questions: Sequence[Question]) -> Iterator[Row]:
    """Return questions as RoG's rows, with the hub's columns in order; `choices` is empty, as on the hub."""
    for question in questions:
        graph = benchmark.extra["graphs"][question.id]
        nodes = _nodes(graph)
        yield {
            "id": question.id,
            "question": question.text,
            "answer": list(question.answers),
            "q_entity": list(question.topic_entities),
            "a_entity": [answer for answer in question.answers if answer in nodes],
            "graph": [list(triple) for triple in graph],
            "choices": [],
        }


def _rog(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    return {"": json_lines(rog_rows(benchmark, questions))}


def _nsm(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    rows = []
    for question in questions:
        graph = benchmark.extra["graphs"][question.id]
        for head, relation, tail in graph:
            relations.setdefault(relation, len(relations))
            for name in (head, tail):
                entities.setdefault(name, len(entities))
        for name in (*question.topic_entities, *question.answers):
            entities.setdefault(name, len(entities))
        rows.append(
            {
                "id": question.id,
                "answers": [{"kb_id": _mid(answer), "text": answer} for answer in question.answers],
                "question": question.text,
                "entities": [entities[topic] for topic in question.topic_entities],
                "subgraph": {
                    "tuples": [[entities[head], relations[relation], entities[tail]] for head, relation, tail in graph],
                    "entities": [entities[name] for name in _nodes(graph)],
                },
            }
        )
    return {
        "": json_lines(rows),
        "entities.txt": "".join(f"{_mid(name)}\n" for name in entities),
        "relations.txt": "".join(f"{name}\n" for name in relations),
        "entity_name.txt": "".join(f"{_mid(name)}\t{name}\n" for name in sorted(entities)),
    }


def _webqsp(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    rows = [
        {
            "QuestionId": question.id,
            "RawQuestion": question.text,
            "ProcessedQuestion": question.text.lower().rstrip("?"),
            "Parses": [_parse(question, number, topic) for number, topic in enumerate(question.topic_entities)],
        }
        for question in questions
    ]
    whole = {"Version": "1.0", "FreebaseVersion": "worlds", "Questions": rows}
    # The official file begins with a byte order mark.
    return {"": "\ufeff" + json.dumps(whole, ensure_ascii=False, indent=1)}


def _parse(question: Question, number: int, topic: str) -> Row:
    return {
        "ParseId": f"{question.id}.P{number}",
        "AnnotatorComment": {"ParseQuality": "Complete", "QuestionQuality": "Good"},
        "Sparql": "",
        "TopicEntityName": topic,
        "TopicEntityMid": _mid(topic),
        "InferentialChain": list(question.metadata["relations"][: question.metadata["hops"]]),
        "Answers": [{"AnswerType": "Entity", "AnswerArgument": _mid(answer), "EntityName": answer} for answer in question.answers],
    }


def _cwq(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    rows = [
        {
            **_cwq_row(question),
            "answers": [
                {"answer_id": _mid(answer), "answer": answer, "aliases": list(question.aliases.get(answer, ()))}
                for answer in question.answers
            ],
        }
        for question in questions
    ]
    return {"": json.dumps(rows, ensure_ascii=False)}


def _cwq_row(question: Question) -> Row:
    return {
        "ID": question.id,
        "question": question.text,
        "machine_question": question.text.lower().rstrip("?"),
        "compositionality_type": COMPOSITIONALITY[question.type],
        "sparql": "",
        "created": "",
        "webqsp_ID": "",
        "webqsp_question": "",
    }


def _tog_webqsp(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    rows = [
        {"QuestionId": question.id, "RawQuestion": question.text, "answer": list(question.answers), "topic_entity": _topics(question)}
        for question in questions
    ]
    return {"": json.dumps(rows, ensure_ascii=False)}


def _tog_cwq(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    rows = []
    for question in questions:
        # A single answer is a string there.
        answers = question.answers[0] if len(question.answers) == 1 else json.dumps(question.answers)
        rows.append({**_cwq_row(question), "topic_entity": _topics(question), "answer": answers})
    return {"": json.dumps(rows, ensure_ascii=False)}


def _topics(question: Question) -> dict[str, str]:
    return {_mid(topic): topic for topic in question.topic_entities}


def _nodes(graph: Sequence[Triple]) -> dict[str, None]:
    return dict.fromkeys(name for head, _, tail in graph for name in (head, tail))


def _mid(name: str) -> str:
    """Return an id in Freebase's style, equal for equal names."""
    return f"m.{content_id('w', name)}"


def _format(write: Callable[[Benchmark, Sequence[Question]], dict[str, str]]) -> NativeFormat:
    return NativeFormat(("graph",), lambda question: True, write)


GRAPH_FORMATS: Mapping[str, NativeFormat] = {
    "rog": _format(_rog),
    "nsm": _format(_nsm),
    "webqsp": _format(_webqsp),
    "cwq": _format(_cwq),
    "tog_webqsp": _format(_tog_webqsp),
    "tog_cwq": _format(_tog_cwq),
}
"""`rog` are JSON Lines, `nsm` too, with `entities.txt`, `relations.txt` and `entity_name.txt` beside them; `webqsp` and
`cwq` the official JSON."""


# Worlds of multi-hop questions in the native file formats of HotpotQA, 2WikiMultihopQA and MuSiQue.
# HotpotQA and 2WikiMultihopQA have bridge and comparison questions, MuSiQue bridge questions; none has sets of answers.


def _hotpotqa(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    # Every sentence except the first has its leading space.
    rows = [_sentence_row(benchmark, question, " ", {"level": "hard"}) for question in questions]
    return {"": json.dumps(rows, ensure_ascii=False)}


def _two_wiki(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    rows = []
    aliases: dict[str, tuple[str, ...]] = {}
    for question in questions:
        answer = question.answers[0]
        ids = question.metadata["id_triples"]
        answer_id = question.metadata["answer_ids"][0] or content_id("v", answer)
        if question.aliases.get(answer):
            aliases[answer_id] = question.aliases[answer]
        kind = "compositional" if question.type == "bridge" else question.type
        extra = {
            "type": kind,
            "entity_ids": "_".join(dict.fromkeys(head for head, _, _ in ids)),
            "evidences": [list(triple) for triple in question.triples],
            "evidences_id": [list(triple) for triple in ids],
            "answer_id": answer_id,
        }
        rows.append(_sentence_row(benchmark, question, "", extra))
    lines = [json.dumps({"Q_id": key, "aliases": list(names), "demonyms": []}, ensure_ascii=False) for key, names in aliases.items()]
    return {"": json.dumps(rows, ensure_ascii=False), "id_aliases.json": "".join(f"{line}\n" for line in lines)}


def _sentence_row(benchmark: Benchmark, question: Question, lead: str, extra: Row) -> Row:
    passages = benchmark.corpus.get(question.candidates or ())
    titles = {passage.id: passage.title for passage in passages}
    facts = map(sentence_of, question.supporting_facts)
    return {
        "_id": question.id,
        "type": question.type,
        "question": question.text,
        "context": [[p.title, [lead * (i > 0) + text for i, text in enumerate(p.sentences)]] for p in passages],
        "supporting_facts": [[titles[passage], index] for passage, index in facts],
        "answer": question.answers[0],
        **extra,
    }


def _musique(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    rows = [_musique_row(question, benchmark.corpus.get(question.candidates or ())) for question in questions]
    return {"": json_lines(rows)}


def _musique_full(benchmark: Benchmark, questions: Sequence[Question]) -> dict[str, str]:
    rows = []
    spares = list(benchmark.corpus)
    for number, question in enumerate(questions):
        passages = benchmark.corpus.get(question.candidates or ())
        lost = question.evidence[-1]
        held = {passage.id for passage in passages}
        # Any other passage that is not in the question replaces the lost one.
        spare = next(p for p in (*spares[number:], *spares[:number]) if p.id not in held)
        rows.append(_musique_row(question, passages))
        rows.append(_musique_row(question, [spare if p.id == lost else p for p in passages], answerable=False))
    return {"": json_lines(rows)}


def _musique_row(question: Question, passages: Sequence[Passage], answerable: bool = True) -> Row:
    positions = {passage.id: position for position, passage in enumerate(passages)}
    steps = question.metadata["steps"]
    return {
        "id": f"{len(steps)}hop__" + "_".join(str(_step_number(question, step)) for step in steps),
        "paragraphs": [
            {"idx": i, "title": p.title, "paragraph_text": p.text, "is_supporting": p.id in question.evidence}
            for i, p in enumerate(passages)
        ],
        "question": question.text,
        "question_decomposition": [
            {
                "id": _step_number(question, step),
                "question": step["question"],
                "answer": step["answer"],
                "paragraph_support_idx": positions.get(step["passage"]),
            }
            for step in steps
        ],
        "answer": question.answers[0],
        "answer_aliases": list(question.aliases.get(question.answers[0], ())),
        "answerable": answerable,
    }


def _step_number(question: Question, step: Row) -> int:
    return int(question.metadata["seed"]) * 100_000 + int(step["fact"])


def _of_types(*types: str) -> Callable[[Question], bool]:
    return lambda question: question.type in types and len(question.answers) == 1


_SUBSETS = ("multihop", "style")
MULTIHOP_FORMATS: Mapping[str, NativeFormat] = {
    "hotpotqa": NativeFormat(_SUBSETS, _of_types("bridge", "comparison"), _hotpotqa),
    "2wikimultihopqa": NativeFormat(_SUBSETS, _of_types("bridge", "comparison"), _two_wiki),
    "musique": NativeFormat(_SUBSETS, _of_types("bridge"), _musique),
    "musique_full": NativeFormat(_SUBSETS, _of_types("bridge"), _musique_full),
}
"""2WikiMultihopQA's brings `id_aliases.json`; `musique_full` has behind each question its twin, which lacks one
paragraph of the proof."""


# Worlds in the file layouts of Natural Questions, and their passages as a dump like DPR's `psgs_w100.tsv`.
# Answers are flat there: every accepted string, aliases included. Ids of passages are those of the dump: the row, from 1.


def write_dump(corpus: Corpus, path: Path | str, *, overwrite: bool = False) -> None:
    """Write a corpus as DPR's dump: `id TAB text TAB title` with a header, fields with quotes in doubled quotes.

    Raises:
        UserError: A file exists.
    """
    rows = (("id", "text", "title"), *((str(row), p.text, p.title) for row, p in enumerate(corpus, 1)))
    put({"": _tab_separated(rows)}, Path(path), overwrite)


def _tab_separated(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter="\t", lineterminator="\n").writerows(rows)
    return text.getvalue()


def _open(benchmark: Benchmark, questions: Sequence[Question]) -> str:
    return json_lines({"question": q.text, "answer": list(q.golds)} for q in questions)


def _csv(benchmark: Benchmark, questions: Sequence[Question]) -> str:
    return _tab_separated((question.text, repr(list(question.golds))) for question in questions)


def _kilt(benchmark: Benchmark, questions: Sequence[Question]) -> str:
    return json_lines(
        {
            "id": str(int(fingerprint(q.id), 16)),
            "input": q.text,
            "output": [{"answer": answer, "provenance": _provenance(benchmark, q)} for answer in q.golds],
        }
        for q in questions
    )


def _provenance(benchmark: Benchmark, question: Question) -> list[Row]:
    return [
        {"wikipedia_id": _native_id(benchmark, passage), "title": passage.title, "section": "Section::::Abstract."}
        for passage in benchmark.corpus.get(question.evidence)
    ]


def _reader(benchmark: Benchmark, questions: Sequence[Question]) -> str:
    rows = []
    for question in questions:
        passages = benchmark.corpus.get(question.candidates or ())
        contexts = {passage.id: _context(benchmark, passage, "passage_id") for passage in passages}
        negative = [context for item, context in contexts.items() if item not in question.evidence]
        rows.append(
            {
                "dataset": f"nq_{benchmark.reference.split}_worlds",
                "question": question.text,
                "answers": list(question.golds),
                "positive_ctxs": [contexts[item] for item in question.evidence],
                "negative_ctxs": negative[1::2],
                "hard_negative_ctxs": negative[::2],
            }
        )
    return json.dumps(rows, ensure_ascii=False, indent=1)


def _contexts(benchmark: Benchmark, questions: Sequence[Question]) -> str:
    return json_lines(
        {
            "question": question.text,
            "answers": list(question.golds),
            "ctxs": [
                {
                    **_context(benchmark, passage, "id"),
                    "hasanswer": has_answer(passage.text, question.golds),
                    "isgold": passage.id in question.evidence,
                }
                for passage in benchmark.corpus.get(question.candidates or ())
            ],
        }
        for question in questions
    )


def _context(benchmark: Benchmark, passage: Passage, name: str) -> Row:
    return {name: _native_id(benchmark, passage), "title": passage.title, "text": passage.text}


def _native_id(benchmark: Benchmark, passage: Passage) -> str:
    return str(benchmark.corpus.row(passage.id) + 1)


def _nq_format(text: Callable[[Benchmark, Sequence[Question]], str]) -> NativeFormat:
    return NativeFormat(
        ("multihop", "style"), lambda question: not question.answer_set, lambda benchmark, questions: {"": text(benchmark, questions)}
    )


NQ_FORMATS: Mapping[str, NativeFormat] = {
    "nq_open": _nq_format(_open),
    "nq_csv": _nq_format(_csv),
    "nq_reader": _nq_format(_reader),
    "nq_kilt": _nq_format(_kilt),
    "nq_contexts": _nq_format(_contexts),
}
"""Formats by name; the layouts are those of `datasets.nq`."""


FORMATS: Mapping[str, NativeFormat] = {**MULTIHOP_FORMATS, **DOCUMENT_FORMATS, **GRAPH_FORMATS, **NQ_FORMATS}
"""Every format by name."""


def write_native(benchmark: Benchmark, format: str, path: Path | str, *, overwrite: bool = False) -> tuple[str, ...]:
    """Write a benchmark of worlds as another dataset's native file.

    Args:
        benchmark: A subset of worlds that the format can express.
        format: A name in `FORMATS`.
        path: The file; some formats write related files next to it.
        overwrite: Whether existing files may be replaced.

    Returns:
        Ids of the questions written, in order. Those that nothing answers have no place in these formats.

    Raises:
        UserError: The format is unknown, no question fits it, or a file is in the way.
    """
    if format not in FORMATS:
        raise unknown_name("native format", format, FORMATS)
    form = FORMATS[format]
    fits = benchmark.reference.name == "worlds" and benchmark.reference.subset in form.subsets
    questions = [q for q in benchmark.questions if fits and q.answerable and form.suits(q)]
    if not questions:
        raise UserError(
            f"{benchmark.reference} has no questions that {format} can express",
            try_this=f"write worlds/{form.subsets[0]} with its default mix of questions",
        )
    put(form.write(benchmark, questions), Path(path), overwrite)
    return tuple(question.id for question in questions)

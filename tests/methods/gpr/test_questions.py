"""Questions about masked triples by a model, from a file and by templates: refusals, storage and resuming."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.core.files import Lines
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import Benchmark, DataReference, resolve
from benchmarks.schema import Question, Triple, triple_id
from methods.api import Services
from methods.gpr.masked import MaskedTriple, fault
from methods.gpr.question_files import WHAT, line_of, read_questions
from methods.gpr.question_files import Written as Line
from methods.gpr.questions import PROMPT, QuestionsConfig, generator_of, questions_of
from methods.gpr.wordings import TemplateQuestions
from methods.graphs.triples import PretrainingGraph
from tests.support.errors import raises
from tests.support.server import ChatRequest, OpenAIServer, Refused, Written

ADHD: Triple = ("Attention deficit hyperactivity disorder", "medicine.disease.treatments", "Modafinil")
GRAPH: list[Triple] = [
    ADHD,
    ("Jamaica", "location.country.languages_spoken", "Jamaican English"),
    ("m.0abc", "location.country.capital", "Kingston"),  # an end without a name
    ("Kingston", "location.location.part_of", "Kingston Parish"),  # whoever names the tail names the head
    ("Ann", "people.person.self", "Ann"),
    ("Jamaica", "...", "Kingston"),  # a relation without words
]


def graph_of(triples: list[Triple]) -> PretrainingGraph:
    corpus = TripleCorpus.of_triples(triples)
    table = corpus.triples.table
    columns = (table[name].copy() for name in ("head", "relation", "tail"))
    return PretrainingGraph(corpus.triples, *columns, (), corpus.fingerprint, (), (), {})


class Model:
    """Model that answers by a function of the displayed triple and of how often it was displayed."""

    def __init__(self, answer: Callable[[str, int], str]) -> None:
        self.requested: Counter[str] = Counter()
        self._answer = answer

    def __call__(self, request: ChatRequest) -> Written:
        shown = next(line for line in request.prompt.splitlines() if line.startswith("Triple: "))[8:]
        self.requested[shown] += 1
        return Written(self._answer(shown, self.requested[shown]))

    @property
    def calls(self) -> int:
        return sum(self.requested.values())

    @contextmanager
    def running(self) -> Iterator[QuestionsConfig]:
        with OpenAIServer("scripted", self, any_model=True).running() as url:
            chat = {"model": "llama", "base_url": url, "key_variable": None, "attempts": 1}
            yield QuestionsConfig.model_validate({"generator": "llm", "llm": chat})


def services(folder: Path | None = None) -> Services:
    return Services(seed=0, device="cpu", cache=folder / "replies.sqlite" if folder else None)


def ask(config: QuestionsConfig, folder: Path, path: Path | None = None) -> Any:
    graph = graph_of(GRAPH)
    return questions_of(graph, config, generator_of(config, services(folder)), path)


def append(path: Path, item: Line) -> None:
    with Lines(path, WHAT) as file:
        file.add(line_of(item))


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_prompt_shows_the_triple_with_one_end_hidden() -> None:
    tail, head = (PROMPT.load().messages(triple=str(m), side=m.side) for m in (MaskedTriple(ADHD, "tail"), MaskedTriple(ADHD, "head")))
    assert "Triple: (Attention deficit hyperactivity disorder, medicine.disease.treatments, [MASK])" in tail[1]["content"]
    assert "Hidden: the tail\n" in tail[1]["content"]
    assert "Triple: ([MASK], medicine.disease.treatments, Modafinil)" in head[1]["content"]
    assert "Hidden: the head" in head[1]["content"]
    # As in the paper, what is hidden is not shown.
    assert "Modafinil" not in tail[1]["content"]
    assert ADHD[0] not in head[1]["content"]


def test_questions_keep_the_order_of_triples_and_are_counted(tmp_path: Path) -> None:
    model = Model(lambda shown, turn: f"Question: {'What hides' if 'MASK' in shown[:7] else 'What else hides'} here")
    with model.running() as config:
        result = ask(config, tmp_path)
    # Triples 2 (no name) and 4 (a loop) give none, 3 only one, whose answer its visible end does not name.
    assert result.triples.tolist() == [0, 0, 1, 1, 3, 5, 5]
    assert result.sides.tolist() == [0, 1, 0, 1, 1, 0, 1]
    assert result.texts == ["What hides here?", "What else hides here?"] * 2 + ["What else hides here?"] + [
        "What hides here?",
        "What else hides here?",
    ]
    assert result.counts == {"triples": 5, "unnamed": 1, "kept": 0, "left_out": 3, "accepted": 7, "dropped: one entity names the other": 3}
    assert model.calls == 7


def test_unusable_reply_is_requested_twice_more_and_then_dropped(tmp_path: Path) -> None:
    replies = {
        "treatments, [MASK]": ["It is Modafinil, no?", "Short?", "What treats the disorder?"],
        "treatments, Modafinil": ["[MASK] is treated how?"] * 9,
        "[MASK], location.country.languages": ["I'm sorry, but I cannot help with that."] * 9,
        "languages_spoken, [MASK]": ["", "Which language is heard there?"],
    }

    def answer(shown: str, turn: int) -> str:
        return next((texts[turn - 1] for part, texts in replies.items() if part in shown), "What is it then?")

    model = Model(answer)
    with model.running() as config:
        results = ask(config, tmp_path)
    assert results.counts["retried"] == 2 + 2 + 2 + 1
    assert results.counts["dropped: contains the mask"] == 1
    assert results.counts["dropped: refusal"] == 1
    assert results.counts["accepted"] == len(results) == 5
    assert results.texts[:2] == ["What treats the disorder?", "Which language is heard there?"]
    assert max(model.requested.values()) == 3


def test_second_run_makes_no_call(tmp_path: Path) -> None:
    # Cached replies alone suffice, also for what was dropped; and kept questions suffice without replies.
    path = tmp_path / "questions.jsonl"
    model = Model(lambda shown, turn: "[MASK]?" if "Modafinil" in shown else f"What is it in turn {turn}?")
    with model.running() as config:
        first = ask(config, tmp_path, path)
        calls = model.calls
        again = ask(config, tmp_path)
        assert model.calls == calls
        resumed = ask(config, tmp_path, path)
        assert model.calls == calls
    assert first.texts == again.texts == resumed.texts
    assert first.counts == again.counts
    assert resumed.counts["kept"] == len(first)
    assert resumed.counts["left_out"] == first.counts["left_out"] == 2 * first.counts["triples"] - len(first)
    assert resumed.counts["dropped: contains the mask"] == 1
    rows = lines(path)
    assert len(rows) == len(first)
    assert rows[0] == {
        "tid": triple_id(ADHD),
        "h": ADHD[0],
        "r": ADHD[1],
        "t": ADHD[2],
        "side": "tail",
        "question": first.texts[0],
        "generator": first.generator,
    }


def test_interrupted_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("methods.gpr.questions.BATCH", 2)
    path = tmp_path / "questions.jsonl"
    model = Model(lambda shown, turn: "What is it then?")
    with model.running() as config:
        whole = ask(config, tmp_path)
        ask(config, tmp_path, path)
        kept = path.read_bytes()
        calls = model.calls
        for end in (0, 1, len(kept) // 2, len(kept) - 1, len(kept)):
            path.write_bytes(kept[:end])
            # Nothing but the file to go by: no cached replies.
            result = questions_of(graph_of(GRAPH), config, generator_of(config, services()), path)
            assert result.texts == whole.texts
            assert result.triples.tolist() == whole.triples.tolist()
            complete = kept[:end].count(b"\n")
            assert result.counts["kept"] == complete
            assert model.calls == calls + len(whole) - complete
            calls = model.calls
            assert sorted(path.read_bytes().splitlines()) == sorted(kept.splitlines())


def test_failed_call_is_repeated_by_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    broken = [True]

    def answer(shown: str, turn: int) -> str:
        if broken[0] and "Modafinil" in shown:
            raise Refused(400, "too long")
        return "What is it then?"

    model = Model(answer)
    with model.running() as config:
        results = ask(config, tmp_path, path)
        assert results.counts["dropped: no reply"] == 1
        broken[0] = False
        assert len(ask(config, tmp_path, path)) == len(results) + 1


def test_questions_are_stored_separately_per_model_and_prompt(tmp_path: Path) -> None:
    path, prompt = tmp_path / "questions.jsonl", tmp_path / "own.txt"
    prompt.write_text("Triple: $triple\n$side: for $$5\n", "utf-8")
    model = Model(lambda shown, turn: "What is it then?")
    with model.running() as config:
        first = ask(config, tmp_path, path)
        own = ask(config.model_copy(update={"prompt": str(prompt)}), tmp_path, path)
    assert own.generator != first.generator
    assert own.counts["kept"] == 0
    assert len(lines(path)) == 2 * len(first)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("$triple", "template-missing-placeholder"),
        ("$triple $side $answer", "template-unknown-placeholder"),
        ("$triple $side 5$", "template-lone-dollar"),
    ],
)
def test_prompt_without_its_placeholders_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text(text, "utf-8")
    with raises(says) as caught:
        PROMPT.load(path)
    assert str(path) in str(caught.value)
    with raises("unreadable-template"):
        PROMPT.load(tmp_path / "none.txt")


def test_llm_generator_without_model_options_is_refused() -> None:
    for given_options in ({"generator": "llm"}, {"generator": "cache"}, {"sides": ["head", "head"]}, {"sides": []}):
        with pytest.raises(ValueError, match=r"generator|sides"):
            QuestionsConfig.model_validate(given_options)


def line(**changes: Any) -> str:
    row = {
        "tid": triple_id(ADHD),
        "h": ADHD[0],
        "r": ADHD[1],
        "t": ADHD[2],
        "side": "tail",
        "question": "What helps then?",
        "generator": "hand",
    }
    return json.dumps({key: value for key, value in {**row, **changes}.items() if value is not ...})


def from_file(path: Path, seed: int = 0, **options: Any) -> Any:
    config = QuestionsConfig(generator="cache", path=str(path), **options)
    return questions_of(graph_of(GRAPH), config, generator_of(config, services()), seed=seed)


def test_questions_are_read_from_a_file_and_the_last_per_side_counts(tmp_path: Path) -> None:
    path = tmp_path / "given.jsonl"
    path.write_text(
        "\n".join([line(), line(question="What soothes it?"), "", line(side="head", question="Modafinil helps whom?")]), "utf-8"
    )
    result = from_file(path)
    assert result.texts == ["Modafinil helps whom?", "What soothes it?"]
    assert result.triples.tolist() == [0, 0]
    # Of five triples with names the file holds one, which every seed asks about.
    assert all(from_file(path, seed, triples=1).texts == result.texts for seed in range(5))
    assert result.counts == {"triples": 1, "unnamed": 0, "kept": 0, "left_out": 0, "accepted": 2}
    assert result.generator.startswith("cache(")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("{", "not-json"),
        ("[1]", "not-json"),
        (line(h=...), "bad-question-field"),
        (line(question=None), "bad-question-field"),
        (line(question=" "), "question-empty"),
        (line(side="relation"), "bad-side"),
        (line(t="Caffeine"), "triple-id-mismatch"),
        (line()[:-9], "not-json"),  # a file cut short
    ],
)
def test_invalid_line_is_named(tmp_path: Path, bad: str, says: str) -> None:
    path = tmp_path / "given.jsonl"
    path.write_text(f"{line()}\n\n{bad}\n", "utf-8")
    with raises(says) as caught:
        from_file(path)
    assert caught.value.where == f"{path}:3"


def test_missing_or_empty_file_or_one_about_other_triples_is_refused(tmp_path: Path) -> None:
    with raises("unreadable-questions"):
        from_file(tmp_path / "none.jsonl")
    path = tmp_path / "given.jsonl"
    path.write_text("", "utf-8")
    with raises("no-question-in-file"):
        from_file(path)
    other = ("A", "b", "C")
    path.write_text(line(tid=triple_id(other), h="A", r="b", t="C"), "utf-8")
    with raises("no-question-written"):
        from_file(path)


def test_unwritable_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with raises("system-file-exists"):
        append(tmp_path / "file" / "q.jsonl", Line(MaskedTriple(ADHD, "head"), "What is it?", "hand"))


names_of_things = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@pytest.mark.slow
@given(st.lists(st.tuples(names_of_things, names_of_things, names_of_things, names_of_things), max_size=6))
def test_written_questions_can_be_read_back(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    path = tmp_path_factory.mktemp("rows") / "q.jsonl"
    written = [Line(MaskedTriple((h, r, t), "head"), f"Q {q}", "hand") for h, r, t, q in rows]
    for item in written:
        append(path, item)
    assert (list(read_questions(path)) if rows else []) == written


def test_templates_use_the_words_of_the_relation_deterministically() -> None:
    masked = [MaskedTriple(triple, side) for triple in GRAPH for side in ("head", "tail")]
    generator = TemplateQuestions()
    result = generator.generate(masked)
    assert result == TemplateQuestions().generate(masked)
    assert result[1] in {
        "What is the treatments of Attention deficit hyperactivity disorder?",
        "Which treatments does Attention deficit hyperactivity disorder have?",
    }
    assert result[0] in {"What has Modafinil as its treatments?", "Of what is Modafinil the treatments?"}
    assert result[8:] == [None] * 4
    assert generator.counts["dropped: the relation has no words"] == 2


@given(st.tuples(names_of_things, names_of_things, names_of_things), st.sampled_from(["head", "tail"]))
def test_no_template_question_contains_its_answer(triple: Triple, side: Any) -> None:
    masked = MaskedTriple(triple, side)
    (question,) = TemplateQuestions().generate([masked])
    assert question is None or (fault(question, masked) is None and masked.visible in question)


def test_templates_refuse_a_graph_without_relations_of_worlds() -> None:
    graph = graph_of(GRAPH)
    config = QuestionsConfig()
    with raises("no-question-written"):
        questions_of(graph, config, generator_of(config, services()))


HEADS = "id\thidden\thead\trelation\ttail\tquestion"


def recorded(path: Path, *lines: str) -> Any:
    path.write_text("\n".join(lines) + "\n", "utf-8")
    config = QuestionsConfig(generator="recorded", path=str(path))
    return questions_of(graph_of(GRAPH), config, generator_of(config, services()))


def test_recorded_questions_are_read_from_a_table_and_triples_outside_the_graph_are_counted(tmp_path: Path) -> None:
    result = recorded(
        tmp_path / "table.tsv",
        HEADS,
        "0\ttail\t" + "\t".join(ADHD) + '\twhat treats "adhd" then',
        "1\thead\t" + "\t".join(ADHD) + "\twhat does modafinil treat",
        "2\ttail\tX\tr\tY\twhat is x to it",
    )
    assert result.texts == ["what does modafinil treat", 'what treats "adhd" then']
    assert result.sides.tolist() == [0, 1]
    assert result.counts == {"triples": 1, "unnamed": 0, "kept": 0, "left_out": 0, "accepted": 2, "unmatched": 1}


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ("2\ttail\tX\tr\tY", "bad-question-columns"),
        ("2\ttail\tX\tr\tY\t ", "question-empty"),
        ("2\trelation\tX\tr\tY\twhat is it", "bad-side"),
        ("2\ttail\tA\tr\tB\twhat is it", "duplicate-question"),
    ],
)
def test_invalid_line_of_recorded_questions_is_named(tmp_path: Path, bad: str, code: str) -> None:
    with raises(code, where=f"{tmp_path / 'table.tsv'}:3"):
        recorded(tmp_path / "table.tsv", HEADS, "1\ttail\tA\tr\tB\twhat is it", bad)


def test_recorded_questions_without_columns_or_lines_are_refused(tmp_path: Path) -> None:
    with raises("missing-question-column", where=f"{tmp_path / 'table.tsv'}:1"):
        recorded(tmp_path / "table.tsv", "id\thidden", "1\ttail")
    with raises("no-question-in-file"):
        recorded(tmp_path / "table.tsv", HEADS)


def test_evidence_generator_pairs_dataset_questions_with_their_evidence_triples() -> None:
    corpus = TripleCorpus.of_triples(GRAPH)
    known = [
        Question("a", "what helps with adhd", ("Modafinil",), evidence=(triple_id(ADHD),)),
        Question("b", "who takes modafinil", ("x",), evidence=(triple_id(ADHD), triple_id(GRAPH[2]))),
    ]
    reference = DataReference("webqsp", split="test")
    benchmark = Benchmark(reference, 1, resolve(reference)[1].card, known, corpus)
    config = QuestionsConfig(generator="evidence")
    result = questions_of(graph_of(GRAPH), config, generator_of(config, services(), lambda: [benchmark]))
    # The first question keeps the triple that both have; a triple without a name belongs to the evidence too.
    assert result.texts == ["what helps with adhd", "who takes modafinil"]
    assert result.triples.tolist() == [0, 2]

"""Chained roles: the input of each stage and the resulting prediction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.corpus import Corpus
from benchmarks.schema import Passage, Query
from methods.api import Answer, Context, Evidence, Method, Prediction, Ranking, Retriever, Services, Usage
from methods.flow import ContractError
from methods.pipeline import DEPTH, Composition, Pipeline, assemble, index_folder, predictions
from methods.registry import METHODS, Component
from tests.support.errors import raises

NAMES = [f"p{number:03}" for number in range(150)]
CORPUS = Corpus.of(Passage(name, "", f"text of {name}") for name in NAMES)


class InOrder:
    """Retriever that ranks the corpus in its order."""

    batch_size = 32

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.indexed = 0

    def index(self, corpus: Corpus, folder: Path | None = None) -> InOrder:
        self.indexed += 1
        self.ids = corpus.ids
        return self

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        self.batches.append(len(queries))
        return [Ranking(q.id, self.ids[:k], tuple(float(-r) for r in range(len(self.ids[:k])))) for q in queries]


class Backwards:
    def rerank(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus) -> list[Ranking]:
        return [Ranking(r.query_id, r.ids[::-1], tuple(map(float, range(len(r.ids), 0, -1)))) for r in rankings]


class Shorten:
    def compress(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus, budget: int | None) -> list[Context]:
        return [
            Context(r.query_id, (Passage("c", "", f"{len(r.ids)} passages within {budget}"),), usage=Usage(memory_tokens=7))
            for r in rankings
        ]


class Echo:
    """Reader that answers with the texts of its context."""

    batch_size = 4

    def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
        usage = Usage(prompt_tokens=3, model_calls=1)
        return [Answer("|".join(p.text for p in c.passages), usage, {"support": [c.query_id]}) for c in contexts]


def queries(count: int, **fields: Any) -> list[Query]:
    return [Query(f"q{number}", "?", **fields) for number in range(count)]


def answers(pipeline: Pipeline, requests: Sequence[Query], corpus: Corpus = CORPUS) -> list[Any]:
    pipeline.index(corpus)
    order = [query.id for query in requests]
    return sorted(pipeline.answer(requests), key=lambda prediction: order.index(prediction.question_id))


def test_reader_gets_k_passages_and_evidence_is_the_whole_ranking() -> None:
    prediction = answers(Pipeline(InOrder(), Echo(), k=2), queries(1))[0]
    assert prediction.answer == "text of p000|text of p001"
    assert prediction.evidence == tuple(Evidence(name, float(-rank)) for rank, name in enumerate(NAMES[:DEPTH]))


def test_rerankers_decide_the_read_passages_and_the_final_order() -> None:
    once = answers(Pipeline(InOrder(), Echo(), k=1, depth=10, rerankers=[Backwards()]), queries(1))[0]
    assert once.answer == "text of p009"
    assert [item.id for item in once.evidence] == NAMES[9::-1]
    twice = answers(Pipeline(InOrder(), Echo(), k=1, depth=10, rerankers=[Backwards(), Backwards()]), queries(1))[0]
    assert [item.id for item in twice.evidence] == NAMES[:10]


def test_reader_gets_the_passages_selected_by_any_reranker() -> None:
    class Selecting:
        def rerank(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus) -> list[Ranking]:
            return [replace(r, selected=frozenset(r.ids[2:9:3])) for r in rankings]

    for later, k, read in (((), 2, (2, 5)), ((Backwards(),), 5, (8, 5, 2))):
        (prediction,) = answers(Pipeline(InOrder(), Echo(), k=k, depth=10, rerankers=[Selecting(), *later]), queries(1))
        assert prediction.answer == "|".join(f"text of p00{number}" for number in read)
        assert len(prediction.evidence) == 10


def test_compressor_gets_k_passages_and_its_cost_is_counted() -> None:
    prediction = answers(Pipeline(InOrder(), Echo(), k=3, compressor=Shorten(), budget=9), queries(1))[0]
    assert prediction.answer == "3 passages within 9"
    assert (prediction.usage.memory_tokens, prediction.usage.prompt_tokens) == (7, 3)
    assert set(prediction.usage.seconds) == {"retrieve", "compress", "read", "wait"}
    assert len(prediction.evidence) == DEPTH


def test_k_above_depth_increases_the_depth() -> None:
    assert len(answers(Pipeline(InOrder(), Echo(), k=120, depth=10), queries(1))[0].evidence) == 120


def test_questions_are_drawn_lazily_and_batched_by_the_roles_batch_size() -> None:
    retriever, drawn = InOrder(), []
    retriever.batch_size = 4

    def source() -> Iterator[Query]:
        for query in queries(20):
            drawn.append(query.id)
            yield query

    pipeline = Pipeline(retriever, Echo())
    pipeline.index(CORPUS)
    stream = pipeline.answer(source())
    first = next(stream).question_id
    assert len(drawn) == pipeline.in_flight == 8
    assert sorted([first, *(prediction.question_id for prediction in stream)]) == sorted(drawn)
    assert max(retriever.batches) == 4
    assert sum(retriever.batches) == 20


@pytest.mark.slow
def test_seconds_of_a_batch_are_shared_and_waiting_is_separate() -> None:
    class Slow(Echo):
        def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
            time.sleep(0.5)
            return super().read(queries, contexts)

    usages = [prediction.usage.seconds for prediction in answers(Pipeline(InOrder(), Slow()), queries(8))]
    # Two batches of four: half a second each, a quarter of it a question's own; the second waits for the first.
    assert all(0.12 <= seconds["read"] < 0.49 for seconds in usages)
    assert sum(seconds["wait"] >= 0.4 for seconds in usages) == 4


def test_program_without_stages_has_one_answer_stage() -> None:
    async def program(query: Query) -> Prediction:
        await asyncio.sleep(0.1)
        return Prediction(query.id, "", usage=Usage(seconds={"own": 1.0} if query.id == "q1" else {}))

    plain, own = sorted(predictions(program, queries(2), 2), key=lambda prediction: prediction.question_id)
    assert plain.usage.seconds.keys() == {"answer", "wait"}
    assert 0.09 < plain.usage.own_s < 5
    assert own.usage.own_s == 1.0


def test_cost_and_notes_of_a_reranker_reach_the_prediction_once() -> None:
    class Costly(InOrder):
        def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
            return [replace(ranking, usage=Usage(model_calls=1)) for ranking in super().retrieve(queries, k)]

    class Asking:
        async def rerank_one(self, query: Query, ranking: Ranking, corpus: Corpus) -> Ranking:
            return Ranking(query.id, ranking.ids, ranking.scores, Usage(model_calls=4, prompt_tokens=9), {"asking": 4})

    class Cutting:
        def rerank(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus) -> list[Ranking]:
            return [ranking.top(3) for ranking in rankings]

    (prediction,) = answers(Pipeline(Costly(), Echo(), rerankers=[Cutting(), Asking(), Cutting()]), queries(1))
    assert (prediction.usage.model_calls, prediction.usage.prompt_tokens) == (1 + 4 + 1, 9 + 3)
    assert prediction.notes["asking"] == 4


@pytest.mark.parametrize("count", [1, 20])
def test_error_of_a_role_fails_only_its_question(count: int) -> None:
    class Picky(Echo):
        bad = frozenset(("q0", "q17"))

        def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
            if self.bad & {query.id for query in queries}:
                raise ValueError("not this one")
            return super().read(queries, contexts)

    whole = answers(Pipeline(InOrder(), Echo()), queries(count))
    picky = answers(Pipeline(InOrder(), Picky()), queries(count))
    failed = {p.question_id: p.notes["failed"] for p in picky if "failed" in p.notes}
    assert set(failed) == {p.question_id for p in whole} & Picky.bad
    assert all(reason.startswith("ValueError: not this one (read, test_pipeline.py line ") for reason in failed.values())
    assert [p.answer for p in picky if "failed" not in p.notes] == [p.answer for p in whole if p.question_id not in Picky.bad]


def test_role_with_batch_and_single_form_is_refused() -> None:
    class Both(Echo):
        async def read_one(self, query: Query, context: Context) -> Answer:
            return Answer("")

    with pytest.raises(RuntimeError, match="one form"):
        answers(Pipeline(InOrder(), Both()), queries(1))


def test_closed_book_queries_never_reach_the_index() -> None:
    retriever = InOrder()
    mixed = [Query("q0", "?", candidates=()), Query("q1", "?"), Query("q2", "?", candidates=())]
    closed, open_one, also_closed = answers(Pipeline(retriever, Echo(), k=1), mixed)
    assert (closed.answer, closed.evidence, also_closed.answer) == ("", (), "")
    assert open_one.answer == "text of p000"
    assert retriever.batches == [1]


def test_empty_corpus_needs_no_index() -> None:
    retriever = InOrder()
    assert answers(Pipeline(retriever, Echo()), queries(2), Corpus.of([]))[1].answer == ""
    assert retriever.indexed == 0


def test_role_that_returns_results_out_of_order_is_an_error() -> None:
    class Shifted(InOrder):
        def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
            return super().retrieve(queries, k)[::-1]

    with pytest.raises(RuntimeError, match="Shifted must return one result per query, in order"):
        answers(Pipeline(Shifted(), Echo()), queries(2))


def test_reader_that_drops_an_answer_is_an_error() -> None:
    class Dropping(Echo):
        def read(self, queries: Sequence[Query], contexts: Sequence[Context]) -> list[Answer]:
            return super().read(queries, contexts)[1:]

    with pytest.raises(RuntimeError, match="1 results to 2 queries"):
        answers(Pipeline(InOrder(), Dropping()), queries(2))


def test_answering_before_indexing_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="index"):
        list(Pipeline(InOrder(), Echo()).answer(queries(1)))


def test_retriever_without_reader_gets_the_default_reader_in_its_description(ground: Any) -> None:
    alone, spelled_out = (Composition(Component.of("bm25")), Composition(Component.of("bm25"), Component.of("extractive")))
    assert alone.fingerprint == spelled_out.fingerprint
    assert alone.describe()["reader"]["id"] == "extractive"
    options: list[Any] = []
    for composition in (alone, spelled_out):
        method = composition.build(Services())
        assert isinstance(method, Method)
        method.index(ground.corpus)
        options.append([p.answer for p in method.answer([question.query() for question in ground.questions])])
    assert options[0] == options[1]
    assert all(options[0])


def test_every_part_changes_the_fingerprint() -> None:
    bm25, reader = Component.of("bm25"), Component.of("retrieval_only")
    made = [
        Composition(bm25),
        Composition(bm25, reader),
        Composition(bm25, reader, k=3),
        Composition(bm25, reader, depth=3),
        Composition(Component.of("bm25", {"k1": 1.2}), reader),
        Composition(Component.of("random"), reader),
    ]
    assert len({composition.fingerprint for composition in made}) == len(made)


def test_full_context_reads_all_passages_unless_k_is_set(ground: Any) -> None:
    question = next(q for q in ground.questions if q.candidates)
    assert question.candidates is not None
    for k, expected in ((None, 10), (2, 2)):
        method = assemble(Component.of("full_context"), Services(), k=k)
        assert isinstance(method, Pipeline)
        method.reader = Echo()
        prediction = answers(method, [question.query()], ground.corpus)[0]
        assert [item.id for item in prediction.evidence] == list(question.candidates)
        assert len(prediction.answer.split("|")) == expected


def test_full_context_of_a_whole_corpus_is_refused(ground: Any) -> None:
    question = next(q for q in ground.questions if q.candidates is None)
    with raises("full-context-without-candidates"):
        answers(assemble(Component.of("full_context"), Services()), [question.query()], ground.corpus)  # type: ignore[arg-type]


def test_indexes_are_stored_per_retriever_and_corpus(ground: Any, tmp_path: Path) -> None:
    services, bm25 = Services(artifacts=tmp_path), Component.of("bm25")
    assemble(bm25, services).index(ground.corpus)
    folder = index_folder(bm25, ground.corpus, services)
    assert folder is not None
    assert (folder / "complete.json").exists()
    assert folder != index_folder(Component.of("bm25", {"k1": 1.2}), ground.corpus, services)
    assert folder != index_folder(bm25, CORPUS, services)
    assert index_folder(bm25, ground.corpus, Services()) is None


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"method": "extractive"}, "part-without-answers"),
        ({"method": "bm25", "reader": "bm25"}, "wrong-kind"),
        ({"method": "bm25", "compressor": "extractive"}, "wrong-kind"),
        ({"method": "bm25", "k": 0}, "number-too-small"),
    ],
)
def test_incompatible_parts_are_refused_before_building(parts: dict[str, Any], message: str) -> None:
    made = {name: Component.of(value) if isinstance(value, str) else value for name, value in parts.items()}
    with raises(message):
        Composition(**made)


def test_control_that_answers_itself_refuses_a_reader() -> None:
    with raises("parts-of-whole-method"):
        assemble(Component.of("gold_answer"), Services(), reader=Component.of("extractive"))


@pytest.mark.slow
def test_registered_retrievers_build_a_retriever_and_not_a_method(offline_options: dict[str, dict[str, Any]]) -> None:
    for entry in METHODS:
        # baselines/test_graph.py builds retrievers of triples.
        if entry.kind == "retriever" and not entry.over_triples:
            built = entry.factory(entry.validate(offline_options.get(entry.id, {})), Services(device="cpu"))
            assert isinstance(built, Retriever)
            assert not isinstance(built, Method)


class Unprintable(Exception):
    """Exception with a message that cannot be printed."""

    def __init__(self, raised: type[BaseException]) -> None:
        self.raised = raised

    def __str__(self) -> str:
        raise self.raised


@pytest.mark.parametrize("error", [Unprintable(ValueError), Unprintable(SystemExit), SystemExit(5)], ids=["str", "str exits", "exit"])
def test_error_without_a_message_and_system_exit_fail_only_one_question(error: BaseException) -> None:
    async def program(query: Query) -> Prediction:
        if query.id == queries(1)[0].id:
            raise error
        return Prediction(query.id, "Lyon")

    done = list(predictions(program, queries(3), 1))
    assert [prediction.notes.get("cause") for prediction in done] == ["code", None, None]
    assert done[0].notes["failed"].startswith(f"{type(error).__name__}: ")
    assert [prediction.answer for prediction in done] == ["", "Lyon", "Lyon"]


class Unscored(InOrder, Backwards):
    """Retriever and reranker whose rankings have ids without scores."""

    def retrieve(self, queries: Sequence[Query], k: int) -> list[Ranking]:
        return [replace(ranking, scores=()) for ranking in super().retrieve(queries, k)]

    def rerank(self, queries: Sequence[Query], rankings: Sequence[Ranking], corpus: Corpus) -> list[Ranking]:
        return [replace(ranking, scores=ranking.scores[:1]) for ranking in rankings]


@pytest.mark.parametrize(("retriever", "rerankers"), [(Unscored(), []), (InOrder(), [Unscored()])])
def test_ids_without_scores_break_the_contract(retriever: Any, rerankers: list[Any]) -> None:
    with pytest.raises(ContractError):
        answers(Pipeline(retriever, Echo(), rerankers=rerankers), queries(1))

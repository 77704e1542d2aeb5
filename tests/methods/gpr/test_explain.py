"""`ragmeter explain gpr`: two rankings, the positions of answers, and the picture of the graph."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.corpus import Corpus
from benchmarks.graphs import TripleCorpus
from benchmarks.registry import Benchmark, load
from benchmarks.schema import Passage, Question, Triple, triple_id
from methods.api import Services
from methods.gpr.config import GprTrainingConfig
from methods.gpr.explain import Drawing, GprExplainConfig, explain, svg
from methods.gpr.train import Towers
from methods.graphs.triples import linearize
from methods.registry import EXPLAINERS, Explanation
from tests.support.errors import raises

torch = pytest.importorskip("torch")
SERVICES = Services(device="cpu")
JAMAICA: tuple[Triple, ...] = (
    ("Jamaica", "location.country.languages_spoken", "Jamaican English"),
    ("Jamaican Creole", "language.countries_spoken_in", "Jamaica"),
    ("The Blue Lagoon", "film.language", "English Language"),
    ("Jamaica", "near", "Jamaica"),
)


@pytest.fixture(scope="module")
def checkpoint(tiny_models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save two towers with random weights and the card of a training; the triple tower is changed like in training."""
    import transformers

    torch.manual_seed(3)
    base, folder = tmp_path_factory.mktemp("base"), tmp_path_factory.mktemp("towers")
    model = transformers.BertModel(tiny_models.config("Bert", len(tiny_models.tokenizer("bert"))))
    tiny_models.save(base, "bert", tiny_models.scaled(model))
    config = GprTrainingConfig.model_validate({"graph": ["worlds/graph:train"], "base": str(base)})
    towers = Towers.load(config, "cpu")
    with torch.no_grad():
        for weights in towers.modules["triple"].parameters():
            weights.add_(0.4 * torch.randn_like(weights))
    towers.save(folder / "question", folder / "triple")
    card = {"method": "gpr", "config": config.model_dump(mode="json")}
    (folder / "ragmeter.json").write_text(json.dumps(card), "utf-8")
    return str(folder)


def asked(triples: tuple[Triple, ...], *answers: str) -> tuple[Question, Corpus]:
    """Return a question over some triples of a corpus."""
    ids = tuple(triple_id(triple) for triple in triples)
    question = Question(
        "q", "What does jamaican people speak?", answers, answer_set=True, candidates=ids, evidence=ids[:1], topic_entities=("Jamaica",)
    )
    return question, TripleCorpus.of_triples([*triples, ("Somewhere", "else.is", "Anything")])


def explained(checkpoint: str, question: Question, corpus: Corpus, **options: object) -> Explanation:
    config = GprExplainConfig.model_validate({"checkpoint": checkpoint, **options})
    config.preflight()
    return explain(question, corpus, config, SERVICES)


def ranks(text: str, side: int, result: Explanation) -> list[int]:
    return [row[0] for row in result.tables[0].rows if row[side] == text]


@pytest.mark.slow
def test_explanation_shows_rankings_before_and_after_training(checkpoint: str) -> None:
    question, corpus = asked(JAMAICA, "Jamaican English", "Jamaican Creole", "Spanish")
    result = explained(checkpoint, question, corpus)
    side_by_side, answers = result.tables
    assert [row[0] for row in side_by_side.rows] == [1, 2, 3, 4]
    texts = {linearize(item) for item in JAMAICA}
    assert {row[1] for row in side_by_side.rows} == {row[4] for row in side_by_side.rows} == texts
    assert [row[1] for row in side_by_side.rows] != [row[4] for row in side_by_side.rows]
    for column in (2, 5):
        cosines = [float(row[column]) for row in side_by_side.rows]
        assert cosines == sorted(cosines, reverse=True)
    marks = {row[4]: row[6] for row in side_by_side.rows}
    assert marks["Jamaica languages_spoken Jamaican English"] == "answer, reference"
    assert marks["Jamaican Creole countries_spoken_in Jamaica"] == "answer"
    assert marks["The Blue Lagoon language English Language"] == ""
    by_answer = {row[0]: row[1:] for row in answers.rows}
    assert set(by_answer) == {"Jamaican English", "Jamaican Creole"}
    here = "Jamaican Creole countries_spoken_in Jamaica"
    assert by_answer["Jamaican Creole"] == (*ranks(here, 1, result), *ranks(here, 4, result))
    assert result.summary.endswith("GPR's first 10 name 2, those of the untrained towers 2.")


@pytest.mark.slow
def test_untrained_ranking_uses_the_base_models_of_the_training(checkpoint: str, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    question, corpus = asked(JAMAICA, "Jamaican English")
    base = json.loads((Path(checkpoint) / "ragmeter.json").read_text())["config"]["base"]
    towers = {1: (base, base), 4: (f"{checkpoint}/question", f"{checkpoint}/triple")}
    rows = explained(checkpoint, question, corpus).tables[0].rows
    for column, (asking, rendering) in towers.items():
        vectors = [SentenceTransformer(model, device="cpu") for model in (asking, rendering)]
        for item, model in zip(vectors, (asking, rendering), strict=True):
            if model == base:
                item[1].pooling_mode = "cls"
        query = vectors[0].encode([question.text], normalize_embeddings=True)[0]
        texts = [linearize(item) for item in JAMAICA]
        cosines = dict(zip(texts, vectors[1].encode(texts, normalize_embeddings=True) @ query, strict=True))
        for row in rows:
            assert float(row[column + 1]) == pytest.approx(cosines[row[column]], abs=2e-4)


@pytest.mark.slow
def test_explanation_accepts_options_k_and_scope(checkpoint: str) -> None:
    question, corpus = asked(JAMAICA, "Jamaican English")
    assert len(explained(checkpoint, question, corpus, k=2).tables[0].rows) == 2
    everywhere = explained(checkpoint, question, corpus, scope="global")
    assert "Somewhere is Anything" in {row[4] for row in everywhere.tables[0].rows}


@pytest.mark.slow
def test_graphs_without_answers_or_triples_are_reported(checkpoint: str) -> None:
    question, corpus = asked(JAMAICA, "Spanish")
    outside = explained(checkpoint, question, corpus)
    assert "None of its answers is in the graph of 4 triples" in outside.summary
    assert outside.tables[1].rows == ()
    empty = explained(checkpoint, replace(question, candidates=(), evidence=()), corpus)
    assert "Its graph is empty" in empty.summary
    assert empty.picture is None


def test_questions_and_options_that_cannot_be_explained_are_refused(checkpoint: str, tmp_path: Path) -> None:
    question, corpus = asked(JAMAICA, "Spanish")
    with raises("question-without-graph"):
        explained(checkpoint, replace(question, candidates=None), corpus)
    with raises("triples-over-passages"):
        explained(checkpoint, question, Corpus.of([Passage("p", "", "text")]))
    with raises("not-checkpoint"):
        GprExplainConfig.model_validate({"checkpoint": str(tmp_path)}).preflight()
    (tmp_path / "ragmeter.json").write_text('{"method": "gpr", "config": {"base": "x"}}', "utf-8")
    with raises("checkpoint-card-incomplete"):
        _ = GprExplainConfig.model_validate({"checkpoint": str(tmp_path)}).training


def test_explainer_is_found_by_the_name_of_its_method() -> None:
    assert EXPLAINERS.get("gpr").config is GprExplainConfig


@pytest.mark.slow
def test_questions_about_worlds_and_real_graphs_are_explained(checkpoint: str, data_folder: Path) -> None:
    world = load("worlds/graph:test", {"questions": 5})
    path = str(data_folder / "webqsp" / "rog_style_webqsp.jsonl")
    for benchmark in (world, load("webqsp:test", {"path": path})):
        question = _with_graph(benchmark)
        result = explained(checkpoint, question, benchmark.corpus)
        assert len(result.tables[0].rows) == min(10, len(question.candidates or ()))
        assert result.picture is not None
        ET.fromstring(result.picture)


def _with_graph(benchmark: Benchmark) -> Question:
    return next(question for question in benchmark.questions if question.candidates and question.answers)


SVG = "{http://www.w3.org/2000/svg}"


def test_picture_shows_each_entity_and_triple_once() -> None:
    picture = svg(Drawing(JAMAICA[:2], JAMAICA[1:], ["Jamaican English"], ["Jamaica"]))
    assert picture is not None
    tree = ET.fromstring(picture)
    nodes = {node.findtext(f"{SVG}title"): node.get("class") for node in tree.iter(f"{SVG}circle")}
    assert nodes["Jamaica"] == "node topic"
    assert nodes["Jamaican English"] == "node answer"
    assert len(nodes) == 5
    edges = [(edge.findtext(f"{SVG}title"), edge.get("class")) for edge in tree.iter(f"{SVG}path") if edge.get("class")]
    assert [title for title, _ in edges] == [" – ".join(item) for item in JAMAICA]
    assert [kind for _, kind in edges] == ["edge first", "edge first", "edge", "edge"]


def test_triples_between_the_same_two_entities_do_not_cover_each_other() -> None:
    many = [("a", "r.one", "b"), ("b", "r.two", "a"), ("a", "r.three", "b"), ("b", "r.four", "a"), ("a", "s", "a")]
    tree = ET.fromstring(svg(Drawing(many, [])) or "")
    paths = [edge.get("d") for edge in tree.iter(f"{SVG}path") if edge.get("class")]
    bends = {path.partition("Q")[2].split()[0] if "Q" in (path or "") else path for path in paths if path}
    assert len(bends) == len(many)


TEXT = st.text(max_size=8)


@given(st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=30), st.lists(TEXT, max_size=3))
def test_picture_is_valid_svg_for_any_names(triples: list[Triple], answers: list[str]) -> None:
    picture = svg(Drawing(triples[:20], triples[20:], answers, answers), most=12)
    assert (picture is None) == (not triples)
    if picture is not None:
        tree = ET.fromstring(picture)
        names = {name for head, _, tail in triples for name in (head, tail)}
        assert len(list(tree.iter(f"{SVG}circle"))) == min(12, len(names))
        assert ("not drawn" in picture) == (len(names) > 12)

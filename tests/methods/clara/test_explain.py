"""Explanations of CLaRa: topics by the logit lens, rankings, reconstructed documents, pictures of states."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from methods.api import Services
from methods.clara import explain as picture
from methods.clara.explain import ClaraExplainConfig, States, Topics, explain, paraphrase_from_memory, topics
from methods.clara.model import Clara
from methods.clara.prompts import PARAPHRASES
from methods.registry import shortened


@pytest.fixture(scope="module")
def clara(tiny_clara: str) -> Clara:
    return Clara.load(Path(tiny_clara), "cpu")


def test_topics_are_the_words_with_the_highest_logits_without_the_final_norm(clara: Clara) -> None:
    text = "where did she live"
    (result,) = topics(clara, [text], "reasoner", top=5)
    with torch.inference_mode():
        memory = clara.encode([text], "reasoner").memory[0]
        # Row by row, and over the base's own vocabulary.
        logits = memory @ clara.base.get_output_embeddings().weight.T
    assert len(result.positions) == clara.memory_tokens
    special = set(clara.tokenizer.all_special_ids)
    for position, row in zip(result.positions, logits, strict=True):
        best = torch.sort(row, descending=True, stable=True).indices[:5].tolist()
        texts = [clara.tokenizer.decode([item]).strip() for item in best if item not in special]
        assert set(position) <= set(texts)
        # Byte-level tokens are single characters, and those are left out.
        assert all(len(word) > 1 for word in position)


def test_topics_of_whole_words_are_ordered_by_logit(toy: ModuleType, tmp_path: Path) -> None:
    clara = Clara.open(toy.model_config(toy.save_base(tmp_path)), device="cpu")
    (result,) = topics(clara, ["what is key3"], "compressor", top=7)
    with torch.inference_mode():
        memory = clara.encode(["what is key3"]).memory[0]
        best = (memory @ clara.base.get_output_embeddings().weight[: clara.tokens.first].T).topk(7).indices
    words = [
        [clara.tokenizer.decode([item]).strip() for item in row if item not in clara.tokenizer.all_special_ids] for row in best.tolist()
    ]
    assert [list(position) for position in result.positions] == [[w for w in row if len(w) > 1] for row in words]
    assert all(len(position) >= 3 for position in result.positions)


def test_topics_exclude_special_tokens_punctuation_and_single_characters(clara: Clara, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {0: "<pad>", 5: " NFL", 6: "...", 7: "a", 8: "  ", 9: "Oklahoma", 10: " NFL", 11: "12"}
    monkeypatch.setattr(clara.tokenizer, "decode", lambda ids: names.get(ids[0], "?"))
    (result,) = topics(clara, ["text"], "reasoner", top=10_000)
    assert {word for position in result.positions for word in position} == {"NFL", "Oklahoma", "12"}
    assert all(len(position) == 3 for position in result.positions)


def test_words_added_by_the_reasoner_are_in_documents_but_not_in_the_question() -> None:
    result = Topics((("NFL", "yards", "Oklahoma"), ("oklahoma", "zebra", "NFL", "laho")))
    assert result.union == ("NFL", "yards", "Oklahoma", "oklahoma", "zebra", "laho")
    added = result.result("How many YARDS did he get?", ["He played for Oklahoma, then in the NFL: 1,925 yards."])
    assert added == ("NFL", "Oklahoma", "oklahoma")


def test_explanation_has_the_models_ranking_and_answer(tiny_clara: str, clara: Clara, ground: Any) -> None:
    question = next(question for question in ground.questions if question.candidates is not None)
    config = ClaraExplainConfig.model_validate({"model": tiny_clara, "k": 2, "shown": 6, "max_new_tokens": 4})
    result = explain(question, ground.corpus, config, Services(device="cpu"))
    ranking, positions, documents = result.tables
    with torch.inference_mode():
        texts = [passage.full_text for passage in ground.corpus.get(question.candidates)]
        scores = clara.similarity(clara.encode([question.text], "reasoner").memory, clara.encode(texts).memory)[0]
    expected = [texts[position] for position in torch.argsort(scores, descending=True, stable=True).tolist()][:6]
    assert [row[4] for row in ranking.rows] == [shortened(text, 100) for text in expected]
    assert [row[2] for row in ranking.rows] == ["read", "read", "", "", "", ""]
    assert {row[3] for row in ranking.rows} <= {"", "evidence"}
    assert [row[0] for row in positions.rows] == list(range(1, clara.memory_tokens + 1))
    assert len(documents.rows) == 2 * clara.memory_tokens
    assert question.text in result.summary
    assert "Of 1 documents of evidence" in result.summary


def test_question_without_candidates_is_explained_over_the_whole_corpus(tiny_clara: str, ground: Any) -> None:
    question = next(question for question in ground.questions if question.candidates is None)
    config = ClaraExplainConfig.model_validate({"model": tiny_clara, "shown": 50, "max_new_tokens": 2})
    result = explain(question, ground.corpus, config, Services(device="cpu"))
    assert len(result.tables[0].rows) == len(ground.corpus)
    assert sum(row[3] == "evidence" for row in result.tables[0].rows) == 1


def test_documents_are_reconstructed_from_their_own_memory(clara: Clara, ground: Any) -> None:
    texts = [passage.full_text for passage in ground.corpus[:6]]
    together = paraphrase_from_memory(clara, texts, seed=1, max_new_tokens=5, batch_size=4)
    assert [item.document for item in together] == texts
    assert all(0 <= item.wording < PARAPHRASES for item in together)
    assert len({item.wording for item in together}) > 1
    (alone,) = paraphrase_from_memory(clara, texts[2:3], seed=1, max_new_tokens=5)
    assert alone == together[2]
    assert len({item.text for item in together}) > 1
    assert paraphrase_from_memory(clara, []) == []


@pytest.mark.slow
def test_explanation_adds_paraphrases_of_the_read_documents_on_request(tiny_clara: str, ground: Any) -> None:
    question = next(question for question in ground.questions if question.candidates is not None)
    options = {"model": tiny_clara, "k": 2, "max_new_tokens": 2}
    query = ClaraExplainConfig.model_validate({**options, "paraphrase": True})
    *tables, rephrased = explain(question, ground.corpus, query, Services(device="cpu")).tables
    assert [row[0] for row in rephrased.rows] == [1, 2]
    clara = Clara.load(Path(tiny_clara), "cpu")
    assert [row[2] for row in rephrased.rows] == [item.text for item in paraphrase_from_memory(clara, [str(r[1]) for r in rephrased.rows])]
    plain = explain(question, ground.corpus, ClaraExplainConfig.model_validate(options), Services(device="cpu"))
    assert [table.rows for table in plain.tables] == [table.rows for table in tables]


def test_principal_components_preserve_distances_of_planar_data() -> None:
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(40, 2)) * [5.0, 1.0]
    turned = np.linalg.qr(rng.normal(size=(7, 7)))[0][:2]
    plane = picture.projected(flat @ turned + 3, "pca")

    def distances(points: np.ndarray) -> np.ndarray:
        return np.linalg.norm(points[:, None] - points[None], axis=-1)

    np.testing.assert_allclose(distances(plane), distances(flat), atol=1e-9)
    assert plane[:, 0].var() >= plane[:, 1].var()
    assert np.array_equal(picture.projected(-(flat @ turned), "pca").shape, (40, 2))


@pytest.mark.slow
@pytest.mark.parametrize("projection", ["pca", "tsne"])
def test_picture_shows_both_states_of_every_document_within_its_frame(projection: Any) -> None:
    rng = np.random.default_rng(0)
    result = States(rng.normal(size=(12, 5)), rng.normal(size=(12, 5)) + 4)
    root = ElementTree.fromstring(picture.svg(result, projection))
    dots = [item for item in root.iter("{http://www.w3.org/2000/svg}circle") if item.get("r") == "2.5"]
    assert [dot.get("class") for dot in dots] == ["document"] * 12 + ["memory"] * 12
    assert all(0 <= float(dot.get(name, "nan")) <= picture.SIZE for dot in dots for name in ("cx", "cy"))
    assert picture.svg(result, projection) == picture.svg(result, projection)


def test_picture_of_one_or_no_document_can_be_drawn() -> None:
    for count in (0, 1):
        result = States(np.ones((count, 4)), np.zeros((count, 4)))
        ElementTree.fromstring(picture.svg(result, "pca"))
        assert result.distance == count


def test_distance_of_states_equals_the_alignment_loss(clara: Clara, ground: Any) -> None:
    texts = [passage.full_text for passage in ground.corpus[:5]]
    with torch.inference_mode():
        expected = float(clara.alignment(clara.encode(texts)))
    assert picture.states(clara, texts).distance == pytest.approx(expected, rel=1e-5)

"""Guessing an app's request format and the paths of answer and contexts in its reply."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from methods.apps.guess import guess, try_app
from tests.support.app import Asked, app

LONG = "Lyon lies on the Rhône."


@pytest.mark.parametrize(
    ("reply", "options"),
    [
        ({"answer": "Lyon"}, {"answer": "answer"}),
        ("Lyon", {"answer": "$"}),
        ({"data": {"response": "Lyon"}, "text": "debug"}, {"answer": "data.response"}),
        ([{"generated_text": "Lyon"}], {"answer": "[0].generated_text"}),
        ({"id": 7, "sentence": "Lyon"}, {"answer": "sentence"}),
        ({"answer": "Lyon", "contexts": [LONG]}, {"contexts": "contexts[]"}),
        ({"answer": "Lyon", "sources": ["https://a.example/1"]}, {"answer": "answer"}),
        (
            {"answer": "Lyon", "docs": [{"content": LONG, "id": "d1", "score": 0.5, "url": "a"}, {"content": LONG, "id": 2, "score": 1}]},
            {"contexts": {"text": "docs[].content", "id": "docs[].id?", "score": "docs[].score?"}},
        ),
        ({"result": "Lyon", "source_documents": [{"page_content": LONG, "metadata": {"source": "a.md"}}]},
         {"answer": "result", "contexts": {"text": "source_documents[].page_content", "url": "source_documents[].metadata.source?"}}),
        ({"response": "Lyon", "source_nodes": [{"node": {"text": LONG, "id": "n"}, "score": 0.1}]},
         {"answer": "response",
          "contexts": {"text": "source_nodes[].node.text", "id": "source_nodes[].node.id?", "score": "source_nodes[].score?"}}),
        ({"answer": "Lyon", "usage": {"input_tokens": 7, "output_tokens": 2}, "cost": 0.1},
         {"usage": {"prompt_tokens": "usage.input_tokens?", "completion_tokens": "usage.output_tokens?"}, "cost": "cost?"}),
        ({"the answer": "Lyon"}, {"answer": '["the answer"]'}),
        ({"choices": [{"message": {"content": "Lyon"}}]}, {"preset": "chat"}),
        ({"choices": [{"message": {"content": "Lyon"}}], "search_results": [{"snippet": LONG}]}, {"preset": "perplexity"}),
        ({"choices": [{"message": {"content": "Lyon", "context": {"citations": []}}}]}, {"preset": "azure"}),
        ({"status": "ok", "error": "no such index"}, {}),
        ({"message": "OK", "data": {"reply_text": "Lyon", "hint": "x"}}, {}),
        ({"summary": "a city is asked for", "final_answer": "Lyon"}, {"answer": "final_answer"}),
        ({"type": "textResponse", "textResponse": "Lyon", "error": None}, {"answer": "textResponse"}),
        ({"messages": [{"type": "human", "content": "Where?"}, {"type": "ai", "content": "Lyon"}], "context": LONG},
         {"answer": "messages[-1].content"}),
        ({"type": "message", "content": [{"type": "text", "text": "Lyon"}]}, {"answer": "content"}),
        ({"output": [{"type": "message", "content": [{"type": "output_text", "text": "Lyon"}]}]}, {"answer": "output"}),
        ({"candidates": [{"content": {"parts": [{"text": "Lyon"}]}}]}, {"answer": "candidates[0].content.parts"}),
        ({"answer": ""}, {}),
        ({"answer": None}, {}),
        ([], {}),
        (7, {}),
        ("", {}),
    ],
)  # fmt: skip
def test_paths_of_answer_and_contexts_are_guessed_from_a_reply(reply: Any, options: dict[str, Any]) -> None:
    assert guess(reply) == options


def test_request_is_repeated_with_the_field_name_that_the_app_expects() -> None:
    def reply(request: Asked) -> Any:
        return {"answer": "Lyon", "docs": [{"text": LONG}]} if "query" in request.json else (422, {"detail": "query missing"}, {})

    with app(reply) as (url, requests):
        trial = try_app(url, "Where?")
    assert trial.options == {"body": {"query": "{{question}}"}, "contexts": {"text": "docs[].text"}}
    assert trial.prediction is not None
    assert (trial.prediction.answer, [item.text for item in trial.prediction.contexts or ()]) == ("Lyon", [LONG])
    assert [request.json for request in requests] == [{"question": "Where?"}, {"query": "Where?"}]


def test_answer_that_is_an_error_is_a_problem() -> None:
    with app(lambda request: {"answer": "Error: Connection error."}) as (url, _):
        trial = try_app(url, "Where?")
    assert (trial.options, trial.prediction) == ({}, None)
    assert "Connection error" in trial.problem


def test_request_is_also_repeated_if_a_missing_field_is_reported_with_status_200() -> None:
    with app(lambda request: {"reply": "Lyon"} if "messages" in request.json else {"error": "messages?"}) as (url, _):
        assert try_app(url, "Where?").options == {"body": {"messages": "{{messages}}"}, "answer": "reply"}


def test_url_with_a_question_placeholder_is_fetched_with_get() -> None:
    with app(lambda request: {"answer": request.path}) as (url, _):
        trial = try_app(f"{url}?q={{{{question}}}}", "Where is it?")
    assert trial.options == {"method": "GET", "answer": "answer"}
    assert trial.prediction is not None
    assert trial.prediction.answer == "/ask?q=Where%20is%20it%3F"


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ((200, b"<html><body>Sign in</body></html>", {"content-type": "text/html"}), "HTML"),
        ((401, {"error": "who?"}, {}), "401"),
        ((302, b"", {"location": "/login"}), "302"),
        ({"rows": []}, "rows"),
        ({"status": "error", "message": "no index"}, "no index"),
        ({"error": True, "message": "no index"}, "no index"),
    ],
)
def test_reply_without_an_answer_gives_a_reason_and_no_options(reply: Any, words: str) -> None:
    with app(lambda request: reply) as (url, requests):
        trial = try_app(url, "Where?")
    assert (dict(trial.options), trial.prediction, words in trial.problem) == ({}, None, True)
    assert trial.requests == len(requests) <= 8


def test_url_without_a_listening_server_is_tried_once_and_reported() -> None:
    with app(lambda request: {}) as (url, _):
        pass
    trial = try_app(url, "Where?")
    assert (dict(trial.options), trial.requests) == ({}, 1)
    assert trial.problem


def test_url_with_a_secret_is_refused() -> None:
    with pytest.raises(ValidationError):
        try_app("http://localhost/ask?api_key=abc123", "Where?")

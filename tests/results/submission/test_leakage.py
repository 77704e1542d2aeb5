"""Gold in prompts: what counts as a leak, what is explained, and how honest prompts of real questions fare."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks import registry
from benchmarks.corpus import Corpus
from benchmarks.registry import Benchmark
from benchmarks.schema import Passage, Question, passage_id
from benchmarks.text import sentences
from methods.api import Evidence, Prediction
from methods.baselines.controls import gold_text
from results.submission import Finding, Findings
from results.submission.leakage import Prompted, check_prompts
from results.submission.rows import PROMPT

Messages = list[dict[str, str]]
Writer = Callable[[Question, Sequence[Passage]], str | Messages]


def passage(title: str, text: str) -> Passage:
    return Passage(passage_id(title, text), title, text)


PARIS = passage("Eiffel Tower", "The Eiffel Tower stands in Paris, the capital of France.")
TITLE = passage("Paris", "A city on the Seine. It has a tower.")
OTHER = passage("Berlin Wall", "The Berlin Wall fell in 1989.")
CORPUS = Corpus.of([PARIS, TITLE, OTHER])


def question(number: int = 0, gold: str = "Paris", evidence: tuple[Passage, ...] = (PARIS,)) -> Question:
    text = f"In which city does tower {number} stand?"
    return Question(f"n{number}", text, (gold,), evidence=tuple(item.id for item in evidence))


def look(prompts: Sequence[tuple[Question, str | Messages, Sequence[Passage]]], corpus: Corpus = CORPUS) -> list[Finding]:
    rows = []
    for line, (query, prompt, delivered) in enumerate(prompts, 1):
        messages = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        evidence = tuple(Evidence(item.id, 0.0) for item in delivered)
        rows.append(Prompted(line, query, Prediction(query.id, "", evidence, notes={PROMPT: messages}), corpus))
    findings = Findings()
    check_prompts(rows, findings)
    return list(findings.all())


def codes(prompt: str | Messages, delivered: Sequence[Passage] = (PARIS,), query: Question | None = None) -> list[str]:
    return [f"{item.code}/{item.severity}" for item in look([(query or question(), prompt, delivered)])]


def test_an_answer_that_nothing_delivered_says_is_a_leak() -> None:
    assert codes("Context: the wall fell. Hint: Paris. Answer:", [OTHER]) == ["gold_in_prompt/error"]


@pytest.mark.parametrize(
    ("prompt", "delivered"),
    [
        (f"Context:\n{PARIS.text}\nAnswer:", [PARIS]),
        ("Context: stands in Paris", [PARIS]),  # cut off behind the answer
        ("Context: Paris, the capital of", [PARIS]),  # cut off before it
        ("THE  EIFFEL TOWER; stands, in: PARIS (the capital", [PARIS]),  # other spacing, case and punctuation
        (f"[1] {TITLE.title}: {TITLE.text}", [TITLE]),
        (f"Title: {TITLE.title} Text: {TITLE.text}", [TITLE]),
        ("Context: the wall fell. Answer:", [OTHER]),
        ("Parisian life, comparison", [OTHER]),  # inside of other words
    ],
)
def test_a_copy_of_what_was_delivered_explains_the_answer(prompt: str, delivered: list[Passage]) -> None:
    assert codes(prompt, delivered) == []


def test_the_question_explains_what_it_says_itself() -> None:
    query = dataclasses.replace(question(), text="Which is older, Paris or Berlin?")
    assert codes("Q: Which is older, Paris or Berlin? A:", [OTHER], query) == []
    assert codes("Q: Which is older, Paris or Berlin? The key says Paris", [OTHER], query) != []


def test_a_title_explains_one_place_a_message_and_no_more() -> None:
    prompt = f"Title: {TITLE.title} Text: {TITLE.text}\nThe answer is Paris."
    assert codes(prompt, [TITLE]) == ["gold_in_other_words/warning"]


def test_the_models_own_words_are_no_leak_where_they_are_marked() -> None:
    chat = [{"role": "user", "content": "Think."}, {"role": "assistant", "content": "Perhaps Paris?"}]
    assert codes(chat, [OTHER]) == []
    assert codes([{**chat[1], "role": "user"}], [OTHER]) != []


def many(write: Callable[[int, str], str], golds: Sequence[str], delivered: Sequence[Passage]) -> dict[str, Finding]:
    rows = [(question(number, gold), write(number, gold), delivered) for number, gold in enumerate(golds)]
    return {item.code: item for item in look(rows)}


CITIES = [f"Town{number} Bay" for number in range(40)]


def test_a_hint_in_every_prompt_is_an_error_even_where_the_passages_say_the_answer_too() -> None:
    lists = [passage(f"List {number}", f"A place called {city} is known for its tower.") for number, city in enumerate(CITIES)]
    rows = [
        (question(number, city), f"{item.text}\nGold answer: {city}\nNow answer.", [item])
        for number, (city, item) in enumerate(zip(CITIES, lists, strict=True))
    ]
    (finding,) = look(rows, Corpus.of(lists))
    assert (finding.code, finding.severity, finding.count) == ("gold_in_prompt", "error", 40)
    assert "announced by the same words" in finding.positions[0].detail
    honest = [(query, prompt.replace("Gold answer", "Not"), item) for query, prompt, item in rows]
    honest = [(query, f"{item[0].text}\nNow answer.", item) for query, _, item in honest]
    assert look(honest, Corpus.of(lists)) == []


def test_a_hint_is_known_by_one_word_where_what_precedes_it_varies() -> None:
    value = passage("List", f"Places: {'; '.join(CITIES)}.")
    rows = [(question(number, city), f"{value.text}\nTower {number}? Hint: {city}", [value]) for number, city in enumerate(CITIES)]
    (finding,) = look(rows, Corpus.of([value]))
    assert (finding.code, finding.severity, finding.count) == ("gold_in_prompt", "error", 40)


def test_the_share_is_said_and_decides_between_warning_and_error() -> None:
    few = many(lambda number, gold: f"Hint {gold}" if number < 1 else "no hint", CITIES, [OTHER])
    assert few["gold_in_prompt"].severity == "warning"
    assert "1 of 40 prompts (2.5 %)" in few["gold_in_prompt"].what
    more = many(lambda number, gold: f"Hint {gold}" if number < 4 else "no hint", CITIES, [OTHER])
    assert more["gold_in_prompt"].severity == "error"
    assert "4 of 40 prompts (10.0 %)" in more["gold_in_prompt"].what
    assert [position.line for position in more["gold_in_prompt"].positions] == [1, 2, 3, 4]


def test_what_stands_in_every_prompt_is_boilerplate() -> None:
    golds = ["yes", "no"] * 10
    assert many(lambda number, gold: "Answer yes or no.", golds, [OTHER]) == {}
    example = "Example. Q: capital of France? A: Paris. Now:"
    assert many(lambda number, gold: example, ["Paris", *CITIES[:20]], [OTHER]) == {}


def test_a_leaked_yes_is_no_boilerplate() -> None:
    result = many(lambda number, gold: f"Key: {gold}.", ["yes", "no", "maybe", "never"] * 5, [OTHER])
    assert result["gold_in_prompt"].severity == "error"


def test_rewritten_evidence_is_a_warning_with_its_share() -> None:
    prompts = ["In short, Paris has it", "It is found within Paris today", "Paris: that is where", "Go see Paris"]
    rows = [(question(number), prompt, [PARIS]) for number, prompt in enumerate(prompts)]
    (finding,) = look(rows)
    assert (finding.code, finding.severity) == ("gold_in_other_words", "warning")
    assert "4 of 4 prompts" in finding.what


def test_golds_without_tokens_and_unanswerable_questions_are_not_looked_for() -> None:
    assert codes("Hint: the", [OTHER], question(gold="The")) == []
    assert codes("Hint: Paris", [OTHER], dataclasses.replace(question(), answerable=False)) == []


def test_another_accepted_wording_counts_as_the_answer() -> None:
    query = dataclasses.replace(question(), aliases={"Paris": ("City of Light",)})
    assert codes("Hint: city of light!", [OTHER], query) == ["gold_in_prompt/error"]


@pytest.mark.parametrize("label", ['{"is_supporting": true, "text": "x"}', "isgold=1", "has_answer: yes", "'is_gold': False"])
def test_labels_of_the_evidence_are_an_error(label: str) -> None:
    assert codes(f"Passage {label}: the wall fell", [OTHER]) == ["labels_in_prompt/error"]


def test_a_passage_that_talks_about_labels_is_none() -> None:
    manual = passage("Manual", "Set has_answer: yes in the file.")
    assert look([(question(), f"{manual.text} Answer:", [manual])], Corpus.of([manual, PARIS])) == []


def test_a_positive_that_was_never_delivered_must_not_be_named() -> None:
    assert codes(f"Look at {PARIS.id}", [OTHER]) == ["gold_ids_in_prompt/error"]
    candidates = dataclasses.replace(question(), candidates=(PARIS.id, OTHER.id))
    assert codes(f"Of {PARIS.id} and {OTHER.id}", [OTHER], candidates) == []


def test_naming_just_the_positives_marks_them() -> None:
    assert codes(f"[{PARIS.id}] [{OTHER.id}]", [PARIS, OTHER]) == []
    assert codes(f"Trust {PARIS.id}!", [PARIS, OTHER]) == ["gold_marked_in_prompt/error"]
    assert codes(f"Trust {PARIS.id}!", [PARIS]) == []


def plain(query: Question, options: Sequence[Passage]) -> str:
    context = "\n\n".join(f"[{rank}] {item.title}\n{item.text}" for rank, item in enumerate(options, 1))
    return f"Answer the question, if need be with yes or no.\n\n{context}\n\nQuestion: {query.text}\nAnswer:"


def truncated(query: Question, options: Sequence[Passage]) -> str:
    context = "\n".join(f"Title: {item.title} Text: {item.text[:160]}" for item in options)
    return f"Question: {query.text}\n{context}\nAnswer yes, no or in a few words:"


def extracted(query: Question, options: Sequence[Passage]) -> list[dict[str, str]]:
    first = " ".join(sentence for item in options for sentence in sentences(item.text)[:2])
    return [{"role": "system", "content": "You answer yes or no or briefly."}, {"role": "user", "content": f"{first}\n{query.text}"}]


def prompts_of(benchmark: Benchmark, write: Writer, hint: str = "") -> list[Finding]:
    rows = []
    for query in benchmark.questions:
        value = benchmark.corpus.get((query.candidates or query.evidence)[:10])
        prompt = write(query, value)
        if hint:
            prompt = f"{prompt}{hint.format(gold=gold_text(query))}"
        rows.append((query, prompt, value))
    return look(rows, benchmark.corpus)


SETS = ["hotpotqa:train", "2wikimultihopqa:dev", "musique:train", "worlds/multihop:validation", "worlds/long:validation"]


@pytest.mark.parametrize("reference", SETS)
@pytest.mark.parametrize("write", [plain, truncated, extracted])
def test_honest_prompts_of_real_questions_are_not_refused(
    reference: str, write: Writer, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    findings = prompts_of(registry.load(reference).limited(60), write)
    assert [finding for finding in findings if finding.severity == "error"] == []
    # And hardly anything is even asked about.
    assert sum(finding.count for finding in findings) <= 3, [(finding.what, finding.positions) for finding in findings]


@pytest.mark.parametrize("reference", SETS)
def test_a_gold_hint_in_real_prompts_is_found(reference: str, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGMETER_DATA", str(data_folder))
    benchmark = registry.load(reference).limited(60)
    results = {item.code: item for item in prompts_of(benchmark, plain, " (expected: {gold})")}
    assert results["gold_in_prompt"].severity == "error"
    assert results["gold_in_prompt"].count >= 0.9 * len(benchmark.questions)

"""Templates: their format, replacements of shipped ones, and token ids of their parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import methods
from benchmarks.published_prompts import registry
from docs._site.prompts import KINDS, prompts_of, prompts_of_trainings
from methods.prompts import Options, Shipped, parse, read
from tests.support.errors import raises

ROOT = Path(methods.__file__).parents[1]
FILES = sorted(path for package in ("methods", "judges") for path in (ROOT / package).glob("**/templates/**/*.txt"))


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """Make a tokenizer like Llama's: a space before every text, `<s>` before every prompt, merged pairs of letters."""
    from tokenizers import Tokenizer, models, normalizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE(unk_token="<unk>"))
    raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    raw.train_from_iterator(["query: who passage: a b c\n", "the passage", "who query"], trainer)
    raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def test_every_shipped_template_parses_and_renders() -> None:
    assert len(FILES) > 60
    for path in FILES:
        prompt = read(path)
        values = {name: f"$x $$ {{{name}}} ---" for name in prompt.placeholders}
        if prompt.parts[0].role == "text":
            filled = [part.fill(values) for part in prompt.parts]
        else:
            filled = [message["content"] for message in prompt.messages([{}, {}], **values)]
        assert all(any(value in text for text in filled) for value in values.values()), path
        assert read(path).hash == prompt.hash


def test_consecutive_parts_of_a_role_form_one_message_and_each_parts_repeat() -> None:
    prompt = parse("system\nS\n---\nuser\n\nHead $n\n---\nuser each\n[$i] $t\n---\nuser\nTail\n\n---\nassistant\nA", "x")
    assert prompt.messages([{"i": 1, "t": "one"}, {"i": 2, "t": " two"}], n=2) == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Head 2\n[1] one\n[2]  two\nTail"},
        {"role": "assistant", "content": "A"},
    ]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (" Only $a \n", [("user", "Only {v}")]),
        ("Be brief.\n---\nSay $a", [("system", "Be brief."), ("user", "Say {v}")]),
        ("Be brief.\n--- \nSay $a", [("system", "Be brief."), ("user", "Say {v}")]),
        ("\n---\nSay $a", [("user", "Say {v}")]),
        ("options\nwhitespace: keep\n---\nuser\n Say $a\n\n---\nuser\nnow\n", [("user", " Say {v}\nnow\n")]),
    ],
)
def test_template_whitespace_is_normalized_and_values_are_verbatim(text: str, messages: list[tuple[str, str]]) -> None:
    filled = parse(text, "x").messages(a=" v\n")
    assert [(message["role"], message["content"]) for message in filled] == [(role, content.format(v=" v\n")) for role, content in messages]


def test_wordings_replace_the_previous_part() -> None:
    prompt = parse("system\nS\n---\nuser\nTell $a\n---\nor\nSay $a", "x")
    assert prompt.wordings == 2
    assert [prompt.with_wording(number).pair(a=1) for number in (0, 1)] == [("S", "Tell 1"), ("S", "Say 1")]


def test_options_are_parsed_and_enter_the_hash() -> None:
    text = "user\n$a"
    prompt = parse(f'options\nbos: none\nstop: ["\\n", "</a>"]\nmax_tokens: 7\n---\n{text}', "x")
    assert prompt.options == Options(bos="none", whitespace="strip", stop=("\n", "</a>"), max_tokens=7)
    assert prompt.hash != parse(text, "x").hash


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a\n---\nb\n---\nc", "template-without-roles"),
        ("system\nS\n---\nU", "bad-template-part"),
        ("Hello\n---\nuser\nU", "bad-template-part"),
        ("user\nU\n---\noptions\nbos: none", "bad-template-part"),
        ("or\nU", "bad-template-part"),
        ("System\nS\n---\nUser\nU", "bad-role-line"),
        ("system:\nS\n---\nuser:\nU", "bad-role-line"),
        ("system\nS\n----\nuser\nU", "bad-role-line"),
        ("---\nuser\nU", "bad-role-line"),
        ("\nuser\nU", "bad-role-line"),
        ("options\nbos: maybe\n---\nuser\nU", "unreadable-template-options"),
        ("options\nstops: x\n---\nuser\nU", "unreadable-template-options"),
        ("options\n- x\n---\nuser\nU", "unreadable-template-options"),
        ("options\nbos: none", "template-without-text"),
        (" \n", "template-without-text"),
        ("user\nU\n---\ntext\nT", "template-messages-and-parts"),
        ("system\nS\n---\nor\nT\n---\nuser\nU\n---\nor\nV\n---\nor\nW", "template-wordings-differ"),
        ("$5", "template-lone-dollar"),
    ],
)
def test_invalid_template_file_is_refused_by_name(text: str, problem: str) -> None:
    with raises(problem) as error:
        parse(text, "own.txt")
    assert error.value.where == "own.txt"


SETWISE = Shipped("methods.baselines.rerank", "setwise", optional=frozenset({"count"}), each=frozenset({"label", "passage"}))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("user\n$query\n---\nuser each\n$label", "template-missing-placeholder"),
        ("user\n$query $gold\n---\nuser each\n$label $passage", "template-unknown-placeholder"),
        ("user\n$query $passage\n---\nuser each\n$label", "placeholder-not-repeated"),
        ("user\n$query\n---\nuser each\n$label $passage\n---\nassistant\nYes.", "template-part-unused"),
        ("user\n$query\n---\nor\nAgain $query\n---\nuser each\n$label $passage", "template-part-unused"),
        ("options\nstop: [x]\n---\nuser\n$query\n---\nuser each\n$label $passage", "template-option-unused"),
        ("text\n$query $label $passage", "placeholder-not-repeated"),
    ],
)
def test_custom_file_that_does_not_match_the_shipped_template_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "own.txt"
    path.write_text(text, "utf-8")
    with raises(problem) as error:
        SETWISE.load(path)
    assert error.value.where == str(path)


def test_custom_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_bytes(b"\xef\xbb\xbfuser\r\n$query\r\n---\r\nuser each\r\n$label $passage\r\n")
    (message,) = SETWISE.load(path).messages([{"label": "A", "passage": "p"}], query="q")
    assert message == {"role": "user", "content": "q\nA p"}


def test_message_template_does_not_replace_a_completion_template(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text("user\n$query $passage", "utf-8")
    with raises("template-roles-mismatch"):
        Shipped("methods.baselines.rerank", "rank1").load(path)


def test_folder_may_contain_a_subset_of_the_templates(tmp_path: Path) -> None:
    shipped = Shipped("methods.sark", "answer")
    assert shipped.load_from(tmp_path) == shipped.load()
    (tmp_path / "answer.txt").write_text("$question $context", "utf-8")
    assert shipped.load_from(tmp_path).user == "$question $context"
    with raises("missing-folder"):
        shipped.load_from(tmp_path / "none")


def test_completion_parts_are_tokenized_separately_with_one_begin_token(tokenizer: Any) -> None:
    prompt = parse("text\nquery:\n---\ntext\n $query\n---\ntext\n\npassage: $passage", "x")
    (ids,) = prompt.token_ids(tokenizer, [{"query": "who", "passage": "a b"}])
    pieces = ("query:", " who", "\npassage: a b")
    assert ids == [1, *(number for piece in pieces for number in tokenizer(piece, add_special_tokens=False)["input_ids"])]
    assert ids != tokenizer("".join(pieces))["input_ids"]  # each piece begins with a space of the tokenizer's own
    assert parse("text\nquery: $query", "x").token_ids(tokenizer, [{"query": "who"}]) == [tokenizer("query: who")["input_ids"]]


@pytest.mark.parametrize(("text", "begins"), [("text\n<s>$a", [1]), ("text\n$a", [1]), ("options\nbos: none\n---\ntext\n$a", [])])
def test_begin_token_occurs_at_most_once(tokenizer: Any, text: str, begins: list[int]) -> None:
    (ids,) = parse(text, "x").token_ids(tokenizer, [{"a": "who"}])
    assert [number for number in ids if number == 1] == begins
    assert ids[: len(begins)] == begins


@pytest.mark.parametrize("room", [1000, 16, 12])
def test_too_long_prompt_loses_the_end_of_its_passage(tokenizer: Any, room: int) -> None:
    prompt = parse("text\nquery: $query\n---\ntext\nthe passage: $passage\n---\ntext\nwho", "x")
    rows = [{"query": "who", "passage": "a b c " * count} for count in (1, 9)]
    for full, cut in zip(prompt.token_ids(tokenizer, rows), prompt.token_ids(tokenizer, rows, room), strict=True):
        end = tokenizer("who", add_special_tokens=False)["input_ids"]
        assert len(cut) == min(room, len(full))
        assert cut == [*full[: len(cut) - len(end)], *end]
    assert prompt.frame_ids(tokenizer) == [1, *tokenizer("who", add_special_tokens=False)["input_ids"]]


def test_prompts_page_lists_every_published_prompt_with_its_license() -> None:
    rows = [*prompts_of_trainings(), *(row for kind in KINDS for row in prompts_of(kind))]
    shown = {text.split(": ")[-1] for _, text, _ in rows}
    others = {"longbench"}  # of a dataset, on its own page
    assert [name for name, entry in registry().items() if name not in others and entry.source not in shown] == []
    assert all(license for _, _, license in rows)

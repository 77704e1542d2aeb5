"""Log-likelihoods: every batching, padding and caching mode equals a loop over single tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from methods.models.causal import CausalConfig, CausalModel
from methods.models.likelihood import LikelihoodScorer, ScoredText, ScoringConfig, ScoringRequest, ScoringTemplate, label_scores

CLOSE = 1e-4
MODES = [
    {},
    {"share_prefixes": False},
    {"share_prefixes": False, "padding": "left"},
    {"smallest_prefix": 1},
    {"smallest_prefix": 1, "token_budget": 1},
    {"smallest_prefix": 1, "token_budget": 70},
    {"share_prefixes": False, "token_budget": 70},
]
STORY = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a "
    "big red ball. Tom wanted to play with the ball too. They were happy and played all day. "
)
FAMILIES = ("Llama", "Mistral", "Phi3", "Qwen3", "GPT2", "Gemma2")
WINDOW = 9


def tokenizer_for(family: str) -> Any:
    """Train a BPE tokenizer; those like Llama's put a begin token before a text, GPT-2's does not."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<pad>", "<s>", "</s>"]
    raw.train_from_iterator(
        [STORY] * 4, trainers.BpeTrainer(vocab_size=360, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    )
    if family not in {"GPT2", "Qwen3"}:
        raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>", pad_token="<pad>")


def network_for(family: str, vocabulary: int) -> Any:
    import torch
    import transformers

    torch.manual_seed(FAMILIES.index(family))
    shape = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 160,
        "initializer_range": 0.3,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    extra: dict[str, dict[str, Any]] = {
        "Mistral": {"sliding_window": WINDOW},
        "Phi3": {"sliding_window": WINDOW},
        # Two kinds of layers in one model.
        "Qwen3": {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1, "head_dim": 8},
        "Gemma2": {"sliding_window": WINDOW, "head_dim": 8, "final_logit_softcapping": 3.0},
    }
    if family == "GPT2":
        shape = {"vocab_size": vocabulary, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 160}
        shape |= {"initializer_range": 0.3, "bos_token_id": 1, "eos_token_id": 2}
    name = f"{family}LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    config = getattr(transformers, f"{family}Config")(**shape, **extra.get(family, {}))
    return getattr(transformers, name)(config)


@pytest.fixture(scope="session")
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], CausalModel]:
    """Return a cached model of a family."""
    made: dict[str, CausalModel] = {}

    def make(family: str) -> CausalModel:
        if family not in made:
            folder = tmp_path_factory.mktemp(family)
            tokenizer = tokenizer_for(family)
            tokenizer.save_pretrained(folder)
            network_for(family, len(tokenizer)).save_pretrained(folder)
            made[family] = CausalModel(CausalConfig(model=str(folder), max_new_tokens=4), "cpu")
        return made[family]

    return make


@pytest.fixture(scope="session")
def stories(data_folder: Path) -> CausalModel:
    return CausalModel(CausalConfig(model=str(data_folder / "models" / "stories260K")), "cpu")


def by_hand(model: CausalModel, prompt: list[int], target: list[int]) -> list[float]:
    """Compute token by token without batch, padding or cache, with the full softmax of the last position."""
    import torch

    values = []
    ids = list(prompt)
    with torch.inference_mode():
        for token in target:
            logits = model.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]
            values.append(float(torch.log_softmax(logits.float(), dim=-1)[token]))
            ids.append(token)
    return values


def pairs(count: int = 4) -> list[ScoredText]:
    """Return prompts with shared prefixes of all kinds and targets of several lengths."""
    words = STORY.split()
    chunks = [" ".join(words[n : n + 6 + 3 * n]) for n in range(count)]
    questions = [("Who?", " Lily"), ("What did she see?", " a big red ball"), ("Where?", " the park."), ("Why", "?")]
    grid = [ScoredText(f"Context: {c}\nQ: {q}\nA:", a) for c, (q, a) in itertools.product(chunks, questions)]
    alone = [ScoredText("Tom", " wanted to play"), ScoredText("Once upon a", " time"), grid[0]]
    same = [ScoredText("One day, she", f" {verb}") for verb in ("saw", "played", "was", "saw a")]
    return grid + alone + same


@pytest.mark.parametrize(
    "family", ["Llama", "GPT2", *(pytest.param(item, marks=pytest.mark.slow) for item in (*FAMILIES[1:4], "Gemma2", "stories260K"))]
)
def test_every_mode_equals_a_loop_over_single_tokens(family: str, request: pytest.FixtureRequest) -> None:
    real = family == "stories260K"
    model = request.getfixturevalue("stories") if real else request.getfixturevalue("load")(family)
    query = pairs()
    items = LikelihoodScorer(model).encode(query)
    expected = [by_hand(model, list(prompt), list(target)) for prompt, target in items]
    assert np.ptp([value for row in expected for value in row]) > 1
    for mode in MODES:
        scores = LikelihoodScorer(model, ScoringConfig(**mode)).score(query)
        for score, values, (_, target) in zip(scores, expected, items, strict=True):
            np.testing.assert_allclose(score.logprobs, values, atol=CLOSE, err_msg=f"{family} {mode}")
            assert score.tokens == tuple(target)
            assert score.mean == pytest.approx(sum(values) / len(values), abs=CLOSE)
            assert score.total == pytest.approx(sum(values), abs=CLOSE * len(values))


STOCK = st.lists(st.integers(3, 200), max_size=12)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    family=st.sampled_from(["Llama", "Mistral", "Qwen3", "GPT2"]),
    mode=st.sampled_from(MODES),
    stock=st.lists(STOCK, min_size=1, max_size=3),
)
def test_scores_of_a_batch_equal_those_of_single_sequences(
    load: Callable[[str], CausalModel], data: st.DataObject, family: str, mode: dict[str, Any], stock: list[list[int]]
) -> None:
    own = st.lists(st.integers(3, 200), min_size=1, max_size=6)
    prompt = st.builds(lambda head, tail: head + tail, st.sampled_from(stock), own)
    items = data.draw(st.lists(st.tuples(prompt, own), min_size=1, max_size=6))
    model = load(family)
    results = model.logprobs(items, ScoringConfig(**mode))
    for values, (head, target) in zip(results, items, strict=True):
        np.testing.assert_allclose(values, by_hand(model, head, target), atol=CLOSE)


def test_scores_do_not_depend_on_order_or_batch(stories: CausalModel) -> None:
    scorer = LikelihoodScorer(stories)
    queries = pairs()
    together = scorer.score(queries)
    for position in (0, 7, len(queries) - 1):
        np.testing.assert_allclose(scorer.score([queries[position]])[0].logprobs, together[position].logprobs, atol=CLOSE)
    for turned, score in zip(scorer.score(queries[::-1])[::-1], together, strict=True):
        np.testing.assert_allclose(turned.logprobs, score.logprobs, atol=CLOSE)
    assert scorer.score([]) == []


@pytest.mark.slow
def test_longer_target_adds_one_term_and_keeps_the_others(load: Callable[[str], CausalModel]) -> None:
    prompt, target = [1, 30, 40, 50], [60, 70, 80, 90]
    for family in FAMILIES:
        scores = load(family).logprobs([(prompt, target[:n]) for n in range(1, 5)], ScoringConfig(smallest_prefix=1))
        for shorter, longer in itertools.pairwise(scores):
            np.testing.assert_allclose(longer[:-1], shorter, atol=CLOSE)


def test_chunk_that_mentions_the_answer_makes_it_more_likely(stories: CausalModel) -> None:
    scorer = LikelihoodScorer(stories)
    chunks = [f"Once upon a time, there was a little {what}. It was happy." for what in ("bird", "dog", "fish")]
    queries = [ScoringRequest({"what": what}, f" {what}") for what in ("bird", "dog", "fish")]
    grid = np.array([[item.mean for item in row] for row in scorer.grid(chunks, queries, ScoringTemplate("$chunk One day, the little"))])
    assert (grid.argmax(axis=0) == np.arange(3)).all()


@pytest.mark.parametrize("family", ["Llama", "GPT2", "stories260K"])
def test_scored_positions_decode_to_the_target(family: str, request: pytest.FixtureRequest) -> None:
    real = family == "stories260K"
    model = request.getfixturevalue("stories") if real else request.getfixturevalue("load")(family)
    scorer = LikelihoodScorer(model)
    for target in (" Lily", "Lily", " a big red ball", " 42 %", "\nNo.", " é日本", "?", " x  y"):
        (prompt, ids), *_ = scorer.encode([ScoredText("Question: who?\nAnswer:", target)])
        assert model.text_encoder.decode(ids) == target
        assert model.tokenizer.decode(list(prompt), skip_special_tokens=True) == "Question: who?\nAnswer:"
        assert scorer.score([ScoredText("Question: who?\nAnswer:", target)])[0].tokens == tuple(ids)


def test_prompt_has_the_beginning_of_sequence_token_once(load: Callable[[str], CausalModel]) -> None:
    for family, times in (("Llama", 1), ("GPT2", 0)):
        encoder = load(family).text_encoder
        plain, marked = encoder.prompts(["Tom saw", "<s>Tom saw"])
        assert plain.count(1) == times
        assert marked.count(1) == 1
        assert encoder.target(" Lily").count(1) == 0


def test_tokens_do_not_merge_across_prompt_and_target(load: Callable[[str], CausalModel]) -> None:
    model = load("Llama")
    whole = model.tokenizer(" Lily", add_special_tokens=False)["input_ids"]
    (prompt, target), *_ = LikelihoodScorer(model).encode([ScoredText(" L", "ily")])
    assert len(whole) == 1
    assert model.tokenizer.decode([*prompt, *target], skip_special_tokens=True) == " Lily"
    assert target


def test_long_prompt_loses_only_the_end_of_its_chunk(stories: CausalModel) -> None:
    scorer = LikelihoodScorer(stories)
    template = ScoringTemplate("Read.\nContext: $chunk\nQuestion: $q\nAnswer:")
    queries = [ScoringRequest({"q": "Who had a ball?"}, " Lily and Tom"), ScoringRequest({"q": "Why?"}, " so")]
    for chunk in (STORY * 12, "日本é " * 200, "🙂" * 300):
        for question in queries:
            prompt, span = template.filled(chunk, question.fields, stories)
            assert prompt[slice(*span)] == chunk
            ((ids, target),) = scorer.encode([ScoredText(prompt, question.target, span)])
            text = stories.tokenizer.decode(list(ids), skip_special_tokens=True)
            head, tail = "Read.\nContext: ", f"\nQuestion: {question.fields['q']}\nAnswer:"
            assert text.startswith(head)
            assert text.endswith(tail)
            kept = text[len(head) : -len(tail)]
            assert chunk.startswith(kept)
            assert len(kept) > 50
            # The model takes 512 inputs, and a target's last token is none.
            assert 508 <= len(ids) + len(target) - 1 <= 512
        assert len(scorer.grid([chunk], queries, template)[0]) == 2


def test_requests_that_cannot_be_scored_are_refused(stories: CausalModel) -> None:
    scorer = LikelihoodScorer(stories)
    with pytest.raises(ValueError, match="names no chunk to cut"):
        scorer.score([ScoredText(STORY * 20, " Lily")])
    with pytest.raises(ValueError, match="without what may be cut"):
        scorer.score([ScoredText(STORY * 20, " Lily", (0, 30))])
    with pytest.raises(ValueError, match="nothing to score"):
        scorer.score([ScoredText("Tom", "")])
    with pytest.raises(ValueError, match="empty prompt"):
        stories.logprobs([([], [5])], ScoringConfig())


@pytest.mark.parametrize("text", ["no place", "$chunk and ${chunk}", "$chunk costs $ 5"])
def test_template_must_have_exactly_one_chunk_placeholder(text: str) -> None:
    with pytest.raises(ValueError, match=r"\$"):
        ScoringTemplate(text)


def test_templates_insert_text_verbatim(stories: CausalModel) -> None:
    template = ScoringTemplate("$$5: $chunk | $question", system="Be brief, $who.")
    prompt, span = template.filled("$question {x} $$", {"question": "$chunk?", "who": "you"}, stories)
    assert prompt == "Be brief, you.\n\n$5: $question {x} $$ | $chunk?"
    assert prompt[slice(*span)] == "$question {x} $$"
    with pytest.raises(ValueError, match=r"\$question has no value"):
        template.filled("c", {"who": "you"}, stories)


def test_chat_template_wraps_the_prompt_and_the_chunk_is_located(tiny_llama: str) -> None:
    model = CausalModel(CausalConfig(model=tiny_llama), "cpu")
    template = ScoringTemplate("Context: $chunk\nQ: $q", system="Be brief.", chat=True)
    prompt, span = template.filled("Context", {"q": "Who?"}, model)
    assert prompt == "<s>[user]Be brief.\n\nContext: Context\nQ: Who?[assistant]"
    assert span == (prompt.index("Context: Context") + 9, prompt.index("\nQ:"))
    scorer = LikelihoodScorer(model)
    ((ids, _),) = scorer.encode([ScoredText(prompt, "Lily", span)])
    assert list(ids).count(1) == 1
    long = "a cat " * 400
    prompt, span = template.filled(long, {"q": "Who?"}, model)
    ((ids, _),) = scorer.encode([ScoredText(prompt, "Lily", span)])
    text = model.tokenizer.decode(list(ids))
    assert text.startswith("<s>[user]Be brief.\n\nContext: a cat")
    assert text.endswith("\nQ: Who?[assistant]")


@contextmanager
def watched(model: CausalModel) -> Iterator[dict[str, list[tuple[int, int]]]]:
    """Record the shapes (rows, columns) of inputs, masks (or inputs if there is none) and logits of each forward pass."""
    seen: dict[str, list[tuple[int, int]]] = {"inputs": [], "outputs": [], "masks": []}
    hooks = [
        model.model.register_forward_pre_hook(
            lambda _, inputs, named: seen["masks"].append(tuple(named.get("attention_mask", named["input_ids"]).shape)), with_kwargs=True
        ),
        model.model.get_input_embeddings().register_forward_pre_hook(lambda _, inputs: seen["inputs"].append(tuple(inputs[0].shape))),
        model.model.get_output_embeddings().register_forward_hook(
            lambda _, inputs, output: seen["outputs"].append(tuple(output.shape[:2]))
        ),
    ]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def test_logits_are_computed_at_targets_only_and_prefixes_once(stories: CausalModel) -> None:
    chunks = [STORY[:200], STORY[40:260], STORY[90:330]]
    queries = [ScoringRequest({"q": question}, " Lily saw a ball") for question in ("Who?", "What?", "Where?", "Why?", "When?")]
    template = ScoringTemplate("Context: $chunk\nQ: $q\nA:")
    scorer = LikelihoodScorer(stories)
    with watched(stories) as seen:
        scorer.grid(chunks, queries, template)
    target = len(stories.text_encoder.target(" Lily saw a ball"))
    prefixes = [len(stories.text_encoder.prompts([f"Context: {chunk}\nQ:"])[0]) for chunk in chunks]
    assert sum(columns for _, columns in seen["outputs"]) == len(chunks) * len(queries) * target + 1
    # Each chunk once, padded to the longest, and for each question its own few tokens.
    computed = sum(rows * columns for rows, columns in seen["inputs"])
    assert computed <= len(chunks) * max(prefixes) + len(chunks) * len(queries) * (target + 12)
    apart = LikelihoodScorer(stories, ScoringConfig(share_prefixes=False))
    with watched(stories) as seen:
        apart.grid(chunks, queries, template)
    assert sum(rows * columns for rows, columns in seen["inputs"]) > 2.5 * computed


@pytest.mark.parametrize("budget", [64, 200, 1000])
@pytest.mark.parametrize("share", [True, False])
def test_batches_stay_within_the_token_budget(stories: CausalModel, budget: int, share: bool) -> None:
    query = pairs()
    longest = max(len(prompt) + len(target) for prompt, target in LikelihoodScorer(stories).encode(query))
    with watched(stories) as seen:
        LikelihoodScorer(stories, ScoringConfig(token_budget=budget, share_prefixes=share)).score(query)
    # Masks are as wide as a row's cache, padding and tokens together.
    sizes = [rows * columns for rows, columns in seen["masks"]]
    assert len(sizes) == len(seen["inputs"])
    assert all(size <= budget or (rows == 1 and size <= longest) for size, (rows, _) in zip(sizes, seen["masks"], strict=True))
    assert max(rows for rows, _ in seen["masks"]) > budget // (4 * longest)


def test_many_requests_are_scored_in_slices(stories: CausalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    from methods.models import likelihood

    queries = pairs()
    scorer = LikelihoodScorer(stories)
    expected = scorer.score(queries)
    calls: list[int] = []
    compute = stories.logprobs
    monkeypatch.setattr(stories, "logprobs", lambda items, config: (calls.append(len(items)), compute(items, config))[1])
    monkeypatch.setattr(likelihood, "SLICE", 300)
    for score, other in zip(scorer.score(iter(queries)), expected, strict=True):
        np.testing.assert_allclose(score.logprobs, other.logprobs, atol=CLOSE)
    assert len(calls) > 3
    assert sum(calls) == len(queries)
    with pytest.raises(ValueError, match="pair 23: "):
        scorer.score([*queries, ScoredText(STORY * 20, " Lily")])
    assert len(queries) == 23


def test_label_probabilities_are_normalized_over_the_closed_set(stories: CausalModel) -> None:
    labels = [" ball", " big red ball", " dog", " dog."]
    prompts = ["Once upon a time, Tom had a", "Lily saw a little"]
    for by in ("total", "mean"):
        results = [
            label_scores(labels, LikelihoodScorer(stories).score([ScoredText(prompt, label) for label in labels]), by) for prompt in prompts
        ]
        for prompt, scores in zip(prompts, results, strict=True):
            ids = stories.text_encoder.prompts([prompt])[0]
            values = [by_hand(stories, ids, stories.text_encoder.target(label)) for label in labels]
            merits = np.array([sum(row) if by == "total" else np.mean(row) for row in values])
            expected = np.exp(merits) / np.exp(merits).sum()
            np.testing.assert_allclose(scores.probabilities, expected, atol=CLOSE)
            assert sum(scores.probabilities) == pytest.approx(1)
            assert scores.best == labels[int(merits.argmax())]
            np.testing.assert_allclose([raw.total for raw in scores.raw], [sum(row) for row in values], atol=1e-3)
    assert results[0].probabilities != results[1].probabilities

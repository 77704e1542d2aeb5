"""The pocket model's tokenizer: byte-level BPE trained on train worlds, with names and years in few tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.core.random import Draws
from benchmarks.styles.rules import STYLES, RuleRewriter
from benchmarks.worlds.names import training_words
from benchmarks.worlds.questions import Asker
from benchmarks.worlds.text import articles
from methods.models.pocket import ANSWER, BOS, EOS, GAP, MARKERS, PAD, PARAPHRASE, QUESTION, UNANSWERABLE, entry
from tools.tiny_lm.material import fact_material, training_world

VOCABULARY, PIECES = 3840, 900
_PATTERN = r"'s| ?\p{L}+| ?\p{N}{1,2}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""Words with their space; numbers two digits at a time, so that a year is two tokens and all of them are common."""

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}"
)
"""The user's message is the prompt as it is. System messages are left out: the model was trained without any."""


def texts(seeds: Iterable[int]) -> Iterator[str]:
    """Yield the texts that the tokenizer is trained on: passages in every style, questions and answers of training worlds."""
    for seed in seeds:
        world = training_world(seed)
        rewriter = RuleRewriter(world.split)
        for text in articles(world).texts:
            yield f"{entry(text.passage)}{GAP}"
            for reported in (rewriter.rewrite([text.passage], style)[0] for style in STYLES):
                yield entry(reported) if reported else ""
        for item in fact_material(world, ()):
            yield from (f" {question}\n" for question in item.questions)
            yield f" {item.answer}"
        for query in Asker(world, world.facts, Draws("tokenizer", seed)).ask(300):
            yield f" {query.text}\n"
    for word in training_words():
        yield f" {word}"
    yield f" {UNANSWERABLE}"


def train(seeds: Iterable[int], vocabulary: int = VOCABULARY, pieces: int = PIECES) -> Any:
    """Train the tokenizer: first merges for pieces of words, then whole words, most frequent first.

    A word in the vocabulary is one token without its own merge (`ignore_merges`, as in Llama 3), so names need one entry each;
    other words are split into pieces.

    Args:
        seeds: Seeds of the training worlds.
        vocabulary: Number of tokens, including special ones.
        pieces: Number of tokens that come from merges.

    Returns:
        A `PreTrainedTokenizerFast`.

    Raises:
        UserError: A seed belongs to validation or test worlds.
    """
    import json

    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    corpus = list(texts(seeds))
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=pieces, special_tokens=[PAD, BOS, EOS], initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    core.train_from_iterator(corpus, trainer)
    counted = Counter(word for text in corpus for word, _ in core.pre_tokenizer.pre_tokenize_str(text))
    counted.update({f"Ġ{word}": 1000 for word in (*training_words(), UNANSWERABLE)})
    digits = [f"{space}{number}" for space in ("", "Ġ") for ten in range(10) for number in (ten, *_pairs(ten))]
    state = json.loads(core.to_str())
    known = state["model"]["vocab"]
    plain = [*MARKERS, QUESTION, ANSWER, PARAPHRASE]
    by_count = sorted(counted, key=lambda word: (-counted[word], word))
    for word in dict.fromkeys([*digits, *by_count]):
        if len(known) == vocabulary - len(plain):
            break
        known.setdefault(word, len(known))
    state["model"]["ignore_merges"] = True
    core = Tokenizer.from_str(json.dumps(state))
    core.add_tokens([AddedToken(text, normalized=False, special=False) for text in plain])
    bos = core.token_to_id(BOS)
    core.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, bos)])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        padding_side="left",
        model_max_length=1024,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def _pairs(ten: int) -> list[str]:
    return [f"{ten}{item}" for item in range(10)]


def load(folder: Path) -> Any:
    """Load the tokenizer of a model folder."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(folder))

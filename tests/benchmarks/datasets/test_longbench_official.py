"""The authors' file through loader and metric, compared with the number that LongBench's scorer prints.

`upstream` restates its `metrics.py` and `eval.py` in a few lines, with the packages that LongBench uses.
"""

import difflib
import json
import random
import re
import string
from collections import Counter
from contextlib import nullcontext

import numpy as np
import pytest
from rouge import Rouge

from benchmarks.core.errors import UserError
from benchmarks.datasets.longbench import SETS, SIZES
from benchmarks.registry import load
from benchmarks.schema import Question
from benchmarks.text import chinese_words
from judges.metric import parse
from judges.metrics.longbench import rouge_l
from judges.score import score
from methods.api import Prediction
from ragmeter import experiment
from ragmeter.runner.tasks import default_metrics, tasks_of

QA = {"narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique", "triviaqa"}
SUMMARIES = {"gov_report", "qmsum", "multi_news", "samsum"}
SAMPLES = ("narrativeqa", "qasper", "multifieldqa_en", "multifieldqa_zh", "hotpotqa", "2wikimqa", "musique", "multi_news")
MARKS = (
    "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏."
)


def bare(text, marks):
    return "".join(character for character in text.lower() if character not in string.punctuation + marks)


def overlap(predicted, wanted):
    same = sum((Counter(predicted) & Counter(wanted)).values())
    return 2 * same / (len(predicted) + len(wanted)) if same else 0.0


def packaged(prediction, gold):
    try:
        return Rouge().get_scores([prediction], [gold], avg=True)["rouge-l"]["f"]
    except ValueError:  # LongBench: any
        return 0.0


def numbered(prediction, wanted):
    numbers = re.findall(r"\d+", prediction)
    return sum(number == wanted for number in numbers) / max(1, len(numbers))


def classified(prediction, gold, classes):
    named = [name for name in classes if name in prediction]
    for name in named:  # which grows shorter on the way, there too
        if name in gold and name != gold:
            named.remove(name)
    return 1 / len(named) if gold in named else 0.0


def completed(prediction, gold):
    fit = [line for line in prediction.lstrip("\n").split("\n") if not re.search("`|#|//", line)]
    line = fit[0] if fit else ""
    if line == gold or not (line and gold):
        return float(line == gold)
    return round(100 * difflib.SequenceMatcher(None, line, gold).ratio()) / 100


def of_gold(name, prediction, gold, classes):
    if name in QA:
        return overlap(*(re.sub(r"\b(a|an|the)\b", " ", bare(text, "")).split() for text in (prediction, gold)))
    if name in SUMMARIES:
        return packaged(prediction, gold)
    if name in ("dureader", "vcsum"):
        return packaged(" ".join(chinese_words(prediction)), " ".join(chinese_words(gold)))
    if name == "multifieldqa_zh":
        words = ([bare(word, MARKS).strip() for word in chinese_words(text)] for text in (prediction, gold))
        return overlap(*(list(filter(None, side)) for side in words))
    if name in ("trec", "lsht"):
        return classified(prediction, gold, classes)
    if name.startswith("passage"):
        return numbered(prediction, re.search(r"\d+", gold)[0])
    return completed(prediction, gold)


def upstream(name, predictions, records):
    """Return LongBench's score of each record, out of 1."""
    if name in ("trec", "triviaqa", "samsum", "lsht"):
        predictions = [prediction.lstrip("\n").split("\n")[0] for prediction in predictions]
    return [max(of_gold(name, p, gold, r["all_classes"]) for gold in r["answers"]) for p, r in zip(predictions, records, strict=True)]


ENGLISH = ("the", "Zoll", "a", "Venn", "of", "an", "Ilra", "river,", "U.S.", "well-known", "(1915)", "was", "Dosk.", "born", "it:", "no")
CHINESE = (
    "厦门大学",
    "举办",
    "了",
    "第十八届",
    "年会",
    "，",
    "全国",
    "美国文学",
    "研究会",
    "。",
    "6.5亿元",
    "《红楼梦》",
    "的",
    "GPT",
    "模型",
    "！",
)
LINES = ("    return x + 1", "for item in items:", "x = [1, 2]  ", "if (a == b) {", "}", "total += weights[key] * value")
CLASSES = ("Number of something", "Number", "Date", "Other location", "City", "City and state", "Individual")


def written(name, draw):
    """Return a gold answer of the subset's kind."""
    if SETS[name].metric.startswith("longbench_number"):
        number = draw.randint(1, 30)
        return {"passage_count": f"{number}", "passage_retrieval_zh": f"段落{number}"}.get(name, f"Paragraph {number}")
    if SETS[name].metric == "longbench_code":
        return draw.choice(LINES)
    if SETS[name].metric == "longbench_class":
        return draw.choice(CLASSES)
    words, space = (CHINESE, "") if SETS[name].language == "zh" else (ENGLISH, " ")
    return "Venn" * (space == " ") + space.join(draw.choices(words, k=draw.randint(1, 40 if "rouge" in SETS[name].metric else 6))) + "x"


def native(name, count=30):
    """Return records in the original layout, with several golds, repeated golds and shared contexts among them."""
    draw = random.Random(name)
    for number in range(count):
        golds = [written(name, draw) for _ in range(draw.choice((1, 1, 3)))]
        yield {
            "input": "" if SETS[name].task else "哪里？" if SETS[name].language == "zh" else "Where?",
            "context": "Ada wrote Quill.\n" * (1 + number // 2),
            "answers": golds + golds[:1] * draw.randint(0, 1),
            "length": 3,
            "dataset": name,
            "language": SETS[name].language,
            "all_classes": list(CLASSES) if SETS[name].metric == "longbench_class" else None,
            "_id": f"{name}-{number}",
        }


def predicted(records, name):
    """Return answers that are right, close, long, wrong, on the second line, or empty."""
    draw, golds = random.Random(1), [gold for record in records for gold in record["answers"]]
    for record in records:
        gold, other = draw.choice(record["answers"]), draw.choice(golds)
        half = gold[: len(gold) // 2]
        yield draw.choice(
            (
                gold,
                f"\n\n{gold}\nQuestion: {other}",
                half,
                f"{other}\n{gold}",
                f"{gold} {other}",
                f"```\n# {other}\n{gold} \n{other}",
                f"It is {half}.",
                "",
            )
        )


def assert_official(name, path, records):
    benchmark = load(f"longbench/{name}", {"path": str(path)})
    answers = list(predicted(records, name))
    responses = {question.id: Prediction(question.id, answer) for question, answer in zip(benchmark.questions, answers, strict=True)}
    (metric,) = default_metrics(benchmark)
    (values,) = score(benchmark.questions, responses, [metric]).values()
    expected = upstream(name, answers, records)
    np.testing.assert_allclose(values, expected, atol=1e-12)
    assert round(100 * values.mean(), 2) == round(100 * sum(expected) / len(expected), 2)
    return values


@pytest.mark.parametrize("name", SETS)
def test_synthetic_files_of_every_subset_get_the_official_score(name, tmp_path):
    records, path = list(native(name)), tmp_path / f"{name}.jsonl"
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), "utf-8")
    values = assert_official(name, path, records)
    assert 0 < values.mean() < 1
    assert len({round(value, 6) for value in values}) > 2


@pytest.mark.parametrize("name", SAMPLES)
def test_real_samples_get_the_official_score(name, data_folder):
    path = data_folder / "longbench" / f"{name}.jsonl"
    assert_official(name, path, [json.loads(line) for line in path.read_text("utf-8").split("\n") if line])


@pytest.mark.parametrize(
    ("method", "refused"),
    [
        ("{id: full_context, reader: {id: chat, config: {reading: benchmark, llm: {model: m}}}}", ""),
        ("{id: bm25}", "but bm25 selects"),
        ("{id: full_context, rerankers: [{id: bm25_reranker}]}", "but bm25_reranker selects"),
    ],
)
def test_whole_context_tasks_accept_only_full_context_methods(method, refused, tmp_path):
    path = tmp_path / "trec.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in native("trec", 2)))
    text = f"name: x\nbenchmarks: [{{id: longbench/trec, config: {{path: {path}}}}}]\nmethods: [{method}]\n"
    with pytest.raises(UserError, match=refused) if refused else nullcontext():
        (task,) = tasks_of(experiment.parse(text, "x.yaml"))
        assert (str(task.loaded.plan.setting), task.reading.chat) == ("document", False)


def test_all_21_subsets_and_13_variants_are_registered():
    assert (len(SETS), len(SIZES)) == (21, 34)


def test_rouge_l_equals_the_package_bit_for_bit():
    draw = random.Random(3)
    for _ in range(80):
        first, second = (
            "".join(draw.choices(["a ", "b ", "c ", "d e", "f. ", ".", " ", "g.\n", "的 "], k=draw.randint(0, 40))) for _ in "12"
        )
        assert rouge_l(first, second) == packaged(first, second)
    # From about a thousand words without a period on, the package exceeds the recursion limit; our value is unchanged.
    long = " ".join(f"w{number}" for number in range(1200))
    assert rouge_l(long, long) == rouge_l("w1", "w1")
    # ROUGE-L of rouge-score is another metric: its words are letters and digits, and it ignores sentences.
    texts = ("The Occupy camp got a stay. The camp stays.", "The camp stays. Occupy got a stay!")
    assert rouge_l(*texts) > float(score_of("rouge(stem=false)", *texts))


def score_of(metric, answer, gold):
    (values,) = score([Question("q", "?", (gold,))], [Prediction("q", answer)], [parse(metric)]).values()
    return values[0]


@pytest.mark.slow  # jieba reads its dictionary a second time
def test_chinese_words_equal_jieba():
    import jieba

    for text in (*CHINESE, "".join(CHINESE), " 在厦门大学 举办\n了 GPT-4 的年会。"):
        assert chinese_words(text) == jieba.lcut(text, cut_all=False)

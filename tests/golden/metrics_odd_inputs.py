"""Writes metrics_odd_inputs.jsonl and metrics_odd_inputs_zh.jsonl: what official scorers make of odd inputs, as rows of
test vectors. Rows say which code made them.

    pip install rouge==1.0.1 rouge_score==0.1.2 jieba==0.42.1 fuzzywuzzy==0.18.0 unidiff==0.7.3 evaluate==0.4.6 \\
        numpy==2.4.6
    python metrics_odd_inputs.py FOLDER    # CPython 3.11, git 2.39; FOLDER holds checkouts by their own names:
        OpenBMB/InfiniteBench @88b3daa6, THUDM/LongBench @2e00731f, Dominic789654/LongGenBench @98458646,
        NVIDIA/RULER @c3f5e3b4, SWE-bench/SWE-bench @7a21e05, huggingface/evaluate v0.4.6
"""
import contextlib
import io
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import types

import evaluate
from unidiff import PatchSet

from authors_code import module_of
import metrics_make_formats

HERE = pathlib.Path(__file__).resolve().parent
CHECKOUTS = pathlib.Path(sys.argv[1])


def infinitebench_rows(rng):
    load = evaluate.load
    evaluate.load = lambda name: load(str(CHECKOUTS / "evaluate/metrics" / name))
    official = module_of(CHECKOUTS / "InfiniteBench/src/compute_scores.py", ["args"])
    words = ["A", "B", "C.", "D:", "answer is:", "answer:", "is:", "The", "the", "option is", "Option", "71432", "12", "12.5",
             "-3", "+17", "+-17", "17", "load_table", "ANNA", "anna", "abc", "{x}", "\n", '"', "'", "*", "港口", "。", "", "1_000",
             "1__0", "042", "AB", "４２", "9007199254740993"]
    scalars = ["71432", "12", "B", "A", "load_table", "ANNA", "abc", "港口", "", "17", "the", 12, 17, -3, 12.5, 17.0, 3, 42,
               True, None, 0, "AB", "12.5", 71432, 1000, 9007199254740993]
    one = lambda: rng.choice(scalars)
    labels = [one, one, *[lambda: [one() for _ in range(rng.choice([0, 1, 1, 2, 2, 3]))]] * 6,
              lambda: [[one(), one()] for _ in range(rng.randint(1, 2))]]
    rows = []
    for number in range(900):
        task = official.ALL_TASKS[number % len(official.ALL_TASKS)]
        label = rng.choice(labels)()
        parts = rng.choices(words, k=rng.randint(0, 5))
        if rng.random() < 0.7:
            parts.insert(rng.randint(0, len(parts)), str(rng.choice(label) if isinstance(label, list) and label else label))
        prediction = "".join(part + rng.choice([" ", " ", "", ".", "\n"]) for part in parts)
        model = rng.choice(["generic", "gpt4"])
        if task == "longbook_sum_eng" and isinstance(label, list) and any(type(l) is not str for l in label):
            continue  # what is no text becomes one there, by rules of the package datasets
        try:
            expected = official.get_score_one(prediction, label, task, model)
        except Exception:
            expected = 0.0  # the whole evaluation ends there
        rows.append({"metric": "infinitebench", "task": task, "model_name": model, "prediction": prediction, "label": label,
                     "expected": expected})
    return [row for row in rows if row["expected"]][:130] + [row for row in rows if not row["expected"]][:130]


def longbench_modules():
    folder = CHECKOUTS / "LongBench/LongBench"
    metrics = module_of(folder / "metrics.py")
    sys.modules["metrics"] = metrics
    return metrics, module_of(folder / "eval.py")


def longbench_row(official, dataset, predictions, answers, lengths):
    return {"metric": "longbench_dataset_score", "dataset": dataset, "predictions": predictions, "answers": answers,
            "lengths": lengths, "all_classes": None, "longbench_e": True,
            "expected": official.scorer_e(dataset, predictions, answers, lengths, None)}


# Buckets without rows, and ones in which numpy's order of adding decides the second decimal.
def longbench_rows(official, rng):
    yield longbench_row(official, "qasper", ["Ida Brandt"], [["Ida Brandt"]], [100])
    yield longbench_row(official, "hotpotqa", ["yes", "no"], [["yes"], ["yes"]], [4000, 7999])
    yield longbench_row(official, "triviaqa", [], [], [])
    decided = 0
    while decided < 4:
        count = rng.choice([40, 48, 96, 160])
        letters = ["".join(rng.choice("ab") for _ in range(rng.randint(1, 9))) for _ in range(2 * count)]
        row = longbench_row(official, "lcc", letters[:count], [[a] for a in letters[count:]], [8000] * count)
        plain = 0.0
        for prediction, answer in zip(letters[:count], letters[count:]):
            plain += official.code_sim_score(prediction, answer)
        if round(100 * (plain / count), 2) != row["expected"]["8k+"]:
            decided += 1
            yield row


def gsm8k_rows():
    official = module_of(CHECKOUTS / "LongGenBench/longgenbench_GSM8K_openai.py", ["datasets", "openai"])
    four = ["Answer_9:\nThe answer is 18.", "Answer_10:\nThe answer is 3.", "Answer_11:\nIt is 7.", "Answer_12:\nNo idea."]
    gold = ["Work.\n#### 18", "Work.\n#### 3", "Work.\n#### 7", "Work.\n#### 0"]
    plain = ["How many eggs?", "How many cups?", "How many pens?", "How many?"]
    inner = "Read it.\nQuestion: how many cups?"
    cases = [(plain, gold, four), ([inner] + plain[1:], gold, four), ([plain[0], inner] + plain[2:], gold, four),
             ([inner] * 4, gold, four), (["Question: eggs?"] * 4, gold, four), ([" Question: x\n Question: y"] * 4, gold, four),
             (["a\r\nQuestion:b\rQuestion:c\nQuestions:d"] + plain[1:], gold, four), ([inner], gold[:1], four[:1]),
             (plain[:1] + ["x\nA_gold: 18\ny"], gold[:2], four[:2]), (plain[:1] + ["x\nA_model: 18"], gold[:2], four[:2]),
             (plain, gold, ["Answer_9:\nHm.\nQuestion: what?\n18"] + four[1:]),
             (plain, gold, [four[0], "Answer_10:\nA_gold: 3\nThe answer is 3."] + four[2:]),
             (plain, gold, [four[0], "Answer_10:\nA_model: nothing"] + four[2:]),
             (plain, ["none", "Work. 3", "7", "0"], four), (plain, gold, four[:1]), (plain, gold, ["nothing"])]
    rows = []
    for questions, answers, completion in cases:
        completion = "\n\n".join(completion)
        client = types.SimpleNamespace(chat=types.SimpleNamespace(completions=types.SimpleNamespace(
            create=lambda **_: types.SimpleNamespace(choices=[types.SimpleNamespace(
                message=types.SimpleNamespace(content=completion))]))))
        official.get_openai_client = lambda _: contextlib.nullcontext(client)
        text = official.process_question(types.SimpleNamespace(model=""), questions, answers, "")
        extracted = official.re.findall(r"(?<=:\n)(.*?)(?=\n\n|$)", official.extract_ans(completion)[0], official.re.DOTALL)
        expected = {"extracted_answers": [answer.strip() for answer in extracted], "num_q": None, "correct": None,
                    "ratio": None, "per_question": None}
        right = []
        with tempfile.NamedTemporaryFile("w", newline="") as file, contextlib.redirect_stdout(io.StringIO()):
            file.write(text)
            file.flush()
            try:
                _, predicted, wanted = official.parse_pred_ans(file.name)
                right = [official.test_answer(p, w) for p, w in zip(predicted, wanted)]
                count = len([line for line in open(file.name) if line.startswith("Question:")])
                expected.update(num_q=count, correct=sum(right), ratio=sum(right) / count, per_question=right)
            except (UnboundLocalError, IndexError):
                pass
        rows.append({"metric": "longgenbench_gsm8k", "questions": questions, "gold_answers": answers,
                     "completion": completion, "expected": expected,
                     "expected_ratio_over_all_questions": sum(right) / len(answers)})
    return rows


def needle_rows():
    official = module_of(CHECKOUTS / "RULER/scripts/eval/synthetic/constants.py")
    answers = ["Eat a sandwich in Dolores Park", "STRASSE", "straße", "İzmir", "izmir", "ΟΔΟΣ", "οδος", "\u212aelvin", "ǅ", "1½", ""]
    rows = []
    for answer in answers:
        for response in [answer, answer.upper(), answer.lower(), answer.swapcase() + "α", "In " + answer.title() + "."]:
            rows.append({"metric": "niah_scores", "needle": answer, "expected_answer": answer, "response": response,
                         "expected_substring_answer_any_case": official.string_match_all([response], [[answer]]) == 100})
    return rows


def patch_rows(rng):
    official = module_of(CHECKOUTS / "SWE-bench/swebench/inference/make_datasets/utils.py", ["chardet", "git"])
    crlf = lambda text: text.replace("\r\n", "\n").replace("\n", "\r\n")
    forms = [crlf, lambda text: "".join(crlf(l) if rng.random() < 0.5 else l for l in text.splitlines(keepends=True)),
             lambda text: "Here:\r\n```diff\r\n" + crlf(text) + "```\r\n", lambda text: "```patch\n" + crlf(text) + "```\n",
             lambda text: "<diff>\r\n" + crlf(text) + "</diff>"]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        while len(rows) < 90:
            response = rng.choice(forms)(metrics_make_formats.damaged(rng))
            patch = official.extract_diff(response)
            git = subprocess.run(["git", "apply", "--numstat", "-"], input=patch.encode(), capture_output=True, cwd=folder)
            try:
                files = PatchSet(patch)
                unidiff = {"parses": True, "files": len(files), "hunks": sum(len(f) for f in files), "added": files.added,
                           "removed": files.removed}
                changes = unidiff["hunks"] > 0 or any(f.is_rename for f in files)
            except Exception:
                unidiff, changes = {"parses": False, "files": 0, "hunks": 0, "added": 0, "removed": 0}, False
            try:
                minimal = official.extract_minimal_patch(patch)
            except IndexError:
                continue
            rows.append({"metric": "git_diff_format", "response": response, "expected": {
                "extracted": patch, "unidiff": unidiff, "git_apply_numstat_exit": git.returncode,
                "git_apply_numstat_stdout": git.stdout.decode(), "minimal_patch": minimal,
                "valid": changes and git.returncode == 0}})
    return rows


def repeated_texts():
    numbered = lambda count: " ".join(str(i) for i in range(count))
    sentence = "the ferry runs to the pier"
    for count in (2, 30, 200):
        for joint in (". ", ".", "\n"):
            yield joint.join([sentence] * count), [sentence, "it met. " + sentence + ".", "on a ferry", "to the pier x the"]
    for steps in (989, 990, 991):
        yield numbered(steps), [numbered(steps), "0"]


# As deep in calls as LongBench's scorer calls it, which decides where the recursion limit is met.
def rouge_row(metric, score, prediction, answers):
    row = {"metric": metric, "prediction": prediction, "answers": answers, "expected_per_answer": []}
    for answer in answers:
        row["expected_per_answer"].append(score(prediction, answer))
    row["expected"] = max(row["expected_per_answer"])
    return row


def write(name, rows):
    with open(HERE / name, "w", encoding="utf-8") as out:
        for number, (source, row) in enumerate(rows):
            out.write(json.dumps({"id": f"{row['metric']}-{number:03d}", "source": source, **row}, ensure_ascii=False) + "\n")


RNG = random.Random(31)
METRICS, EVAL = longbench_modules()
ROUGE, ROUGE_ZH = [], []
for PREDICTION, ANSWERS in repeated_texts():
    ROUGE.append(rouge_row("rouge_l", METRICS.rouge_score, PREDICTION, ANSWERS))
for STEPS in (989, 990):
    TEXT = " ".join(str(i) for i in range(STEPS))
    ROUGE_ZH.append(rouge_row("rouge_l_zh", METRICS.rouge_zh_score, TEXT, [TEXT]))
PARTS = [("OpenBMB/InfiniteBench @88b3daa6", infinitebench_rows(RNG)), ("THUDM/LongBench @2e00731f", longbench_rows(EVAL, RNG)),
         ("Dominic789654/LongGenBench @98458646", gsm8k_rows()), ("NVIDIA/RULER @c3f5e3b4", needle_rows()),
         ("SWE-bench/SWE-bench @7a21e05, unidiff 0.7.3, git 2.39", patch_rows(RNG)), ("THUDM/LongBench @2e00731f, rouge 1.0.1", ROUGE)]
write("metrics_odd_inputs.jsonl", [(source, row) for source, rows in PARTS for row in rows])
write("metrics_odd_inputs_zh.jsonl", [("THUDM/LongBench @2e00731f, rouge 1.0.1, jieba 0.42.1", row) for row in ROUGE_ZH])

#!/usr/bin/env python3
"""datasets_helmet.py HELMET: writes datasets_helmet.json, the first 12 digits of the SHA-256 of the prompts of project-made
rows of HELMET, whole and cut to a limit, and scores of answers.

HELMET is a checkout of princeton-nlp/HELMET @4526dfb: data.py loads the rows, model_utils.py cuts prompts with the words of
tests/datasets/word_tokens.h as tokens, utils.py and eval_alce.py score. Data sets of in-context learning are those of the
project-made files, loaded under the official names. Of three tasks with more rows than are asked, which many_rows() makes,
the digests of all prompts have one digest. datasets 5.2.0, numpy 2.4.6, rouge_score 0.1.2, nltk 3.10.4,
pytrec_eval-terrier 0.5.11; NLTK_DATA is a folder with tokenizers/punkt_tab.
"""

import hashlib
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import types

import datasets

from authors_code import module_of
from word_tokens import WordTokens

HERE = pathlib.Path(__file__).resolve().parent
CLONE = pathlib.Path(sys.argv[1])
KILT = {"nq": ("nq-dev-multikilt_1000_k50_dep6", "nq-train-multikilt_1000_k3_dep6"),
        "triviaqa": ("triviaqa-dev-multikilt_1000_k50_dep6", "triviaqa-train-multikilt_1000_k3_dep6"),
        "hotpotqa": ("hotpotqa-dev-multikilt_1000_k50_dep3", "hotpotqa-train-multikilt_1000_k3_dep3"),
        "popqa": ("popqa_test_1000_k50_dep6", "popqa_test_1000_k3_dep6")}
ICL = {"trec_coarse": ("CogComp/trec", "trec", "coarse_label", 400), "trec_fine": ("CogComp/trec", "trec", "fine_label", 400),
       "banking77": ("PolyAI/banking77", "banking77", "label", 360), "clinic150": ("clinc_oos", "clinic150", "intent", 440),
       "nlu": ("xingkunliuxtracta/nlu_evaluation_data", "nlu", "label", 510)}
WORDS = ["Paris", "paris.", "the", "a", "Maria Holt", "yes", "no", "answer:", "\n", "Answer:", "label:", "17", "12", "noanswer", "l'été", "–"]
ANSWERS = [["Paris"], ["Maria Holt", "Holt"], ["yes"], ["17"], ["The no"]]
RANKINGS = ["11 > 12 > 13", " 12 > 11", "ID11 > ID13 > ID12", "[ID: 13] > [ID: 11]", "11, 12, 13", "none", "",
            "13 > 13 > 11 > 14", "1 > 2\n11 > 12 > 13 > 10", "11>12>13>14>10>15>16>17>18>19>20", "99 > 11",
            "20 > 19 > 18 > 17 > 16 > 15 > 14 > 13 > 12 > 11 > 10", "idea 11 > 12", "١١ > 11", "11 > 12 12 > 13 > 10"]
SENTENCES = ["Maria Holt [1] founded it.", "It was Peter Cole, Dr. Reed said [2][3].", "No [4, 5].", "\n\n",
             "She left in 1890 | [6].", "<|im_end|>", "The U.S. came later.", "Anna Reed,", "[1]", "and Cole", ",", ".", "maria  holt"]
PUNCTUATED = ["Maria Holt [1], Peter Cole [2].", "Maria Holt, Holt, Cole, Nobody [3],,", "", "Maria Holt\nPeter Cole",
              "one, two, three, four, five, six..", "the one, a two [12], THREE"]


class Encoded(dict):
    input_ids = None


class Tokenizer(WordTokens):
    is_fast = True

    def apply_chat_template(self, chat, **_):
        return chat[-1]["content"]

    def __call__(self, texts, **_):
        ids, at, offsets = self.encode(texts[0]), 0, []
        for each in ids:
            offsets.append((at, at + len(self.words[each])))
            at = offsets[-1][1]
        made = Encoded(offset_mapping=[offsets])
        made.input_ids = types.SimpleNamespace(size=lambda dim: len(ids), text=texts[0])
        return made


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def load_icl(samples):
    """Stands for load_dataset() of the hub: the project-made rows, with as many labels as the official data has."""
    def part(name, which):
        rows = [json.loads(line) for line in open(samples / f"icl/{name}_{which}.jsonl", encoding="utf-8")]
        kinds = {field: datasets.ClassLabel(num_classes=200) for field in rows[0] if field != "text"}
        return datasets.Dataset.from_list(rows, features=datasets.Features({"text": datasets.Value("string"), **kinds}))

    def load(name, *_, **options):
        if name == "json":
            return datasets.load_dataset(name, **options)
        data = next(data for official, data, _, _ in ICL.values() if official == name)
        train, test = part(data, "train"), part(data, "test")
        if data == "nlu":
            train.train_test_split = lambda test_size, seed: {"train": train, "test": test}
        return {"train": train, "test": test, "validation": test}
    return load


def all_tasks(samples):
    """Name, files and whether a chat template is used, and tokens of an answer, by task."""
    data = samples / "data"
    tasks = {f"icl_{name}": (f"icl_{name}_{shots}shot_balance", "", "", False, 20) for name, (_, _, _, shots) in ICL.items()}
    tasks |= {f"kilt_{name}": (f"kilt_{name}" + ("_3" if name == "popqa" else ""), data / f"kilt/{test}.jsonl", data / f"kilt/{demos}.jsonl",
                               False, 20) for name, (test, demos) in KILT.items()}
    tasks["msmarco_rerank"] = ("msmarco_rerank_psg", data / "msmarco/test_reranking_data_k50_dep3.jsonl",
                               data / "msmarco/test_reranking_data_k10_dep3.jsonl", False, 200)
    tasks |= {f"alce_{name}": (f"alce_{name}_30", data / f"alce/{name}_eval_gtr_top2000.json", samples / f"prompts/{name}_revised.json", True, 300)
              for name in ("asqa", "qampari")}
    return tasks


def loaded_rows(official, task, name, test, demos):
    random.seed(42)
    args = types.SimpleNamespace(max_test_samples=500 if task.startswith("icl") else 100, shots=2, seed=42)
    return official.load_data(args, name, str(test), str(demos))


def prompts(official, cut, samples):
    """Digests of the whole and the cut prompt and the answer of every row that the official code asks, by task, and limits."""
    found = {}
    for task, (name, test, demos, chat, answer) in all_tasks(samples).items():
        loaded = loaded_rows(official, task, name, test, demos)
        whole = [cut(dict(row), loaded, Tokenizer(), 10**9, answer, chat).input_ids for row in loaded["data"]]
        limit = min(each.size(1) for each in whole) * 9 // 10
        short = [cut(dict(row), loaded, Tokenizer(), limit + answer, answer, chat).input_ids for row in loaded["data"]]
        found[task] = {"limit": limit, "rows": sorted([digest(a.text), digest(b.text), row["answer"] if task.startswith("icl") else ""]
                                                      for a, b, row in zip(whole, short, loaded["data"]))}
    return found


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def many_rows(folder):
    """The rows of tests/datasets/helmet_test.cpp."""
    def asked(name, i, docs="ctxs", **more):
        return {"question": f"{name}{i}", "answers": [f"a{i}"], docs: [{"title": f"t{i}", "text": f"x{i}"}], **more}

    def cited(i):
        return {**asked("q", i, "docs", answer="a"), "answers": [[f"a{i}"]]}
    write_rows(folder / "icl/nlu_train.jsonl", [{"text": f"train {i}", "label": i % 5} for i in range(30)])
    write_rows(folder / "icl/nlu_test.jsonl", [{"text": f"test {i}", "label": i * i % 7} for i in range(600)])
    write_rows(folder / f"data/kilt/{KILT['nq'][0]}.jsonl", [asked("q", i) for i in range(150)])
    write_rows(folder / f"data/kilt/{KILT['nq'][1]}.jsonl", [asked("d", i % 10) for i in range(20)])
    write_rows(folder / "data/alce/qampari_eval_gtr_top2000.json", [cited(i) for i in range(150)])
    write_rows(folder / "prompts/qampari_revised.json",
               [{"instruction": "I", "demo_prompt": "{question} {context} {answer}", "doc_prompt": "{title} {text}",
                 "demos": [asked("d", i, "docs", answer="a") for i in range(4)]}])


def prompts_of_many(official, folder):
    many_rows(folder)
    official.load_dataset = load_icl(folder)
    found = {}
    for task in ("icl_nlu", "kilt_nq", "alce_qampari"):
        loaded = loaded_rows(official, task, *all_tasks(folder)[task][:3])
        form = loaded["user_template" if task.startswith("alce") else "prompt_template"]
        found[task] = [len(loaded["data"]), digest("".join(sorted(digest(form.format(**row)) for row in loaded["data"])))]
    return found


def answer_scores(official, rng):
    process = official.default_post_process
    for _ in range(120):
        wanted = rng.choice(ANSWERS)
        said = " ".join(rng.choices(WORDS, k=rng.randint(0, 6)) + (rng.choices(wanted) if rng.random() < 0.5 else []))
        made, _ = process({"output": "Answer:" + said}, {"answer": wanted})
        yield {"task": "qa", "prediction": said, "references": wanted, "score": float(made["substring_exact_match"]),
               "exact_match": float(made["exact_match"]), "f1": float(made["f1"])}
        parsed = official.parse_output("label:" + said, "label:")
        made = official.calculate_metrics(parsed, wanted[0])
        yield {"task": "icl", "prediction": said, "references": wanted[:1], "score": float(made["exact_match"]), "f1": float(made["f1"])}


def ranking_scores(utils):
    relevance = {str(10 + n): n % 4 for n in range(11)}
    for said in RANKINGS:
        found = utils.parse_rankings("Ranking:" + said)
        made = utils.calculate_retrieval_metrics({"q": found}, {"q": relevance}, [1, 5, 10])
        yield {"task": "rerank", "prediction": said, "references": [""], "relevance": relevance, "score": made["NDCG@10"], "ranked": len(found)}


def cited_scores(alce, rng):
    """As eval_alce.main() prepares answers: in one line, then without citations."""
    def prepared(said):
        return alce.remove_citations(alce.re.sub(r"\n+", " ", said).replace("<|im_end|>", ""))
    answers = [["Maria Holt", "M. Holt"], ["Peter Cole"], ["1890"]]
    lists = [["Maria Holt", "Holt"], ["Peter Cole", "Cole"], ["one"], ["two"], ["three"], ["Four"], ["five"]]
    for number in range(60):
        said = " ".join(rng.choices(SENTENCES, k=rng.randint(0, 7)))
        long = [" ".join(rng.choices(SENTENCES, k=4)) for _ in range(2)]
        pairs = answers[:rng.randint(1, 3)]
        row = {"output": prepared(said), "qa_pairs": [{"short_answers": each} for each in pairs],
               "annotations": [{"long_answer": each} for each in long]}
        share, hit = alce.compute_str_em([row])
        yield {"task": "asqa", "prediction": said, "references": ["x"], "answers": pairs, "long_answers": long, "score": float(share) / 100,
               "str_hit": float(hit) / 100, "rouge_lsum": float(alce.compute_rouge([row])) / 100, "words": alce.compute_len([row])}
        drawn = rng.choices(SENTENCES + ["Holt", "four", "Five [2]"], k=rng.randint(0, 6))
        said = PUNCTUATED[number] if number < len(PUNCTUATED) else ", ".join(drawn)
        row = {"output": prepared(said), "answers": lists[:rng.choice([1, 3, 7])]}
        made = alce.compute_qampari_f1([row])
        yield {"task": "qampari", "prediction": said, "references": ["x"], "answers": row["answers"], "score": float(made["qampari_rec_top5"]) / 100,
               "recall": float(made["qampari_rec"]) / 100, "precision": float(made["qampari_prec"]) / 100, "f1": float(made["qampari_f1"]) / 100,
               "f1_top5": float(made["qampari_f1_top5"]) / 100, "listed": float(made["num_preds"])}


def main():
    datasets.disable_progress_bars()
    utils = sys.modules["utils"] = module_of(CLONE / "utils.py", ["torch"])
    alce = module_of(CLONE / "eval_alce.py", ["torch", "transformers"])
    cut = module_of(CLONE / "model_utils.py", ["torch", "transformers", "tqdm.contrib.concurrent"],
                    [("@torch.no_grad()", "")]).tokenize
    edits = [("num_proc=40", "num_proc=None")]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-B", HERE / "../../datasets/samples/make.py", folder], check=True)
        samples = pathlib.Path(folder) / "helmet"
        official = module_of(CLONE / "data.py", ["torch", "torch.utils", "torch.utils.data", "transformers"], edits)
        official.load_dataset = load_icl(samples)
        made = prompts(official, cut, samples)
        many = prompts_of_many(official, pathlib.Path(folder) / "many")
    rng = random.Random("helmet")
    scores = [*answer_scores(official, rng), *ranking_scores(utils), *cited_scores(alce, rng)]
    text = ",\n".join(json.dumps(each, ensure_ascii=False) for each in scores)
    pathlib.Path(__file__).with_suffix(".json").write_text(
        '{"prompts": %s,\n"many": %s,\n"scores": [\n%s]}\n' % (json.dumps(made), json.dumps(many), text), encoding="utf-8")


main()

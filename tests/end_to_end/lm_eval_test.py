"""lm-evaluation-harness on three tasks: through `kvarena serve` (its model local-completions) and with its own transformers
backend, on the same weights in 32 bits. Full KV gives the same scores, a method others. Tasks and data are made here, for
nothing is fetched. Skipped where lm_eval or the default model is absent.

    python3 tests/end_to_end/lm_eval_test.py build/release/bin/kvarena SOURCE_FOLDER [DOCUMENTS]
"""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

HOME = pathlib.Path(os.environ.get("KVARENA_HOME", pathlib.Path.home() / ".cache" / "kvarena"))
MODEL = HOME / "models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf"
os.environ.update({"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"})
try:
    import gguf  # noqa: F401
    import lm_eval
    import torch
    import transformers
    from lm_eval.tasks import TaskManager
except ImportError as error:
    print(f"skipped: {error}; pip install 'lm-eval[api]' torch transformers accelerate gguf")
    sys.exit(77)
if not MODEL.exists():
    print(f"skipped: no {MODEL}; scripts/setup brings it")
    sys.exit(77)

KVARENA = str(pathlib.Path(sys.argv[1]).resolve())
DOCUMENTS = int(sys.argv[3]) if len(sys.argv) > 3 else 12
METHOD = "streaming_llm:tokens=64"

NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gail", "Hugo", "Iris", "Jack", "Kim", "Leo"]
THINGS = ["bread", "glass", "wool", "paper", "iron", "cheese", "tea", "salt", "silk", "coal", "rice", "soap"]
TOWNS = ["Paris", "Rome", "Oslo", "Cairo", "Lima", "Delhi", "Tokyo", "Dublin", "Prague", "Vienna", "Athens", "Madrid"]

COMMON = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {file}
test_split: test
output_type: {kind}
doc_to_text: {text}
doc_to_target: {target}
metadata:
  version: 1
"""
TASKS = {
    "who_lives_where": ("multiple_choice", '"{{story}}\\nQuestion: Where does {{who}} live?\\nAnswer:"', "'{{answer}}'",
                        'doc_to_choice: "{{choices}}"\nmetric_list:\n  - metric: acc\n  - metric: acc_norm\n', "acc,none"),
    "stories": ("loglikelihood_rolling", '""', '"{{story}}"',
                "metric_list:\n  - metric: word_perplexity\n  - metric: bits_per_byte\n", "bits_per_byte,none"),
    "what_is_sold": ("generate_until", '"{{story}}\\nQuestion: What does {{who}} sell?\\nAnswer: {{who}} sells"',
                     "'{{thing}}'",
                     'generation_kwargs:\n  until: ["\\n", "."]\n  max_gen_toks: 6\n  do_sample: false\n'
                     "filter_list:\n  - name: word\n    filter:\n      - function: regex\n        regex_pattern: '([a-z]+)'\n"
                     "      - function: take_first\n"
                     "metric_list:\n  - metric: exact_match\n    ignore_case: true\n", "exact_match,word"),
}


def write_tasks(folder):
    draw = random.Random(7)
    rows = []
    for _ in range(DOCUMENTS):
        names, towns, things = (draw.sample(words, 8) for words in (NAMES, TOWNS, THINGS))
        story = " ".join(f"{name} lives in {town} and sells {thing} at the market every morning."
                         for name, town, thing in zip(names, towns, things))
        asked = draw.randrange(8)
        choices = draw.sample(towns, 4)
        if towns[asked] not in choices:
            choices[draw.randrange(4)] = towns[asked]
        rows.append({"story": story, "who": names[asked], "thing": things[asked], "choices": choices,
                     "answer": choices.index(towns[asked])})
    data = folder / "stories.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, (kind, text, target, more, _) in TASKS.items():
        (folder / f"{name}.yaml").write_text(COMMON.format(name=name, file=data, kind=kind, text=text, target=target) + more)


def write_dense(folder):
    """The default model as a checkpoint in 32 bits, with the tokenizer."""
    source = {"pretrained_model_name_or_path": str(MODEL.parent), "gguf_file": MODEL.name}
    dense = {}
    if hasattr(transformers, "GgufConfig"):  # versions before it had dense weights alone
        dense["quantization_config"] = transformers.GgufConfig(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32, **dense)
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


class Server:
    def __init__(self, model):
        self.process = subprocess.Popen([KVARENA, "serve", "--model", str(model), "--dtype", "f32", "--method", METHOD,
                                         "--port", "0"], stdout=subprocess.PIPE, text=True)
        self.names = []
        for line in self.process.stdout:
            if line.startswith("http://"):
                self.url = re.match(r"http://[\d.]+:\d+", line)[0]
                return
            self.names.append(line.strip())
        raise RuntimeError("kvarena serve did not start")

    def stop(self):
        self.process.terminate()
        self.process.wait(60)
        self.process.stdout.close()


class LmEval(unittest.TestCase):
    def evaluate(self, model, arguments, batch):
        results = lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=list(TASKS), batch_size=batch,
                                          task_manager=self.tasks, device="cpu", bootstrap_iters=0, log_samples=True)
        scores = {name: results["results"][name][task[4]] for name, task in TASKS.items()}
        answers = {name: [sample["filtered_resps"] for sample in sorted(results["samples"][name], key=lambda one: one["doc_id"])]
                   for name in TASKS}
        print(f"{model} {arguments.get('model', arguments.get('pretrained'))}: {scores}", flush=True)
        return scores, answers

    def test_three_tasks(self):
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            write_tasks(folder)
            self.tasks = TaskManager(include_path=str(folder), include_defaults=False)
            weights = folder / "smollm2"
            write_dense(weights)
            own, own_answers = self.evaluate("hf", {"pretrained": str(weights), "dtype": "float32"}, 1)
            server = Server(weights)
            self.addCleanup(server.stop)
            served, method = (self.evaluate("local-completions",
                                            {"model": name, "base_url": server.url + "/v1/completions",
                                             "tokenizer": str(weights), "num_concurrent": 1, "max_retries": 1}, 1)
                              for name in server.names)
        self.assertEqual(own["who_lives_where"], served[0]["who_lives_where"])
        self.assertEqual(own["what_is_sold"], served[0]["what_is_sold"])
        self.assertEqual(own_answers["what_is_sold"], served[1]["what_is_sold"])
        self.assertAlmostEqual(own["stories"], served[0]["stories"], delta=1e-4)
        for ours, theirs in zip(served[1]["who_lives_where"], own_answers["who_lives_where"]):
            for (value, greedy), (other, was_greedy) in zip(ours, theirs):
                self.assertAlmostEqual(float(value), float(other), delta=2e-3)
                self.assertEqual(str(greedy), str(was_greedy))
        self.assertGreater(method[0]["stories"], served[0]["stories"] + 0.001)
        self.assertNotEqual(served[1]["who_lives_where"], method[1]["who_lives_where"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

#!/usr/bin/env python3
"""datasets_longmemeval.py LONGMEMEVAL: writes datasets_longmemeval.json, the first 12 digits of the SHA-256 of prompts of
project-made rows of LongMemEval by history, reading and number of sessions, and of prompts to its judge, and verdicts.

LONGMEMEVAL is a checkout of xiaowu0162/LongMemEval @9e0b455. Its src/generation/run_generation.py makes the prompts with the
whole history (orig-session) and room for all of it; its src/evaluation/evaluate_qa.py runs with a judge that says given words.
"""

import contextlib
import copy
import hashlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import types

from authors_code import module_of

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = pathlib.Path(sys.argv[1]) / "src"
WORDS = ["yes", "No", "Yes.", "no.", "YES", "", "I cannot say.", "No, yes", "**Yes**", "The answer is no", "Eyes", "n/a", "\n yes\n", "Y"]
RESPONSES = ["I do not know.", "It is {}.", "You told me: {}\n\nAnything else?", "{braces} and $RESPONSE$ and $INST$"]


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def stub(judge=None):
    """What the programs import and do not need, and a judge in the place of a client."""
    sys.modules["backoff"] = types.SimpleNamespace(on_exception=lambda *_, **__: lambda function: function, expo=None, constant=None)
    sys.modules["tqdm"] = types.SimpleNamespace(tqdm=lambda rows: rows)
    client = types.SimpleNamespace(chat=types.SimpleNamespace(completions=types.SimpleNamespace(create=judge)))
    sys.modules["openai"] = types.SimpleNamespace(RateLimitError=Exception, APIError=Exception, OpenAI=lambda **_: client)


def prompts_of(official, rows, history, reading, sessions):
    everything = types.SimpleNamespace(encode=lambda text, allowed_special: [], decode=None)
    return [digest(official.prepare_prompt(copy.deepcopy(row), "orig-session", sessions or 10**6, False, history, reading == "con", everything,
                                           "openai", 1, "none")) for row in rows]


def judged(rows):
    """Rows of [question_id, response, digest of the judge's prompt, the judge's words, verdict]."""
    asked = []

    def say(model, messages, n, temperature, max_tokens):
        asked.append(messages[0]["content"])
        message = types.SimpleNamespace(content=WORDS[len(asked) % len(WORDS)])
        return types.SimpleNamespace(choices=[types.SimpleNamespace(message=message)])
    stub(say)
    answers = [{"question_id": row["question_id"], "hypothesis": response.replace("{}", str(row["answer"]))} for row in rows for response in RESPONSES]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        said, truth = f"{folder}/said", f"{folder}/truth"
        pathlib.Path(said).write_text("".join(json.dumps(answer) + "\n" for answer in answers))
        pathlib.Path(truth).write_text(json.dumps(rows))
        sys.argv = ["evaluate_qa.py", "gpt-4o", said, truth]
        module_of(SOURCE / "evaluation/evaluate_qa.py", edits=[("if __name__ == '__main__':", "if True:")])
        lines = [json.loads(line) for line in open(f"{said}.eval-results-gpt-4o")]
    return [[line["question_id"], line["hypothesis"], digest(prompt), WORDS[(i + 1) % len(WORDS)], line["autoeval_label"]["label"]]
            for i, (line, prompt) in enumerate(zip(lines, asked))]


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-B", HERE / "../../datasets/samples/make.py", folder], check=True)
        rows = {name: json.loads(pathlib.Path(folder, f"longmemeval/longmemeval_{name}.json").read_text()) for name in ("s_cleaned", "oracle")}
    stub()
    official = module_of(SOURCE / "generation/run_generation.py", ["transformers", "tiktoken"])
    prompts = [{"set": name, "history": history, "reading": reading, "sessions": sessions,
                "prompts": prompts_of(official, rows[f"{name}_cleaned" if name == "s" else name], history, reading, sessions)}
               for name, history, reading, sessions in (("s", "json", "con", 0), ("s", "nl", "direct", 0), ("s", "json", "direct", 3),
                                                        ("oracle", "json", "con", 0), ("oracle", "nl", "con", 1))]
    told = {row["question_id"]: {name: str(row[name]) for name in ("question_id", "question_type", "question", "answer")} for row in rows["oracle"]}
    text = (",\n".join(json.dumps(row) for row in prompts), json.dumps(told), ",\n".join(json.dumps(row) for row in judged(rows["oracle"])))
    pathlib.Path(__file__).with_suffix(".json").write_text('{"prompts": [\n%s],\n"rows": %s,\n"judged": [\n%s]}\n' % text)


main()

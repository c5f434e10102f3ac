"""Writes metrics_needle_judge.json: what LangChain 0.2.17 asks a judge under the rubric of
gkamradt/LLMTest_NeedleInAHaystack, and which mark it reads from the judge's words.

    pip install langchain==0.2.17 && python metrics_needle_judge.py PATH/needlehaystack/evaluators/openai.py
"""
import ast
import json
import os
import sys

from langchain.evaluation.scoring.eval_chain import LabeledScoreStringEvalChain
from langchain_core.language_models import FakeListChatModel

HERE = os.path.dirname(os.path.abspath(__file__))
ANSWERS = ["Eat a sandwich {in} Dolores Park.", "", "I do not know $INST$", "Sit\nin the park\n"]
JUDGE = ["It is right. Rating: [[10]]", "[[3]]", "[[ 7 ]]", "Rating: [[0]]", "[[11]] then [[5]]", "[7]", "Rating: 7", "",
         "[[]]", "[[1]][[10]]", "[[5\n]] [[7]]", "[[[9]]]", "[[x]] or [[9]]", "[[07]]", "[[9]]"]


def criteria(path):
    for node in ast.walk(ast.parse(open(path).read())):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "CRITERIA":
            return ast.literal_eval(node.value)
    sys.exit(f"{path} has no CRITERIA")


class Recorder(FakeListChatModel):
    asked: list = []

    def _call(self, messages, *args, **kwargs):
        self.asked.append([(message.type, message.content) for message in messages])
        return super()._call(messages, *args, **kwargs)


def main():
    rows = []
    for number, judge in enumerate(JUDGE):
        row = {"question": "What is the best thing to do in San Francisco?",
               "needle": "\nThe best thing to do is eat a sandwich and sit in Dolores Park on a sunny day.\n",
               "response": ANSWERS[number % len(ANSWERS)], "judge": judge}
        model = Recorder(responses=[judge])
        evaluator = LabeledScoreStringEvalChain.from_llm(model, criteria=criteria(sys.argv[1]))  # "labeled_score_string"
        try:
            row["mark"] = evaluator.evaluate_strings(prediction=row["response"], reference=row["needle"],
                                                     input=row["question"])["score"]
        except ValueError:
            row["mark"] = None
        (system, row["system"]), (human, row["asked"]) = model.asked[-1]
        assert (system, human) == ("system", "human")
        rows.append(row)
    with open(os.path.join(HERE, "metrics_needle_judge.json"), "w") as out:
        json.dump(rows, out, indent=1)
        out.write("\n")


main()

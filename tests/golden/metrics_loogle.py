#!/usr/bin/env python3
"""metrics_loogle.py CLONE: writes metrics_loogle.json, answers to LooGLE and what the clone's automatic_metrics.py finds.

CLONE is bigai-nlco/LooGLE @6734382, with nltk 3.9.1 and rouge 1.0.1; METEOR and BERTScore are left out.
"""

import json
import pathlib
import random
import sys
import warnings

from authors_code import module_of

warnings.filterwarnings("ignore")
WORDS = "the ferry harbour runs . council of at noon twice a day 3 boats. naïve \n and the The it".split(" ")
MASKS = {"<mask-0>": "Bob Stone", "<mask-1>": "Gorrosion Magazine", "<mask-2>": "Bethel"}
ANSWERS = ["{'<mask-0>': 'Bob Stone', '<mask-1>': 'Magazine', '<mask-2>': 'Bethel'}", '{"<mask-0>": "Bob", "<mask-9>": "x"}',
           "{'<mask-0>': 'Bob Stone'", "The masks are {'<mask-0>': 'Bob Stone'}", "", "['<mask-0>']", "{}", "{'<mask-1>': ''}",
           " {'<mask-2>': 'Bethel',\n '<mask-0>': \"Bob\"}", "{'<mask-0>': 'Bob' ' Stone'}", "{'<mask-0>': ('Bob Stone')}",
           "{'<mask-2>': 'bethel'}", "{'<mask-0>': 'Bob Stone'}.", "None", "{'<mask-0>': 'Stone Bob', '<mask-1>': 'Gorrosion Magazine'}",
           "dict", "{'<mask-2>': 'Bethel Horizon'} # sure", "{'<mask-0>': 'Bob Stone'}\n\nQuestion:", "{'<mask-0>': 'Bob\\x20Stone'}",
           "{<mask-0>: Bob}", "\t{'<mask-0>': 'Bob Stone'}", "{'<mask-0>': 'Bob Stone', }", "({'<mask-0>': 'Bob Stone'})"]


def main():
    official = module_of(pathlib.Path(sys.argv[1]) / "Evaluation/automatic_metrics.py", ["nltk.translate.meteor_score", "bert_score"])
    rng = random.Random("loogle")
    texts = []
    for n in range(60):
        reference = rng.choices(WORDS, k=rng.randint(1, 30))
        words = [word if rng.random() < 0.7 else rng.choice(WORDS) for word in reference[:rng.randint(1, 30)]]
        prediction = " ".join(words + rng.choices(WORDS, k=rng.choice([0, 0, 3, 20]))) if n % 12 else ""
        row = {"prediction": prediction, "reference": " ".join(reference)}
        hypothesis = prediction or "None"
        try:
            rouge = official.get_rouge_score("", row["reference"], hypothesis, "")
        except ValueError:
            continue  # a text of nothing but dots, where the evaluation ends
        texts.append({**row, "rouge": rouge, "bleu": official.get_bleu_score("", row["reference"], hypothesis, "")})
    clozes = [{"prediction": answer, "exact": official.get_exact_match("", MASKS, answer or "None", "")[0],
               "partial": official.get_partial_match("", MASKS, answer or "None", "")[0]} for answer in ANSWERS]
    text = "".join(f",\n{json.dumps(row, ensure_ascii=False)}" for row in clozes)[2:]
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text('{"masks": ' + json.dumps(MASKS) + ', "clozes": [\n' + text + '\n], "texts": [\n' +
                    ",\n".join(json.dumps(row, ensure_ascii=False) for row in texts) + "\n]}\n", encoding="utf-8")


main()

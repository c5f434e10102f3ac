"""Files in the form of HELMET's data, its shortest lengths only: questions over passages, passages to rank, examples of labels,
and questions to answer with citations."""

import json
import random

from invented import person, remark, towns
from make_others import write, write_rows

QUESTIONS, DEPTHS, PASSAGES = 8, 3, 14
LABELS = 6  # used; the official sets have more of them


def passages(rng, places, sentences=4):
    return [{"title": place.name, "text": place.text(rng, sentences)} for place in places]


def asked(rng, town, kind):
    return [(f"Who founded the {town.trade} of {town.name}?", town.founder), (f"Who leads the school of {town.name}?", town.teacher),
            (f"What are visitors to {town.name} told to try?", town.dish)][kind]


def key(name, n):
    """What tells rows of different questions apart beside the question; of PopQA with how well known its subject is."""
    if name == "popqa":
        return {"id": n, "s_pop": 10 if n < QUESTIONS else 1000}
    return {"id": f"{name}-{n}"} if name.startswith("hotpotqa") else {}


def question_rows(name, questions, count):
    """Rows of one question have its passage at several places among the others."""
    for n in range(questions):
        rng = random.Random(f"helmet {name} {n}")
        places = towns(rng, count)
        question, answer = asked(rng, places[0], n % 3)
        answer = [answer, answer.split()[-1]]
        others = passages(rng, places[1:])
        gold = passages(rng, places[:1])
        for depth in range(DEPTHS):
            at = depth * len(others) // (DEPTHS - 1)
            yield {**key(name, n), "question": question, "answers": answer, "depth": depth / (DEPTHS - 1),
                   "ctxs": others[:at] + gold + others[at:]}


def kilt():
    for name, data, demos, depth in (("nq", "nq-dev-multikilt_1000", "nq-train-multikilt_1000", 6),
                                     ("triviaqa", "triviaqa-dev-multikilt_1000", "triviaqa-train-multikilt_1000", 6),
                                     ("hotpotqa", "hotpotqa-dev-multikilt_1000", "hotpotqa-train-multikilt_1000", 3),
                                     ("popqa", "popqa_test_1000", "popqa_test_1000", 6)):
        write_rows(f"helmet/data/kilt/{data}_k50_dep{depth}.jsonl", list(question_rows(name, QUESTIONS + 1, PASSAGES)))
        shown = name if data == demos else f"{name}-train"
        write_rows(f"helmet/data/kilt/{demos}_k3_dep{depth}.jsonl", list(question_rows(shown, QUESTIONS + 2, 3)))


def ranked_rows(name, questions, count):
    """Passages about the asked town are relevant, most so the one that answers."""
    for n in range(questions):
        rng = random.Random(f"helmet {name} {n}")
        places = towns(rng, count)
        town = places[0]
        texts = [(3, f"The {town.trade} of {town.name} was founded by {town.founder}."), (2, f"{town.name} has a {town.trade}."),
                 (1, f"{town.name} lies on the {town.river}.")] + [(0, remark(rng, place.name)) for place in places[1:]]
        ids = rng.sample(range(10000, 99999), len(texts))
        ctxs = [{"id": str(number), "text": f"{text} {remark(rng, town.name if label else 'another town')}", "label": label}
                for number, (label, text) in zip(ids, texts)]
        for _ in range(DEPTHS):
            rng.shuffle(ctxs)
            yield {"qid": f"{name}-{n}", "query": f"who founded the {town.trade} of {town.name}", "ctxs": list(ctxs)}


def msmarco():
    write_rows("helmet/data/msmarco/test_reranking_data_k50_dep3.jsonl", list(ranked_rows("msmarco", QUESTIONS, 36)))
    write_rows("helmet/data/msmarco/test_reranking_data_k10_dep3.jsonl", list(ranked_rows("msmarco", QUESTIONS + 2, 8)))


def labelled(rng, label):
    """A short text whose label is told by what it speaks of."""
    return f"{person(rng)} {['sails', 'bakes', 'sings', 'paints', 'digs', 'teaches'][label]} in {towns(rng, 1)[0].name}."


def icl():
    for name, fields in (("trec", ("coarse_label", "fine_label")), ("banking77", ("label",)), ("clinic150", ("intent",)), ("nlu", ("label",))):
        for part, rows in (("train", 20), ("test", 4)):
            rng = random.Random(f"helmet icl {name} {part}")
            labels = [label for label in range(LABELS) for _ in range(rows)]
            rng.shuffle(labels)
            write_rows(f"helmet/icl/{name}_{part}.jsonl",
                       [{"text": labelled(rng, label), **dict.fromkeys(fields, label)} for label in labels])


def alce():
    """Questions about several towns; the demonstrations have five passages, as there."""
    kinds = {"asqa": ("Instruction: Answer the question in a few sentences from the documents. Cite a document as [x] behind what it says.",
                      "Which people founded the {0} and the {1} of {2} and {3}?"),
             "qampari": ("Instruction: Answer the question with a list from the documents, with commas. Cite a document as [x] behind each.",
                         "Who founded the works of {2} and {3}?")}
    for name, (instruction, form) in kinds.items():
        rows, demos = [], []
        for n in range(24 + 4):
            rng = random.Random(f"helmet alce {name} {n}")
            places = towns(rng, 5 if n < 4 else 30)
            a, b = places[:2]
            question = form.format(a.trade, b.trade, a.name, b.name)
            docs = passages(rng, places, 1)
            rng.shuffle(docs)
            at = [1 + next(k for k, doc in enumerate(docs) if doc["title"] == town.name) for town in (a, b)]
            answers = [[a.founder, a.founder.split()[1]], [b.founder, b.founder.split()[1]]]
            text = f"{a.founder} founded the {a.trade} of {a.name} [{at[0]}]. That of {b.name} was founded by {b.founder} [{at[1]}]."
            listed = f"{a.founder} [{at[0]}], {b.founder} [{at[1]}]."
            if n < 4:
                demos.append({"question": question, "answer": text if name == "asqa" else listed, "docs": docs})
            elif name == "asqa":
                rows.append({"question": question, "answer": text, "docs": docs, "annotations": [{"long_answer": text}, {"long_answer": listed}],
                             "qa_pairs": [{"question": f"Who founded the {town.trade} of {town.name}?", "short_answers": short}
                                          for town, short in zip((a, b), answers)]})
            else:
                rows.append({"question": question, "answer": listed, "docs": docs, "answers": answers})
        write(f"helmet/data/alce/{name}_eval_gtr_top2000.json", json.dumps(rows, ensure_ascii=False))
        end = "\n\nAnswer: {answer}" if name == "asqa" else "\nAnswer: {answer}"
        write(f"helmet/prompts/{name}_revised.json", json.dumps({
            "instruction": instruction, "demo_sep": "\n\n\n", "demo_prompt": "{instruction}\n\nQuestion: {question}\n\n{context}" + end,
            "doc_prompt": "Document [{ID}](Title: {title}): {text}", "demos": demos}, ensure_ascii=False))


def main():
    kilt()
    msmarco()
    icl()
    alce()

#!/usr/bin/env python3
"""Writes longbench/*.jsonl: three small rows for each task, in the form of the official files.

Every text is the project's own. Run it in this folder; the result does not depend on the machine.
"""

import hashlib
import json
import random

TOWNS = ["Alderwick", "Brookford", "Coldmere", "Dunhaven", "Elmgate", "Fairdale"]
PEOPLE = ["Maria Holt", "Peter Cole", "Anna Reed", "David Frost", "Laura Shaw", "Thomas Lane"]
TRADES = ["bakery", "print shop", "dairy", "rope works", "glass house", "brick yard"]
RIVERS = ["Arda", "Kell", "Lune", "Orla", "Sava", "Tarn"]
ZH_TOWNS = ["青石镇", "白河镇", "松林镇", "东湾镇", "南坡镇", "云桥镇"]
ZH_PEOPLE = ["李明", "王芳", "张伟", "陈静", "刘洋", "赵敏"]


def town_text(rng, i, sentences):
    """A description of town i; the first sentences carry the facts that questions are about."""
    facts = [
        f"{TOWNS[i]} lies on the river {RIVERS[i]}, two days on foot from the coast.",
        f"Its {TRADES[i]} was founded by {PEOPLE[i]} in {1800 + 13 * i} and still employs {20 + 7 * i} people.",
        f"The bridge of {TOWNS[i]} has {3 + i} arches and was rebuilt after the flood of {1850 + 9 * i}.",
    ]
    more = [
        "In winter the market is held in the school, because the square is windy.",
        "Visitors usually stay one night and praise the soup.",
        "The council meets on the first Tuesday of the month and publishes its minutes.",
        "A footpath follows the water as far as the old mill.",
        "Older people remember the narrow railway, which closed when the road was paved.",
        "The library opens in the afternoon and lends tools as well as books.",
        "Every second house has a garden, and apples are given away in autumn.",
        "There is one inn, one doctor, and no traffic light.",
    ]
    rng.shuffle(more)
    return " ".join(facts + more[:sentences])


def passages(rng, count, sentences, start="Passage"):
    order = list(range(count))
    rng.shuffle(order)
    return order, "\n".join(f"{start} {n + 1}:\n{TOWNS[i]}\n{town_text(rng, i, sentences)}" for n, i in enumerate(order))


def zh_text(i):
    return (f"{ZH_TOWNS[i]}位于山谷之中，有{3 + i}座桥。镇上的学校由{ZH_PEOPLE[i]}在{1950 + i}年创办，现有学生{100 + 20 * i}人。"
            f"每年秋天，镇上举办苹果节，邻近的居民都会前来参加。冬天集市改在学校里举行。")


def row(task, number, language, context, question, answers, classes=None):
    words = len((context + question + "".join(answers))) if language == "zh" else len(
        f"{context} {question} {' '.join(answers)}".split())
    identity = hashlib.sha256(f"{task} {number} {context} {question}".encode()).hexdigest()[:48]
    return {"input": question, "context": context, "answers": answers, "length": words, "dataset": task,
            "language": language, "all_classes": classes, "_id": identity}


def qa(task, rng, n):
    i = (n * 2 + 1) % 6
    _, text = passages(rng, 6, 5)
    return row(task, n, "en", text, f"Who founded the {TRADES[i]} of {TOWNS[i]}?", [PEOPLE[i], PEOPLE[i].split()[1]])


def single(task, rng, n):
    i = (n + 3) % 6
    text = "\n\n".join(town_text(rng, k, 6) for k in range(6))
    return row(task, n, "en", text, f"How many arches does the bridge of {TOWNS[i]} have?", [str(3 + i)])


def zh_qa(task, rng, n):
    text = "\n".join(zh_text(k) for k in rng.sample(range(6), 6))
    return row(task, n, "zh", text, f"{ZH_TOWNS[n]}的学校是谁创办的？", [ZH_PEOPLE[n]])


def summary(task, rng, n):
    text = "\n".join(town_text(rng, k, 7) for k in rng.sample(range(6), 6))
    question = "What was said about the bridges?" if task == "qmsum" else ""
    return row(task, n, "en", text, question,
               ["The report describes six towns on rivers, their trades and founders, and bridges rebuilt after floods."])


def zh_summary(task, rng, n):
    text = "\n".join(f"发言人{k + 1}：{zh_text(k)}" for k in rng.sample(range(6), 6))
    return row(task, n, "zh", text, "", ["会议介绍了六个镇的桥梁、学校和秋天的苹果节。"])


CLASSES = ["Number of something", "Individual", "Title of a person", "City", "Date", "River"]
ZH_CLASSES = ["经济", "体育", "教育", "交通", "文化"]


def trec(task, rng, n):
    shots = []
    for k in rng.sample(range(6), 6):
        shots += [(f"How many arches has the bridge of {TOWNS[k]} ?", CLASSES[0]),
                  (f"Who founded the {TRADES[k]} of {TOWNS[k]} ?", CLASSES[1]),
                  (f"Which river passes {TOWNS[k]} ?", CLASSES[5])]
    context = "\n".join(f"Question: {q}\nType: {a}" for q, a in shots)
    question, answer = [(f"Who rebuilt the bridge of {TOWNS[n]} ?", CLASSES[1]),
                        (f"How many people work at the {TRADES[n]} ?", CLASSES[0]),
                        (f"Which river floods {TOWNS[n]} ?", CLASSES[5])][n]
    return row(task, n, "en", context, f"Question: {question}\nType:", [answer], CLASSES)


def lsht(task, rng, n):
    shots = [(f"{ZH_TOWNS[k]}的学校今年新增{k + 2}个班级。", "教育") if k % 2 else (f"{ZH_TOWNS[k]}的公路将于{k + 3}月完工。", "交通")
             for k in rng.sample(range(6), 6)]
    context = "\n".join(f"新闻内容：{t}\n类别：{c}" for t, c in shots)
    return row(task, n, "zh", context, f"新闻内容：{ZH_TOWNS[n]}的新铁路通车。\n类别：", ["交通"], ZH_CLASSES)


def triviaqa(task, rng, n):
    shots = "\n\n".join(f"Passage:\n{town_text(rng, k, 4)}\nQuestion:\nWhich river passes {TOWNS[k]}?\nAnswer:\n{RIVERS[k]}"
                        for k in range(3))
    i = 3 + n
    return row(task, n, "en", shots,
               f"Passage:\n{town_text(rng, i, 4)}\nQuestion:\nWho founded the {TRADES[i]} of {TOWNS[i]}?\nAnswer:\n",
               [PEOPLE[i]])


def dialogue(rng, i):
    first, second = PEOPLE[i].split()[0], PEOPLE[(i + 1) % 6].split()[0]
    return (f"Dialogue: {first}: Are you coming to {TOWNS[i]} on Saturday?\n{second}: Only if the bridge is open.\n"
            f"{first}: It is, since noon.\n{second}: Then I will bring the apples.\nSummary: ",
            f"{second} will come to {TOWNS[i]} on Saturday and bring apples.")


def samsum(task, rng, n):
    shots = [dialogue(rng, k) for k in range(3)]
    question, answer = dialogue(rng, 3 + n)
    return row(task, n, "en", "\n".join(q + a for q, a in shots), question, [answer])


def passage_count(task, rng, n):
    order = [rng.randrange(6) for _ in range(8)]
    texts = {k: town_text(rng, k, 4) for k in set(order)}
    context = "\n\n".join(f"Paragraph {p + 1}: {texts[k]}" for p, k in enumerate(order))
    return row(task, n, "en", context, "", [str(len(set(order)))])


def passage_retrieval(task, rng, n):
    order = rng.sample(range(6), 6)
    i = rng.randrange(6)
    if task.endswith("zh"):
        context = "\n\n".join(f"段落{p + 1}：{zh_text(k)}" for p, k in enumerate(order))
        return row(task, n, "zh", context, f"文中介绍了{ZH_TOWNS[i]}的桥梁和由{ZH_PEOPLE[i]}创办的学校。",
                   [f"段落{order.index(i) + 1}"])
    context = "\n\n".join(f"Paragraph {p + 1}: {town_text(rng, k, 5)}" for p, k in enumerate(order))
    return row(task, n, "en", context,
               f"The text is about a town on the river {RIVERS[i]} whose {TRADES[i]} was founded by {PEOPLE[i]}.",
               [f"Paragraph {order.index(i) + 1}"])


def code(task, rng, n):
    language = ["python", "java", "csharp"][n]
    if language == "python":
        lines = ["class Ledger:", '    """Counts {braces} and keeps totals."""', "    def __init__(self):",
                 "        self.total = 0", "        self.count = 0", "", "    def add(self, amount):",
                 "        self.total += amount", "        self.count += 1", "", "    def mean(self):"]
        answer = "        return self.total / max(1, self.count)"
    else:
        lines = ["class Ledger {", "    private int total;", "    private int count;",
                 "    void add(int amount) {", "        total += amount;", "        count += 1;", "    }",
                 "    int mean() {"]
        answer = "        return total / Math.max(1, count);"
    context = "\n".join(lines) + "\n"
    if task == "lcc":
        return row(task, n, language, context, "", [answer])
    return row(task, n, language, f"# Path: ledger_{n}\n{context}", "\n".join(lines[-2:]) + "\n", [answer])


MAKERS = {
    "narrativeqa": single, "qasper": single, "multifieldqa_en": single, "multifieldqa_zh": zh_qa, "hotpotqa": qa,
    "2wikimqa": qa, "musique": qa, "dureader": zh_qa, "gov_report": summary, "qmsum": summary, "multi_news": summary,
    "vcsum": zh_summary, "trec": trec, "triviaqa": triviaqa, "samsum": samsum, "lsht": lsht,
    "passage_count": passage_count, "passage_retrieval_en": passage_retrieval,
    "passage_retrieval_zh": passage_retrieval, "lcc": code, "repobench-p": code,
}
IN_E = ["qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "gov_report", "multi_news", "trec", "triviaqa", "samsum",
        "passage_count", "passage_retrieval_en", "lcc", "repobench-p"]

def main():
    for task, maker in MAKERS.items():
        for suffix in ["", "_e"] if task in IN_E else [""]:
            rng = random.Random(f"{task}{suffix}")
            with open(f"longbench/{task}{suffix}.jsonl", "w", encoding="utf-8") as file:
                for n in range(3):
                    file.write(json.dumps(maker(task, rng, n), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

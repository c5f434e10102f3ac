"""longbench/*.jsonl: rows of about 2,000 to 4,000 tokens for each task, in the form of the official files."""

import hashlib
import json
import os
import random

import source_files
from invented import FIRST, people, person, remark, towns, zh_towns

ROWS = 5


def row(task, number, language, context, question, answers, classes=None):
    words = len((context + question + "".join(answers))) if language == "zh" else len(
        f"{context} {question} {' '.join(answers)}".split())
    identity = hashlib.sha256(f"{task} {number} {context} {question}".encode()).hexdigest()[:48]
    return {"input": question, "context": context, "answers": answers, "length": words, "dataset": task,
            "language": language, "all_classes": classes, "_id": identity}


def narrativeqa(task, rng, n):
    """A journey, a chapter a town; the question is about one meeting."""
    places, hero = towns(rng, 8), person(rng)
    gifts = rng.sample(["a brass key", "a blue lantern", "a torn map", "a silver whistle", "a box of seeds", "a wooden flute",
                        "an old almanac", "a coil of rope", "a green umbrella", "a clay bird"], 8)
    chapters = []
    for k, town in enumerate(places):
        lines = [f"{hero} reached {town.name} on the {['first', 'second', 'third', 'fourth', 'fifth', 'sixth', 'seventh', 'eighth'][k]} day.",
                 f"At the {town.trade} {town.founder} gave {hero.split()[0]} {gifts[k]} and asked for news of the coast."]
        lines += [remark(rng, town.name) for _ in range(7)]
        lines.append(f"That night {hero.split()[0]} ate {town.dish} and slept badly.")
        chapters.append(f"CHAPTER {k + 1}\n\n" + " ".join(lines))
    k = rng.randrange(8)
    return row(task, n, "en", "\n\n".join(chapters),
               f"Who gave {hero.split()[0]} {gifts[k]} in {places[k].name}?", [places[k].founder])


def qasper(task, rng, n):
    """A paper; questions ask for a number, a name, yes or no, or what it does not say."""
    corpora = rng.sample(["FieldNotes", "HarbourTalk", "MarketTimes", "RailLetters", "TownMinutes", "WeatherLog"], 4)
    methods = rng.sample(["a nearest-neighbour rule", "a linear tagger", "a two-layer network", "a word-count baseline",
                          "a pattern matcher"], 4)
    sizes = [rng.randrange(1000, 90000) for _ in corpora]
    scores = [[rng.randrange(400, 900) / 10 for _ in corpora] for _ in methods]
    readers = people(rng, 3)
    places = towns(rng, 4)
    parts = [f"Finding place names in {len(corpora)} collections of local letters",
             "Abstract\nWe compare {} on {}.".format(", ".join(methods), ", ".join(corpora))]
    for corpus, size, town in zip(corpora, sizes, places):
        parts.append(f"Data: {corpus}\n{corpus} has {size} sentences, collected in {town.name}. " + town.text(rng, 7))
    for method, line in zip(methods, scores):
        results = "; ".join(f"{score} on {corpus}" for score, corpus in zip(line, corpora))
        parts.append(f"Results of {method}\nIts F1 is {results}. " + " ".join(remark(rng, places[0].name) for _ in range(4)))
    parts.append(f"Annotation\n{readers[0]}, {readers[1]} and {readers[2]} marked every sentence; no other readers took part.")
    k = rng.randrange(4)
    best = max(range(4), key=lambda m: scores[m][k])
    question, answer = [(f"How many sentences does {corpora[k]} have?", str(sizes[k])),
                        (f"Which method has the highest F1 on {corpora[k]}?", methods[best]),
                        (f"Did {readers[1]} take part in the annotation?", "yes"),
                        (f"What is the price of {corpora[k]}?", "unanswerable"),
                        (f"In which town was {corpora[k]} collected?", places[k].name)][n % 5]
    return row(task, n, "en", "\n\n".join(parts), question, [answer])


def multifieldqa(task, rng, n):
    places = towns(rng, 7)
    town = rng.choice(places)
    question, answer = [(f"How many arches does the bridge of {town.name} have?", town.arches),
                        (f"Who leads the school of {town.name}?", town.teacher),
                        (f"In which year was the {town.trade} of {town.name} founded?", town.founded),
                        (f"How many books does the library of {town.name} hold?", town.books),
                        (f"In which month is the fair of {town.name}?", town.month)][n % 5]
    return row(task, n, "en", "\n\n".join(place.text(rng, 9) for place in places), question, [str(answer)])


def two_hops(task, rng, n):
    """Passages about towns and about people born there: the question names the person, the answer is the town's."""
    places = towns(rng, 7)
    born = people(rng, 7)
    passages = [f"{town.name}\n{town.text(rng, 6)}" for town in places]
    passages += [f"{name}\n{name} was born in {town.name} and later moved away. " +
                 " ".join(remark(rng, town.name) for _ in range(4)) for name, town in zip(born, places)]
    rng.shuffle(passages)
    k = rng.randrange(7)
    town = places[k]
    question, answer = [(f"Who founded the {town.trade} of the town where {born[k]} was born?", town.founder),
                        (f"On which river lies the town where {born[k]} was born?", town.river),
                        (f"Who rebuilt the bridge of the town where {born[k]} was born?", town.builder)][n % 3]
    context = "\n".join(f"Passage {p + 1}:\n{text}" for p, text in enumerate(passages))
    return row(task, n, "en", context, question, [answer])


def zh_qa(task, rng, n):
    places = zh_towns(rng, 14)
    town = rng.choice(places)
    text = "\n".join(f"文章{p + 1}：{place.text(rng, 5)}" for p, place in enumerate(places))
    question, answer = [(f"{town.name}的学校是谁创办的？", town.founder),
                        (f"{town.name}共有几座桥？", f"{town.bridges}座")][n % 2]
    return row(task, n, "zh", text, question, [answer])


def gov_report(task, rng, n):
    places = towns(rng, 7)
    parts = []
    for k, town in enumerate(places):
        parts.append(f"{k + 1}. {town.name}\n" + town.text(rng, 8) +
                     f" The council of {town.name} should repair the bridge first and the school after it.")
    summary = "The report describes {}. ".format(", ".join(town.name for town in places)) + " ".join(
        f"In {town.name} the {town.trade} employs {town.workers} people." for town in places[:4]) + \
        " It advises every council to repair the bridge first and the school after it."
    return row(task, n, "en", "\n\n".join(parts), "", [summary])


def multi_news(task, rng, n):
    """Articles of several papers about one flood."""
    town, mayor = towns(rng, 1)[0], person(rng)
    homes, days = rng.randrange(40, 900), rng.randrange(2, 9)
    articles = []
    for paper in ("Courier", "Herald", "Observer", "Gazette", "Chronicle"):
        lines = [f"The river {town.river} flooded {town.name} and {homes} homes, the {paper} learned.",
                 f"{mayor}, the mayor, said that the bridge stays closed for {days} days.",
                 f"{town.founder} of the {town.trade} lent boats."]
        for _ in range(14):
            lines.insert(rng.randrange(1, len(lines) + 1), remark(rng, town.name))
        articles.append(" ".join(lines))
    summary = (f"The river {town.river} flooded {homes} homes in {town.name}. Mayor {mayor} keeps the bridge closed for {days} "
               f"days, and {town.founder} of the {town.trade} lent boats.")
    return row(task, n, "en", "\n\n".join(articles), "", [summary])


TOPICS = ["the ferry", "the school roof", "the market hall", "the footpath", "the street lamps", "the library hours"]


def qmsum(task, rng, n):
    """A council's minutes; each topic ends in a decision."""
    town, council = towns(rng, 1)[0], people(rng, 5)
    said, decisions = [], {}
    for topic in rng.sample(TOPICS, 6):
        amount, month = rng.randrange(100, 9000), rng.choice(["March", "June", "October"])
        decisions[topic] = f"The council decided to spend {amount} crowns on {topic} before {month}."
        said.append(f"{council[0]}: Let us turn to {topic}.")
        said += [f"{rng.choice(council[1:])}: {remark(rng, town.name)} That bears on {topic}." for _ in range(9)]
        said.append(f"{council[0]}: {decisions[topic]}")
    topic = rng.choice(TOPICS)
    return row(task, n, "en", "\n".join(said), f"What did the council decide about {topic}?", [decisions[topic]])


def vcsum(task, rng, n):
    places = zh_towns(rng, 10)
    text = "\n".join(f"发言人{k + 1}：{town.text(rng, 8)}" for k, town in enumerate(places))
    summary = "会议依次介绍了" + "、".join(town.name for town in places) + f"的桥梁和学校，其中{places[0].name}的学校由{places[0].founder}创办。"
    return row(task, n, "zh", text, "", [summary])


CLASSES = ["Number of something", "Individual", "Title of a person", "City", "Date", "River"]


def trec(task, rng, n):
    kinds = [("How many arches has the bridge of {} ?", 0), ("Who leads the school of {} ?", 1),
             ("What is the rank of the officer at {} ?", 2), ("Which town lies beside {} ?", 3),
             ("When was the mill of {} built ?", 4), ("Which river passes {} ?", 5)]
    asked = [(kinds[k % 6], town) for k, town in enumerate(towns(rng, 120))]
    rng.shuffle(asked)
    (text, label), town = asked.pop()
    shots = "\n".join(f"Question: {q.format(t.name)}\nType: {CLASSES[c]}" for (q, c), t in asked)
    return row(task, n, "en", shots, f"Question: {text.format(town.name)}\nType:", [CLASSES[label]], CLASSES)


ZH_NEWS = {"教育": "{}的学校今年新增{}个班级。", "交通": "{}的公路将于{}月完工。", "体育": "{}足球队以{}比一获胜。",
           "经济": "{}的茶厂今年增产百分之{}。", "文化": "{}的合唱节将演出{}首新歌。"}


def lsht(task, rng, n):
    shots = [(kind, ZH_NEWS[kind].format(town.name, rng.randrange(2, 10)))
             for town, kind in zip(zh_towns(rng, 70), list(ZH_NEWS) * 14)]
    rng.shuffle(shots)
    kind, news = shots.pop()
    context = "\n".join(f"新闻内容：{text}\n类别：{label}" for label, text in shots)
    return row(task, n, "zh", context, f"新闻内容：{news}\n类别：", [kind], list(ZH_NEWS))


def triviaqa(task, rng, n):
    texts = [(town, f"Passage:\n{town.text(rng, 7)}\nQuestion:\nWho founded the {town.trade} of {town.name}?\nAnswer:\n")
             for town in towns(rng, 7)]
    town, question = texts.pop()
    return row(task, n, "en", "\n\n".join(text + shot.founder for shot, text in texts), question,
               [town.founder, town.founder.split()[1]])


def dialogue(rng, town):
    first, second = rng.sample(FIRST, 2)
    day, thing = rng.choice(["Monday", "Saturday", "Sunday"]), rng.choice(["apples", "chairs", "songs", "lamps", "tools"])
    said = [f"Dialogue: {first}: Are you coming to {town.name} on {day}?", f"{second}: Only if the bridge is open.",
            f"{first}: It is, since noon. {remark(rng, town.name)}", f"{second}: I know, {town.founder} told me.",
            f"{first}: Could you bring the {thing}?", f"{second}: Then I will bring the {thing}. See you on {day}!"]
    return "\r\n".join(said) + "\nSummary: ", f"{second} will come to {town.name} on {day} and bring the {thing}."


def samsum(task, rng, n):
    shots = [dialogue(rng, town) for town in towns(rng, 26)]
    question, answer = shots.pop()
    return row(task, n, "en", "\n".join(q + a for q, a in shots), question, [answer])


def passage_count(task, rng, n):
    texts = [town.text(rng, 3) for town in towns(rng, 11)]
    order = [rng.randrange(11) for _ in range(15)]
    context = "\n\n".join(f"Paragraph {p + 1}: {texts[k]}" for p, k in enumerate(order))
    return row(task, n, "en", context, "", [str(len(set(order)))])


def passage_retrieval(task, rng, n):
    places = towns(rng, 15)
    k = rng.randrange(15)
    town = places[k]
    context = "\n\n".join(f"Paragraph {p + 1}: {place.text(rng, 3)}" for p, place in enumerate(places))
    return row(task, n, "en", context, f"A town whose {town.trade} was founded by {town.founder} and whose bridge, rebuilt by "
               f"{town.builder}, has {town.arches} arches. {town.teacher} leads the school.", [f"Paragraph {k + 1}"])


def passage_retrieval_zh(task, rng, n):
    places = zh_towns(rng, 20)
    k = rng.randrange(20)
    context = "\n\n".join(f"段落{p + 1}：{place.text(rng, 3)}" for p, place in enumerate(places))
    return row(task, n, "zh", context, f"文中介绍了一个有{places[k].bridges}座桥的镇和由{places[k].founder}创办的学校。",
               [f"段落{k + 1}"])


def lcc(task, rng, n):
    language = list(source_files.METHODS)[n % 3]
    code = source_files.store(language, rng.choice(source_files.NOUNS), rng.sample(source_files.FIELDS, 14))
    before, answer = source_files.cut_before_return(code)
    return row(task, n, language, before, "", [answer])


def repobench(task, rng, n):
    language = list(source_files.METHODS)[n % 3]
    nouns, fields = rng.sample(source_files.NOUNS, 3), rng.sample(source_files.FIELDS, 6)
    mark = "#" if language == "python" else "//"
    ending = source_files.ENDINGS[language]
    context = "".join(f"{mark} Path: stores/{noun}_store.{ending}\n{source_files.store(language, noun, fields)}\n" for noun in nouns)
    before, answer = source_files.cut_before_return(source_files.caller(language, rng.choice(nouns), fields))
    return row(task, n, language, context, before, [answer])


MAKERS = {
    "narrativeqa": narrativeqa, "qasper": qasper, "multifieldqa_en": multifieldqa, "multifieldqa_zh": zh_qa,
    "hotpotqa": two_hops, "2wikimqa": two_hops, "musique": two_hops, "dureader": zh_qa, "gov_report": gov_report,
    "qmsum": qmsum, "multi_news": multi_news, "vcsum": vcsum, "trec": trec, "triviaqa": triviaqa, "samsum": samsum,
    "lsht": lsht, "passage_count": passage_count, "passage_retrieval_en": passage_retrieval,
    "passage_retrieval_zh": passage_retrieval_zh, "lcc": lcc, "repobench-p": repobench,
}
IN_E = ["qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "gov_report", "multi_news", "trec", "triviaqa", "samsum",
        "passage_count", "passage_retrieval_en", "lcc", "repobench-p"]


def rows(task, suffix=""):
    rng = random.Random(f"{task}{suffix}")
    return [MAKERS[task](task, rng, n) for n in range(ROWS)]


def main(folder):
    os.makedirs(f"{folder}/longbench")
    for task in MAKERS:
        for suffix in ["", "_e"] if task in IN_E else [""]:
            with open(f"{folder}/longbench/{task}{suffix}.jsonl", "w", encoding="utf-8") as file:
                file.writelines(json.dumps(each, ensure_ascii=False) + "\n" for each in rows(task, suffix))

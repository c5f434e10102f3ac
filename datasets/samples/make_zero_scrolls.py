"""Files in the form of ZeroSCROLLS: 20 rows a task or as many questions about few texts, some with two answers."""

import random

from invented import FIRST, person, remark, towns
from make_long_contexts import CONTEXTS, ROWS, novel, summary
from make_others import write_rows

# Instruction, name of the text, of what is asked ("" where nothing is) and of the answer.
FORMS = {
    "gov_report": ("You are given a report by an agency. Write a summary of one page.", "Report", "", "Summary"),
    "summ_screen_fd": ("You are given the script of an episode. Summarize the episode in a paragraph.", "Episode Script", "", "Summary"),
    "qmsum": ("You are given the transcript of a meeting and a query. Answer the query in some sentences.", "Transcript", "Query", "Answer"),
    "squality": ("You are given a story and a question. Answer the question in a paragraph.", "Story", "Question", "Answer"),
    "qasper": ("You are given an article and a question. Answer concisely, with \"unanswerable\" if the article does not say.",
               "Article", "Question", "Answer"),
    "narrative_qa": ("You are given a story and a question. Answer with a single phrase if possible.", "Story", "Question", "Answer"),
    "quality": ("You are given a story and a question with four answers (marked by A, B, C, D). Write the right letter alone.", "Story",
                "Question and Possible Answers", "Answer"),
    "musique": ("You are given several paragraphs and a question over more than one of them. Answer with a phrase.", "Paragraphs", "Question",
                "Answer"),
    "space_digest": ("You are given reviews of an inn. What percentage of them is positive?", "Reviews", "", "Percentage of Positive Reviews"),
    "book_sum_sort": ("You are given summaries of a story's chapters in any order. Write their numbers in the right order, with commas.",
                      "Chapter Summaries", "", "Summary IDs in Correct Order"),
}


def row(task, name, text, asked, output):
    instruction, of_text, of_question, of_answer = FORMS[task]
    begin = len(instruction) + len(of_text) + 4
    end = begin + len(text)
    query = f"{of_question}:\n{asked}" if asked else ""
    return {"id": name, "pid": f"{name}_0", "output": output, "document_start_index": begin, "document_end_index": end,
            "query_start_index": end + 2, "query_end_index": end + 2 + len(query),
            "truncation_seperator": f"... [The rest of the {of_text.lower()} is omitted]\n\n",
            "input": f"{instruction}\n\n{of_text}:\n{text}\n\n{query}" + ("\n\n" if query else "") + f"{of_answer}:\n"}


def summaries(task, text_of):
    for n in range(ROWS):
        rng = random.Random(f"zero_scrolls {task} {n}")
        text, _, places = novel(rng)
        yield row(task, f"{task}-{n}", text_of(rng, text), "", summary(places))


def script(rng, text):
    return "\n".join(f"{rng.choice(FIRST).upper()}: {line}." for line in text.replace("\n", " ").split(". "))


def questions(task, texts, ask):
    """Five questions about each text; `ask` makes what is asked and the answers of one."""
    for n in range(texts):
        rng = random.Random(f"zero_scrolls {task} {n}")
        text, asked, places = novel(rng)
        text = f"« {person(rng)} – naïve notes »\n\n{text}"
        for k, each in enumerate(asked):
            question, answers = ask(rng, each, places[k])
            for answer in answers:
                yield row(task, f"{task}-{n}-{k}", text, question, answer)


def in_sentences(rng, each, town):
    said = f"The {town.trade} of {town.name} was founded by {town.founder} in {town.founded}"
    return f"What is told of the {town.trade} of {town.name}?", [f"{said}.", f"{said} and employs {town.workers} people."]


def in_words(rng, each, town):
    return each["input"], [each["answer"], each["answer"].split()[1]]


def maybe_unanswerable(rng, each, town):
    return rng.choice([(each["input"], [each["answer"]]), (f"Who was the first mayor of {town.name}?", ["unanswerable"])])


def with_options(rng, each, town):
    lines = "\n".join(f" ({letter}) {option}" for letter, option in zip("ABCD", each["options"]))
    return f"{each['input']}\n{lines}", [f"({'ABCD'[each['options'].index(each['answer'])]})"]


def musique():
    for n in range(ROWS):
        rng = random.Random(f"zero_scrolls musique {n}")
        places = towns(rng, 8)
        town = places[n % 8]
        kind = rng.choice(["geese", "goats"])
        paragraphs = [place.text(rng, 4) for place in places] + [f"{town.founder} never learned to swim but bred {kind}."]
        rng.shuffle(paragraphs)
        text = "\n".join(f"Paragraph {k}: {each}" for k, each in enumerate(paragraphs, 1))
        yield row("musique", f"musique-{n}", text, f"What did the founder of the {town.trade} of {town.name} breed?", kind)


def space_digest():
    for n in range(ROWS):
        rng = random.Random(f"zero_scrolls space_digest {n}")
        good = rng.randrange(2, 38)
        kinds = ["Lovely rooms and kind people."] * good + ["Cold soup, loud stairs, never again."] * (40 - good)
        rng.shuffle(kinds)
        text = "\n\n".join(f"Review #{k}: {kind} {remark(rng, 'this town')}" for k, kind in enumerate(kinds, 1))
        yield row("space_digest", f"space_digest-{n}", text, "", f"{100 * good / 40:g}%")


def book_sum_sort():
    for n in range(ROWS):
        rng = random.Random(f"zero_scrolls book_sum_sort {n}")
        order = rng.sample(range(1, 9), 8)  # which summary tells each year
        told = {number: f"Summary {number}:\nIn {year} {place.text(rng, 3)}" for year, number, place in zip(range(1880, 1888), order, towns(rng, 8))}
        yield row("book_sum_sort", f"book_sum_sort-{n}", "\n\n".join(told[k] for k in sorted(told)), "", ", ".join(map(str, order)))


def main():
    tasks = {"gov_report": summaries("gov_report", lambda rng, text: text), "summ_screen_fd": summaries("summ_screen_fd", script),
             "qmsum": questions("qmsum", CONTEXTS, lambda *all: (in_sentences(*all)[0], in_sentences(*all)[1][:1])),
             "squality": questions("squality", CONTEXTS, in_sentences), "qasper": questions("qasper", CONTEXTS, maybe_unanswerable),
             "narrative_qa": questions("narrative_qa", CONTEXTS, in_words), "quality": questions("quality", CONTEXTS, with_options),
             "musique": musique(), "space_digest": space_digest(), "book_sum_sort": book_sum_sort()}
    for task, rows in tasks.items():
        write_rows(f"zero_scrolls/{task}/validation.jsonl", list(rows))

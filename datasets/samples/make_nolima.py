"""Needles and books in the form of NoLiMa's files: what a question asks follows from the needle by knowledge of the world,
and no word of one is in the other."""

import json
import random

from invented import FIRST, remark, towns
from make_others import write

PROMPT = ("Here is a part of a book:\n\n{haystack}\n\nAnswer a question about it, from what is said there or follows from it.\n\n"
          "Question: {question}\n\nGive the answer alone.")

# Needle, questions about its second word and its third, and the words.
NEEDLES = [
    ("{CHAR} has a flat next to {1}.", "Who lives in {2}?", "Who lives in the country of {3}?",
     [("the Colosseum", "Rome", "Italy"), ("the Brandenburg Gate", "Berlin", "Germany"), ("the Louvre", "Paris", "France"),
      ("the Parthenon", "Athens", "Greece")]),
    ("Last spring {CHAR} stood on top of {1}.", "Who has been to {2}?", "Which traveller knows {3}?",
     [("Kilimanjaro", "Tanzania", "Africa"), ("the Matterhorn", "Switzerland", "Europe"), ("Aconcagua", "Argentina", "South America"),
      ("Mount Fuji", "Japan", "Asia")]),
    ("A doctor told {CHAR} to keep away from {1}.", "Who does not tolerate {2}?", "Which guest should not be offered {3}?",
     [("cheese and yoghurt", "milk", "a latte"), ("bread and pasta", "gluten", "a sandwich"), ("walnuts and almonds", "nuts", "marzipan")]),
    ("{CHAR} mends {1} for a living.", "Who is a {2}?", "Whom would a person with {3} ask for help?",
     [("boots", "cobbler", "a hole in the sole"), ("taps and drains", "plumber", "a wet cellar"), ("clocks", "horologist", "a stopped watch")]),
    ("In the evenings {CHAR} practises {1}.", "Which person plays a {2} instrument?", "Who could join {3}?",
     [("the cello", "string", "a quartet by Haydn"), ("the trumpet", "brass", "a marching band"), ("the clarinet", "woodwind", "a klezmer group")]),
]


def needle_set():
    rows = []
    for n, (needle, onehop, twohop, words) in enumerate(NEEDLES):
        rows.append({"id": f"{n + 1:04}kvarena", "reasoning_type": "world_knowledge", "system_prompt": "", "task_template": PROMPT,
                     "needle": needle, "questions": {"onehop": onehop, "twohop": twohop}, "character_set": FIRST,
                     "tests": {f"T{k + 1:02}": {"input_args": list(each)} for k, each in enumerate(words)}})
    return rows


def main():
    write("nolima/needle_set.json", json.dumps(needle_set(), indent=1) + "\n")
    for number in range(1, 6):
        rng = random.Random(f"nolima {number}")
        places = [town.name for town in towns(rng, 8)]
        write(f"nolima/rand_book_{number}.txt", "".join(remark(rng, rng.choice(places)) + "\n" for _ in range(500)))

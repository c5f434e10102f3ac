"""Files in the form of LongMemEval: what a user told an assistant in dated sessions, and questions of all types about it."""

import json
import random

from invented import DISHES, FIRST, remark, towns
from make_others import write

ROWS = 28
TURNS = 14
PETS, HOBBIES = ["cat", "parrot", "tortoise", "goat"], ["pottery", "sailing", "chess", "gardening"]


def session(rng, told):
    """Turns about a town in which the user says `told`, and the assistant answers with `told` of its own."""
    town = towns(rng, 1)[0]
    turns = []
    for _ in range(TURNS // 2):
        turns += [{"role": "user", "content": f"Tell me more about {town.name}, please."},
                  {"role": "assistant", "content": " ".join(remark(rng, town.name) for _ in range(8))}]
    for role, text in told:
        at = 2 * rng.randrange(len(turns) // 2) + (role == "assistant")
        turns[at] = {"role": role, "content": text, "has_answer": True}
    return turns


def asked(rng, kind):
    """What is said in which of the sessions with an answer, the question and the answer."""
    name, pet, hobby = rng.choice(FIRST), rng.choice(PETS), rng.choice(HOBBIES)
    dish, other = rng.sample(DISHES, 2)
    count, more = rng.randrange(2, 9), rng.randrange(2, 9)
    user = lambda text: [("user", text)]
    return {
        "single-session-user": ([user(f"By the way, my {pet} is called {name}.")], f"What is my {pet} called?", name),
        "single-session-assistant": ([[("assistant", f"For guests I recommend {dish}.")]], "What did you recommend for guests?", dish),
        "single-session-preference": ([user(f"I spend every free evening with {hobby}.")], "What could I do next weekend?",
                                      f"The user would prefer suggestions that have to do with {hobby}."),
        "multi-session": ([user(f"I bought {count} lamps today."), user(f"I bought {more} lamps more.")],
                          "How many lamps did I buy in all?", count + more),
        "temporal-reasoning": ([user(f"Today I started with {hobby}."), user(f"Today I cooked {dish} for the first time.")],
                               f"How many days passed between my start with {hobby} and my first {dish}?", None),
        "knowledge-update": ([user(f"My favourite dish is {dish}."), user(f"My favourite dish is {other} now.")],
                             "What is my favourite dish?", other),
        "abstention": ([user(f"By the way, my {pet} is called {name}.")], "What is my horse called?",
                       f"You did not mention this information. You mentioned your {pet} but not a horse.")}[kind]


def row(number, sessions):
    """A row with `sessions` sessions, or only those that hold the answer."""
    kinds = ["single-session-user", "single-session-assistant", "single-session-preference", "multi-session", "temporal-reasoning",
             "knowledge-update", "abstention"]
    kind, rng = kinds[number % len(kinds)], random.Random(f"longmemeval {number}")
    told, question, answer = asked(rng, kind)
    count = max(sessions, len(told))
    days = sorted(rng.sample(range(1, 29), min(count, 28)))
    places = sorted(rng.sample(range(count), len(told)))
    if answer is None:
        days_between = days[places[1]] - days[places[0]]
        answer = f"{days_between} days. {days_between + 1} days (including the last day) is also acceptable."
    chats = [session(rng, told[places.index(k)] if k in places else []) for k in range(count)]
    return {"question_id": f"kvarena-{number}" + ("_abs" if kind == "abstention" else ""),
            "question_type": "single-session-user" if kind == "abstention" else kind, "question": question, "answer": answer,
            "question_date": f"2024/{1 + number % 12:02}/28 (Sun) 20:15",
            "haystack_dates": [f"2023/{1 + number % 12:02}/{day:02} (Mon) {rng.randrange(8, 20):02}:{rng.randrange(60):02}" for day in days],
            "haystack_session_ids": [f"answer_{number}_{k}" if k in places else f"kvarena_{number}_{k}" for k in range(count)],
            "haystack_sessions": chats, "answer_session_ids": [f"answer_{number}_{k}" for k in places]}


def main():
    for name, sessions in (("s_cleaned", 5), ("m_cleaned", 9), ("oracle", 0)):
        rows = [row(number, sessions) for number in range(ROWS)]
        if name == "oracle":  # whose sessions are in no order
            for each in rows:
                for field in ("haystack_dates", "haystack_session_ids", "haystack_sessions"):
                    each[field].reverse()
        write(f"longmemeval/longmemeval_{name}.json", json.dumps(rows))

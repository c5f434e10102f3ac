"""Users in the form of BFCL's memory files: what each says on three days, and questions about it. Functions are those of the
package's own memories, a few of each, described in our words."""

import random

from invented import towns
from make_others import function, write_rows

SCENARIOS = ("student", "customer", "finance", "healthcare", "notetaker")
FUNCTIONS = {
    "kv": [
        function("archival_memory_add", "Keeps a text in the large memory.", key="string", value="string"),
        function("archival_memory_key_search", "Finds keys of the large memory that are like a text.", query="string"),
        function("archival_memory_retrieve", "A text of the large memory.", key="string"),
        function("core_memory_add", "Keeps a short text where it is always seen.", key="string", value="string"),
        function("core_memory_list_keys", "All keys of texts that are always seen."),
        function("core_memory_remove", "Forgets a text that is always seen.", key="string"),
        function("core_memory_replace", "Keeps another text under a key.", key="string", value="string")],
    "rec_sum": [
        function("memory_append", "Adds a text to the memory's end.", text="string"),
        function("memory_replace", "Puts a text in the place of another.", old_text="string", new_text="string"),
        function("memory_retrieve", "All that the memory holds."),
        function("memory_update", "Keeps this text in place of all that the memory holds.", text="string")],
    "vector": [
        function("archival_memory_add", "Keeps a text in the large memory.", text="string"),
        function("archival_memory_retrieve", "Texts of the large memory that are most like a text.", query="string"),
        function("core_memory_add", "Keeps a short text where it is always seen.", text="string"),
        function("core_memory_remove", "Forgets a text that is always seen.", vec_id="integer"),
        function("core_memory_retrieve_all", "All texts that are always seen, with their numbers."),
        function("core_memory_update", "Keeps another text under a number.", vec_id="integer", new_text="string")]}


def days_of(town):
    """What is said on each day, one message a turn."""
    return [[f"Hello. I come from {town.name}, on the river {town.river}.", f"My teacher there was {town.teacher}."],
            [f"I rent a room from {town.founder}.", f"By the way, I never miss the {town.dish} at the fair."],
            [f"They say that I work at the {town.trade}, with {town.workers} others. That is true."]]


def questions_of(town):
    return [("Which town do I come from?", town.name), ("Who was my teacher?", town.teacher),
            ("From whom do I rent a room?", town.founder), ("What do I never miss at the fair?", town.dish),
            ("How many others work where I do?", str(town.workers))]


def main():
    questions, answers, said, asked = [], [], 0, 0
    for scenario, town in zip(SCENARIOS, towns(random.Random("bfcl memory"), len(SCENARIOS))):
        days = []
        for n, day in enumerate(days_of(town)):
            days.append({"id": f"memory_prereq_{said}-{scenario}-{n}", "question": [[{"role": "user", "content": text}] for text in day],
                         "involved_classes": ["MemoryAPI"], "scenario": scenario})
            said += 1
        write_rows(f"bfcl/memory_prereq_conversation/memory_{scenario}.json", days)
        for n, (question, answer) in enumerate(questions_of(town)):
            name = f"memory_{asked}-{scenario}-{n}"
            questions.append({"id": name, "question": [[{"role": "user", "content": question}]], "involved_classes": ["MemoryAPI"],
                              "scenario": scenario})
            answers.append({"id": name, "ground_truth": [answer]})
            asked += 1
    write_rows("bfcl/BFCL_v4_memory.json", questions)
    write_rows("bfcl/possible_answer/BFCL_v4_memory.json", answers)
    for name, functions in FUNCTIONS.items():
        write_rows(f"bfcl/multi_turn_func_doc/memory_{name}.json", functions)

"""Rows in the form of IFEval's input_data.jsonl: requests with instructions of all 25 kinds that a program can check."""

import random

from make_others import write_rows

REQUESTS = ("Write a short note about {}.", "Describe {} to a visitor.", "Explain why {} matters to a small town.",
            "Write a letter to a friend about {}.", "Give advice on looking after {}.")
THINGS = ("a lighthouse", "an old bakery", "the village library", "a vegetable garden", "the ferry to the islands",
          "a stone bridge", "the weekly market", "a school orchestra", "an apple orchard", "the tram line")
LANGUAGES = {"de": "German", "fr": "French", "es": "Spanish", "fi": "Finnish", "hi": "Hindi"}

# Kind: (how the prompt says it, its arguments); "{}" in both is replaced by a draw of the same list.
KINDS = {
    "change_case:capital_word_frequency": ("Use fewer than {} words in all capital letters.",
                                           {"capital_frequency": "{}", "capital_relation": "less than"}, (2, 4, 6)),
    "change_case:english_capital": ("Answer in English and in capital letters only.", {}, ()),
    "change_case:english_lowercase": ("Answer in English and in lowercase letters only.", {}, ()),
    "combination:two_responses": ("Give two different answers with ****** between them and nowhere else.", {}, ()),
    "detectable_content:number_placeholders": ("Put in at least {} placeholders in square brackets, such as [date].",
                                               {"num_placeholders": "{}"}, (1, 2, 3)),
    "detectable_content:postscript": ("End with a postscript that starts with {}", {"postscript_marker": "{}"}, ("P.S.", "P.P.S")),
    "detectable_format:constrained_response": ("Say whether it is worth a visit, as one of: 'My answer is yes.', 'My answer is "
                                               "no.', 'My answer is maybe.'", {}, ()),
    "detectable_format:json_format": ("Write all of it as JSON.", {}, ()),
    "detectable_format:multiple_sections": ("Write {} sections, each of which begins with SECTION and its number.",
                                            {"section_spliter": "SECTION", "num_sections": "{}"}, (2, 3)),
    "detectable_format:number_bullet_lists": ("Use exactly {} bullet points in markdown, such as:\n* This is a point.",
                                              {"num_bullets": "{}"}, (2, 3, 4)),
    "detectable_format:number_highlighted_sections": ("Highlight at least {} parts in markdown, *like this*.",
                                                      {"num_highlights": "{}"}, (1, 2, 3)),
    "detectable_format:title": ("Give it a title in double angular brackets, such as <<a title>>.", {}, ()),
    "keywords:existence": ("Use the word \"{}\".", {"keywords": ["{}"]}, ("morning", "people", "winter")),
    "keywords:forbidden_words": ("Do not use the word \"{}\".", {"forbidden_words": ["{}"]}, ("very", "good", "nice")),
    "keywords:frequency": ("Use the word \"{}\" at least twice.", {"keyword": "{}", "frequency": 2, "relation": "at least"},
                           ("water", "year", "road")),
    "keywords:letter_frequency": ("The letter {} should appear fewer than 10 times.",
                                  {"letter": "{}", "let_frequency": 10, "let_relation": "less than"}, ("k", "q", "z")),
    "language:response_language": ("Answer in {} and in no other language.", {"language": "{}"}, tuple(LANGUAGES)),
    "length_constraints:nth_paragraph_first_word": ("Write 2 paragraphs with a blank line between them. The second must start with "
                                                    "the word {}.", {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "{}"},
                                                    ("today", "visitors", "still")),
    "length_constraints:number_paragraphs": ("Write {} paragraphs, divided by the markdown divider ***",
                                             {"num_paragraphs": "{}"}, (2, 3)),
    "length_constraints:number_sentences": ("Write fewer than {} sentences.",
                                            {"num_sentences": "{}", "relation": "less than"}, (4, 6, 8)),
    "length_constraints:number_words": ("Write at least {} words.", {"num_words": "{}", "relation": "at least"}, (30, 60, 90)),
    "punctuation:no_comma": ("Do not use any commas.", {}, ()),
    "startend:end_checker": ("End with exactly this phrase: {}", {"end_phrase": "{}"}, ("That is all.", "What do you think?")),
    "startend:quotation": ("Put double quotation marks around your whole answer.", {}, ()),
    "combination:repeat_prompt": ("Repeat the request above word for word before you answer it; this sentence is no part of it.",
                                  {"prompt_to_repeat": "{}"}, ()),
}

# Kinds that go together with every other one in a pair of neighbours of the list.
EASY = ("punctuation:no_comma", "keywords:forbidden_words", "length_constraints:number_sentences")


def filled(value, draw):
    if value == "{}":
        return draw
    if isinstance(value, list):
        return [filled(each, draw) for each in value]
    return value


def row(n, kinds):
    rng = random.Random(f"ifeval {n}")
    prompt = rng.choice(REQUESTS).format(rng.choice(THINGS))
    arguments = []
    for kind in kinds:
        said, values, draws = KINDS[kind]
        draw = rng.choice(draws) if draws else prompt
        arguments.append({name: filled(value, draw) for name, value in values.items()})
        prompt += " " + said.format(LANGUAGES.get(draw, draw))
    return {"key": n, "prompt": prompt, "instruction_id_list": list(kinds), "kwargs": arguments}


def ifeval():
    """A row for each kind alone, and one with an instruction more, which is the first where it is not to be repeated."""
    alone = [(kind,) for kind in KINDS]
    pairs = [(EASY[n % len(EASY)], kind) for n, kind in enumerate(KINDS) if kind not in EASY]
    write_rows("ifeval/input_data.jsonl", [row(n, kinds) for n, kinds in enumerate(alone + pairs)])

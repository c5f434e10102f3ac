"""Writes metrics_differential.json: values that metrics_test compares with ours.

Texts are drawn by a generator that the test repeats, so the fixture holds only values and a hash of the texts.
Made with CPython 3.11, rouge 1.0.1, rouge_score 0.1.2, nltk 3.10.4 and Python's own difflib:
    pip install rouge==1.0.1 rouge_score==0.1.2 nltk==3.10.4 && python metrics_make.py
"""
import difflib
import hashlib
import json
import os
import sys

from nltk.stem.porter import PorterStemmer
from rouge import Rouge
from rouge_score import rouge_scorer

HERE = os.path.dirname(os.path.abspath(__file__))
MASK = (1 << 64) - 1


class Draws:
    """SplitMix64, the same in tests/metrics/differential_test.cpp."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return ((z ^ (z >> 31)) & MASK) % bound


WORDS = ("the ferry Ferry harbour council running runs timetable tables sky skies 12 3.5 co-author don't naïve "
         "Straße 港口 happily national rational , ! \u00a0 \u3000 \n . .. the of of a an").split(" ")
SEPARATORS = [" ", " ", " ", " ", "  ", "\n", ". ", ".", "\t", ""]


def text(draws, longest):
    out = ""
    for _ in range(draws.below(longest)):
        out += WORDS[draws.below(len(WORDS))]
        out += SEPARATORS[draws.below(len(SEPARATORS))]
    return out


def code(draws, longest, letters):
    return "".join("abcdefghijé港 (){}=+"[draws.below(letters)] for _ in range(draws.below(longest)))


STEMS = ("run hop fail motor tann plaster agree happ sk fl enjoy rat relat condit digit conform radic differ vil analog "
         "vietnam predic oper feud decis hope call form sensit triplic electr good reviv allow infer airlin gyroscop "
         "adjust defens irrit replac commun activ angular homolog effect bowdler prob ceas control roll y syzyg").split()
SUFFIXES = ("|s|es|ies|ied|ed|eed|ing|y|ational|tional|enci|anci|izer|bli|abli|alli|entli|eli|ousli|ization|ation|ator|"
            "alism|iveness|fulness|ousness|aliti|iviti|biliti|fulli|logi|icate|ative|alize|iciti|ical|ful|ness|al|ance|"
            "ence|er|ic|able|ible|ant|ement|ment|ent|sion|tion|ion|ou|ism|ate|iti|ous|ive|ize|e|ll|sses|ss|ying").split("|")


def rouge_f(prediction, reference):
    try:
        scores = Rouge().get_scores([prediction], [reference], avg=True)
        return [scores[k]["f"] for k in ("rouge-1", "rouge-2", "rouge-l")]
    except ValueError:
        return [0, 0, 0]


def main():
    sys.setrecursionlimit(10000)
    draws = Draws(20240607)
    pairs = [(text(draws, 40), text(draws, 40)) for _ in range(1000)]
    codes = []
    for i in range(400):
        letters = 4 + draws.below(14)
        longest = 420 if i % 4 == 0 else 60
        codes.append((code(draws, longest, letters), code(draws, longest, letters)))
    everything = "\x00".join(part for pair in pairs + codes for part in pair)
    scorer = rouge_scorer.RougeScorer(["rouge1", "rougeL", "rougeLsum"], use_stemmer=True)
    google = [scorer.score(reference, prediction) for prediction, reference in pairs[:300]]
    words = [stem + suffix for stem in STEMS for suffix in SUFFIXES]
    points = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    classes = "".join(str(c.isspace() + 2 * c.isdecimal() + 4 * (c.isalnum() or c == "_")) for c in points)
    pairs_of_bytes = [bytes([a]) for a in range(256)] + [bytes([a, b]) for a in range(256) for b in range(256)]
    decoded = "".join(b.decode("utf-8", "replace") + "\n" for b in pairs_of_bytes)
    sigmas = "".join(("A" + c + "\u03a3" + c + "a").lower() + "\n" for c in points)
    fixture = {
        "texts_sha256": hashlib.sha256(everything.encode()).hexdigest(),
        "rouge": [rouge_f(*pair) for pair in pairs],
        "google_rouge": [[s[k].fmeasure for k in ("rouge1", "rougeL", "rougeLsum")] for s in google],
        "difflib": [difflib.SequenceMatcher(None, a, b).ratio() for a, b in codes],
        "porter_words_sha256": hashlib.sha256(" ".join(words).encode()).hexdigest(),
        "porter_stems": " ".join(PorterStemmer().stem(w) for w in words),
        "lower_sha256": hashlib.sha256("".join(c.lower() + "\n" for c in points).encode()).hexdigest(),
        "classes_sha256": hashlib.sha256(classes.encode()).hexdigest(),
        "decoded_bytes_sha256": hashlib.sha256(decoded.encode()).hexdigest(),
        "final_sigma_sha256": hashlib.sha256(sigmas.encode()).hexdigest(),
        "round": [[x, round(x, 2)] for x in (2.675, 2.665, 0.125, 0.375, 83.335, 33.3333333, 100.0, 57.142857)],
    }
    with open(os.path.join(HERE, "metrics_differential.json"), "w", encoding="utf-8") as out:
        out.write(json.dumps(fixture).replace("], [", "],\n["))
        out.write("\n")


if __name__ == "__main__":
    main()

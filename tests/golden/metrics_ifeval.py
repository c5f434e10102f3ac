r"""Writes metrics_ifeval.json: verdicts of IFEval's official code, sentences and words of NLTK, languages of langdetect.

The checks are those of the task `ifeval` of lm-eval 0.4.13, a copy of google-research/instruction_following_eval, with
nltk 3.10.4 and langdetect 1.0.9; NLTK_DATA is a folder with tokenizers/punkt_tab:

    NLTK_DATA=nltk_data python tests/golden/metrics_ifeval.py

No text has a number such as ½, for which NLTK's \w is that of re up to 3.9 and that of the package regex from 3.10 on.
Each instruction judges each text: a 1 in its two strings of verdicts stands for a text that follows it.
"""

import json
import pathlib
import random

import langdetect
import nltk
from lm_eval.tasks.ifeval import utils

langdetect.DetectorFactory.seed = 0

# Texts that are responses, and whose sentences, words and language are told too.
TEXTS = [
    "", " \n\t ", "Yes.", "My answer is yes.", "I think my answer is no.", "  My answer is maybe. \n", "my answer is no.",
    "The boat left at nine. It came back at noon, with Mr. Olsen aboard.",
    "The harbour is 3.5 miles away. Dr. Lind lives there. So does Prof. A. Berg, Ph.D., of the U.S. office.",
    "We met at 5 p.m. in St. Marys. No. 7 was closed! Was it? It was... Then we went home.",
    "Wait... what?! No!! \"Go home,\" she said. \"Now.\" He left. 'Why?' she asked. (He did not say.) [Nobody did.] End",
    "One e.g. two i.e. three etc. and so on. J. R. Smith vs. K. Jones. The fee was $4.50. In 1990. He won.",
    "No stop at all and no mark either", "First line.\nSecond line.\nThird line.", "A.\nB.\n\nC.\n\n\nD.",
    "Trailing stop at the end of Jan. and Feb. and Sept. 3. That is all, Co. and Inc. said.",
    "He said: “Come in.” She came in. ‘Sit down.’ They sat. «Bien.» »Gut.« Fin.", "3. 4. 5. go. Number 3. Next one.",
    "Hello.World.This is.one word. a.b.c. A.B.C. is it. x . y ! z ? w", "Ellipsis at the end... and on. And on... And on.",
    "* one\n* two\n* three", "- one\n- two\n  - three\n* four\n** five\n*", "*bold* and **strong** and ** ** and * * and ***",
    "Here is *one highlight* and *another one*, **three of them**.", "**a**b**c** *d* e*f*g", "*\n*\n* *x*\n\n*y*",
    "<<A title>>\nThe text.", "<<>> <<  >>", "<< >x> >>", "<<two\nlines>>", "<<one>> and <<two>>", "< <no>>",
    "Dear [name], come to [place] at [time].\n[signature]", "[] [a] [b\nc] [d]]", "[[nested] x]",
    "SECTION 1\nFirst.\nSECTION 2\nSecond.\nSECTION 3\nThird.", "Section 1: a Section 2: b", "Section1 Section 22 section 3",
    "Paragraph one.\n***\nParagraph two.\n***\nParagraph three.", "***\nOne\n***\nTwo\n***", "One\n***\n***\nTwo", "a***b***c", "****",
    "******", "One way.\n******\nAnother way.", "Same.\n******\nSame.", "a******b******c", "******\na\n******\nb\n******", "a ****** ",
    "Garden\n\ngarden beds need water.\n\n\"Garden\" gates do not.", "One.\n\nTwo.\n\n\n\nThree.", "One.\n\nGarden.\n\nThree, at last.", "'Garden, yes.\n\nSecond", "\n\nGarden\n\nx",
    "GARDEN's best.\n\nMore", "x\n\ngarden", "Garden\n \nGarden", "''\"Garden?no\n\n\"'garden",
    "\"A quoted answer.\"", "\"", "\"\"", "\"half", " \"in\" \n", "“curly”",
    "P.S. Bring tea.", "The end.\n\nP.P.S Bring more tea.", "p. s. no", "P.P.S. and p.s.", "p.p. s", "PS: nothing", "postscript: tea",
    "{\"a\": 1}", "```json\n{\"a\": [1, 2, null]}\n```", "```\n[1, 2]\n```", "``` {'a': 1} ```", "{\"a\": NaN}", "{\"a\": 1,}", "12", "\"text\"",
    "```JSON\n{\"k\": \"v\"}\n```", "{\"a\": \"tab\there\"}", "{\"a\": 1} x", "[]", "nan", "Infinity", "{\"a\": \"\\ud83d\\ude00\"}", "{\"é\": \"ü\"}",
    "[1e999]", "[01]", "{\"a\":1, \"a\":2}", "\ufeff{}", "[\"\\ud800\"]", "-", "tru", "true", "[1,\n 2]\u00a0", "{\"a\": .5}",
    "THE WHOLE ANSWER IS IN CAPITAL LETTERS AND IT IS ABOUT THE WEATHER OF THE NEXT WEEK.",
    "the whole answer is in small letters and it is about the weather of the next week.",
    "The WHOLE answer has SOME words in CAPITALS: NASA, the U.N., X-RAY, I'LL and A.", "I AM. I'M. WE'RE NOT; ISN'T IT? CANNOT. O'NEIL'S",
    "ÉCOLE NATIONALE DE MUSIQUE, Nº 5, ǅ Ⅳ ⓐ ª ß ẞ ΑΒΓ абв АБВ 123", "123 456", "ª º ʰ", "12 A", "ǅ", "!!!", "HTTP://WWW.X.ORG AND ME@X.ORG",
    "Write a line about rain.\nRain falls on the roof.", "  write a LINE about rain. And more", "I will write a line about rain.",
    "All done. Is that all?", "All done. \"Is that all?\" ", "IS THAT ALL?", "Is that all? \n", "Is that all", "is that all?\"\"",
    "Rain, rain, and more rain. Raining RAIN brain. A train in the rain.", "no r words: sun", "Sun and sunny sunset; SUN!", "a.c abc a+c",
    "The cat's hat; cat-like, catlike; scatter. Cats. CAT", "naïve café ÑANDÚ Straße STRASSE", "letter e: eeee EEE é è", "#one #two #three ! !",
    "can't won't shouldn't've I'd you're gonna gimme wanna 'tis 'Twas d'ye more'n cannot lemme gotta",
    "A -- B --- C – D — E ‒ F; G: H, I; 1,000: 3:45 a,b a, b @me #tag $5 50% R&D",
    "He said ''quoted'' and ``ticks`` and \"straight\" (\"in brackets\") <\"x\"> [\"y\"] {\"z\"} `a` 'b' „c“ ‘d’ “e” ”f",
    "The end.\" ' ) ]", "The end.)", "The end.»”’ ", "It's the dogs' bowl' 'here' 's 'll 'Re O'", "a..b ...c d.... e. . f. . .", "* star * ** x*y",
    "\r\nLine one.\r\nLine two.\r\n", "tab\tand\vfeed\fhere.\u2028Next.\u00a0Nbsp. X\u3000Y. Z", "one\u200bword _under_score_ x2 三 ٣",
    "\U0001F600 emoji! 👍🏽 yes. \U0001F1F3\U0001F1F4", "İstanbul ΣΑΣ ſ K", "e\u0301 combining a\u030a o\u0323\u0302",
    "This answer ends here.\nHope this helps!", "Sure, here it is:\n\"A quoted answer.\"\nHope this helps", "Here you go:\n{\"a\": 1}\nDone",
    "**My answer is yes.**", "*Is that all?*", "Sure!\n* a\n* b\nEnd", "**THE ANSWER IN CAPITALS IS THAT THE WEATHER WILL BE FINE**",
    "ok:\nthe answer in small letters is that the weather will be fine\nBYE", "A\n*B*\nC", "x,\ny\nz,", ",", "\n", "\n\n\nx\n\n\n",
]

# Sentences for language detection alone.
LANGUAGES = [
    "The children play in the garden until it is dark and their mother calls them.", "weather", "ok", "Hello world", "a", "12345 !!!", "www",
    "Die Kinder spielen im Garten, bis es dunkel wird und die Mutter sie ruft.", "Les enfants jouent dans le jardin jusqu'à la nuit.",
    "Los niños juegan en el jardín hasta que oscurece.", "As crianças brincam no jardim até escurecer, e a mãe chama por elas.",
    "I bambini giocano in giardino finché non fa buio.", "De kinderen spelen in de tuin tot het donker wordt.", "Barnen leker i trädgården tills det blir mörkt.",
    "Barna leker i hagen til det blir mørkt.", "Børnene leger i haven, indtil det bliver mørkt.", "Lapset leikkivät puutarhassa, kunnes tulee pimeä.",
    "Lapsed mängivad aias, kuni läheb pimedaks.", "Bērni spēlējas dārzā, līdz satumst.", "Vaikai žaidžia sode, kol sutemsta.",
    "Dzieci bawią się w ogrodzie, aż zrobi się ciemno.", "Děti si hrají na zahradě, dokud se nesetmí.", "Deti sa hrajú v záhrade, kým sa nezotmie.",
    "Otroci se igrajo na vrtu, dokler se ne stemni.", "Djeca se igraju u vrtu dok ne padne mrak.", "A gyerekek a kertben játszanak, amíg be nem sötétedik.",
    "Copiii se joacă în grădină până se întunecă, și mama îi cheamă.", "Copiii se joacă până târziu și își țin jucăriile", "Çocuklar hava kararana kadar bahçede oynuyor.",
    "Fëmijët luajnë në kopsht derisa të errësohet.", "Mae'r plant yn chwarae yn yr ardd nes iddi dywyllu.", "Els nens juguen al jardí fins que es fa fosc.",
    "Die kinders speel in die tuin totdat dit donker word.", "Watoto wanacheza bustanini mpaka giza liingie.", "Ang mga bata ay naglalaro sa hardin hanggang dumilim.",
    "Anak-anak bermain di taman sampai hari gelap.", "Trẻ em chơi trong vườn cho đến khi trời tối.", "Tre\u0309 em cho\u031bi trong vu\u031bo\u031b\u0300n đe\u0302\u0301n to\u0302\u0301i.",
    "Дети играют в саду, пока не стемнеет.", "Діти граються в саду, поки не стемніє.", "Децата играят в градината, докато се стъмни.", "Децата си играат во градината додека не се стемни.",
    "Τα παιδιά παίζουν στον κήπο μέχρι να σκοτεινιάσει.", "הילדים משחקים בגן עד שמחשיך.", "الأطفال يلعبون في الحديقة حتى يحل الظلام.", "بچه‌ها تا تاریکی هوا در باغ بازی می‌کنند.",
    "بچے اندھیرا ہونے تک باغ میں کھیلتے ہیں۔", "बच्चे अंधेरा होने तक बगीचे में खेलते हैं।", "मुले अंधार पडेपर्यंत बागेत खेळतात.", "केटाकेटीहरू अँध्यारो नभएसम्म बगैंचामा खेल्छन्।",
    "শিশুরা অন্ধকার হওয়া পর্যন্ত বাগানে খেলে।", "ਬੱਚੇ ਹਨੇਰਾ ਹੋਣ ਤੱਕ ਬਾਗ ਵਿੱਚ ਖੇਡਦੇ ਹਨ।", "બાળકો અંધારું થાય ત્યાં સુધી બગીચામાં રમે છે.", "குழந்தைகள் இருட்டும் வரை தோட்டத்தில் விளையாடுகிறார்கள்.",
    "పిల్లలు చీకటి పడే వరకు తోటలో ఆడుకుంటారు.", "ಮಕ್ಕಳು ಕತ್ತಲಾಗುವವರೆಗೆ ತೋಟದಲ್ಲಿ ಆಡುತ್ತಾರೆ.", "ഇരുട്ടാകുന്നതുവരെ കുട്ടികൾ തോട്ടത്തിൽ കളിക്കുന്നു.", "เด็ก ๆ เล่นในสวนจนมืด",
    "子供たちは暗くなるまで庭で遊びます。", "孩子们在花园里玩到天黑。", "孩子們在花園裡玩到天黑。", "아이들은 어두워질 때까지 정원에서 놀아요.", "ㄅㄆㄇㄈ", "漢字", "カタカナ",
    "See https://example.org/a?b=c and write to someone@example.org, please, before the end of the week.", "Das ist ein test of two languages, halb and half.",
    "यह एक test है in English and Hindi mixed", "Дети play в саду", "WIR SIND ALLE IN GROSSBUCHSTABEN", "ÉCRIRE EN MAJUSCULES EST FATIGANT POUR LES YEUX",
    "garden garden garden", "no", "si", "la la la", "Amen", "« Bonjour »  ° à tous", "Carrocería\u00a0nueva", "x" * 40, "and " * 60, "1. un 2. deux 3. trois",
    "{\"réponse\": \"Il faut manger des légumes et des fruits chaque jour.\"}", "```json\n{\"a\": \"Wir essen jeden Tag Gemüse.\"}\n```",
]

INSTRUCTIONS = [
    ("change_case:capital_word_frequency", {"capital_frequency": 1, "capital_relation": "at least"}),
    ("change_case:capital_word_frequency", {"capital_frequency": 4, "capital_relation": "at least"}),
    ("change_case:capital_word_frequency", {"capital_frequency": 3, "capital_relation": "less than"}),
    ("change_case:english_capital", {}),
    ("change_case:english_lowercase", {}),
    ("combination:repeat_prompt", {"prompt_to_repeat": " Write a line about rain. "}),
    ("combination:two_responses", {}),
    ("detectable_content:number_placeholders", {"num_placeholders": 1}),
    ("detectable_content:number_placeholders", {"num_placeholders": 3}),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}),
    ("detectable_content:postscript", {"postscript_marker": " Postscript: "}),
    ("detectable_format:constrained_response", {}),
    ("detectable_format:json_format", {}),
    ("detectable_format:multiple_sections", {"section_spliter": "SECTION", "num_sections": 3}),
    ("detectable_format:multiple_sections", {"section_spliter": " Section ", "num_sections": 2}),
    ("detectable_format:number_bullet_lists", {"num_bullets": 1}),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}),
    ("detectable_format:number_bullet_lists", {"num_bullets": 3}),
    ("detectable_format:number_bullet_lists", {"num_bullets": 4}),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 3}),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 4}),
    ("detectable_format:title", {}),
    ("keywords:existence", {"keywords": ["rain"]}),
    ("keywords:existence", {"keywords": ["rain", "sun"]}),
    ("keywords:existence", {"keywords": ["a.c"]}),
    ("keywords:existence", {"keywords": ["straße", "ñandú"]}),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}),
    ("keywords:forbidden_words", {"forbidden_words": ["rain", "one", "the"]}),
    ("keywords:frequency", {"keyword": "rain", "frequency": 3, "relation": "at least"}),
    ("keywords:frequency", {"keyword": " sun ", "frequency": 2, "relation": "less than"}),
    ("keywords:frequency", {"keyword": "one", "frequency": 2, "relation": "at least"}),
    ("keywords:letter_frequency", {"letter": "e", "let_frequency": 6, "let_relation": "at least"}),
    ("keywords:letter_frequency", {"letter": "O", "let_frequency": 2, "let_relation": "less than"}),
    *(("language:response_language", {"language": code}) for code in ("en", "de", "fr", "ko")),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 3, "nth_paragraph": 2, "first_word": "garden"}),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "Garden"}),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 1, "nth_paragraph": 1, "first_word": "garden"}),
    ("length_constraints:nth_paragraph_first_word", {"num_paragraphs": 3, "nth_paragraph": 3, "first_word": "three"}),
    *(("length_constraints:number_paragraphs", {"num_paragraphs": n}) for n in (1, 2, 3)),
    *(("length_constraints:number_sentences", {"num_sentences": n, "relation": "at least"}) for n in (2, 3, 5)),
    *(("length_constraints:number_sentences", {"num_sentences": n, "relation": "less than"}) for n in (2, 4)),
    *(("length_constraints:number_words", {"num_words": n, "relation": "at least"}) for n in (2, 7, 15)),
    ("length_constraints:number_words", {"num_words": 10, "relation": "less than"}),
    ("punctuation:no_comma", {}),
    ("startend:end_checker", {"end_phrase": "Is that all?"}),
    ("startend:end_checker", {"end_phrase": " of the next week. "}),
    ("startend:quotation", {}),
]


def composed(count):
    """Texts put together at random of parts of the others, lines, marks and white space."""
    rng = random.Random("ifeval")
    parts = [part for text in TEXTS + LANGUAGES[:9] for part in text.split(" ") if part]
    joints = [" "] * 12 + ["\n", "\n\n", ". ", "! ", "? ", ", ", ".\n", "... ", "***", "******", "\" ", " (", ") ", "*", "\n* ", "\n- ", " '"]
    return ["".join(rng.choice(parts) + rng.choice(joints) for _ in range(rng.randint(2, 30))) for _ in range(count)]


def verdicts(instruction, texts):
    """Two strings of 0 and 1: strict and loose."""
    name, arguments = instruction
    row = utils.InputExample(key=0, instruction_id_list=[name], prompt="", kwargs=[arguments])
    judges = (utils.test_instruction_following_strict, utils.test_instruction_following_loose)
    return ["".join("01"[judge(row, text).follow_all_instructions] for text in texts) for judge in judges]


def language(text):
    try:
        return langdetect.detect(text)
    except langdetect.LangDetectException:
        return None


def main(count=60):
    texts = TEXTS + composed(count)
    sentences = [nltk.sent_tokenize(text) for text in texts]
    words = [nltk.NLTKWordTokenizer().tokenize(text) for text in texts]
    rows = [[name, arguments, *verdicts((name, arguments), texts)] for name, arguments in INSTRUCTIONS]
    made = {"texts": texts, "sentences": sentences, "words": words, "verdicts": rows,
            "languages": [[text, language(text)] for text in texts + LANGUAGES]}
    lines = ",\n".join(f"{json.dumps(key)}: [\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in value) + "\n]"
                       for key, value in made.items())
    (pathlib.Path(__file__).parent / "metrics_ifeval.json").write_text("{" + lines + "}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

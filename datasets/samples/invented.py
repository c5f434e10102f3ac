"""An invented country: towns, people and what there is to say about them, all drawn from a seeded generator.

Every text is the project's own. What a question asks is said once, in a sentence of its own; the sentences around it draw
from the same generator, so that no two paragraphs are alike.
"""

FIRST = ["Maria", "Peter", "Anna", "David", "Laura", "Thomas", "Clara", "Simon", "Edith", "Martin", "Rosa", "Henry", "Vera",
         "Oscar", "Nina", "Walter", "Ida", "Felix", "Greta", "Hugo"]
LAST = ["Holt", "Cole", "Reed", "Frost", "Shaw", "Lane", "Marsh", "Penn", "Drake", "Wells", "Stone", "Bright", "Fenn", "Hale",
        "Moss", "Thorne", "Vale", "Winter", "Crane", "Birch", "Lowe", "Quill", "Sand", "Tully"]
STARTS = ["Alder", "Brook", "Cold", "Dun", "Elm", "Fair", "Grey", "Hazel", "Iron", "Kings", "Lark", "Mill", "North", "Oak",
          "Pine", "Raven", "Stan", "Thorn", "Under", "Whit"]
ENDS = ["wick", "ford", "mere", "haven", "gate", "dale", "bury", "combe", "stead", "thorpe"]
RIVERS = ["Arda", "Kell", "Lune", "Orla", "Sava", "Tarn", "Ebbe", "Isk", "Nore", "Ure", "Wend", "Yarl"]
TRADES = ["bakery", "print shop", "dairy", "rope works", "glass house", "brick yard", "tannery", "paper mill", "foundry",
          "brewery", "boat yard", "weaving shed"]
DISHES = ["barley soup", "apple bread", "smoked trout", "honey cake", "onion pie", "plum dumplings", "rye pancakes",
          "bean stew"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
          "December"]


def unlike(rng, make, count):
    """`count` different values of make()."""
    values = []
    while len(values) < count:
        value = make()
        if value not in values:
            values.append(value)
    return values


def person(rng):
    return f"{rng.choice(FIRST)} {rng.choice(LAST)}"


def people(rng, count):
    """Names of which no two share a word."""
    return [f"{a} {b}" for a, b in zip(rng.sample(FIRST, count), rng.sample(LAST, count))]


class Town:
    """A town and its facts; names of towns and people are each used once in a set of towns()."""

    def __init__(self, rng, name, founder, builder, teacher):
        self.name, self.founder, self.builder, self.teacher = name, founder, builder, teacher
        self.river, self.trade, self.dish = rng.choice(RIVERS), rng.choice(TRADES), rng.choice(DISHES)
        self.founded, self.workers = rng.randrange(1790, 1900), rng.randrange(20, 400)
        self.arches, self.flood = rng.randrange(3, 20), rng.randrange(1901, 1960)
        self.hill, self.books, self.month = rng.randrange(180, 900), rng.randrange(2000, 30000), rng.choice(MONTHS)
        self.pupils, self.miles = rng.randrange(60, 700), rng.randrange(11, 140)

    def facts(self):
        return [
            f"{self.name} lies on the river {self.river}, {self.miles} miles from the coast.",
            f"The {self.trade} of {self.name} was founded by {self.founder} in {self.founded} and employs {self.workers} people.",
            f"The bridge of {self.name} has {self.arches} arches; {self.builder} rebuilt it after the flood of {self.flood}.",
            f"{self.teacher} leads the school of {self.name}, which has {self.pupils} pupils.",
            f"Visitors to {self.name} are told to try the {self.dish}, which is sold at the fair in {self.month}.",
            f"The hill above {self.name} is {self.hill} metres high, and the library at its foot holds {self.books} books.",
        ]

    def text(self, rng, sentences):
        """The facts in any order among `sentences` others."""
        lines = self.facts() + [remark(rng, self.name) for _ in range(sentences)]
        rng.shuffle(lines)
        return " ".join(lines)


def towns(rng, count):
    names = [f"{a}{b}" for a, b in rng.sample([(a, b) for a in STARTS for b in ENDS], count)]
    staff = unlike(rng, lambda: person(rng), 3 * count)
    return [Town(rng, name, *staff[3 * i:3 * i + 3]) for i, name in enumerate(names)]


WHEN = ["In winter", "On market days", "After the harvest", "In a dry summer", "Before the road was paved", "On Sundays",
        "When the ferry is late", "Early in the year", "At the end of the week", "During the fair"]
WHO = ["the council", "the miller's family", "a group of pupils", "the oldest teacher", "the ferryman", "a carpenter",
       "the night watch", "the choir", "a surveyor", "the postmistress", "the shopkeeper", "the fire brigade"]
DOES = ["meets in the hall behind the church", "keeps a book of what was lent and returned", "walks the footpath to the old quarry",
        "repairs the fence along the meadow", "complains about the price of coal", "paints the shutters green again",
        "carries water to the upper gardens", "puts lanterns on the quay", "argues about the new timetable",
        "counts the swans below the weir", "brings apples to the hospital", "sorts letters by candle light"]
WHY = ["because nobody else has the key", "as the minutes of an earlier year advise", "although the square would be larger",
       "since the narrow railway was closed", "so that strangers find the inn", "which a visitor once called a waste of time",
       "and nobody remembers who began it", "if the wind comes from the east", "until the bell rings twice",
       "for a fee that has not changed in years"]


def remark(rng, place):
    """A sentence of a town that answers no question."""
    return f"{rng.choice(WHEN)} {rng.choice(WHO)} of {place} {rng.choice(DOES)}, {rng.choice(WHY)}."


ZH_STARTS, ZH_ENDS = "青白松东南云石金柳梅竹清", ["石镇", "河镇", "林镇", "湾镇", "坡镇", "桥镇"]
ZH_FAMILY, ZH_GIVEN = "李王张陈刘赵周吴徐孙", ["明", "芳", "伟", "静", "洋", "敏", "丽娜", "志强", "秀英", "建国"]
ZH_WHEN = ["冬天", "秋收以后", "每逢集市", "雨季", "春节前后", "周末"]
ZH_WHO = ["镇上的老人", "几位木匠", "合唱队", "邮局的工作人员", "渡船工人", "小学生们"]
ZH_DOES = ["在河边的茶馆里商量修路的事", "把旧书送到图书室", "沿着小路走到采石场", "在码头上挂起灯笼", "修理草地旁的木栅栏", "为新的时刻表争论不休"]


class ZhTown:
    def __init__(self, rng, name, founder):
        self.name, self.founder = name, founder
        self.bridges, self.year, self.pupils = rng.randrange(3, 20), rng.randrange(1930, 1990), rng.randrange(80, 900)

    def text(self, rng, sentences):
        lines = [f"{self.name}位于山谷之中，共有{self.bridges}座桥。",
                 f"{self.name}的学校由{self.founder}在{self.year}年创办，现有学生{self.pupils}人。"]
        lines += [f"{rng.choice(ZH_WHEN)}，{self.name}{rng.choice(ZH_WHO)}{rng.choice(ZH_DOES)}。" for _ in range(sentences)]
        rng.shuffle(lines)
        return "".join(lines)


def zh_towns(rng, count):
    names = [a + b for a, b in rng.sample([(a, b) for a in ZH_STARTS for b in ZH_ENDS], count)]
    staff = unlike(rng, lambda: rng.choice(ZH_FAMILY) + rng.choice(ZH_GIVEN), count)
    return [ZhTown(rng, name, founder) for name, founder in zip(names, staff)]

"""Program text: classes whose methods follow one pattern for each field, so that the next line can be told."""

NOUNS = ["parcel", "ticket", "barrel", "letter", "engine", "garden", "boat", "lamp", "wagon", "bottle"]
FIELDS = ["weight", "price", "height", "width", "age", "volume", "distance", "pressure", "humidity", "voltage", "speed",
          "capacity", "duration", "depth", "priority", "temperature", "length", "load", "density", "rating", "balance", "quota"]

HEAD = {
    "python": '''class {Noun}Store:
    """Keeps {noun}s and answers questions about them."""

    def __init__(self, {noun}s):
        self.{noun}s = list({noun}s)
        self.log = []
''',
    "java": '''public class {Noun}Store {{
    private final List<{Noun}> {noun}s = new ArrayList<>();
    private final List<String> log = new ArrayList<>();

    public void add({Noun} {noun}) {{
        {noun}s.add({noun});
    }}
''',
    "csharp": '''public class {Noun}Store
{{
    private readonly List<{Noun}> {noun}s = new List<{Noun}>();
    private readonly List<string> log = new List<string>();

    public void Add({Noun} {noun})
    {{
        {noun}s.Add({noun});
    }}
''',
}

METHODS = {
    "python": ['''
    def total_{field}(self):
        """Returns the sum of {field} over all {noun}s."""
        self.log.append("total_{field}")
        return sum({noun}.{field} for {noun} in self.{noun}s)
''', '''
    def mean_{field}(self):
        """Returns the mean {field}; 0 without {noun}s."""
        self.log.append("mean_{field}")
        return self.total_{field}() / max(1, len(self.{noun}s))
''', '''
    def with_{field}_above(self, limit):
        """Returns the {noun}s whose {field} is above the limit."""
        self.log.append("with_{field}_above")
        return [{noun} for {noun} in self.{noun}s if {noun}.{field} > limit]
'''],
    "java": ['''
    public double total{Field}() {{
        log.add("total{Field}");
        return {noun}s.stream().mapToDouble({Noun}::get{Field}).sum();
    }}
''', '''
    public double mean{Field}() {{
        log.add("mean{Field}");
        return total{Field}() / Math.max(1, {noun}s.size());
    }}
''', '''
    public List<{Noun}> with{Field}Above(double limit) {{
        log.add("with{Field}Above");
        return {noun}s.stream().filter(one -> one.get{Field}() > limit).toList();
    }}
'''],
    "csharp": ['''
    public double Total{Field}()
    {{
        log.Add("Total{Field}");
        return {noun}s.Sum(one => one.{Field});
    }}
''', '''
    public double Mean{Field}()
    {{
        log.Add("Mean{Field}");
        return Total{Field}() / Math.Max(1, {noun}s.Count);
    }}
''', '''
    public List<{Noun}> With{Field}Above(double limit)
    {{
        log.Add("With{Field}Above");
        return {noun}s.Where(one => one.{Field} > limit).ToList();
    }}
'''],
}

CALLERS = {  # a class of another file that calls the store, and one method of it for each field
    "python": ('''class {Noun}Report:
    def __init__(self, store):
        self.store = store
''', '''
    def {field}_line(self):
        label = "{field}, all {noun}s: "
        return label + str(self.store.total_{field}())
'''),
    "java": ('''public class {Noun}Report {{
    private final {Noun}Store store;
''', '''
    public String {field}Line() {{
        String label = "{field}, all {noun}s: ";
        return label + store.total{Field}();
    }}
'''),
    "csharp": ('''public class {Noun}Report
{{
    private readonly {Noun}Store store;
''', '''
    public string {Field}Line()
    {{
        string label = "{field}, all {noun}s: ";
        return label + store.Total{Field}();
    }}
'''),
}
ENDINGS = {"python": "py", "java": "java", "csharp": "cs"}


def fill(text, noun, field=""):
    return text.format(noun=noun, Noun=noun.capitalize(), field=field, Field=field.capitalize())


def store(language, noun, fields):
    """A whole class; for the last field only the methods' own text is complete."""
    return fill(HEAD[language], noun) + "".join(fill(method, noun, field) for field in fields for method in METHODS[language])


def cut_before_return(text):
    """The text up to its last return line, and that line."""
    at = text.rindex("\n", 0, text.rindex("return ")) + 1
    return text[:at], text[at:].split("\n")[0]


def caller(language, noun, fields):
    head, method = CALLERS[language]
    return fill(head, noun) + "".join(fill(method, noun, field) for field in fields)

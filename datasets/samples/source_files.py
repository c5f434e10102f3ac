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


# Functions by themselves, in the languages that SCBench's repositories have: a sum, a mean, the largest.
LANGUAGES = ("python", "java", "typescript", "rust", "cpp", "go")
PURPOSES = ("adds up the {field} of all {noun}s", "divides the sum of the {field} of all {noun}s by their number",
            "returns the largest {field} of the {noun}s, or zero where there are none")
FUNCTIONS = {
    "python": ['''def {name}({noun}s):
    # {Noun}s without a {field} count as zero.
    total = 0
    for {noun} in {noun}s:
        total += {noun}.{field} or 0
    return total''', '''def {name}({noun}s):
    if not {noun}s:
        return 0.0
    return sum({noun}.{field} for {noun} in {noun}s) / len({noun}s)''', '''def {name}({noun}s):
    best = 0
    for {noun} in {noun}s:
        if {noun}.{field} > best:
            best = {noun}.{field}
    return best'''],
    "java": ['''public static double {name}(List<{Noun}> {noun}s) {{
    // {Noun}s without a {field} count as zero.
    double total = 0;
    for ({Noun} {noun} : {noun}s) {{
        total += {noun}.get{Field}();
    }}
    return total;
}}''', '''public static double {name}(List<{Noun}> {noun}s) {{
    if ({noun}s.isEmpty()) {{
        return 0;
    }}
    return {noun}s.stream().mapToDouble({Noun}::get{Field}).sum() / {noun}s.size();
}}''', '''public static double {name}(List<{Noun}> {noun}s) {{
    double best = 0;
    for ({Noun} {noun} : {noun}s) {{
        best = Math.max(best, {noun}.get{Field}());
    }}
    return best;
}}'''],
    "typescript": ['''export function {name}({noun}s: {Noun}[]): number {{
  // {Noun}s without a {field} count as zero.
  let total = 0;
  for (const {noun} of {noun}s) {{
    total += {noun}.{field} ?? 0;
  }}
  return total;
}}''', '''export function {name}({noun}s: {Noun}[]): number {{
  if ({noun}s.length === 0) {{
    return 0;
  }}
  return {noun}s.reduce((sum, {noun}) => sum + {noun}.{field}, 0) / {noun}s.length;
}}''', '''export function {name}({noun}s: {Noun}[]): number {{
  let best = 0;
  for (const {noun} of {noun}s) {{
    best = Math.max(best, {noun}.{field});
  }}
  return best;
}}'''],
    "rust": ['''pub fn {name}({noun}s: &[{Noun}]) -> f64 {{
    // {Noun}s without a {field} count as zero.
    let mut total = 0.0;
    for {noun} in {noun}s {{
        total += {noun}.{field}.unwrap_or(0.0);
    }}
    total
}}''', '''pub fn {name}({noun}s: &[{Noun}]) -> f64 {{
    if {noun}s.is_empty() {{
        return 0.0;
    }}
    {noun}s.iter().map(|{noun}| {noun}.{field}).sum::<f64>() / {noun}s.len() as f64
}}''', '''pub fn {name}({noun}s: &[{Noun}]) -> f64 {{
    let mut best = 0.0;
    for {noun} in {noun}s {{
        best = f64::max(best, {noun}.{field});
    }}
    best
}}'''],
    "cpp": ['''double {name}(const std::vector<{Noun}>& {noun}s) {{
  // {Noun}s without a {field} count as zero.
  double total = 0;
  for (const {Noun}& {noun} : {noun}s) {{
    total += {noun}.{field};
  }}
  return total;
}}''', '''double {name}(const std::vector<{Noun}>& {noun}s) {{
  if ({noun}s.empty()) {{
    return 0;
  }}
  double sum = 0;
  for (const {Noun}& {noun} : {noun}s) sum += {noun}.{field};
  return sum / static_cast<double>({noun}s.size());
}}''', '''double {name}(const std::vector<{Noun}>& {noun}s) {{
  double best = 0;
  for (const {Noun}& {noun} : {noun}s) {{
    best = std::max(best, {noun}.{field});
  }}
  return best;
}}'''],
    "go": ['''func {name}({noun}s []{Noun}) float64 {{
	// {Noun}s without a {field} count as zero.
	total := 0.0
	for _, {noun} := range {noun}s {{
		total += {noun}.{Field}
	}}
	return total
}}''', '''func {name}({noun}s []{Noun}) float64 {{
	if len({noun}s) == 0 {{
		return 0
	}}
	sum := 0.0
	for _, {noun} := range {noun}s {{
		sum += {noun}.{Field}
	}}
	return sum / float64(len({noun}s))
}}''', '''func {name}({noun}s []{Noun}) float64 {{
	best := 0.0
	for _, {noun} := range {noun}s {{
		best = math.Max(best, {noun}.{Field})
	}}
	return best
}}'''],
}


def function_name(language, kind, field):
    verb = ("total", "mean", "largest")[kind]
    return {"go": f"{verb.capitalize()}{field.capitalize()}"}.get(
        language, f"{verb}_{field}" if language in ("python", "rust", "cpp") else f"{verb}{field.capitalize()}")


def function(language, kind, noun, field):
    """A function by itself, without the line end."""
    return FUNCTIONS[language][kind].format(name=function_name(language, kind, field), noun=noun, Noun=noun.capitalize(),
                                            field=field, Field=field.capitalize())


def purpose(kind, noun, field):
    return f"The function {PURPOSES[kind].format(noun=noun, field=field)}."

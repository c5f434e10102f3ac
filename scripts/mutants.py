"""Small bugs that can be planted in C++ text: off by one, flipped signs and comparisons, dropped terms, swapped operands
and arguments, wrong constants.

bugs_in(name, text) lists every one; switched(text, {number: bug}) is the text with all of them behind a switch, so that
one compilation serves many: `a < b` becomes `(kvarena_mutant == 7 ? a <= b : a < b)`.

The text is read as clang-format leaves it: a binary operator has a blank or a line break on both sides, brackets of
templates have none inside. A bug lies in one line.
"""

import bisect
import dataclasses
import re

# ---- What is planted -------------------------------------------------------------------------------------------------

KINDS = ["off by one", "flipped comparison", "flipped sign", "dropped term", "swapped operands", "swapped arguments",
         "swapped axes", "wrong constant"]
# Binary operator -> kind and replacement; l and r stand for the operands.
BINARY = {
    "<": [("off by one", "l <= r"), ("flipped comparison", "l >= r")],
    "<=": [("off by one", "l < r"), ("flipped comparison", "l > r")],
    ">": [("off by one", "l >= r"), ("flipped comparison", "l <= r")],
    ">=": [("off by one", "l > r"), ("flipped comparison", "l < r")],
    "==": [("flipped comparison", "l != r")],
    "!=": [("flipped comparison", "l == r")],
    "+": [("flipped sign", "l - r"), ("dropped term", "l"), ("dropped term", "r")],
    "-": [("flipped sign", "l + r"), ("dropped term", "l"), ("swapped operands", "r - l")],
    "*": [("dropped term", "l"), ("dropped term", "r")],
    "/": [("dropped term", "l"), ("swapped operands", "r / l")],
    "%": [("dropped term", "l")],
    "<<": [("flipped sign", "l >> r")],
    ">>": [("flipped sign", "l << r")],
    "&&": [("dropped term", "l"), ("dropped term", "r")],
    "||": [("dropped term", "l"), ("dropped term", "r")],
}
ASSIGNMENT = {
    "+=": [("flipped sign", "l -= r"), ("dropped term", "l")],
    "-=": [("flipped sign", "l += r"), ("dropped term", "l")],
    "*=": [("dropped term", "l")],
    "/=": [("dropped term", "l")],
}
UNARY = {"-": [("flipped sign", "r")], "!": [("flipped comparison", "!!r")]}  # both sides of the switch are bool
# Functions that are easily taken for one another.
OTHER_FUNCTION = {"min": "max", "max": "min", "min_of": "max_of", "max_of": "min_of", "amin": "amax", "amax": "amin",
                  "minimum": "maximum", "maximum": "minimum", "floor": "ceil", "ceil": "floor",
                  "lower_bound": "upper_bound", "upper_bound": "lower_bound"}

# ---- Where nothing is planted ----------------------------------------------------------------------------------------

# Calls whose arguments compute no result: they refuse a caller's mistake, or word a message.
CHECKS_AND_MESSAGES = {"KVARENA_ASSERT", "static_assert", "require", "fail", "describe", "format", "doc"}
# Lines that change speed alone: memory asked for ahead, work shared or not. At the left margin: the whole function.
SPEED = re.compile(r"reserve\(|[Ff]etch|[Aa]head|kWorth|[Tt]hreads|operations")
# Lines whose numbers are constants of compilation, which no switch reaches.
COMPILED = re.compile(r"\b(constexpr|template|using|enum|operator|case)\b|\) (const )?= 0;")
# A method's parameters with their ranges and defaults: docs/methods repeats them, and a test compares the two.
PARAMETER = re.compile(r"^\s*p\(\"")
# What a member holds before it is set.
MEMBER = r"[-\w.]+(, \w+ = [-\w.]+)*;"
MEMBER_OF_CLASS = re.compile(rf"^ +[\w:<>]+ \w+_ = {MEMBER}")
MEMBER_IN_HEADER = re.compile(rf"^ +[\w:<>]+ \w+ = {MEMBER}|\w \w+ = [-\w.]+[,)]")  # or what a caller leaves out
# Order of the first two arguments does not matter.
COMMUTATIVE = {"min", "max", "min_of", "max_of", "fma", "mul", "add", "swap", "minimum", "maximum", "mul_add"}


@dataclasses.dataclass(frozen=True)
class Bug:
    file: str
    line: int
    kind: str
    begin: int  # of the expression that is replaced, in characters
    end: int
    text: str  # what it becomes
    before: str  # the line, without and with the bug
    after: str

    @property
    def key(self):
        return f"{self.file}\n- {self.before}\n+ {self.after}"


# ---- Reading C++ -----------------------------------------------------------------------------------------------------

TOKEN = re.compile(
    r"""
    (?P<none>//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n\\]|\\.)*|\s+)
  | (?P<string>R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])')
  | (?P<number>(?:0[xXbB][0-9a-fA-F']+|\d(?:[\d']*)\.?\d*(?:[eE][-+]?\d+)?)[uUlLfF]*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<symbol>(?<=\s)(?:<<|>>)(?=\s)|<<=|>>=|<=>|::|->|\+\+|--|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\.\.\.|.)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
PRECEDENCE = {operator: level for level, operators in enumerate(
    ["|| ", "&&", "|", "^", "&", "== !=", "< <= > >=", "<=>", "<< >>", "+ -", "* / %"]) for operator in operators.split()}
OPEN, CLOSE = {"(": ")", "[": "]", "{": "}", "<": ">"}, {")", "]", "}"}
# Words that end what stands before an expression, or begin it.
KEYWORDS = {"return", "else", "case", "throw", "co_return", "if", "while", "for", "switch", "do", "new", "delete"}


@dataclasses.dataclass
class Token:
    kind: str  # string, number, word, binary, prefix, other; open and close for brackets
    text: str
    begin: int
    end: int
    partner: int = -1  # the other bracket


class Code:
    """Tokens of a text and the extent of operands around them."""

    def __init__(self, text):
        self.text = text
        self.tokens = [Token(m.lastgroup if m.lastgroup != "mark" else "string", m.group(), m.start(), m.end())
                       for m in TOKEN.finditer(text) if m.lastgroup != "none"]
        for token in self.tokens:
            if token.kind == "symbol":
                token.kind = self._kind(token)
        self._match_brackets()
        self.line_starts = [0] + [m.end() for m in re.finditer("\n", text)]

    def _kind(self, token):
        blank_before = token.begin == 0 or self.text[token.begin - 1].isspace()
        blank_after = self.text[token.end:token.end + 1].isspace()
        if token.text in PRECEDENCE and blank_before and blank_after:
            return "binary"
        if token.text in "-!~*&+" or token.text in ("++", "--"):
            return "prefix" if not blank_after else "other"
        if token.text in OPEN:
            return "open"
        return "close" if token.text in CLOSE or token.text == ">" else "other"

    def _match_brackets(self):
        stack = []
        for i, token in enumerate(self.tokens):
            if token.kind == "open":
                stack.append(i)
            elif token.kind == "close":
                while stack and OPEN[self.tokens[stack[-1]].text] != token.text and self.tokens[stack[-1]].text == "<":
                    stack.pop()  # no template's bracket after all
                if stack and OPEN[self.tokens[stack[-1]].text] == token.text:
                    token.partner = stack.pop()
                    self.tokens[token.partner].partner = i

    def at(self, i):
        return self.tokens[i] if 0 <= i < len(self.tokens) else Token("other", ";", 0, 0)

    def line(self, offset):
        return bisect.bisect_right(self.line_starts, offset)

    def source(self, first, last):
        """The text from token `first` to token `last`."""
        return self.text[self.tokens[first].begin:self.tokens[last].end]

    def primary_before(self, i):
        """The first token of the name, call or subscript that ends with token i, its prefixes included; None where there
        is none."""
        while True:
            token = self.at(i)
            if token.kind == "close":
                if token.partner < 0:
                    return None
                i = token.partner
            elif token.kind == "word" and token.text not in KEYWORDS or token.kind in ("string", "number"):
                pass
            else:
                return None
            before = self.at(i - 1)
            if before.text in (".", "->", "::") and before.kind == "other":
                if self.at(i - 2).kind in ("word", "close"):
                    i -= 2
                    continue
                i -= 1
                break
            called = token.kind == "close"
            if called and (before.kind == "close" or before.kind == "word" and before.text not in KEYWORDS):
                if not self.is_head(i - 1):
                    i -= 1
                    continue
            break
        while self.at(i - 1).kind == "prefix":
            i -= 1
        return i

    def is_head(self, i):
        """Token i closes what stands behind if, for, while or switch."""
        token = self.at(i)
        return token.text == ")" and token.partner > 0 and self.at(token.partner - 1).text in KEYWORDS | {"constexpr"}

    def left_operand(self, i, level):
        """The first token of what operator i of precedence `level` takes on its left; None where that is unclear."""
        begin = i
        while True:
            begin = self.primary_before(begin - 1)
            if begin is None:
                return None
            before = self.at(begin - 1)
            if before.kind == "binary" and PRECEDENCE[before.text] >= level:
                begin -= 1
                continue
            return begin if self.begins_expression(begin) else None

    def begins_expression(self, i):
        before = self.at(i - 1)
        if before.kind in ("binary", "open"):
            return True
        if before.kind == "word":
            return before.text in KEYWORDS
        return self.is_head(i - 1) or before.text in ("{", "}") or before.kind == "other" and before.text not in "*&"

    def primary_after(self, i):
        """The last token of the name, call or subscript that begins with token i or its prefixes."""
        while self.at(i).kind == "prefix":
            i += 1
        token = self.at(i)
        if token.kind == "open" and token.text in "([" and token.partner > 0:
            i = token.partner
        elif token.kind not in ("word", "number", "string") or token.text in KEYWORDS:
            return None
        while True:
            after = self.at(i + 1)
            if after.kind == "open":
                if after.partner < 0:
                    return None
                i = after.partner
            elif after.text in (".", "->", "::") and self.at(i + 2).kind == "word":
                i += 2
            else:
                return i

    def right_operand(self, i, level):
        """The last token of what operator i takes on its right."""
        end = i
        while True:
            end = self.primary_after(end + 1)
            if end is None:
                return None
            after = self.at(end + 1)
            if after.kind == "binary" and PRECEDENCE[after.text] > level:
                end += 1
                continue
            return end if after.kind in ("binary", "close") or after.text in (",", ";", ":", "?") else None

    def end_of_statement(self, i):
        """The last token before the comma, semicolon or closing bracket that ends the expression around token i."""
        while self.at(i + 1).kind != "close" and self.at(i + 1).text not in (",", ";"):
            i = self.at(i + 1).partner if self.at(i + 1).kind == "open" else i + 1
            if i < 0:
                return None
        return i

    def arguments(self, i):
        """[(first, last)] of the arguments in the brackets that token i opens."""
        arguments, begin, j = [], i + 1, i + 1
        while j < self.tokens[i].partner:
            if self.tokens[j].kind == "open":
                j = max(j, self.tokens[j].partner)
            elif self.tokens[j].text == ",":
                arguments.append((begin, j - 1))
                begin = j + 1
            j += 1
        return arguments + [(begin, self.tokens[i].partner - 1)]


# ---- The operators ---------------------------------------------------------------------------------------------------
# Each yields (kind, first token, last token, replacement).


def filled(code, pattern, left, right):
    def operand(match):
        first, last = {"l": left, "r": right}[match.group()]
        text = code.source(first, last)
        moved = match.group() == "l" and match.start() > 0
        return f"({text})" if moved and any(token.kind == "binary" for token in code.tokens[first:last + 1]) else text

    return re.sub(r"\b[lr]\b", operand, pattern)


def binary_operators(code, i, token):
    level = PRECEDENCE[token.text] if token.kind == "binary" else None
    if token.text not in BINARY or level is None:
        return
    begin, end = code.left_operand(i, level), code.right_operand(i, level)
    if begin is None or end is None:
        return
    words = [t.kind for t in code.tokens[begin:end + 1]]
    for kind, pattern in BINARY[token.text]:
        if not (token.text == "+" and "string" in words):  # joined texts
            yield kind, begin, end, filled(code, pattern, (begin, i - 1), (i + 1, end))


def assignments(code, i, token):
    begin, end = code.primary_before(i - 1), code.end_of_statement(i)
    if token.text not in ASSIGNMENT or begin is None or end is None or not code.begins_expression(begin):
        return
    if code.is_head(end + 1):  # a loop's step: without it the loop has no end, which shows nothing
        return
    for kind, pattern in ASSIGNMENT[token.text]:
        yield kind, begin, end, filled(code, pattern, (begin, i - 1), (i + 1, end))


def prefixes(code, i, token):
    end = code.primary_after(i)
    if token.kind != "prefix" or token.text not in UNARY or end is None:
        return
    number = code.at(i + 1)
    if number.kind == "number" and number.text.isdigit() and code.at(i - 1).text in "(,{" and code.at(i + 2).text in "),}":
        yield "swapped axes", i, end, f"-{int(number.text) + 1}"  # -1, the last axis
        return
    for kind, pattern in UNARY[token.text]:
        yield kind, i, end, filled(code, pattern, None, (i + 1, end))


def conditions(code, i, token):
    if token.text not in ("if", "while") or code.at(i + 1).text != "(" or code.at(i + 1).partner < 0:
        return
    first, last = i + 2, code.at(i + 1).partner - 1
    inside = code.tokens[first:last + 1]
    if not any(t.text in (";", "=") for t in inside) and not any(t.kind == "binary" for t in inside):
        yield "flipped comparison", first, last, f"!({code.source(first, last)})"


def calls(code, i, token):
    if token.kind != "word" or code.at(i + 1).text != "(" or code.at(i + 1).partner < 0 or token.text in KEYWORDS:
        return
    begin = code.primary_before(i)
    if begin is None or not code.begins_expression(begin):
        return
    end = code.at(i + 1).partner
    arguments = code.arguments(i + 1)
    if token.text in OTHER_FUNCTION and arguments[0][0] <= arguments[0][1]:
        other = code.text[code.tokens[begin].begin:token.begin] + OTHER_FUNCTION[token.text] + code.source(i + 1, end)
        yield "flipped comparison", begin, end, other
    for k in range(len(arguments) - 1):
        (a, a_end), (b, b_end) = arguments[k:k + 2]
        plain = a_end == a and b_end == b and code.at(a).kind == code.at(b).kind == "word"
        if plain and code.at(a).text != code.at(b).text and not (k == 0 and token.text in COMMUTATIVE):
            swapped = (code.text[code.tokens[begin].begin:code.tokens[a].begin] + code.at(b).text + ", " + code.at(a).text +
                       code.text[code.tokens[b].end:code.tokens[end].end])
            yield "swapped arguments", begin, end, swapped


def subscripts(code, i, token):
    second = token.partner + 1
    if token.text != "[" or token.partner < 0 or code.at(second).text != "[" or code.at(second).partner < 0:
        return
    begin, end = code.primary_before(i - 1), code.at(second).partner
    if begin is None or not code.begins_expression(begin):
        return
    a, b = code.source(i, token.partner), code.source(second, end)
    if a != b:
        yield "swapped axes", begin, end, code.text[code.tokens[begin].begin:token.begin] + b + a


def indexes(code, i):
    """Token i opens a subscript, not the size of an array that is declared."""
    begin = code.primary_before(i - 1)
    return begin is not None and code.begins_expression(begin)


def constants(code, i, token):
    if token.text in ("true", "false"):
        yield "wrong constant", i, i, "false" if token.text == "true" else "true"
    if token.kind != "number" or token.text[:2].lower() in ("0x", "0b"):
        return
    before, after = code.at(i - 1), code.at(i + 1)
    if before.kind == "prefix" and after.text in ",)}" or before.text == "[" and not indexes(code, i - 1):
        return
    digits, suffix = re.fullmatch(r"(.*?)([uUlLfF]*)", token.text).groups()
    if re.fullmatch(r"[\d']+", digits):
        yield "wrong constant", i, i, f"{int(digits.replace(chr(39), '')) + 1}{suffix}"
    elif float(digits.replace("'", "")) == 0:
        yield "wrong constant", i, i, f"1.0{suffix}"
    else:
        yield "wrong constant", i, i, f"(2 * {token.text})"


OPERATORS = [binary_operators, assignments, prefixes, conditions, calls, subscripts, constants]


def forbidden(code):
    """The set of tokens at which nothing is planted."""
    tokens = set()
    for i, token in enumerate(code.tokens):
        quiet = token.text in CHECKS_AND_MESSAGES or re.match(r"KVARENA_[A-Z_]+$", token.text)
        if token.kind == "word" and quiet and code.at(i + 1).partner > i:
            tokens.update(range(i, code.at(i + 1).partner + 1))
        if token.text == "<" and token.kind == "open" and token.partner > i:
            tokens.update(range(i, token.partner + 1))
    return tokens


def forbidden_lines(name, text):
    member = MEMBER_IN_HEADER if name.endswith((".h", ".cuh")) else MEMBER_OF_CLASS
    lines, parameter, function = set(), False, False
    for number, line in enumerate(text.splitlines(), 1):
        parameter = parameter or bool(PARAMETER.search(line))
        function = function and line != "}" or line[:1].isalpha() and line.endswith("{") and bool(SPEED.search(line))
        if parameter or function or SPEED.search(line) or COMPILED.search(line) or member.search(line):
            lines.add(number)
        parameter = parameter and not line.rstrip().endswith(";")
    return lines


def bugs_in(name, text):
    """Every bug that can be planted in the text, in order."""
    code = Code(text)
    no_token, no_line = forbidden(code), forbidden_lines(name, text)
    bugs = []
    for i, token in enumerate(code.tokens):
        line = code.line(token.begin)
        if i in no_token or line in no_line:
            continue
        for operator in OPERATORS:
            for kind, first, last, replacement in operator(code, i, token):
                begin, end = code.tokens[first].begin, code.tokens[last].end
                if "\n" in text[begin:end]:
                    continue
                start = code.line_starts[line - 1]
                whole = text[start:].split("\n", 1)[0]
                after = text[start:begin] + replacement + whole[end - start:]
                bugs.append(Bug(name, line, kind, begin, end, replacement, whole.strip(), after.strip()))
    return bugs


def apart(bugs):
    """No two of the bugs touch the same text."""
    places = sorted((bug.begin, bug.end) for bug in bugs)
    return all(a[1] <= b[0] for a, b in zip(places, places[1:]))


def switched(text, bugs):
    """The text with every bug of {number: bug} behind its number; lines stay where they are."""
    for number, bug in sorted(bugs.items(), key=lambda item: -item[1].begin):
        kept = text[bug.begin:bug.end]
        text = f"{text[:bug.begin]}(kvarena_mutant == {number} ? ({bug.text}) : ({kept})){text[bug.end:]}"
    return text

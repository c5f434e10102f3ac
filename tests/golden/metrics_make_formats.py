"""Writes metrics_jieba.json, metrics_patches.json and metrics_python_calls.json: segmentations by jieba 0.42.1, verdicts of
unidiff 0.7.3 and git 2.39 on damaged patches, and Python's own reading of call expressions.

    pip install jieba==0.42.1 unidiff==0.7.3 && python metrics_make_formats.py
"""
import ast
import json
import os
import random
import subprocess
import tempfile

import jieba
from unidiff import PatchSet

HERE = os.path.dirname(os.path.abspath(__file__))


def write(name, rows):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as out:
        out.write("[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]\n")


def segmentations():
    rng = random.Random(7)
    jieba.initialize()
    words = sorted(w for w, f in jieba.dt.FREQ.items() if f > 0)
    common = sorted(w for w, f in jieba.dt.FREQ.items() if f > 2000)
    other = ["，", "。", " ", "\r\n", "\n", "\u3000", "GPT-4", "3.14%", "C++", "100", "a_b", "—", "。。", "x.y", "é", "%", "1.5倍", "#5", "&"]
    rows = []
    for i in range(220):
        parts = []
        for _ in range(rng.randint(1, 16)):
            kind = rng.random()
            if kind < 0.45:
                parts.append(rng.choice(common))
            elif kind < 0.65:
                parts.append(rng.choice(words))
            elif kind < 0.85:
                parts.append("".join(chr(rng.randint(0x4E00, 0x9FD5)) for _ in range(rng.randint(1, 4))))
            else:
                parts.append(rng.choice(other))
        rows.append(list(jieba.cut("".join(parts), cut_all=False)))
    write("metrics_jieba.json", rows)


BASES = [
    "diff --git a/app/cache.py b/app/cache.py\n--- a/app/cache.py\n+++ b/app/cache.py\n@@ -1,4 +1,4 @@\n import os\n"
    "-LIMIT = 10\n+LIMIT = 20\n \n def get(k):\n",
    "diff --git a/new.txt b/new.txt\nnew file mode 100644\nindex 0000000..1234567\n--- /dev/null\n+++ b/new.txt\n"
    "@@ -0,0 +1,2 @@\n+a\n+b\n",
    "diff --git a/x b/x\ndeleted file mode 100644\n--- a/x\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-b\n",
    "diff --git a/x.py b/y.py\nsimilarity index 90%\nrename from x.py\nrename to y.py\n--- a/x.py\n+++ b/y.py\n"
    "@@ -1 +1 @@\n-a\n+b\n",
    "--- a/cache.py\n+++ b/cache.py\n@@ -1,2 +1,3 @@ def f():\n a\n+b\n c\n@@ -9,2 +10,1 @@\n-d\n e\n",
    "--- cache.py\n+++ cache.py\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n",
    "diff --git a/a b.txt b/a b.txt\nindex 123..456 100644\n--- a/a b.txt\t\n+++ b/a b.txt\t\n@@ -3,0 +4 @@\n+b\n",
    "diff --git a/x b/x\nold mode 100644\nnew mode 100755\n",
    "diff --git a/p.png b/p.png\nindex 123..456 100644\nBinary files a/p.png and b/p.png differ\n",
    'diff --git "a/x\\303\\251.py" "b/x\\303\\251.py"\n--- "a/x\\303\\251.py"\n+++ "b/x\\303\\251.py"\n@@ -1 +1 @@\n-a\n+b\n',
]


# Headers of two kinds, and the like that damage does not make.
KINDS = ["new file mode 100644\n", "deleted file mode 100644\n", "rename from x\nrename to x\n", "copy from x\ncopy to x\n",
         "old mode 100644\nnew mode 100755\n"]
MADE = ["diff --git a/x b/x\n" + first + second for first in KINDS for second in KINDS]


def damaged(rng):
    lines = "".join(rng.sample(BASES, rng.choice([1, 1, 2]))).splitlines(keepends=True)
    for _ in range(rng.choice([0, 1, 1, 1, 2])):
        at = rng.randrange(len(lines))
        kind = rng.randrange(9)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, rng.choice(["text\n", "\n", " x\n", "+x\n", "-x\n", "```\n", "\\ No newline at end of file\n"]))
        elif kind == 2:
            lines.insert(at, lines[rng.randrange(len(lines))])
        elif kind == 3:
            lines[at] = lines[at].replace("1", rng.choice(["2", "0", "3"]), 1)
        elif kind == 4:
            lines[at] = lines[at].rstrip("\n")
        elif kind == 5:
            lines[at] = lines[at].replace(" ", "", 1)
        elif kind == 6:
            lines[at] = lines[at].replace("\n", "\r\n")
        elif kind == 7:
            lines[at] = rng.choice("+- @\\\t") + lines[at][1:]
        else:
            lines = lines[: at + 1]
        if not lines:
            lines = ["\n"]
    return "".join(lines)


def patches():
    rng = random.Random(11)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for text in [damaged(rng) for _ in range(320)] + MADE:
            git = subprocess.run(["git", "apply", "--numstat", "-"], input=text.encode(), capture_output=True, cwd=folder)
            try:
                patch = PatchSet(text)
                unidiff = [len(patch), sum(len(f) for f in patch), patch.added, patch.removed]
            except Exception:
                unidiff = None
            rows.append([text, git.returncode, git.stdout.decode(), unidiff])
    write("metrics_patches.json", rows)


# Not here, because ours refuses them: \\N{...} escapes, and positional arguments (which BFCL drops) that use grammar beyond
# arithmetic.
EXPRESSIONS = r"""
f(a=1)|f(a=-1.5e3, b=+2)|f(a='x' "y" 'z')|f(a="it's", b='say "hi"')|f(a='\n\t\\\x41\u00e9\101')|f(a=r'\d+\n')|f(a=u'x')
f(a=[1, 2.0, 'x', None, True, False,])|f(a={'k': [1, (2, 3)], 'l': {'m': ()}})|f(a=(1,), b=(1), c=())|a.b.c(x=1)
f(a=1_000, b=0xFF, c=0b101, d=0o17, e=.5, f=1., g=1e-3)|f(a=2**10, b=7//2, c=-7//2, d=7%3, e=-7%3, f=1/4, g=(1+2)*3)
f(a=2*3.5-1, b=1<<4, c=6&3, d=6|1, e=6^3)|f(a='a'+'b')|f(a=name, b=other_name)|f(a=g(b=1))|f(a=g('x', 1))|f(a=g())
f(a=...)|f(a=x[0])|f(a=x['k'])|f('positional', 2)|f('p', a=1)|f(a=1, 2)|f(a=1, a=2)|f(a=1) # note|f(a=1,|f(a=)
f(a=1))|f a=1|f(from='x')|f(class=1)|f(a=012)|f(a=00)|f(a=5km)|f(a=1if)|f(a='unclosed)|f(a="two|f(a={1, 2})|f(a={**d})
f(a=[x for x in y])|f(a=lambda: 1)|f(a=1 if x else 2)|f(a=not True)|f(a=x and y)|f(a=x < 1)|f(a=f'{x}')|f(a=obj.attr)
f(a=-x)|f(a=--1)|f(a=- 1)|f(a=~5)|f(a=1/0)|f(a=1//0)|f(a='x'*2)|f(a=x+1)|1|'text'|x|f|g.h|[f(a=1)]|[f(a=1), g(b=2)]|f(a=1), g(b=2)
[f(a=1), 2]|[[f(a=1)]]|(f(a=1), g(b=2))|{'f': 1}|[]|f()|f()()|f(a=1).g(b=2)|f(a=1)[0]|f(a={'x': 1, 'x': 2})|f(a={1: 'x', True: 'y'})
f(a={[1]: 2})|f(a=123456789012)|f(a=1.0, b=1e400)|f(é='ü', b='港口')|f(a='''x y''')|f(a=`x`)|f(a=$x)|f(a=1;b=2)|f(a=True, b=true)
f(a=1<<0, b=0<<70, c=5<<1, d=-5<<3, e=3<<61, f=-1<<63)|f(a=16>>2, b=5>>0, c=-5>>1, d=-1>>62, e=7>>63, f=-7>>64, g=1>>999)
f(a=1<<-1)|f(a=1>>-1)|f(a=1.0<<2)|f(a='\x4')|f(a='\x')|f(a='\u004')|f(a='\U0001F60')|f(a='\U0001F600')|f(a='\U00110000')
f(*args)|f(**kwargs)|f(a=*x)|f(a=b'x')|f(a='\q')|f(a=3, b = 4 , c= 5)|None|f(a=None)|f(a=(yield))
""".replace("\n", "|").strip("|").split("|")


# BFCL's resolver of Python's syntax tree, as the workload sheet describes it (section 10.3).
def resolve(node):
    if isinstance(node, ast.Constant):
        if node.value is Ellipsis:
            return "..."
        if isinstance(node.value, (bytes, complex)):
            raise ValueError("refused")
        return node.value
    if isinstance(node, ast.UnaryOp):
        return -node.operand.value
    if isinstance(node, ast.List):
        return [resolve(n) for n in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(resolve(n) for n in node.elts)
    if isinstance(node, ast.Dict):
        return {resolve(k): resolve(v) for k, v in zip(node.keys, node.values)}
    if isinstance(node, ast.BinOp):
        return eval(ast.unparse(node))  # constants of this file
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call):
        return call(node) if node.keywords else ast.unparse(node)
    if isinstance(node, ast.Subscript):
        return ast.unparse(node)
    raise ValueError(type(node))


def call(node):
    parts, function = [], node.func
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    if isinstance(function, ast.Name):
        parts.append(function.id)
    arguments = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError("**")
        arguments[keyword.arg] = resolve(keyword.value)
    return {".".join(reversed(parts)): arguments}


# Values with their Python types: ["int", 1], ["tuple", [...]], ["dict", [[key, value], ...]]
def typed(value):
    name = type(value).__name__
    if isinstance(value, (list, tuple)):
        return [name, [typed(v) for v in value]]
    if isinstance(value, dict):
        return [name, [[typed(k), typed(v)] for k, v in value.items()]]
    return [name, str(value) if value in (float("inf"),) else value]


def python_calls():
    rows = []
    for text in EXPRESSIONS:
        source = text.strip("`\n ")
        source = source if source.startswith("[") else "[" + source
        source = source if source.endswith("]") else source + "]"
        try:
            body = ast.parse(source, mode="eval").body
            assert isinstance(body, ast.List) and all(isinstance(e, ast.Call) for e in body.elts)
            rows.append([text, [typed(call(e)) for e in body.elts]])
        except Exception:
            rows.append([text, None])
    write("metrics_python_calls.json", rows)


if __name__ == "__main__":
    segmentations()
    patches()
    python_calls()

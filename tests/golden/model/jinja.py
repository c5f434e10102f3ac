#!/usr/bin/env python3
"""Golden texts of small Jinja programs, run by transformers' environment.

    python3 jinja.py > jinja.jsonl
    python3 jinja.py FOLDER > published.jsonl

Packages: transformers 5.23.0, jinja2. The programs below are this project's own. With FOLDER, which holds NAME.jinja of
published templates (such as llama.cpp's models/templates), the vectors carry these texts and stay out of the tree.
Tuples are lists here, so no program prints one.
"""
import datetime
import itertools
import json
import pathlib
import sys

import transformers.utils.chat_template_utils as utils

NAMES = {
    "n": 3, "x": 2.5, "t": "text", "empty": "", "yes": True, "no": False, "nothing": None, "u": "Zürich 😀 naïve",
    "list": [3, 1, 2], "words": ["b", "A", "c", "a"], "d": {"b": 1, "a": [1, {"k": "v"}], "items": "taken"},
    "people": [{"name": "Ann", "age": 30, "sex": "f"}, {"name": "bob", "age": 25}, {"name": "Cy", "age": 35, "sex": None}],
    "spaces": " \n a b \t\u00a0", "html": "<a & 'b' \"c\">", "messages": [
        {"role": "system", "content": "s"}, {"role": "user", "content": "q"}, {"role": "assistant", "content": "r"}],
}

EXPRESSIONS = """
1 + 2 * 3 - 4 / 2
7 // 2 ~ ' ' ~ -7 // 2 ~ ' ' ~ -7 % 3 ~ ' ' ~ 2 ** 3 ~ ' ' ~ 2 ** -1
1.5 + n ~ '|' ~ x * 2 ~ '|' ~ 7.0 // 2 ~ '|' ~ 5 % 2.5
'a' 'b' ~ "c\\n" ~ '\\'' ~ "\\u00e9\\x41"
n is defined and missing is not defined
missing | default('d') ~ (empty | default('e', true)) ~ (empty | default('f'))
not yes or no and missing
yes and t
no or empty or 'last'
nothing or no
t if yes else u
t if no
[1 < 2 < 3, 1 < 2 > 3, 'a' < 'b', 2 == 2.0, 1 == true, '1' == 1]
[3 in list, 4 not in list, 'ex' in t, 'b' in d, 'z' in d]
t is string and n is number and n is integer and x is float and list is sequence and d is mapping
[nothing is none, yes is true, no is false, yes is boolean, n is odd, n is even, n is divisibleby 3, n is divisibleby(2)]
[t is eq 'text', t is equalto('no'), n is gt 2, n is lt(3), n is in list, n is ge 3, n is le 2, n is ne 3]
[d is iterable, n is iterable, missing is undefined, t is upper, 'A' is upper, 'a' is lower, raise_exception is callable]
list[0] ~ list[-1] ~ list[1:] ~ list[:-1] ~ list[::-1] ~ list[5:] ~ t[1:3] ~ t[::-1] ~ u[-6:]
[list[9] is defined, list[9] | default('none')]
d.b ~ d['a'][1].k ~ d.a[0] ~ d.get('z') ~ d.get('z', 5) ~ d['items']
d.items() | map('first') | list
d.keys() | list ~ d.values() | list | length
d | items | map('first') | list
d | dictsort | map('first') | join(',')
d | length ~ list | count ~ u | length ~ empty | length
list | sort ~ list | sort(reverse=true) ~ words | sort ~ words | sort(case_sensitive=true)
people | sort(attribute='age') | map(attribute='name') | join(', ')
people | map(attribute='sex', default='-') | list
people | selectattr('sex') | map(attribute='name') | list
people | selectattr('sex', 'defined') | map(attribute='name') | list
people | selectattr('sex', 'equalto', 'f') | list | length
people | rejectattr('age', 'gt', 28) | map(attribute='name') | first
list | select('odd') | list ~ list | reject('odd') | list ~ [0, 1, '', 'a'] | select | list
words | map('upper') | join ~ words | unique | list ~ words | first ~ words | last
list | max ~ list | min ~ list | sum ~ people | sum(attribute='age')
people | join('|', attribute='name')
t | upper ~ t | capitalize ~ 'a bC-d' | title ~ 'ABC' | lower
spaces | trim ~ '|' ~ 'xxaxx' | trim('x') ~ '|'
spaces.strip() ~ '|' ~ spaces.lstrip() ~ '|' ~ spaces.rstrip() ~ '|' ~ 'xyax'.strip('xy') ~ 'xa'.lstrip('x')
'a,b,,c'.split(',') ~ 'a,b,c'.split(',', 1) ~ ' a  b '.split() ~ 'a,b,c'.rsplit(',', 1) ~ 'abc'.split('z')
t.startswith('te') ~ t.endswith('xt') ~ t.startswith(('a', 't')) ~ t.find('x') ~ t.find('z') ~ 'aXa'.count('a')
t.upper() ~ t.title() ~ t.capitalize() ~ 'A'.lower() ~ t.replace('t', 'T') ~ t.replace('t', 'T', 1) ~ ','.join(words)
'%s is %d' % (t, n) ~ ' 100%% ' % () ~ '{} {}'.format(t, n) ~ '{1}{0}'.format(1, 2) ~ '%s' | format(n)
'a\\nb\\n\\nc' | indent ~ '|' ~ 'a\\nb' | indent(2, true) ~ '|' ~ 'a\\nb' | indent(width=1)
'12' | int ~ '1.5' | float ~ 'z' | int ~ 'z' | int(7) ~ 2.9 | int ~ 3 | float ~ yes | int
2.567 | round(2) ~ ' ' ~ 2.5 | round ~ ' ' ~ -3 | abs ~ ' ' ~ (-3) | abs ~ -x | abs
[1, 'a', true, none, 2.0, {'k': [1]}, "it's"]
{'a': 1, 'b': {'c': none}, 3: 'three'}
{3: 'c', 1: 'a'} | dictsort | map('join') | list
true ~ false ~ none ~ 1.0 ~ 100.25 ~ -0.5
d | tojson
people | tojson(indent=2)
u | tojson ~ html | tojson ~ 1.5 | tojson ~ none | tojson ~ [] | tojson ~ {} | tojson(indent=4) ~ 'a\\tb\\\\' | tojson
u | tojson(ensure_ascii=true)
range(3) | list ~ range(1, 7, 2) | list ~ range(3, 0, -1) | list
dict(a=1, b=2).a ~ namespace(z=4).z
list + [9] ~ 'ab' * 2
list | reverse | list ~ t | reverse
u | list
t | string ~ n | string | length
list.index(1) ~ list.count(3)
strftime_now('%d %b %Y')
(n, t) | list
n if n > 5 else t if yes else u
messages[1:] | map(attribute='role') | list
messages | selectattr('role', 'in', ['user', 'assistant']) | list | length
""".strip().split("\n")

PROGRAMS = [
    "a\n", "a\n\n", "\na", "{{ t }}\n", "{{ t }}\n\n", "{# c #}\nx", "  {# c #}  x", "{#- c -#}  x", "x  {#- c #}",
    "{% if yes %}\n  a\n{% endif %}\nb", "  {% if yes %}  \n a{% endif %}", "x  {% if yes %}a{% endif %}  y",
    "x \n  {%- if yes -%} \n a \n {%- endif -%} \n y", "{%+ if yes %}a{% endif %}", "  {%+ if yes %}a{% endif %}\n b",
    "{% if yes +%}\na{% endif %}", "{{- t -}}  x", "a  {{- t }}", "a\n  {{ t }}\n  b\n", "{% raw %}{{ t }}{% not %}{% endraw %}x",
    "{% if no %}a{% elif n == 3 %}b{% else %}c{% endif %}", "{% if no %}a{% else %}{% if yes %}b{% endif %}{% endif %}",
    "{% for i in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ i }},{% endfor %}",
    "{% for i in list %}{{ loop.previtem }}-{{ loop.nextitem }};{{ loop.length }}{{ loop.cycle('a', 'b') }} {% endfor %}",
    "{% for i in [] %}x{% else %}none{% endfor %}", "{% for i in missing %}x{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}",
    "{% for c in 'aé😀' %}{{ c }}.{% endfor %}", "{% for i in list if i > 1 %}{{ loop.index }}{{ i }}{% endfor %}",
    "{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }} {% endfor %}", "{% for i in 1, 2 %}{{ i }}{% endfor %}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for p in people %}{% for q in people %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% set a = 1 %}{% for i in list %}{% set a = i %}{% endfor %}{{ a }}", "{% set a %} b{{ n }} {% endset %}[{{ a }}]",
    "{% set ns = namespace(found=false, n=0) %}{% for i in list %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}{{ ns.found }}",
    "{% set a, b = 1, 2 %}{{ b }}{{ a }}", "{% set a | upper %}x{% endset %}{{ a }}", "{% if yes %}{% set a = 5 %}{% endif %}{{ a }}",
    "{% macro m(a, b=2, c='z') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m('q', 'r', 's') }}",
    "{% macro m(x) %}{{ x }}{% if x > 0 %}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
    "{% set g = 7 %}{% macro m() %}{{ g }}{{ t }}{% endmacro %}{{ m() }}",
    "{% macro box(t) %}[{{ t }}:{{ caller() }}]{% endmacro %}{% call box('k') %}in{{ n }}{% endcall %}",
    "{% filter upper %}ab{{ t }}{% endfilter %}", "{% with a = 1, b = n %}{{ a + b }}{% endwith %}{{ a }}",
    "{% generation %}{{ t }}{% endgeneration %}", "{{ '}}' }}{{ \"%}\" }}", "{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ missing }}{{ missing | length }}{{ d.z }}", "{{ html }}{{ html | e | length > 0 }}", "{{ messages[0]['role'] + '\\n' }}",
    "{%- for message in messages %}\n    {%- if message.role == 'user' %}\n        {{- '<u>' ~ message.content }}\n    "
    "{%- else %}\n        {{- message['content'] | trim }}\n    {%- endif %}\n{%- endfor %}\n",
    "{{ 1 if }}", "{% if yes %}a", "{{ missing.x }}", "{{ t.nothing() }}", "{{ raise_exception('told') }}", "{% bad %}", "{{ 'open",
    "{{ 1 / 0 }}", "{{ t | nofilter }}", "{{ t is notest }}", "{{ 1 < 'a' }}", "{% set t.a = 1 %}", "{{ n() }}", "{% for %}{% endfor %}",
    "{{ list.append(4) }}", "{{ list.pop() }}", "{% endif %}", "{{ (1 }}", "{{ t + n }}", "{{ n[0:1] }}", "{% set a, b = [1] %}",
]

WEATHER = {"name": "get_weather", "description": "Now \"and\" then.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Zürich"]}, "days": {"type": "integer"}},
    "required": ["city"]}}
TOOLS = [{"type": "function", "function": WEATHER}]


def said(*contents, system=None):
    messages = [{"role": "system", "content": system}] if system else []
    return messages + [{"role": "user" if i % 2 == 0 else "assistant", "content": c} for i, c in enumerate(contents)]


CALLS = [{"id": "abc123def", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich"}}}]
ANSWERED = said("weather?") + [{"role": "assistant", "content": "", "tool_calls": CALLS},
                               {"role": "tool", "tool_call_id": "abc123def", "name": "get_weather", "content": "cold"}]
CONVERSATIONS = [
    said("Hello"), said("  padded \n"), said("über 😀 naïve", system="Be brief.\n"), said("a", "b", "c"),
    said("a", " b ", "c", "d", system="s"), said("1+1?", "<think>\nadd\n</think>\n\n2", "2+2?"), ANSWERED,
    ANSWERED + said("It is cold.", "thanks")[::-1],
]


class FixedDay(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, tzinfo=tz)


def write(program, names, alone=False):
    line = {"program": program, "names": names} if alone else {"program": program}
    try:
        line["text"] = utils._compile_jinja_template(program).render(**names)
    except Exception as error:  # whatever the program provokes
        line["error"] = type(error).__name__
    print(json.dumps(line, ensure_ascii=False))


def published(folder):
    for file in sorted(pathlib.Path(folder).glob("*.jinja")):
        for messages, prompt, tools, more in itertools.product(CONVERSATIONS, (False, True), (None, TOOLS),
                                                               ({}, {"enable_thinking": False}, {"enable_thinking": True})):
            names = {"messages": messages, "add_generation_prompt": prompt, "tools": tools, "documents": None,
                     "bos_token": "<bos>", "eos_token": "<eos>", **more}
            write(file.read_text(encoding="utf-8"), names, alone=True)


def main():
    utils.datetime = FixedDay if utils.datetime is datetime.datetime else type("Module", (), {"datetime": FixedDay})
    if len(sys.argv) > 1:
        return published(sys.argv[1])
    print(json.dumps({"names": NAMES}, ensure_ascii=False))
    for program in ["{{ " + e + " }}" for e in EXPRESSIONS] + PROGRAMS:
        write(program, NAMES)


if __name__ == "__main__":
    main()

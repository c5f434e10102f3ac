#!/usr/bin/env python3
"""Writes metrics_tool_loop.jsonl: answers to tool loops, what a hotel in plain Python makes of them, and their scores.

Calls are read by Python's own parser, states are plain dictionaries, and steps are judged by comparing dictionaries, so
that nothing is shared with datasets/hotel.cpp and metrics/functional/tool_loop.cpp. Needs Python alone.
"""
import ast
import collections
import json
import pathlib
import random
import re

NEEDS = {"move": {"guest": str, "room": int}, "find": {"name": str}, "send": {"item": str, "guest": str, "room": int}}
FAILURES = ("tool_loop_malformed", "tool_loop_missing", "tool_loop_wrong_tool", "tool_loop_wrong_argument", "tool_loop_stale")


def read_call(text):
    """Returns (name, arguments), or None. Of Python's forms only plain names, quoted texts and whole numbers."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1].strip()
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.args:
        return None
    arguments = {}
    for keyword in node.keywords:
        written = ast.get_source_segment(text, keyword.value)
        if keyword.arg is None or not re.fullmatch(r"\d{1,9}|'[^'\\]*'|\"[^\"\\]*\"", written):
            return None
        arguments[keyword.arg] = keyword.value.value
    return node.func.id, arguments


class Hotel:
    def __init__(self):
        self.rooms, self.items = {}, collections.Counter()

    def carry_out(self, call):
        name, arguments = call
        if name not in NEEDS:
            return "error: no such tool"
        needs = NEEDS[name]
        if {key: type(value) for key, value in arguments.items()} != needs:
            return f"error: {name} needs {', '.join(needs)}"
        guest = arguments["name" if name == "find" else "guest"]
        if name == "move":
            self.rooms[guest] = arguments["room"]
            return "ok"
        if guest not in self.rooms:
            return "error: no such guest"
        if name == "find":
            return str(self.rooms[guest])
        self.items[arguments["room"], arguments["item"]] += 1
        return "ok"

    def changes(self, rooms, items):
        sent = {}
        for room, item in sorted((self.items - items).elements()):
            sent.setdefault(str(room), []).append(item)
        return {"rooms": {guest: room for guest, room in self.rooms.items() if rooms.get(guest) != room}, "items": sent}


def written(call):
    name, arguments = call
    return f"{name}({', '.join(f'{k}={v}' if isinstance(v, int) else f'{k}={json.dumps(v)}' for k, v in arguments.items())})"


def judge(answer, right, stale):
    call = read_call(answer)
    if call is None:
        return "tool_loop_malformed" if "(" in answer or "{" in answer else "tool_loop_missing"
    if call == right:
        return "tool_loop_steps"
    if call[0] != right[0]:
        return "tool_loop_wrong_tool"
    if call[1].keys() != right[1].keys():
        return "tool_loop_wrong_argument"
    wrong = [key for key in right[1] if call[1][key] != right[1][key]]
    return "tool_loop_stale" if all(call[1][key] in stale.get(key, []) for key in wrong) else "tool_loop_wrong_argument"


def damaged(draw, call, stale):
    """An answer that is right, or wrong in one of many ways."""
    name, arguments = call[0], dict(call[1])
    kind = draw.randrange(16)
    if kind == 0 and "room" in arguments:
        arguments["room"] = draw.randint(101, 999)
    if kind in (1, 2, 3) and stale.get("room") and "room" in arguments:
        arguments["room"] = draw.choice(stale["room"])
    if kind == 3:
        arguments["name" if name == "find" else "guest"] = draw.choice(["Anna", "Tom", "Nobody"])
    if kind == 4:
        name = draw.choice(["move", "find", "send", "book"])
    if kind == 5:
        arguments.pop(draw.choice(list(arguments)))
    if kind == 6:
        arguments["floor"] = 2
    if kind == 7 and "room" in arguments:
        arguments["room"] = str(arguments["room"])
    text = written((name, arguments))
    if kind == 8:
        return draw.choice(["", "The guest is in the room.", "ok", '{"name": "find"}', "find", "find()", "find(guest)"])
    if kind == 9:
        place = draw.randrange(len(text))
        return text[:place] + text[place + 1 :]
    if kind == 10:
        place = draw.randrange(len(text))
        return text[:place] + draw.choice("()[]\"'=,.x7- \\") + text[place:]
    if kind == 11:
        return draw.choice([f"[{text}]", f"[ {text} ]", text.replace('"', "'"), text.replace("=", " = "), f"[{text}"])
    return text


def row(draw):
    guests = draw.sample(["Anna", "Tom", "Maria", "John", "Lucy"], 3)
    begin = [("move", {"guest": draw.choice(guests), "room": draw.randint(101, 999)}) for _ in range(6)]
    begin += [("send", {"item": "lamp", "guest": begin[0][1]["guest"], "room": begin[0][1]["room"]})] * draw.randrange(3)
    start, right, made = Hotel(), Hotel(), Hotel()
    former = {}
    for call in begin:
        for hotel in (start, right, made):
            hotel.carry_out(call)
        if call[0] == "move":
            former.setdefault(call[1]["guest"], []).append(call[1]["room"])
    steps, golden, stale, counts = [], [], [], collections.Counter()
    for _ in range(draw.randint(1, 5)):
        guest = draw.choice(list(former))
        room = former[guest][-1]
        kind = draw.choice(["move", "send", "send", "find"])
        outdated = {"room": [value for value in former[guest][:-1]]}
        if kind == "move":
            outdated["room"].append(room)
            room = draw.randint(101, 999)
            former[guest].append(room)
        call = (kind, {key: {"guest": guest, "name": guest, "room": room, "item": draw.choice(["lamp", "rug"])}[key] for key in NEEDS[kind]})
        right.carry_out(call)
        answer = damaged(draw, call, outdated).strip()
        counts[judge(answer, call, outdated)] += 1
        read = read_call(answer)
        result = made.carry_out(read) if read else "error: not a call"
        steps.append({"answer": answer, "call": read and {"name": read[0], "arguments": read[1]}, "result": result})
        golden.append(json.dumps({"name": call[0], "arguments": call[1]}))
        stale.append(outdated)
    state = made.changes(start.rooms, start.items)
    wanted = right.changes(start.rooms, start.items)
    expected = {name: counts[name] / len(steps) for name in ("tool_loop_steps", *FAILURES)}
    return {
        "metric": "tool_loop",
        "begin": [written(call) for call in begin],
        "prediction": json.dumps({"steps": steps, "state": state}),
        "references": golden,
        "extras": {"stale": stale, "state": wanted},
        "expected": {**expected, "state": float(state == wanted)},
    }


def main():
    draw = random.Random(39)
    lines = [json.dumps(row(draw)) for _ in range(60)]
    pathlib.Path(__file__).with_suffix(".jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

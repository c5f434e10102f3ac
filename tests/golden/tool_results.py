"""Which results of tools leave a conversation that grows token by token: LangChain's ClearToolUsesEdit, asked after each.

    pip install langchain==1.0.5 langgraph==1.0.3 langgraph-prebuilt==1.0.4
    python3 tests/golden/tool_results.py > tests/golden/tool_results.json

A token is a message of the assistant's but for the last of a result, which is the tool's message and counts as all of it.
"""

import json
import random
from importlib.metadata import version

from langchain.agents.middleware.context_editing import ClearToolUsesEdit
from langchain_core.messages import AIMessage, ToolMessage

TOOLS = ["find", "move", "send"]


def cleared(message):
    return isinstance(message, ToolMessage) and bool(message.response_metadata.get("context_editing", {}).get("cleared"))


def length(message, results):
    return 0 if cleared(message) else message.additional_kwargs["tokens"]


def run(results, tokens, prompt, settings):
    """Numbers of the results that are gone after the prompt and after each token behind it."""
    edit = ClearToolUsesEdit(trigger=settings["trigger"], keep=settings["newest"],
                             exclude_tools=settings["exclude"].split(","))
    messages, gone = [], []
    for position in range(tokens):
        ended = next((n for n, (_, end, _) in enumerate(results) if end == position + 1), None)
        if ended is None:
            messages.append(AIMessage("x", additional_kwargs={"tokens": 1}))
        else:
            begin, end, tool = results[ended]
            del messages[len(messages) - (end - begin - 1):]
            call = {"name": tool, "args": {}, "id": str(ended)}
            messages.append(AIMessage("", tool_calls=[call], additional_kwargs={"tokens": 0}))
            messages.append(ToolMessage("y", name=tool, tool_call_id=str(ended), additional_kwargs={"tokens": end - begin}))
        if position + 1 < prompt:
            continue
        edit.apply(messages, count_tokens=lambda some: sum(length(one, results) for one in some))
        gone.append([int(one.tool_call_id) for one in messages if cleared(one)])
    return gone


def case(number):
    rng = random.Random(f"tool results {number}")
    results, at = [], rng.randrange(3)
    while at < 150:
        end = at + 1 + rng.randrange(24)
        results.append([at, end, rng.choice(TOOLS)])
        at = end + rng.randrange(1, 12)
    settings = {"newest": rng.randrange(5), "trigger": rng.choice([0, 40, 90, 130]),
                "exclude": rng.choice(["", "find", "send,move"])}
    tokens, prompt = results[-1][1] + 5, 60 + rng.randrange(60)
    return {"results": results, "tokens": tokens, "prompt": prompt, "settings": settings,
            "gone": run(results, tokens, prompt, settings)}


made_by = f"langchain {version('langchain')}, ClearToolUsesEdit; cases drawn from random.Random('tool results N')"
cases = ",\n".join(json.dumps(case(number)) for number in range(24))
print(f'{{"made_by": {json.dumps(made_by)},\n"cases": [\n{cases}\n]}}')

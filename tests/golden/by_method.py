"""One fixture a method, FOLDER/NAME.json, in a folder named as the script that makes it."""

import json
import pathlib


def write(script, name, data):
    folder = pathlib.Path(script).with_suffix("")
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(data, separators=(",", ":")) + "\n")


def write_prompts(script, prompts):
    """Fixtures of the methods that the prompts' cases name in their specs, each with its own cases."""
    for name in dict.fromkeys(case["spec"]["name"] for prompt in prompts for case in prompt["cases"]):
        own = lambda prompt: [case for case in prompt["cases"] if case["spec"]["name"] == name]
        write(script, name, {"prompts": [{**prompt, "cases": own(prompt)} for prompt in prompts]})

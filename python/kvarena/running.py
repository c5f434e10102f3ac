"""Runs of the program from Python."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import Any

from . import loose, program
from .methods import Method, name_of
from .results import Results


def run(
    config: dict[str, Any] | str | os.PathLike,
    *options: str,
    methods: Sequence[type[Method] | Method] = (),
    database: str | os.PathLike | None = None,
) -> Results:
    """Runs a config, a dict or a file's path ("configs/quickstart.json" comes with the program), and returns its Results;
    what is in the database already is not run again.

    `methods` are scorers, budget rules, codecs and retrievers beside the built-in ones, which the config names: classes, or
    objects, whose settings the config's entries get unless they say them. Those of a notebook's cells or a script go to the
    program through cloudpickle; one whose source was edited is evaluated anew. `options` are the command's ("--limit", "8").
    Raises Refused with the program's message."""
    place = None if isinstance(config, dict) else program.own_file(config)
    text = json.loads(place.read_text(encoding="utf-8")) if place else config
    database = pathlib.Path(database or text.get("output", {}).get("database") or f"{text.get('name', 'run')}.db")
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_of(methods)
        if place is None or settings:
            place = pathlib.Path(folder) / f"{text.get('name', 'run')}.json"
            place.write_text(json.dumps(text | {"methods": with_settings(text.get("methods", []), settings)}), encoding="utf-8")
        plugins = [word for file in plugins_of(methods, database) for word in ("--plugin", str(file))]
        words = [*plugins, "run", str(place), "--database", str(database), "--quiet", *options]
        _watch(words, database)
    return Results(database)


def plugins_of(methods, database):
    """Files that define the methods: their modules', and one written beside `database` for those of a notebook or script."""
    files, others = [], []
    for cls in dict.fromkeys(method if isinstance(method, type) else type(method) for method in methods):
        file = None if cls.__module__ == "__main__" else getattr(sys.modules.get(cls.__module__), "__file__", None)
        if file is None:
            others.append(cls)
        elif file not in files:
            files.append(file)
    if others:
        files.append(database.with_suffix(".methods.py"))
        loose.write(others, files[-1])
    return files


def settings_of(methods):
    """What the objects among the methods were made with, by name."""
    found = {}
    for method in methods:
        if isinstance(method, type):
            continue
        if found.setdefault(name_of(type(method)), method._made_with) != method._made_with:
            raise ValueError(f"two objects of {name_of(type(method))}: give the config an entry for each, and this the class")
    return {name: settings for name, settings in found.items() if settings}


def with_settings(entry, settings):
    """A config's entry of a method, or several: those of these names, inside others too, with these settings unless they
    say them."""
    if isinstance(entry, list):
        return [with_settings(item, settings) for item in entry]
    if isinstance(entry, str):
        return {"name": entry, **settings[entry]} if entry in settings else entry
    if not isinstance(entry, dict):
        return entry
    parts = {key: value if key in ("name", "label") else with_settings(value, settings) for key, value in entry.items()}
    given = settings.get(entry.get("name"), {})
    return parts | {key: value for key, value in given.items() if key not in {**entry, **entry.get("matrix", {})}}


def _watch(words, database):
    """Runs the program, with a bar where tqdm is installed."""
    process = subprocess.Popen(
        [program.find(), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=program.environment()
    )
    said = []
    reader = threading.Thread(target=lambda: said.append(process.communicate()))
    reader.start()
    try:
        bar = _bar()
        while reader.is_alive():
            reader.join(0.5)
            _show(bar, database)
        if bar is not None:
            bar.close()
    except BaseException:  # an interrupt ends the run after its sample, as Ctrl-C does on a terminal
        process.terminate()
        reader.join()
        raise
    if process.returncode not in (0, 1):  # 1: some cells failed, as Results.failures() tells
        raise program.Refused(said[0][1].strip())


def _bar():
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(unit="sample", mininterval=0.5)


def _show(bar, database):
    if bar is None or not database.is_file():
        return
    try:
        rows = Results(database)._rows("SELECT total(done_samples) AS done, total(planned_samples) AS planned FROM v_cells")
    except ValueError:
        return  # being made
    bar.total = int(rows[0]["planned"]) or None
    bar.n = int(rows[0]["done"])
    bar.refresh()

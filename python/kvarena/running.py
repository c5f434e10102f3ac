"""Runs of the program from Python."""

import json
import pathlib
import subprocess
import sys
import tempfile
import threading

from . import loose, program
from .results import Results


def run(config, *options, methods=(), database=None):
    """Runs a config, a dict or a file's path ("configs/quickstart.json" comes with the program), and returns its Results;
    what is in the database already is not run again.

    `methods` are scorers, budget rules, codecs and retrievers beside the built-in ones, which the config names. Those of a
    notebook's cells go to the program through cloudpickle. `options` are the command's ("--limit", "8"). Raises Refused with
    the program's message."""
    if isinstance(config, dict):
        text, place = config, pathlib.Path.cwd() / f"{config.get('name', 'run')}.json"
    else:
        place = program.own_file(config)
        text = json.loads(place.read_text(encoding="utf-8"))
    database = pathlib.Path(database or text.get("output", {}).get("database") or f"{text.get('name', 'run')}.db")
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(config, dict):
            place = pathlib.Path(folder) / place.name
            place.write_text(json.dumps(config), encoding="utf-8")
        plugins = [word for file in plugins_of(methods, database) for word in ("--plugin", str(file))]
        words = [*plugins, "run", str(place), "--database", str(database), "--quiet", *options]
        _watch(words, database)
    return Results(database)


def plugins_of(methods, database):
    """Files that define the methods: their modules', and one written beside `database` for those of a notebook or script."""
    files, others = [], []
    for cls in methods:
        file = None if cls.__module__ == "__main__" else getattr(sys.modules.get(cls.__module__), "__file__", None)
        if file is None:
            others.append(cls)
        elif file not in files:
            files.append(file)
    if others:
        files.append(database.with_suffix(".methods.py"))
        loose.write(others, files[-1])
    return files


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

"""Methods that no file defines, of a notebook's cells or a script: a plugin file is written for them.

The file has their source as comments, and its hash is part of what a cell of theirs is: an edited method is evaluated anew.
Beside it lies what cloudpickle makes of the classes, which differs from run to run.
"""

import inspect
import sys
import types

_PLAIN = (bool, int, float, str, tuple, list, dict, type(None))
_TEXT = """import pathlib
import pickle

METHODS = pickle.loads(pathlib.Path(__file__).with_suffix(".pickle").read_bytes())

"""


def write(classes, file):
    """Writes a plugin of the classes, and the file beside it that it reads."""
    try:
        import cloudpickle
    except ImportError:
        raise ImportError("methods of a notebook need cloudpickle (pip install cloudpickle), or a file") from None
    for module in {cls.__module__ for cls in classes} - {"__main__"}:
        cloudpickle.register_pickle_by_value(sys.modules[module])
    sources = {}
    for cls in classes:
        _collect(cls, cls.__module__, sources)
    lines = [f"# {line}".rstrip() for text in sources.values() for line in text.rstrip().splitlines()]
    file.write_text(_TEXT + "\n".join(lines) + "\n", encoding="utf-8")
    file.with_suffix(".pickle").write_bytes(cloudpickle.dumps(classes))


def _collect(value, module, sources):
    """Adds the source of a class or a function of the module, and of what it uses of it."""
    if id(value) in sources or getattr(value, "__module__", None) != module:
        return
    sources[id(value)] = ""  # before what refers back to it
    if isinstance(value, type):
        text = f"class {value.__qualname__}({', '.join(base.__qualname__ for base in value.__bases__)})"
        used = vars(value) | {f"base {i}": base for i, base in enumerate(value.__bases__)}
    else:
        text, used = _source(value), _used(value)
    for name, item in used.items():
        item = getattr(item, "__func__", getattr(item, "fget", item))  # of a static or class method, a property
        if isinstance(item, (type, types.FunctionType)):
            _collect(item, module, sources)
        elif isinstance(item, _PLAIN) and not name.startswith("__"):
            text += f"\n{name} = {item!r}"
    sources[id(value)] = text


def _used(function):
    """Globals and variables of enclosing functions that the function names."""
    found = inspect.getclosurevars(function)
    return found.globals | found.nonlocals


def _source(function):
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):  # made by exec()
        return _code(function.__code__) + repr(function.__defaults__) + repr(function.__kwdefaults__)


def _code(code):
    constants = [_constant(item) for item in code.co_consts]
    return f"{code.co_name} {code.co_code.hex()} {code.co_names} {constants}"


def _constant(item):
    if isinstance(item, types.CodeType):
        return _code(item)
    return sorted(map(repr, item)) if isinstance(item, frozenset) else repr(item)

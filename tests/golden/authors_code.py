"""Files of the authors of methods, executed where much of what they import is absent."""

import pathlib
import sys
import types


def module_of(path, stubs=(), edits=()):
    """Executes a file of the authors, with modules it cannot have here replaced, and says what was changed."""
    for name in stubs:
        stub = types.ModuleType(name)
        stub.__path__ = []
        stub.__getattr__ = lambda attribute: type(attribute, (), {})
        sys.modules[name] = stub
    source = pathlib.Path(path).read_text()
    for old, new in edits:
        assert old in source, (path, old)
        source = source.replace(old, new)
    module = types.ModuleType(pathlib.Path(path).stem)
    exec(compile(source, str(path), "exec"), module.__dict__)
    for name in stubs:
        del sys.modules[name]
    return module


def package_of(folder, name):
    """Makes a package of the authors' importable without what its own __init__ imports."""
    package = types.ModuleType(name)
    package.__path__ = [str(pathlib.Path(folder) / name.replace(".", "/"))]
    sys.modules[name] = package


def sparse_attention_hub(folder):
    """Makes the maskers of a clone of xAlg-ai/sparse-attention-hub importable, without its adapters and tuning."""
    package_of(folder, "sparse_attention_hub")
    sys.modules["ray"] = types.SimpleNamespace(tune=types.SimpleNamespace(grid_search=list))

"""Holds chart specifications against the schema of Vega-Lite 5: check_vega_lite.py SCHEMA SPEC...

Prints each specification that does not fit with the place and the reason, and exits with 1 if there is one. Uses
Python's jsonschema, an implementation that is not ours.
"""

import json
import pathlib
import sys

from jsonschema import Draft7Validator

schema = json.loads(pathlib.Path(sys.argv[1]).read_text())
validator = Draft7Validator(schema)
bad = 0
for name in sys.argv[2:]:
    errors = list(validator.iter_errors(json.loads(pathlib.Path(name).read_text())))
    for error in errors[:1]:
        # The schema is one choice of many kinds of view: the deepest error is the one that means something.
        while error.context:
            error = max(error.context, key=lambda inner: len(inner.absolute_path))
        print(f"{name}: {error.json_path}: {error.message[:300]}")
    bad += bool(errors)
sys.exit(1 if bad else 0)

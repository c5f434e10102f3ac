"""Published numbers of configs/papers and configs/modelled against transcriptions of the papers, both ways.

  published_test.py TREE    the tree whose configs are checked; also that planted mistakes are found

tests/golden/published/<paper>.json holds what a paper prints, in its own words; published_names.json says which label of
ours each word is, and which methods a printed ratio is over. A stored number must be printed in the item that its source
names, with the same value, unit, statistic and bound; a printed one must be stored, or say why not.
"""

import collections
import functools
import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
FIELDS = ("model", "method", "workload", "metric")


def printed_records(transcription):
    """One record a printed number: the words of its row and column, value, unit, statistic, bound."""
    for table in transcription["tables"]:
        common = {k: v for k, v in table.items() if k not in ("rows_are", "columns_are", "columns", "rows")}
        for row in table["rows"]:
            names = dict(zip(table["rows_are"], row))
            cells = row[len(names):]
            assert len(cells) == len(table["columns"]), f'{table["item"]}: {row} has not {len(table["columns"])} cells'
            for column, value in zip(table["columns"], cells):
                own = column if isinstance(column, dict) else {table["columns_are"]: column}
                if value is not None:
                    yield {**common, **names, **own, "value": value}
    yield from transcription["text"]


def words_of(record):
    return ", ".join(str(record[k]) for k in ("item", *FIELDS, "value") if k in record)


def options(name, *keys):
    """What a paper's word may be here: a label, or several, or one for each of other labels."""
    while isinstance(name, dict):
        name = next((name[k] for k in keys if k in name), [])
    return name if isinstance(name, list) else [name]


def names_item(source, item):
    plain = source.lower().replace("fig. ", "figure ")
    return re.search(rf"\b{re.escape(item.lower())}\b", plain) is not None


class Paper:
    def __init__(self, name, names):
        transcription = json.loads((HERE.parent / "golden/published" / f"{name}.json").read_text())
        self.name = name
        self.names = names
        self.printed = list(printed_records(transcription))
        self.stored = [0] * len(self.printed)
        self.by_value = collections.defaultdict(list)
        for i, record in enumerate(self.printed):
            self.by_value[record["value"]].append((i, record))

    def word(self, kind, word, *keys):
        if word not in self.names[kind]:
            raise SystemExit(f"published_names.json: {self.name}.{kind} lacks \"{word}\"")
        return options(self.names[kind][word], *keys)

    def same_kind(self, record, value):
        """Whether a printed record of this value is it also in its end, unit, statistic, bound and rivals."""
        statistic = record.get("statistic", "mean")
        return (record.get("upper") == value.get("upper")
                and record.get("bound", "") == value.get("bound", "")
                and value.get("statistic", "mean") == self.names.get("statistic", {}).get(statistic, statistic)
                and value.get("against", []) == self.names.get("against", {}).get(record["metric"], [])
                and value.get("unit", "") in self.word("unit", record["unit"]))

    def find(self, value):
        """Indices of the records that a number of a config is."""
        for i, record in self.by_value[value["value"]]:
            if "why_not" in record or not names_item(value["source"], record["item"]):
                continue
            here = all(value[kind] in self.word(kind, record[kind], value["workload"])
                       for kind in FIELDS if kind in record and record[kind] != "each")
            if here and self.same_kind(record, value):
                yield i

    def find_modelled(self, source, shape, quantity, value):
        low, upper = value if isinstance(value, list) else (value, None)
        for i, record in self.by_value[low]:
            metric = self.names["modelled"].get(record["metric"], [])
            model = self.names["shape"].get(record.get("model"), shape)
            if (quantity in metric and shape in (None, model) and "why_not" not in record
                    and record.get("upper") == upper
                    and names_item(source, record["item"])):
                yield i


def config_values(config):
    for entry in config.get("published", []):
        head = {k: v for k, v in entry.items() if k not in ("rows", "workloads")}
        for row in entry.get("rows", [{}]):
            place = {k: v for k, v in row.items() if k != "values"}
            for workload, value in zip(entry.get("workloads", [entry.get("workload")]),
                                       row.get("values", [entry.get("value")])):
                if value is not None:
                    yield {**head, **place, "workload": workload, "value": value}


def check_configs(paper, tree, breaches):
    for path in sorted((tree / "configs/papers" / paper.name).glob("*.json")):
        for value in config_values(json.loads(path.read_text())):
            found = list(paper.find(value))
            for i in found:
                paper.stored[i] += 1
            if not found:
                where = ", ".join(str(value[k]) for k in (*FIELDS, "value"))
                breaches.append(f"{path.relative_to(tree)}: {where} is not printed so in {value['source']}")


def check_modelled(paper, tree, breaches):
    for path in sorted((tree / "configs/modelled").glob(f"{paper.name}-*.json")):
        whole = json.loads(path.read_text())
        for row in whole["rows"]:
            shape = row.get("shape", whole.get("all", {}).get("shape"))
            for quantity, value in row.get("published", {}).items():
                found = list(paper.find_modelled(whole["source"], shape, quantity, value))
                for i in found:
                    paper.stored[i] += 1
                if not found:
                    breaches.append(f"{path.relative_to(tree)}: {row['label']}, {quantity}: {value} is not printed in "
                                    f"{whole['source']}")


def check(tree):
    breaches = []
    counts = collections.Counter()
    names = json.loads((HERE / "published_names.json").read_text())
    for name in sorted(p.stem for p in (HERE.parent / "golden/published").glob("*.json")):
        paper = Paper(name, names[name])
        check_configs(paper, tree, breaches)
        check_modelled(paper, tree, breaches)
        for record, stored in zip(paper.printed, paper.stored):
            counts[name, "stored" if stored else "not stored"] += 1
            if not stored and not record.get("why_not"):
                breaches.append(f"{name}: {words_of(record)} is printed and nowhere stored")
    return breaches, counts


def changed(tree, folder, file, path, value):
    """Breaches of the tree's configs with one value of a file changed."""
    copy = pathlib.Path(folder) / "tree"
    for part in ("papers", "modelled"):
        shutil.copytree(tree / "configs" / part, copy / "configs" / part)
    config = json.loads((copy / file).read_text())
    *parents, last = path
    place = functools.reduce(lambda at, key: at[key], parents, config)
    place[last] = value
    (copy / file).write_text(json.dumps(config))
    return check(copy)[0]


class Published(unittest.TestCase):
    tree = pathlib.Path()

    def test_every_number_is_printed_and_every_printed_number_is_stored_or_says_why_not(self):
        breaches, counts = check(self.tree)
        self.assertEqual(breaches, [])
        for (paper, kind), count in sorted(counts.items()):
            print(f"{paper}: {count} {kind}")

    def test_planted_mistakes_are_found(self):
        table5 = "configs/papers/specache/table5.json"
        for file, path, value in (
                (table5, ("published", 0, "rows", 0, "values", 0), 3.8),
                (table5, ("published", 0, "rows", 0, "values"), [4.9, 3.7]),
                (table5, ("published", 0, "rows", 0, "method"), "KIVI, midpoints"),
                (table5, ("published", 0, "unit"), "fraction"),
                (table5, ("published", 0, "source"), "arXiv:2503.16163, table 4"),
                (table5, ("published",), []),
                ("configs/papers/evicpress/figure3.json", ("published", 0, "statistic"), "mean"),
                ("configs/papers/vericache/figure8.json", ("published", 0, "bound"), "<="),
                ("configs/papers/speccache/figure5.json", ("published", 0, "upper"), 4),
                ("configs/papers/vericache/figure16.json", ("published", 1, "against"), ["Full KV"]),
                ("configs/modelled/specache-table3.json", ("rows", 0, "published", "tokens/s"), 190),
                ("configs/modelled/vericache-figure11-remote-prefix.json", ("rows", 1, "published", "speed-up"),
                 [1.33, 2.1])):
            with self.subTest(file=file, path=path), tempfile.TemporaryDirectory() as folder:
                self.assertNotEqual(changed(self.tree, folder, file, path, value), [])


if __name__ == "__main__":
    Published.tree = pathlib.Path(sys.argv.pop(1))
    unittest.main()

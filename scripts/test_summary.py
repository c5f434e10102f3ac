"""Sums up a run of CTest: the cases of every GoogleTest program, and one for each other entry.

test_summary.py FOLDER reads FOLDER/ctest.junit and the GoogleTest reports FOLDER/*.xml, lists what was skipped and
why, and closes with a line of counts. A run in which nothing passed is an error.
"""

import collections
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def gtest_cases(report):
    """Yields (name, outcome, reason) of one GoogleTest report."""
    for case in ElementTree.parse(report).iter("testcase"):
        name = f'{case.get("classname")}.{case.get("name")}'
        skipped = case.find("skipped")
        if case.find("failure") is not None:
            yield name, "failed", ""
        elif case.get("status") == "notrun":
            yield name, "skipped", "disabled"
        elif skipped is not None:
            lines = [line.strip() for line in (skipped.get("message") or "").splitlines() if line.strip()]
            yield name, "skipped", lines[-1] if lines else "no reason given"
        else:
            yield name, "passed", ""


def main():
    folder = pathlib.Path(sys.argv[1])
    if not (folder / "ctest.junit").exists():
        sys.exit("no test ran")
    counts = collections.Counter()
    reasons = collections.Counter()
    for entry in ElementTree.parse(folder / "ctest.junit").iter("testcase"):
        failed = entry.find("failure") is not None
        report = folder / f'{entry.get("name")}.xml'
        cases = list(gtest_cases(report)) if report.exists() else []
        if not cases:
            outcome = "failed" if failed else "skipped" if entry.find("skipped") is not None else "passed"
            cases = [(entry.get("name"), outcome, "reported by its program")]
        elif failed and not any(outcome == "failed" for _, outcome, _ in cases):
            counts["failed"] += 1  # crashed or timed out after its report, or left with an error
        for _, outcome, reason in cases:
            counts[outcome] += 1
            if outcome == "skipped":
                reasons[reason] += 1
    for reason, count in sorted(reasons.items()):
        print(f"skipped {count}: {reason}")
    print(f'{counts["passed"]} passed, {counts["failed"]} failed, {counts["skipped"]} skipped')
    if counts["passed"] == 0:
        sys.exit("no test passed: a run without tests is a failure")


main()

"""scripts/claims: the page is what the claims and the reports say, and a claim that no report shows is named."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "reports/papers/one/figure1.md"
CLAIM = {"claim": "It is 4 times as fast.", "where": "abstract", "verdict": "holds", "measured": "2.5 times",
         "shown": {PAGE: ["| It | … | 2.5 |"]}}


def claims(root, *words):
    return subprocess.run([sys.executable, ROOT / "scripts/claims", "--root", root, *words], capture_output=True, text=True,
                          timeout=60)


class Claims(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in (PAGE, "docs/claims.md"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / PAGE).write_text("| It | 1.0 | 2.5 |\n| Another | 1.0 | 3.5 |\n")

    def write(self, **changes):
        claim = {**CLAIM, **changes}
        (self.root / "reports/papers/claims.json").write_text(json.dumps([{"name": "One", "reference": "r", "claims": [claim]}]))
        self.assertEqual(0, claims(self.root).returncode)

    def assert_named(self, *words, **changes):
        self.write(**changes)
        check = claims(self.root, "--check")
        self.assertEqual(1, check.returncode)
        for word in ("One, abstract", CLAIM["claim"], *words):
            self.assertIn(word, check.stderr)

    def test_the_page_of_this_tree_is_shown_by_its_reports(self):
        check = claims(ROOT, "--check")
        self.assertEqual(0, check.returncode, check.stderr)

    def test_counts_links_and_reasons_are_on_the_page(self):
        self.write(verdict="does not hold", why="a small model")
        self.assertEqual("", claims(self.root, "--check").stderr)
        page = (self.root / "docs/claims.md").read_text()
        for told in ("| One | 0 | 1 | 0 | 0 | 1 |",
                     "| does not hold | 2.5 times (a small model) | [one/figure1](../reports/papers/one/figure1.md) |"):
            self.assertIn(told, page)

    def test_what_no_report_shows_is_named(self):
        self.assert_named("figure1.md does not show: | It | … | 3.5 |", shown={PAGE: ["| It | … | 3.5 |", "2.5"]})
        self.assert_named("figure2.md is missing", shown={"reports/papers/one/figure2.md": ["2.5"]})
        self.assert_named('nothing in "shown" has: 9.5', measured="9.5 times")
        self.assert_named('"shown" is empty', shown={}, measured="nothing")

    def test_verdicts_are_four_and_have_reasons(self):
        self.assert_named('verdict "proven"', verdict="proven", why="so it is")
        self.assert_named('"why" is missing', verdict="needs a GPU")

    def findings(self, text):
        """Checks docs/findings.md of this text and returns what is named."""
        self.write()
        (self.root / "docs/findings.md").write_text(text)
        check = claims(self.root, "--check")
        self.assertEqual(check.returncode, 1 if check.stderr else 0)
        return check.stderr

    def test_numbers_of_findings_are_on_the_pages_beside_them(self):
        shown = "# Findings of 2026\n\nIt took 2.5 and `9.5` ([figure 1](../reports/papers/one/figure1.md)).\n\nNo link, 7 free.\n"
        self.assertEqual("", self.findings(shown))
        self.assertIn("docs/findings.md: nothing linked beside them has 4.5", self.findings(shown.replace("2.5", "4.5")))
        self.assertEqual("", self.findings(shown + "\n<!-- by scripts/findings -->\n| 8.5 |\n<!-- end -->\n"))
        self.assertIn("nothing linked beside them has 7.1", self.findings(shown.replace("7 free", "7.1 free")))
        self.assertIn("nothing linked beside them has 4.5", self.findings("# Of 2026\n" + shown.replace("2.5", "4.5")))
        self.assertIn("../reports/papers/one/figure2.md: the page is missing",
                      self.findings(shown.replace("figure1.md", "figure2.md")))

    def test_numbers_of_findings_are_in_the_section_that_an_anchor_names(self):
        (self.root / "docs/shown.md").write_text("## At most 30%, seen · It\n\n1.5\n\n### Below\n\n2.5\n\n"
                                                 "## Next\n\n3.5\n\n## Next\n\n4.5\n\n# Above\n\n2.5\n")
        shown = "%s ([it](shown.md#%s)).\n"
        for number, anchor in (("1.5", "at-most-30-seen--it"), ("30", "at-most-30-seen--it"), ("2.5", "below"), ("3.5", "next"),
                               ("4.5", "next-1"), ("2.5", "at-most-30-seen--it")):
            self.assertEqual("", self.findings(shown % (number, anchor)))
        for number, anchor in (("3.5", "at-most-30-seen--it"), ("1.5", "below"), ("4.5", "next"), ("2.5", "next-1")):
            self.assertIn(f"nothing linked beside them has {number}", self.findings(shown % (number, anchor)))
        self.assertIn("docs/findings.md: shown.md#next-2: no heading of the page has this anchor",
                      self.findings(shown % ("4.5", "next-2")))

    def test_a_link_of_findings_to_a_long_page_has_an_anchor(self):
        (self.root / "docs/shown.md").write_text("## All\n\n2.5\n" + "words\n" * 10_000 + "## Next\n")
        shown = "2.5 ([it](shown.md%s)).\n"
        self.assertEqual("", self.findings(shown % "#all"))
        self.assertIn("docs/findings.md: shown.md: the page is long", self.findings(shown % ""))

    def test_a_page_that_is_behind_is_named(self):
        self.write()
        (self.root / "docs/claims.md").write_text("old\n")
        check = claims(self.root, "--check")
        self.assertEqual((1, True), (check.returncode, "run scripts/claims" in check.stderr))


if __name__ == "__main__":
    unittest.main()

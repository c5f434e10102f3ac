#!/usr/bin/env python3
r"""Writes metrics_math_answer.json: pairs of answers with the verdict of MATH-500's own grader, and answers in responses.

The grader is prm800k/grading of https://github.com/openai/prm800k @7ecc7947, put on the path (PYTHONPATH=prm800k), with
sympy 1.14.0 and pylatexenc 2.11; where answers are is told by the task `aime` of lm-eval 0.4.13:

    PYTHONPATH=prm800k/prm800k python tests/golden/metrics_math_answer.py
"""

import json
import pathlib
import warnings

from grading import grader
from lm_eval.tasks.aime import utils as aime
from pylatexenc import latex2text

warnings.simplefilter("ignore")

# Answers of which every ordered pair is graded.
GROUPS = [
    [r"\frac{1}{2}", r"\frac12", r"\dfrac{1}{2}", "1/2", "0.5", ".5", r"\frac{2}{4}", "50%", r"50\%"],
    [r"\frac{3}{4}", "3/4", "0.75", r"\tfrac34", r"\frac{\sqrt{9}}{4}", "75/100", "6/8"],
    [r"-\frac{5}{3}", r"\frac{-5}{3}", "-5/3", r"- \frac{5}{3}", "-1.6667", r"-1\frac{2}{3}", r"\frac{5}{-3}"],
    [r"7\frac{3}{4}", "7 3/4", "31/4", "7.75", r"\frac{31}{4}", r"7 \frac{3}{4}"],
    [r"2\sqrt{3}", r"\sqrt{12}", r"\sqrt{3}\cdot 2", r"2\sqrt3", "2sqrt(3)", "sqrt(12)", r"\frac{6}{\sqrt{3}}", "3.4641"],
    [r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}", r"\sqrt{\frac{1}{2}}", r"\dfrac{\sqrt 2}{2}", "sqrt(2)/2", r"0.5\sqrt{2}"],
    [r"2+\sqrt{3}", r"\sqrt{3}+2", r"\frac{1}{2-\sqrt{3}}", "1/(2-sqrt(3))", r"2-\sqrt{3}"],
    [r"1+\sqrt{2}", r"\sqrt{3+2\sqrt{2}}", "sqrt(2)+1", "2.41421356"],
    [r"\pi", r"{\pi}", "pi", "3.14159", r"\frac{2\pi}{2}", r"180^\circ"],
    [r"\frac{2\pi}{3}", r"2\pi/3", r"\frac{2}{3}\pi", "2pi/3", r"120^\circ", r"\frac{4\pi}{6}"],
    [r"\left(3, \frac{\pi}{2}\right)", r"(3,\frac{\pi}{2})", r"(3, \pi/2)", r"(3,0.5\pi)", r"[3,\frac{\pi}{2}]", r"3,\frac{\pi}{2}"],
    ["(1,2)", "(1, 2)", r"\left(1,2\right)", "(2,1)", "[1,2]", "1,2", "(1,2,3)", r"(1,\frac{4}{2})", "(1.0,2.0)"],
    [r"\{1,2,3\}", r"\{1, 2, 3\}", r"\left\{1,2,3\right\}", "1,2,3", r"\{3,2,1\}", "1, 2 and 3", "{1,2,3}"],
    [r"(-\infty,2)\cup(3,\infty)", r"(-\infty, 2) \cup (3, \infty)", r"(-\infty,2)", r"(-\infty,2]\cup[3,\infty)",
     r"\left(-\infty,2\right)\cup\left(3,\infty\right)", r"x<2 \text{ or } x>3"],
    ["[0,1)", r"\left[0,1\right)", "[0, 1)", "(0,1)", r"0\le x<1", r"[0,\frac{2}{2})"],
    ["5", "5.0", "5.", r"5\text{ cm}", r"5\text{cm}", "5 cm", "five", "05", "+5", r"5 \text{ inches}", r"\$5", "x=5", "5!", "5\\%"],
    ["12", "12 hours", r"12 \text{ hours}", "12^\\circ", r"12^{\circ}", "12 degrees", r"12\ \mathrm{cm}^2", "12 feet", r"\text{12}"],
    ["1000", "1,000", r"1{,}000", r"1,\!000", "1 000", "1e3", "10^3", r"10^{3}", "1000.00"],
    ["1234567", "1,234,567", r"1,\!234,\!567", r"\$1,234,567", "1234567.0", "1.234567e6", "1234568"],
    ["3000000", r"3\text{ million}", "3 million", r"3\times10^6", r"3 \cdot 10^{6}", "3*10^6", "3e6"],
    [r"6.02\times 10^{23}", r"6.02\cdot10^{23}", r"6.02 \times 10^{23}", "6.02e23", "602000000000000000000000"],
    [r"2.5\times 10^{-3}", "0.0025", "2.5e-3", r"\frac{1}{400}", r"\frac{5}{2000}"],
    [r"\text{Evelyn}", "Evelyn", "evelyn", r"\text{evelyn}", r"\mathrm{Evelyn}", r"\textbf{Evelyn}", "Evelin"],
    [r"\text{(B)}", "(B)", "B", r"\text{B}", r"\mathrm{(B)}", "b", "(b)"],
    [r"\text{even}", r"\text{ even }", "even", "Even", "odd"],
    ["x^2+2x+1", "(x+1)^2", "x^2 + 2x + 1", "1+2x+x^2", "(x+1)(x+1)", "x(x+2)+1", "x^2+2x-1", "x^{2}+2x+1"],
    ["2x-y", "-y+2x", "2x - y", "-(y-2x)", "2*x-y", "2a-b", "x+x-y"],
    [r"\frac{x+1}{x-1}", "(x+1)/(x-1)", r"\frac{(x+1)}{(x-1)}", r"1+\frac{2}{x-1}", "1+2/(x-1)", "(x+1)/x-1"],
    ["y=2x+3", "2x+3", "y = 2x + 3", "3+2x", "y=3+2x"],
    [r"x \in [1,2]", "[1,2]", r"x\in[1,2]", r"1\le x\le 2", r"1\leq x\leq2"],
    [r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
     r"\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}", r"\begin{pmatrix} 1 & 2 \\ 3 & 5 \end{pmatrix}",
     r"\begin{pmatrix} 1 & 2 \\ 3 & \frac{8}{2} \end{pmatrix}"],
    ["3+4i", "4i+3", "3 + 4i", "3-4i", "(3+4i)", "i(4-3i)"],
    ["0.1+0.2", "0.3", r"\frac{3}{10}", "3/10", "30%"],
    ["0.333", "1/3", r"\frac{1}{3}", r"0.\overline{3}"],
    ["2^3", "8", "2^{3}", "8.0", "2**3", "16/2"],
    [r"2^{10}", "1024", "2^10", r"1{,}024", "1024.0000000001"],
    [r"\log_2 3", r"\log_{2}3", r"\ln 2", "ln(2)", r"\frac{\ln 4}{2}", r"\log_2(3)"],
    [r"\frac{\pi}{4}\text{ radians}", r"\frac{\pi}{4}", r"\pi/4", "45", r"45^\circ"],
    [r"\sqrt[3]{2}", r"\sqrt{2}", r"2^{1/3}", r"2^{\frac{1}{3}}"],
    [r"\pm 2", r"2,-2", r"-2,2", r"\{-2,2\}", r"x=\pm2", r"2\text{ and }-2"],
    ["10:30", "10:30 a.m.", r"10\text{:}30", "10.5"],
    [r"\frac{a}{b}", "a/b", r"\dfrac{a}{b}", r"a\cdot b^{-1}", "ab/b^2"],
    ["10000000001", "10000000002", "10000000001.0", "10,000,000,001", "10000000001/1"],
    [r"\frac{1000000000001}{3}", "1000000000001/3", "1000000000002/3", "333333333333.6667"],
    [r"\emptyset", r"\varnothing", r"\{\}", r"\text{no solution}", "none"],
    [r"\mathbf{v}", "v", r"\vec{v}", r"\overrightarrow{v}", r"\mathbb{R}", "R", r"\overline{v}"],
    ["", " ", "0", r"\text{}", "-0", r"\frac", r"\sqrt", r"\frac{1}", "}{"],
    [r"\frac{1}{2}x", "x/2", "0.5x", r"\frac{x}{2}", "(1/2)x", "1/2x", "1/(2x)"],
    [r"\sqrt{x^2}", "x", "|x|", r"\sqrt{x}\sqrt{x}", "x^3/x^2"],
    ["1/0", "1/0+1", r"\infty", "0/0", "inf"],
]

RESPONSES = [
    r"So the answer is \boxed{42}.", r"\boxed{1} and then \boxed{\frac{1}{2}}", r"\boxed{\text{a \boxed{b}}}", r"It is $x=3$.",
    r"First $1+1$ and then $2$ is it", "42", "", r"$\boxed{7}$", r"\boxed 9$ is it", r"\boxed{unclosed", r"\fbox{8}", r"no $ but one",
    r"\boxed{}", r"\boxed{\left\{1,2\right\}}", "Costs $5 or $6", r"\boxed 1$ and \boxed{2}", r"a \boxed{12} b $13$", r"\boxed{a}}",
    r"\boxed", r"\fbox{a} $b$", r"x $\fbox{c}$ \boxed", r"$$5$$", r"\boxed{1,\!000}", "\\boxed{\n3\n}", r"\boxed  {4}", r"\boxed{é}",
]

# LaTeX that the grader turns into text.
LATEX = [rf"2\{name} x" for name in (
    "pi infty cup cap cdot times in notin pm mp le leq ge geq ne neq to rightarrow ldots dots cdots alpha beta gamma delta epsilon "
    "theta lambda mu rho sigma tau phi omega emptyset varnothing circ angle approx div setminus mid vert lvert rvert perp sim equiv "
    "prime lfloor rfloor lceil rceil sum int prod sin cos tan log ln exp max min arcsin arccos arctan eta zeta psi chi xi nu kappa "
    "iota varphi varepsilon ell nabla partial parallel cong subset subseteq Rightarrow leftarrow langle rangle wedge ast star bullet "
    "propto exists forall sinh cosh tanh lim Delta Gamma Omega Theta Lambda Sigma Phi Psi Pi vdots ddots vee lnot square nmid mapsto "
    "unknown lt gt sec cot quad qquad left right displaystyle textdollar").split()] + [
    r"\frac{a+1}{b}", r"\frac12x", r"\frac\pi2", r"\frac 1 2", r"\frac{1}", r"\frac", r"2\sqrt3", r"\sqrt{a+b}c", r"\sqrt[3]{2}",
    r"\sqrt [3] {2}", r"\text{ cm}", r"\text{a} b", r"\mathrm{x}^{2}", r"\overline{AB}", r"\vec{ab}", r"\vec v", r"\mathbf{12}",
    r"\mbox{cm}x", r"\texttt{a}b", r"\hspace{3}x", r"a\,b\;c\:d\!e\ f", r"\{1\}", r"50\%", r"\$5", r"\#\&\_", r"a~b", r"a&b", r"a\\b",
    r"x_{1}^{2}", r"{a{b}}c", r"{a", r"a}b", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{cases} 1 & 2 \end{cases}",
    r"\begin{array}{cc} 1 & 2 \end{array}", r"\left( \frac12 \right)", r"\alpha{}b", r"\binom{3}{2}", r"é\pi ü"]


def extracted(response):
    """The answer that the task would compare."""
    seen = []
    aime.is_equiv = lambda answer, target: seen.append(answer)
    aime.process_results({"answer": "0"}, [response])
    return seen[0]


def main():
    pairs = [(given, gold) for group in GROUPS for given in group for gold in group if given != gold]
    grades = [{"given": given, "gold": gold, "equal": bool(grader.grade_answer(given, gold))} for given, gold in pairs]
    answers = [{"response": response, "answer": extracted(response)} for response in RESPONSES]
    texts = [{"latex": latex, "text": latex2text.LatexNodes2Text().latex_to_text(latex)} for latex in LATEX]
    path = pathlib.Path(__file__).with_suffix(".json")
    lines = [",\n".join(json.dumps(row) for row in rows) for rows in (grades, answers, texts)]
    path.write_text('{"made_by": "openai/prm800k @7ecc7947 grading, sympy 1.14.0, pylatexenc 2.11; lm-eval 0.4.13 aime",\n'
                    f'"grades": [\n{lines[0]}\n],\n"answers": [\n{lines[1]}\n],\n"texts": [\n{lines[2]}\n]}}\n')
    print(len(grades), sum(row["equal"] for row in grades))


main()

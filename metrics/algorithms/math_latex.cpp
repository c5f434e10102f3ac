// LaTeX as plain text, in the way of pylatexenc's latex2text.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "metrics/algorithms/math_answers.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

// Macros without arguments. Names of functions stand for themselves; macros that are not here vanish.
const std::map<std::string_view, std::string_view>& symbols() {
  static const std::map<std::string_view, std::string_view> kSymbols = {
      {",", " "},          {";", " "},        {":", " "},           {" ", " "},           {"\\", "\n"},
      {"quad", "  "},      {"qquad", "    "}, {"%", "%"},           {"$", "$"},           {"#", "#"},
      {"&", "&"},          {"_", "_"},        {"{", "{"},           {"}", "}"},           {"pi", "π"},
      {"infty", "∞"},      {"cup", "∪"},      {"cap", "∩"},         {"cdot", "·"},        {"times", "×"},
      {"in", "∈"},         {"notin", "∉"},    {"pm", "±"},          {"mp", "∓"},          {"le", "≤"},
      {"leq", "≤"},        {"ge", "≥"},       {"geq", "≥"},         {"neq", "≠"},         {"to", "→"},
      {"rightarrow", "→"}, {"ldots", "…"},    {"dots", "…"},        {"cdots", "⋯"},       {"alpha", "α"},
      {"beta", "β"},       {"gamma", "γ"},    {"delta", "δ"},       {"epsilon", "ϵ"},     {"theta", "θ"},
      {"lambda", "λ"},     {"mu", "μ"},       {"rho", "ρ"},         {"sigma", "σ"},       {"tau", "τ"},
      {"phi", "ϕ"},        {"omega", "ω"},    {"emptyset", "∅"},    {"varnothing", "∅"},  {"circ", "∘"},
      {"angle", "∠"},      {"approx", "≈"},   {"div", "÷"},         {"setminus", "∖"},    {"mid", "|"},
      {"vert", "|"},       {"lvert", "|"},    {"rvert", "|"},       {"perp", "⊥"},        {"sim", "∼"},
      {"equiv", "≡"},      {"prime", "'"},    {"lfloor", "⌊"},      {"rfloor", "⌋"},      {"lceil", "⌈"},
      {"rceil", "⌉"},      {"sum", "∑"},      {"int", "∫"},         {"prod", "∏"},        {"sin", "sin"},
      {"cos", "cos"},      {"tan", "tan"},    {"log", "log"},       {"ln", "ln"},         {"exp", "exp"},
      {"max", "max"},      {"min", "min"},    {"arcsin", "arcsin"}, {"arccos", "arccos"}, {"arctan", "arctan"},
      {"textdollar", "$"}, {"eta", "η"},      {"zeta", "ζ"},        {"psi", "ψ"},         {"chi", "χ"},
      {"xi", "ξ"},         {"nu", "ν"},       {"kappa", "κ"},       {"iota", "ι"},        {"varphi", "φ"},
      {"varepsilon", "ε"}, {"ell", "ℓ"},      {"nabla", "∇"},       {"partial", "∂"},     {"parallel", "∥"},
      {"cong", "≅"},       {"subset", "⊂"},   {"subseteq", "⊆"},    {"Rightarrow", "⇒"},  {"leftarrow", "←"},
      {"langle", "⟨"},     {"rangle", "⟩"},   {"wedge", "∧"},       {"ast", "∗"},         {"star", "⋆"},
      {"bullet", "∙"},     {"propto", "∝"},   {"exists", "∃"},      {"forall", "∀"},      {"sinh", "sinh"},
      {"cosh", "cosh"},    {"tanh", "tanh"},  {"lim", "lim"},       {"Delta", "Δ"},       {"Gamma", "Γ"},
      {"Omega", "Ω"},      {"Theta", "Θ"},    {"Lambda", "Λ"},      {"Sigma", "Σ"},       {"Phi", "Φ"},
      {"Psi", "Ψ"},        {"Pi", "Π"},       {"vdots", "⋮"},       {"ddots", "⋱"},       {"vee", "∨"},
      {"lnot", "¬"},       {"square", "□"},   {"lbrace", "{"},      {"rbrace", "}"},      {"nmid", "∤"},
      {"mapsto", "↦"}};
  return kSymbols;
}

// Macros that put a mark on each character of their argument, or set its letters in another alphabet, for which a mark
// of private use stands here.
const std::map<std::string_view, std::string_view>& marks() {
  static const std::map<std::string_view, std::string_view> kMarks = {
      {"bar", "\u0305"},     {"vec", "\u20d7"},    {"hat", "\u0302"},    {"tilde", "\u0303"},
      {"dot", "\u0307"},     {"ddot", "\u0308"},   {"mathbf", "\ue000"}, {"mathbb", "\ue001"},
      {"mathcal", "\ue002"}, {"mathit", "\ue003"}, {"mathsf", "\ue004"}, {"mathtt", "\ue005"}};
  return kMarks;
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string marked(std::string_view text, std::string_view name, std::string_view mark) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    next_code_point(text, i);
    const bool alphabet = name.starts_with("math");
    out += fmt::format("{}{}", text.substr(begin, i - begin), !alphabet || is_letter(text[begin]) ? mark : "");
  }
  return out;
}

class LatexReader {
 public:
  explicit LatexReader(std::string_view text) : text_(text) {}

  /// All up to `end`, a brace, bracket or \end{...}, which is taken too; to the end of the text where it does not come.
  std::string until(std::string_view end) {
    std::string out;
    while (at_ < text_.size()) {
      if (!end.empty() && text_.substr(at_).starts_with(end)) {
        at_ += end.size();
        break;
      }
      out += element();
    }
    return out;
  }

  [[nodiscard]] bool failed() const { return failed_; }

 private:
  std::string element() {
    const char c = text_[at_];
    if (c == '\\') return macro();
    if (c == '{') {
      ++at_;
      return until("}");
    }
    if (c == '}' || c == '$') {
      ++at_;
      return {};
    }
    if (c == '~' || c == '&') {
      ++at_;
      return c == '~' ? "\u00a0" : "   ";
    }
    const size_t begin = at_;
    next_code_point(text_, at_);
    return std::string(text_.substr(begin, at_ - begin));
  }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) ++at_;
  }

  bool ended() {
    skip_spaces();
    return at_ == text_.size();
  }

  /// A group, a macro or a character.
  std::string argument() { return ended() ? std::string() : element(); }

  std::string_view name() {
    const size_t begin = ++at_;
    while (at_ < text_.size() && is_letter(text_[at_])) ++at_;
    if (at_ == begin && at_ < text_.size()) next_code_point(text_, at_);
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (!name.empty() && is_letter(name[0])) skip_spaces();
    return name;
  }

  std::string macro() {
    const std::string_view name = this->name();
    if (name == "frac") {
      if (ended()) return "%s/%s";
      const std::string above = argument();
      if (ended()) return fmt::format("%s/%s{}", above);
      return fmt::format("{}/{}", above, argument());
    }
    if (name == "sqrt") {
      if (at_ < text_.size() && text_[at_] == '[') {
        ++at_;
        (void)until("]");
      }
      failed_ |= ended();
      return fmt::format("√({})", argument());
    }
    if (name == "begin") return environment();
    if (name == "mbox" || name == "texttt" || name == "hspace") {
      (void)argument();
      return {};
    }
    if (const auto mark = marks().find(name); mark != marks().end()) {
      return marked(argument(), name, mark->second);
    }
    const auto symbol = symbols().find(name);
    return std::string(symbol == symbols().end() ? std::string_view() : symbol->second);
  }

  /// Matrices and arrays as [ a b; c d ], the inside of others.
  std::string environment() {
    const std::string kind = argument();
    if (kind == "array") (void)argument();
    const std::string end = fmt::format("\\end{{{}}}", kind);
    const size_t close = std::min(text_.find(end, at_), text_.size());
    const std::string_view body = text_.substr(at_, close - at_);
    at_ = std::min(close + end.size(), text_.size());
    const bool brackets = kind == "array" || kind == "pmatrix" || kind == "bmatrix" || kind == "smallmatrix";
    if (!brackets) return LatexReader(body).until("");
    std::string cells;
    for (size_t i = 0, begin = 0; i <= body.size(); ++i) {
      const bool row = body.substr(i).starts_with("\\\\");
      if (i < body.size() && !row && body[i] != '&') continue;
      const std::string cell = LatexReader(body.substr(begin, i - begin)).until("");
      cells += fmt::format("{}{}{}", cells.empty() ? "" : " ", strip(cell), row ? ";" : "");
      i += row ? 1 : 0;
      begin = i + 1;
    }
    return fmt::format("[ {} ]", cells);
  }

  std::string_view text_;
  size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace

std::string latex_to_text(std::string_view latex) {
  LatexReader reader(latex);
  std::string text = reader.until("");
  return reader.failed() ? std::string(latex) : text;
}

}  // namespace kvarena::metrics

#include "metrics/algorithms/code_functions.h"

#include <algorithm>
#include <map>
#include <string>

#include "metrics/algorithms/regex.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

/// Length of the comment or string that `code` begins with; 0 where it begins with neither.
size_t opaque_length(std::string_view code, std::string_view language) {
  static const Regex kPython(R"re(\A(?:#.*|"""(?s:.*?)"""|'''(?s:.*?)'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))re");
  static const Regex kRust(R"re(\A(?://.*|/\*(?s:.*?)\*/|"(?:\\(?s:.)|[^"\\])*"|'(?:\\.[^']*|[^'\\\n])'))re");
  static const Regex kOthers(
      R"re(\A(?://.*|/\*(?s:.*?)\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\(?s:.)|[^`\\])*`))re");
  const char first = code.front();
  if (first != '#' && first != '/' && first != '"' && first != '\'' && first != '`') return 0;
  const RegexMatch found = (language == "python" ? kPython : language == "rust" ? kRust : kOthers).search(code);
  return found.empty() ? 0 : found[0].size();
}

/// The code with blanks for comments and strings, of which the first and the last character become underscores; line
/// ends stay.
std::string without_opaque(std::string_view code, std::string_view language) {
  std::string out(code);
  for (size_t at = 0; at < code.size();) {
    const size_t length = opaque_length(code.substr(at), language);
    for (size_t i = at; i < at + length; ++i) out[i] = code[i] == '\n' ? '\n' : ' ';
    const bool is_string = length > 0 && code[at] != '#' && code[at] != '/';
    if (is_string) out[at] = out[at + length - 1] = '_';
    at += std::max<size_t>(length, 1);
  }
  return out;
}

constexpr const char* kBody = R"(\s*(\{(?:[^{}]++|(?1))*+\}))";
constexpr const char* kNoKeyword =
    R"((?!(?:if|for|while|switch|catch|return|new|else|throw|do|case|using|namespace)\b))";
constexpr const char* kType = R"([\w:.]+(?:\s*<[^;{}()]*>)?(?:\s*\[\s*\])*\s+)";
constexpr const char* kCall = R"(\w+\s*\([^;{}]*?\)\s*)";

/// Patterns of a function of the languages with braces, in code without comments and strings.
const Regex* function_pattern(std::string_view language) {
  const auto typed = [](const std::string& before, const std::string& behind) {
    return before + R"((?<![\w.]))" + kNoKeyword + kType + kNoKeyword + kCall + behind + kBody;
  };
  static const std::map<std::string_view, Regex> kFunctions = {
      {"java", Regex(typed(R"((?:@\w+(?:\([^()]*\))?\s+)*(?:\b(?:public|protected|private|static|final|abstract|)"
                           R"(synchronized|native|default|strictfp)\s+)*(?:<[^;{}()]*>\s*)?)",
                           R"((?:throws\s+[\w.,\s]+?)?)"))},
      {"cpp", Regex(typed(R"((?:\b(?:static|inline|constexpr|extern|const|unsigned|signed|friend)\s+)*)",
                          R"((?:(?:const|noexcept)\s*|->\s*[\w:<>,&*\s]+?)*)"))},
      {"rust",
       Regex(std::string(R"((?:\bpub(?:\s*\([^()]*\))?\s+)?(?:\b(?:default|const|async|unsafe|extern(?:\s+_ *_)?))") +
             R"(\s+)*\bfn\s+\w+[^;{}]*?)" + kBody)},
      {"typescript", Regex(std::string(R"((?:\basync\s+)?\bfunction\s+\w+\s*(?:<[^()]*>)?\s*)") +
                           R"((\((?:[^()]++|(?1))*+\))\s*(?::(?:[^;{}]|\{[^{}]*\})*?)?)" +
                           R"(\s*(\{(?:[^{}]++|(?2))*+\})(?!\s*[{>|&\[]))")},
      {"go", Regex(std::string(R"(\bfunc\s+\w+\s*(?:\[[^\]]*\])?\([^{}]*?\)[^;{}]*?)") + kBody)}};
  const auto found = kFunctions.find(language);
  return found == kFunctions.end() ? nullptr : &found->second;
}

/// Where the function that begins at `begin`, behind `indent` blanks, ends: with the last line that is deeper.
size_t end_by_indent(const std::string& plain, size_t begin, size_t indent) {
  size_t depth = 0, end = begin;
  for (size_t i = begin; i < plain.size(); ++i) {
    if (contains("([{", plain.substr(i, 1))) ++depth;
    if (contains(")]}", plain.substr(i, 1)) && depth > 0) --depth;
    if (plain[i] != '\n' || depth > 0) continue;
    end = i;
    const size_t next = plain.find_first_not_of(" \t\n", i);
    if (next == std::string::npos || next - (plain.rfind('\n', next) + 1) <= indent) return end;
    i = next - 1;
  }
  return plain.size();
}

std::string_view python_function(std::string_view code, const std::string& plain) {
  static const Regex kDefinition(R"((?m)^([ \t]*).*?((?:\basync[ \t]+)?\bdef[ \t]+\w+))");
  const RegexMatch head = kDefinition.search(plain);
  if (head.empty()) return {};
  const auto begin = static_cast<size_t>(head[2].data() - plain.data());
  return code.substr(begin, end_by_indent(plain, begin, head[1].size()) - begin);
}

}  // namespace

std::string_view first_function(std::string_view code, std::string_view language) {
  static const Regex kClass(R"(\b(?:class|struct|union)\b[^;{}()]*(\{(?:[^{}]++|(?1))*+\}))");
  std::string plain = without_opaque(code, language);
  if (language == "python") return python_function(code, plain);
  const Regex* const function = function_pattern(language);
  if (function == nullptr) return {};
  if (language == "cpp") {
    plain = kClass.sub(plain, [](const RegexMatch& found) { return std::string(found[0].size(), ' '); });
  }
  const RegexMatch found = function->search(plain);
  if (found.empty()) return {};
  return code.substr(static_cast<size_t>(found[0].data() - plain.data()), found[0].size());
}

std::string_view code_of_answer(std::string_view answer, std::string_view language) {
  static const Regex kBlock(R"((?m)^```(?:\w+)?\s*\n((?s:.*?))(?=^```)```)");
  answer = strip(answer);
  const std::vector<RegexMatch> blocks = kBlock.find_all(answer);
  for (const RegexMatch& block : blocks) {
    const std::string_view function = first_function(block[1], language);
    if (!function.empty()) return function;
  }
  return blocks.empty() ? answer : blocks.front()[1];
}

}  // namespace kvarena::metrics

#include "harness/core/json_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "harness/core/unique_keys.h"

namespace kvarena {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 32;  // a config needs seven; recursion over a mad one must not end the process
constexpr int64_t kDeepestData = 500;

/// The library says "... parse error at line 3, column 7: syntax error while parsing value - unexpected ..."; the
/// part from "syntax error" on is for the user.
std::string syntax_problem(const std::string& what) {
  const size_t at = what.find("syntax error");
  const size_t from = at == std::string::npos ? what.find("] ") + 2 : at;
  return what.substr(from);
}

ErrorParts syntax_error(const std::string& text, const std::string& place, const json::parse_error& error) {
  const size_t end = std::min<size_t>(error.byte > 0 ? error.byte - 1 : 0, text.size());
  const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n') + 1;
  const size_t newline = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
  const size_t column = end - (newline == std::string::npos ? 0 : newline + 1) + 1;
  return {.place = fmt::format("{}: line {}, column {}", place, line, column),
          .found = syntax_problem(error.what()),
          .expected = "JSON"};
}

}  // namespace

json parse_json(const std::string& text, const std::string& place) {
  BracketDepth depth;
  if (std::ranges::any_of(text, [&](char c) { return depth.after(c) > kMaxDepth; })) {
    fail({.place = place, .found = "JSON nested deeper than any config", .expected = "at most 32 levels"});
  }
  require_unique_keys(text, place);
  try {
    return json::parse(text);
  } catch (const json::parse_error& error) {
    fail(syntax_error(text, place, error));
  } catch (const json::out_of_range& error) {  // 1e999
    fail({.place = place, .found = error.what(), .expected = "numbers that a double can hold"});
  }
}

bool nests_deeply(std::string_view text) {
  BracketDepth depth;
  return std::ranges::any_of(text, [&](char c) { return depth.after(c) > kDeepestData; });
}

void require_shallow(std::string_view text, const std::string& place) {
  if (!nests_deeply(text)) return;
  fail({.place = place,
        .found = "JSON nested deeper than any real data",
        .expected = fmt::format("at most {} levels", kDeepestData)});
}

std::string json_text(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string brief(const json& value) {
  constexpr size_t kLongest = 80;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);  // ASCII: can be cut anywhere
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

json parameter_values(const std::function<void(ParameterVisitor&)>& declare) {
  json values = json::object();
  for (const ParameterInfo& info : list_parameters(declare)) {
    json value = json::parse(info.default_json);
    if (!value.is_null()) values[info.name] = std::move(value);
  }
  return values;
}

}  // namespace kvarena

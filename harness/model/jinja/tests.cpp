#include <fmt/format.h>

#include <map>

#include "harness/model/jinja/builtins.h"
#include "harness/model/jinja/lexer.h"
#include "harness/model/jinja/text.h"

namespace kvarena::jinja {
namespace {

using TestFunction = bool (*)(const Value& value, const Value& other, int line);

bool ordered(const Value& a, const Value& b, int line) {
  if (!order(a, b)) fail_at(line, fmt::format("{} beside {}", a.type(), b.type()), "values that have an order");
  return true;
}

bool divisible(const Value& a, const Value& b, int line) {
  const auto number = a.as_integer(), by = b.as_integer();
  if (!number || !by || *by == 0) fail_at(line, fmt::format("{} and {}", a.type(), b.type()), "two whole numbers");
  return *number % *by == 0;
}

const std::map<std::string, TestFunction, std::less<>>& tests() {
  static const std::map<std::string, TestFunction, std::less<>> all = {
      {"==", [](const Value& a, const Value& b, int) { return a == b; }},
      {"boolean", [](const Value& a, const Value&, int) { return a.flag() != nullptr; }},
      {"callable", [](const Value& a, const Value&, int) { return a.function() != nullptr; }},
      {"defined", [](const Value& a, const Value&, int) { return !a.undefined(); }},
      {"divisibleby", divisible},
      {"eq", [](const Value& a, const Value& b, int) { return a == b; }},
      {"equalto", [](const Value& a, const Value& b, int) { return a == b; }},
      {"even", [](const Value& a, const Value&, int line) { return divisible(a, int64_t{2}, line); }},
      {"false", [](const Value& a, const Value&, int) { return a.flag() != nullptr && !*a.flag(); }},
      {"float", [](const Value& a, const Value&, int) { return a.real() != nullptr; }},
      {"ge", [](const Value& a, const Value& b, int line) { return ordered(a, b, line) && *order(a, b) >= 0; }},
      {"gt", [](const Value& a, const Value& b, int line) { return ordered(a, b, line) && *order(a, b) > 0; }},
      {"in", [](const Value& a, const Value& b, int line) { return contains(b, a, line); }},
      {"integer", [](const Value& a, const Value&, int) { return a.integer() != nullptr; }},
      {"iterable",
       [](const Value& a, const Value&, int) {
         return a.undefined() || a.text() != nullptr || a.list() != nullptr || a.dict() != nullptr;
       }},
      {"le", [](const Value& a, const Value& b, int line) { return ordered(a, b, line) && *order(a, b) <= 0; }},
      {"lower", [](const Value& a, const Value&, int) { return lower(a.str()) == a.str(); }},
      {"lt", [](const Value& a, const Value& b, int line) { return ordered(a, b, line) && *order(a, b) < 0; }},
      {"mapping", [](const Value& a, const Value&, int) { return a.dict() != nullptr; }},
      {"ne", [](const Value& a, const Value& b, int) { return !(a == b); }},
      {"none", [](const Value& a, const Value&, int) { return a.none(); }},
      {"number", [](const Value& a, const Value&, int) { return a.number(); }},
      {"odd", [](const Value& a, const Value&, int line) { return !divisible(a, int64_t{2}, line); }},
      {"sameas", [](const Value& a, const Value& b, int) { return a.data().index() == b.data().index() && a == b; }},
      {"sequence",
       [](const Value& a, const Value&, int) {
         return a.undefined() || a.text() != nullptr || a.list() != nullptr || a.dict() != nullptr;
       }},
      {"string", [](const Value& a, const Value&, int) { return a.text() != nullptr; }},
      {"true", [](const Value& a, const Value&, int) { return a.flag() != nullptr && *a.flag(); }},
      {"undefined", [](const Value& a, const Value&, int) { return a.undefined(); }},
      {"upper", [](const Value& a, const Value&, int) { return upper(a.str()) == a.str(); }},
  };
  return all;
}

}  // namespace

bool apply_test(const std::string& name, const Value& value, const Arguments& arguments, int line) {
  const auto found = tests().find(name);
  if (found == tests().end()) fail_at(line, fmt::format("the test \"{}\"", name), "one that chat templates use");
  return found->second(value, arguments.get(0, "other"), line);
}

}  // namespace kvarena::jinja

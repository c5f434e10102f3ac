#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/model/jinja/builtins.h"
#include "harness/model/jinja/lexer.h"
#include "harness/model/jinja/text.h"

namespace kvarena::jinja {
namespace {

[[noreturn]] void refuse_operands(int line, const std::string& sign, const Value& left, const Value& right) {
  fail_at(line, fmt::format("{} {} {}", left.type(), sign, right.type()), "operands that fit the operator");
}

/// The quotient rounded down, as Python's.
int64_t floor_division(int64_t a, int64_t b) { return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0); }

Value calculate_whole(int line, const std::string& sign, int64_t a, int64_t b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (b == 0 && sign != "**") fail_at(line, "a division by zero", "another divisor");
  if (sign == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (sign == "//") return floor_division(a, b);
  if (sign == "%") return a - floor_division(a, b) * b;
  const double power = std::pow(static_cast<double>(a), static_cast<double>(b));
  return b >= 0 ? Value(static_cast<int64_t>(power)) : Value(power);
}

Value calculate_real(int line, const std::string& sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "**") return std::pow(a, b);
  if (b == 0) fail_at(line, "a division by zero", "another divisor");
  if (sign == "/") return a / b;
  if (sign == "//") return std::floor(a / b);
  return a - std::floor(a / b) * b;
}

Value repeated(const std::string& text, int64_t times) {
  constexpr int64_t kMost = 1 << 20;
  std::string out;
  for (int64_t i = 0; i < std::min(times, kMost); ++i) out += text;
  return out;
}

Value calculate(int line, const std::string& sign, const Value& left, const Value& right) {
  const std::optional<int64_t> a = left.as_integer(), b = right.as_integer();
  if (a && b) return calculate_whole(line, sign, *a, *b);
  if (left.number() && right.number()) return calculate_real(line, sign, *left.as_real(), *right.as_real());
  if (sign == "+" && left.text() != nullptr && right.text() != nullptr) return *left.text() + *right.text();
  if (sign == "+" && left.list() != nullptr && right.list() != nullptr) {
    List all = *left.list();
    all.insert(all.end(), right.list()->begin(), right.list()->end());
    return all;
  }
  if (sign == "*" && left.text() != nullptr && b) return repeated(*left.text(), *b);
  if (sign == "%" && left.text() != nullptr) {
    const Arguments values{.positional = right.list() != nullptr ? *right.list() : List{right}, .keyword = {}};
    return apply_filter("format", left, values, line);
  }
  refuse_operands(line, sign, left, right);
}

bool compare(int line, const std::string& sign, const Value& left, const Value& right) {
  if (sign == "==") return left == right;
  if (sign == "!=") return !(left == right);
  if (sign == "in") return contains(right, left, line);
  if (sign == "not in") return !contains(right, left, line);
  const std::optional<int> ordered = order(left, right);
  if (!ordered) refuse_operands(line, sign, left, right);
  if (sign == "<") return *ordered < 0;
  if (sign == "<=") return *ordered <= 0;
  return sign == ">" ? *ordered > 0 : *ordered >= 0;
}

/// Start, stop and step of Python's slices of `size` items.
struct Range {
  int64_t start, stop, step;
};

Range range_of(const Slice& slice, Scope& scope, int64_t size) {
  const auto part = [&](const ExpressionPtr& expression) -> std::optional<int64_t> {
    return expression == nullptr ? std::nullopt : expression->eval(scope).as_integer();
  };
  const int64_t step = part(slice.step).value_or(1);
  if (step == 0) fail_at(slice.line, "a step of 0", "another");
  const int64_t first = step > 0 ? 0 : -1, last = step > 0 ? size : size - 1;
  const auto place = [&](std::optional<int64_t> at, int64_t otherwise) {
    if (!at) return otherwise;
    return std::clamp(*at < 0 ? *at + size : *at, first, last);
  };
  return {.start = place(part(slice.start), step > 0 ? 0 : size - 1),
          .stop = place(part(slice.stop), step > 0 ? size : -1),
          .step = step};
}

}  // namespace

Value Scope::get(const std::string& name) const {
  const auto found = std::ranges::find(names_, name, &Names::value_type::first);
  if (found != names_.end()) return found->second;
  return outer_ != nullptr ? outer_->get(name) : Value(Undefined{name});
}

void Scope::set(const std::string& name, Value value) {
  const auto found = std::ranges::find(names_, name, &Names::value_type::first);
  if (found != names_.end()) {
    found->second = std::move(value);
  } else {
    names_.emplace_back(name, std::move(value));
  }
}

Value Literal::eval(Scope& /*scope*/) const { return value; }

Value Name::eval(Scope& scope) const { return scope.get(name); }

Value ListDisplay::eval(Scope& scope) const {
  List list;
  for (const ExpressionPtr& item : items) list.push_back(item->eval(scope));
  return list;
}

Value DictDisplay::eval(Scope& scope) const {
  const Value dict = Dict{};
  for (const auto& [key, item] : items) dict.set(key->eval(scope), item->eval(scope));
  return dict;
}

Value Member::eval(Scope& scope) const {
  const Value whole = of->eval(scope);
  const Value name = key->eval(scope);
  if (whole.undefined()) {
    fail_at(line,
            fmt::format("\"{}\" of \"{}\", which is undefined", name.str(), std::get<Undefined>(whole.data()).name),
            "a name that the template is given");
  }
  if (dotted) {
    if (Value method = method_of(whole, *name.text()); !method.undefined()) return method;
  }
  Value item = item_of(whole, name);
  if (item.undefined() && !dotted && name.text() != nullptr) return method_of(whole, *name.text());
  return item;
}

Value Slice::eval(Scope& scope) const {
  const Value whole = of->eval(scope);
  const bool text = whole.text() != nullptr;
  if (!text && whole.list() == nullptr) fail_at(line, whole.type(), "a list or a string to take a part of");
  const List items = items_of(whole, line);
  const Range range = range_of(*this, scope, std::ssize(items));
  List part;
  for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop; i += range.step) {
    part.push_back(items[static_cast<size_t>(i)]);
  }
  if (!text) return part;
  std::string joined;
  for (const Value& character : part) joined += *character.text();
  return joined;
}

Arguments CallArguments::eval(Scope& scope) const {
  Arguments values;
  for (const ExpressionPtr& argument : positional) values.positional.push_back(argument->eval(scope));
  for (const auto& [name, argument] : keyword) values.keyword.emplace_back(name, argument->eval(scope));
  return values;
}

Value Call::eval(Scope& scope) const {
  const Value function = callee->eval(scope);
  if (function.function() == nullptr) {
    const auto* name = dynamic_cast<const Name*>(callee.get());
    fail_at(line, name != nullptr ? fmt::format("the function \"{}\"", name->name) : std::string(function.type()),
            "a function that chat templates may call");
  }
  return (*function.function())(arguments.eval(scope));
}

Value Filter::eval(Scope& scope) const { return apply_filter(name, of->eval(scope), arguments.eval(scope), line); }

Value Test::eval(Scope& scope) const {
  return apply_test(name, of->eval(scope), arguments.eval(scope), line) != negated;
}

Value Operation::eval(Scope& scope) const {
  if (sign == "not") return !right->eval(scope).truth();
  if (left == nullptr) return calculate(line, sign, Value(int64_t{0}), right->eval(scope));
  Value first = left->eval(scope);
  if (sign == "and") return first.truth() ? right->eval(scope) : first;
  if (sign == "or") return first.truth() ? first : right->eval(scope);
  const Value second = right->eval(scope);
  if (sign == "~") return first.str() + second.str();
  return calculate(line, sign, first, second);
}

Value Comparison::eval(Scope& scope) const {
  Value left = first->eval(scope);
  for (const auto& [sign, operand] : rest) {
    Value right = operand->eval(scope);
    if (!compare(line, sign, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Conditional::eval(Scope& scope) const {
  if (condition->eval(scope).truth()) return then->eval(scope);
  return otherwise != nullptr ? otherwise->eval(scope) : Value(Undefined{});
}

}  // namespace kvarena::jinja

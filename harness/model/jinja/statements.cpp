#include <fmt/format.h>

#include "harness/model/jinja/builtins.h"
#include "harness/model/jinja/lexer.h"

namespace kvarena::jinja {
namespace {

/// Calls of macros inside of one another; more is a program that does not end.
constexpr int kDeepestCall = 64;
thread_local int call_depth = 0;

class CallDepth {
 public:
  explicit CallDepth(int line) {
    if (++call_depth <= kDeepestCall) return;
    --call_depth;
    fail_at(line, "macros that call one another without end", fmt::format("at most {} calls deep", kDeepestCall));
  }
  ~CallDepth() { --call_depth; }
  CallDepth(const CallDepth&) = delete;
  CallDepth& operator=(const CallDepth&) = delete;
};

/// Binds one name to a value, or several to its items.
void assign(Scope& scope, const std::vector<std::string>& targets, const Value& value, int line) {
  if (targets.size() == 1) return scope.set(targets.front(), value);
  const List items = items_of(value, line);
  if (items.size() != targets.size()) {
    fail_at(line, fmt::format("{} values for {} names", items.size(), targets.size()), "as many values as names");
  }
  for (size_t i = 0; i < targets.size(); ++i) scope.set(targets[i], items[i]);
}

Value loop_at(const List& items, size_t i) {
  const auto count = static_cast<int64_t>(items.size());
  const auto index = static_cast<int64_t>(i);
  Dict loop{{"index", index + 1},
            {"index0", index},
            {"revindex", count - index},
            {"revindex0", count - index - 1},
            {"first", index == 0},
            {"last", index + 1 == count},
            {"length", count},
            {"depth", int64_t{1}},
            {"depth0", int64_t{0}},
            {"cycle", Function([index](const Arguments& of) -> Value {
               if (of.positional.empty()) return {};
               return of.positional[static_cast<size_t>(index) % of.positional.size()];
             })}};
  if (i > 0) loop.emplace_back("previtem", items[i - 1]);
  if (i + 1 < items.size()) loop.emplace_back("nextitem", items[i + 1]);
  return loop;
}

std::string filtered(std::string text, const std::vector<std::pair<std::string, CallArguments>>& filters, Scope& scope,
                     int line) {
  Value value = std::move(text);
  for (const auto& [name, arguments] : filters) value = apply_filter(name, value, arguments.eval(scope), line);
  return value.str();
}

std::string text_of(const Block& body, Scope& scope) {
  Scope inner(&scope);
  std::string out;
  run_block(body, inner, out);
  return out;
}

/// A macro as a function, which sees the names of where it stands.
Function function_of(const Macro& macro, Scope& scope) {
  return [&macro, &scope](const Arguments& given) -> Value {
    const CallDepth depth(macro.line);
    Scope inner(&scope);
    for (size_t i = 0; i < macro.parameters.size(); ++i) {
      const auto& [name, otherwise] = macro.parameters[i];
      Value value = given.get(i, name);
      const bool absent = value.undefined() && i >= given.positional.size();
      inner.set(name, absent && otherwise != nullptr ? otherwise->eval(inner) : std::move(value));
    }
    if (Value caller = given.get(given.positional.size(), "caller"); !caller.undefined()) inner.set("caller", caller);
    std::string out;
    run_block(macro.body, inner, out);
    return out;
  };
}

}  // namespace

Flow run_block(const Block& block, Scope& scope, std::string& out) {
  for (const StatementPtr& statement : block) {
    if (const Flow flow = statement->run(scope, out); flow != Flow::on) return flow;
  }
  return Flow::on;
}

Flow Text::run(Scope& /*scope*/, std::string& out) const {
  out += text;
  return Flow::on;
}

Flow Print::run(Scope& scope, std::string& out) const {
  out += value->eval(scope).str();
  constexpr size_t kMost = size_t{1} << 30;
  if (out.size() > kMost) fail_at(line, "more than a gigabyte of text", "a conversation");
  return Flow::on;
}

Flow If::run(Scope& scope, std::string& out) const {
  for (const auto& [condition, body] : branches) {
    if (condition->eval(scope).truth()) return run_block(body, scope, out);
  }
  return run_block(otherwise, scope, out);
}

Flow For::run(Scope& scope, std::string& out) const {
  List all;
  for (const Value& item : items_of(items->eval(scope), line)) {
    if (condition != nullptr) {
      Scope inner(&scope);
      assign(inner, targets, item, line);
      if (!condition->eval(inner).truth()) continue;
    }
    all.push_back(item);
  }
  if (all.empty()) return run_block(otherwise, scope, out);
  for (size_t i = 0; i < all.size(); ++i) {
    Scope inner(&scope);
    assign(inner, targets, all[i], line);
    inner.set("loop", loop_at(all, i));
    if (run_block(body, inner, out) == Flow::leave) break;
  }
  return Flow::on;
}

Flow Set::run(Scope& scope, std::string& /*out*/) const {
  const Value set = value != nullptr ? value->eval(scope) : Value(filtered(text_of(body, scope), filters, scope, line));
  if (targets.empty()) return Flow::on;
  if (member.empty()) {
    assign(scope, targets, set, line);
    return Flow::on;
  }
  const Value whole = scope.get(targets.front());
  if (whole.dict() == nullptr) {
    fail_at(line, fmt::format("\"{}.{}\" to set, of {}", targets.front(), member, whole.type()), "a namespace");
  }
  whole.set(member, set);
  return Flow::on;
}

Flow Macro::run(Scope& scope, std::string& /*out*/) const {
  scope.set(name, function_of(*this, scope));
  return Flow::on;
}

Flow CallBlock::run(Scope& scope, std::string& out) const {
  const Value function = call->callee->eval(scope);
  if (function.function() == nullptr) fail_at(line, function.type(), "a macro to call");
  Arguments arguments = call->arguments.eval(scope);
  arguments.keyword.emplace_back("caller", function_of(caller, scope));
  out += (*function.function())(arguments).str();
  return Flow::on;
}

Flow FilterBlock::run(Scope& scope, std::string& out) const {
  out += filtered(text_of(body, scope), filters, scope, line);
  return Flow::on;
}

Flow With::run(Scope& scope, std::string& out) const {
  Scope inner(&scope);
  for (const auto& [name, value] : names) inner.set(name, value->eval(scope));
  return run_block(body, inner, out);
}

Flow Jump::run(Scope& /*scope*/, std::string& /*out*/) const { return flow; }

}  // namespace kvarena::jinja

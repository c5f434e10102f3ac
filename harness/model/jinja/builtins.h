#pragma once
// Filters, tests, methods and functions of Jinja and of transformers' environment. Each throws UserError naming the
// line for a name that it does not know and for a value of the wrong kind.

#include <string>

#include "harness/model/jinja/nodes.h"

namespace kvarena::jinja {

/// value | name(arguments)
[[nodiscard]] Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments, int line);

/// value is name(arguments)
[[nodiscard]] bool apply_test(const std::string& name, const Value& value, const Arguments& arguments, int line);

/// value.name as a function of its arguments, for methods of strings, dicts and lists; undefined where there is none.
[[nodiscard]] Value method_of(const Value& value, const std::string& name);

/// Binds range, namespace, dict, raise_exception and strftime_now, whose day is always 26 July 2024: answers must not
/// depend on the day of the run.
void bind_functions(Scope& scope);

/// value[key] of an entry or a character; undefined where there is none.
[[nodiscard]] Value item_of(const Value& value, const Value& key);

/// Items of a list, keys of a dict, characters of a string, nothing of what is undefined.
[[nodiscard]] List items_of(const Value& value, int line);

[[nodiscard]] bool contains(const Value& whole, const Value& part, int line);

}  // namespace kvarena::jinja

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <map>

#include "harness/core/error.h"
#include "harness/model/jinja/builtins.h"
#include "harness/model/jinja/lexer.h"
#include "harness/model/jinja/text.h"

namespace kvarena::jinja {
namespace {

Value list_of(std::vector<std::string> texts) {
  List list;
  for (std::string& text : texts) list.emplace_back(std::move(text));
  return list;
}

/// Whether text.startswith or endswith holds for one text, or for one of several.
bool any_fits(const Value& ends, bool (*fits)(std::string_view, std::string_view), std::string_view text) {
  if (ends.list() == nullptr) return fits(text, ends.str());
  return std::ranges::any_of(*ends.list(), [&](const Value& end) { return fits(text, end.str()); });
}

bool starts_with(std::string_view text, std::string_view begin) { return text.starts_with(begin); }
bool ends_with(std::string_view text, std::string_view end) { return text.ends_with(end); }

using TextMethod = Value (*)(const std::string& text, const Arguments& of);

Value split_text(const std::string& text, const Arguments& of, bool from_right) {
  return list_of(split(text, of.get(0, "sep").str(), of.get(1, "maxsplit").as_integer().value_or(-1), from_right));
}

Value find_in(const std::string& text, const Arguments& of) {
  const size_t at = text.find(of.get(0, "sub").str());
  return at == std::string::npos ? int64_t{-1} : std::ssize(characters_of(std::string_view(text).substr(0, at)));
}

Value count_in(const std::string& text, const Arguments& of) {
  const std::string part = of.get(0, "sub").str();
  return part.empty() ? std::ssize(characters_of(text)) + 1 : std::ssize(split(text, part, -1, false)) - 1;
}

/// "{} {1}".format(...): places alone, no formats.
Value format(const std::string& text, const Arguments& of) {
  std::string out;
  size_t next = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const size_t end = text[at] == '{' ? text.find('}', at) : std::string::npos;
    if (end == std::string::npos) {
      out += text[at];
      continue;
    }
    const std::string place = text.substr(at + 1, end - at - 1);
    const bool number = place.find_first_not_of("0123456789") == std::string::npos;
    out += of.get(!number ? SIZE_MAX : place.empty() ? next++ : std::stoul(place), place).str();
    at = end;
  }
  return out;
}

const std::map<std::string, TextMethod, std::less<>>& text_methods() {
  static const std::map<std::string, TextMethod, std::less<>> all = {
      {"capitalize", [](const std::string& t, const Arguments&) -> Value { return capitalised(t, false); }},
      {"count", count_in},
      {"endswith",
       [](const std::string& t, const Arguments& of) -> Value { return any_fits(of.get(0, ""), ends_with, t); }},
      {"find", find_in},
      {"format", format},
      {"join",
       [](const std::string& t, const Arguments& of) -> Value {
         return apply_filter("join", of.get(0, ""), {.positional = {t}, .keyword = {}}, 0);
       }},
      {"lower", [](const std::string& t, const Arguments&) -> Value { return lower(t); }},
      {"lstrip",
       [](const std::string& t, const Arguments& of) -> Value {
         return strip(t, of.get(0, "chars").str(), Side::left);
       }},
      {"replace",
       [](const std::string& t, const Arguments& of) -> Value {
         return replace_all(t, of.get(0, "old").str(), of.get(1, "new").str(),
                            of.get(2, "count").as_integer().value_or(-1));
       }},
      {"rsplit", [](const std::string& t, const Arguments& of) -> Value { return split_text(t, of, true); }},
      {"rstrip",
       [](const std::string& t, const Arguments& of) -> Value {
         return strip(t, of.get(0, "chars").str(), Side::right);
       }},
      {"split", [](const std::string& t, const Arguments& of) -> Value { return split_text(t, of, false); }},
      {"startswith",
       [](const std::string& t, const Arguments& of) -> Value { return any_fits(of.get(0, ""), starts_with, t); }},
      {"strip",
       [](const std::string& t, const Arguments& of) -> Value {
         return strip(t, of.get(0, "chars").str(), Side::both);
       }},
      {"title", [](const std::string& t, const Arguments&) -> Value { return capitalised(t, true); }},
      {"upper", [](const std::string& t, const Arguments&) -> Value { return upper(t); }},
  };
  return all;
}

using DictMethod = Value (*)(const Value& dict, const Arguments& of);

const std::map<std::string, DictMethod, std::less<>>& dict_methods() {
  static const std::map<std::string, DictMethod, std::less<>> all = {
      {"get",
       [](const Value& dict, const Arguments& of) -> Value {
         const Value* found = dict.find(of.get(0, "key"));
         const Value otherwise = of.get(1, "default");
         return found != nullptr ? *found : otherwise.undefined() ? Value(nullptr) : otherwise;
       }},
      {"items", [](const Value& dict, const Arguments&) -> Value { return apply_filter("items", dict, {}, 0); }},
      {"keys", [](const Value& dict, const Arguments&) -> Value { return items_of(dict, 0); }},
      {"values",
       [](const Value& dict, const Arguments&) -> Value {
         List values;
         for (const auto& [key, value] : *dict.dict()) values.push_back(value);
         return values;
       }},
  };
  return all;
}

using ListMethod = Value (*)(const List& list, const Arguments& of);

const std::map<std::string, ListMethod, std::less<>>& list_methods() {
  static const std::map<std::string, ListMethod, std::less<>> all = {
      {"count", [](const List& list, const Arguments& of) -> Value { return std::ranges::count(list, of.get(0, "")); }},
      {"index",
       [](const List& list, const Arguments& of) -> Value {
         return std::ranges::find(list, of.get(0, "")) - list.begin();
       }},
  };
  return all;
}

Value range(const Arguments& of) {
  constexpr int64_t kMost = 1 << 20;
  const bool from = of.positional.size() > 1;
  const int64_t start = from ? of.get(0, "").as_integer().value_or(0) : 0;
  const int64_t stop = of.get(from ? 1 : 0, "").as_integer().value_or(0);
  const int64_t step = of.get(2, "").as_integer().value_or(1);
  List out;
  for (int64_t i = start; step > 0 ? i < stop : step < 0 && i > stop; i += step) {
    if (std::ssize(out) == kMost)
      fail({.place = "chat template", .found = "a range without end", .expected = "a short one"});
    out.emplace_back(i);
  }
  return out;
}

Value dict_of(const Arguments& of) {
  const Value dict = Dict{};
  if (const Dict* given = of.get(0, "").dict()) {
    for (const auto& [key, value] : *given) dict.set(key, value);
  }
  for (const auto& [key, value] : of.keyword) dict.set(key, value);
  return dict;
}

Value raise(const Arguments& of) {
  fail({.place = "messages",
        .found = of.get(0, "message").str(),
        .expected = "a conversation that the chat template takes"});
}

Value time_text(const Arguments& of) {
  std::tm day{};
  day.tm_year = 2024 - 1900;
  day.tm_mon = 6;
  day.tm_mday = 26;
  day.tm_wday = 5;
  day.tm_yday = 207;
  char text[256];
  return std::string(text, std::strftime(text, sizeof text, of.get(0, "format").str().c_str(), &day));
}

}  // namespace

Value method_of(const Value& value, const std::string& name) {
  if (const std::string* text = value.text()) {
    const auto found = text_methods().find(name);
    if (found == text_methods().end()) return {};
    return Function([text = *text, run = found->second](const Arguments& of) { return run(text, of); });
  }
  if (value.dict() != nullptr) {
    const auto found = dict_methods().find(name);
    if (found == dict_methods().end()) return {};
    return Function([value, run = found->second](const Arguments& of) { return run(value, of); });
  }
  if (value.list() != nullptr) {
    const auto found = list_methods().find(name);
    if (found == list_methods().end()) return {};
    return Function([value, run = found->second](const Arguments& of) { return run(*value.list(), of); });
  }
  return {};
}

void bind_functions(Scope& scope) {
  scope.set("range", Function(range));
  scope.set("namespace", Function(dict_of));
  scope.set("dict", Function(dict_of));
  scope.set("raise_exception", Function(raise));
  scope.set("strftime_now", Function(time_text));
}

Value item_of(const Value& value, const Value& key) {
  if (const Value* found = value.find(key)) return *found;
  const std::optional<int64_t> at = key.as_integer();
  if (!at || value.dict() != nullptr) return Undefined{key.str()};
  List items;
  if (value.list() != nullptr) items = *value.list();
  if (value.text() != nullptr) items = *list_of(characters_of(*value.text())).list();
  const int64_t place = *at < 0 ? *at + std::ssize(items) : *at;
  if (place < 0 || place >= std::ssize(items)) return Undefined{fmt::format("item {}", *at)};
  return items[static_cast<size_t>(place)];
}

List items_of(const Value& value, int line) {
  if (value.list() != nullptr) return *value.list();
  if (value.text() != nullptr) return *list_of(characters_of(*value.text())).list();
  if (value.undefined()) return {};
  if (value.dict() == nullptr) fail_at(line, value.type(), "a list, a dict or a string");
  List keys;
  for (const auto& [key, item] : *value.dict()) keys.emplace_back(key);
  return keys;
}

bool contains(const Value& whole, const Value& part, int line) {
  if (whole.text() != nullptr && part.text() != nullptr) return whole.text()->find(*part.text()) != std::string::npos;
  if (whole.dict() != nullptr) return whole.find(part) != nullptr;
  if (whole.text() != nullptr) fail_at(line, fmt::format("{} in a string", part.type()), "a string");
  const List items = items_of(whole, line);
  return std::ranges::find(items, part) != items.end();
}

}  // namespace kvarena::jinja

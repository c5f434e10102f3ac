#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "harness/model/jinja/builtins.h"
#include "harness/model/jinja/lexer.h"
#include "harness/model/jinja/text.h"

namespace kvarena::jinja {
namespace {

/// Value and arguments of a filter.
struct Input {
  const Value& value;
  const Arguments& arguments;
  int line;

  [[nodiscard]] Value get(size_t place, std::string_view name) const { return arguments.get(place, name); }
  [[nodiscard]] List items() const { return items_of(value, line); }
};

/// An attribute "a.b" of a value.
Value attribute(const Value& value, const std::string& path) {
  Value found = value;
  for (const std::string& name : split(path, ".", -1, false)) {
    const bool place = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    found = item_of(found, place ? Value(static_cast<int64_t>(std::stoll(name))) : Value(name));
  }
  return found;
}

Value attribute_or_self(const Value& value, const Value& path) {
  return path.text() == nullptr ? value : attribute(value, *path.text());
}

/// Arguments from a place on.
Arguments after(const Arguments& arguments, size_t place) {
  Arguments rest;
  for (size_t i = place; i < arguments.positional.size(); ++i) rest.positional.push_back(arguments.positional[i]);
  return rest;
}

Value map(const Input& in) {
  const Value path = in.get(SIZE_MAX, "attribute");
  List out;
  if (!in.value.truth()) return out;
  for (const Value& item : in.items()) {
    if (path.text() != nullptr) {
      Value found = attribute(item, *path.text());
      out.push_back(found.undefined() ? in.get(SIZE_MAX, "default") : std::move(found));
    } else {
      out.push_back(apply_filter(in.get(0, "name").str(), item, after(in.arguments, 1), in.line));
    }
  }
  return out;
}

/// Items for which a test holds, or does not; of the item itself, or of one of its attributes.
List selected(const Input& in, bool of_attribute, bool wanted) {
  List out;
  if (!in.value.truth()) return out;
  for (const Value& item : in.items()) {
    const Value tested = of_attribute ? attribute(item, in.get(0, "attribute").str()) : item;
    const Value test = in.get(of_attribute ? 1 : 0, "test");
    const bool holds = test.undefined()
                           ? tested.truth()
                           : apply_test(test.str(), tested, after(in.arguments, of_attribute ? 2 : 1), in.line);
    if (holds == wanted) out.push_back(item);
  }
  return out;
}

Value join(const Input& in) {
  const std::string separator = in.get(0, "d").str();
  const Value path = in.get(1, "attribute");
  std::string out;
  bool first = true;
  for (const Value& item : in.items()) {
    if (!first) out += separator;
    first = false;
    out += attribute_or_self(item, path).str();
  }
  return out;
}

Value length(const Input& in) {
  if (in.value.dict() != nullptr) return static_cast<int64_t>(in.value.dict()->size());
  return static_cast<int64_t>(in.items().size());
}

bool before(const Value& a, const Value& b, bool exactly, int line) {
  const bool texts = a.text() != nullptr && b.text() != nullptr && !exactly;
  const std::optional<int> ordered = texts ? order(lower(*a.text()), lower(*b.text())) : order(a, b);
  if (!ordered) fail_at(line, fmt::format("{} and {} to sort", a.type(), b.type()), "values of one type");
  return *ordered < 0;
}

Value sort(const Input& in) {
  List out = in.items();
  const Value path = in.get(2, "attribute");
  const bool exactly = in.get(1, "case_sensitive").truth();
  std::ranges::stable_sort(out, [&](const Value& a, const Value& b) {
    return before(attribute_or_self(a, path), attribute_or_self(b, path), exactly, in.line);
  });
  if (in.get(0, "reverse").truth()) std::ranges::reverse(out);
  return out;
}

List pairs_of(const Dict& dict) {
  List pairs;
  for (const auto& [key, value] : dict) pairs.emplace_back(List{key, value});
  return pairs;
}

Value dictsort(const Input& in) {
  if (in.value.dict() == nullptr) fail_at(in.line, in.value.type(), "a dict to sort");
  List pairs = pairs_of(*in.value.dict());
  const size_t by = in.get(1, "by").str() == "value" ? 1 : 0;
  const bool exactly = in.get(0, "case_sensitive").truth();
  std::ranges::stable_sort(pairs, [&](const Value& a, const Value& b) {
    return before((*a.list())[by], (*b.list())[by], exactly, in.line);
  });
  if (in.get(2, "reverse").truth()) std::ranges::reverse(pairs);
  return pairs;
}

Value items(const Input& in) {
  if (in.value.undefined()) return List{};
  if (in.value.dict() == nullptr) fail_at(in.line, in.value.type(), "a dict");
  return pairs_of(*in.value.dict());
}

/// The item that comes first in order, or last.
Value outermost(const Input& in, bool largest) {
  const List all = in.items();
  Value found;
  for (const Value& item : all) {
    if (found.undefined() || before(largest ? found : item, largest ? item : found, false, in.line)) found = item;
  }
  return found;
}

Value unique(const Input& in) {
  List out;
  for (const Value& item : in.items()) {
    const bool seen = std::ranges::any_of(out, [&](const Value& old) {
      return old.text() != nullptr && item.text() != nullptr ? lower(*old.text()) == lower(*item.text()) : old == item;
    });
    if (!seen) out.push_back(item);
  }
  return out;
}

/// Lines behind the first moved to the right; the first one too where `first` says so.
Value indent(const Input& in) {
  const Value width = in.get(0, "width");
  const std::string space =
      width.text() != nullptr ? *width.text() : std::string(static_cast<size_t>(width.as_integer().value_or(4)), ' ');
  const bool first = in.get(1, "first").truth(), blank = in.get(2, "blank").truth();
  std::string out;
  size_t number = 0;
  for (const std::string& line : split(in.value.str(), "\n", -1, false)) {
    if (number > 0) out += '\n';
    if (number > 0 ? blank || !line.empty() : first) out += space;
    out += line;
    ++number;
  }
  return out;
}

Value to_integer(const Input& in) {
  if (const std::optional<double> number = in.value.as_real()) return static_cast<int64_t>(*number);
  const std::string text(strip(in.value.str(), "", Side::both));
  int64_t whole = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (error == std::errc() && end == text.data() + text.size()) return whole;
  return in.get(0, "default").as_integer().value_or(0);
}

Value to_real(const Input& in) {
  if (const std::optional<double> number = in.value.as_real()) return *number;
  const std::string text(strip(in.value.str(), "", Side::both));
  double real = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), real);
  if (error == std::errc() && end == text.data() + text.size()) return real;
  return in.get(0, "default").as_real().value_or(0.0);
}

/// Python's "text" % values, of %s, %d and %%.
Value format(const Input& in) {
  const std::string text = in.value.str();
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char kind = text[++i];
    if (kind == '%') {
      out += '%';
    } else if (kind == 's' || kind == 'd') {
      out += in.get(next++, "").str();
    } else {
      fail_at(in.line, fmt::format("%{}", kind), "%s or %d");
    }
  }
  return out;
}

Value round(const Input& in) {
  const double scale = std::pow(10.0, static_cast<double>(in.get(0, "precision").as_integer().value_or(0)));
  return std::nearbyint(in.value.as_real().value_or(0.0) * scale) / scale;
}

Value absolute(const Input& in) {
  if (const auto whole = in.value.as_integer()) return *whole < 0 ? -*whole : *whole;
  return std::abs(in.value.as_real().value_or(0.0));
}

Value sum(const Input& in) {
  Value total = int64_t{0};
  for (const Value& item : in.items()) {
    const Value value = attribute_or_self(item, in.get(0, "attribute"));
    if (total.as_integer() && value.as_integer()) {
      total = *total.as_integer() + *value.as_integer();
    } else {
      total = total.as_real().value_or(0) + value.as_real().value_or(0);
    }
  }
  return total;
}

Value reversed(const Input& in) {
  List out = in.items();
  std::ranges::reverse(out);
  if (in.value.text() == nullptr) return out;
  std::string text;
  for (const Value& character : out) text += *character.text();
  return text;
}

Value first(const Input& in) {
  List all = in.items();
  return all.empty() ? Value() : all.front();
}

Value last(const Input& in) {
  List all = in.items();
  return all.empty() ? Value() : all.back();
}

Value default_of(const Input& in) {
  const bool absent = in.value.undefined() || (in.get(1, "boolean").truth() && !in.value.truth());
  if (!absent) return in.value;
  const Value otherwise = in.get(0, "default_value");
  return otherwise.undefined() ? Value("") : otherwise;
}

Value trim(const Input& in) { return strip(in.value.str(), in.get(0, "chars").str(), Side::both); }

Value replace(const Input& in) {
  return replace_all(in.value.str(), in.get(0, "old").str(), in.get(1, "new").str(),
                     in.get(2, "count").as_integer().value_or(-1));
}

Value json(const Input& in) {
  return to_json(in.value, in.get(1, "indent").as_integer(), in.get(0, "ensure_ascii").truth());
}

using FilterFunction = Value (*)(const Input&);

const std::map<std::string, FilterFunction, std::less<>>& filters() {
  static const std::map<std::string, FilterFunction, std::less<>> all = {
      {"abs", absolute},
      {"capitalize", [](const Input& in) -> Value { return capitalised(in.value.str(), false); }},
      {"count", length},
      {"d", default_of},
      {"default", default_of},
      {"dictsort", dictsort},
      {"e", [](const Input& in) -> Value { return in.value.str(); }},
      {"first", first},
      {"float", to_real},
      {"format", format},
      {"indent", indent},
      {"int", to_integer},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", length},
      {"list", [](const Input& in) -> Value { return in.items(); }},
      {"lower", [](const Input& in) -> Value { return lower(in.value.str()); }},
      {"map", map},
      {"max", [](const Input& in) -> Value { return outermost(in, true); }},
      {"min", [](const Input& in) -> Value { return outermost(in, false); }},
      {"reject", [](const Input& in) -> Value { return selected(in, false, false); }},
      {"rejectattr", [](const Input& in) -> Value { return selected(in, true, false); }},
      {"replace", replace},
      {"reverse", reversed},
      {"round", round},
      {"safe", [](const Input& in) -> Value { return in.value.str(); }},
      {"select", [](const Input& in) -> Value { return selected(in, false, true); }},
      {"selectattr", [](const Input& in) -> Value { return selected(in, true, true); }},
      {"sort", sort},
      {"string", [](const Input& in) -> Value { return in.value.str(); }},
      {"sum", sum},
      {"title", [](const Input& in) -> Value { return capitalised(in.value.str(), true); }},
      {"tojson", json},
      {"trim", trim},
      {"unique", unique},
      {"upper", [](const Input& in) -> Value { return upper(in.value.str()); }},
  };
  return all;
}

}  // namespace

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments, int line) {
  const auto found = filters().find(name);
  if (found == filters().end()) fail_at(line, fmt::format("the filter \"{}\"", name), "one that chat templates use");
  return found->second({.value = value, .arguments = arguments, .line = line});
}

}  // namespace kvarena::jinja

#include "harness/cli/option_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "harness/core/error.h"

namespace kvarena::cli {
namespace {

template <typename T>
constexpr bool is_optional = false;
template <typename T>
constexpr bool is_optional<std::optional<T>> = true;
template <typename T>
constexpr bool is_vector = false;
template <typename T>
constexpr bool is_vector<std::vector<T>> = true;

/// "64", "0.8"; nothing for values that are absent or empty.
struct DefaultText {
  std::string operator()(const bool*) const { return {}; }
  std::string operator()(const std::string* value) const { return *value; }
  std::string operator()(const int64_t* value) const { return fmt::format("{}", *value); }
  std::string operator()(const double* value) const { return fmt::format("{}", *value); }
  std::string operator()(const std::filesystem::path* value) const { return value->string(); }
  template <typename T>
  std::string operator()(const std::optional<T>* value) const {
    return *value ? (*this)(&**value) : std::string{};
  }
  template <typename T>
  std::string operator()(const std::vector<T>*) const {
    return {};
  }
};

struct Parser {
  const Option& option;
  const std::string& text;

  [[noreturn]] void refuse(const std::string& expected) const {
    fail({.place = option.display(), .found = fmt::format("\"{}\"", text), .expected = expected});
  }
  template <typename T>
  void number(T* target, const char* expected) const {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *target);
    if (error != std::errc{} || end != text.data() + text.size()) refuse(expected);
  }
  void operator()(bool* target) const {
    if (text != "true") refuse("no value: the option alone turns it on");
    *target = true;
  }
  void operator()(std::string* target) const { *target = text; }
  void operator()(std::filesystem::path* target) const {
    if (text.empty()) refuse("a path");
    *target = text;
  }
  void operator()(int64_t* target) const { number(target, "an integer"); }
  void operator()(double* target) const {
    number(target, "a number");
    if (!std::isfinite(*target)) refuse("a finite number");
  }
  template <typename T>
  void operator()(std::optional<T>* target) const {
    T value{};
    (*this)(&value);
    *target = std::move(value);
  }
  template <typename T>
  void operator()(std::vector<T>* target) const {
    T value{};
    (*this)(&value);
    target->push_back(std::move(value));
  }
};

}  // namespace

bool Option::takes_many() const {
  return std::visit([](auto* value) { return is_vector<std::remove_pointer_t<decltype(value)>>; }, target);
}

OptionSet::Declared& OptionSet::Declared::help(std::string text) {
  option_->help = std::move(text);
  return *this;
}
OptionSet::Declared& OptionSet::Declared::choices(std::vector<std::string> values) {
  option_->choices = std::move(values);
  return *this;
}
OptionSet::Declared& OptionSet::Declared::required() {
  option_->required = true;
  option_->default_text.clear();
  return *this;
}
OptionSet::Declared& OptionSet::Declared::default_text(std::string text) {
  option_->default_text = std::move(text);
  return *this;
}

OptionSet::Declared OptionSet::flag(std::string name, bool& target) {
  return Declared(options_.emplace_back(Option{.name = std::move(name), .target = &target}));
}

OptionSet::Declared OptionSet::add_option(std::string name, std::string value_name, Target target) {
  Option option{.name = std::move(name), .value_name = std::move(value_name), .target = target};
  option.default_text = std::visit(DefaultText{}, target);
  return Declared(options_.emplace_back(std::move(option)));
}

OptionSet::Declared OptionSet::add_positional(std::string name, Target target) {
  Option option{.name = std::move(name), .target = target, .positional = true};
  const bool may_be_absent =
      std::visit([](auto* value) { return is_optional<std::remove_pointer_t<decltype(value)>>; }, target);
  option.required = !may_be_absent && !option.takes_many();
  return Declared(options_.emplace_back(std::move(option)));
}

std::vector<std::string> OptionSet::names() const {
  std::vector<std::string> list;
  for (const Option& option : options_) {
    if (!option.positional) list.push_back(option.display());
  }
  return list;
}

void assign(const Option& option, const std::vector<std::string>& values) {
  if (values.empty()) {
    if (!option.required) return;
    fail({.place = option.display(),
          .found = "nothing",
          .expected = option.choices.empty() ? (option.help.empty() ? "a value" : option.help)
                                             : fmt::format("one of: {}", fmt::join(option.choices, ", "))});
  }
  if (values.size() > 1 && !option.takes_many() && !option.is_flag()) {
    fail({.place = option.display(), .found = fmt::format("{} values", values.size()), .expected = "it once"});
  }
  for (const std::string& value : values) {
    if (!option.choices.empty() && std::ranges::find(option.choices, value) == option.choices.end()) {
      fail({.place = option.display(),
            .found = fmt::format("\"{}\"", value),
            .expected = fmt::format("one of: {}", fmt::join(option.choices, ", ")),
            .nearest = nearest_name(value, option.choices)});
    }
    std::visit(Parser{option, value}, option.target);
  }
}

}  // namespace kvarena::cli

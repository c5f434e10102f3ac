#include "harness/core/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/core/nested.h"

namespace kvarena {
namespace {

using nlohmann::json;

const char* type_name(ParameterInfo::Type type) {
  switch (type) {
    case ParameterInfo::Type::boolean: return "true or false";
    case ParameterInfo::Type::integer: return "an integer";
    case ParameterInfo::Type::number: return "a number";
    case ParameterInfo::Type::string: return "a string";
    case ParameterInfo::Type::list: return "a list of numbers";
    case ParameterInfo::Type::word_or_list: return "a word or a list of numbers";
    case ParameterInfo::Type::method: return "a name, or an object with a \"name\"";
  }
  return "";
}

/// A number as a person writes it: 0.5, 64, never 64.000000.
std::string number_text(double value) { return fmt::format("{}", value); }

std::string range_text(const ParameterInfo& info) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : " and ") + part; };
  if (info.above) add("above " + number_text(*info.above));
  if (info.min) add("at least " + number_text(*info.min));
  if (info.max) add("at most " + number_text(*info.max));
  if (!info.choices.empty()) {
    std::string list;
    for (const std::string& choice : info.choices) list += (list.empty() ? "\"" : ", \"") + choice + "\"";
    add("one of " + list);
  }
  if (info.type == ParameterInfo::Type::word_or_list) text += ", or a list of numbers";
  return text;
}

std::string expected_text(const ParameterInfo& info) {
  std::string range = range_text(info);
  if (!info.choices.empty()) return range;
  return range.empty() ? type_name(info.type) : fmt::format("{} {}", type_name(info.type), range);
}

/// How a value is written, where that is not plain.
std::string form_of(const ParameterInfo& info) {
  if (info.type != ParameterInfo::Type::method) return {};
  return R"(write {"name": METHOD, ...} in a config, (METHOD:setting=value) on a command line)";
}

bool in_range(const ParameterInfo& info, double value) {
  return (!info.min || value >= *info.min) && (!info.max || value <= *info.max) && (!info.above || value > *info.above);
}

/// Reads one value; false when the JSON has another type or a value outside the declared range. A nested component
/// adds its own problems, which start with `place`.
struct Reader {
  const ParameterInfo& info;
  const json& value;
  const std::string& place;
  std::vector<std::string>& problems;

  bool operator()(bool* target) const {
    if (!value.is_boolean()) return false;
    *target = value.get<bool>();
    return true;
  }
  bool operator()(int64_t* target) const {
    if (!value.is_number_integer() || !in_range(info, value.get<double>())) return false;
    if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return false;
    *target = value.get<int64_t>();
    return true;
  }
  bool operator()(double* target) const {
    if (!value.is_number() || !in_range(info, value.get<double>())) return false;
    *target = value.get<double>();
    return true;
  }
  bool operator()(std::string* target) const {
    if (!value.is_string()) return false;
    const auto& text = value.get_ref<const std::string&>();
    if (!info.choices.empty() && std::ranges::find(info.choices, text) == info.choices.end()) return false;
    *target = text;
    return true;
  }
  template <typename T>
  bool operator()(std::vector<T>* target) const {
    if (!value.is_array()) return false;
    std::vector<T> list;
    for (const json& item : value) {
      T element{};
      if (!Reader{info, item, place, problems}(&element)) return false;
      list.push_back(element);
    }
    *target = std::move(list);
    return true;
  }
  template <typename T>
  bool operator()(std::optional<T>* target) const {
    T element{};
    if (!Reader{info, value, place, problems}(&element)) return false;
    *target = element;
    return true;
  }
  bool operator()(WordOrNumbers* target) const {
    if (value.is_string()) return (*this)(&target->emplace<std::string>());
    return (*this)(&target->emplace<std::vector<int64_t>>());
  }
  bool operator()(NestedComponent* target) const {
    const bool whole = value.is_object() && value.contains("name") && value["name"].is_string();
    if (!whole && !value.is_string()) return false;
    target->build(whole ? value : json{{"name", value}}, place, problems);
    return true;
  }
};

struct DefaultText {
  std::string operator()(const NestedComponent* value) const { return *value ? value->settings() : "null"; }
  std::string operator()(const WordOrNumbers* value) const {
    return std::visit([](const auto& either) { return json(either).dump(); }, *value);
  }
  template <typename T>
  std::string operator()(const std::optional<T>* value) const {
    return *value ? json(**value).dump() : "null";
  }
  template <typename T>
  std::string operator()(const T* value) const {
    return json(*value).dump();
  }
};

}  // namespace

std::string describe(const ParameterInfo& info) {
  std::string text = expected_text(info);
  if (info.required) return text + ", required";
  return info.default_json == "null" ? text + ", optional" : fmt::format("{}, default {}", text, info.default_json);
}

ParameterVisitor::Declared ParameterVisitor::declare(std::string name, ParameterInfo::Type type, Target target) {
  ParameterInfo info;
  info.name = std::move(name);
  info.type = type;
  info.default_json = std::visit(DefaultText{}, target);
  infos_.push_back(std::move(info));
  targets_.push_back(target);
  return Declared(*this, infos_.size() - 1);
}

using Type = ParameterInfo::Type;
using Declared = ParameterVisitor::Declared;

Declared ParameterVisitor::operator()(std::string name, bool& v) { return declare(std::move(name), Type::boolean, &v); }
Declared ParameterVisitor::operator()(std::string name, int64_t& v) {
  return declare(std::move(name), Type::integer, &v);
}
Declared ParameterVisitor::operator()(std::string name, double& v) {
  return declare(std::move(name), Type::number, &v);
}
Declared ParameterVisitor::operator()(std::string name, std::string& v) {
  return declare(std::move(name), Type::string, &v);
}
Declared ParameterVisitor::operator()(std::string name, std::vector<int64_t>& v) {
  return declare(std::move(name), Type::list, &v);
}
Declared ParameterVisitor::operator()(std::string name, std::vector<double>& v) {
  return declare(std::move(name), Type::list, &v);
}
Declared ParameterVisitor::operator()(std::string name, WordOrNumbers& v) {
  return declare(std::move(name), Type::word_or_list, &v);
}
Declared ParameterVisitor::operator()(std::string name, std::optional<int64_t>& v) {
  return declare(std::move(name), Type::integer, &v);
}
Declared ParameterVisitor::operator()(std::string name, std::optional<double>& v) {
  return declare(std::move(name), Type::number, &v);
}
Declared ParameterVisitor::operator()(std::string name, NestedComponent& v) {
  return declare(std::move(name), Type::method, &v);
}

void ParameterVisitor::derive(NestedComponent& component, std::function<std::string()> settings) {
  derived_.emplace_back(&component, std::move(settings));
}

Declared& Declared::min(double value) {
  visitor_->infos_[index_].min = value;
  return *this;
}
Declared& Declared::max(double value) {
  visitor_->infos_[index_].max = value;
  return *this;
}
Declared& Declared::above(double value) {
  visitor_->infos_[index_].above = value;
  return *this;
}
Declared& Declared::one_of(std::vector<std::string> choices) {
  visitor_->infos_[index_].choices = std::move(choices);
  return *this;
}
Declared& Declared::doc(std::string text) {
  visitor_->infos_[index_].doc = std::move(text);
  return *this;
}
Declared& Declared::required() {
  visitor_->infos_[index_].required = true;
  return *this;
}

std::vector<ParameterInfo> list_parameters(const std::function<void(ParameterVisitor&)>& declare) {
  ParameterVisitor visitor;
  declare(visitor);
  return std::move(visitor.infos_);
}

std::vector<std::string> read_parameters(const json& object, const std::string& place,
                                         const std::function<void(ParameterVisitor&)>& declare,
                                         const std::vector<std::string>& ignored) {
  ParameterVisitor visitor;
  declare(visitor);
  if (!object.is_object()) return {describe(ErrorParts{place, object.dump(), "an object", "", ""})};

  std::vector<std::string> names;
  for (const ParameterInfo& info : visitor.infos_) names.push_back(info.name);

  std::vector<std::string> problems;
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(ignored, key) != ignored.end()) continue;
    const auto it = std::ranges::find(names, key);
    const std::string where = fmt::format("{}.{}", place, key);
    if (it == names.end()) {
      problems.push_back(describe(ErrorParts{where, "an unknown key", fmt::format("one of: {}", fmt::join(names, ", ")),
                                             nearest_name(key, names), ""}));
      continue;
    }
    const auto index = static_cast<size_t>(it - names.begin());
    if (!std::visit(Reader{visitor.infos_[index], value, where, problems}, visitor.targets_[index])) {
      problems.push_back(describe(
          ErrorParts{where, value.dump(), expected_text(visitor.infos_[index]), "", form_of(visitor.infos_[index])}));
    }
  }
  for (const ParameterInfo& info : visitor.infos_) {
    if (info.required && !object.contains(info.name)) {
      problems.push_back(describe(
          ErrorParts{fmt::format("{}.{}", place, info.name), "nothing", expected_text(info), "", form_of(info)}));
    }
  }
  for (const auto& [component, settings] : visitor.derived_) {
    if (problems.empty()) component->build(json::parse(settings()), place, problems);
  }
  return problems;
}

}  // namespace kvarena

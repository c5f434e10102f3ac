#include "harness/method/python/part.h"

#include <fmt/format.h>

#include "harness/core/error.h"

namespace kvarena {
namespace {

using nlohmann::json;

std::variant<bool, int64_t, double, std::string> value_of(const json& text, ParameterInfo::Type type) {
  switch (type) {
    case ParameterInfo::Type::boolean: return text.get<bool>();
    case ParameterInfo::Type::integer: return text.get<int64_t>();
    case ParameterInfo::Type::number: return text.get<double>();
    default: return text.get<std::string>();
  }
}

ParameterInfo::Type type_of(const std::string& name) {
  if (name == "bool") return ParameterInfo::Type::boolean;
  if (name == "int") return ParameterInfo::Type::integer;
  return name == "float" ? ParameterInfo::Type::number : ParameterInfo::Type::string;
}

std::optional<double> bound(const json& parameter, const char* key) {
  return parameter.contains(key) ? std::optional(parameter[key].get<double>()) : std::nullopt;
}

}  // namespace

PythonPart::PythonPart(std::shared_ptr<PythonChild> child, const json& description)
    : child_(std::move(child)), name_(description.at("name").get<std::string>()) {
  for (const json& parameter : description.at("parameters")) {
    const ParameterInfo::Type type = type_of(parameter.at("type").get<std::string>());
    parameters_.push_back({.info = {.name = parameter.at("name").get<std::string>(),
                                    .type = type,
                                    .min = bound(parameter, "min"),
                                    .max = bound(parameter, "max"),
                                    .choices = parameter.value("choices", std::vector<std::string>{}),
                                    .doc = parameter.value("doc", "")},
                           .value = value_of(parameter.at("default"), type)});
  }
}

void PythonPart::parameters(ParameterVisitor& p) {
  for (Parameter& parameter : parameters_) {
    const ParameterInfo& info = parameter.info;
    auto declared = std::visit([&](auto& value) { return p(info.name, value); }, parameter.value);
    declared.doc(info.doc);
    if (info.min) declared.min(*info.min);
    if (info.max) declared.max(*info.max);
    if (!info.choices.empty()) declared.one_of(info.choices);
  }
}

json PythonPart::request(const char* verb) const {
  json settings = json::object();
  for (const Parameter& parameter : parameters_) {
    std::visit([&](const auto& value) { settings[parameter.info.name] = value; }, parameter.value);
  }
  return {{verb, name_}, {"settings", std::move(settings)}};
}

const json& PythonPart::made() const {
  json wanted = request("make");
  if (made_.is_null() || made_by_ != wanted) {
    made_ = child_->make(wanted);
    made_by_ = std::move(wanted);
  }
  return made_;
}

void PythonPart::check(const std::string& place, std::vector<std::string>& problems) const {
  try {
    (void)made();
  } catch (const UserError& error) {
    problems.push_back(fmt::format("{}: {}", place, error.what()));
  }
}

}  // namespace kvarena

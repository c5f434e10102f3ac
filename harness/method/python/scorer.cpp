#include "harness/method/python/scorer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <map>

#include "harness/core/error.h"

namespace kvarena {
namespace {

using nlohmann::json;

at::Tensor doubles(const std::vector<double>& values, const std::vector<int64_t>& shape) {
  return at::tensor(values, at::kDouble).view(shape);
}

/// A tensor that kvarena.Layer asks for.
at::Tensor tensor_for(const LayerView& layer, const json& wish) {
  const auto what = wish.at("want").get<std::string>();
  const int64_t argument = wish.value("argument", int64_t{0});
  using Source = at::Tensor (*)(const LayerView&, int64_t);
  static const std::map<std::string, Source> sources = {
      {"keys", [](const LayerView& view, int64_t) { return view.keys(); }},
      {"values", [](const LayerView& view, int64_t) { return view.values(); }},
      {"positions", [](const LayerView& view, int64_t) { return view.positions(); }},
      {"prompt_attention", [](const LayerView& view, int64_t) { return view.prompt_attention(); }},
      {"window_attention", [](const LayerView& view, int64_t window) { return view.window_attention(window); }},
      {"hidden", [](const LayerView& view, int64_t) { return view.hidden(); }},
      {"output_projection", [](const LayerView& view, int64_t) { return view.output_projection(); }},
      {"future_attention", [](const LayerView& view, int64_t) { return view.future_attention(); }},
      {"query_mean",
       [](const LayerView& view, int64_t left_out) {
         return doubles(view.query_moments(left_out).mean, {view.q_heads(), view.head_dim()});
       }},
      {"query_covariance",
       [](const LayerView& view, int64_t left_out) {
         return doubles(view.query_moments(left_out).covariance, {view.q_heads(), view.head_dim(), view.head_dim()});
       }},
      {"rotation",
       [](const LayerView& view, int64_t) {
         const std::vector<double>& inverse = view.model().rotation_of(view.layer()).inverse;
         return doubles(inverse, {static_cast<int64_t>(inverse.size())});
       }},
      {"rotation_magnitude", [](const LayerView& view, int64_t) {
         return doubles({view.model().rotation_of(view.layer()).magnitude}, {1});
       }}};
  return sources.at(what)(layer, argument);
}

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

PythonScorer::PythonScorer(std::shared_ptr<PythonChild> child, const json& description)
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

void PythonScorer::parameters(ParameterVisitor& p) {
  for (Parameter& parameter : parameters_) {
    const ParameterInfo& info = parameter.info;
    auto declared = std::visit([&](auto& value) { return p(info.name, value); }, parameter.value);
    declared.doc(info.doc);
    if (info.min) declared.min(*info.min);
    if (info.max) declared.max(*info.max);
    if (!info.choices.empty()) declared.one_of(info.choices);
  }
}

json PythonScorer::settings() const {
  json object = json::object();
  for (const Parameter& parameter : parameters_) {
    std::visit([&](const auto& value) { object[parameter.info.name] = value; }, parameter.value);
  }
  return object;
}

const json& PythonScorer::made() const {
  json wanted = settings();
  if (made_.is_null() || made_of_ != wanted) {
    made_ = child_->ask({{"make", name_}, {"settings", wanted}});
    made_of_ = std::move(wanted);
  }
  return made_;
}

void PythonScorer::check(const std::string& place, std::vector<std::string>& problems) const {
  try {
    (void)made();
  } catch (const UserError& error) {
    problems.push_back(fmt::format("{}: {}", place, error.what()));
  }
}

Needs PythonScorer::needs() const {
  const json& needs = made().at("needs");
  return {.prompt_attention = needs.at("prompt_attention").get<bool>(),
          .window = needs.at("window").get<int64_t>(),
          .hidden = needs.at("hidden").get<bool>(),
          .output_projection = needs.at("output_projection").get<bool>(),
          .future = needs.at("future").get<int64_t>(),
          .query_moments = needs.at("query_moments").get<std::vector<int64_t>>()};
}

Protection PythonScorer::protect(int64_t /*budget*/) const {
  const json& protect = made().at("protect");
  return {.sinks = protect.at("sinks").get<int64_t>(), .recent = protect.at("recent").get<int64_t>()};
}

at::Tensor PythonScorer::score(const LayerView& layer) const {
  const json request = {{"score", name_},
                        {"settings", settings()},
                        {"layer", layer.layer()},
                        {"layers", layer.layers()},
                        {"n", layer.n()},
                        {"kv_heads", layer.kv_heads()},
                        {"q_heads", layer.q_heads()},
                        {"head_dim", layer.head_dim()},
                        {"first_head", layer.first_head()},
                        {"prompt_tokens", layer.prompt_tokens()},
                        {"decoding", layer.decoding()}};
  return child_->ask_tensor(request, [&](const json& wish) { return tensor_for(layer, wish); });
}

}  // namespace kvarena

#include "harness/method/python/scorer.h"

#include <ATen/ATen.h>

#include <map>

#include "harness/method/python/entry_tensors.h"

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
      {"query_covariance", [](const LayerView& view, int64_t left_out) {
         return doubles(view.query_moments(left_out).covariance, {view.q_heads(), view.head_dim(), view.head_dim()});
       }}};
  if (what.starts_with("rotation")) return rotation_tensor(what, layer.model().rotation_of(layer.layer()));
  return sources.at(what)(layer, argument);
}

}  // namespace

Needs PythonScorer::needs() const {
  const json& needs = part_.made().at("needs");
  return {.prompt_attention = needs.at("prompt_attention").get<bool>(),
          .window = needs.at("window").get<int64_t>(),
          .hidden = needs.at("hidden").get<bool>(),
          .output_projection = needs.at("output_projection").get<bool>(),
          .future = needs.at("future").get<int64_t>(),
          .query_moments = needs.at("query_moments").get<std::vector<int64_t>>()};
}

Protection PythonScorer::protect(int64_t /*budget*/) const {
  const json& protect = part_.made().at("protect");
  return {.sinks = protect.at("sinks").get<int64_t>(), .recent = protect.at("recent").get<int64_t>()};
}

at::Tensor PythonScorer::score(const LayerView& layer) const {
  json request = part_.request("score");
  request.update({{"layer", layer.layer()},
                  {"layers", layer.layers()},
                  {"n", layer.n()},
                  {"kv_heads", layer.kv_heads()},
                  {"q_heads", layer.q_heads()},
                  {"head_dim", layer.head_dim()},
                  {"first_head", layer.first_head()},
                  {"prompt_tokens", layer.prompt_tokens()},
                  {"share", layer.share()},
                  {"model", layer.model().file},
                  {"decoding", layer.decoding()}});
  return part_.child()->ask_tensor(request, [&](const json& wish) { return tensor_for(layer, wish); }).select(0, 0);
}

}  // namespace kvarena

#include "harness/method/method.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "harness/method/fitter.h"

namespace kvarena {

std::unique_ptr<Fitter> MethodPart::fitter() const { return nullptr; }

int64_t LayerContext::rank() const {
  return peers.empty() ? layer : std::ranges::lower_bound(peers, layer) - peers.begin();
}

void Method::settings(ParameterVisitor& p) {
  parameters(p);
  if (chooses_) layers_.parameters(p);
}

void Method::choose_layers() {
  layers_ = LayerChoice::without_windows();
  chooses_ = true;
}

void check_within(const Nested<Method>& inner, const std::string& place, std::vector<std::string>& problems) {
  if (!inner || !nlohmann::json::parse(inner.settings()).contains("layers")) return;
  problems.push_back(describe({.place = place + ".layers",
                               .found = "layers of a method within another",
                               .expected = "none: it acts on the layers of that",
                               .action = "write \"layers\" outside"}));
}

Needs Method::asks() const {
  Needs needs = this->needs();
  needs.sliding = looks_behind_windows();
  return needs;
}

const char* to_string(Family family) {
  switch (family) {
    case Family::reference: return "reference";
    case Family::compression: return "compression";
    case Family::retrieval: return "retrieval";
    case Family::prefill: return "prefill";
    case Family::reuse: return "reuse";
    case Family::eviction: return "eviction";
    case Family::verification: return "verification";
  }
  return "";
}

Activity& Activity::operator+=(const Activity& other) {
  entries_dropped += other.entries_dropped;
  entries_packed += other.entries_packed;
  entries_skipped += other.entries_skipped;
  tokens_drafted += other.tokens_drafted;
  tokens_accepted += other.tokens_accepted;
  tokens_reused += other.tokens_reused;
  traffic += other.traffic;
  return *this;
}

namespace {

template <typename T>
std::vector<T> united(std::vector<T> a, const std::vector<T>& b) {
  for (const T& item : b) {
    if (std::ranges::find(a, item) == a.end()) a.push_back(item);
  }
  return a;
}

PromptStatistics united(PromptStatistics a, const PromptStatistics& b) {
  for (const auto& item : b) {
    if (std::ranges::find(a, item->id(), &PromptStatistic::id) == a.end()) a.push_back(item);
  }
  return a;
}

}  // namespace

int64_t tapped_layer(Tap tap, int64_t layers) {
  const auto behind = [&](int64_t input_of) { return std::clamp<int64_t>(input_of - 1, 0, layers - 1); };
  switch (tap) {
    case Tap::low: return behind(2);
    case Tap::middle: return behind(layers / 2);
    case Tap::high: return behind(layers - 3);
    case Tap::last: return layers - 1;
  }
  return 0;
}

Needs combine(const Needs& a, const Needs& b) {
  return {.prompt_attention = a.prompt_attention || b.prompt_attention,
          .window = std::max(a.window, b.window),
          .step_attention = a.step_attention || b.step_attention,
          .hidden = a.hidden || b.hidden,
          .output_projection = a.output_projection || b.output_projection,
          .step_hidden = a.step_hidden || b.step_hidden,
          .future = std::max(a.future, b.future),
          .query_moments = united(a.query_moments, b.query_moments),
          .taps = united(a.taps, b.taps),
          .reconstructions = united(a.reconstructions, b.reconstructions),
          .restorations = united(a.restorations, b.restorations),
          .statistics = united(a.statistics, b.statistics),
          .sliding = a.sliding || b.sliding};
}

}  // namespace kvarena

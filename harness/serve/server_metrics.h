#pragma once
// Counts of a server, and their text for Prometheus.

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "harness/engine/serving/serve.h"

namespace kvarena::serve {

/// A request that left the engine.
struct ServedCount {
  std::string model;
  serving::Outcome outcome = serving::Outcome::answered;
  int64_t prompt_tokens = 0;
  int64_t answer_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, from entries of earlier prompts
  std::optional<double> first_token_s;
  double seconds = 0;  // from arrival to departure
};

/// The engine's load at a time.
struct EngineLoad {
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t reserved_bytes = 0;
  int64_t passes = 0;  // since it began
};

/// Any thread may use it.
class ServerMetrics {
 public:
  void add(const ServedCount& request);
  void set_load(const EngineLoad& load);
  /// Notes the status that a client got.
  void add_status(int status);
  /// Text exposition format, version 0.0.4.
  [[nodiscard]] std::string text() const;

 private:
  /// Counts of durations up to each bound, the last one without.
  struct Histogram {
    static constexpr std::array kBounds = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0};
    std::array<int64_t, kBounds.size() + 1> counts{};
    double sum = 0;
    void add(double seconds);
    void write(std::string& text, const std::string& name, const std::string& model) const;
  };
  struct Model {
    std::map<serving::Outcome, int64_t> requests;
    int64_t prompt_tokens = 0;
    int64_t answer_tokens = 0;
    int64_t cached_tokens = 0;
    Histogram first_token, whole;
  };

  mutable std::mutex mutex_;
  std::map<std::string, Model> models_;
  std::map<int, int64_t> statuses_;
  EngineLoad load_;
};

}  // namespace kvarena::serve

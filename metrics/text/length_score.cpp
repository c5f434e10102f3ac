#include "metrics/text/length_score.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/core/error.h"
#include "metrics/registry.h"
#include "metrics/unicode/code_points.h"

namespace kvarena::metrics {
namespace {

int64_t required_length(const nlohmann::json& extras) {
  const auto found = extras.find("required_length");
  if (found != extras.end() && found->is_number_integer() && found->get<int64_t>() > 0) return found->get<int64_t>();
  fail({.place = "metric \"length_score\": extras.required_length",
        .found = found == extras.end() ? "nothing" : found->dump(),
        .expected = "a positive number of words",
        .action = "LongBench-Write rows carry it as length"});
}

MetricScore score(const MetricInput& input) {
  const int64_t required = required_length(input.extras);
  const int64_t produced = longwriter_word_count(input.prediction);
  return {longwriter_length_score(required, produced) / 100, {{"words", static_cast<double>(produced)}}, {}};
}

nlohmann::json recompute_length(const nlohmann::json& row, const VectorContext&) {
  return {{"expected", longwriter_length_score(row.at("required_length").get<int64_t>(),
                                               row.at("response_length").get<int64_t>())}};
}

nlohmann::json recompute_words(const nlohmann::json& row, const VectorContext&) {
  return {{"expected", longwriter_word_count(row.at("text").get_ref<const std::string&>())}};
}

}  // namespace

int64_t longwriter_word_count(std::string_view text) {
  int64_t count = 0;
  bool in_run = false;  // inside a run of word characters
  bool latin = false;   // all of the run so far are ASCII letters
  for (size_t i = 0; i <= text.size();) {
    const bool end = i == text.size();
    const char32_t c = end ? U' ' : next_code_point(text, i);
    const bool letter = (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z');
    count += c >= 0x4E00 && c <= 0x9FFF;
    if (is_word(c)) {
      latin = letter && (latin || !in_run);
      in_run = true;
    } else {
      count += in_run && latin;
      in_run = latin = false;
    }
    if (end) break;
  }
  return count;
}

double longwriter_length_score(int64_t required, int64_t produced) {
  if (produced <= 0 || required <= 0) return 0;  // the official code divides by zero
  const auto x = static_cast<double>(required);
  const auto y = static_cast<double>(produced);
  return y > x ? 100 * std::max(0.0, 1 - (y / x - 1) / 3) : 100 * std::max(0.0, 1 - (x / y - 1) / 2);
}

KVARENA_METRIC(
    {.id = "length_score",
     .title = "Length score S_l",
     .summary = "LongBench-Write: 1 at the required length, falling linearly to 0 at four times or a third of it. "
                "Needs required_length.",
     .source = "THUDM/LongWriter @3fcfdff4 evaluation/eval_length.py, pred.py count_words",
     .score = score,
     .vectors = {{"longwriter_length_score", recompute_length}, {"longwriter_count_words", recompute_words}}});

}  // namespace kvarena::metrics

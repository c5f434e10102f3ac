#include "metrics/text/qa_f1.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "metrics/per_answer.h"
#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

std::string without_punctuation(std::string text) {
  std::erase_if(text, [](char c) { return is_ascii_punctuation(static_cast<unsigned char>(c)); });
  return text;
}

// \b(a|an|the)\b -> " ": whole runs of word characters that are one of `blanked`.
std::string without(std::string_view text, std::span<const std::string_view> blanked) {
  std::string out;
  out.reserve(text.size());
  size_t start = 0;
  const auto take_run = [&](size_t end) {
    const std::string_view run = text.substr(start, end - start);
    const bool leaves = std::ranges::find(blanked, run) != blanked.end();
    out.append(leaves ? std::string_view(" ") : run);
  };
  for (size_t i = 0; i < text.size();) {
    const size_t here = i;
    if (is_word(next_code_point(text, i))) continue;
    take_run(here);
    out.append(text.substr(here, i - here));
    start = i;
  }
  take_run(text.size());
  return out;
}

double qa_f1_of(std::string_view prediction, std::string_view answer, const nlohmann::json&) {
  return qa_f1(prediction, answer);
}

}  // namespace

std::vector<std::string> normalized_words(std::string_view text, std::span<const std::string_view> blanked) {
  return split_white_space(without(without_punctuation(lower(text)), blanked));
}

std::string normalized_text(std::string_view text) { return fmt::format("{}", fmt::join(normalized_words(text), " ")); }

PrecisionRecallF bag_f1(std::vector<std::string> predicted, std::vector<std::string> wanted) {
  std::sort(predicted.begin(), predicted.end());
  std::sort(wanted.begin(), wanted.end());
  size_t common = 0;
  for (size_t i = 0, j = 0; i < predicted.size() && j < wanted.size();) {
    const int order = predicted[i].compare(wanted[j]);
    if (order == 0) ++common;
    if (order <= 0) ++i;
    if (order >= 0) ++j;
  }
  if (common == 0) return {};
  const double precision = static_cast<double>(common) / static_cast<double>(predicted.size());
  const double recall = static_cast<double>(common) / static_cast<double>(wanted.size());
  return {precision, recall, (2 * precision * recall) / (precision + recall)};
}

double qa_f1(std::string_view prediction, std::string_view answer) {
  return bag_f1(normalized_words(prediction), normalized_words(answer)).f;
}

KVARENA_METRIC({.id = "qa_f1",
                .title = "Answer token F1",
                .summary = "F1 of the bags of words of prediction and answer after lower-casing and deleting ASCII "
                           "punctuation and articles; best over the answers. Verbose answers lose precision.",
                .source = "THUDM/LongBench @2e00731f LongBench/metrics.py qa_f1_score",
                .score = best_over_references<qa_f1_of>,
                .vectors = {{"qa_f1", recompute_per_answer<qa_f1_of>}}});

}  // namespace kvarena::metrics

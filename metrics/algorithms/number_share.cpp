#include "metrics/algorithms/number_share.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/core/error.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {

double number_share(std::string_view prediction, std::string_view number) {
  const auto runs = digit_runs(prediction);
  if (runs.empty()) return 0.0;
  return static_cast<double>(std::count(runs.begin(), runs.end(), number)) / static_cast<double>(runs.size());
}

std::string_view number_after(std::string_view answer, std::string_view label) {
  for (size_t at = answer.find(label); at != std::string_view::npos; at = answer.find(label, at + 1)) {
    const size_t digits = at + label.size();
    const std::string_view run = first_digit_run(answer, digits);
    if (!run.empty() && run.data() == answer.data() + digits) return run;
  }
  fail({.place = "reference answer",
        .found = fmt::format("\"{}\"", answer.substr(0, 80)),
        .expected = fmt::format("\"{}\" followed by a number", label)});
}

}  // namespace kvarena::metrics

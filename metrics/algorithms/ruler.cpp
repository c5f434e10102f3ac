#include "metrics/algorithms/ruler.h"

#include <algorithm>

#include "metrics/unicode/code_points.h"
#include "metrics/unicode/python_text.h"

namespace kvarena::metrics {
namespace {

int64_t found_in(std::string_view prediction, std::span<const std::string> references) {
  const std::string text = lower(ruler_postprocess(prediction));
  return std::count_if(references.begin(), references.end(),
                       [&](const std::string& reference) { return contains(text, lower(reference)); });
}

}  // namespace

std::string ruler_postprocess(std::string_view prediction) {
  std::string text(strip(prediction));
  for (char& c : text) c = static_cast<unsigned char>(c) < 0x20 ? '\n' : c;
  return std::string(strip(text));
}

double string_match_all(std::string_view prediction, std::span<const std::string> references) {
  if (references.empty()) return 0;
  return static_cast<double>(found_in(prediction, references)) / static_cast<double>(references.size());
}

double string_match_part(std::string_view prediction, std::span<const std::string> references) {
  return found_in(prediction, references) > 0 ? 1.0 : 0.0;
}

}  // namespace kvarena::metrics

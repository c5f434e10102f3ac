#include "harness/results/left_out.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace kvarena::results {

std::string left_out_text(const CellRecord& cell) {
  using nlohmann::json;
  if (cell.left_out_samples == 0) return "";
  const json card = json::parse(cell.protocol_json, nullptr, /*allow_exceptions=*/false);
  const bool said = card.is_object() && card.contains("window");
  return fmt::format("{} beyond the window{}", cell.left_out_samples,
                     said ? fmt::format(" of {}", card["window"].dump()) : "");
}

}  // namespace kvarena::results

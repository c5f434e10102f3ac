#pragma once
// Test vectors: rows that carry a metric's inputs and what the official code made of them.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace kvarena::metrics {

struct VectorOptions {
  double tolerance = 1e-6;  ///< numbers agree when |found - expected| <= tolerance
  /// Where rows that vectors refer to are; empty: the folder above the one the vector file is in.
  std::filesystem::path data_folder;
};

struct VectorMismatch {
  std::string place;     ///< "qa_f1.jsonl:3 qa_f1-d02"
  std::string field;     ///< "expected.per_round[1].emitted"
  std::string expected;  ///< as JSON
  std::string found;     ///< as JSON, or "nothing"
};

struct VectorReport {
  int64_t rows = 0;
  std::map<std::string, int64_t> rows_of;  ///< by metric's id
  std::vector<VectorMismatch> mismatches;
};

/// Recomputes every row of a JSONL file {"id", "metric", inputs..., "expected...": ...} and compares each member whose
/// name begins with "expected" and that is not one of the metric's inputs. Throws UserError naming file and line for a
/// row that is not JSON (of Python's sort, which knows NaN), has no metric or one nobody registered, or lacks an input.
[[nodiscard]] VectorReport check_vectors(const std::filesystem::path& file, const VectorOptions& options = {});

}  // namespace kvarena::metrics

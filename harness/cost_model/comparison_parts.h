#pragma once
// Inside this folder: the kinds of comparisons, each reading the rows of its files.

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/core/parameters.h"
#include "harness/cost_model/comparison.h"
#include "harness/cost_model/hardware.h"
#include "harness/cost_model/model_shape.h"
#include "harness/cost_model/roofline.h"

namespace kvarena::cost_model {

/// Makes the figures of a row.
using CompareRow = std::function<std::vector<ComparedFigure>(const nlohmann::json& row, const std::string& row_place)>;

/// Reader of one file's rows: shared keys, machines, models, problems.
class ComparisonReader {
 public:
  ComparisonReader(nlohmann::json whole, std::string place, DescriptionFolders folders);

  [[nodiscard]] const nlohmann::json& whole() const { return whole_; }
  [[nodiscard]] const std::string& place() const { return place_; }
  /// Figures of all rows: `compare` returns those of a row, with the file's "all" as defaults of its keys, at its
  /// place. Of a figure with an unknown input, `least` and `most` are over the row and the row changed as each object
  /// of the unknown's "at" says.
  [[nodiscard]] std::vector<ComparedFigure> each_row(const CompareRow& compare) const;

  /// The machine and model by the keys "hardware" and "shape" of a row, with the file's own "efficiency".
  [[nodiscard]] Hardware hardware(const nlohmann::json& row, const std::string& row_place);
  [[nodiscard]] ModelShape shape(const nlohmann::json& row, const std::string& row_place);
  [[nodiscard]] const std::vector<std::string>& inputs() const { return inputs_; }

  /// The figures of a row whose key "published" or "shown" names some of `modelled`, in this order. "shown" lists
  /// quantities that the paper draws without printing them, "derived" has ratios of printed numbers that it does not
  /// print, and "repeats" says which file has a published figure already. "unknown" names one of the file's "unknowns".
  /// A range is printed as [low, high].
  [[nodiscard]] std::vector<ComparedFigure> compare(
      const nlohmann::json& row, const std::string& row_place,
      const std::vector<std::pair<std::string, std::optional<double>>>& modelled) const;

 private:
  [[nodiscard]] nlohmann::json row(size_t index, const std::string& place) const;
  void note_input(const std::string& line);
  [[nodiscard]] const nlohmann::json& unknown(const std::string& key, const std::string& key_place) const;
  [[nodiscard]] std::multimap<std::string, double> at_unknowns(const nlohmann::json& row, const std::string& row_place,
                                                               const CompareRow& compare) const;

  nlohmann::json whole_;
  std::string place_;
  DescriptionFolders folders_;
  std::vector<std::string> inputs_;
};

/// The key "scheme" of a row, full KV where it is absent; `parameters` declares the row's own keys. Throws UserError
/// with all problems of both.
[[nodiscard]] CacheScheme read_row_and_scheme(const nlohmann::json& row, const std::string& row_place,
                                              const std::function<void(ParameterVisitor&)>& parameters);

/// Batches and rates of plain decoding under a cache scheme.
[[nodiscard]] std::vector<ComparedFigure> compare_decoding(ComparisonReader& reader);
/// Draft and verify over a host link (Appendix B.1).
[[nodiscard]] std::vector<ComparedFigure> compare_staggered(ComparisonReader& reader);
/// Draft remotely, verify beside the store (Appendix B.2).
[[nodiscard]] std::vector<ComparedFigure> compare_remote_prefix(ComparisonReader& reader);
/// Transfers over the host link, beside the time of a step and of a layer.
[[nodiscard]] std::vector<ComparedFigure> compare_transfers(ComparisonReader& reader);
/// Stored caches on tiers.
[[nodiscard]] std::vector<ComparedFigure> compare_placement(ComparisonReader& reader);

}  // namespace kvarena::cost_model

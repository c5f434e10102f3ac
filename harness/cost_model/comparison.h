#pragma once
// Published figures beside modelled ones, from a file that states the inputs: configs/modelled/*.json.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::cost_model {

/// How far a modelled figure may lie from the published one before the file must name the input that is not known.
inline constexpr double kHeadlineTolerance = 0.15;

struct ComparedFigure {
  std::string row;
  std::string quantity;             // "batch", "tokens/s", "speed-up", "seconds", "quality"
  std::optional<double> published;  // absent where the paper draws the figure and prints no number
  double modelled = 0;
  std::string unknown;  // what the paper does not state and would explain the gap; "" where nothing needs to be

  /// modelled / published - 1; 0 where nothing is printed.
  [[nodiscard]] double difference() const { return published ? modelled / *published - 1 : 0; }
  [[nodiscard]] bool within_tolerance() const;
};

struct Comparison {
  std::string name;  // of the file
  std::string title;
  std::string source;                   // where the published figures stand
  std::vector<std::string> paragraphs;  // what is modelled and what is assumed
  std::vector<std::string> inputs;      // machines, models, shares of peaks, as lines
  std::vector<ComparedFigure> figures;
};

/// Where hardware and shapes are found by name.
struct DescriptionFolders {
  std::filesystem::path hardware;
  std::filesystem::path shapes;
};

/// Reads a file and models its rows. Throws UserError with file and key.
[[nodiscard]] Comparison read_comparison(const std::filesystem::path& file, const DescriptionFolders& folders);

/// A page: how many figures are within tolerance, then a table for each comparison.
[[nodiscard]] std::string comparison_page(const std::vector<Comparison>& comparisons);

}  // namespace kvarena::cost_model

#pragma once
// Published figures beside modelled ones, from a file that states the inputs: configs/modelled/*.json.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvarena::cost_model {

/// Largest relative difference between a modelled and a published figure that needs no unknown input as explanation.
inline constexpr double kHeadlineTolerance = 0.15;

struct ComparedFigure {
  std::string row;
  std::string quantity;             // "batch", "tokens/s", "speed-up", "seconds", "quality"
  std::optional<double> published;  // absent where the paper draws the figure and prints no number
  double modelled = 0;
  std::string unknown;  // input that the paper leaves open and that would explain the gap; may be ""

  /// modelled / published - 1; 0 where nothing is printed.
  [[nodiscard]] double difference() const { return published ? modelled / *published - 1 : 0; }
  [[nodiscard]] bool within_tolerance() const;
};

struct Comparison {
  std::string name;  // name of the file
  std::string title;
  std::string source;                   // place of the published figures
  std::vector<std::string> paragraphs;  // description of the model and its assumptions
  std::vector<std::string> inputs;      // machines, models, shares of peaks, as lines
  std::vector<ComparedFigure> figures;
};

/// Folders of hardware and shapes, found by name.
struct DescriptionFolders {
  std::filesystem::path hardware;
  std::filesystem::path shapes;
};

/// Reads a file and models its rows. Throws UserError with file and key.
[[nodiscard]] Comparison read_comparison(const std::filesystem::path& file, const DescriptionFolders& folders);

/// A page: how many figures are within tolerance, then a table for each comparison.
[[nodiscard]] std::string comparison_page(const std::vector<Comparison>& comparisons);

}  // namespace kvarena::cost_model

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
  std::optional<double> upper;      // of a printed range, which begins at `published`
  double modelled = 0;
  double assumed = 0;    // as modelled, with assumed values of calibrated constants
  std::string unknown;   // input that the paper leaves open and that would explain the gap; may be ""
  double least = 0;      // modelled at the values between which that input lies; as `modelled` without one
  double most = 0;       //
  bool spent = false;    // a constant or an input was found from it
  bool derived = false;  // a ratio of printed numbers that the paper does not print
  std::string repeats;   // name of the comparison that has the same printed number already; else ""

  /// modelled / published - 1, of a printed range's nearest end; 0 within a range and where nothing is printed.
  [[nodiscard]] double difference() const;
  [[nodiscard]] bool within_tolerance() const;
  /// Whether some value of the unknown input, between those that the file states, makes the model meet the print.
  [[nodiscard]] bool explained() const;
  /// Whether it is a printed number that the model is held against, and the only one of its kind.
  [[nodiscard]] bool counts() const { return published && !spent && !derived && repeats.empty(); }
};

/// A constant that a paper leaves open.
struct CalibratedConstant {
  std::string name;
  double assumed = 0;  // before any figure of the paper was looked at
  double value = 0;    // found from figures
};

struct Comparison {
  std::string name;  // name of the file
  std::string title;
  std::string source;                   // place of the published figures
  std::vector<std::string> paragraphs;  // description of the model and its assumptions
  std::vector<std::string> inputs;      // machines, models, shares of peaks, as lines
  std::vector<ComparedFigure> figures;
  std::vector<CalibratedConstant> constants;
  std::vector<std::string> chosen;  // inputs that were chosen to meet spent figures
};

/// Folders of hardware and shapes, found by name.
struct DescriptionFolders {
  std::filesystem::path hardware;
  std::filesystem::path shapes;
};

/// Reads a file and models its rows; where its key "calibrated" names another file beside it, with the constants found
/// there. Throws UserError with file and key.
[[nodiscard]] Comparison read_comparison(const std::filesystem::path& file, const DescriptionFolders& folders);

/// A page: how many distinct printed figures are within tolerance, then a table for each comparison. Throws UserError
/// for a repeated figure that the comparison it names does not have, or has another model for.
[[nodiscard]] std::string comparison_page(const std::vector<Comparison>& comparisons);

}  // namespace kvarena::cost_model

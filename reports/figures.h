#pragma once
// Charts of a report as files of their own, for papers and slides.

#include <filesystem>
#include <string>
#include <vector>

#include "reports/document.h"

namespace kvarena::reports {

struct Figures {
  std::vector<std::filesystem::path> written;
  std::string missing;  // why there are no PNG and PDF files; empty when there are
};

/// Writes every chart as ID.svg into `folder`, which is made, and as ID.png and ID.pdf where the program rsvg-convert
/// is installed: on white paper, without a title, which belongs into a caption. Throws UserError naming a file that
/// cannot be written or converted.
[[nodiscard]] Figures write_figures(const Document& document, const std::filesystem::path& folder);

}  // namespace kvarena::reports

#pragma once
// How wide a text will be, without a font: enough to lay out axes and legends so that nothing overlaps.

#include <string>
#include <string_view>
#include <vector>

namespace kvarena::reports {

/// Width in pixels at `font_size`, from the advance widths of DejaVu Sans, the widest of the common system fonts; with
/// any other font the text is narrower. Characters outside ASCII count as one em.
[[nodiscard]] double text_width(std::string_view text, double font_size);

/// Breaks at blanks into lines no wider than `width` where words allow.
[[nodiscard]] std::vector<std::string> wrap_text(std::string_view text, double font_size, double width);

/// The text, or its beginning with an ellipsis so that it is no wider than `width`. Never cuts inside a character.
[[nodiscard]] std::string fit_text(std::string_view text, double font_size, double width);

}  // namespace kvarena::reports

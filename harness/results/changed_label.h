#pragma once
// Labels that tell a setting changed for a run: "H2O [tokens=64]" of a config's "H2O".

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kvarena::results {

/// The one of `labels` that `label` speaks of: itself, or where it is none of them the only one that is `label` with
/// changed settings behind it. Nothing where there is none, or several.
[[nodiscard]] std::optional<std::string> label_among(std::span<const std::string> labels, const std::string& label);

/// All of `labels` that `label` speaks of: with {names} in it all that have something in their places, such as a
/// matrix's "H2O, {tokens}"; else label_among().
[[nodiscard]] std::vector<std::string> labels_fitting(std::span<const std::string> labels, const std::string& label);

}  // namespace kvarena::results

#pragma once
// Consistency check of a results database: SQLite's own checks, and the rules that every writer here keeps.

#include <filesystem>
#include <string>
#include <vector>

namespace kvarena::results {

/// Faults of the file, a sentence each, at most a few of a kind; empty when it is sound:
///   - pages, b-trees and indexes (SQLite's integrity_check)
///   - rows that belong to nothing: samples without a cell, values, series, events and peaks without their sample or
///     cell, cells without an experiment
///   - cells that are called done and lack planned samples
///   - a series whose length is not that of its values, and columns of JSON that are not JSON
/// Reads every row; a run may be writing meanwhile. Throws UserError naming the file when it cannot be opened or read.
[[nodiscard]] std::vector<std::string> find_faults(const std::filesystem::path& path);

/// Throws UserError with the first fault, if there is one: what is added to a damaged database, or taken from it, would
/// look like results.
void refuse_faults(const std::filesystem::path& path);

}  // namespace kvarena::results

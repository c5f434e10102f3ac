#pragma once
// Rows of several samples, such as questions about one context.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/row_source.h"

namespace kvarena::datasets {

/// The samples that one row makes; `sample` has the row's number from 0 as id, and what FillSample gets.
using ExpandRow = std::function<std::vector<Sample>(const Row& row, const std::string& place, const Sample& sample)>;

/// make_row_source() for rows of several samples.
[[nodiscard]] std::unique_ptr<SampleSource> make_context_source(const DataFile& file, ExpandRow expand);

/// Questions about one context as samples that share it: each has `sample` with the context's text, its question behind
/// it, and "<row>-<number>" as id. The context's name is the row's number.
[[nodiscard]] std::vector<Sample> share_context(const Sample& sample, const std::string& context,
                                                const std::vector<std::string>& questions);

}  // namespace kvarena::datasets

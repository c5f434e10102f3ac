#pragma once
// A workload whose samples are the rows of one file: reading, hashing and naming errors done once.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/data_files.h"
#include "datasets/records.h"
#include "datasets/workload.h"

namespace kvarena::datasets {

/// Messages of a list of objects with role and content; `place` names the list in errors.
[[nodiscard]] std::vector<Message> read_messages(const Row& list, const std::string& place);

/// Fills `sample` from one row; `place` is "file:line" for errors. It may outlive the workload, as readers do. The
/// sample's id is the row's number from 0 unless this changes it. Returning false skips the row.
using FillSample = std::function<bool(const Row& row, const std::string& place, Sample& sample)>;

/// Samples of the JSON Lines file or JSON array `file`, in file order. Sets origin and data_sha256.
[[nodiscard]] std::unique_ptr<SampleSource> make_row_source(const DataFile& file, FillSample fill);

}  // namespace kvarena::datasets

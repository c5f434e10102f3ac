#pragma once
// Texts that a command reads or has a model continue.

#include <cstdint>
#include <string>
#include <vector>

#include "harness/model/open_model.h"

namespace kvarena::cli {

/// Source of texts: a workload's name, a text file, a folder of .txt files, or "essays", which are made from the seed.
struct TextRequest {
  std::string data = "essays";
  int64_t count = 1;
  int64_t tokens = 512;  // least length of each, where there is enough text
  int64_t seed = 1;
};

/// At most `count` texts. Throws UserError when the file or workload cannot be read.
[[nodiscard]] std::vector<std::string> read_texts(const TextRequest& wanted, const OpenedModel& model);

}  // namespace kvarena::cli

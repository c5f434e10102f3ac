#pragma once
// Shared helpers of tests of data sets.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "datasets/workload.h"
#include "tests/support/error_of.h"

namespace kvarena::datasets {

inline std::filesystem::path shared_data() {
  return std::filesystem::path(KVARENA_SOURCE_DIR) / ".." / "shared" / "data";
}

/// Rows of a JSON Lines file, read without the code under test.
inline std::vector<nlohmann::json> json_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) rows.push_back(nlohmann::json::parse(line));
  }
  return rows;
}

/// A file that lives as long as the test's object.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& name, const std::string& content)
      : path_(std::filesystem::temp_directory_path() / ("kvarena_" + std::to_string(::getpid()) + "_" + name)) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

using testing::error_of;

inline std::vector<Sample> all_samples(const std::string& name, const std::string& parameters = "{}",
                                       const OpenSettings& settings = {}) {
  SampleReader reader = make_workload(name, parameters, "test")->open(settings);
  std::vector<Sample> samples;
  while (auto sample = reader.next()) samples.push_back(std::move(*sample));
  return samples;
}

/// The text from the question's position on.
inline std::string question_text(const Sample& sample) {
  return sample.messages[sample.question.message].content.substr(sample.question.byte);
}

}  // namespace kvarena::datasets

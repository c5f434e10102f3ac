#include "datasets/row_source.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "harness/core/error.h"
#include "harness/core/files.h"

namespace kvarena::datasets {
namespace {

class RowSource final : public SampleSource {
 public:
  RowSource(const DataFile& file, FillSample fill) : origin_(file.origin), rows_(file.path), fill_(std::move(fill)) {}

  bool next(Sample& sample) override {
    while (const std::optional<Record> record = rows_.next()) {
      Sample filled = sample;
      filled.id = fmt::format("{}", row_++);
      if (!fill_(parse_object(*record), record->place, filled)) continue;
      const auto [known, fresh] = places_.try_emplace(filled.id, record->place);
      if (!fresh) {
        fail({.place = record->place,
              .found = fmt::format("the id \"{}\", which {} has too", filled.id, known->second),
              .expected = "an id of its own for each row",
              .action = "mend the file"});
      }
      sample = std::move(filled);
      sample.origin = origin_;
      sample.data_sha256 = sha256(record->text);
      return true;
    }
    return false;
  }

 private:
  std::string origin_;
  RecordReader rows_;
  FillSample fill_;
  int64_t row_ = 0;
  std::unordered_map<std::string, std::string> places_;  // by id
};

}  // namespace

std::vector<Message> read_messages(const Row& list, const std::string& place) {
  std::vector<Message> messages;
  for (const Row& message : list) {
    const std::string at = fmt::format("{}[{}]", place, messages.size());
    messages.push_back({string_field(message, "role", at), string_field(message, "content", at)});
  }
  if (messages.empty()) fail({.place = place, .found = "none", .expected = "at least one message"});
  return messages;
}

std::unique_ptr<SampleSource> make_row_source(const DataFile& file, FillSample fill) {
  return std::make_unique<RowSource>(file, std::move(fill));
}

}  // namespace kvarena::datasets

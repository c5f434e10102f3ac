#include "datasets/row_source.h"

#include <fmt/format.h>

#include <deque>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "datasets/context_rows.h"
#include "harness/core/error.h"
#include "harness/core/files.h"

namespace kvarena::datasets {
namespace {

class RowSource final : public SampleSource {
 public:
  RowSource(const DataFile& file, ExpandRow expand)
      : origin_(file.origin), rows_(file.path), expand_(std::move(expand)) {}

  bool next(Sample& sample) override {
    while (made_.empty()) {
      const std::optional<Record> record = rows_.next();
      if (!record) return false;
      Sample filled = sample;
      filled.id = fmt::format("{}", row_++);
      filled.origin = origin_;
      filled.data_sha256 = sha256(record->text);
      for (Sample& one : expand_(parse_object(*record), record->place, filled)) {
        require_own_id(one.id, record->place);
        made_.push_back(std::move(one));
      }
    }
    sample = std::move(made_.front());
    made_.pop_front();
    return true;
  }

 private:
  void require_own_id(const std::string& id, const std::string& place) {
    const auto [known, fresh] = places_.try_emplace(id, place);
    if (fresh) return;
    fail({.place = place,
          .found = fmt::format("the id \"{}\", which {} has too", id, known->second),
          .expected = "an id of its own for each row",
          .action = "mend the file"});
  }

  std::string origin_;
  RecordReader rows_;
  ExpandRow expand_;
  std::deque<Sample> made_;  // of the row that was read last
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
  return make_context_source(file,
                             [fill = std::move(fill)](const Row& row, const std::string& place, const Sample& sample) {
                               std::vector<Sample> one = {sample};
                               if (!fill(row, place, one.front())) one.clear();
                               return one;
                             });
}

std::unique_ptr<SampleSource> make_context_source(const DataFile& file, ExpandRow expand) {
  return std::make_unique<RowSource>(file, std::move(expand));
}

std::vector<Sample> share_context(const Sample& sample, const std::string& context,
                                  const std::vector<std::string>& questions) {
  std::vector<Sample> samples;
  for (const std::string& question : questions) {
    Sample& one = samples.emplace_back(sample);
    one.id = fmt::format("{}-{}", sample.id, samples.size() - 1);
    one.context = sample.id;
    one.messages = {{"user", context + question}};
    one.question = {0, context.size()};
  }
  return samples;
}

}  // namespace kvarena::datasets

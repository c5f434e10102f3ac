#include "metrics/score_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "harness/core/error.h"
#include "metrics/algorithms/python_json.h"
#include "metrics/jsonl.h"

namespace kvarena::metrics {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 6> kPredictionFields = {"prediction", "pred",           "response",
                                                               "completion", "filtered_resps", "resps"};
constexpr std::array<std::string_view, 7> kReferenceFields = {"references", "answers", "reference",   "answer",
                                                              "outputs",    "target",  "ground_truth"};
constexpr std::array<std::string_view, 4> kIdFields = {"id", "_id", "sample_id", "doc_id"};

template <size_t n>
const json* first_field(const json& row, const std::array<std::string_view, n>& names) {
  for (const std::string_view name : names) {
    const auto found = row.find(name);
    if (found != row.end() && !found->is_null()) return &*found;
  }
  return nullptr;
}

template <size_t n>
[[noreturn]] void fail_field(const json& row, const char* what, const std::array<std::string_view, n>& names) {
  std::vector<std::string> there;
  for (const auto& [name, value] : row.items()) there.push_back(name);
  fail({.place = what,
        .found = there.empty() ? "an empty object" : fmt::format("only the fields {}", fmt::join(there, ", ")),
        .expected = fmt::format("one of {}", fmt::join(names, ", "))});
}

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// lm-evaluation-harness nests lists of answers; elsewhere the value is the text itself.
std::string first_text(const json& value, const char* what) {
  const json* inner = &value;
  while (inner->is_array() && !inner->empty()) inner = &inner->front();
  if (inner->is_string() || inner->is_number() || inner->is_boolean()) return text_of(*inner);
  fail({.place = what, .found = value.dump().substr(0, 60), .expected = "a text"});
}

std::vector<std::string> texts_of(const json& value) {
  std::vector<std::string> texts;
  if (!value.is_array()) return {text_of(value)};
  for (const json& element : value) texts.push_back(text_of(element));
  return texts;
}

std::string id_of(const json& row) {
  const json* id = first_field(row, kIdFields);
  return id == nullptr ? std::string() : text_of(*id);
}

const json& object(const json& row) {
  if (row.is_object()) return row;
  fail({.place = "line", .found = fmt::format("a JSON {}", row.type_name()), .expected = "a JSON object"});
}

// References kept apart from the predictions.
class ReferenceTable {
 public:
  explicit ReferenceTable(const std::filesystem::path& file) : file_(file) {
    if (file.empty()) return;
    for_each_line(file, [&](std::string_view line, int64_t) {
      json row = parse_python_json(line);
      if (first_field(object(row), kReferenceFields) == nullptr) fail_field(row, "reference", kReferenceFields);
      if (const std::string id = id_of(row); !id.empty()) by_id_.emplace(id, rows_.size());
      rows_.push_back(std::move(row));
    });
  }

  // Members of the reference row join the prediction row, which wins where both have one.
  void join(json& row, int64_t index) const {
    if (file_.empty()) return;
    const std::string id = id_of(row);
    const auto named = id.empty() ? by_id_.end() : by_id_.find(id);
    const auto at = named != by_id_.end() ? named->second : static_cast<size_t>(index);
    if ((named == by_id_.end() && !id.empty() && !by_id_.empty()) || at >= rows_.size()) {
      fail({.place = file_.string(),
            .found = fmt::format("{} rows, none for this prediction", rows_.size()),
            .expected = id.empty() ? fmt::format("a row {}", index + 1) : fmt::format("a row with id \"{}\"", id)});
    }
    for (const auto& [name, value] : rows_[at].items()) {
      if (!row.contains(name)) row[name] = value;
    }
  }

 private:
  std::filesystem::path file_;
  std::vector<json> rows_;
  std::unordered_map<std::string, size_t> by_id_;
};

json parse_extras(const std::string& text) {
  json extras = json::parse(text, nullptr, false);
  if (extras.is_object()) return extras;
  fail({.place = "extras", .found = text.substr(0, 80), .expected = "a JSON object such as {\"dataset\": \"trec\"}"});
}

// The fields of "doc", the data set's row in files of lm-evaluation-harness, beside those of the row.
void add_document(json& row) {
  const auto document = row.find("doc");
  if (document == row.end() || !document->is_object()) return;
  json whole = *document;
  whole.update(row);
  row = std::move(whole);
}

}  // namespace

PredictionRow read_prediction(const json& row, bool references_needed) {
  const json* prediction = first_field(object(row), kPredictionFields);
  if (prediction == nullptr) fail_field(row, "prediction", kPredictionFields);
  const json* references = first_field(row, kReferenceFields);
  if (references == nullptr && references_needed) fail_field(row, "reference", kReferenceFields);
  return {id_of(row), first_text(*prediction, "prediction"),
          references == nullptr ? std::vector<std::string>() : texts_of(*references)};
}

FileScore score_file(const std::filesystem::path& predictions, const MetricEntry& metric,
                     const ScoreFileOptions& options, const std::function<void(const ScoredSample&)>& visit) {
  const json extras = parse_extras(options.extras_json);
  const ReferenceTable references(options.references_file);
  FileScore result{.metric = metric.id};
  std::vector<double> scores;
  for_each_line(predictions, [&](std::string_view line, int64_t number) {
    json row = parse_python_json(line);
    references.join(row, result.samples++);
    PredictionRow sample = read_prediction(row, metric.needs_references);
    add_document(row);
    row.update(extras);
    if (options.rewrite) sample.prediction = options.rewrite(row, sample);
    const MetricScore score = score_sample(metric, {sample.prediction, sample.references, row});
    const auto parsed = score.values.find("parsed");
    const bool read = parsed == score.values.end() || parsed->second != 0;
    if (read) scores.push_back(score.score);
    result.unread += read ? 0 : 1;
    if (visit) visit({number, sample.id, score});
  });
  if (scores.empty()) return result;
  const MeanEstimate estimate = bootstrap_mean(scores, options.resampling);
  result.mean = estimate.mean;
  result.interval = estimate.interval;
  result.table_value = estimate.mean * metric.table_scale;
  return result;
}

}  // namespace kvarena::metrics

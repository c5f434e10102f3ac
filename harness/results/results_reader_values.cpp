// Values and series of cells and samples.

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "harness/core/error.h"
#include "harness/results/results_reader.h"
#include "harness/results/select_rows.h"

namespace kvarena::results {
namespace {

/// metric, value, unit, clock, storage, in that order.
MetricValue read_value(Columns& next) {
  MetricValue value;
  value.metric = next.text();
  value.value = next.number();
  value.unit = next.text();
  value.clock = next.clock();
  value.storage = next.storage();
  return value;
}

/// A cell's samples in their order, found by id.
class CellSamples {
 public:
  CellSamples(SQLite::Database& database, const std::string& cell_id) : database_(&database), cell_id_(cell_id) {
    rows_ = select<ValueRow>(database,
                             "SELECT sample_id, sample_index, active FROM samples WHERE cell_id = ? "
                             "ORDER BY sample_index, sample_id",
                             {cell_id}, [](Columns& next) {
                               ValueRow sample;
                               sample.sample_id = next.text();
                               sample.sample_index = next.integer();
                               sample.active = next.flag();
                               return sample;
                             });
    for (size_t place = 0; place < rows_.size(); ++place) places_[rows_[place].sample_id] = place;
  }
  [[nodiscard]] const std::vector<ValueRow>& rows() const { return rows_; }
  /// The place of a sample; rows of one come one after the other. Throws UserError for what is no sample.
  size_t place(std::string_view sample_id) {
    if (last_ < rows_.size() && rows_[last_].sample_id == sample_id) return last_;
    const auto found = places_.find(sample_id);
    if (found == places_.end()) {
      fail_damaged(database_->getFilename(), fmt::format("a value of no sample: {} {}", cell_id_, sample_id));
    }
    return last_ = found->second;
  }

 private:
  SQLite::Database* database_;
  std::string cell_id_;
  std::vector<ValueRow> rows_;
  std::unordered_map<std::string_view, size_t> places_;  // names lie in rows_
  size_t last_ = 0;
};

/// Things with a name and a clock, in the order in which rows first name them; rows name them in turn.
template <typename Thing>
class NamedThings {
 public:
  struct Entry {
    std::string name;
    Clock clock = Clock::none;
    Thing thing;
  };
  /// The entry of a name, and whether it is new.
  std::pair<Thing&, bool> at(std::string_view name, Clock clock) {
    for (size_t tried = 0; tried < entries_.size(); ++tried) {
      next_ = next_ + 1 < entries_.size() ? next_ + 1 : 0;
      if (entries_[next_].name == name && entries_[next_].clock == clock) return {entries_[next_].thing, false};
    }
    next_ = entries_.size();
    return {entries_.emplace_back(Entry{.name = std::string(name), .clock = clock, .thing = {}}).thing, true};
  }
  /// The entries by name and clock.
  std::vector<Entry> sorted() && {
    std::ranges::sort(entries_, {}, [](const Entry& entry) { return std::pair(entry.name, entry.clock); });
    return std::move(entries_);
  }

 private:
  std::vector<Entry> entries_;
  size_t next_ = 0;
};

}  // namespace

std::vector<ValueColumn> ResultsReader::columns(const std::string& cell_id) const {
  CellSamples samples(*database_, cell_id);
  struct Values {
    ValueColumn column;
    std::vector<std::optional<double>> by_place;
  };
  NamedThings<Values> metrics;
  for_rows(*database_, "SELECT sample_id, metric, clock, value, storage, unit FROM sample_values WHERE cell_id = ?",
           {cell_id}, [&](Columns& next) {
             const size_t place = samples.place(next.view());
             const std::string_view metric = next.view();
             const auto [values, fresh] = metrics.at(metric, next.clock());
             if (fresh) values.by_place.resize(samples.rows().size());
             values.by_place[place] = next.number();
             values.column.storage = std::max(values.column.storage, next.storage());
             if (fresh) values.column.unit = next.text();
           });
  std::vector<ValueColumn> list;
  for (auto& [name, clock, values] : std::move(metrics).sorted()) {
    ValueColumn& column = list.emplace_back(std::move(values.column));
    column.metric = name;
    column.clock = clock;
    column.rows.reserve(values.by_place.size());
    for (size_t place = 0; place < values.by_place.size(); ++place) {
      if (!values.by_place[place]) continue;
      column.rows.push_back(samples.rows()[place]);
      column.rows.back().value = *values.by_place[place];
    }
  }
  return list;
}

std::vector<MetricValue> ResultsReader::sample_values(const std::string& cell_id, const std::string& sample_id) const {
  return select<MetricValue>(*database_,
                             "SELECT metric, value, unit, clock, storage FROM sample_values WHERE cell_id = ? AND "
                             "sample_id = ? ORDER BY metric, clock",
                             {cell_id, sample_id}, [](Columns& next) { return read_value(next); });
}

std::vector<MetricValue> ResultsReader::cell_values(const std::string& cell_id) const {
  return select<MetricValue>(
      *database_,
      "SELECT metric, value, unit, clock, storage FROM cell_values WHERE cell_id = ? ORDER BY metric, clock", {cell_id},
      [](Columns& next) { return read_value(next); });
}

std::vector<std::pair<std::string, Clock>> ResultsReader::series_names(const std::string& cell_id) const {
  return select<std::pair<std::string, Clock>>(
      *database_, "SELECT DISTINCT name, clock FROM series WHERE cell_id = ? ORDER BY name, clock", {cell_id},
      [](Columns& next) {
        std::string series = next.text();
        return std::pair(std::move(series), next.clock());
      });
}

std::vector<SeriesRow> ResultsReader::series(const std::string& cell_id, const std::string& series_name,
                                             Clock clock) const {
  CellSamples samples(*database_, cell_id);
  std::vector<std::optional<SeriesRow>> by_place(samples.rows().size());
  for_rows(*database_,
           "SELECT sample_id, name, values_json AS numbers, unit, clock, storage FROM series "
           "WHERE cell_id = ? AND name = ? AND clock = ?",
           {cell_id, series_name, std::string(name(clock))}, [&](Columns& next) {
             SeriesRow row;
             row.sample_id = next.text();
             row.series.name = next.text();
             row.series.values = next.series();
             row.series.unit = next.text();
             row.series.clock = next.clock();
             row.series.storage = next.storage();
             by_place[samples.place(row.sample_id)] = std::move(row);
           });
  std::vector<SeriesRow> rows;
  rows.reserve(by_place.size());
  for (std::optional<SeriesRow>& row : by_place) {
    if (row) rows.push_back(std::move(*row));
  }
  return rows;
}

}  // namespace kvarena::results

#include "harness/evaluate/sample_cursor.h"

#include <fmt/format.h>

#include <utility>

namespace kvarena::evaluate {

SampleCursor::SampleCursor(std::unique_ptr<datasets::Workload> workload, datasets::OpenSettings settings, int64_t limit,
                           Fits fits, int64_t draws)
    : workload_(std::move(workload)),
      settings_(std::move(settings)),
      limit_(limit),
      fits_(std::move(fits)),
      draws_(draws) {}

const datasets::Sample* SampleCursor::first() {
  if (!first_) first_ = workload_->open(settings_).next();
  return first_ ? &*first_ : nullptr;
}

const datasets::Sample* SampleCursor::at(int64_t index) {
  const datasets::Sample* sample = fitting(index / draws_);
  if (sample == nullptr || draws_ == 1) return sample;
  drawn_ = *sample;
  drawn_->id += fmt::format("#{}", index % draws_ + 1);
  return &*drawn_;
}

bool SampleCursor::same_context(int64_t index, int64_t next) {
  if (index / draws_ == next / draws_) return true;
  const datasets::Sample* first = fitting(index / draws_);
  if (first == nullptr || first->context.empty()) return false;
  const std::string context = first->context;
  const datasets::Sample* second = fitting(next / draws_);
  return second != nullptr && second->context == context;
}

const datasets::Sample* SampleCursor::fitting(int64_t index) {
  if (before_ && index == before_index_) return &*before_;
  if (!reader_ || index < next_ - 1) {
    reader_.emplace(workload_->open(settings_));
    sample_ = std::nullopt;
    next_ = 0;
    left_out_ = 0;
  }
  if (next_ <= index && sample_) {
    before_ = std::exchange(sample_, std::nullopt);
    before_index_ = next_ - 1;
  }
  while (next_ <= index) {
    sample_ = next_ + left_out_ < limit_ ? reader_->next() : std::nullopt;
    if (!sample_) {
      reader_.reset();
      return nullptr;
    }
    ++(fits_(*sample_) ? next_ : left_out_);
  }
  return &*sample_;
}

}  // namespace kvarena::evaluate

#include "harness/evaluate/sample_cursor.h"

#include <fmt/format.h>

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

const datasets::Sample* SampleCursor::fitting(int64_t index) {
  if (!reader_ || index < next_ - 1) {
    reader_.emplace(workload_->open(settings_));
    next_ = 0;
    left_out_ = 0;
  }
  while (next_ <= index) {
    sample_ = next_ + left_out_ < limit_ ? reader_->next() : std::nullopt;
    if (!sample_) {
      reader_.reset();  // nothing is held now, so the last sample too is read anew when it is asked for
      return nullptr;
    }
    ++(fits_(*sample_) ? next_ : left_out_);
  }
  return &*sample_;
}

}  // namespace kvarena::evaluate

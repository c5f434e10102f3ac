#include "harness/evaluate/sample_cursor.h"

namespace kvarena::evaluate {

SampleCursor::SampleCursor(std::unique_ptr<datasets::Workload> workload, datasets::OpenSettings settings)
    : workload_(std::move(workload)), settings_(std::move(settings)) {}

const datasets::Sample* SampleCursor::at(int64_t index) {
  if (!reader_ || index < next_ - 1) {
    reader_.emplace(workload_->open(settings_));
    next_ = 0;
  }
  for (; next_ <= index; ++next_) {
    sample_ = reader_->next();
    if (!sample_) {
      reader_.reset();  // nothing is held now, so the last sample too is read anew when it is asked for
      return nullptr;
    }
  }
  return &*sample_;
}

}  // namespace kvarena::evaluate

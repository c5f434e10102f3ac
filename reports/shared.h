#pragma once
// Parts of an experiment are experiments that have the same numbers: copies share them.

#include <memory>
#include <utility>

namespace kvarena::reports {

/// A value that copies share until one of them changes it. For one thread.
template <class Value>
class Shared {
 public:
  Shared() : value_(std::make_shared<Value>()) {}
  Shared(Value value) : value_(std::make_shared<Value>(std::move(value))) {}  // NOLINT(google-explicit-constructor)

  const Value& operator*() const { return *value_; }
  const Value* operator->() const { return value_.get(); }
  /// The value to be changed, which this one alone has from then on.
  [[nodiscard]] Value& own() {
    if (value_.use_count() > 1) value_ = std::make_shared<Value>(*value_);
    return *value_;
  }

 private:
  std::shared_ptr<Value> value_;
};

}  // namespace kvarena::reports

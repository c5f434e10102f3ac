#pragma once
// Whether one more request fits: room is promised before it is taken.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>

namespace kvarena::serving {

/// The most that a request may come to hold.
struct Promise {
  int64_t own = 0;      // as long as it is inside
  int64_t in_turn = 0;  // at times, in room that requests use one after another
};

/// Room for requests: one more fits when what it may come to hold fits beside what those inside were promised.
class Admission {
 public:
  explicit Admission(int64_t room) : room_(room) {}
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  struct GiveBack {
    Admission* to = nullptr;
    void operator()(const Promise* promise) const {
      to->promised_ -= promise->own;
      to->in_turn_.erase(to->in_turn_.find(promise->in_turn));
      delete promise;
    }
  };
  /// A promise that was given; its end gives the room back.
  using Place = std::unique_ptr<const Promise, GiveBack>;

  [[nodiscard]] bool fits(const Promise& promise) const {
    const int64_t in_turn = std::max(promise.in_turn, in_turn_.empty() ? 0 : *in_turn_.rbegin());
    return promise.own <= room_ - promised_ - in_turn;
  }
  /// Promises, whether it fits or not.
  [[nodiscard]] Place admit(const Promise& promise) {
    promised_ += promise.own;
    peak_ = std::max(peak_, promised_);
    in_turn_.insert(promise.in_turn);
    return {new Promise(promise), GiveBack{this}};
  }
  [[nodiscard]] int64_t room() const { return room_; }
  /// Room promised to those inside, without what they use in turn: now, and at most so far.
  [[nodiscard]] int64_t promised() const { return promised_; }
  [[nodiscard]] int64_t peak_promised() const { return peak_; }

 private:
  int64_t room_;
  int64_t promised_ = 0;
  int64_t peak_ = 0;
  std::multiset<int64_t> in_turn_;
};

}  // namespace kvarena::serving

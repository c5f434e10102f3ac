#pragma once
// Estimate of what the next iteration takes.

namespace kvarena {

class IterationEstimate {
 public:
  [[nodiscard]] double seconds() const { return seconds_; }
  /// One more iteration took so long.
  void note(double seconds) {
    seconds_ = measured_ ? (1 - kNewest) * seconds_ + kNewest * seconds : seconds;
    measured_ = true;
  }

 private:
  static constexpr double kFirstGuess = 0.05;  // what is placed by it may come late once
  static constexpr double kNewest = 0.25;      // weight of the newest one
  double seconds_ = kFirstGuess;
  bool measured_ = false;
};

}  // namespace kvarena

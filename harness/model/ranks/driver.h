#pragma once
// Rank 0 of a model whose weights are divided among ranks: runs the program, and has the others compute their rows.

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "harness/model/activations.h"
#include "harness/model/products.h"
#include "harness/model/ranks/channel.h"
#include "harness/model/ranks/parts.h"

namespace kvarena {

/// All answers have the bits that one rank alone would compute. Throws UserError naming the rank that died, does not
/// answer or has other weights; from then on every call repeats it.
class RankDriver {
 public:
  /// Waits for all ranks, and connects `weights`, which must outlive this and stay in place, to the rows held
  /// elsewhere. `fingerprint` is that of the checkpoint, which the others must have too.
  RankDriver(std::unique_ptr<RankChannel> channel, ModelWeights& weights, const std::string& fingerprint);
  /// Ends the other ranks' service.
  ~RankDriver();
  RankDriver(const RankDriver&) = delete;
  RankDriver& operator=(const RankDriver&) = delete;

  /// Why every call fails from now on; empty while all is well.
  [[nodiscard]] std::string lost();
  /// Bytes of packed weights that each rank holds, [ranks].
  [[nodiscard]] const std::vector<int64_t>& held_bytes() const { return held_bytes_; }

  // The functions of products.h, over all ranks.
  void project(const Projection& w, const float* x, int64_t rows, int64_t x_stride, float* y);
  void project_heads(const HeadProjections& w, const HeadRows& in, float* y);
  void feed_forward(const DenseFeedForward& weights, const float* in, int64_t rows, float* out);
  void read_rows(int64_t part, std::span<const int32_t> numbers, float* out);

  // Used by devices beside the ranks.
  /// Runs `work` with exclusive use of the ranks; an exception that it throws is repeated by every later call.
  void alone(const std::function<void()>& work);
  /// Called within alone(): has the devices of all ranks meet.
  void order_rendezvous();
  /// Called within alone(): has the devices of all ranks compute these tasks, one after the other.
  void order_tasks(std::span<const DeviceTask> tasks);
  [[nodiscard]] RankChannel& channel() { return *channel_; }

 private:
  /// Writes a rank's input.
  using Input = std::function<void(const Share& to, float* input)>;

  void greet(ModelWeights& weights, const std::string& fingerprint);
  void order(const Order& order, const Input& input);
  /// Begins to receive [rows, columns(rank)] of every other rank, into replies_[rank].
  void expect_replies(int64_t rows, const std::function<int64_t(const Share& from)>& columns);
  /// Waits for the replies and copies each to its columns of y [rows, width].
  void place_replies(int64_t rows, int64_t width, const std::function<RowRange(const Share& from)>& columns, float* y);
  void finish_sending();
  [[nodiscard]] Share rank(int64_t i) const { return {.rank = i, .ranks = ranks_}; }

  std::unique_ptr<RankChannel> channel_;
  int64_t ranks_;
  std::vector<Part> parts_;
  std::vector<int64_t> held_bytes_;
  int64_t order_floats_ = 0;
  std::mutex mutex_;     // projections of a const model may be read from several threads
  std::string failure_;  // empty while all is well

  // [ranks], the driver's own unused: memory of messages under way, which outlives the transfers declared after it.
  std::vector<Workspace> orders_;
  std::vector<Workspace> inputs_;
  std::vector<Workspace> inner_;
  std::vector<Workspace> replies_;
  Workspace gates_;
  Workspace whole_inner_;
  std::vector<std::unique_ptr<Transfer>> sending_;
  std::vector<std::unique_ptr<Transfer>> receiving_;
};

}  // namespace kvarena

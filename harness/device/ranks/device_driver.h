#pragma once
// Rank 0's device, and the order of what the others compute: harness/model/ranks/driver.h for devices.

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "harness/device/ranks/device_share.h"
#include "harness/model/ranks/driver.h"
#include "harness/model/ranks/parts.h"

namespace kvarena::device {

/// All answers have the bits that one device alone would compute. Throws UserError naming the rank that is lost; from
/// then on every call repeats it, here and at the RankDriver.
class DeviceDriver {
 public:
  /// Meets the devices of all ranks, and tells `weights`, which outlives this and stays in place, where its rows are.
  DeviceDriver(RankDriver& ranks, DeviceWeights& weights);

  struct Pass {
    int64_t layers = 0;  // that it visits
    int64_t rows = 0;
    int64_t wanted = 0;  // rows that come to the head
  };
  /// Before a pass. The others hear at once what all of it is, up to where a router decides, unless it may be given up
  /// half way.
  void begin(const Pass& pass, bool may_be_given_up);
  /// When the router has decided: how many rows visit each expert of a layer, [experts].
  void announce(const DeviceSparse& layer, std::span<const int64_t> visitors);

  // As the functions of device_products.h.
  void project(const DeviceProjection& w, const float* x, int64_t rows, float* y, bool add, kernels::CudaStream stream);
  /// down(silu(gate(in)) * up(in)): in and out [rows, hidden_size]; or added to what `out` holds.
  void feed_forward(const DeviceDense& w, const float* in, int64_t rows, float* out, bool add,
                    kernels::CudaStream stream);

  /// Once the stream was waited for: throws where a rank was lost meanwhile.
  void confirm();
  /// Why rows go by way of the hosts; empty where they do not.
  [[nodiscard]] const std::string& fallback_reason() const { return fallback_reason_; }

 private:
  /// The tasks of a pass from a layer on, up to where a router decides.
  void add_layers(size_t layer, std::vector<DeviceTask>& tasks) const;
  void announce(std::span<const DeviceTask> tasks);
  /// Has the others compute a part of x, `count` numbers.
  void give(int64_t part, int64_t rows, const float* x, int64_t count, kernels::CudaStream stream);
  /// The outputs of `w` for x, of all ranks, in y or added to it.
  void collect(const DeviceProjection& w, const float* x, int64_t rows, float* y, bool add, kernels::CudaStream stream);

  RankDriver* ranks_;
  DeviceWeights* weights_;
  std::string fallback_reason_;
  Pass pass_;           // under way
  bool ahead_ = false;  // whether the others hear what comes before it does
  std::deque<DeviceTask> announced_;
  int64_t moves_ = 0;
  std::vector<Workspace> replies_;  // [ranks], the driver's own unused
  Workspace whole_;                 // [rows, out], of what is added
  std::unique_ptr<DeviceShare> share_;
};

}  // namespace kvarena::device

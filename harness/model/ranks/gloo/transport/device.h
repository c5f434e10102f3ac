#pragma once
// Names for torch/csrc/distributed/c10d/ProcessGroupGloo.hpp; see ../context.h.

namespace gloo::transport {

class Device;

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = 0;
};

}  // namespace gloo::transport

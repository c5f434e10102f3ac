#pragma once
// Declarations of gloo that torch/csrc/distributed/c10d/ProcessGroupGloo.hpp names: libtorch's library holds gloo's
// code, but its headers are not shipped. Objects are made and used behind pointers by that library alone.

#include <chrono>
#include <memory>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo

#pragma once
// What torch/csrc/distributed/c10d/ProcessGroupGloo.hpp names of gloo, whose headers libtorch does not bring along
// though its library holds the code. Objects are made and used behind pointers by that library alone.

#include <chrono>
#include <memory>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo

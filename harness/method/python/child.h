#pragma once
// A Python process that has imported a plugin file, and what is said between it and the program.
//
// Both write lines of JSON into a socket. Tensors lie in memory that both map, so that Python sees them without a copy.
//
//   program: {"make": NAME, "settings": {...}}          Python: {"done": {...}} or {"error": TEXT}
//   program: {"score": NAME, "settings": {...}, ...}    Python: {"want": TENSOR, ...}, as often as it likes
//   program: {"code": NAME, ...}, {"select": ...}, {"divide": ...} or {"answer": ...}     Python: likewise
//   program: {"offset": BYTES, "shape": [...], ...}     Python: the same again, or as to "make"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include "harness/core/python_process.h"

namespace kvarena {

/// Starts the interpreter (KVARENA_PYTHON, else python3) when it is first needed, and again after it died.
class PythonChild {
 public:
  explicit PythonChild(std::filesystem::path file) : file_(std::move(file)), process_(file_.string()) {}
  ~PythonChild();
  PythonChild(const PythonChild&) = delete;
  PythonChild& operator=(const PythonChild&) = delete;

  /// Gives a tensor that Python asks for, float32, float64 or int64. `wish` is its message.
  using Tensors = std::function<at::Tensor(const nlohmann::json& wish)>;

  /// Methods of the file: what the process says once it has imported it. Throws UserError with Python's reason, where
  /// there is no Python, and where the import takes longer than KVARENA_PYTHON_SECONDS (60).
  [[nodiscard]] nlohmann::json methods();
  /// The answer to a "make", which has as long as an import has.
  [[nodiscard]] nlohmann::json make(const nlohmann::json& request);
  /// The value of "done". Throws LoggedError with the exception in one line and the last lines of its traceback, or
  /// UserError with how the process ended.
  [[nodiscard]] nlohmann::json ask(const nlohmann::json& request, const Tensors& tensors = {});
  /// As ask(), where the answer is {"offset", "shape"} of float32 numbers that Python wrote, [parts, ...]. Returns a
  /// copy.
  [[nodiscard]] at::Tensor ask_tensor(const nlohmann::json& request, const Tensors& tensors);
  /// float32 numbers that Python wrote to this place, {"offset", "shape"}, in the request that is under way or was the
  /// last. They hold until the next.
  [[nodiscard]] at::Tensor written(const nlohmann::json& place) const;

 private:
  [[nodiscard]] nlohmann::json start();
  [[nodiscard]] nlohmann::json exchange(const nlohmann::json& request, const Tensors& tensors, bool patient = true);
  /// The next line. Throws UserError as PythonProcess::receive() does, and at the deadline.
  [[nodiscard]] nlohmann::json receive(const PythonProcess::Deadline& deadline = {});
  /// Says where float32 numbers of this shape may be written.
  [[nodiscard]] nlohmann::json room(const nlohmann::json& shape);
  /// Copies the tensor behind those of this request, and says where it is.
  [[nodiscard]] nlohmann::json lend(const at::Tensor& tensor);
  /// Room for so many bytes behind what this request used.
  [[nodiscard]] size_t reserve(size_t bytes);
  void stop();

  std::filesystem::path file_;
  PythonProcess process_;
  std::mutex one_at_a_time_;
  int memory_ = -1;
  std::byte* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  size_t used_ = 0;  // by this request
};

}  // namespace kvarena

#include "harness/method/python/child.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "harness/core/logged_error.h"
#include "harness/core/own_files.h"

namespace kvarena {
namespace {

using nlohmann::json;

constexpr size_t kAligned = 64;        // bytes
constexpr size_t kSmallest = 1 << 20;  // bytes of the memory when it is first used

std::chrono::steady_clock::time_point soon() { return std::chrono::steady_clock::now() + python_patience(); }

const char* dtype_name(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return "float32";
    case at::kDouble: return "float64";
    default: KVARENA_ASSERT(tensor.scalar_type() == at::kLong, "a tensor of another type for Python"); return "int64";
  }
}

size_t bytes_of(const json& shape) {
  size_t count = 1;
  for (const json& size : shape) count *= size.get<size_t>();
  return count * sizeof(float);
}

}  // namespace

PythonChild::~PythonChild() { stop(); }

void PythonChild::stop() {
  process_.stop();
  if (memory_ >= 0) ::close(memory_);
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
  memory_ = -1;
  mapped_ = nullptr;
  mapped_bytes_ = 0;
}

json PythonChild::start() {
  stop();
  memory_ = ::memfd_create("kvarena", MFD_CLOEXEC);
  if (memory_ < 0) {
    fail({.place = file_.string(), .found = fmt::format("no memory to share with Python: {}", std::strerror(errno))});
  }
  process_.start({own_file("child.py").string(), file_.string(), fmt::format("{}", memory_)}, memory_);
  json said = receive(soon());
  if (!said.contains("error")) return said;
  stop();
  fail({.place = file_.string(), .found = said["error"].get<std::string>()});
}

json PythonChild::methods() {
  const std::scoped_lock lock(one_at_a_time_);
  return start();
}

json PythonChild::ask(const json& request, const Tensors& tensors) {
  const std::scoped_lock lock(one_at_a_time_);
  return exchange(request, tensors);
}

json PythonChild::make(const json& request) {
  const std::scoped_lock lock(one_at_a_time_);
  return exchange(request, {}, /*patient=*/false);
}

at::Tensor PythonChild::ask_tensor(const json& request, const Tensors& tensors) {
  const std::scoped_lock lock(one_at_a_time_);
  return written(exchange(request, tensors)).clone();
}

at::Tensor PythonChild::written(const json& place) const {
  const auto offset = place.at("offset").get<size_t>();
  const auto shape = place.at("shape").get<std::vector<int64_t>>();
  KVARENA_ASSERT(offset + bytes_of(place["shape"]) <= used_, "Python points beside its memory");
  return at::from_blob(mapped_ + offset, shape, at::kFloat);
}

json PythonChild::exchange(const json& request, const Tensors& tensors, bool patient) {
  if (!process_.running()) (void)start();
  used_ = 0;
  process_.send(request.dump());
  const PythonProcess::Deadline deadline = patient ? PythonProcess::Deadline() : soon();
  while (true) {
    json answer = receive(deadline);
    if (answer.contains("done")) return answer["done"];
    if (answer.contains("error")) {
      const std::string message = describe({.place = file_.string(), .found = answer["error"].get<std::string>()});
      if (!answer.contains("traceback")) throw UserError(message);
      throw LoggedError(message, answer["traceback"].get<std::string>());
    }
    try {
      process_.send((answer["want"] == "room" ? room(answer["shape"]) : lend(tensors(answer))).dump());
    } catch (...) {
      stop();  // it waits for an answer to this
      throw;
    }
  }
}

json PythonChild::room(const json& shape) {
  const size_t offset = reserve(bytes_of(shape));
  return {{"offset", offset}, {"bytes", mapped_bytes_}};
}

json PythonChild::lend(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  const size_t offset = reserve(whole.nbytes());
  std::memcpy(mapped_ + offset, whole.data_ptr(), whole.nbytes());
  return {{"offset", offset}, {"bytes", mapped_bytes_}, {"shape", whole.sizes().vec()}, {"dtype", dtype_name(whole)}};
}

size_t PythonChild::reserve(size_t bytes) {
  const size_t offset = (used_ + kAligned - 1) / kAligned * kAligned;
  used_ = offset + bytes;
  if (used_ <= mapped_bytes_) return offset;
  const size_t size = std::max({used_, 2 * mapped_bytes_, kSmallest});
  void* place = MAP_FAILED;
  if (::ftruncate(memory_, static_cast<off_t>(size)) == 0) {
    place = mapped_ == nullptr ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory_, 0)
                               : ::mremap(mapped_, mapped_bytes_, size, MREMAP_MAYMOVE);
  }
  if (place == MAP_FAILED) {
    fail({.place = file_.string(),
          .found = fmt::format("{} bytes to share with Python: {}", size, std::strerror(errno))});
  }
  mapped_ = static_cast<std::byte*>(place);
  mapped_bytes_ = size;
  return offset;
}

json PythonChild::receive(const PythonProcess::Deadline& deadline) {
  if (std::optional<json> message = process_.receive(deadline)) return std::move(*message);
  stop();
  fail({.place = file_.string(),
        .found = fmt::format("an import or a constructor that has not returned after {} s", python_patience().count()),
        .expected = "both to return soon",
        .action = "where imports take that long, put more seconds into KVARENA_PYTHON_SECONDS"});
}

}  // namespace kvarena

#include "harness/method/python/child.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "harness/core/logged_error.h"
#include "harness/core/own_files.h"

namespace kvarena {
namespace {

using nlohmann::json;

constexpr int kNotStarted = 127;       // exit code of a child that could not become Python
constexpr size_t kAligned = 64;        // bytes
constexpr size_t kSmallest = 1 << 20;  // bytes of the memory when it is first used

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

std::string interpreter() { return variable("KVARENA_PYTHON", "python3"); }

/// How long an import may take, and the construction of a method.
std::chrono::seconds patience() {
  const std::string text = variable("KVARENA_PYTHON_SECONDS", "60");
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error == std::errc() && end == text.data() + text.size() && seconds > 0) return std::chrono::seconds(seconds);
  fail({.place = "KVARENA_PYTHON_SECONDS", .found = text, .expected = "a number of seconds"});
}

std::chrono::steady_clock::time_point soon() { return std::chrono::steady_clock::now() + patience(); }

/// Runs in the child, between fork and exec: async-signal-safe calls only.
[[noreturn]] void become(char* const* words, int channel, int memory, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a method that hangs ends with the worker
  if (::getppid() != parent) ::_exit(kNotStarted);
  ::fcntl(channel, F_SETFD, 0);
  ::fcntl(memory, F_SETFD, 0);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);  // what a plugin prints is no output of the program
  ::execvp(words[0], words);
  ::_exit(kNotStarted);
}

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
  if (channel_ >= 0) ::close(channel_);
  if (memory_ >= 0) ::close(memory_);
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  channel_ = memory_ = -1;
  pid_ = -1;
  mapped_ = nullptr;
  mapped_bytes_ = 0;
  received_.clear();
}

json PythonChild::start() {
  std::array<int, 2> channel{-1, -1};
  memory_ = ::memfd_create("kvarena", MFD_CLOEXEC);
  if (memory_ < 0 || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel.data()) != 0) {
    fail({.place = file_.string(), .found = fmt::format("no memory to share with Python: {}", std::strerror(errno))});
  }
  channel_ = channel[0];
  std::vector<std::string> words = {interpreter(), own_file("child.py").string(), file_.string(),
                                    fmt::format("{}", channel[1]), fmt::format("{}", memory_)};
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become(pointers.data(), channel[1], memory_, parent);
  ::close(channel[1]);
  if (pid_ < 0) fail({.place = file_.string(), .found = fmt::format("no process for it: {}", std::strerror(errno))});
  json said = receive(soon());
  if (!said.contains("error")) return said;
  stop();
  fail({.place = file_.string(), .found = said["error"].get<std::string>()});
}

json PythonChild::methods() {
  const std::scoped_lock lock(one_at_a_time_);
  stop();
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
  if (pid_ < 0) (void)start();
  used_ = 0;
  send(request);
  const Deadline deadline = patient ? Deadline() : soon();
  while (true) {
    json answer = receive(deadline);
    if (answer.contains("done")) return answer["done"];
    if (answer.contains("error")) {
      const std::string message = describe({.place = file_.string(), .found = answer["error"].get<std::string>()});
      if (!answer.contains("traceback")) throw UserError(message);
      throw LoggedError(message, answer["traceback"].get<std::string>());
    }
    try {
      send(answer["want"] == "room" ? room(answer["shape"]) : lend(tensors(answer)));
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

void PythonChild::send(const json& message) {
  const std::string line = message.dump() + "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t length = ::send(channel_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return;  // it has ended, as reading will show
    sent += static_cast<size_t>(length);
  }
}

void PythonChild::await(std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  int ready = -1;
  while (ready < 0) {  // interrupted
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd readable{.fd = channel_, .events = POLLIN, .revents = 0};
    ready = ::poll(&readable, 1, static_cast<int>(std::max(left, milliseconds(0)).count()));
  }
  if (ready > 0) return;
  stop();
  fail({.place = file_.string(),
        .found = fmt::format("an import or a constructor that has not returned after {} s", patience().count()),
        .expected = "both to return soon",
        .action = "where imports take that long, put more seconds into KVARENA_PYTHON_SECONDS"});
}

json PythonChild::receive(const Deadline& deadline) {
  std::array<char, 1 << 14> piece{};
  size_t end = received_.find('\n');
  while (end == std::string::npos) {
    if (deadline) await(*deadline);
    const ssize_t length = ::recv(channel_, piece.data(), piece.size(), 0);
    if (length < 0 && errno == EINTR) continue;
    if (length <= 0) break;
    received_.append(piece.data(), static_cast<size_t>(length));
    end = received_.find('\n');
  }
  if (end != std::string::npos) {
    json message = json::parse(received_.substr(0, end));
    received_.erase(0, end + 1);
    return message;
  }
  tell_end();
}

void PythonChild::tell_end() {
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  stop();
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotStarted) {
    fail({.place = file_.string(),
          .found = fmt::format("no program \"{}\"", interpreter()),
          .expected = "Python 3.10 or newer",
          .action = "put its path into KVARENA_PYTHON"});
  }
  fail({.place = file_.string(),
        .found = WIFSIGNALED(status) ? fmt::format("its Python process ended by signal {} ({})", WTERMSIG(status),
                                                   ::strsignal(WTERMSIG(status)))
                                     : fmt::format("its Python process ended with exit code {}", WEXITSTATUS(status))});
}

}  // namespace kvarena

#include "harness/engine/array_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <regex>
#include <string_view>

#include "harness/core/error.h"
#include "harness/core/files.h"

namespace kvarena {
namespace {

namespace fs = std::filesystem;

/// A file's bytes, read from front to back.
class Bytes {
 public:
  Bytes(const fs::path& file, std::string_view all) : file_(&file), all_(all) {}

  [[nodiscard]] bool done() const { return all_.empty(); }
  std::string_view take(size_t count) {
    if (count > all_.size()) refuse("a file that ends too early");
    const std::string_view taken = all_.substr(0, count);
    all_.remove_prefix(count);
    return taken;
  }
  /// An unsigned integer, little-endian.
  uint64_t number(size_t count) {
    uint64_t value = 0;
    const std::string_view taken = take(count);
    std::memcpy(&value, taken.data(), count);
    return value;
  }
  std::string_view line() {
    const std::string_view taken = take(std::min(all_.find('\n'), all_.size()));
    if (!all_.empty()) all_.remove_prefix(1);
    return taken;
  }
  [[noreturn]] void refuse(const std::string& found) const {
    fail({.place = file_->string(),
          .found = found,
          .expected = "one array of finite float32, or float64 in a .npy, in C order",
          .action = "save it with safetensors.torch.save_file under the name that the method's page gives"});
  }

 private:
  const fs::path* file_;
  std::string_view all_;
};

int64_t elements(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies());
}

template <typename Stored>
FittedTensor tensor_of(Bytes& bytes, std::vector<int64_t> shape) {
  FittedTensor tensor{.shape = std::move(shape), .values = {}};
  const auto count = static_cast<size_t>(elements(tensor.shape));
  std::vector<Stored> stored(count);
  std::memcpy(stored.data(), bytes.take(count * sizeof(Stored)).data(), count * sizeof(Stored));
  tensor.values.assign(stored.begin(), stored.end());
  if (!std::ranges::all_of(tensor.values, [](float x) { return std::isfinite(x); })) {
    bytes.refuse("a number that is not finite");
  }
  return tensor;
}

/// The shape that torch.save() gives the one tensor of data.pkl: of the numbers behind the reference to the storage
/// the first is an offset into it, and those of the first tuple are the sizes, of the second the strides.
std::vector<int64_t> pickled_shape(Bytes pickle) {
  std::vector<std::vector<int64_t>> tuples;
  std::vector<int64_t> numbers;
  bool stored = false, floats = false;
  while (!pickle.done()) {
    const auto op = static_cast<uint8_t>(pickle.take(1).front());
    switch (op) {
      case 0x80: pickle.take(1); break;                // protocol
      case 'q': pickle.take(1); break;                 // memo
      case 'r': pickle.take(4); break;                 // memo, long
      case 'X': pickle.take(pickle.number(4)); break;  // text
      case 'K': numbers.push_back(static_cast<int64_t>(pickle.number(1))); break;
      case 'M': numbers.push_back(static_cast<int64_t>(pickle.number(2))); break;
      case 'J': numbers.push_back(static_cast<int32_t>(pickle.number(4))); break;
      case 'c': {  // a class of a module
        const std::string_view module = pickle.line(), name = pickle.line();
        floats = floats || (module == "torch" && name == "FloatStorage");
        break;
      }
      case 'Q':  // the storage
        if (stored) pickle.refuse("several tensors");
        stored = true;
        numbers.clear();
        break;
      case 0x85:
      case 0x86:
      case 0x87: {  // a tuple of one to three
        const size_t count = op - 0x84U;
        if (stored && numbers.size() >= count) {
          if (tuples.empty() && numbers.front() != 0) pickle.refuse("a tensor that begins within its storage");
          tuples.emplace_back(numbers.end() - static_cast<int64_t>(count), numbers.end());
        }
        numbers.clear();
        break;
      }
      case '(':
      case ')':
      case 't':
      case 'R':
      case '.':
      case 0x88:
      case 0x89: break;
      default: pickle.refuse(fmt::format("a pickle with the operation 0x{:02x}", op));
    }
  }
  if (tuples.size() < 2 || !floats) pickle.refuse("no tensor of float32 with at most three dimensions");
  int64_t stride = 1;
  for (size_t i = tuples[0].size(); i-- > 0; stride *= tuples[0][i]) {
    if (i >= tuples[1].size() || (tuples[0][i] > 1 && tuples[1][i] != stride))
      pickle.refuse("a tensor that is not contiguous");
  }
  return tuples[0];
}

/// The bytes of the member of a zip archive whose name ends so; members are stored as they are.
std::string_view member(const fs::path& file, std::string_view all, std::string_view ending) {
  const Bytes whole(file, all);
  const size_t end = all.rfind("PK\5\6");
  if (end == std::string_view::npos || all.size() - end < 22) whole.refuse("no archive of torch.save()");
  Bytes tail(file, all.substr(end + 16));
  Bytes directory(file, all.substr(std::min<size_t>(tail.number(4), all.size())));
  while (directory.take(4) == "PK\1\2") {
    Bytes head(file, directory.take(42));
    head.take(6);
    const uint64_t method = head.number(2);
    head.take(8);
    const uint64_t stored = head.number(4);
    head.take(4);
    const uint64_t name_size = head.number(2), extra = head.number(2), comment = head.number(2);
    head.take(8);
    const uint64_t offset = head.number(4);
    const std::string_view name = directory.take(name_size);
    directory.take(extra + comment);
    if (!name.ends_with(ending)) continue;
    if (method != 0) whole.refuse("a compressed archive");
    Bytes local(file, all.substr(std::min<size_t>(offset, all.size())));
    local.take(26);
    const uint64_t names = local.number(2), extras = local.number(2);
    local.take(names + extras);
    return local.take(stored);
  }
  whole.refuse(fmt::format("an archive without a member {}", ending));
}

}  // namespace

FittedTensor read_npy(const fs::path& file) {
  const std::string all = read_file(file);
  Bytes bytes(file, all);
  if (bytes.take(6) != "\x93NUMPY") bytes.refuse("no array of NumPy");
  const uint64_t version = bytes.number(2);
  const std::string header(bytes.take(bytes.number(version % 256 == 1 ? 2 : 4)));
  std::smatch found;
  static const std::regex kHeader(R"('descr': '<f([48])'.*'fortran_order': False.*'shape': \(([0-9, ]*)\))");
  if (!std::regex_search(header, found, kHeader)) bytes.refuse(fmt::format("an array of \"{}\"", header.substr(0, 80)));
  std::vector<int64_t> shape;
  const std::string sizes = found[2];
  static const std::regex kNumber("[0-9]+");
  for (auto at = std::sregex_iterator(sizes.begin(), sizes.end(), kNumber); at != std::sregex_iterator(); ++at)
    shape.push_back(std::stoll(at->str()));
  return found[1] == "4" ? tensor_of<float>(bytes, std::move(shape)) : tensor_of<double>(bytes, std::move(shape));
}

FittedTensor read_torch_tensor(const fs::path& file) {
  const std::string all = read_file(file);
  std::vector<int64_t> shape = pickled_shape(Bytes(file, member(file, all, "/data.pkl")));
  Bytes data(file, member(file, all, "/data/0"));
  return tensor_of<float>(data, std::move(shape));
}

}  // namespace kvarena

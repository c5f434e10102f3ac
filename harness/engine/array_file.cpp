#include "harness/engine/array_file.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <torch/csrc/jit/serialization/pickle.h>

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
  const Bytes bytes(file, all);
  at::Tensor saved;
  try {
    const c10::IValue value = torch::jit::pickle_load({all.begin(), all.end()});
    if (value.isTensor()) saved = value.toTensor();
  } catch (const std::exception& error) {
    const std::string_view why = error.what();
    bytes.refuse(fmt::format("what libtorch does not read: {}", why.substr(0, why.find('\n'))));
  }
  if (!saved.defined() || saved.scalar_type() != at::kFloat || !saved.is_contiguous())
    bytes.refuse("no contiguous tensor of float32");
  Bytes numbers(file, {static_cast<const char*>(saved.const_data_ptr()), saved.nbytes()});
  return tensor_of<float>(numbers, saved.sizes().vec());
}

}  // namespace kvarena

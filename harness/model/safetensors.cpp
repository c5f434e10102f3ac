#include "harness/model/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/core/json_text.h"
#include "harness/core/unique_keys.h"
#include "kernels/common/dtype.h"

namespace kvarena {
namespace {

using nlohmann::json;

/// The limit of the format's own library: a longer header is an attack or an accident.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct StoredTensor {
  TensorInfo info;
  std::span<const std::byte> bytes;  // inside a mapped shard
};

struct ElementFormat {
  TensorType type;
  int64_t bytes;
};

/// Sizes of all the types that the format knows; only three can be read as floats.
ElementFormat element_format(const std::string& place, const std::string& dtype) {
  static const std::map<std::string, ElementFormat> known = {
      {"F32", {TensorType::f32, 4}},    {"F16", {TensorType::f16, 2}},       {"BF16", {TensorType::bf16, 2}},
      {"F64", {TensorType::other, 8}},  {"I64", {TensorType::other, 8}},     {"U64", {TensorType::other, 8}},
      {"I32", {TensorType::other, 4}},  {"U32", {TensorType::other, 4}},     {"I16", {TensorType::other, 2}},
      {"U16", {TensorType::other, 2}},  {"I8", {TensorType::other, 1}},      {"U8", {TensorType::other, 1}},
      {"BOOL", {TensorType::other, 1}}, {"F8_E4M3", {TensorType::other, 1}}, {"F8_E5M2", {TensorType::other, 1}},
  };
  const auto it = known.find(dtype);
  if (it == known.end()) {
    fail({.place = place, .found = fmt::format("dtype \"{}\"", dtype), .expected = "a safetensors dtype such as BF16"});
  }
  return it->second;
}

json parse_text(const std::string& place, std::string_view text) {
  require_shallow(text, place);
  require_unique_keys(text, place);
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    fail({.place = place, .found = error.what(), .expected = "JSON"});
  }
}

StoredTensor read_entry(const std::filesystem::path& file, const std::string& name, const json& entry,
                        std::span<const std::byte> data) {
  const std::string place = fmt::format("{}: tensor {}", file.string(), name);
  const auto is_counts = [](const json& list) {
    return list.is_array() &&
           std::all_of(list.begin(), list.end(), [](const json& n) { return n.is_number_unsigned(); });
  };
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() || !entry.contains("shape") ||
      !is_counts(entry["shape"]) || !entry.contains("data_offsets") || !is_counts(entry["data_offsets"]) ||
      entry["data_offsets"].size() != 2) {
    fail({.place = place, .found = entry.dump().substr(0, 100), .expected = "dtype, shape and two data_offsets"});
  }
  StoredTensor tensor;
  tensor.info.name = tensor.info.stored_name = name;
  tensor.info.stored_type = entry["dtype"].get<std::string>();
  const ElementFormat format = element_format(place, tensor.info.stored_type);
  tensor.info.type = format.type;
  for (const json& size : entry["shape"]) {
    const auto value = size.get<uint64_t>();
    tensor.info.shape.push_back(value > INT64_MAX ? -1 : static_cast<int64_t>(value));
  }
  const int64_t elements = checked_elements(tensor.info.shape);
  int64_t bytes = 0;
  if (elements < 0 || __builtin_mul_overflow(elements, format.bytes, &bytes)) {
    fail({.place = place, .found = "shape " + entry["shape"].dump(), .expected = "a size that fits in memory"});
  }
  const auto begin = entry["data_offsets"][0].get<uint64_t>();
  const auto end = entry["data_offsets"][1].get<uint64_t>();
  if (begin > end || end > data.size()) {
    fail({.place = place,
          .found = fmt::format("bytes {} to {} of a file with {} bytes of data", begin, end, data.size()),
          .expected = "a range inside the file",
          .action = "The file is cut short or damaged: copy or download it again."});
  }
  if (end - begin != static_cast<uint64_t>(bytes)) {
    fail({.place = place,
          .found = fmt::format("{} bytes", end - begin),
          .expected = fmt::format("{} for {} {}", bytes, tensor.info.stored_type, entry["shape"].dump())});
  }
  tensor.info.stored_bytes = bytes;
  tensor.bytes = data.subspan(begin, end - begin);
  return tensor;
}

/// The format demands that tensors cover the data without gaps or overlaps; so a cut or grown file is noticed.
void check_layout(const std::filesystem::path& file, std::span<const std::byte> data,
                  const std::vector<StoredTensor>& tensors) {
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return std::pair(a->bytes.data(), a->bytes.size()) < std::pair(b->bytes.data(), b->bytes.size());
  });
  size_t at = 0;
  for (const StoredTensor* tensor : order) {
    const auto begin = static_cast<size_t>(tensor->bytes.data() - data.data());
    if (begin != at) {
      fail({.place = fmt::format("{}: tensor {}", file.string(), tensor->info.name),
            .found = fmt::format("a start at byte {} of the data", begin),
            .expected = fmt::format("{}, where the tensor before it ends", at)});
    }
    at = begin + tensor->bytes.size();
  }
  if (at != data.size()) {
    fail({.place = file.string(),
          .found = fmt::format("{} bytes of data", data.size()),
          .expected = fmt::format("{}, the sum of the tensors", at),
          .action = "The file was cut short or something was appended."});
  }
}

/// The header's JSON and where the tensors' bytes begin.
std::pair<json, size_t> parse_header(const MappedFile& file) {
  const std::span<const std::byte> bytes = file.bytes();
  uint64_t header_bytes = 0;
  if (bytes.size() >= sizeof header_bytes) std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (bytes.size() < sizeof header_bytes || header_bytes > bytes.size() - sizeof header_bytes ||
      header_bytes > kMaxHeaderBytes) {
    fail({.place = file.path().string(),
          .found = fmt::format("a header of {} bytes in a file of {}", header_bytes, bytes.size()),
          .expected = "a safetensors file, whose header fits in it",
          .action = "The file is cut short, damaged, or of another format."});
  }
  const auto* text = reinterpret_cast<const char*>(bytes.data() + sizeof header_bytes);
  json header = parse_text(file.path().string() + ": header", {text, header_bytes});
  if (!header.is_object()) fail({.place = file.path().string() + ": header", .found = "no JSON object"});
  return {std::move(header), sizeof header_bytes + header_bytes};
}

std::vector<StoredTensor> read_header(const MappedFile& file) {
  const auto [header, begin] = parse_header(file);
  const std::span<const std::byte> data = file.bytes().subspan(begin);
  std::vector<StoredTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") tensors.push_back(read_entry(file.path(), name, entry, data));
  }
  check_layout(file.path(), data, tensors);
  return tensors;
}

class Safetensors final : public Checkpoint {
 public:
  explicit Safetensors(std::filesystem::path path) : path_(std::move(path)) {}

  std::vector<std::string> add_shard(const std::filesystem::path& file) {
    shards_.emplace_back(file);
    std::vector<std::string> names;
    for (StoredTensor& tensor : read_header(shards_.back())) {
      names.push_back(tensor.info.name);
      stored_.push_back(std::move(tensor));
    }
    return names;
  }

  void finish() {
    std::sort(stored_.begin(), stored_.end(),
              [](const StoredTensor& a, const StoredTensor& b) { return a.info.name < b.info.name; });
    for (size_t i = 0; i < stored_.size(); ++i) {
      if (i > 0 && stored_[i].info.name == stored_[i - 1].info.name) {
        fail({.place = path_.string(), .found = fmt::format("tensor {} in two shards", stored_[i].info.name)});
      }
      infos_.push_back(stored_[i].info);
    }
  }

  const std::vector<TensorInfo>& tensors() const override { return infos_; }
  const std::filesystem::path& path() const override { return path_; }

  std::vector<std::filesystem::path> files() const override {
    std::vector<std::filesystem::path> paths;
    for (const MappedFile& shard : shards_) paths.push_back(shard.path());
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  std::span<const std::byte> raw(std::string_view name) const override {
    const TensorInfo& info = at(name);
    const std::span<const std::byte> bytes = stored_[static_cast<size_t>(&info - infos_.data())].bytes;
    const std::string_view stored = info.stored_type;
    if (stored == "I64" || stored == "I32" || stored == "BOOL" || stored == "U8") return bytes;
    if (info.type == TensorType::other) return {};
    const auto alignment = static_cast<uintptr_t>(block_size(info.type).bytes);
    return reinterpret_cast<uintptr_t>(bytes.data()) % alignment == 0 ? bytes : std::span<const std::byte>();
  }

 private:
  void convert_rows(size_t index, int64_t first, int64_t count, float* out) const override {
    const StoredTensor& tensor = stored_[index];
    const int64_t columns = tensor.info.columns();
    const std::byte* begin = tensor.bytes.data() + first * columns * block_size(tensor.info.type).bytes;
    convert_to_f32(tensor.info.type, begin, count * columns, out);
  }

  std::filesystem::path path_;
  std::vector<MappedFile> shards_;
  std::vector<StoredTensor> stored_;  // sorted by name, like infos_
  std::vector<TensorInfo> infos_;
};

}  // namespace

std::unique_ptr<Checkpoint> open_safetensors(const std::filesystem::path& file) {
  auto checkpoint = std::make_unique<Safetensors>(file);
  checkpoint->add_shard(file);
  checkpoint->finish();
  return checkpoint;
}

std::map<std::string, std::string> safetensors_metadata(const std::filesystem::path& file) {
  const json header = parse_header(MappedFile(file)).first;
  std::map<std::string, std::string> metadata;
  if (!header.contains("__metadata__")) return metadata;
  for (const auto& [key, value] : header["__metadata__"].items()) {
    if (!value.is_string()) {
      fail(
          {.place = fmt::format("{}: __metadata__.{}", file.string(), key), .found = value.dump(), .expected = "text"});
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

void write_safetensors(const std::filesystem::path& file, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  header["__metadata__"] = metadata;
  std::string data;
  for (const TensorToWrite& tensor : tensors) {
    const size_t begin = data.size();
    for (const float value : tensor.values) {
      if (tensor.bf16) {
        const uint16_t bits = kernels::f32_to_bf16(value);
        data.append(reinterpret_cast<const char*>(&bits), sizeof bits);
      } else {
        data.append(reinterpret_cast<const char*>(&value), sizeof value);
      }
    }
    header[tensor.name] = {
        {"dtype", tensor.bf16 ? "BF16" : "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the format wants tensors aligned to 8 bytes
  const uint64_t size = text.size();
  write_file(file, std::string(reinterpret_cast<const char*>(&size), sizeof size) + text + data);
}

std::unique_ptr<Checkpoint> open_sharded_safetensors(const std::filesystem::path& index) {
  const std::string text = read_file(index);
  const json content = parse_text(index.string(), text);
  if (!content.is_object() || !content.contains("weight_map") || !content["weight_map"].is_object()) {
    fail({.place = index.string(), .found = "no object \"weight_map\"", .expected = "tensor names and their shards"});
  }
  std::map<std::string, std::set<std::string>> shards;  // file name -> tensors that should be in it
  for (const auto& [name, shard] : content["weight_map"].items()) {
    const std::string file = shard.is_string() ? shard.get<std::string>() : "";
    if (file.empty() || std::filesystem::path(file).filename() != file) {
      fail({.place = fmt::format("{}: weight_map.{}", index.string(), name),
            .found = shard.dump(),
            .expected = "a file name in the same folder"});
    }
    shards[file].insert(name);
  }
  auto checkpoint = std::make_unique<Safetensors>(index.parent_path());
  for (const auto& [file, expected] : shards) {
    const std::vector<std::string> names = checkpoint->add_shard(index.parent_path() / file);
    const std::set<std::string> present(names.begin(), names.end());
    for (const std::string& name : expected) {
      if (!present.contains(name)) {
        fail({.place = (index.parent_path() / file).string(),
              .found = fmt::format("no tensor {}", name),
              .expected = fmt::format("it here, as {} says", index.filename().string())});
      }
    }
  }
  checkpoint->finish();
  return checkpoint;
}

}  // namespace kvarena

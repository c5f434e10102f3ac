#include "harness/model/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>

#include "harness/core/error.h"

namespace kvarena {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF values are read in place");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr int64_t kDefaultAlignment = 32;
constexpr uint32_t kMaxDimensions = 4;                   // the format's own limit
constexpr uint64_t kMinTensorEntry = 8 + 4 + 8 + 4 + 8;  // name length, rank, one size, type, offset
constexpr uint64_t kMinMetadataEntry = 8 + 4 + 1;

/// GGML's numbering of tensor types, as far as it goes without gaps that matter here.
struct GgmlType {
  uint32_t id;
  const char* name;
  TensorType type;
  BlockSize block;
};
constexpr GgmlType kGgmlTypes[] = {
    {0, "F32", TensorType::f32, {1, 4}},           {1, "F16", TensorType::f16, {1, 2}},
    {2, "Q4_0", TensorType::q4_0, {32, 18}},       {3, "Q4_1", TensorType::q4_1, {32, 20}},
    {6, "Q5_0", TensorType::q5_0, {32, 22}},       {7, "Q5_1", TensorType::q5_1, {32, 24}},
    {8, "Q8_0", TensorType::q8_0, {32, 34}},       {9, "Q8_1", TensorType::other, {32, 36}},
    {10, "Q2_K", TensorType::q2_k, {256, 84}},     {11, "Q3_K", TensorType::q3_k, {256, 110}},
    {12, "Q4_K", TensorType::q4_k, {256, 144}},    {13, "Q5_K", TensorType::q5_k, {256, 176}},
    {14, "Q6_K", TensorType::q6_k, {256, 210}},    {15, "Q8_K", TensorType::other, {256, 292}},
    {16, "IQ2_XXS", TensorType::other, {256, 66}}, {17, "IQ2_XS", TensorType::other, {256, 74}},
    {18, "IQ3_XXS", TensorType::other, {256, 98}}, {19, "IQ1_S", TensorType::other, {256, 50}},
    {20, "IQ4_NL", TensorType::iq4_nl, {32, 18}},  {21, "IQ3_S", TensorType::other, {256, 110}},
    {22, "IQ2_S", TensorType::other, {256, 82}},   {23, "IQ4_XS", TensorType::iq4_xs, {256, 136}},
    {24, "I8", TensorType::other, {1, 1}},         {25, "I16", TensorType::other, {1, 2}},
    {26, "I32", TensorType::other, {1, 4}},        {27, "I64", TensorType::other, {1, 8}},
    {28, "F64", TensorType::other, {1, 8}},        {29, "IQ1_M", TensorType::other, {256, 56}},
    {30, "BF16", TensorType::bf16, {1, 2}},        {39, "MXFP4", TensorType::mxfp4, {32, 17}},
};

/// Reads a mapped file front to back; every step says what it was reading when the file ends.
class Reader {
 public:
  Reader(const std::filesystem::path& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  template <class T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }

  std::string_view string(std::string_view what) {
    const auto length = number<uint64_t>(what);
    const std::span<const std::byte> text = take(length, what);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }

  std::span<const std::byte> take(uint64_t count, std::string_view what) {
    if (count > left()) {
      fail({.place = fmt::format("{}: {} at byte {}", path_.string(), what, at_),
            .found = fmt::format("{} bytes to the end of the file", left()),
            .expected = fmt::format("at least {}", count),
            .action = "The file is cut short or damaged: copy or download it again."});
    }
    const auto part = bytes_.subspan(at_, count);
    at_ += count;
    return part;
  }

  /// A count that the header claims of things that take at least `each` bytes.
  uint64_t count(uint64_t each, std::string_view what) {
    const auto claimed = number<uint64_t>(what);
    if (claimed > left() / each) {
      fail({.place = fmt::format("{}: {}", path_.string(), what),
            .found = fmt::format("{}, with {} bytes to the end of the file", claimed, left()),
            .expected = fmt::format("at most {}", left() / each),
            .action = "The file is cut short or damaged: copy or download it again."});
    }
    return claimed;
  }

  [[nodiscard]] uint64_t left() const { return bytes_.size() - at_; }
  [[nodiscard]] uint64_t at() const { return at_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  const std::filesystem::path& path_;
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
};

/// 0 for strings and arrays, whose elements differ in size.
uint64_t fixed_size(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean: return 1;
    case GgufType::u16:
    case GgufType::i16: return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32: return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64: return 8;
    case GgufType::string:
    case GgufType::array: return 0;
  }
  return 0;
}

GgufType read_type(Reader& reader, std::string_view place) {
  const auto number = reader.number<uint32_t>(place);
  if (number > static_cast<uint32_t>(GgufType::f64)) {
    fail({.place = fmt::format("{}: {}", reader.path().string(), place),
          .found = fmt::format("value type {}", number),
          .expected = "0 to 12"});
  }
  return static_cast<GgufType>(number);
}

GgufValue read_value(Reader& reader, std::span<const std::byte> file, std::string_view key) {
  const std::string place = fmt::format("metadata {}", key);
  GgufValue value;
  value.type = read_type(reader, place);
  if (value.type == GgufType::array) {
    value.is_array = true;
    value.type = read_type(reader, place);
    if (value.type == GgufType::array) {
      fail({.place = fmt::format("{}: {}", reader.path().string(), place),
            .found = "an array of arrays",
            .expected = "an array of numbers or strings"});
    }
    value.count = reader.count(value.type == GgufType::string ? 8 : fixed_size(value.type), place);
  }
  const uint64_t begin = reader.at();
  if (value.type == GgufType::string) {
    for (uint64_t i = 0; i < value.count; ++i) reader.string(place);
  } else {
    reader.take(value.count * fixed_size(value.type), place);
  }
  value.bytes = file.subspan(begin, reader.at() - begin);
  return value;
}

struct TensorEntry {
  GgufTensor tensor;
  uint64_t offset = 0;
  int64_t bytes = 0;
};

TensorEntry read_tensor_entry(Reader& reader, uint64_t index) {
  TensorEntry entry;
  entry.tensor.name = reader.string(fmt::format("name of tensor {}", index));
  const std::string place = fmt::format("tensor {}", entry.tensor.name);
  const std::string where = fmt::format("{}: {}", reader.path().string(), place);
  const auto rank = reader.number<uint32_t>(place);
  if (rank < 1 || rank > kMaxDimensions) {
    fail({.place = where, .found = fmt::format("{} dimensions", rank), .expected = "1 to 4"});
  }
  for (uint32_t i = 0; i < rank; ++i) {
    const auto size = reader.number<uint64_t>(place);
    if (size == 0) fail({.place = where, .found = "a dimension of size 0", .expected = "at least 1"});
    entry.tensor.shape.insert(entry.tensor.shape.begin(), size > INT64_MAX ? -1 : static_cast<int64_t>(size));
  }
  const auto type_id = reader.number<uint32_t>(place);
  const auto* type = std::find_if(std::begin(kGgmlTypes), std::end(kGgmlTypes),
                                  [&](const GgmlType& known) { return known.id == type_id; });
  if (type == std::end(kGgmlTypes)) {
    fail({.place = where, .found = fmt::format("GGML type {}", type_id), .expected = "a type up to BF16 (30)"});
  }
  entry.tensor.type = type->type;
  entry.tensor.stored_type = type->name;
  entry.offset = reader.number<uint64_t>(place);
  const int64_t elements = checked_elements(entry.tensor.shape);
  if (elements < 0 || __builtin_mul_overflow(elements / type->block.elements, type->block.bytes, &entry.bytes)) {
    fail({.place = where, .found = "a shape whose product overflows", .expected = "a size that fits in memory"});
  }
  if (entry.tensor.shape.back() % type->block.elements != 0) {
    fail({.place = where,
          .found = fmt::format("rows of {}", entry.tensor.shape.back()),
          .expected = fmt::format("a multiple of {} for {}", type->block.elements, type->name)});
  }
  return entry;
}

/// Checks that tensors are aligned, inside the file and do not overlap, and points each at its bytes.
void place_tensors(const std::filesystem::path& path, std::span<const std::byte> data, int64_t alignment,
                   std::vector<TensorEntry>& entries) {
  for (TensorEntry& entry : entries) {
    const std::string where = fmt::format("{}: tensor {}", path.string(), entry.tensor.name);
    if (entry.offset % static_cast<uint64_t>(alignment) != 0) {
      fail({.place = where,
            .found = fmt::format("offset {}", entry.offset),
            .expected = fmt::format("a multiple of the alignment, {}", alignment)});
    }
    if (entry.offset > data.size() || static_cast<uint64_t>(entry.bytes) > data.size() - entry.offset) {
      fail({.place = where,
            .found = fmt::format("{} bytes at offset {}, but {} bytes of data", entry.bytes, entry.offset, data.size()),
            .expected = "a range inside the file",
            .action = "The file is cut short or damaged: copy or download it again."});
    }
    entry.tensor.bytes = data.subspan(entry.offset, static_cast<size_t>(entry.bytes));
  }
  std::vector<const TensorEntry*> order;
  for (const TensorEntry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const TensorEntry* a, const TensorEntry* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->offset + static_cast<uint64_t>(order[i - 1]->bytes) > order[i]->offset) {
      fail({.place = fmt::format("{}: tensor {}", path.string(), order[i]->tensor.name),
            .found = fmt::format("bytes that tensor {} also claims", order[i - 1]->tensor.name),
            .expected = "tensors that do not overlap"});
    }
  }
}

void check_version(Reader& reader) {
  const auto magic = reader.number<uint32_t>("magic");
  if (magic != kMagic) {
    fail({.place = reader.path().string(),
          .found = fmt::format("the first four bytes {:08x}", __builtin_bswap32(magic)),
          .expected = "47475546 (\"GGUF\")",
          .action = "The file is damaged or of another format."});
  }
  const auto version = reader.number<uint32_t>("version");
  if (version != 2 && version != 3) {
    const bool swapped = __builtin_bswap32(version) == 3;
    fail({.place = reader.path().string(),
          .found = swapped ? "a big-endian GGUF file" : fmt::format("GGUF version {}", version),
          .expected = "version 2 or 3, little-endian"});
  }
}

constexpr const char* kPart = "split.no";
constexpr const char* kParts = "split.count";

/// Ending of the name of a part, from 0 on.
std::string part_ending(int64_t part, int64_t parts) { return fmt::format("-{:05}-of-{:05}.gguf", part + 1, parts); }

}  // namespace

bool is_later_part(const std::filesystem::path& path) {
  constexpr std::string_view kOf = "-of-";
  constexpr size_t kDigits = 5;
  const std::string name = path.stem().string();
  const size_t of = name.rfind(kOf);
  if (path.extension() != ".gguf" || of == std::string::npos || of <= kDigits || name[of - kDigits - 1] != '-')
    return false;
  const std::string part = name.substr(of - kDigits, kDigits), parts = name.substr(of + kOf.size());
  return parts.size() == kDigits && (part + parts).find_first_not_of("0123456789") == std::string::npos &&
         part != "00001";
}

GgufFile::GgufFile(const std::filesystem::path& path) : GgufFile(path, Alone{}) {
  const int64_t parts = find_int(kParts).value_or(1), part = find_int(kPart).value_or(0);
  if (part != 0) {
    fail({.place = path.string(),
          .found = fmt::format("part {} of {}", part + 1, parts),
          .expected = "the first, which describes the model",
          .action = fmt::format("Name the file that ends in {}.", part_ending(0, parts))});
  }
  for (int64_t other = 1; other < parts; ++other) add_part(other, parts);
}

/// Adds the tensors of a part beside the first.
void GgufFile::add_part(int64_t part, int64_t parts) {
  const std::string first = path().string(), ending = part_ending(0, parts);
  const std::filesystem::path other =
      first.substr(0, first.size() - std::min(first.size(), ending.size())) + part_ending(part, parts);
  if (!first.ends_with(ending) || !std::filesystem::exists(other)) {
    fail({.place = first,
          .found = first.ends_with(ending) ? fmt::format("no {} beside it", other.filename().string())
                                           : fmt::format("the first of {} parts", parts),
          .expected = fmt::format("all {} parts in one folder, the first named NAME{}", parts, ending)});
  }
  GgufFile added(other, Alone{});
  if (added.find_int(kPart) != part || added.find_int(kParts) != parts) {
    fail({.place = other.string(),
          .found =
              fmt::format("part {} of {}", added.find_int(kPart).value_or(0) + 1, added.find_int(kParts).value_or(1)),
          .expected = fmt::format("part {} of {}, as it is named", part + 1, parts)});
  }
  std::ranges::move(added.files_, std::back_inserter(files_));
  std::ranges::move(added.tensors_, std::back_inserter(tensors_));
}

std::vector<std::filesystem::path> GgufFile::paths() const {
  std::vector<std::filesystem::path> all;
  for (const MappedFile& file : files_) all.push_back(file.path());
  return all;
}

GgufFile::GgufFile(const std::filesystem::path& path, Alone) {
  const MappedFile& file = files_.emplace_back(path);
  Reader reader(file.path(), file.bytes());
  check_version(reader);
  const uint64_t tensor_count = reader.count(kMinTensorEntry, "number of tensors");
  const uint64_t metadata_count = reader.count(kMinMetadataEntry, "number of metadata entries");
  for (uint64_t i = 0; i < metadata_count; ++i) {
    const std::string key(reader.string(fmt::format("key of metadata entry {}", i)));
    const GgufValue value = read_value(reader, file.bytes(), key);
    if (!metadata_.emplace(key, value).second) {
      fail(
          {.place = path.string(), .found = fmt::format("metadata {} twice", key), .expected = "keys that are unique"});
    }
  }
  std::vector<TensorEntry> entries;
  for (uint64_t i = 0; i < tensor_count; ++i) entries.push_back(read_tensor_entry(reader, i));

  const int64_t alignment = find_int("general.alignment").value_or(kDefaultAlignment);
  if (alignment < 8 || alignment > (1 << 20) || alignment % 8 != 0) {
    fail({.place = fmt::format("{}: metadata general.alignment", path.string()),
          .found = fmt::to_string(alignment),
          .expected = "a multiple of 8 up to 1048576"});
  }
  const auto unit = static_cast<uint64_t>(alignment);
  const uint64_t data_begin = std::min((reader.at() + unit - 1) / unit * unit, uint64_t{file.bytes().size()});
  place_tensors(file.path(), file.bytes().subspan(data_begin), alignment, entries);
  for (TensorEntry& entry : entries) tensors_.push_back(std::move(entry.tensor));
}

bool is_gguf(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  uint32_t magic = 0;
  file.read(reinterpret_cast<char*>(&magic), sizeof magic);
  return file && magic == kMagic;
}

}  // namespace kvarena

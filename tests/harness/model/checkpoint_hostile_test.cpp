// Damaged and malicious checkpoints: an error that names the file and the place, never a crash or a huge allocation.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <random>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/model/gguf.h"
#include "harness/model/open_model.h"
#include "tests/harness/model/model_files.h"

namespace kvarena {
namespace {

/// Opens `content` as a file called `name` and reads all of it. The message of the UserError, or empty without one.
std::string error_of(const testing::TemporaryFolder& folder, const std::string& name, std::string_view content) {
  const auto file = folder.write(name, content);
  try {
    const auto checkpoint = open_checkpoint(file);
    for (const TensorInfo& info : checkpoint->tensors()) {
      if (info.type == TensorType::other) continue;
      std::vector<float> values(static_cast<size_t>(info.elements()));
      checkpoint->read_f32(info.name, values);
    }
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << "the file is not named: " << error.what();
    return error.what();
  }
  return {};
}

/// A GGUF file put together byte by byte.
class GgufBytes {
 public:
  template <class T>
  GgufBytes& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& text(std::string_view value) {
    number<uint64_t>(value.size());
    bytes_ += value;
    return *this;
  }
  GgufBytes& header(uint64_t tensors, uint64_t metadata) {
    bytes_ += "GGUF";
    return number<uint32_t>(3).number(tensors).number(metadata);
  }
  /// One f32 tensor of `size` elements at `offset` of the data.
  GgufBytes& tensor(std::string_view name, uint64_t size, uint64_t offset, uint32_t type = 0) {
    return text(name).number<uint32_t>(1).number(size).number(type).number(offset);
  }
  GgufBytes& data(size_t size) {
    bytes_.resize((bytes_.size() + 31) / 32 * 32 + size, '\0');
    return *this;
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

void expect_error(const std::string& error, const std::string& word) {
  EXPECT_NE(error.find(word), std::string::npos) << "expected \"" << word << "\" in: " << error;
}

TEST(HostileGguf, CutAnywhereItIsRefused) {
  const testing::TemporaryFolder folder;
  const std::string whole = read_file(testing::golden_file("blocks.gguf"));
  ASSERT_EQ(error_of(folder, "whole.gguf", whole), "");
  const size_t step_after = 1200;  // in the header by 7, so that fields are cut everywhere; 32 bytes may be padding
  for (size_t cut = 0; cut + 32 < whole.size(); cut += cut < step_after ? 7 : 997) {
    ASSERT_NE(error_of(folder, "cut.gguf", std::string_view(whole).substr(0, cut)), "") << "cut at " << cut;
  }
}

TEST(HostileGguf, ClaimsBeyondTheFileAreRefusedBeforeTheyCostMemory) {
  const testing::TemporaryFolder folder;
  constexpr uint64_t kHuge = uint64_t{1} << 60;
  const auto error = [&](const GgufBytes& file) { return error_of(folder, "bad.gguf", file.bytes()); };
  expect_error(error(GgufBytes().header(kHuge, 0)), "number of tensors");
  expect_error(error(GgufBytes().header(0, kHuge)), "number of metadata");
  expect_error(error(GgufBytes().header(0, 1).number(kHuge).data(64)), "key of metadata entry 0");
  expect_error(error(GgufBytes().header(0, 1).text("k").number<uint32_t>(9).number<uint32_t>(4).number(kHuge).data(64)),
               "metadata k");
  expect_error(error(GgufBytes().header(0, 1).text("k").number<uint32_t>(9).number<uint32_t>(9).data(64)),
               "array of arrays");
  expect_error(error(GgufBytes().header(0, 1).text("k").number<uint32_t>(77).data(64)), "value type 77");
  expect_error(error(GgufBytes()
                         .header(0, 2)
                         .text("k")
                         .number<uint32_t>(4)
                         .number<uint32_t>(1)
                         .text("k")
                         .number<uint32_t>(4)
                         .number<uint32_t>(1)
                         .data(64)),
               "twice");
  expect_error(error(GgufBytes().header(1, 0).tensor("t", kHuge * 16 - 1, 0).data(64)), "tensor t");
  expect_error(error(GgufBytes().header(1, 0).tensor("t", kHuge, 0).data(64)), "tensor t");
  expect_error(error(GgufBytes().header(1, 0).tensor("t", 0, 0).data(64)), "size 0");
  expect_error(error(GgufBytes().header(1, 0).tensor("t", 8, 3).data(64)), "alignment");
  expect_error(error(GgufBytes().header(1, 0).tensor("t", 8, kHuge).data(64)), "tensor t");
  expect_error(error(GgufBytes().header(1, 0).tensor("t", 8, 0, 99).data(64)), "GGML type 99");
  expect_error(error(GgufBytes().header(1, 0).tensor("t", 33, 0, 8).data(64)), "multiple of 32");
  expect_error(error(GgufBytes().header(1, 0).text("t").number<uint32_t>(5).data(64)), "5 dimensions");
  expect_error(error(GgufBytes().header(2, 0).tensor("a", 16, 0).tensor("b", 8, 32).data(128)), "also claims");
  expect_error(error(GgufBytes().header(2, 0).tensor("a", 8, 0).tensor("a", 8, 32).data(128)), "twice");
  expect_error(
      error(GgufBytes().header(0, 1).text("general.alignment").number<uint32_t>(4).number<uint32_t>(0).data(64)),
      "general.alignment");
}

TEST(HostileGguf, OtherFormatsAndVersionsAreNamed) {
  const testing::TemporaryFolder folder;
  std::string file = GgufBytes().header(0, 0).bytes();
  file[0] = 'X';
  expect_error(error_of(folder, "bad.gguf", file), "58475546");
  file[0] = 'G';
  file[4] = 1;
  expect_error(error_of(folder, "bad.gguf", file), "GGUF version 1");
  std::swap(file[4], file[7]);
  file[7] = 3;
  file[4] = 0;
  expect_error(error_of(folder, "bad.gguf", file), "big-endian");
  expect_error(error_of(folder, "empty.gguf", ""), "magic");
}

/// Flips bits of a file's first `header` bytes and opens the result: fine or a UserError, never anything else.
void flip_bits(const std::string& name, size_t header, uint64_t seed, int rounds) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  const testing::TemporaryFolder folder;
  const std::string whole = read_file(testing::golden_file(name));
  const std::string copy = "flipped" + std::filesystem::path(name).extension().string();
  std::mt19937_64 draw(seed);
  int refused = 0;
  for (int round = 0; round < rounds; ++round) {
    std::string damaged = whole;
    for (uint64_t flips = 1 + draw() % 3; flips > 0; --flips) {
      damaged[draw() % header] ^= static_cast<char>(1U << (draw() % 8));
    }
    if (!error_of(folder, copy, damaged).empty()) ++refused;
  }
  EXPECT_GT(refused, rounds / 4) << "of " << rounds;
}

TEST(HostileGguf, FlippedBitsGiveAnErrorOrAnotherModel) {
  flip_bits("blocks.gguf", 1100, 11, 300);
  flip_bits("tiny_llama.gguf", 9000, 12, 200);
}

TEST(HostileSafetensors, FlippedBitsGiveAnErrorOrAnotherModel) { flip_bits("blocks.safetensors", 1000, 13, 300); }

TEST(HostileGguf, FlippedTokenizersAndConfigsGiveAnErrorOrAnotherModel) {
  const testing::TemporaryFolder folder;
  const std::string whole = read_file(testing::golden_file("tiny_llama.gguf"));
  std::mt19937_64 draw(14);
  int refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string damaged = whole;
    damaged[draw() % 9000] ^= static_cast<char>(1U << (draw() % 8));
    const auto file = folder.write("flipped.gguf", damaged);
    try {
      const OpenedModel model = open_model(file);
      const std::vector<int32_t> ids = model.tokenizer->encode("the cat sat <|user|> naïve \xF0\x9F\x98\x80");
      (void)model.tokenizer->decode(ids);
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 80);
}

std::string safetensors_file(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  return file + header + std::string(data, '\0');
}

TEST(HostileSafetensors, CutAnywhereItIsRefused) {
  const testing::TemporaryFolder folder;
  const std::string whole = read_file(testing::golden_file("blocks.safetensors"));
  ASSERT_EQ(error_of(folder, "whole.safetensors", whole), "");
  for (size_t cut = 0; cut < whole.size(); cut += cut < 1200 ? 7 : 4999) {
    ASSERT_NE(error_of(folder, "cut.safetensors", std::string_view(whole).substr(0, cut)), "") << "cut at " << cut;
  }
  expect_error(error_of(folder, "long.safetensors", whole + "x"), "appended");
}

TEST(HostileSafetensors, AHeaderOfManyTensorsIsReadInTimeThatGrowsWithIt) {
  const testing::TemporaryFolder folder;
  std::string header = "{";
  for (int i = 0; i < 40'000; ++i) {
    header += fmt::format("{}\"t{}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", i == 0 ? "" : ",", i);
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(error_of(folder, "many.safetensors", safetensors_file(header + "}", 0)), "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15)) << "it took 100 s once";
}

TEST(HostileSafetensors, WrongHeadersNameTheTensor) {
  const testing::TemporaryFolder folder;
  const auto error = [&](const std::string& header, size_t data) {
    return error_of(folder, "bad.safetensors", safetensors_file(header, data));
  };
  EXPECT_EQ(error(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8), "");
  expect_error(error(R"({"t":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8), "tensor t");
  expect_error(error(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8), "tensor t");
  expect_error(error(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,9223372036854775807]}})", 8), "tensor t");
  expect_error(error(R"({"t":{"dtype":"F32","shape":[9223372036854775807,4],"data_offsets":[0,8]}})", 8), "tensor t");
  expect_error(error(R"({"t":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", 8), "tensor t");
  expect_error(error(R"({"t":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), "tensor t");
  expect_error(error(R"({"t":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8), "F33");
  expect_error(error(R"({"t":[1,2]})", 8), "tensor t");
  expect_error(
      error(
          R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
          8),
      "twice");
  expect_error(
      error(
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
          12),
      "tensor b");
  expect_error(error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8), "tensor a");
  expect_error(error("[]", 0), "JSON object");
  expect_error(error("{\"t\":", 0), "JSON");
  expect_error(error_of(folder, "bad.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)), "header");
}

TEST(HostileWeights, NotANumberNamesTensorAndElement) {
  const testing::TemporaryFolder folder;
  std::string file = safetensors_file(R"({"t":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", 16);
  const float bad = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(file.data() + file.size() - 4, &bad, 4);
  const std::string error = error_of(folder, "nan.safetensors", file);
  expect_error(error, "tensor t");
  expect_error(error, "element 3");
}

TEST(HostileShards, TheIndexMustAgreeWithTheShards) {
  const testing::TemporaryFolder folder;
  const auto copy = [&](const std::string& name) { return read_file(testing::golden_file("tiny_llama/" + name)); };
  const std::string first = "model-00001-of-00002.safetensors";
  const std::string second = "model-00002-of-00002.safetensors";
  const std::string index = "model.safetensors.index.json";
  const auto error = [&] {
    try {
      (void)open_checkpoint(folder.path());
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  folder.write(index, copy(index));
  folder.write(first, copy(first));
  expect_error(error(), second);
  folder.write(second, copy(second));
  EXPECT_EQ(error(), "");
  folder.write(second, copy(first));
  expect_error(error(), second);
  folder.write(second, copy(second));
  std::string moved = copy(index);
  const size_t at = moved.find(second);
  moved.replace(at, second.size(), first);
  folder.write(index, moved);
  expect_error(error(), "no tensor");
  moved.replace(at, first.size(), "../" + first);
  folder.write(index, moved);
  expect_error(error(), "same folder");
}

}  // namespace
}  // namespace kvarena

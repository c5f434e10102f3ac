// Artifacts of fitted methods: what is written is read back, what is damaged or foreign is refused with a way out.

#include "harness/engine/fitted_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>

#include "harness/core/error.h"
#include "harness/core/files.h"
#include "harness/model/safetensors.h"
#include "tests/support/error_of.h"

namespace kvarena {
namespace {

namespace fs = std::filesystem;

class FittedFile : public ::testing::Test {
 protected:
  FittedFile() : folder_(fs::temp_directory_path() / "kvarena_fitted_file_test") {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "tiny");
  }
  ~FittedFile() override { fs::remove_all(folder_); }

  [[nodiscard]] fs::path file() const { return folder_ / "tiny" / "kvtc-per_layer.safetensors"; }

  void write(bool bf16 = false) const {
    FittedWeights weights;
    weights.tensors["layers.0.weight"] = {.shape = {2, 3}, .values = {1, 2, 3, 4, 5.25F, 1.0F / 3}};
    weights.tensors["layers.0.bias"] = {.shape = {2}, .values = {-1, 0.5F}};
    weights.metadata = {{kFittedMethod, "kvtc-per_layer"}, {kFittedFingerprint, "abc"}, {"seed", "3"}};
    write_fitted(file(), weights, bf16);
  }

  fs::path folder_;
};

TEST_F(FittedFile, ComesBackWithItsMetadata) {
  write();
  const FittedWeights read = read_fitted(file());
  EXPECT_EQ(read.at("layers.0.weight", {2, -1}).values, (std::vector<float>{1, 2, 3, 4, 5.25F, 1.0F / 3}));
  EXPECT_EQ(read.metadata.at("seed"), "3");
  const std::string bytes = read_file(file());
  write();
  EXPECT_EQ(read_file(file()), bytes);
}

TEST_F(FittedFile, SixteenBitsAreRoundedOnceAndHalfTheSize) {
  write(/*bf16=*/true);
  const std::vector<float> values = read_fitted(file()).at("layers.0.weight", {2, 3}).values;
  EXPECT_EQ(values[4], 5.25F);
  EXPECT_NE(values[5], 1.0F / 3);
  EXPECT_NEAR(values[5], 1.0F / 3, 1e-3);
}

TEST_F(FittedFile, ATensorThatSixteenBitsHoldTakesNoMore) {
  write();  // of six numbers one is a third, two others are whole or a half
  std::map<std::string, std::string> types;
  const auto stored = open_safetensors(file());
  for (const TensorInfo& info : stored->tensors()) types[info.name] = info.stored_type;
  EXPECT_EQ(types, (std::map<std::string, std::string>{{"layers.0.bias", "BF16"}, {"layers.0.weight", "F32"}}));
  EXPECT_EQ(read_fitted(file()).at("layers.0.bias", {2}).values, (std::vector<float>{-1, 0.5F}));
}

TEST_F(FittedFile, EveryDamagedByteOfTheContentIsNoticed) {
  write();
  const std::string good = read_file(file());
  for (size_t back = 1; back <= 32; back += 5) {
    std::string bad = good;
    bad[bad.size() - back] = static_cast<char>(bad[bad.size() - back] ^ 0x01);
    write_file(file(), bad);
    EXPECT_THROW((void)read_fitted(file()), UserError) << back << " bytes from the end";
  }
  write_file(file(), good.substr(0, good.size() - 3));
  EXPECT_NE(testing::error_of([&] { (void)read_fitted(file()); }).find(file().string()), std::string::npos);
}

TEST_F(FittedFile, IsFoundByTheModelsFingerprintOrByItsPath) {
  write();
  const FittedRequest request{.method = "kvtc", .variant = "per_layer"};
  EXPECT_EQ(find_fitted(request, "Tiny", "abc", {folder_ / "absent", folder_}).place, file().string());
  const std::string refused = testing::error_of([&] { (void)find_fitted(request, "Tiny", "def", {folder_}); });
  EXPECT_NE(refused.find("other model"), std::string::npos) << refused;
  EXPECT_NE(refused.find("kvarena fit kvtc:basis=per_layer"), std::string::npos) << refused;
  EXPECT_NE(refused.find("Tiny"), std::string::npos) << refused;
  const FittedRequest by_path{.method = "kvtc", .path = file().string()};
  EXPECT_EQ(find_fitted(by_path, "Tiny", "def", {}).metadata.at(kFittedFingerprint), "abc");
}

TEST_F(FittedFile, AForeignShapeOrAMissingTensorIsNamed) {
  write();
  const FittedWeights read = read_fitted(file());
  EXPECT_NE(testing::error_of([&] { (void)read.at("layers.0.weight", {2, 4}); }).find("[2, 4]"), std::string::npos);
  EXPECT_NE(testing::error_of([&] {
              (void)read.at("layers.0.weigth", {2, 3});
            }).find("layers.0.weight"),
            std::string::npos);
}

/// An array of NumPy as its format's description has it, version 1.
std::string npy(const std::string& type, const std::string& shape, const std::string& data) {
  std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize(118, ' ');
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + data;
}

template <typename Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

TEST_F(FittedFile, ANamelessArrayAnswersToAnyName) {
  const fs::path array = folder_ / "published.npy";
  write_file(array, npy("<f8", "2, 1, 3", bytes_of<double>({1, 2, 3, 4, 5, 0.1})));
  EXPECT_EQ(read_fitted(array).at("curves", {2, -1, 3}).values, (std::vector<float>{1, 2, 3, 4, 5, 0.1F}));
  write_file(array, npy("<f4", "2,", bytes_of<float>({-1, 0.25F})));
  EXPECT_EQ(read_fitted(array).at("anything", {2}).values, (std::vector<float>{-1, 0.25F}));
  const FittedWeights masks = read_fitted(KVARENA_SOURCE_DIR "/tests/golden/leank_masks.pth");  // torch.save()
  const std::vector<float>& values = masks.at("masks", {3, 2, 32}).values;
  EXPECT_EQ(std::ranges::count(values, 0.0F) + std::ranges::count(values, 1.0F), 192);
  EXPECT_GT(std::ranges::count(values, 1.0F), 0);
}

TEST_F(FittedFile, AnArrayOfAnotherKindIsRefused) {
  const fs::path array = folder_ / "published.npy";
  const std::string good = npy("<f4", "2", bytes_of<float>({1, 2}));
  for (const std::string& bad : {npy("<i8", "1", bytes_of<int64_t>({1})), npy("<f4", "3", bytes_of<float>({1, 2})),
                                 npy("<f4", "1", bytes_of<float>({std::numeric_limits<float>::infinity()})),
                                 good.substr(0, 9), std::string("x")}) {
    write_file(array, bad);
    EXPECT_NE(testing::error_of([&] { (void)read_fitted(array); }).find(array.string()), std::string::npos);
  }
  const std::string saved = read_file(KVARENA_SOURCE_DIR "/tests/golden/leank_masks.pth");
  const fs::path torch = folder_ / "published.pth";
  for (size_t length = 0; length < saved.size(); length += 7) {
    write_file(torch, saved.substr(0, length));
    EXPECT_THROW((void)read_fitted(torch), UserError) << length << " bytes";
  }
}

}  // namespace
}  // namespace kvarena

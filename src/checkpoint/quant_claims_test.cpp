// What metadata may say and the tensors contradict (quantization.md 2.2 and 2.4).
#include "checkpoint/quant_claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/testing/mini_checkpoint.h"

namespace nibble::checkpoint {
namespace {

using quant::Format;
using tensor::DType;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> lines(std::string_view json, const std::vector<FoundFormat>& found) {
  QuantClaims claims;
  add_quant_claims(json, "config.json", claims);
  return contradictions(claims, found);
}

FoundFormat experts(Format format, std::int64_t count = 768) {
  return {WeightClass::kRoutedExperts, format, quant::traits(format).scale_dtype, count};
}
FoundFormat dense(Format format, DType scale_dtype) {
  return {WeightClass::kDense, format, scale_dtype, 10};
}
const FoundFormat kFp8Dense = dense(Format::kFp8Block128, DType::kF8E8M0);

constexpr const char* kNative =
    R"({"expert_dtype":"fp4","quantization_config":{"quant_method":"fp8","fmt":"e4m3",
        "activation_scheme":"dynamic","scale_fmt":"ue8m0","weight_block_size":[128,128]}})";

TEST(QuantClaims, NativeFilesAgree) {
  EXPECT_THAT(lines(kNative, {experts(Format::kMxfp4), kFp8Dense}), IsEmpty());
  EXPECT_THAT(lines(kNative, {experts(Format::kNvfp4), kFp8Dense}), IsEmpty());
  EXPECT_THAT(lines("{}", {experts(Format::kMxfp4), kFp8Dense}), IsEmpty());
}

TEST(QuantClaims, QuantMethodStaysFp8WhereTheExpertsAreNvfp4) {
  EXPECT_THAT(lines(R"({"quantization_config":{"quant_method":"fp8","moe_quant_algo":"NVFP4"}})",
                    {experts(Format::kNvfp4), kFp8Dense}),
              ElementsAre("config.json: quantization_config.quant_method is fp8, but 768 of the "
                          "routed experts are NVFP4; the tensors win"));
}

TEST(QuantClaims, ExpertDtypeAgainstTheTensors) {
  EXPECT_THAT(lines(kNative, {experts(Format::kFp8Block128), kFp8Dense}),
              ElementsAre(AllOf(HasSubstr("expert_dtype is fp4"), HasSubstr("FP8 128x128"),
                                HasSubstr("the tensors win"))));
  EXPECT_THAT(lines(R"({"expert_dtype":"fp8"})", {experts(Format::kFp8Block128)}), IsEmpty());
}

TEST(QuantClaims, BlockSizeAndScaleFormat) {
  EXPECT_THAT(lines(kNative, {experts(Format::kMxfp4), dense(Format::kFp8Block32, DType::kF32)}),
              ElementsAre(HasSubstr("weight_block_size is [128, 128], but 10 of the attention and "
                                    "shared experts are FP8 32x32 (F32)"),
                          HasSubstr("scale_fmt is ue8m0, but")));
  EXPECT_THAT(lines(R"({"quantization_config":{"weight_block_size":[64,64]}})", {kFp8Dense}),
              ElementsAre(HasSubstr("[64, 64]")));
}

TEST(QuantClaims, CompressedTensorsGroups) {
  constexpr const char* kConfig = R"({"quantization_config":{"quant_method":"compressed-tensors",
    "config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":8,"type":"float",
    "strategy":"block","block_structure":[128,128]}},"group_1":{"targets":["re:.*experts.*"],
    "weights":{"num_bits":4,"type":"int","group_size":128,"symmetric":true}}}}})";
  EXPECT_THAT(lines(kConfig, {experts(Format::kInt4G128), kFp8Dense}), IsEmpty());
  EXPECT_THAT(lines(kConfig, {experts(Format::kInt4G32), kFp8Dense}),
              ElementsAre(AllOf(HasSubstr("group_1 is INT4 g128"), HasSubstr("no matrix is")),
                          AllOf(HasSubstr("config_groups"), HasSubstr("are INT4 g32"))));
  // Targets in another spelling of the names: the experts silently stayed BF16.
  EXPECT_THAT(lines(kConfig, {experts(Format::kBF16), kFp8Dense}),
              ElementsAre(HasSubstr("no matrix is"), HasSubstr("routed experts are BF16")));
}

TEST(QuantClaims, TheDraftIsAModelOfItsOwn) {
  const FoundFormat draft{WeightClass::kDraft, Format::kBF16, DType::kF8E8M0, 800};
  EXPECT_THAT(lines(kNative, {experts(Format::kMxfp4), kFp8Dense, draft}), IsEmpty());
}

TEST(QuantClaims, OddMetadataClaimsNothing) {
  EXPECT_THAT(lines("[1]", {kFp8Dense}), ElementsAre(HasSubstr("not a JSON object")));
  EXPECT_THAT(lines(R"({"expert_dtype":7,"quantization_config":{"weight_block_size":[128],
                     "config_groups":{"a":1,"b":{"weights":{}}},"scale_fmt":null}})",
                    {experts(Format::kMxfp4), kFp8Dense}),
              IsEmpty());
  EXPECT_THAT(lines(std::string(100, '[') + "{}", {}), ElementsAre(HasSubstr("not a JSON object")));
  EXPECT_THAT(lines(R"({"quantization_config":{"quant_method":"\u001b[31m"}})", {}), IsEmpty());
}

TEST(QuantClaims, BothFilesOfAFolder) {
  const testing::TempFolder folder;
  folder.write("config.json", kNative);
  folder.write("hf_quant_config.json", R"({"quantization":{"moe_quant_algo":"NVFP4"}})");
  const QuantClaims claims = read_quant_claims(Folder(folder.path()));
  EXPECT_EQ(claims.quant_method, "fp8");
  const std::vector<FoundFormat> found = {experts(Format::kMxfp4)};
  EXPECT_THAT(contradictions(claims, found),
              ElementsAre(HasSubstr("hf_quant_config.json: quantization.moe_quant_algo is NVFP4")));
}

}  // namespace
}  // namespace nibble::checkpoint

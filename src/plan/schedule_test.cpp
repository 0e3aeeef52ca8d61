#include "plan/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "checkpoint/checkpoint.h"

namespace nibble::plan {
namespace {

using tensor::DType;

struct Total {
  const char* name;
  std::size_t tensors;
  std::int64_t bytes;
};

// deepseek-v4.md 7.1.
TEST(Schedule, ReproducesThePublishedTotalsToTheByte) {
  for (const Total& total : {Total{"deepseek-ai/DeepSeek-V4-Flash", 69'187, 159'609'485'896},
                             Total{"deepseek-ai/DeepSeek-V4-Pro", 145'116, 864'704'792'696},
                             Total{"deepseek-ai/DeepSeek-V4-Flash-0731", 72'317, 166'878'536'440},
                             Total{"deepseek-ai/DeepSeek-V4-Pro-0813", 149'782, 892'595'197'672}}) {
    const auto model = published_model(total.name);
    ASSERT_TRUE(model) << total.name;
    EXPECT_EQ(model->tensors.size(), total.tensors) << total.name;
    EXPECT_EQ(model->tensor_bytes(), total.bytes) << total.name;
  }
}

TEST(Schedule, ReproducesThePrunedRelease) {
  // A published copy of 0731 that keeps 160 of 256 experts; its headers were read (7.1).
  auto config = published_model("DeepSeek-V4-Flash-0731")->config;
  config.num_experts = 160;
  std::int64_t bytes = 0;
  const auto tensors = published_tensors(config, {3, 256});
  for (const TensorFact& t : tensors) bytes += t.bytes;
  EXPECT_EQ(tensors.size(), 45'821u);
  EXPECT_EQ(bytes, 107'803'320'952);
}

TEST(Schedule, FlashBytesByTypeAreThePublishedOnes) {
  std::map<DType, std::int64_t> bytes;
  const auto flash = published_model("DeepSeek-V4-Flash");
  for (const TensorFact& t : flash->tensors) bytes[t.dtype] += t.bytes;
  EXPECT_EQ(bytes[DType::kI8], 141'733'920'768);
  EXPECT_EQ(bytes[DType::kF8E8M0], 8'858'737'664);
  EXPECT_EQ(bytes[DType::kF8E4M3], 6'023'020'544);
  EXPECT_EQ(bytes[DType::kBF16], 2'830'518'528);
  EXPECT_EQ(bytes[DType::kF32], 144'672'072);
  EXPECT_EQ(bytes[DType::kI64], 18'616'320);
}

TEST(Schedule, TensorsOfALayerByItsKind) {
  std::map<std::string, int> count;
  const auto flash = published_model("DeepSeek-V4-Flash");
  for (const TensorFact& t : flash->tensors)
    ++count[t.name.substr(0, t.name.find('.', t.name.find('.') + 1))];
  EXPECT_EQ(count["layers.0"], 1565);  // sliding
  EXPECT_EQ(count["layers.3"], 1569);  // HCA
  EXPECT_EQ(count["layers.2"], 1576);  // CSA
  EXPECT_EQ(count["mtp.0"], 1575);
}

// The bundled model was written by other code, in the published layout.
TEST(Schedule, IsTheTensorListOfTheBundledModel) {
  const auto checkpoint =
      checkpoint::Checkpoint::open(std::string(NIBBLE_SOURCE_DIR) + "/models/tiny");
  const ModelFacts found = facts_of("tiny", checkpoint);
  auto made = published_tensors(found.config, {});
  ASSERT_EQ(made.size(), found.tensors.size());
  std::ranges::sort(made, {}, &TensorFact::name);
  for (std::size_t i = 0; i < made.size(); ++i) {
    const TensorFact& file = found.tensors[i];
    ASSERT_EQ(made[i].name, file.name);
    EXPECT_EQ(made[i].dtype, file.dtype) << file.name;
    EXPECT_EQ(made[i].shape, file.shape) << file.name;
    EXPECT_EQ(made[i].bytes, file.bytes) << file.name;
  }
}

TEST(Schedule, Nvfp4ExpertsHaveModelOptsFourTensorsAndTheDraftStays) {
  const auto model = published_model("nvidia/DeepSeek-V4-Flash-NVFP4");
  ASSERT_TRUE(model);
  std::map<std::string, const TensorFact*> by_name;
  for (const TensorFact& t : model->tensors) by_name[t.name] = &t;
  const std::string w2 = "layers.7.ffn.experts.255.w2.";
  ASSERT_TRUE(by_name.contains(w2 + "weight_scale"));
  EXPECT_EQ(by_name[w2 + "weight"]->shape, (tensor::Shape{4096, 1024}));
  EXPECT_EQ(by_name[w2 + "weight"]->dtype, DType::kU8);
  EXPECT_EQ(by_name[w2 + "weight_scale"]->shape, (tensor::Shape{4096, 128}));
  EXPECT_EQ(by_name[w2 + "weight_scale_2"]->bytes, 4);
  EXPECT_EQ(by_name[w2 + "input_scale"]->bytes, 4);
  EXPECT_FALSE(by_name.contains(w2 + "scale"));
  EXPECT_TRUE(by_name.contains("mtp.0.ffn.experts.0.w1.scale"));
}

TEST(Schedule, KnowsItsModelsWithOrWithoutTheirOwnerAndNoOthers) {
  EXPECT_EQ(published_model("DeepSeek-V4-Pro")->name, "deepseek-ai/DeepSeek-V4-Pro");
  EXPECT_FALSE(published_model("DeepSeek-V4"));
  EXPECT_FALSE(published_model("other/DeepSeek-V4-Pro"));
  EXPECT_FALSE(published_model(""));
}

}  // namespace
}  // namespace nibble::plan

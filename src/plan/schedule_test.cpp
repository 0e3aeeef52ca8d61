#include "plan/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>

#include "checkpoint/checkpoint.h"
#include "nibble/status.h"
#include "plan/testing/published.h"

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
    const ModelFacts& model = testing::published(total.name);
    EXPECT_EQ(model.tensors.size(), total.tensors) << total.name;
    EXPECT_EQ(model.tensor_bytes(), total.bytes) << total.name;
  }
}

TEST(Schedule, ReproducesThePrunedRelease) {
  // A published copy of 0731 that keeps 160 of 256 experts; its headers were read (7.1).
  auto config = testing::published("deepseek-ai/DeepSeek-V4-Flash-0731").config;
  config.num_experts = 160;
  std::int64_t bytes = 0;
  const auto tensors = published_tensors(config, {3, 256});
  for (const TensorFact& t : tensors) bytes += t.bytes;
  EXPECT_EQ(tensors.size(), 45'821u);
  EXPECT_EQ(bytes, 107'803'320'952);
}

TEST(Schedule, FlashBytesByTypeAreThePublishedOnes) {
  std::map<DType, std::int64_t> bytes;
  for (const TensorFact& t : testing::published("deepseek-ai/DeepSeek-V4-Flash").tensors)
    bytes[t.dtype] += t.bytes;
  EXPECT_EQ(bytes[DType::kI8], 141'733'920'768);
  EXPECT_EQ(bytes[DType::kF8E8M0], 8'858'737'664);
  EXPECT_EQ(bytes[DType::kF8E4M3], 6'023'020'544);
  EXPECT_EQ(bytes[DType::kBF16], 2'830'518'528);
  EXPECT_EQ(bytes[DType::kF32], 144'672'072);
  EXPECT_EQ(bytes[DType::kI64], 18'616'320);
}

TEST(Schedule, TensorsOfALayerByItsKind) {
  std::map<std::string, int> count;
  for (const TensorFact& t : testing::published("deepseek-ai/DeepSeek-V4-Flash").tensors)
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

// The published config as text, from the bundled model's and Flash's values.
std::string read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Schedule, AConfigWithoutWeightsGivesTheSameTensors) {
  const std::string folder = std::string(NIBBLE_SOURCE_DIR) + "/models/tiny";
  const std::string config = read(folder + "/config.json");
  const ModelFacts found = facts_of("tiny", checkpoint::Checkpoint::open(folder));
  const ModelFacts made = facts_from_config("tiny", config, "config.json");
  EXPECT_EQ(made.tensors.size(), found.tensors.size());
  EXPECT_EQ(made.tensor_bytes(), found.tensor_bytes());

  // DSpark: a ratio for each of three stages, 1565 tensors each at 256 experts.
  const ModelFacts dspark = facts_from_config(
      "tiny",
      replaced(replaced(config, "128,\n    4,\n    0\n", "128,\n    4,\n    0, 0, 0\n"),
               "\"expert_dtype\"", "\"dspark_markov_rank\": 64, \"expert_dtype\""),
      "config.json");
  const auto stages = std::ranges::count_if(dspark.tensors, [](const TensorFact& t) {
    return t.name.ends_with("attn.wq_a.weight") && t.name.starts_with("mtp.");
  });
  EXPECT_EQ(stages, 3);
  const ModelFacts nvfp4 = facts_from_config(
      "tiny", replaced(config, "\"fmt\"", "\"moe_quant_algo\": \"NVFP4\", \"fmt\""), "config.json");
  EXPECT_EQ(
      std::ranges::count_if(nvfp4.tensors,
                            [](const TensorFact& t) { return t.name.ends_with("weight_scale_2"); }),
      6 * 16 * 3);
}

TEST(Schedule, AConfigThatDoesNotSayWhatTheTensorsAreIsRefusedByKey) {
  const std::string config = read(std::string(NIBBLE_SOURCE_DIR) + "/models/tiny/config.json");
  const struct {
    const char *from, *to, *key;
  } cases[] = {{"\"fp8\"", "\"exl3\"", "quantization_config"},
               {"\"fp4\"", "\"fp8\"", "expert_dtype"},
               {"\"n_routed_experts\": 16", "\"n_routed_experts\": 1000000", "n_routed_experts"},
               {"\"hidden_size\": 256", "\"hidden_size\": \"many\"", "hidden_size"},
               {"\"quantization_config\"", "\"other\"", "quantization_config"}};
  for (const auto& c : cases) {
    try {
      facts_from_config("tiny", replaced(config, c.from, c.to), "DIR/config.json");
      ADD_FAILURE() << c.to;
    } catch (const CheckpointError& error) {
      EXPECT_NE(std::string(error.what()).find("DIR/config.json"), std::string::npos)
          << error.what();
      EXPECT_NE(std::string(error.what()).find(c.key), std::string::npos) << error.what();
    }
  }
}

TEST(Schedule, KnowsItsModelsWithOrWithoutTheirOwnerAndNoOthers) {
  EXPECT_EQ(published_model("DeepSeek-V4-Pro")->name, "deepseek-ai/DeepSeek-V4-Pro");
  EXPECT_FALSE(published_model("DeepSeek-V4"));
  EXPECT_FALSE(published_model("other/DeepSeek-V4-Pro"));
  EXPECT_FALSE(published_model(""));
}

}  // namespace
}  // namespace nibble::plan

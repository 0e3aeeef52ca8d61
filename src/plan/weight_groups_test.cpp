#include "plan/weight_groups.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "plan/speed.h"
#include "plan/testing/published.h"

namespace nibble::plan {
namespace {

using tensor::DType;
using tensor::Shape;

TensorFact fact(std::string name, DType dtype, const Shape& shape) {
  return {std::move(name), dtype, shape, shape.elements() * tensor::dtype_bytes(dtype)};
}

// The format of a weight w of 256 x 512 made of these tensors.
std::string format_of(const std::vector<TensorFact>& tensors) {
  ModelFacts facts;
  facts.config = testing::published("DeepSeek-V4-Flash").config;
  facts.tensors = tensors;
  const WeightGroups groups = group_weights(facts);
  EXPECT_EQ(groups.groups.size(), 1u);
  EXPECT_EQ(groups.groups[0].count, 1);
  return groups.groups[0].format;
}

const std::string kExpert = "layers.4.ffn.experts.9.w1.";

// quantization.md 2.3, and DeepSeek-V4-Flash-Base (F32 scales), V4.1 (blocks of 32).
TEST(WeightFormat, IsReadFromTypesShapesAndNeighbours) {
  const auto weight = [](DType t, Shape s) { return fact(kExpert + "weight", t, s); };
  const auto packed = [](DType t, Shape s) { return fact(kExpert + "weight_packed", t, s); };
  const auto scale = [](DType t, Shape s) { return fact(kExpert + "scale", t, s); };
  const auto weight_scale = [](DType t, Shape s) { return fact(kExpert + "weight_scale", t, s); };
  const auto global = [](const char* name, Shape s) {
    return fact(kExpert + name, DType::kF32, s);
  };
  EXPECT_EQ(format_of({weight(DType::kI8, {256, 256}), scale(DType::kF8E8M0, {256, 16})}), "MXFP4");
  EXPECT_EQ(format_of({weight(DType::kU8, {256, 256}), scale(DType::kU8, {256, 16})}), "MXFP4");
  EXPECT_EQ(format_of({packed(DType::kU8, {256, 256}), weight_scale(DType::kU8, {256, 16})}),
            "MXFP4");
  EXPECT_EQ(format_of({weight(DType::kU8, {256, 256}), weight_scale(DType::kF8E4M3, {256, 32}),
                       global("weight_scale_2", {}), global("input_scale", {})}),
            "NVFP4");
  EXPECT_EQ(format_of({packed(DType::kU8, {256, 256}), weight_scale(DType::kF8E4M3, {256, 32}),
                       global("weight_global_scale", {1}), global("input_global_scale", {1})}),
            "NVFP4");
  EXPECT_EQ(format_of({weight(DType::kF8E4M3, {256, 512}), scale(DType::kF8E8M0, {2, 4})}),
            "FP8 128x128 (E8M0)");
  EXPECT_EQ(format_of({weight(DType::kF8E4M3, {256, 512}), scale(DType::kF32, {2, 4})}),
            "FP8 128x128 (F32)");
  EXPECT_EQ(format_of({weight(DType::kF8E4M3, {256, 512}), scale(DType::kF8E8M0, {8, 16})}),
            "FP8 32x32 (E8M0)");
  EXPECT_EQ(format_of({packed(DType::kI32, {256, 64}), weight_scale(DType::kBF16, {256, 4}),
                       fact(kExpert + "weight_shape", DType::kI64, {2})}),
            "INT4 g128");
  EXPECT_EQ(format_of({packed(DType::kI32, {256, 64}), weight_scale(DType::kBF16, {256, 16}),
                       fact(kExpert + "weight_zero_point", DType::kI32, {32, 16})}),
            "asymmetric INT4 g32");
  EXPECT_EQ(format_of({weight(DType::kBF16, {256, 512})}), "BF16");
  EXPECT_EQ(format_of({weight(DType::kF32, {256, 512})}), "F32");
  EXPECT_EQ(format_of({weight(DType::kI8, {256, 256}), scale(DType::kF8E8M0, {256, 32})}),
            "4-bit, unknown scales");
  EXPECT_EQ(format_of({weight(DType::kF8E4M3, {256, 512})}), "FP8, no scale");
  EXPECT_EQ(format_of({weight(DType::kF8E4M3, {256, 512}), scale(DType::kF32, {256, 512})}),
            "FP8, unknown scales");
}

TEST(WeightFormat, AHeaderMayClaimAnythingOfATensorWithoutElements) {
  const std::int64_t huge = std::int64_t{1} << 62;
  WeightTensors tensors;
  for (const DType dtype : {DType::kU8, DType::kI32, DType::kF8E4M3, DType::kBF16}) {
    const TensorFact empty{"w.weight", dtype, {0, huge}, 0};
    tensors.weight = tensors.packed = tensors.scale = &empty;
    EXPECT_EQ(weight_format(tensors).rows, 0);
  }
}

TEST(WeightGroups, EveryByteOfEveryPublishedModelIsInOneGroup) {
  for (const char* name : {"DeepSeek-V4-Flash", "DeepSeek-V4-Pro", "DeepSeek-V4-Flash-0731",
                           "DeepSeek-V4-Pro-0813", "DeepSeek-V4-Flash-NVFP4"}) {
    const WeightGroups& groups = testing::published_groups(name);
    std::int64_t bytes = 0;
    for (const WeightGroup& g : groups.groups) bytes += g.bytes;
    EXPECT_EQ(bytes, testing::published(name).tensor_bytes()) << name;
    EXPECT_TRUE(groups.notes.empty()) << groups.notes[0];
  }
}

TEST(WeightGroups, DraftersAreRecognised) {
  const auto drafter = testing::published_groups;
  EXPECT_EQ(drafter("DeepSeek-V4-Flash").drafter, Drafter::kMtp);
  EXPECT_EQ(drafter("DeepSeek-V4-Flash").draft_stages, 1);
  EXPECT_EQ(drafter("DeepSeek-V4-Flash-0731").drafter, Drafter::kDspark);
  EXPECT_EQ(drafter("DeepSeek-V4-Flash-0731").draft_stages, 3);
  ModelFacts without = testing::published("DeepSeek-V4-Flash");
  std::erase_if(without.tensors, [](const TensorFact& t) { return t.name.starts_with("mtp."); });
  EXPECT_EQ(group_weights(without).drafter, Drafter::kNone);
}

TEST(WeightGroups, ATensorOfNoKnownPlaceIsCountedAndNamed) {
  ModelFacts model = testing::published("DeepSeek-V4-Flash");
  model.tensors.push_back(fact("layers.5.attn.extra.weight", DType::kBF16, {10, 10}));
  const WeightGroups groups = group_weights(model);
  ASSERT_EQ(groups.notes.size(), 1u);
  EXPECT_NE(groups.notes[0].find("layers.5.attn.extra"), std::string::npos) << groups.notes[0];
  std::int64_t bytes = 0;
  for (const WeightGroup& g : groups.groups) bytes += g.bytes;
  EXPECT_EQ(bytes, 159'609'485'896 + 200);
}

// deepseek-v4.md 9.3: what one decoded token reads, in MB to the last printed digit (the table counts biases with their
// matrices).
TEST(WeightGroups, BytesReadByOneTokenAreTheTableOfSection9) {
  const struct {
    const char* model;
    std::map<std::string, double> mb;
    double total_mb;
  } cases[] = {{"DeepSeek-V4-Flash",
                {{"attention", 4599.3},
                 {"routed experts", 3449.3},
                 {"shared experts", 1082.2},
                 {"lm head", 1059.1},
                 {"hyper-connections", 135.5},
                 {"router", 90.2}},
                11'218},
               {"DeepSeek-V4-Pro",
                {{"attention", 18294.6},
                 {"routed experts", 12844.6},
                 {"shared experts", 4029.9},
                 {"lm head", 1853.4},
                 {"hyper-connections", 336.3},
                 {"router", 335.9}},
                39'667}};
  for (const auto& c : cases) {
    const model::ModelConfig& config = testing::published(c.model).config;
    const WeightGroups& groups = testing::published_groups(c.model);
    EXPECT_NEAR(step_weight_bytes(groups, config, 1) / 1e6, c.total_mb, 1.0) << c.model;
    for (const auto& [kind, mb] : c.mb) {
      WeightGroups some;
      for (const WeightGroup& g : groups.groups)
        if (g.kind == kind || (kind == "attention" && (g.kind == "attention projections" ||
                                                       g.kind == "grouped output projection")))
          some.groups.push_back(g);
      EXPECT_NEAR(step_weight_bytes(some, config, 1) / 1e6, mb, 0.1) << c.model << kind;
    }
  }
}

}  // namespace
}  // namespace nibble::plan

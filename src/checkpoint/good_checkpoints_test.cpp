// The layouts and spellings that must load, each to exactly the bytes that were written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/testing/mini_checkpoint.h"
#include "nibble/status.h"
#include "quant/bf16.h"

namespace nibble::checkpoint {
namespace {

namespace fs = std::filesystem;
using namespace testing;  // NOLINT(google-build-using-namespace)
using quant::Format;
using Tensors = std::vector<TensorSpec>;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<float> rounded(Format format, std::int64_t rows, std::int64_t cols,
                           const std::vector<float>& values) {
  return decoded(quant::encode_matrix(format, rows, cols, values));
}

// Every weight of the mini checkpoint, whatever the layout it came from.
void expect_mini(const MiniWeights& weights, Format expert_format = Format::kMxfp4) {
  EXPECT_EQ(weights.embed.format, Format::kBF16);
  EXPECT_EQ(decoded(weights.embed), ramp(8 * 64));
  EXPECT_EQ(weights.attn_norm, ramp(64));
  EXPECT_EQ(weights.attn_sink, ramp(4));
  EXPECT_THAT(weights.tid2eid, ElementsAre(0, 1, 1, 0, 1, 1, 0, 0));
  EXPECT_EQ(weights.wq_a.format, Format::kFp8Block128);
  EXPECT_EQ(decoded(weights.wq_a), rounded(Format::kFp8Block128, 130, 160, ramp(130 * 160)));
  ASSERT_EQ(weights.experts.size(), 6u);
  for (std::size_t expert = 0; expert < 2; ++expert) {
    const float first = -1.0f - static_cast<float>(expert);
    const quant::HostMatrix* w = &weights.experts[3 * expert];
    for (int i = 0; i < 3; ++i) EXPECT_EQ(w[i].format, expert_format);
    EXPECT_EQ(decoded(w[0]), rounded(Format::kMxfp4, 32, 64, ramp(32 * 64, first)));
    EXPECT_EQ(decoded(w[1]), rounded(Format::kMxfp4, 32, 64, ramp(32 * 64, first / 2)));
    EXPECT_EQ(decoded(w[2]), rounded(Format::kMxfp4, 64, 32, ramp(64 * 32, first / 4)));
  }
}

// Splits tensors over two shards and writes the index.
void write_two_shards(const TempFolder& folder, const std::string& prefix,
                      const std::string& metadata = "{}") {
  const Tensors all = mini_tensors();
  Tensors parts[2];
  std::vector<std::pair<std::string, std::string>> map;
  const std::string names[2] = {"model-00001-of-00002.safetensors",
                                "model-00002-of-00002.safetensors"};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t shard = i % 3 == 0 ? 1 : 0;
    parts[shard].push_back(all[i]);
    map.emplace_back(all[i].name, names[shard]);
  }
  for (int i = 0; i < 2; ++i) folder.write(prefix + names[i], safetensors_bytes(parts[i]));
  folder.write(prefix + "model.safetensors.index.json", index_json(map, metadata));
}

std::string total_bytes() {
  std::size_t total = 0;
  for (const TensorSpec& tensor : mini_tensors()) total += tensor.bytes.size();
  return std::to_string(total);
}

TEST(GoodCheckpoint, SingleFile) {
  const TempFolder folder;
  folder.write("model.safetensors", safetensors_bytes(mini_tensors()));
  const MiniWeights weights = load_mini(folder.path());
  expect_mini(weights);
  EXPECT_THAT(weights.notes, IsEmpty());
}

TEST(GoodCheckpoint, TwoShardsWithIndex) {
  const TempFolder folder;
  write_two_shards(folder, "", "{\"total_size\":" + total_bytes() + "}");
  const MiniWeights weights = load_mini(folder.path() + "/");
  expect_mini(weights);
  EXPECT_THAT(weights.notes, IsEmpty());
}

TEST(GoodCheckpoint, ShardsWithoutIndex) {
  const TempFolder folder;
  write_two_shards(folder, "");
  fs::remove(folder / "model.safetensors.index.json");
  expect_mini(load_mini(folder.path()));
}

TEST(GoodCheckpoint, WrongTotalSizeIsANote) {
  for (const char* metadata :
       {"{\"total_size\":17}", "{\"other\":{\"deep\":[1]},\"total_size\":17}"}) {
    const TempFolder folder;
    write_two_shards(folder, "", metadata);
    const MiniWeights weights = load_mini(folder.path());
    expect_mini(weights);
    EXPECT_THAT(weights.notes, ElementsAre(HasSubstr("total_size says 17 bytes, the shards hold " +
                                                     total_bytes())));
  }
  const TempFolder folder;
  write_two_shards(folder, "", "{\"total_size\":\"unknown\"}");  // no number: nothing to compare
  EXPECT_THAT(load_mini(folder.path()).notes, IsEmpty());
}

TEST(GoodCheckpoint, HubCacheOfTheSameRepository) {
  const TempFolder folder;
  write_two_shards(folder, "models--org--name/blobs/");
  const std::string snapshot = folder / "models--org--name/snapshots/0123abc";
  fs::create_directories(snapshot);
  for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                           "model.safetensors.index.json"}) {
    // Blobs are named by hash.
    const std::string hash = "sha-" + std::to_string(std::hash<std::string>{}(name));
    fs::rename(folder / ("models--org--name/blobs/" + std::string(name)),
               folder / ("models--org--name/blobs/" + hash));
    fs::create_symlink("../../blobs/" + hash, snapshot + "/" + name);
  }
  expect_mini(load_mini(snapshot));
  fs::create_symlink(snapshot, folder / "elsewhere");  // the user's own link to the snapshot
  expect_mini(load_mini(folder / "elsewhere"));
}

TEST(GoodCheckpoint, LinkInsideTheFolder) {
  const TempFolder folder;
  folder.write("weights-v2.st", safetensors_bytes(mini_tensors()));
  fs::create_symlink("weights-v2.st", folder / "model.safetensors");
  expect_mini(load_mini(folder.path()));
}

TEST(GoodCheckpoint, BytesAfterTheLastTensorAreANote) {
  const TempFolder folder;
  folder.write("model.safetensors", safetensors_bytes(mini_tensors()) + "spare");
  const MiniWeights weights = load_mini(folder.path());
  expect_mini(weights);
  EXPECT_THAT(weights.notes,
              ElementsAre(HasSubstr("model.safetensors: 5 bytes after the last tensor")));
}

TEST(GoodCheckpoint, OtherFilesAreIgnoredWithANote) {
  const TempFolder folder;
  write_two_shards(folder, "");
  folder.write("consolidated.safetensors", "not even a header");
  expect_mini(load_mini(folder.path()));
  EXPECT_THAT(load_mini(folder.path()).notes,
              ElementsAre(HasSubstr("consolidated.safetensors: not in the index")));

  const TempFolder single;
  single.write("model.safetensors", safetensors_bytes(mini_tensors()));
  single.write("adapter.safetensors", "");
  EXPECT_THAT(load_mini(single.path()).notes,
              ElementsAre(HasSubstr("adapter.safetensors: ignored")));
}

TEST(GoodCheckpoint, EmptyTensorsTakeNoSpace) {
  const TempFolder folder;
  Tensors tensors = mini_tensors();
  tensors.insert(tensors.begin() + 2, {"mtp.0.empty", "F32", {0, 7}, ""});
  folder.write("model.safetensors", safetensors_bytes(tensors));
  const MiniWeights weights = load_mini(folder.path());
  expect_mini(weights);
  EXPECT_THAT(weights.notes, ElementsAre("mtp.*: 1 tensors not used: this model does not draft"));
}

TEST(GoodCheckpoint, TransformersSpellingWithStackedExperts) {
  const TempFolder folder;
  Tensors tensors;
  for (TensorSpec& tensor : mini_tensors()) {
    if (tensor.name.find(".experts.") == std::string::npos) tensors.push_back(std::move(tensor));
  }
  tensors[0].name = "model.embed_tokens.weight";
  tensors[1].name = "model.layers.0.input_layernorm.weight";
  tensors[2].name = "model.layers.0.self_attn.sinks";
  tensors[3].name = "model.layers.0.mlp.gate.tid2eid";
  tensors[4].name = "model.layers.0.self_attn.q_a_proj.weight";
  tensors[5].name = "model.layers.0.self_attn.q_a_proj.weight_scale_inv";
  ASSERT_EQ(tensors.size(), 6u);
  // [2 experts, 32 rows of w1 then 32 of w3, 64] and [2 experts, 64, 32], rounded to the MXFP4 grid
  // so that bf16 holds them.
  std::vector<float> gate_up;
  std::vector<float> down;
  for (int expert = 0; expert < 2; ++expert) {
    const float first = -1.0f - static_cast<float>(expert);
    for (const float value : rounded(Format::kMxfp4, 32, 64, ramp(32 * 64, first)))
      gate_up.push_back(value);
    for (const float value : rounded(Format::kMxfp4, 32, 64, ramp(32 * 64, first / 2)))
      gate_up.push_back(value);
    for (const float value : rounded(Format::kMxfp4, 64, 32, ramp(64 * 32, first / 4)))
      down.push_back(value);
  }
  tensors.push_back(bf16("model.layers.0.mlp.experts.gate_up_proj", {2, 64, 64}, gate_up));
  tensors.push_back(bf16("model.layers.0.mlp.experts.down_proj", {2, 64, 32}, down));
  folder.write("model.safetensors", safetensors_bytes(tensors));
  expect_mini(load_mini(folder.path()), Format::kBF16);
}

TEST(GoodCheckpoint, StackedFp8ExpertsWithTheirScales) {
  const TempFolder folder;
  const auto halves = [](float first) { return ramp(128 * 128, first); };
  std::string codes;
  std::string scales;
  for (int i = 0; i < 4; ++i) {  // expert 0 w1, w3, expert 1 w1, w3; a scale block each
    const auto matrix =
        quant::encode_matrix(Format::kFp8Block128, 128, 128, halves(static_cast<float>(1 << i)));
    codes += bytes_of(matrix.data);
    scales += bytes_of(matrix.scales);
  }
  folder.write(
      "model.safetensors",
      safetensors_bytes(
          {{"model.layers.5.mlp.experts.gate_up_proj", "F8_E4M3", {2, 256, 128}, codes},
           {"model.layers.5.mlp.experts.gate_up_proj_scale_inv", "F8_E8M0", {2, 2, 1}, scales}}));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  WeightBinder binder(checkpoint);
  int i = 0;
  for (const char* name : {"layers.5.ffn.experts.0.w1", "layers.5.ffn.experts.0.w3",
                           "layers.5.ffn.experts.1.w1", "layers.5.ffn.experts.1.w3"}) {
    const auto matrix = binder.matrix(name, 128, 128);
    EXPECT_EQ(matrix.format, Format::kFp8Block128);
    EXPECT_EQ(decoded(matrix),
              rounded(Format::kFp8Block128, 128, 128, halves(static_cast<float>(1 << i++))))
        << name;
  }
  binder.finish();
}

// Kept exactly as published, powers of two or not.
TEST(GoodCheckpoint, WideScales) {
  for (const char* dtype : {"F32", "BF16"}) {
    const TempFolder folder;
    Tensors tensors = mini_tensors();
    const std::vector<float> powers = {0x1p-7f, 0x1p-127f, 0.75f, 0.0f};
    TensorSpec& scale = tensors[5];
    ASSERT_EQ(scale.name, "layers.0.attn.wq_a.scale");
    scale = std::string(dtype) == "F32" ? f32(scale.name, {2, 2}, powers)
                                        : bf16(scale.name, {2, 2}, powers);
    folder.write("model.safetensors", safetensors_bytes(tensors));
    const MiniWeights weights = load_mini(folder.path());
    EXPECT_EQ(weights.wq_a.format, Format::kFp8Block128);
    EXPECT_EQ(tensor::dtype_name(weights.wq_a.scale_dtype), dtype);
    EXPECT_EQ(bytes_of(weights.wq_a.scales), scale.bytes) << dtype;
  }
}

TEST(GoodCheckpoint, U8SpellingsOfMxfp4AndI32Ids) {
  const TempFolder folder;
  Tensors tensors = mini_tensors();
  for (TensorSpec& tensor : tensors) {
    if (tensor.name.find(".experts.") != std::string::npos) tensor.dtype = "U8";
  }
  tensors[3] = {
      tensors[3].name, "I32", {4, 2}, bytes_of(std::vector<std::int32_t>{0, 1, 1, 0, 1, 1, 0, 0})};
  folder.write("model.safetensors", safetensors_bytes(tensors));
  expect_mini(load_mini(folder.path()));
}

TEST(GoodCheckpoint, PlainF32AndF16Matrices) {
  const TempFolder folder;
  const std::vector<std::uint16_t> halves = {0x3C00, 0xC000, 0x0001,
                                             0x7BFF};  // 1, -2, 2^-24, 65504
  folder.write("model.safetensors",
               safetensors_bytes({f32("a.weight", {3, 5}, ramp(15)),
                                  {"b.weight", "F16", {2, 2}, bytes_of(halves)}}));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  WeightBinder binder(checkpoint);
  const auto a = binder.matrix("a", 3, 5);
  EXPECT_EQ(a.format, Format::kF32);
  EXPECT_EQ(decoded(a), ramp(15));
  const auto b = binder.matrix("b", 2, 2);
  EXPECT_EQ(b.format, Format::kF32);
  EXPECT_THAT(decoded(b), ElementsAre(1.0f, -2.0f, 0x1p-24f, 65504.0f));
  binder.finish();
}

TEST(GoodCheckpoint, PrefixesAndTheLedger) {
  const TempFolder folder;
  folder.write("model.safetensors", safetensors_bytes({f32("mtp.0.norm.weight", {1}, {1}),
                                                       f32("mtp.1.norm.weight", {1}, {2}),
                                                       f32("norm.weight", {1}, {3})}));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  EXPECT_EQ(checkpoint.config_path(), folder / "config.json");
  WeightBinder binder(checkpoint);
  EXPECT_TRUE(binder.has("mtp."));
  EXPECT_TRUE(binder.has("mtp.1."));
  EXPECT_FALSE(binder.has("mtp.2."));
  EXPECT_FALSE(binder.has("o"));
  EXPECT_THAT(binder.vector_f32("norm.weight", {1}), ElementsAre(3.0f));
  EXPECT_THAT(binder.vector_f32("mtp.0.norm.weight", {1}), ElementsAre(1.0f));
  EXPECT_THROW(binder.finish(), CheckpointError);
  binder.declare_unused("mtp.", "a reason");
  EXPECT_THAT(binder.notes(), ElementsAre("mtp.*: 1 tensors not used: a reason"));
  binder.finish();
}

}  // namespace
}  // namespace nibble::checkpoint

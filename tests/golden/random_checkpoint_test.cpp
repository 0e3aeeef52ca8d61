#include "golden/random_checkpoint.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>

namespace nibble::testing {
namespace {

const std::filesystem::path kGolden = std::filesystem::path(NIBBLE_SOURCE_DIR) / "tests/golden";

// File name -> SHA-256 of a checkpoint, at a JSON pointer of the manifest.
std::map<std::string, std::string> hashes_at(const std::string& pointer) {
  simdjson::dom::parser parser;
  const simdjson::dom::object files =
      parser.load((kGolden / "manifest.json").string()).at_pointer(pointer);
  std::map<std::string, std::string> out;
  for (const auto field : files) {
    out.emplace(field.key, std::string_view(field.value));
  }
  return out;
}

// Of one form of one configuration.
std::map<std::string, std::string> recorded_hashes(const std::string& config,
                                                   const std::string& form) {
  return hashes_at("/" + config + "/checkpoint_sha256/" + form);
}

std::map<std::string, std::string> regenerated_hashes(const RandomCheckpointSpec& spec) {
  const RandomCheckpoint checkpoint = make_random_checkpoint(spec);
  std::map<std::string, std::string> out;
  out["config.json"] = sha256_hex(config_text(checkpoint));
  out["model.safetensors.index.json"] = sha256_hex(index_text(checkpoint));
  for (const RandomShard& shard : checkpoint.shards) {
    out[shard.file_name] = sha256_hex(safetensors_bytes(shard.tensors));
  }
  return out;
}

class GoldenCheckpoint : public ::testing::TestWithParam<char> {
 protected:
  std::string name() const { return std::string(1, GetParam()); }
};

TEST_P(GoldenCheckpoint, PublishedFormHasTheRecordedHashes) {
  EXPECT_EQ(regenerated_hashes(golden_spec(GetParam())), recorded_hashes(name(), "published"));
}

TEST_P(GoldenCheckpoint, Bf16FormHasTheRecordedHashes) {
  RandomCheckpointSpec spec = golden_spec(GetParam());
  spec.storage = Storage::kBf16;
  EXPECT_EQ(regenerated_hashes(spec), recorded_hashes(name(), "bf16"));
}

TEST_P(GoldenCheckpoint, TransformersFormHasTheRecordedHashes) {
  RandomCheckpointSpec spec = golden_spec(GetParam());
  spec.storage = Storage::kF32;
  spec.spelling = Spelling::kTransformers;
  EXPECT_EQ(regenerated_hashes(spec), recorded_hashes(name(), "transformers_f32"));
}

TEST_P(GoldenCheckpoint, FormWithoutMtpHasTheRecordedHashes) {
  RandomCheckpointSpec spec = golden_spec(GetParam());
  spec.mtp_layers = 0;
  EXPECT_EQ(regenerated_hashes(spec), recorded_hashes(name(), "published_without_mtp"));
}

INSTANTIATE_TEST_SUITE_P(Configurations, GoldenCheckpoint, ::testing::Values('a', 'b', 'c'),
                         [](const auto& param) { return std::string(1, param.param); });

TEST(RandomCheckpoint, DsparkHasTheRecordedHashes) {
  EXPECT_EQ(regenerated_hashes(golden_spec('d')),
            hashes_at("/d_dspark/checkpoint_sha256/published"));
}

// The release's rounding is compared on configuration a cut to one layer.
TEST(RandomCheckpoint, OneLayerPartsHaveTheRecordedHashes) {
  const struct {
    const char* name;
    int ratio;
    int num_hash_layers;
  } parts[] = {{"sliding", 0, 1}, {"csa", 4, 0}, {"hca", 128, 0}};
  for (const auto& part : parts) {
    RandomCheckpointSpec spec = golden_spec('a');
    spec.compress_ratios = {part.ratio};
    spec.num_hash_layers = part.num_hash_layers;
    EXPECT_EQ(regenerated_hashes(spec),
              hashes_at(std::string("/a_release/parts/") + part.name + "/checkpoint_sha256"));
  }
}

TEST(RandomCheckpoint, WritesWhatItDescribes) {
  const std::filesystem::path dir =
      std::filesystem::path(::testing::TempDir()) / "random_checkpoint_test";
  std::filesystem::remove_all(dir);
  const RandomCheckpoint checkpoint = make_random_checkpoint(RandomCheckpointSpec{});
  write_checkpoint(dir, checkpoint);
  EXPECT_EQ(sha256_hex_of_file(dir / "config.json"), sha256_hex(config_text(checkpoint)));
  std::set<std::string> expected = {"config.json", "model.safetensors.index.json"};
  for (const RandomShard& shard : checkpoint.shards) {
    expected.insert(shard.file_name);
    EXPECT_EQ(sha256_hex_of_file(dir / shard.file_name),
              sha256_hex(safetensors_bytes(shard.tensors)));
  }
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    found.insert(entry.path().filename().string());
  }
  EXPECT_EQ(found, expected);
  std::filesystem::remove_all(dir);
}

TEST(RandomCheckpoint, ShardsKeepTheirLimit) {
  RandomCheckpointSpec spec;
  spec.max_shard_bytes = 300'000;
  const RandomCheckpoint checkpoint = make_random_checkpoint(spec);
  EXPECT_GT(checkpoint.shards.size(), 4u);
  for (const RandomShard& shard : checkpoint.shards) {
    std::size_t bytes = 0;
    for (const RandomTensor& tensor : shard.tensors) bytes += tensor.bytes.size();
    EXPECT_TRUE(bytes <= spec.max_shard_bytes || shard.tensors.size() == 1) << shard.file_name;
  }
}

TEST(RandomCheckpoint, CodesAreNumbersAndHashedExpertsAreDistinct) {
  RandomCheckpoint checkpoint = make_random_checkpoint(golden_spec('a'));
  for (const RandomShard& shard : checkpoint.shards) {
    for (const RandomTensor& tensor : shard.tensors) {
      if (tensor.dtype != "F8_E4M3") continue;
      const auto nans = std::count_if(tensor.bytes.begin(), tensor.bytes.end(),
                                      [](std::uint8_t code) { return (code & 0x7F) == 0x7F; });
      EXPECT_EQ(nans, 0) << tensor.name;
    }
  }
  const RandomTensor& table = checkpoint.tensor("layers.2.ffn.gate.tid2eid");
  ASSERT_EQ(table.shape, (std::vector<std::int64_t>{320, 6}));
  std::vector<std::int64_t> ids(320 * 6);
  std::memcpy(ids.data(), table.bytes.data(), table.bytes.size());
  for (std::size_t row = 0; row < 320; ++row) {
    const std::set<std::int64_t> experts(ids.begin() + static_cast<std::ptrdiff_t>(row * 6),
                                         ids.begin() + static_cast<std::ptrdiff_t>(row * 6 + 6));
    EXPECT_EQ(experts.size(), 6u) << "token " << row;
    EXPECT_GE(*experts.begin(), 0);
    EXPECT_LT(*experts.rbegin(), 16);
  }
}

TEST(RandomCheckpoint, CanBeEdited) {
  RandomCheckpoint checkpoint = make_random_checkpoint(RandomCheckpointSpec{});
  checkpoint.tensor("norm.weight").name = "renamed";
  EXPECT_THROW(checkpoint.tensor("norm.weight"), std::out_of_range);
  checkpoint.remove_tensor("renamed");
  EXPECT_THROW(checkpoint.remove_tensor("renamed"), std::out_of_range);
  EXPECT_EQ(index_text(checkpoint).find("renamed"), std::string::npos);
  checkpoint.set_config("hidden_size", "-1");
  checkpoint.set_config("new_key", "null");
  checkpoint.remove_config("vocab_size");
  const std::string config = config_text(checkpoint);
  EXPECT_NE(config.find("\"hidden_size\": -1,"), std::string::npos);
  EXPECT_NE(config.find("\"new_key\": null\n"), std::string::npos);
  EXPECT_EQ(config.find("vocab_size"), std::string::npos);
}

TEST(RandomCheckpoint, RefusesWhatHasNoForm) {
  RandomCheckpointSpec spec;
  spec.spelling = Spelling::kTransformers;
  EXPECT_THROW(make_random_checkpoint(spec), std::invalid_argument);
  spec = RandomCheckpointSpec{};
  spec.moe_intermediate_size = 48;  // w2 has 48 columns
  EXPECT_THROW(make_random_checkpoint(spec), std::invalid_argument);
}

TEST(Sha256, KnownAnswer) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace nibble::testing

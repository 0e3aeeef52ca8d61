// Tiny random DeepSeek-V4 checkpoints from a seed, for tests: the golden ones are regenerated
// instead of committed, and hostile ones are made by editing a RandomCheckpoint before it is
// written. Byte for byte what tools/golden/random_checkpoint.py makes; random_checkpoint_test.cpp
// compares SHA-256 with manifest.json.
//
// The rule (64-bit unsigned, wrapping):
//   splitmix64(x): x += 0x9E3779B97F4A7C15; x = (x ^ x>>30) * 0xBF58476D1CE4E5B9;
//                  x = (x ^ x>>27) * 0x94D049BB133111EB; return x ^ x>>31
//   draw(name, i) = splitmix64((fnv1a64(name) ^ splitmix64(seed)) + i * 0x9E3779B97F4A7C15), i =
//   row-major element index,
//                   name as DeepSeek publishes it whatever spelling is written
//   normal   n = sum of the draw's four 16-bit fields - 131070; fp32(n) * fp32(std
//   * 1.7320508075688772 / 65536), then one
//            fp32 addition of the offset where it is not 0; BF16 tensors round that to nearest even
//   E4M3     sign = bit 63, mantissa = bits 62..60, exponent = 15 - leading zeros of the field at
//   bits 47..32, at least 0;
//            a NaN code has its last bit cleared
//   E2M1     the low 8 bits: two codes
//   E8M0     127 + base + {-1, 0, 0, +1}[draw & 3], base = nearest integer to log2(gain / (sqrt(in)
//   * code rms)) tid2eid  a partial Fisher-Yates shuffle of the experts in each row, draw(v * k +
//   j) % (E - j)
// so every weight is exact in fp32, and every FP8 and FP4 weight is exact in bf16 too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nibble::testing {

enum class Storage {
  kPublished,  // F8_E4M3 + F8_E8M0 per 128x128, experts I8 + F8_E8M0 per 32, BF16, F32, I64
  kBf16,       // FP8 and FP4 matrices as their exact BF16 values; no quantization_config
  kF32,        // every float tensor as F32
};

enum class Spelling {
  kDeepSeek,      // layers.0.attn.wq_a.weight
  kTransformers,  // model.layers.0.self_attn.q_a_proj.weight; experts stacked; no mtp.*; not with
                  // kPublished
};

// head_dim 512, rope 64, index_head_dim 128, hc_mult 4, window 128 and one shared expert are fixed.
// The default is a sliding, a CSA and an HCA layer and an MTP block, about 2 MB published.
struct RandomCheckpointSpec {
  std::uint64_t seed = 1;
  int vocab_size = 320;
  int hidden_size = 128;  // multiples of 32; of 128 where whole FP8 blocks matter
  int num_attention_heads = 4;
  int q_lora_rank = 128;
  int o_groups = 2;
  int o_lora_rank = 64;  // a group
  int index_n_heads = 4;
  int index_topk = 8;
  std::vector<int> compress_ratios = {
      0, 4, 128};  // one a backbone layer; the MTP block's 0 is added in config.json
  int n_routed_experts = 8;
  int num_experts_per_tok = 2;
  int moe_intermediate_size = 128;
  int num_hash_layers = 1;
  int mtp_layers =
      1;  // 0 or 1 preview MTP block; a test may ask for more, config.json then promises as many
  // > 0: a DSpark drafter in place of the MTP block; mtp_layers is then what config.json says.
  int dspark_stages = 0;
  int dspark_block_size = 5;
  int dspark_markov_rank = 32;
  int dspark_noise_token_id = 2;
  std::vector<int> dspark_target_layer_ids = {};
  double routed_scaling_factor = 1.5;
  double swiglu_limit = 2.0;
  int hc_sinkhorn_iters = 20;
  double hc_eps = 1e-6;
  double rms_norm_eps = 1e-6;
  std::uint64_t max_shard_bytes = 4u
                                  << 20;  // of tensor data; a larger tensor has a shard of its own
  Storage storage = Storage::kPublished;
  Spelling spelling = Spelling::kDeepSeek;
};

// The golden configurations: 'a' ratios as in Flash, 'b' as in Pro, 'c' large hc_eps and few
// Sinkhorn rounds, 'd' with a DSpark drafter.
RandomCheckpointSpec golden_spec(char name);

struct RandomTensor {
  std::string name;
  std::string dtype;  // safetensors tag: F8_E4M3, F8_E8M0, I8, BF16, F32, I64
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;  // little endian
};

struct RandomShard {
  std::string file_name;
  std::vector<RandomTensor> tensors;
};

// A checkpoint before it is written; everything may be edited.
struct RandomCheckpoint {
  std::vector<std::pair<std::string, std::string>> config;  // key -> JSON text, in file order
  std::vector<RandomShard> shards;

  RandomTensor& tensor(std::string_view name);                   // std::out_of_range when absent
  void remove_tensor(std::string_view name);                     // std::out_of_range when absent
  void set_config(std::string_view key, std::string json_text);  // replaces or appends
  void remove_config(std::string_view key);                      // nothing when absent
};

// Throws std::invalid_argument for kTransformers with kPublished, or shapes the formats cannot
// hold.
RandomCheckpoint make_random_checkpoint(const RandomCheckpointSpec& spec);

// config.json, the shards, model.safetensors.index.json. Creates the folder; throws
// std::runtime_error when a file cannot be written.
void write_checkpoint(const std::filesystem::path& dir, const RandomCheckpoint& checkpoint);

// make_random_checkpoint and write_checkpoint.
void write_random_checkpoint(const std::filesystem::path& dir, const RandomCheckpointSpec& spec);

// The texts and bytes write_checkpoint writes, for tests that damage them.
std::string config_text(const RandomCheckpoint& checkpoint);
std::string index_text(const RandomCheckpoint& checkpoint);
std::string safetensors_bytes(
    const std::vector<RandomTensor>& tensors);  // 8-byte length, header, data
std::string safetensors_header(const std::vector<RandomTensor>& tensors);  // padded JSON only

// Lower-case hexadecimal SHA-256. The second throws std::runtime_error when the file cannot be
// read.
std::string sha256_hex(std::string_view bytes);
std::string sha256_hex_of_file(const std::filesystem::path& path);

}  // namespace nibble::testing

#include "model/config.h"

#include <gtest/gtest.h>

#include <string>

#include "model/rope_table.h"
#include "nibble/status.h"

namespace nibble::model {
namespace {

// The published Flash keys (deepseek-v4.md section 1), with a short list of layers.
const char* const kPublished = R"({
  "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "vocab_size": 129280,
  "hidden_size": 4096, "num_hidden_layers": 5, "num_attention_heads": 64, "num_key_value_heads": 1,
  "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 1024, "o_groups": 8, "o_lora_rank": 1024,
  "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512, "compress_ratios": [0, 0, 4, 128, 4, 0],
  "sliding_window": 128, "rope_theta": 10000, "compress_rope_theta": 160000,
  "rope_scaling": {"type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
                   "original_max_position_embeddings": 65536},
  "max_position_embeddings": 1048576, "n_routed_experts": 256, "n_shared_experts": 1,
  "num_experts_per_tok": 6, "moe_intermediate_size": 2048, "num_hash_layers": 3,
  "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "norm_topk_prob": true,
  "routed_scaling_factor": 1.5, "swiglu_limit": 10.0, "hc_mult": 4, "hc_sinkhorn_iters": 20,
  "hc_eps": 1e-6, "rms_norm_eps": 1e-6, "num_nextn_predict_layers": 1, "bos_token_id": 0,
  "eos_token_id": 1, "hidden_act": "silu", "tie_word_embeddings": false,
  "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}})";

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = kPublished;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string message(const std::string& json) {
  try {
    ModelConfig::parse(json, "config.json");
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ModelConfig, ReadsThePublishedKeys) {
  const ModelConfig c = ModelConfig::parse(kPublished, "config.json");
  EXPECT_EQ(c.compress_ratios, (std::vector<int>{0, 0, 4, 128, 4, 0}));
  EXPECT_EQ(c.index_topk, 512);
  EXPECT_EQ(c.rope.theta, 10000.0);
  EXPECT_FALSE(c.rope.yarn.has_value());
  EXPECT_EQ(c.compress_rope.yarn->factor, 16.0);
  EXPECT_EQ(c.num_mtp_layers, 1);
  EXPECT_TRUE(c.has_activation_scheme);
}

TEST(ModelConfig, ReadsTheDsparkKeys) {
  EXPECT_FALSE(ModelConfig::parse(kPublished, "config.json").dspark.has_value());
  const auto with = [](const std::string& block, const std::string& noise,
                       const std::string& layers) {
    return replaced("\"bos_token_id\"", "\"dspark_block_size\": " + block +
                                            ", \"dspark_markov_rank\": 256, "
                                            "\"dspark_noise_token_id\": " +
                                            noise + ", \"dspark_target_layer_ids\": " + layers +
                                            ", \"bos_token_id\"");
  };
  const ModelConfig c = ModelConfig::parse(with("5", "128799", "[2, 3, 4]"), "config.json");
  ASSERT_TRUE(c.dspark.has_value());
  EXPECT_EQ(c.dspark->block_size, 5);
  EXPECT_EQ(c.dspark->markov_rank, 256);
  EXPECT_EQ(c.dspark->noise_token, 128799);
  EXPECT_EQ(c.dspark->target_layers, (std::vector<int>{2, 3, 4}));
  EXPECT_NE(message(with("8", "1", "[2]")).find("dspark_block_size"), std::string::npos);
  EXPECT_NE(message(with("5", "129280", "[2]")).find("dspark_noise_token_id"), std::string::npos);
  for (const char* layers : {"[]", "[5]", "[-1]", "7", "[3, 2]", "[2, 2]"})
    EXPECT_NE(message(with("5", "1", layers)).find("dspark_target_layer_ids"), std::string::npos)
        << layers;
}

TEST(ModelConfig, OtherSpellingsMeanTheSame) {
  const ModelConfig published = ModelConfig::parse(kPublished, "config.json");
  const ModelConfig renamed =
      ModelConfig::parse(replaced("compress_ratios", "compress_rates"), "config.json");
  EXPECT_EQ(renamed.compress_ratios, published.compress_ratios);
  std::string saved = replaced(
      "\"compress_ratios\": [0, 0, 4, 128, 4, 0]",
      R"("layer_types": ["sliding_attention", "sliding_attention", "compressed_sparse_attention",
                                  "heavily_compressed_attention", "compressed_sparse_attention"],
                                  "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128})");
  const ModelConfig typed = ModelConfig::parse(saved, "config.json");
  EXPECT_EQ(typed.compress_ratios, (std::vector<int>{0, 0, 4, 128, 4}));
  const std::string nested =
      replaced("\"rope_scaling\": {\"type\"",
               R"("rope_parameters": {"main": {"rope_type": "default", "rope_theta": 10000},
         "compress": {"rope_theta": 160000, "rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
                      "original_max_position_embeddings": 65536}}, "unused": {"type")");
  const ModelConfig roped = ModelConfig::parse(nested, "config.json");
  EXPECT_EQ(inverse_frequencies(roped.compress_rope, 64),
            inverse_frequencies(published.compress_rope, 64));
  const ModelConfig hashed = ModelConfig::parse(
      replaced("\"num_hash_layers\": 3",
               R"("mlp_layer_types": ["hash_moe", "hash_moe", "hash_moe", "moe", "moe"])"),
      "config.json");
  EXPECT_EQ(hashed.num_hash_layers, 3);
}

TEST(ModelConfig, EveryShapingKeyIsRequired) {
  for (const char* key : {"vocab_size",
                          "hidden_size",
                          "num_hidden_layers",
                          "num_attention_heads",
                          "head_dim",
                          "qk_rope_head_dim",
                          "q_lora_rank",
                          "o_groups",
                          "o_lora_rank",
                          "index_n_heads",
                          "index_head_dim",
                          "index_topk",
                          "compress_ratios",
                          "sliding_window",
                          "rope_theta",
                          "compress_rope_theta",
                          "rope_scaling",
                          "max_position_embeddings",
                          "n_routed_experts",
                          "num_experts_per_tok",
                          "moe_intermediate_size",
                          "num_hash_layers",
                          "scoring_func",
                          "norm_topk_prob",
                          "routed_scaling_factor",
                          "swiglu_limit",
                          "hc_mult",
                          "hc_sinkhorn_iters",
                          "hc_eps",
                          "rms_norm_eps",
                          "num_nextn_predict_layers",
                          "bos_token_id",
                          "eos_token_id",
                          "hidden_act",
                          "model_type",
                          "num_key_value_heads"}) {
    const std::string found =
        message(replaced("\"" + std::string(key) + "\"", "\"renamed_" + std::string(key) + "\""));
    EXPECT_NE(found.find("config.json"), std::string::npos) << found;
    EXPECT_NE(found.find(key), std::string::npos) << key << ": " << found;
    EXPECT_NE(found.find("no such key"), std::string::npos) << key << ": " << found;
  }
}

TEST(ModelConfig, RefusesWhatItCannotRun) {
  const struct {
    const char* from;
    const char* to;
    const char* says;
  } cases[] = {
      {"[0, 0, 4, 128, 4, 0]", "[0, 0, 4, 128, 8, 0]",
       "compress_ratios': expected 0, 4 or 128, found 8"},
      {"[0, 0, 4, 128, 4, 0]", "[0, 0, 4]", "at least num_hidden_layers = 5 entries, found 3"},
      {"\"n_shared_experts\": 1", "\"n_shared_experts\": 2", "n_shared_experts"},
      {"\"o_groups\": 8", "\"o_groups\": 7", "num_attention_heads': expected a multiple of 7"},
      {"\"hidden_size\": 4096", "\"hidden_size\": \"4096\"", "hidden_size"},
      {"\"hidden_size\": 4096", "\"hidden_size\": -1", "hidden_size"},
      {"\"num_experts_per_tok\": 6", "\"num_experts_per_tok\": 257", "num_experts_per_tok"},
      {"\"deepseek_v4\"", "\"deepseek_v3\"",
       "model_type': expected \"deepseek_v4\", found \"deepseek_v3\""},
      {"\"eos_token_id\": 1", "\"eos_token_id\": 129280", "eos_token_id"},
      {"\"sqrtsoftplus\"", "\"sigmoid\"", "scoring_func"},
      {"\"type\": \"yarn\"", "\"type\": \"linear\"",
       "rope_scaling.type': expected yarn or default, found linear"},
      {"\"factor\": 16", "\"factor\": 0.5", "rope_scaling.factor"},
  };
  for (const auto& c : cases) {
    const std::string found = message(replaced(c.from, c.to));
    EXPECT_NE(found.find(c.says), std::string::npos) << c.to << ": " << found;
  }
  EXPECT_NE(message("[1, 2]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(message("{\"a\": ").find("not a JSON object"), std::string::npos);
  EXPECT_NE(message(std::string(100000, '[')).find("not a JSON object"), std::string::npos);
}

TEST(RopeTable, CheckValues) {
  // deepseek-v4.md 3.2.
  const ModelConfig c = ModelConfig::parse(kPublished, "config.json");
  const std::vector<float> f = inverse_frequencies(c.compress_rope, 64);
  const std::pair<int, double> expected[] = {{1, .687656022},     {15, .00363553858},
                                             {16, .002265625},    {20, 2.96977778e-4},
                                             {25, 5.37231267e-6}, {31, 5.68052904e-7}};
  for (const auto& [i, value] : expected)
    EXPECT_NEAR(f[static_cast<std::size_t>(i)] / value, 1.0, 2e-7) << i;
  const std::vector<float> main = inverse_frequencies(c.rope, 64);
  EXPECT_EQ(main[0], 1.0f);
  EXPECT_NEAR(main[16], 0.01, 1e-9);
}

}  // namespace
}  // namespace nibble::model

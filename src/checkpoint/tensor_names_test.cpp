#include "checkpoint/tensor_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nibble::checkpoint {
namespace {

std::string canonical(const std::string& name) {
  CheckpointTensor stored;
  stored.name = name;
  stored.shape = {2, 3};
  stored.bytes = 24;
  const std::vector<TensorSource> sources = canonical_sources(stored, name);
  EXPECT_EQ(sources.size(), 1u);
  EXPECT_EQ(sources[0].bytes, 24);
  EXPECT_EQ(sources[0].shape, stored.shape);
  EXPECT_EQ(sources[0].stored, &stored);
  return sources[0].name;
}

TEST(TensorNames, PublishedNamesStandForThemselves) {
  for (const char* name :
       {"embed.weight", "head.weight", "norm.weight", "hc_head_fn", "layers.42.hc_attn_scale",
        "layers.0.attn.wq_a.scale", "layers.2.attn.indexer.compressor.ape",
        "layers.0.ffn.gate.bias", "layers.0.ffn.gate.tid2eid", "layers.7.ffn.experts.255.w2.weight",
        "mtp.0.e_proj.scale", "mtp.2.markov_head.markov_w1.weight", "something.else", "", "."}) {
    EXPECT_EQ(canonical(name), name);
  }
}

TEST(TensorNames, PrefixIsDropped) {
  EXPECT_EQ(canonical("model.layers.0.attn.wq_a.weight"), "layers.0.attn.wq_a.weight");
  EXPECT_EQ(canonical("model.norm.weight"), "norm.weight");
}

TEST(TensorNames, TransformersSpelling) {
  const std::pair<const char*, const char*> kPairs[] = {
      {"model.embed_tokens.weight", "embed.weight"},
      {"lm_head.weight", "head.weight"},
      {"model.hc_head.hc_fn", "hc_head_fn"},
      {"model.hc_head.hc_base", "hc_head_base"},
      {"model.hc_head.hc_scale", "hc_head_scale"},
      {"model.layers.3.input_layernorm.weight", "layers.3.attn_norm.weight"},
      {"model.layers.3.post_attention_layernorm.weight", "layers.3.ffn_norm.weight"},
      {"model.layers.3.attn_hc.fn", "layers.3.hc_attn_fn"},
      {"model.layers.3.attn_hc.base", "layers.3.hc_attn_base"},
      {"model.layers.3.attn_hc.scale", "layers.3.hc_attn_scale"},  // not a ".scale" suffix
      {"model.layers.3.ffn_hc.fn", "layers.3.hc_ffn_fn"},
      {"model.layers.3.ffn_hc.base", "layers.3.hc_ffn_base"},
      {"model.layers.3.ffn_hc.scale", "layers.3.hc_ffn_scale"},
      {"model.layers.3.self_attn.sinks", "layers.3.attn.attn_sink"},
      {"model.layers.3.self_attn.q_a_proj.weight", "layers.3.attn.wq_a.weight"},
      {"model.layers.3.self_attn.q_a_proj.weight_scale_inv", "layers.3.attn.wq_a.scale"},
      {"model.layers.3.self_attn.q_a_norm.weight", "layers.3.attn.q_norm.weight"},
      {"model.layers.3.self_attn.q_b_proj.weight", "layers.3.attn.wq_b.weight"},
      {"model.layers.3.self_attn.kv_proj.weight", "layers.3.attn.wkv.weight"},
      {"model.layers.3.self_attn.kv_norm.weight", "layers.3.attn.kv_norm.weight"},
      {"model.layers.3.self_attn.o_a_proj.weight", "layers.3.attn.wo_a.weight"},
      {"model.layers.3.self_attn.o_b_proj.scale", "layers.3.attn.wo_b.scale"},
      {"model.layers.3.self_attn.compressor.kv_proj.weight", "layers.3.attn.compressor.wkv.weight"},
      {"model.layers.3.self_attn.compressor.gate_proj.weight",
       "layers.3.attn.compressor.wgate.weight"},
      {"model.layers.3.self_attn.compressor.position_bias", "layers.3.attn.compressor.ape"},
      {"model.layers.3.self_attn.compressor.kv_norm.weight",
       "layers.3.attn.compressor.norm.weight"},
      {"model.layers.3.self_attn.compressor.indexer.q_b_proj.weight",
       "layers.3.attn.indexer.wq_b.weight"},
      {"model.layers.3.self_attn.compressor.indexer.scorer.weights_proj.weight",
       "layers.3.attn.indexer.weights_proj.weight"},
      {"model.layers.3.self_attn.compressor.indexer.kv_proj.weight",
       "layers.3.attn.indexer.compressor.wkv.weight"},
      {"model.layers.3.self_attn.compressor.indexer.gate_proj.weight",
       "layers.3.attn.indexer.compressor.wgate.weight"},
      {"model.layers.3.self_attn.compressor.indexer.position_bias",
       "layers.3.attn.indexer.compressor.ape"},
      {"model.layers.3.self_attn.compressor.indexer.kv_norm.weight",
       "layers.3.attn.indexer.compressor.norm.weight"},
      {"model.layers.3.mlp.gate.weight", "layers.3.ffn.gate.weight"},
      {"model.layers.3.mlp.gate.e_score_correction_bias", "layers.3.ffn.gate.bias"},
      {"model.layers.3.mlp.gate.tid2eid", "layers.3.ffn.gate.tid2eid"},
      {"model.layers.3.mlp.shared_experts.gate_proj.weight",
       "layers.3.ffn.shared_experts.w1.weight"},
      {"model.layers.3.mlp.shared_experts.up_proj.weight", "layers.3.ffn.shared_experts.w3.weight"},
      {"model.layers.3.mlp.shared_experts.down_proj.weight_scale_inv",
       "layers.3.ffn.shared_experts.w2.scale"},
      {"model.layers.3.mlp.experts.17.gate_proj.weight", "layers.3.ffn.experts.17.w1.weight"},
      {"model.layers.3.mlp.experts.17.up_proj.weight", "layers.3.ffn.experts.17.w3.weight"},
      {"model.layers.3.mlp.experts.17.down_proj.weight", "layers.3.ffn.experts.17.w2.weight"},
      {"model.layers.3.attn.norm.weight", "layers.3.attn.kv_norm.weight"},
      {"layers.3.attn.wq_a.weight_scale_inv", "layers.3.attn.wq_a.scale"},
      {"layers.3.attn.wq_a.weight_scale", "layers.3.attn.wq_a.scale"},
      {"layers.3.ffn.experts.9.w1.weight_packed", "layers.3.ffn.experts.9.w1.weight"},
      {"layers.3.ffn.experts.9.w1.weight_scale_2", "layers.3.ffn.experts.9.w1.global_scale"},
      {"layers.3.ffn.experts.9.w1.weight_global_scale", "layers.3.ffn.experts.9.w1.global_scale"},
      {"layers.3.ffn.experts.9.w1.input_global_scale", "layers.3.ffn.experts.9.w1.input_scale"},
      {"model.layers.3.mlp.experts.9.up_proj.weight_packed", "layers.3.ffn.experts.9.w3.weight"},
      {"model.layers.3.mlp.experts.9.up_proj.weight_shape",
       "layers.3.ffn.experts.9.w3.weight_shape"},
      {"mtp.0.ffn.experts.9.w2.weight_zero_point", "mtp.0.ffn.experts.9.w2.weight_zero_point"},
  };
  for (const auto& [other, expected] : kPairs) EXPECT_EQ(canonical(other), expected);
}

TEST(TensorNames, OnlyPlainNumbersMatchTheTable) {
  for (const char* name :
       {"layers.03.self_attn.sinks", "layers.x.self_attn.sinks", "layers..self_attn.sinks",
        "layers.1234567890.self_attn.sinks", "layers.#.self_attn.sinks",
        "layers.-1.self_attn.sinks", "layers.3.self_attn.sinks.extra", "xlayers.3.self_attn.sinks",
        "layers.3.mlp.experts.gate_up_proj.weight"}) {
    EXPECT_EQ(canonical(name), name);
  }
}

TEST(TensorNames, StackedExpertsBecomeSlices) {
  CheckpointTensor stored;
  stored.name = "model.layers.9.mlp.experts.gate_up_proj";
  stored.shape = {3, 4, 5};
  stored.bytes = 3 * 4 * 5 * 2;
  const std::vector<TensorSource> sources = canonical_sources(stored, "here");
  ASSERT_EQ(sources.size(), 6u);
  for (int expert = 0; expert < 3; ++expert) {
    const TensorSource& w1 = sources[static_cast<std::size_t>(2 * expert)];
    const TensorSource& w3 = sources[static_cast<std::size_t>(2 * expert + 1)];
    EXPECT_EQ(w1.name, "layers.9.ffn.experts." + std::to_string(expert) + ".w1.weight");
    EXPECT_EQ(w3.name, "layers.9.ffn.experts." + std::to_string(expert) + ".w3.weight");
    EXPECT_EQ(w1.shape, (tensor::Shape{2, 5}));
    EXPECT_EQ(w1.offset, expert * 40);
    EXPECT_EQ(w3.offset, expert * 40 + 20);
    EXPECT_EQ(w3.bytes, 20);
  }
  stored.name = "model.layers.9.mlp.experts.down_proj_scale_inv";
  const std::vector<TensorSource> scales = canonical_sources(stored, "here");
  ASSERT_EQ(scales.size(), 3u);
  EXPECT_EQ(scales[2].name, "layers.9.ffn.experts.2.w2.scale");
  EXPECT_EQ(scales[2].shape, (tensor::Shape{4, 5}));
  EXPECT_EQ(scales[2].offset, 80);
}

}  // namespace
}  // namespace nibble::checkpoint

# SPDX-License-Identifier: Apache-2.0
"""tiny's config.json: the published key set of DeepSeek-V4, and the transformers configurations made from it."""
from transformers import DeepseekV4Config

from tokenizer import VOCAB_SIZE

CONFIG: dict = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "compress_ratios": [0, 4, 128, 4, 128, 4, 0],
    "compress_rope_theta": 160000,
    "eos_token_id": 1,
    "expert_dtype": "fp4",
    "hc_eps": 1e-6,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "head_dim": 512,
    "hidden_act": "silu",
    "hidden_size": 256,
    "index_head_dim": 128,
    "index_n_heads": 4,
    "index_topk": 32,
    "initializer_range": 0.02,
    "max_position_embeddings": 8192,
    "model_type": "deepseek_v4",
    "moe_intermediate_size": 128,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hash_layers": 2,
    "num_hidden_layers": 6,
    "num_key_value_heads": 1,
    "num_nextn_predict_layers": 1,
    "o_groups": 2,
    "o_lora_rank": 128,
    "q_lora_rank": 128,
    "qk_rope_head_dim": 64,
    "quantization_config": {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "scale_fmt": "ue8m0",
        "weight_block_size": [128, 128],
    },
    "rms_norm_eps": 1e-6,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 16,
        "original_max_position_embeddings": 512,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "routed_scaling_factor": 1.5,
    "scoring_func": "sqrtsoftplus",
    "sliding_window": 128,
    "swiglu_limit": 10.0,
    "tie_word_embeddings": False,
    "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16",
    "transformers_version": "5.17.0",
    "use_cache": True,
    "vocab_size": VOCAB_SIZE,
}
GENERATION_CONFIG = {"_from_model_config": True, "bos_token_id": 0, "eos_token_id": 1, "do_sample": False, "transformers_version": "5.17.0"}


def hf_config(published: dict, mtp: bool = False) -> DeepseekV4Config:
    """For the library: without the quantisation block (weights are handed over as plain numbers); with `mtp`, one
    more layer (the draft block) so that its layer class can be built."""
    c = {k: v for k, v in published.items() if k not in ("quantization_config", "expert_dtype", "architectures", "torch_dtype", "transformers_version")}
    c["num_hidden_layers"] += int(mtp)
    c["compress_ratios"] = c["compress_ratios"][: c["num_hidden_layers"]]
    c["attn_implementation"] = "eager"
    return DeepseekV4Config(**c)

#include "formats/layouts.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>

#include "quant/convert.h"

namespace nibble::testing {
namespace {

using quant::Format;
using quant::HostMatrix;
using tensor::DType;

using Bytes = std::vector<std::uint8_t>;

Bytes bytes_of(std::span<const std::byte> from) {
  Bytes out(from.size());
  std::memcpy(out.data(), from.data(), from.size());
  return out;
}
template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  return bytes_of(std::as_bytes(std::span(values)));
}

RandomTensor* find(RandomCheckpoint& c, const std::string& name) {
  for (RandomShard& shard : c.shards)
    for (RandomTensor& tensor : shard.tensors)
      if (tensor.name == name) return &tensor;
  return nullptr;
}

// The FP8 and MXFP4 matrices in the order of the files, as their names without suffix.
std::vector<std::string> quantised_stems(const RandomCheckpoint& c) {
  std::vector<std::string> stems;
  for (const RandomShard& shard : c.shards)
    for (const RandomTensor& tensor : shard.tensors)
      if (tensor.name.ends_with(".scale") && tensor.dtype == "F8_E8M0")
        stems.push_back(tensor.name.substr(0, tensor.name.size() - 6));
  return stems;
}

HostMatrix read(RandomCheckpoint& c, const std::string& stem) {
  const RandomTensor& weight = c.tensor(stem + ".weight");
  const RandomTensor& scale = c.tensor(stem + ".scale");
  const bool fp4 = weight.dtype == "I8";
  HostMatrix m = quant::make_host_matrix(fp4 ? Format::kMxfp4 : Format::kFp8Block128,
                                         weight.shape[0], weight.shape[1] * (fp4 ? 2 : 1));
  std::memcpy(m.data.data(), weight.bytes.data(), weight.bytes.size());
  std::memcpy(m.scales.data(), scale.bytes.data(), scale.bytes.size());
  return m;
}

RandomTensor scalar(std::string name, const std::vector<std::int64_t>& shape, float value) {
  return {std::move(name), "F32", shape, bytes_of(std::vector<float>{value})};
}

// The tensors of a matrix.
std::vector<RandomTensor> write(const std::string& stem, const HostMatrix& m, Naming naming) {
  const quant::FormatTraits& t = quant::traits(m.format);
  const bool compressed = naming == Naming::kCompressedTensors,
             int4 = t.bits == 4 && (m.format == Format::kInt4G32 || m.format == Format::kInt4G128);
  std::string dtype = "F8_E4M3", weight = ".weight";
  std::int64_t columns = m.cols;
  if (m.format == Format::kF32 || m.format == Format::kBF16) dtype = t.name;
  if (t.bits == 4) {
    dtype = int4 ? "I32" : naming == Naming::kDeepSeek ? "I8" : "U8";
    columns = int4 ? m.cols / 8 : m.cols / 2;
    if (compressed) weight = ".weight_packed";
  }
  std::vector<RandomTensor> out = {
      {stem + weight, dtype, {m.rows, columns}, bytes_of(m.data.span())}};
  if (t.block_cols > 0)
    out.push_back(
        {stem + (naming == Naming::kDeepSeek ? ".scale" : ".weight_scale"),
         std::string(tensor::dtype_name(m.scale_dtype)),
         {(m.rows + t.block_rows - 1) / t.block_rows, (m.cols + t.block_cols - 1) / t.block_cols},
         bytes_of(m.scales.span())});
  if (m.format == Format::kNvfp4 && compressed) {
    out.push_back(scalar(stem + ".weight_global_scale", {1}, 1.0f / m.global_scale));
    out.push_back(scalar(stem + ".input_global_scale", {1}, 100.0f));
  } else if (m.format == Format::kNvfp4) {
    out.push_back(scalar(stem + ".weight_scale_2", {}, m.global_scale));
    out.push_back(scalar(stem + ".input_scale", {}, 1.0f));
  }
  if (int4)
    out.push_back(
        {stem + ".weight_shape", "I64", {2}, bytes_of(std::vector<std::int64_t>{m.rows, m.cols})});
  return out;
}

// Puts the tensors where the matrix was.
void replace(RandomCheckpoint& c, const std::string& stem, const std::vector<RandomTensor>& with) {
  c.remove_tensor(stem + ".scale");
  for (RandomShard& shard : c.shards) {
    const auto at = std::ranges::find(shard.tensors, stem + ".weight", &RandomTensor::name);
    if (at == shard.tensors.end()) continue;
    const auto place = shard.tensors.erase(at) - shard.tensors.begin();
    shard.tensors.insert(shard.tensors.begin() + place, with.begin(), with.end());
    break;
  }
}

std::string nvfp4_config() {
  return R"({"quant_method":"fp8","fmt":"e4m3","activation_scheme":"dynamic","scale_fmt":"ue8m0",
    "weight_block_size":[128,128],"moe_quant_algo":"NVFP4","quant_algo":"MIXED_PRECISION","group_size":16,
    "kv_cache_quant_algo":null,"producer":{"name":"modelopt","version":"dsv4-nvfp4-experts"},
    "config_groups":{"group_0":{"weights":{"num_bits":4,"type":"float","group_size":16,"dynamic":false},
    "input_activations":{"num_bits":4,"type":"float","group_size":16,"dynamic":false},"targets":["Linear"]}},
    "quantized_layers":{"layers.0.ffn.experts":{"quant_algo":"NVFP4"}},
    "ignore":["*.attn.*","*.ffn.shared_experts.*","head","mtp.*"]})";
}

std::string compressed_config(const std::string& experts) {
  return R"({"quant_method":"compressed-tensors","config_groups":{"group_0":{"targets":["re:.*attn.*"],
    "weights":{"num_bits":8,"type":"float","strategy":"block","block_structure":[128,128]}},
    "group_1":{"targets":["re:.*experts.*"],"weights":)" +
         experts + "}}}";
}
constexpr const char* kInt4Group =
    R"({"num_bits":4,"type":"int","group_size":128,"symmetric":true,"strategy":"group"})";
constexpr const char* kNvfp4Group =
    R"({"num_bits":4,"type":"float","group_size":16,"symmetric":true,"strategy":"tensor_group"})";

bool is_shared(const std::string& stem) {
  return stem.find(".shared_experts.") != std::string::npos && !is_draft(stem);
}
bool is_indexer(const std::string& stem) {
  return stem.find(".indexer.") != std::string::npos;
}
bool is_attention(const std::string& stem) {
  return stem.find(".attn.") != std::string::npos && !is_indexer(stem) && !is_draft(stem);
}
bool is_dense(const std::string& stem) {
  return !is_draft(stem) && !is_routed_expert(stem);
}

void modelopt(RandomCheckpoint& c) {
  convert(c, is_routed_expert, Format::kNvfp4, Naming::kModelOpt);
  c.set_config("quantization_config", nvfp4_config());
}

void w4a16(RandomCheckpoint& c) {
  convert(c, is_routed_expert, Format::kInt4G128, Naming::kCompressedTensors);
  convert(c, is_attention, Format::kFp8Block128, Naming::kCompressedTensors, DType::kF32);
  convert(
      c, [](const auto& s) { return is_shared(s) || is_indexer(s); }, Format::kBF16,
      Naming::kDeepSeek);
  c.set_config("quantization_config", compressed_config(kInt4Group));
  c.remove_config("expert_dtype");
  RandomTensor& head = c.tensor("head.weight");  // BF16 to F32
  std::vector<float> values(head.bytes.size() / 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = static_cast<std::uint32_t>(head.bytes[2 * i] | head.bytes[2 * i + 1] << 8);
    values[i] = std::bit_cast<float>(bits << 16);
  }
  head.dtype = "F32";
  head.bytes = bytes_of(values);
}

void bf16_draft(RandomCheckpoint& c) {
  convert(c, is_draft, Format::kBF16, Naming::kDeepSeek);
  RandomTensor copy = c.tensor("embed.weight");
  copy.name = "mtp.0.emb.tok_emb.weight";
  c.shards.back().tensors.push_back(std::move(copy));
}

void compressed_nvfp4(RandomCheckpoint& c, DType scale_dtype) {
  convert(c, is_routed_expert, Format::kNvfp4, Naming::kCompressedTensors);
  convert(c, is_dense, Format::kFp8Block128, Naming::kCompressedTensors, scale_dtype);
  c.set_config("quantization_config", compressed_config(kNvfp4Group));
  c.remove_config("expert_dtype");
}

void exl3(RandomCheckpoint& c) {
  for (const std::string& stem : quantised_stems(c)) {
    if (!is_routed_expert(stem)) continue;
    replace(c, stem,
            {{stem + ".trellis", "I16", {8, 8, 4}, Bytes(512)},
             {stem + ".suh", "BF16", {128}, Bytes(256)},
             {stem + ".svh", "BF16", {128}, Bytes(256)}});
  }
  c.set_config("quantization_config", R"({"quant_method":"exl3","codebook":"mcg"})");
}

void dense_uint8(RandomCheckpoint& c) {
  convert(c, is_routed_expert, Format::kInt4G32, Naming::kCompressedTensors);
  for (const std::string& stem : quantised_stems(c)) {
    if (!is_attention(stem)) continue;
    c.tensor(stem + ".weight").dtype = "U8";
  }
}

void pre_sharded(RandomCheckpoint& c) {
  w4a16(c);
  for (const std::string name : {"layers.0.ffn.experts.0.w1"})
    c.shards[0].tensors.push_back({name + ".weight_zero_point", "U8", {128, 1}, Bytes(128)});
  RandomShard rank1{"model-rank-1-part-0.safetensors", {c.tensor("norm.weight")}};
  for (std::size_t i = 0; i < c.shards.size(); ++i)
    c.shards[i].file_name = "model-rank-0-part-" + std::to_string(i) + ".safetensors";
  c.shards.push_back(std::move(rank1));
}

void v41(RandomCheckpoint& c) {
  convert(c, is_routed_expert, Format::kNvfp4, Naming::kModelOpt);
  convert(c, is_dense, Format::kFp8Block32, Naming::kDeepSeek, DType::kF8E8M0);
  c.set_config("model_type", "\"deepseek_v41\"");
  c.set_config("architectures", "[\"DeepseekV41ForCausalLM\"]");
  c.set_config("quantization_config",
               R"({"quant_method":"fp8","scale_fmt":"ue8m0","weight_block_size":[32,32],
                   "moe_quant_algo":"NVFP4"})");
}

}  // namespace

bool is_draft(const std::string& stem) {
  return stem.starts_with("mtp.");
}

bool is_routed_expert(const std::string& stem) {
  return stem.find(".ffn.experts.") != std::string::npos && !is_draft(stem);
}

void convert(RandomCheckpoint& c, const Which& which, Format format, Naming naming) {
  convert(c, which, format, naming, quant::traits(format).scale_dtype);
}

void convert(RandomCheckpoint& c, const Which& which, Format format, Naming naming,
             DType scale_dtype) {
  for (const std::string& stem : quantised_stems(c)) {
    if (!which(stem) || find(c, stem + ".scale") == nullptr) continue;
    const HostMatrix from = read(c, stem);
    if (format == Format::kNvfp4) {
      if (stem.ends_with(".w3")) continue;  // with its w1
      const std::string other = stem.substr(0, stem.size() - 1) + "3";
      const bool pair = stem.ends_with(".w1");
      const HostMatrix second = pair ? read(c, other) : HostMatrix{};
      std::vector<const HostMatrix*> both = {&from};
      if (pair) both.push_back(&second);
      const quant::Nvfp4FromMxfp4 out = quant::mxfp4_to_nvfp4(both);
      replace(c, stem, write(stem, out.matrices[0], naming));
      if (pair) replace(c, other, write(other, out.matrices[1], naming));
      continue;
    }
    replace(c, stem,
            write(stem,
                  quant::encode_matrix(format, from.rows, from.cols, quant::to_floats(from),
                                       scale_dtype),
                  naming));
  }
}

void drop(RandomCheckpoint& c, std::string_view prefix) {
  for (RandomShard& shard : c.shards)
    std::erase_if(shard.tensors, [&](const RandomTensor& t) { return t.name.starts_with(prefix); });
}

Layout make_layout(std::string_view id) {
  using Change = std::function<void(RandomCheckpoint&)>;
  static const std::map<std::string_view, Change> kChanges = {
      {"deepseek", [](RandomCheckpoint&) {}},
      {"deepseek-dspark", [](RandomCheckpoint&) {}},
      {"fp8",
       [](RandomCheckpoint& c) {
         convert(
             c, [](const auto&) { return true; }, Format::kFp8Block128, Naming::kDeepSeek,
             DType::kF32);
         c.set_config("expert_dtype", "\"fp8\"");
         c.set_config("quantization_config",
                      R"({"quant_method":"fp8","fmt":"e4m3","activation_scheme":"dynamic",
                          "weight_block_size":[128,128]})");
       }},
      {"nvidia-nvfp4", modelopt},
      {"v4.1", v41},
      {"redhat-nvfp4",
       [](RandomCheckpoint& c) {
         compressed_nvfp4(c, DType::kBF16);
         drop(c, "mtp.");
       }},
      {"canada-w4a16-mtp",
       [](RandomCheckpoint& c) {
         w4a16(c);
         bf16_draft(c);
       }},
      {"canada-nvfp4-mtp",
       [](RandomCheckpoint& c) {
         compressed_nvfp4(c, DType::kF32);
         bf16_draft(c);
       }},
      {"canada-w4a16",
       [](RandomCheckpoint& c) {
         w4a16(c);
         drop(c, "mtp.");
       }},
      {"autoround",
       [](RandomCheckpoint& c) {
         w4a16(c);
         drop(c, "mtp.");
         c.set_config("quantization_config", R"({"quant_method":"auto-round","bits":4})");
       }},
      {"uint8-dense", dense_uint8},
      {"pre-sharded", pre_sharded},
      {"transcode",
       [](RandomCheckpoint& c) {
         modelopt(c);
         convert(
             c,
             [](const auto& s) {
               return is_draft(s) && s.find(".ffn.experts.") != std::string::npos;
             },
             Format::kNvfp4, Naming::kModelOpt);
       }},
      {"quark",
       [](RandomCheckpoint& c) {
         c.set_config("quantization_config",
                      R"({"quant_method":"quark","global_quant_config":{"weight":{"dtype":"fp4",
                          "qscheme":"per_group","group_size":32}}})");
       }},
      {"exl3", exl3},
      {"gguf", [](RandomCheckpoint&) {}},
  };
  Layout layout;
  RandomCheckpointSpec spec;
  if (id == "deepseek-dspark") {
    spec.dspark_stages = 3;
    spec.dspark_target_layer_ids = {0, 1, 2};
  }
  spec.seed = 41;
  layout.checkpoint = make_random_checkpoint(spec);
  kChanges.at(id)(layout.checkpoint);
  if (id == "nvidia-nvfp4")
    layout.files.emplace_back("hf_quant_config.json",
                              R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":
                                  "MIXED_PRECISION","moe_quant_algo":"NVFP4","exclude_modules":["mtp.*"]}})");
  if (id == "gguf") {
    layout.safetensors = false;
    layout.files.emplace_back("DeepSeek-V4-Flash-MXFP4.gguf", "GGUF");
  }
  layout.index = id != "pre-sharded";
  return layout;
}

void write_layout(const std::string& folder, const Layout& layout) {
  write_checkpoint(folder, layout.checkpoint);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    const bool index = name.ends_with(".index.json");
    if ((!layout.safetensors && (index || name.ends_with(".safetensors"))) ||
        (!layout.index && index))
      std::filesystem::remove(entry.path());
  }
  for (const auto& [name, content] : layout.files)
    std::ofstream(std::filesystem::path(folder) / name, std::ios::binary) << content;
}

RandomCheckpoint as_f32(RandomCheckpoint c) {
  const auto float_tensor = [](const std::string& name, const HostMatrix& m) {
    return RandomTensor{name, "F32", {m.rows, m.cols}, bytes_of(quant::to_floats(m))};
  };
  const auto take = [&](const std::string& name) -> RandomTensor {
    RandomTensor out = c.tensor(name);
    c.remove_tensor(name);
    return out;
  };
  std::vector<std::string> names;
  for (const RandomShard& shard : c.shards)
    for (const RandomTensor& t : shard.tensors) names.push_back(t.name);
  for (const std::string& name : names) {
    std::string stem, weight;
    for (const char* suffix : {".weight_packed", ".weight"})
      if (weight.empty() && name.ends_with(suffix)) {
        weight = name;
        stem = name.substr(0, name.size() - std::strlen(suffix));
      }
    if (weight.empty()) continue;
    std::string scale;
    for (const char* suffix : {".scale", ".weight_scale"})
      if (find(c, stem + suffix) != nullptr) scale = stem + suffix;
    if (scale.empty()) continue;
    const RandomTensor w = take(weight), s = take(scale);
    HostMatrix m;
    m.rows = w.shape[0];
    m.cols = w.dtype == "I32" ? w.shape[1] * 8 : w.dtype == "F8_E4M3" ? w.shape[1] : w.shape[1] * 2;
    for (const DType dtype :
         {DType::kF8E8M0, DType::kF8E4M3, DType::kBF16, DType::kF16, DType::kF32})
      if (tensor::dtype_name(dtype) == s.dtype) m.scale_dtype = dtype;
    const std::int64_t columns = (m.cols + s.shape[1] - 1) / s.shape[1];
    if (w.dtype == "F8_E4M3")
      m.format = columns > 32 ? Format::kFp8Block128 : Format::kFp8Block32;
    else if (w.dtype == "I32")
      m.format = columns == 32 ? Format::kInt4G32 : Format::kInt4G128;
    else
      m.format = columns == 16 ? Format::kNvfp4 : Format::kMxfp4;
    m.data = quant::AlignedBytes(w.bytes.size());
    std::memcpy(m.data.data(), w.bytes.data(), w.bytes.size());
    m.scales = quant::AlignedBytes(s.bytes.size());
    std::memcpy(m.scales.data(), s.bytes.data(), s.bytes.size());
    for (const char* suffix : {".weight_scale_2", ".weight_global_scale"}) {
      if (find(c, stem + suffix) == nullptr) continue;
      std::memcpy(&m.global_scale, take(stem + suffix).bytes.data(), sizeof(float));
      if (std::string_view(suffix) == ".weight_global_scale")
        m.global_scale = 1.0f / m.global_scale;
    }
    for (const char* suffix : {".input_scale", ".input_global_scale", ".weight_shape"})
      if (find(c, stem + suffix) != nullptr) c.remove_tensor(stem + suffix);
    c.shards.back().tensors.push_back(float_tensor(stem + ".weight", m));
  }
  c.remove_config("quantization_config");
  c.remove_config("expert_dtype");
  return c;
}

}  // namespace nibble::testing

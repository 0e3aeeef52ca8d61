// Miniature checkpoints for tests: bytes of safetensors files put together by hand, so that any
// part of them can be made wrong.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/weight_binder.h"
#include "quant/bf16.h"
#include "quant/matrix_format.h"

namespace nibble::checkpoint::testing {

// An empty folder that disappears with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = ::testing::TempDir() + "nibble_checkpoint_XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr) << pattern;
    path_ = pattern;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  void write(std::string_view name, std::string_view content) const {
    std::filesystem::create_directories(std::filesystem::path(*this / name).parent_path());
    std::ofstream(*this / name, std::ios::binary) << content;
  }

 private:
  std::string path_;
};

struct TensorSpec {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

inline std::string bytes_of(const quant::AlignedBytes& bytes) {
  return {bytes.as<char>(), bytes.size()};
}

// The 8 length bytes, then `header`, then `data`.
inline std::string safetensors_bytes(std::string_view header, std::string_view data = {}) {
  const std::uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + std::string(header) + std::string(data);
}

inline std::string header_entry(const TensorSpec& tensor, std::size_t begin, std::size_t end) {
  std::string shape;
  for (const std::int64_t dim : tensor.shape)
    shape += (shape.empty() ? "" : ",") + std::to_string(dim);
  return "\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

inline std::string safetensors_bytes(const std::vector<TensorSpec>& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::string data;
  for (const TensorSpec& tensor : tensors) {
    header += "," + header_entry(tensor, data.size(), data.size() + tensor.bytes.size());
    data += tensor.bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');  // writers pad with spaces
  return safetensors_bytes(header, data);
}

inline std::string index_json(const std::vector<std::pair<std::string, std::string>>& weight_map,
                              const std::string& metadata = "{}") {
  std::string entries;
  for (const auto& [tensor, shard] : weight_map) {
    if (!entries.empty()) entries += ',';
    entries.append("\"").append(tensor).append("\":\"").append(shard).append("\"");
  }
  return "{\"metadata\":" + metadata + ",\"weight_map\":{" + entries + "}}";
}

// ---- a few weights of every kind ----

// Different in every element and exactly representable in bf16, FP8 and (for small counts)
// distinguishable after MXFP4.
inline std::vector<float> ramp(int count, float first = -1.0f) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = quant::bf16_round(first + static_cast<float>((i * 37) % 101) / 50.0f);
  }
  return values;
}

inline TensorSpec f32(std::string name, std::vector<std::int64_t> shape,
                      const std::vector<float>& values) {
  return {std::move(name), "F32", std::move(shape), bytes_of(values)};
}

inline TensorSpec bf16(std::string name, std::vector<std::int64_t> shape,
                       const std::vector<float>& values) {
  std::vector<std::uint16_t> codes;
  codes.reserve(values.size());
  for (const float value : values) codes.push_back(quant::bf16_encode(value));
  return {std::move(name), "BF16", std::move(shape), bytes_of(codes)};
}

// NAME.weight and NAME.scale of `values` rounded to the format.
inline std::vector<TensorSpec> quantised(const std::string& name, quant::Format format,
                                         std::int64_t rows, std::int64_t cols,
                                         const std::vector<float>& values) {
  const quant::HostMatrix matrix = quant::encode_matrix(format, rows, cols, values);
  if (format == quant::Format::kMxfp4) {
    return {{name + ".weight", "I8", {rows, cols / 2}, bytes_of(matrix.data)},
            {name + ".scale", "F8_E8M0", {rows, cols / 32}, bytes_of(matrix.scales)}};
  }
  return {{name + ".weight", "F8_E4M3", {rows, cols}, bytes_of(matrix.data)},
          {name + ".scale",
           "F8_E8M0",
           {(rows + 127) / 128, (cols + 127) / 128},
           bytes_of(matrix.scales)}};
}

inline std::vector<TensorSpec> mini_tensors() {
  std::vector<TensorSpec> tensors = {
      bf16("embed.weight", {8, 64}, ramp(8 * 64)),
      bf16("layers.0.attn_norm.weight", {64}, ramp(64)),
      f32("layers.0.attn.attn_sink", {4}, ramp(4)),
      {"layers.0.ffn.gate.tid2eid",
       "I64",
       {4, 2},
       bytes_of(std::vector<std::int64_t>{0, 1, 1, 0, 1, 1, 0, 0})},
  };
  const auto append = [&tensors](std::vector<TensorSpec> more) {
    for (TensorSpec& tensor : more) tensors.push_back(std::move(tensor));
  };
  append(quantised("layers.0.attn.wq_a", quant::Format::kFp8Block128, 130, 160, ramp(130 * 160)));
  for (int expert = 0; expert < 2; ++expert) {
    const std::string name = "layers.0.ffn.experts." + std::to_string(expert);
    const float first = -1.0f - static_cast<float>(expert);
    append(quantised(name + ".w1", quant::Format::kMxfp4, 32, 64, ramp(32 * 64, first)));
    append(quantised(name + ".w3", quant::Format::kMxfp4, 32, 64, ramp(32 * 64, first / 2)));
    append(quantised(name + ".w2", quant::Format::kMxfp4, 64, 32, ramp(64 * 32, first / 4)));
  }
  return tensors;
}

struct MiniWeights {
  quant::HostMatrix embed, wq_a;
  std::vector<float> attn_norm, attn_sink;
  std::vector<std::int64_t> tid2eid;
  std::vector<quant::HostMatrix> experts;  // w1, w3, w2 of expert 0, then of expert 1
  std::vector<std::string> notes;
};

// Opens the folder and asks for everything mini_tensors() has, as a model would.
inline MiniWeights load_mini(const std::string& path) {
  const Checkpoint checkpoint = Checkpoint::open(path);
  WeightBinder binder(checkpoint);
  MiniWeights weights;
  weights.embed = binder.matrix("embed", 8, 64);
  weights.attn_norm = binder.vector_f32("layers.0.attn_norm.weight", {64});
  weights.attn_sink = binder.vector_f32("layers.0.attn.attn_sink", {4});
  weights.tid2eid = binder.ints("layers.0.ffn.gate.tid2eid", {4, 2}, 0, 1);
  weights.wq_a = binder.matrix("layers.0.attn.wq_a", 130, 160);
  for (int expert = 0; expert < 2; ++expert) {
    const std::string name = "layers.0.ffn.experts." + std::to_string(expert);
    weights.experts.push_back(binder.matrix(name + ".w1", 32, 64));
    weights.experts.push_back(binder.matrix(name + ".w3", 32, 64));
    weights.experts.push_back(binder.matrix(name + ".w2", 64, 32));
  }
  binder.declare_unused("mtp.", "this model does not draft");
  binder.finish();
  weights.notes = checkpoint.notes();
  weights.notes.insert(weights.notes.end(), binder.notes().begin(), binder.notes().end());
  return weights;
}

inline std::vector<float> decoded(const quant::HostMatrix& matrix) {
  std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.cols));
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    quant::decode_row(matrix, r,
                      std::span(values).subspan(static_cast<std::size_t>(r * matrix.cols),
                                                static_cast<std::size_t>(matrix.cols)));
  }
  return values;
}

}  // namespace nibble::checkpoint::testing

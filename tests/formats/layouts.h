// The published layouts of quantization.md 2.2 in miniature: a random checkpoint whose matrices are
// re-encoded and renamed as each publisher does it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "golden/random_checkpoint.h"
#include "quant/matrix_format.h"

namespace nibble::testing {

struct Layout {
  RandomCheckpoint checkpoint;
  std::vector<std::pair<std::string, std::string>>
      files;  // more files of the folder: name, content
  bool safetensors = true;
  bool index = true;
};

// Of a row of checkpoint::known_layouts(); std::out_of_range for another id.
Layout make_layout(std::string_view id);
void write_layout(const std::string& folder, const Layout& layout);

// How a matrix is written: which tensors, under which names.
enum class Naming { kDeepSeek, kModelOpt, kCompressedTensors };

// Which matrices: a name without suffix ("layers.0.ffn.experts.3.w1").
using Which = std::function<bool(const std::string& stem)>;
bool is_routed_expert(const std::string& stem);  // of the model, not of the drafter
bool is_draft(const std::string& stem);

// Re-encodes the FP8 and MXFP4 matrices among them. NVFP4 from MXFP4 is exact (the pair w1, w3 shares its
// global scale), everything else goes through fp32. FP8 takes scale_dtype.
void convert(RandomCheckpoint& checkpoint, const Which& which, quant::Format format, Naming naming,
             tensor::DType scale_dtype);
void convert(RandomCheckpoint& checkpoint, const Which& which, quant::Format format, Naming naming);

// Every matrix as the F32 values it has, spelled as DeepSeek does, and no quantization metadata.
RandomCheckpoint as_f32(RandomCheckpoint checkpoint);

// Removes the tensors whose name begins with `prefix`.
void drop(RandomCheckpoint& checkpoint, std::string_view prefix);

}  // namespace nibble::testing

// What a checkpoint's metadata says about its quantization: config.json (quantization_config,
// expert_dtype) and hf_quant_config.json. It decides nothing. Where it disagrees with the tensors, one
// line says so and that the tensors won; a file whose metadata is silly is still a good file.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/folder.h"
#include "quant/matrix_format.h"

namespace nibble::checkpoint {

// Whose weights a claim is about. The draft is a model of its own: nothing is claimed for it.
enum class WeightClass { kRoutedExperts, kDense, kDraft, kOther };

// Matrices of one class and format, as found in the tensors.
struct FoundFormat {
  WeightClass weights = WeightClass::kOther;
  quant::Format format = quant::Format::kBF16;
  tensor::DType scale_dtype = tensor::DType::kF8E8M0;
  std::int64_t count = 0;
};

struct QuantClaim {
  std::string said;                    // "config.json: expert_dtype is fp4"
  std::optional<WeightClass> weights;  // nullopt: all but the draft
  bool fp8_only = false;  // about matrices that are FP8; the others are none of its business
  std::vector<quant::Format> allowed;        // empty: any
  std::optional<tensor::DType> scale_dtype;  // of the scales
  bool must_occur = false;                   // instead: some matrix has one of `allowed`
};

struct QuantClaims {
  std::string quant_method;  // of quantization_config, "" when absent
  std::vector<QuantClaim> claims;
  std::vector<std::string> notes;  // what could not be read, a line each
};

// Adds what one file says. `file` is what messages call it. Never throws: text that is no JSON object
// is a note, and a key of another type than usual claims nothing.
void add_quant_claims(std::string_view json, const std::string& file, QuantClaims& claims);

// Both files of the folder, where they exist.
QuantClaims read_quant_claims(const Folder& folder);

// One line a contradiction.
std::vector<std::string> contradictions(const QuantClaims& claims,
                                        std::span<const FoundFormat> found);

}  // namespace nibble::checkpoint

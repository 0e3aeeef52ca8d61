#include "checkpoint/quant_claims.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "checkpoint/json_guard.h"
#include "checkpoint/quote.h"
#include "nibble/status.h"

namespace nibble::checkpoint {
namespace {

namespace json = simdjson::dom;
using quant::Format;
using tensor::DType;

constexpr std::int64_t kMaxMetadataBytes = 16 << 20;
const std::vector<Format> kFp8 = {Format::kFp8Block128, Format::kFp8Block32};
const std::vector<Format> kInt4 = {Format::kInt4G32, Format::kInt4G128};

std::string text_of(json::object object, std::string_view key) {
  std::string_view value;
  return object[key].get(value) == simdjson::SUCCESS ? std::string(value) : std::string();
}

std::int64_t number_of(json::object object, std::string_view key) {
  std::int64_t value = 0;
  return object[key].get(value) == simdjson::SUCCESS ? value : 0;
}

bool has_object(json::object object, std::string_view key, json::object& out) {
  return object[key].get(out) == simdjson::SUCCESS;
}

// Formats that a name of the field stands for; empty: it says nothing.
std::vector<Format> formats_named(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  });
  if (name == "fp4") return {Format::kMxfp4, Format::kNvfp4};
  if (name == "nvfp4") return {Format::kNvfp4};
  if (name == "mxfp4") return {Format::kMxfp4};
  if (name == "fp8" || name == "fp8_block" || name == "fp8_pb_wo") return kFp8;
  if (name == "int4" || name == "w4a16") return kInt4;
  if (name == "bf16" || name == "bfloat16") return {Format::kBF16, Format::kF32};
  return {};
}

// compressed-tensors' description of a group's weights.
std::vector<Format> formats_of_group(json::object weights) {
  const std::string type = text_of(weights, "type");
  const std::int64_t bits = number_of(weights, "num_bits");
  const std::int64_t group = number_of(weights, "group_size");
  if (bits == 4 && type == "float" && group == 16) return {Format::kNvfp4};
  if (bits == 4 && type == "float" && group == 32) return {Format::kMxfp4};
  if (bits == 4 && type == "int" && group == 32) return {Format::kInt4G32};
  if (bits == 4 && type == "int" && group == 128) return {Format::kInt4G128};
  if (bits == 8 && type == "float") return kFp8;
  return {};
}

std::string names(const std::vector<Format>& formats) {
  std::string text;
  for (const Format format : formats) {
    // FP8 blocks differ in their scales, which these claims do not speak of.
    const std::string_view name = quant::format_name(format);
    text += (text.empty() ? "" : " or ");
    text += name.substr(0, name.find(" ("));
  }
  return text;
}

class Reader {
 public:
  Reader(json::object root, const std::string& file, QuantClaims& out)
      : root_(root), file_(file), out_(out) {}

  void run() {
    const std::string expert_dtype = text_of(root_, "expert_dtype");
    claim_named("expert_dtype", expert_dtype, WeightClass::kRoutedExperts);
    json::object q;
    // hf_quant_config.json has the same under "quantization".
    if (has_object(root_, "quantization_config", q)) {
      prefix_ = "quantization_config.";
      const std::string method = text_of(q, "quant_method");
      if (out_.quant_method.empty()) out_.quant_method = method;
      // Files of this family say fp8 for their dense half; the experts have a key of their own.
      if (method == "fp8" && expert_dtype.empty())
        claim_named("quant_method", method, WeightClass::kRoutedExperts);
      quantization(q);
    } else if (has_object(root_, "quantization", q)) {
      prefix_ = "quantization.";
      quantization(q);
    }
  }

 private:
  // Safe to print whatever the file holds.
  static std::string shown(std::string_view text) {
    const std::string quoted = quote(text);
    return quoted.substr(1, quoted.size() - 2);
  }

  std::string said(std::string_view key, std::string_view value) const {
    return fmt::format("{}: {}{} is {}", file_, prefix_, shown(key), shown(value));
  }

  void claim_named(std::string_view key, const std::string& value, WeightClass weights) {
    std::vector<Format> formats = formats_named(value);
    if (!formats.empty())
      out_.claims.push_back(
          {said(key, value), weights, false, std::move(formats), std::nullopt, false});
  }

  void quantization(json::object q) {
    claim_named("moe_quant_algo", text_of(q, "moe_quant_algo"), WeightClass::kRoutedExperts);
    block_size(q);
    if (text_of(q, "scale_fmt") == "ue8m0")
      out_.claims.push_back(
          {said("scale_fmt", "ue8m0"), std::nullopt, true, {}, DType::kF8E8M0, false});
    json::object groups;
    if (has_object(q, "config_groups", groups)) config_groups(groups);
  }

  void block_size(json::object q) {
    json::array size;
    if (q["weight_block_size"].get(size) != simdjson::SUCCESS || size.size() != 2) return;
    std::int64_t rows = 0, cols = 0;
    if (size.at(0).get(rows) != simdjson::SUCCESS || size.at(1).get(cols) != simdjson::SUCCESS)
      return;
    std::vector<Format> allowed;
    for (const Format format : kFp8)
      if (quant::traits(format).block_rows == rows && quant::traits(format).block_cols == cols)
        allowed.push_back(format);
    // A size that no format has is contradicted by any FP8 matrix: `allowed` then names one that never is.
    if (allowed.empty()) allowed.push_back(Format::kF32);
    out_.claims.push_back({said("weight_block_size", fmt::format("[{}, {}]", rows, cols)),
                           std::nullopt, true, std::move(allowed), std::nullopt, false});
  }

  void config_groups(json::object groups) {
    QuantClaim experts;
    for (const auto& [key, value] : groups) {
      json::object group, weights;
      if (value.get(group) != simdjson::SUCCESS || !has_object(group, "weights", weights)) continue;
      const std::vector<Format> formats = formats_of_group(weights);
      if (formats.empty()) continue;
      const std::string name = fmt::format("config_groups.{}", key);
      bool symmetric = true;
      if (weights["symmetric"].get(symmetric) == simdjson::SUCCESS && !symmetric)
        out_.notes.push_back(said(name, "asymmetric") +
                             ", but there are no zero points; the tensors win");
      out_.claims.push_back(
          {said(name, names(formats)), std::nullopt, false, formats, std::nullopt, true});
      experts.allowed.insert(experts.allowed.end(), formats.begin(), formats.end());
    }
    if (experts.allowed.empty()) return;
    experts.said = said("config_groups", names(experts.allowed));
    experts.weights = WeightClass::kRoutedExperts;
    out_.claims.push_back(std::move(experts));
  }

  json::object root_;
  const std::string& file_;
  QuantClaims& out_;
  std::string prefix_;
};

bool contains(const std::vector<Format>& formats, Format format) {
  return std::ranges::find(formats, format) != formats.end();
}

const char* class_name(WeightClass weights) {
  switch (weights) {
    case WeightClass::kRoutedExperts:
      return "routed experts";
    case WeightClass::kDense:
      return "attention and shared experts";
    case WeightClass::kDraft:
      return "draft";
    case WeightClass::kOther:
      break;
  }
  return "other matrices";
}

bool speaks_of(const QuantClaim& claim, const FoundFormat& found) {
  if (found.weights == WeightClass::kDraft) return false;
  if (claim.weights && *claim.weights != found.weights) return false;
  return !claim.fp8_only || contains(kFp8, found.format);
}

bool agrees(const QuantClaim& claim, const FoundFormat& found) {
  if (!claim.allowed.empty() && !contains(claim.allowed, found.format)) return false;
  return !claim.scale_dtype || *claim.scale_dtype == found.scale_dtype;
}

}  // namespace

void add_quant_claims(std::string_view text, const std::string& file, QuantClaims& claims) {
  json::parser parser;
  json::object root;
  const simdjson::padded_string padded(text);
  if (json_problem(text) || parser.parse(padded).get(root) != simdjson::SUCCESS) {
    claims.notes.push_back(file +
                           ": not a JSON object; what it says about quantization is ignored");
    return;
  }
  Reader(root, file, claims).run();
}

QuantClaims read_quant_claims(const Folder& folder) {
  QuantClaims claims;
  for (const char* name : {"config.json", "hf_quant_config.json"}) {
    if (!folder.has(name)) continue;
    try {
      add_quant_claims(folder.read_text(name, kMaxMetadataBytes), name, claims);
    } catch (const CheckpointError& error) {
      claims.notes.push_back(fmt::format("{}; ignored", error.what()));
    }
  }
  return claims;
}

std::vector<std::string> contradictions(const QuantClaims& claims,
                                        std::span<const FoundFormat> found) {
  std::vector<std::string> lines = claims.notes;
  for (const QuantClaim& claim : claims.claims) {
    if (claim.must_occur) {
      const bool occurs = std::ranges::any_of(
          found, [&](const FoundFormat& f) { return contains(claim.allowed, f.format); });
      if (!occurs && !found.empty())
        lines.push_back(claim.said + ", but no matrix is; the tensors win");
      continue;
    }
    std::string wrong;
    for (const FoundFormat& f : found) {
      if (!speaks_of(claim, f) || agrees(claim, f)) continue;
      wrong += fmt::format("{}{} of the {} are {}", wrong.empty() ? "" : ", ", f.count,
                           class_name(f.weights), quant::format_name(f.format, f.scale_dtype));
    }
    if (!wrong.empty())
      lines.push_back(fmt::format("{}, but {}; the tensors win", claim.said, wrong));
  }
  return lines;
}

}  // namespace nibble::checkpoint

#include "checkpoint/known_layouts.h"

#include <fmt/format.h>

#include <array>

#include "base/check.h"

namespace nibble::checkpoint {
namespace {

constexpr std::array kLayouts = {
    KnownLayout{"deepseek", "deepseek-ai/DeepSeek-V4-Flash", "MXFP4: .weight I8, .scale F8_E8M0",
                "FP8 128x128, E8M0 .scale", "MTP block, native", Verdict::kServe, ""},
    KnownLayout{"deepseek-dspark", "deepseek-ai/DeepSeek-V4-Flash-0731, *-DSpark",
                "MXFP4: .weight I8, .scale F8_E8M0", "FP8 128x128, E8M0 .scale",
                "DSpark, mtp.0 to mtp.2", Verdict::kServe, ""},
    KnownLayout{"fp8", "deepseek-ai/DeepSeek-V4-Flash-Base, sgl-project/DeepSeek-V4-Flash-FP8",
                "FP8 128x128, F32 .scale", "FP8 128x128, F32 .scale", "as the source",
                Verdict::kServe, ""},
    KnownLayout{
        "nvidia-nvfp4", "nvidia/DeepSeek-V4-Flash-NVFP4, -0731-NVFP4, V4-Pro-NVFP4",
        "NVFP4 (ModelOpt): .weight U8, .weight_scale F8_E4M3, .weight_scale_2, .input_scale",
        "FP8 128x128, E8M0 .scale", "native MXFP4, untouched", Verdict::kServe,
        "quant_method stays fp8; the tensors win"},
    KnownLayout{"v4.1", "deepseek-ai/DeepSeek-V4.1-Flash, nvidia/DeepSeek-V4.1-Flash-NVFP4",
                "MXFP4 or NVFP4 (ModelOpt)", "FP8 32x32, E8M0 .scale", "DSpark, MXFP4",
                Verdict::kInspectOnly, "another network: this version cannot run it"},
    KnownLayout{"redhat-nvfp4", "RedHatAI/DeepSeek-V4-Flash-NVFP4-FP8",
                "NVFP4 (compressed-tensors): .weight_packed, .weight_scale, .weight_global_scale, "
                ".input_global_scale, each [1]",
                "FP8 128x128, BF16 .weight_scale", "none in the files", Verdict::kServe,
                "global scales are reciprocals"},
    KnownLayout{
        "canada-w4a16-mtp", "canada-quant/DeepSeek-V4-Flash-W4A16-FP8-MTP",
        "INT4 g128, symmetric: .weight_packed I32, .weight_scale, .weight_shape",
        "attention FP8 128x128, .weight_scale; shared experts and compressors BF16; head F32",
        "MTP block in BF16, embedding mtp.0.emb.tok_emb.weight", Verdict::kServe, ""},
    KnownLayout{"canada-nvfp4-mtp", "canada-quant/DeepSeek-V4-Flash-NVFP4-FP8-MTP",
                "NVFP4 (compressed-tensors)", "FP8 128x128, F32 .weight_scale", "MTP block in BF16",
                Verdict::kServe, ""},
    KnownLayout{"canada-w4a16", "canada-quant/DeepSeek-V4-Flash-W4A16-FP8",
                "INT4 g128, symmetric: .weight_packed I32, .weight_scale, .weight_shape",
                "FP8 128x128, .weight_scale", "none in the files", Verdict::kServe, ""},
    KnownLayout{"autoround", "Intel/DeepSeek-V4-Flash-W4A16-AutoRound", "INT4, layout per file",
                "per file", "per file", Verdict::kInspectOnly, "the tool writes several layouts"},
    KnownLayout{"uint8-dense", "appmana dsv4_int", "INT4 g32", "8-bit integers", "per file",
                Verdict::kRefuse, "8-bit integer weights"},
    KnownLayout{"pre-sharded", "EnsueAI base", "INT4, asymmetric, split for tensor parallelism",
                "split for tensor parallelism", "per file", Verdict::kRefuse,
                "zero points, and one tensor in several files"},
    KnownLayout{"transcode", "lossless NVFP4 transcodes of 0731 (several authors)",
                "NVFP4 (ModelOpt), scales powers of two, .input_scale 1",
                "FP8 128x128, E8M0 .scale", "native, or its experts in NVFP4", Verdict::kServe, ""},
    KnownLayout{"quark", "AMD Quark", "MXFP4", "per file", "per file", Verdict::kInspectOnly,
                "the layout varies from file to file"},
    KnownLayout{"exl3", "diffbot DeepSeek-V4.1 EXL3", "EXL3: .trellis I16, .suh, .svh",
                "FP8 32x32, E8M0 .scale", "MXFP4", Verdict::kRefuse, "trellis codes"},
    KnownLayout{"gguf", "unsloth, teamblobfish, nsparks, 6ms, antirez, anemll", "GGUF", "GGUF",
                "some in a file of its own", Verdict::kRefuse,
                "*.gguf files instead of *.safetensors"},
};

struct Mark {
  std::string_view suffix;
  std::string_view layout;
};
constexpr std::array kMarks = {
    Mark{".trellis", "EXL3 (trellis codes)"}, Mark{".suh", "EXL3 (trellis codes)"},
    Mark{".svh", "EXL3 (trellis codes)"},     Mark{".qweight", "GPTQ or AWQ"},
    Mark{".qzeros", "GPTQ or AWQ"},
};

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kServe:
      return "serve";
    case Verdict::kInspectOnly:
      return "inspect only";
    case Verdict::kRefuse:
      return "refuse";
  }
  NIBBLE_CHECK(false, "verdict {}", static_cast<int>(verdict));
  return "";
}

std::span<const KnownLayout> known_layouts() {
  return kLayouts;
}

std::optional<std::string> refused_by_name(const Checkpoint& checkpoint) {
  for (const Mark& mark : kMarks) {
    const CheckpointTensor* first = nullptr;
    std::int64_t count = 0;
    for (const CheckpointTensor& tensor : checkpoint.tensors()) {
      if (!tensor.name.ends_with(mark.suffix)) continue;
      if (count++ == 0) first = &tensor;
    }
    if (first == nullptr) continue;
    return fmt::format(
        "{}: expected MXFP4, NVFP4, INT4 (compressed-tensors), FP8 or BF16 weights, found {}, "
        "which "
        "is not supported ({} tensors)",
        checkpoint.where(*first), mark.layout, count);
  }
  return std::nullopt;
}

std::optional<std::string> inspect_only_reason(std::string_view quant_method) {
  if (quant_method == "quark" || quant_method == "auto-round" || quant_method == "auto_round")
    return fmt::format("quant_method {}: the layout varies from file to file", quant_method);
  return std::nullopt;
}

}  // namespace nibble::checkpoint

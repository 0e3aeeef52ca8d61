// The published layouts of DeepSeek-V4 checkpoints and what is done with each. docs/formats.md shows
// the same table (a test compares them), and each row has a miniature checkpoint in
// known_layouts_test.cpp or src/inspect.
//
// The table is for people: a file is judged by its tensors (weight_format.h), never by its name. Only
// what cannot be judged so is looked up here: layouts refused by name, because their tensors say
// nothing that could be checked, and layouts that vary from file to file.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/checkpoint.h"

namespace nibble::checkpoint {

enum class Verdict { kServe, kInspectOnly, kRefuse };

// "serve", "inspect only", "refuse".
std::string_view verdict_name(Verdict verdict);

struct KnownLayout {
  std::string_view id;           // "nvidia-nvfp4", for tests and --json
  std::string_view checkpoints;  // who publishes it
  std::string_view experts;      // the tensors of a routed expert
  std::string_view dense;        // attention, shared experts
  std::string_view draft;
  Verdict verdict;
  std::string_view remark;
};
std::span<const KnownLayout> known_layouts();

// The message that refuses this checkpoint by name: EXL3, GPTQ or AWQ tensors. Nothing when it may be
// looked at further.
std::optional<std::string> refused_by_name(const Checkpoint& checkpoint);

// Why a checkpoint that claims this quantization_config.quant_method is not served whatever its
// tensors are ("quark": its layout varies from file to file), or nothing.
std::optional<std::string> inspect_only_reason(std::string_view quant_method);

}  // namespace nibble::checkpoint

// Which chat grammar a checkpoint was trained with, and its long prompt texts: read as data from
// its encoding/*.py.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nibble/status.h"

namespace nibble::text {

//   kPreview  V4-Flash and V4-Pro of April 2026, and `tiny`: efforts high (no text) and max
//   k0731     V4-Flash-0731 and later: efforts low (no text, the default), high and max
enum class ProfileKind { kPreview, k0731 };

const char* profile_name(ProfileKind kind);  // "preview", "0731"

struct EncoderProfile {
  ProfileKind kind = ProfileKind::kPreview;
  std::string source;           // file the texts came from, or "--encoder" when there was none
  bool deepseek_texts = false;  // the effort texts are DeepSeek's own, by hash
  // Raw texts with their placeholders. Empty: the file has none, requests that need it are refused.
  //   tools            {tool_schemas}, {dsml_token}, {thinking_start_token}, {thinking_end_token}
  //   response format  {schema}
  std::string tools_template;
  std::string response_format_template;
  // Effort -> text in front of the prompt; an effort that adds nothing is absent.
  std::map<std::string, std::string> effort_texts;
  std::map<std::string, std::string> task_tokens;  // task -> control token; `tiny` has none

  // Values of reasoning_effort this profile knows, weakest first, "none" included; "xhigh" is
  // another word for max.
  std::vector<std::string> allowed_efforts() const;
};

struct EncoderLookup {
  std::optional<EncoderProfile> profile;  // nothing: chat is unavailable (400), completions work
  std::string note;  // one line for the log and for the 400: what was found and what was missing
};

// Looks through MODEL/encoding/*.py (regular files, 1 MiB at most, never executed). `forced` is
// --encoder's value: "", "preview" or "0731"; it wins over what the file looks like, the texts are
// still taken from it where they exist. Throws Error(kUsage) for another name. A missing or strange
// folder is no error, see EncoderLookup.
EncoderLookup find_encoder(const std::filesystem::path& model_dir, const std::string& forced = "");

// The same for one file's text.
EncoderLookup read_encoder(const std::string& python_source, const std::string& name,
                           const std::string& forced = "");

// Thinking switches of a request

enum class ThinkingMode { kChat, kThinking };

// The spellings clients use; unset: not in the request.
struct ThinkingSwitches {
  std::optional<std::string> reasoning_effort;  // top level
  std::optional<bool> thinking;                 // {"thinking": {"type": "enabled" | "disabled"}}
  std::optional<std::string> kwargs_reasoning_effort;  // chat_template_kwargs.reasoning_effort
  std::optional<bool> kwargs_thinking;  // chat_template_kwargs.thinking or .enable_thinking
};

struct Thinking {
  ThinkingMode mode = ThinkingMode::kChat;
  std::string effort;  // "": the profile's default
};

// Nothing set: chat mode. An effort other than "none" turns thinking on; "none" turns it off.
// kInvalidArgument: an effort this profile does not know (the message lists the allowed ones), or
// switches that contradict each other.
Result<Thinking> resolve_thinking(const EncoderProfile& profile, const ThinkingSwitches& switches);

}  // namespace nibble::text

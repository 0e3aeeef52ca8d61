#include "text/encoder_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <span>

#include "base/sha256.h"
#include "text/python_literals.h"

namespace nibble::text {

namespace {

// DeepSeek's own effort texts (deepseek-v4.md section 8.2): the preview's "max" is 0731's "high".
constexpr std::string_view kStrongHash =
    "f7a24f3b3050d4a83781e9b755b316aae2ec1d9dc87562541d90bcb04d7350f7";
constexpr std::string_view kStrongestHash =
    "53fb31b8392ec5b4a926481943efc67636748f137c1a49d493a7af4d4fa55d2c";

// A control token's constant, as DeepSeek and as `tiny` call it, and what it must say.
constexpr struct {
  const char* names[2];
  std::string_view text;
} kTokenConstants[] = {
    {{"bos_token", "BOS_TOKEN"}, "<｜begin▁of▁sentence｜>"},
    {{"eos_token", "EOS_TOKEN"}, "<｜end▁of▁sentence｜>"},
    {{"USER_SP_TOKEN", "USER_TOKEN"}, "<｜User｜>"},
    {{"ASSISTANT_SP_TOKEN", "ASSISTANT_TOKEN"}, "<｜Assistant｜>"},
    {{"thinking_start_token", "THINK_START_TOKEN"}, "<think>"},
    {{"thinking_end_token", "THINK_END_TOKEN"}, "</think>"},
    {{"dsml_token", "DSML_TOKEN"}, "｜DSML｜"},
    {{"LATEST_REMINDER_SP_TOKEN", "LATEST_REMINDER_TOKEN"}, "<｜latest_reminder｜>"},
    // The tags' words: V4.1 puts a blank in front of them and is another grammar.
    {{"tool_calls_block_name", "TOOL_CALLS_BLOCK_NAME"}, "tool_calls"},
};

std::string hash(const std::string& text) {
  return sha256_hex(std::as_bytes(std::span(text)));
}

const std::string* first_string(const PythonLiterals& literals,
                                std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto found = literals.strings.find(name);
    if (found != literals.strings.end()) return &found->second;
  }
  return nullptr;
}

// The first constant that contradicts the grammar, in words; "" when none does.
std::string contradiction(const PythonLiterals& literals) {
  for (const auto& constant : kTokenConstants) {
    const std::string* value = first_string(literals, {constant.names[0], constant.names[1]});
    if (value != nullptr && *value != constant.text) {
      return fmt::format("{} is \"{}\", expected \"{}\"", constant.names[0], *value, constant.text);
    }
  }
  return "";
}

// DeepSeek's texts are recognised by hash wherever they stand in the file.
const std::string* by_hash(const PythonLiterals& literals, std::string_view wanted) {
  for (const auto& [name, text] : literals.strings) {
    if (hash(text) == wanted) return &text;
  }
  for (const auto& [name, dict] : literals.dicts) {
    for (const auto& [key, text] : dict) {
      if (hash(text) == wanted) return &text;
    }
  }
  return nullptr;
}

using EffortTexts = std::map<std::string, std::string>;

// The three levels of 0731, with their texts; empty when the file does not have them.
EffortTexts levels_of_0731(const PythonLiterals& literals) {
  const auto found = literals.dicts.find("REASONING_EFFORT_PROMPTS");
  if (found != literals.dicts.end() && found->second.contains("low") &&
      found->second.contains("high") && found->second.contains("max")) {
    return {{"low", found->second.at("low")},
            {"high", found->second.at("high")},
            {"max", found->second.at("max")}};
  }
  const std::string* strong = by_hash(literals, kStrongHash);
  const std::string* strongest = by_hash(literals, kStrongestHash);
  if (strong == nullptr || strongest == nullptr) return {};
  return {{"high", *strong}, {"max", *strongest}};
}

EffortTexts levels_of_preview(const PythonLiterals& literals) {
  const std::string* max = first_string(literals, {"REASONING_EFFORT_MAX"});
  if (max == nullptr) max = by_hash(literals, kStrongHash);
  if (max == nullptr) return {};
  return {{"max", *max}};
}

ProfileKind kind_of(const std::string& name) {
  if (name == "preview") return ProfileKind::kPreview;
  if (name == "0731") return ProfileKind::k0731;
  throw Error(ExitCode::kUsage, fmt::format("--encoder {}: expected preview or 0731", name));
}

EncoderLookup without_file(const std::string& forced, const std::string& why) {
  if (forced.empty()) return {std::nullopt, "no chat encoder: " + why};
  EncoderProfile profile;
  profile.kind = kind_of(forced);
  profile.source = "--encoder";
  return {
      profile,
      fmt::format(
          "chat encoder {} as asked for, without texts for tools, response format and effort: {}",
          forced, why)};
}

}  // namespace

const char* profile_name(ProfileKind kind) {
  return kind == ProfileKind::kPreview ? "preview" : "0731";
}

std::vector<std::string> EncoderProfile::allowed_efforts() const {
  if (kind == ProfileKind::kPreview) return {"none", "high", "max", "xhigh"};
  return {"none", "low", "high", "max", "xhigh"};
}

EncoderLookup read_encoder(const std::string& python_source, const std::string& name,
                           const std::string& forced) {
  const auto literals = parse_python_literals(python_source);
  if (!literals)
    return without_file(forced, fmt::format("{}: {}", name, literals.status().message));
  const std::string wrong = contradiction(*literals);
  const std::string* tools = first_string(*literals, {"TOOLS_TEMPLATE"});
  EffortTexts newer = levels_of_0731(*literals);
  EffortTexts older = levels_of_preview(*literals);

  EncoderProfile profile;
  if (!forced.empty()) {
    profile.kind = kind_of(forced);
  } else if (!wrong.empty()) {
    return {std::nullopt,
            fmt::format("no chat encoder: {} holds another grammar: {}", name, wrong)};
  } else if (tools == nullptr || tools->find("{tool_schemas}") == std::string::npos) {
    return {std::nullopt,
            fmt::format("no chat encoder: {} has no TOOLS_TEMPLATE with {{tool_schemas}}", name)};
  } else if (!newer.empty()) {
    profile.kind = ProfileKind::k0731;
  } else if (!older.empty()) {
    profile.kind = ProfileKind::kPreview;
  } else {
    return {std::nullopt, fmt::format("no chat encoder: {} has no reasoning effort texts", name)};
  }
  profile.source = name;
  profile.effort_texts = profile.kind == ProfileKind::k0731 ? std::move(newer) : std::move(older);
  std::erase_if(profile.effort_texts, [](const auto& level) { return level.second.empty(); });
  profile.deepseek_texts =
      std::any_of(profile.effort_texts.begin(), profile.effort_texts.end(),
                  [](const auto& level) { return hash(level.second) == kStrongHash; });
  if (tools != nullptr) profile.tools_template = *tools;
  if (const std::string* format =
          first_string(*literals, {"response_format_template", "RESPONSE_FORMAT_TEMPLATE"})) {
    profile.response_format_template = *format;
  }
  if (const auto tasks = literals->dicts.find("DS_TASK_SP_TOKENS");
      tasks != literals->dicts.end()) {
    profile.task_tokens = tasks->second;
  }
  std::string note = fmt::format("chat encoder {}{} from {}", profile_name(profile.kind),
                                 forced.empty() ? "" : " as asked for, texts", name);
  if (!wrong.empty()) note += "; the file holds another grammar: " + wrong;
  return {std::move(profile), std::move(note)};
}

EncoderLookup find_encoder(const std::filesystem::path& model_dir, const std::string& forced) {
  if (!forced.empty()) kind_of(forced);  // a wrong name is an error whatever the folder holds
  const std::filesystem::path folder = model_dir / "encoding";
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->path().extension() == ".py" && it->is_regular_file(ignored))
      files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  std::optional<EncoderLookup> last;
  for (const std::filesystem::path& path : files) {
    const auto size = std::filesystem::file_size(path, error);
    if (error || size > kMaxPythonBytes) continue;
    std::string source(size, '\0');
    std::ifstream file(path, std::ios::binary);
    if (!file.read(source.data(), static_cast<std::streamsize>(size))) continue;
    EncoderLookup lookup = read_encoder(source, path.string());
    if (lookup.profile)
      return forced.empty() ? lookup : read_encoder(source, path.string(), forced);
    last = std::move(lookup);
  }
  if (last && forced.empty()) return *last;
  return without_file(forced, last ? last->note : folder.string() + " holds no readable .py file");
}

Result<Thinking> resolve_thinking(const EncoderProfile& profile, const ThinkingSwitches& switches) {
  struct Effort {
    const char* param;
    const std::optional<std::string>& value;
  };
  const Effort efforts[] = {
      {"reasoning_effort", switches.reasoning_effort},
      {"chat_template_kwargs.reasoning_effort", switches.kwargs_reasoning_effort}};
  const std::vector<std::string> allowed = profile.allowed_efforts();
  std::optional<std::string> chosen;
  const char* chosen_by = "";
  for (const Effort& effort : efforts) {
    if (!effort.value) continue;
    if (std::find(allowed.begin(), allowed.end(), *effort.value) == allowed.end()) {
      return Status{StatusCode::kInvalidArgument,
                    fmt::format("{} \"{}\" is not known to this model; allowed: {}", effort.param,
                                *effort.value, fmt::join(allowed, ", ")),
                    effort.param};
    }
    const std::string value = *effort.value == "xhigh" ? "max" : *effort.value;
    if (chosen && *chosen != value) {
      return Status{
          StatusCode::kInvalidArgument,
          fmt::format("{} \"{}\" contradicts {} \"{}\"", effort.param, value, chosen_by, *chosen),
          effort.param};
    }
    chosen = value;
    chosen_by = effort.param;
  }
  std::optional<bool> on;
  const char* on_by = "";
  if (chosen) {
    on = *chosen != "none";
    on_by = chosen_by;
  }
  struct Switch {
    const char* param;
    std::optional<bool> value;
  };
  for (const Switch& s : {Switch{"thinking", switches.thinking},
                          Switch{"chat_template_kwargs.thinking", switches.kwargs_thinking}}) {
    if (!s.value) continue;
    if (on && *on != *s.value) {
      return Status{
          StatusCode::kInvalidArgument,
          fmt::format("{} ({}) contradicts {} ({})", s.param, *s.value ? "enabled" : "disabled",
                      on_by, chosen ? *chosen : (*on ? "enabled" : "disabled")),
          s.param};
    }
    on = s.value;
    on_by = s.param;
  }
  Thinking thinking;
  thinking.mode = on.value_or(false) ? ThinkingMode::kThinking : ThinkingMode::kChat;
  if (chosen && *chosen != "none") thinking.effort = *chosen;
  return thinking;
}

}  // namespace nibble::text

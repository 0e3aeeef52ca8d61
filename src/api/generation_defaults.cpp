#include "api/generation_defaults.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <iterator>

#include "api/json.h"
#include "nibble/status.h"

namespace nibble::api {
namespace {

constexpr std::uintmax_t kMaxFileBytes = 1 << 20;

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& what) {
  throw CheckpointError(fmt::format("{}: {}", file.string(), what));
}

std::string read_file(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) refuse(file, "cannot be read");
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

const Json* present(const Json& root, std::string_view key) {
  const Json* value = root.find(key);
  return value && !value->is(Json::Kind::kNull) ? value : nullptr;
}

float read_number(const std::filesystem::path& file, const Json& root, std::string_view key,
                  float fallback, double low, double high) {
  const Json* value = present(root, key);
  if (!value) return fallback;
  const std::optional<double> number =
      value->is(Json::Kind::kNumber) ? value->number() : std::nullopt;
  if (!number || *number < low || *number > high)
    refuse(file, fmt::format("{}: expected a number from {} to {}, found {}", key, low, high,
                             value->raw.substr(0, 60)));
  return static_cast<float>(*number);
}

// Settings of other samplers, with the value that asks for nothing.
void note_unfollowed(const Json& root, GenerationDefaults& defaults) {
  struct Unfollowed {
    std::string_view key;
    double neutral;
  };
  static constexpr std::array<Unfollowed, 5> kUnfollowed = {
      {{"top_k", 0}, {"min_p", 0}, {"typical_p", 1}, {"repetition_penalty", 1}, {"num_beams", 1}}};
  for (const auto& [key, neutral] : kUnfollowed) {
    const Json* value = present(root, key);
    if (value && value->is(Json::Kind::kNumber) && value->number() != neutral)
      defaults.notes.push_back(fmt::format(
          "generation_config.json: {} {} is not supported and not applied", key, value->raw));
  }
}

}  // namespace

GenerationDefaults read_generation_defaults(const std::filesystem::path& model_dir) {
  GenerationDefaults defaults;
  const std::filesystem::path file = model_dir / "generation_config.json";
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return defaults;
  if (const auto bytes = std::filesystem::file_size(file, error); error || bytes > kMaxFileBytes)
    refuse(file, fmt::format("expected a file of at most {} bytes", kMaxFileBytes));
  Result<JsonDocument> document = JsonDocument::parse(read_file(file));
  if (!document) refuse(file, document.status().message);
  const Json& root = document->root();
  if (!root.is(Json::Kind::kObject)) refuse(file, "expected a JSON object");
  defaults.temperature = read_number(file, root, "temperature", 1.0f, 0.0, 100.0);
  defaults.top_p = read_number(file, root, "top_p", 1.0f, 1e-6, 1.0);
  const Json* do_sample = present(root, "do_sample");
  if (do_sample && !do_sample->is(Json::Kind::kBool)) refuse(file, "do_sample: expected a boolean");
  if (do_sample && !do_sample->boolean())
    defaults.temperature = 0.0f;
  else
    note_unfollowed(root, defaults);
  return defaults;
}

}  // namespace nibble::api

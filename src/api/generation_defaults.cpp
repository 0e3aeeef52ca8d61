#include "api/generation_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>

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

// Leaves `out` as it is when the key is missing.
void read_number(const std::filesystem::path& file, const Json& root, std::string_view key,
                 double low, double high, float& out) {
  const Json* value = present(root, key);
  if (!value) return;
  const std::optional<double> number =
      value->is(Json::Kind::kNumber) ? value->number() : std::nullopt;
  if (!number || *number < low || *number > high)
    refuse(file, fmt::format("{}: expected a number from {} to {}, found {}", key, low, high,
                             value->raw.substr(0, 60)));
  out = static_cast<float>(*number);
}

// 0 and -1 both mean all.
void read_top_k(const std::filesystem::path& file, const Json& root, int& out) {
  const Json* value = present(root, "top_k");
  if (!value) return;
  const std::optional<std::int64_t> number =
      value->is(Json::Kind::kNumber) ? value->integer() : std::nullopt;
  if (!number || *number < -1 || *number > std::numeric_limits<std::int32_t>::max())
    refuse(file, fmt::format("top_k: expected a whole number from -1 on, found {}",
                             value->raw.substr(0, 60)));
  out = static_cast<int>(std::max<std::int64_t>(*number, 0));
}

// Settings of other samplers, with the value that asks for nothing.
void note_unfollowed(const Json& root, GenerationDefaults& defaults) {
  struct Unfollowed {
    std::string_view key;
    double neutral;
  };
  static constexpr std::array<Unfollowed, 2> kUnfollowed = {{{"typical_p", 1}, {"num_beams", 1}}};
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
  SamplingParams& sampling = defaults.sampling;
  read_number(file, root, "temperature", 0.0, 100.0, sampling.temperature);
  read_number(file, root, "top_p", 1e-6, 1.0, sampling.top_p);
  read_number(file, root, "min_p", 0.0, 1.0, sampling.min_p);
  read_number(file, root, "repetition_penalty", 1e-3, 10.0, sampling.repetition_penalty);
  read_top_k(file, root, sampling.top_k);
  const Json* do_sample = present(root, "do_sample");
  if (do_sample && !do_sample->is(Json::Kind::kBool)) refuse(file, "do_sample: expected a boolean");
  if (do_sample && !do_sample->boolean())
    sampling.temperature = 0.0f;
  else
    note_unfollowed(root, defaults);
  return defaults;
}

}  // namespace nibble::api

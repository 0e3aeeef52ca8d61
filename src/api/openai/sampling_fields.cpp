#include "api/openai/sampling_fields.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <random>

#include "api/errors.h"

namespace nibble::api::openai {
namespace {

// Each of these would change the answer; the values listed are the ones that would not.
constexpr NeutralField kNeutral[] = {
    {"n", "1"},
    {"best_of", "1"},
    {"frequency_penalty", "0"},
    {"presence_penalty", "0"},
    {"repetition_penalty", "1"},
    {"length_penalty", "1"},
    {"logit_bias", "{}"},
    {"top_k", "0", "-1"},
    {"min_p", "0"},
    {"typical_p", "1"},
    {"min_tokens", "0"},
    {"stop_token_ids", "[]"},
    {"bad_words", "[]"},
    {"include_stop_str_in_output", "false"},
    {"skip_special_tokens", "true"},
    {"spaces_between_special_tokens", "true"},
    {"use_beam_search", "false"},
    {"early_stopping", "false"},
    {"prompt_logprobs"},
    {"truncate_prompt_tokens"},
    {"guided_json"},
    {"guided_regex"},
    {"guided_choice"},
    {"guided_grammar"},
    {"structured_outputs"},
    {"return_token_ids", "false"},
};

// Bookkeeping of the client or of a hosted service.
constexpr std::string_view kIgnored[] = {"user",
                                         "metadata",
                                         "store",
                                         "service_tier",
                                         "safety_identifier",
                                         "prompt_cache_key",
                                         "prompt_cache_retention",
                                         "request_id",
                                         "priority",
                                         "cache_salt"};

std::uint64_t random_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

void add_stop(std::vector<std::string>& stops, const Json& value, const std::string& path) {
  if (!value.is(Json::Kind::kString)) fail_kind(path, "a string", value);
  if (value.string.empty() || value.string.size() > kMaxStopBytes)
    throw RequestError(path, fmt::format("{}: expected 1 to {} bytes, found {}", path,
                                         kMaxStopBytes, value.string.size()));
  stops.emplace_back(value.string);
}

std::vector<std::string> read_stop(Fields& body) {
  std::vector<std::string> stops;
  const Json* value = body.optional("stop");
  if (!value) return stops;
  if (value->is(Json::Kind::kString)) {
    add_stop(stops, *value, "stop");
    return stops;
  }
  if (!value->is(Json::Kind::kArray)) fail_kind("stop", "a string or an array of strings", *value);
  if (value->items.size() > kMaxStops)
    throw RequestError(
        "stop", fmt::format("stop: at most {} strings, found {}", kMaxStops, value->items.size()));
  for (std::size_t i = 0; i < value->items.size(); ++i)
    add_stop(stops, value->items[i], fmt::format("stop[{}]", i));
  return stops;
}

void read_stream_options(Fields& body, CommonOptions& options) {
  const Json* value = body.object("stream_options");
  if (!value) return;
  if (!options.stream)
    throw RequestError("stream_options", "stream_options is only allowed when stream is true");
  Fields fields(*value, "stream_options");
  options.include_usage = fields.boolean("include_usage").value_or(false);
  static constexpr NeutralField kNeutralOptions[] = {{"continuous_usage_stats", "false"}};
  static constexpr std::string_view kIgnoredOptions[] = {"include_obfuscation"};
  fields.neutral(kNeutralOptions);
  fields.ignore(kIgnoredOptions);
  fields.refuse_rest();
}

}  // namespace

CommonOptions read_common(Fields& body, const GenerationDefaults& defaults) {
  CommonOptions options;
  options.model = body.string("model").value_or("");
  options.sampling.temperature =
      static_cast<float>(body.number("temperature", 0.0, 2.0).value_or(defaults.temperature));
  options.sampling.top_p = defaults.top_p;
  if (const std::optional<double> top_p = body.number("top_p", 0.0, 1.0)) {
    options.sampling.top_p = static_cast<float>(*top_p);
    if (!(options.sampling.top_p > 0.0f))
      throw RequestError("top_p", "top_p: expected a number above 0 and up to 1");
  }
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  const auto seed = body.integer("seed", -kAny - 1, kAny);
  options.sampling.seed = seed ? static_cast<std::uint64_t>(*seed) : random_seed();
  options.sampling.ignore_eos = body.boolean("ignore_eos").value_or(false);
  options.stop = read_stop(body);
  options.stream = body.boolean("stream").value_or(false);
  read_stream_options(body, options);
  options.tokens_as_ids = body.boolean("return_tokens_as_token_ids").value_or(false);
  body.neutral(kNeutral);
  body.ignore(kIgnored);
  return options;
}

}  // namespace nibble::api::openai

#include "api/openai/sampling_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <random>
#include <string>

#include "api/errors.h"

namespace nibble::api::openai {
namespace {

// Each of these would change the answer; the values listed are the ones that would not.
constexpr NeutralField kNeutral[] = {
    {"length_penalty", "1"},
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
                                         "priority"};

std::uint64_t random_seed() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

void read_number(Fields& body, const char* name, double low, double high, float& out) {
  if (const auto value = body.number(name, low, high)) out = static_cast<float>(*value);
}

// Above 0 as a float, too.
void read_positive(Fields& body, const char* name, double high, float& out) {
  read_number(body, name, 0.0, high, out);
  if (!(out > 0.0f))
    throw RequestError(name, fmt::format("{}: expected a number above 0 and up to {}", name, high));
}

TokenId read_bias_token(std::string_view key) {
  TokenId token = 0;
  const auto parsed = std::from_chars(key.data(), key.data() + key.size(), token);
  if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || token < 0)
    throw RequestError("logit_bias",
                       fmt::format("logit_bias: expected a token id as key, found \"{}\"",
                                   key.size() <= 40 ? key : "(a long string)"));
  return token;
}

std::vector<std::pair<TokenId, float>> read_logit_bias(Fields& body) {
  const Json* object = body.object("logit_bias");
  if (!object) return {};
  if (object->items.size() > kMaxLogitBias)
    throw RequestError("logit_bias", fmt::format("logit_bias: at most {} tokens, found {}",
                                                 kMaxLogitBias, object->items.size()));
  std::map<TokenId, float> biases;  // the last of equals counts
  for (const Json& item : object->items) {
    const TokenId token = read_bias_token(item.key);
    const auto bias = item.is(Json::Kind::kNumber) ? item.number() : std::nullopt;
    if (!bias || *bias < -100.0 || *bias > 100.0)
      throw RequestError("logit_bias",
                         fmt::format("logit_bias: token {}: expected a number from -100 to 100, "
                                     "found {}",
                                     token, item.raw.substr(0, 40)));
    biases[token] = static_cast<float>(*bias);
  }
  return {biases.begin(), biases.end()};
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
  options.usage_in_chunks = fields.boolean("continuous_usage_stats").value_or(false);
  static constexpr std::string_view kIgnoredOptions[] = {"include_obfuscation"};
  fields.ignore(kIgnoredOptions);
  fields.refuse_rest();
}

// What the request leaves open stays as it is in `sampling`.
void read_penalties(Fields& body, SamplingParams& sampling) {
  constexpr double kMost = 2.0;  // OpenAI's range
  read_number(body, "presence_penalty", -kMost, kMost, sampling.presence_penalty);
  read_number(body, "frequency_penalty", -kMost, kMost, sampling.frequency_penalty);
  read_positive(body, "repetition_penalty", 10.0, sampling.repetition_penalty);
}

SamplingParams read_sampling(Fields& body, SamplingParams sampling) {
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  read_number(body, "temperature", 0.0, 2.0, sampling.temperature);
  read_positive(body, "top_p", 1.0, sampling.top_p);
  if (const auto top_k = body.integer("top_k", -1, std::numeric_limits<std::int32_t>::max()))
    sampling.top_k = static_cast<int>(std::max<std::int64_t>(*top_k, 0));
  read_number(body, "min_p", 0.0, 1.0, sampling.min_p);
  read_penalties(body, sampling);
  sampling.logit_bias = read_logit_bias(body);
  const auto seed = body.integer("seed", -kAny - 1, kAny);
  sampling.seed = seed ? static_cast<std::uint64_t>(*seed) : random_seed();
  sampling.ignore_eos = body.boolean("ignore_eos").value_or(false);
  return sampling;
}

int read_n(Fields& body) {
  const auto n = static_cast<int>(body.integer("n", 1, kMaxChoices).value_or(1));
  // The best n of n: all of them.
  const std::string all = std::to_string(n);
  const NeutralField best_of[] = {{"best_of", all}};
  body.neutral(best_of);
  return n;
}

}  // namespace

CommonOptions read_common(Fields& body, const GenerationDefaults& defaults) {
  CommonOptions options;
  options.model = body.string("model").value_or("");
  options.sampling = read_sampling(body, defaults.sampling);
  options.n = read_n(body);
  options.stop = read_stop(body);
  options.stream = body.boolean("stream").value_or(false);
  read_stream_options(body, options);
  options.cache_salt = body.string("cache_salt").value_or("");
  options.tokens_as_ids = body.boolean("return_tokens_as_token_ids").value_or(false);
  body.neutral(kNeutral);
  body.ignore(kIgnored);
  return options;
}

}  // namespace nibble::api::openai

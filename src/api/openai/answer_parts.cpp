#include "api/openai/answer_parts.h"

#include <fmt/format.h>

#include <ctime>
#include <random>

namespace nibble::api::openai {

AnswerHead make_answer_head(const char* id_prefix, const std::string& model,
                            const std::string& fingerprint) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return {fmt::format("{}{:016x}{:08x}", id_prefix, random(), static_cast<std::uint32_t>(random())),
          static_cast<std::int64_t>(std::time(nullptr)), model, fingerprint};
}

void write_answer_head(JsonWriter& json, const AnswerHead& head, const char* object) {
  json.member("id", head.id)
      .member("object", object)
      .member("created", head.created_s)
      .member("model", head.model);
  json.member("system_fingerprint", head.fingerprint);
}

void write_usage(JsonWriter& json, const TokenUsage& usage) {
  json.key("usage").begin_object();
  json.member("prompt_tokens", usage.prompt).member("completion_tokens", usage.completion);
  json.member("total_tokens", usage.prompt + usage.completion);
  json.key("prompt_tokens_details")
      .begin_object()
      .member("cached_tokens", usage.cached)
      .end_object();
  if (usage.reasoning)
    json.key("completion_tokens_details")
        .begin_object()
        .member("reasoning_tokens", *usage.reasoning)
        .end_object();
  json.end_object();
}

}  // namespace nibble::api::openai

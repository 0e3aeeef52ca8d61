// Pieces of an answer that chat and completions share.
#pragma once

#include <optional>
#include <string>

#include "api/json_writer.h"
#include "nibble/types.h"

namespace nibble::api::openai {

// What every object of one answer repeats.
struct AnswerHead {
  std::string id;              // "chatcmpl-..." or "cmpl-..."
  std::int64_t created_s = 0;  // Unix time
  std::string model;
  std::string fingerprint;
};

AnswerHead make_answer_head(const char* id_prefix, const std::string& model,
                            const std::string& fingerprint);

// id, object, created, model, system_fingerprint, into an open object.
void write_answer_head(JsonWriter& json, const AnswerHead& head, const char* object);

struct TokenUsage {
  int prompt = 0;
  int cached = 0;
  int completion = 0;
  std::optional<int> reasoning;  // chat only
};

// The "usage" member.
void write_usage(JsonWriter& json, const TokenUsage& usage);

}  // namespace nibble::api::openai

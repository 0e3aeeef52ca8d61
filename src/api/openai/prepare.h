// From a request's body to what is submitted: the work that grows with the prompt, done away from the io thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/openai/sampling_fields.h"
#include "api/served_model.h"
#include "text/output_parser.h"

namespace nibble::api::openai {

struct ChatPlan {
  CommonOptions options;
  std::vector<Request> requests;  // one a choice
  text::OutputParserOptions parsing;
  bool one_tool_call = false;
};

struct CompletionPlan {
  CommonOptions options;
  std::vector<Request> requests;  // one a choice; options.n for each prompt
  bool echo = false;
};

// All throw RequestError. Thread safe: they read `model` and nothing else. `served_name`: another value of the request's
// "model" is answered with 404.
ChatPlan prepare_chat(std::string_view body, const ServedModel& model,
                      const std::string& served_name);
CompletionPlan prepare_completion(std::string_view body, const ServedModel& model,
                                  const std::string& served_name);
// The whole answer's JSON.
std::string answer_tokenize(std::string_view body, const ServedModel& model,
                            const std::string& served_name);
std::string answer_detokenize(std::string_view body, const ServedModel& model,
                              const std::string& served_name);

}  // namespace nibble::api::openai

#include "api/openai/completion_request.h"

#include <fmt/format.h>

#include <limits>

#include "api/errors.h"

namespace nibble::api::openai {
namespace {

constexpr NeutralField kNeutral[] = {
    {"suffix", "\"\""},
    {"response_format", "{}"},
    {"prompt_embeds"},
    {"allowed_token_ids"},
    {"reasoning_effort"},
    {"thinking"},
    {"chat_template_kwargs", "{}"},
    {"tools", "[]"},
    {"top_logprobs"},
};

constexpr const char* kPromptForms =
    "a string, an array of strings, an array of token ids, or an array of those";

std::vector<Prompt> read_prompts(const Json& value) {
  if (value.is(Json::Kind::kString)) return {std::string(value.string)};
  if (!value.is(Json::Kind::kArray)) fail_kind("prompt", kPromptForms, value);
  if (value.items.empty()) throw RequestError("prompt", "prompt: the array is empty");
  if (value.items[0].is(Json::Kind::kNumber)) return {read_token_ids(value, "prompt")};
  if (value.items.size() > kMaxChoices)
    throw RequestError("prompt", fmt::format("prompt: at most {} prompts a request, found {}",
                                             kMaxChoices, value.items.size()));
  std::vector<Prompt> prompts;
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    const Json& item = value.items[i];
    const std::string path = fmt::format("prompt[{}]", i);
    if (item.is(Json::Kind::kString))
      prompts.emplace_back(std::string(item.string));
    else if (item.is(Json::Kind::kArray))
      prompts.emplace_back(read_token_ids(item, path));
    else
      fail_kind(path, "a string or an array of token ids", item);
  }
  return prompts;
}

void check_choices(std::size_t prompts, int n) {
  if (prompts * static_cast<std::size_t>(n) > kMaxChoices)
    throw RequestError("n", fmt::format("n: at most {} choices a request, found {} for each of {} "
                                        "prompts",
                                        kMaxChoices, n, prompts));
}

}  // namespace

std::vector<TokenId> read_token_ids(const Json& array, const std::string& path) {
  if (!array.is(Json::Kind::kArray)) fail_kind(path, "an array of token ids", array);
  std::vector<TokenId> ids;
  ids.reserve(array.items.size());
  for (std::size_t i = 0; i < array.items.size(); ++i) {
    const Json& item = array.items[i];
    const auto id = item.is(Json::Kind::kNumber) ? item.integer() : std::nullopt;
    if (!id || *id < 0 || *id > std::numeric_limits<TokenId>::max())
      throw RequestError(
          fmt::format("{}[{}]", path, i),
          fmt::format("{}[{}]: expected a token id, found {}", path, i, item.raw.substr(0, 40)));
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

CompletionBody read_completion_body(const Json& root, const GenerationDefaults& defaults) {
  Fields body(root, "");
  CompletionBody out;
  out.options = read_common(body, defaults);
  out.prompts = read_prompts(body.required("prompt"));
  check_choices(out.prompts.size(), out.options.n);
  out.max_tokens =
      static_cast<int>(body.integer("max_tokens", 0, std::numeric_limits<std::int32_t>::max())
                           .value_or(out.max_tokens));
  out.options.sampling.logprobs =
      static_cast<int>(body.integer("logprobs", 0, kMaxLogprobs).value_or(-1));
  out.echo = body.boolean("echo").value_or(false);
  out.add_special_tokens = body.boolean("add_special_tokens").value_or(false);
  body.neutral(kNeutral);
  body.refuse_rest();
  return out;
}

}  // namespace nibble::api::openai

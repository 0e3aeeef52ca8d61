#include "api/openai/prepare.h"

#include <fmt/format.h>

#include "api/errors.h"
#include "api/json_writer.h"
#include "api/openai/chat_request.h"
#include "api/openai/completion_request.h"
#include "sample/sampler.h"

namespace nibble::api::openai {
namespace {

JsonDocument parse_body(std::string_view body) {
  Result<JsonDocument> document = JsonDocument::parse(body);
  if (!document) throw RequestError(api_error(document.status()));
  return std::move(document).value();
}

template <typename T>
T value_or_throw(Result<T> result) {
  if (!result) throw RequestError(api_error(result.status()));
  return std::move(result).value();
}

void check_model(const std::string& asked, const std::string& served_name) {
  if (asked.empty() || asked == served_name) return;
  throw RequestError(ApiError{
      404, fmt::format("the model '{}' does not exist; this server has '{}'", asked, served_name),
      "model", "model_not_found"});
}

const text::ChatEncoder& encoder_of(const ServedModel& model) {
  if (model.encoder) return *model.encoder;
  throw RequestError(
      "messages", fmt::format("chat is not available for this checkpoint: {}", model.encoder_note),
      "chat_unavailable");
}

[[noreturn]] void fail_context(const char* param, std::size_t prompt, std::int64_t max_tokens,
                               int context) {
  throw RequestError(
      param,
      fmt::format("this model's context is {} tokens, but the request asks for {}: {} in the "
                  "prompt and {} to generate",
                  context, static_cast<std::int64_t>(prompt) + max_tokens, prompt, max_tokens),
      "context_length_exceeded");
}

void check_ids(const std::vector<TokenId>& ids, const std::string& path, int vocab_size) {
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] >= vocab_size)
      throw RequestError(fmt::format("{}[{}]", path, i),
                         fmt::format("{}[{}]: token id {} is outside the vocabulary of {}", path, i,
                                     ids[i], vocab_size));
}

void check_logit_bias(const SamplingParams& sampling, int vocab_size) {
  for (const auto& [token, bias] : sampling.logit_bias)
    if (token >= vocab_size)
      throw RequestError("logit_bias",
                         fmt::format("logit_bias: token id {} is outside the vocabulary of {}",
                                     token, vocab_size));
}

std::vector<TokenId> encode_text(std::string_view text, bool add_special_tokens,
                                 const ServedModel& model) {
  std::vector<TokenId> ids = model.tokenizer->encode_with_control(text);
  const TokenId bos = model.engine->info().bos_token;
  if (add_special_tokens && (ids.empty() || ids.front() != bos)) ids.insert(ids.begin(), bos);
  return ids;
}

text::ChatRequest with_thinking(text::ChatRequest chat, const text::ThinkingSwitches& switches,
                                const text::ChatEncoder& encoder) {
  chat.thinking = value_or_throw(text::resolve_thinking(encoder.profile(), switches));
  return chat;
}

// n requests of one prompt, which differ in their seed alone.
void add_choices(Request request, int n, std::vector<Request>& requests) {
  const std::uint64_t seed = request.sampling.seed;
  const std::size_t first = requests.size();
  requests.insert(requests.end(), static_cast<std::size_t>(n - 1), request);
  requests.push_back(std::move(request));
  for (int i = 0; i < n; ++i)
    requests[first + static_cast<std::size_t>(i)].sampling.seed = sample::choice_seed(seed, i);
}

}  // namespace

ChatPlan prepare_chat(std::string_view body, const ServedModel& model,
                      const std::string& served_name) {
  const JsonDocument document = parse_body(body);
  ChatBody read = read_chat_body(document.root(), model.defaults);
  check_model(read.options.model, served_name);
  check_logit_bias(read.options.sampling, model.engine->info().vocab_size);
  const text::ChatEncoder& encoder = encoder_of(model);
  const text::ChatRequest chat = with_thinking(std::move(read.chat), read.switches, encoder);
  Request request;
  request.prompt = value_or_throw(encoder.encode(chat));
  const int context = model.engine->info().max_model_len;
  const std::int64_t room = context - static_cast<std::int64_t>(request.prompt.size());
  // Without a limit the answer may fill the context; a full one leaves no room for any answer.
  if (room < 1 || read.max_tokens > room)
    fail_context("messages", request.prompt.size(), std::max(read.max_tokens, 1), context);
  request.sampling = read.options.sampling;
  request.cache_salt = read.options.cache_salt;
  request.sampling.max_tokens = read.max_tokens < 0 ? static_cast<int>(room) : read.max_tokens;
  ChatPlan plan;
  plan.options = std::move(read.options);
  add_choices(std::move(request), plan.options.n, plan.requests);
  plan.parsing.starts_in_reasoning = chat.thinking.mode == text::ThinkingMode::kThinking;
  plan.parsing.tools = chat.tools;
  plan.one_tool_call = read.one_tool_call;
  return plan;
}

CompletionPlan prepare_completion(std::string_view body, const ServedModel& model,
                                  const std::string& served_name) {
  const JsonDocument document = parse_body(body);
  CompletionBody read = read_completion_body(document.root(), model.defaults);
  check_model(read.options.model, served_name);
  const ModelInfo& info = model.engine->info();
  check_logit_bias(read.options.sampling, info.vocab_size);
  CompletionPlan plan;
  plan.options = std::move(read.options);
  plan.echo = read.echo;
  for (std::size_t i = 0; i < read.prompts.size(); ++i) {
    const std::string path = read.prompts.size() == 1 ? "prompt" : fmt::format("prompt[{}]", i);
    Request request;
    if (const auto* text = std::get_if<std::string>(&read.prompts[i]))
      request.prompt = encode_text(*text, read.add_special_tokens, model);
    else
      request.prompt = std::move(std::get<std::vector<TokenId>>(read.prompts[i]));
    if (request.prompt.empty())
      throw RequestError(path, fmt::format("{}: no tokens to start from", path));
    check_ids(request.prompt, path, info.vocab_size);
    if (static_cast<std::int64_t>(request.prompt.size()) + read.max_tokens > info.max_model_len)
      fail_context(path.c_str(), request.prompt.size(), read.max_tokens, info.max_model_len);
    request.sampling = plan.options.sampling;
    request.cache_salt = plan.options.cache_salt;
    request.sampling.max_tokens = read.max_tokens;
    request.prompt_logprobs = read.echo && request.sampling.logprobs >= 0;
    add_choices(std::move(request), plan.options.n, plan.requests);
  }
  return plan;
}

std::string answer_tokenize(std::string_view body, const ServedModel& model,
                            const std::string& served_name) {
  const JsonDocument document = parse_body(body);
  Fields fields(document.root(), "");
  check_model(std::string(fields.string("model").value_or("")), served_name);
  const auto prompt = fields.string("prompt");
  const Json* messages = fields.array("messages");
  if (prompt.has_value() == (messages != nullptr))
    throw RequestError("prompt", "expected either prompt or messages",
                       "missing_required_parameter");
  std::vector<TokenId> ids;
  if (prompt) {
    ids = encode_text(*prompt, fields.boolean("add_special_tokens").value_or(false), model);
  } else {
    text::ChatRequest chat;
    chat.messages = read_messages(*messages, "messages");
    if (const Json* tools = fields.array("tools")) chat.tools = read_tools(*tools, "tools");
    const text::ThinkingSwitches switches = read_thinking_switches(fields);
    ids = value_or_throw(
        encoder_of(model).encode(with_thinking(std::move(chat), switches, encoder_of(model))));
    static constexpr NeutralField kNeutral[] = {{"add_special_tokens", "false"},
                                                {"add_generation_prompt", "true"}};
    fields.neutral(kNeutral);
  }
  const bool with_texts = fields.boolean("return_token_strs").value_or(false);
  fields.refuse_rest();
  std::string out;
  JsonWriter json(out);
  json.begin_object().member("count", static_cast<std::int64_t>(ids.size()));
  json.member("max_model_len", model.engine->info().max_model_len);
  json.key("tokens").begin_array();
  for (const TokenId id : ids) json.number(id);
  json.end_array().key("token_strs");
  if (with_texts) {
    json.begin_array();
    for (const TokenId id : ids) json.string(model.tokenizer->decode(std::span(&id, 1)));
    json.end_array();
  } else {
    json.null();
  }
  json.end_object();
  return out;
}

std::string answer_detokenize(std::string_view body, const ServedModel& model,
                              const std::string& served_name) {
  const JsonDocument document = parse_body(body);
  Fields fields(document.root(), "");
  check_model(std::string(fields.string("model").value_or("")), served_name);
  const std::vector<TokenId> ids = read_token_ids(fields.required("tokens"), "tokens");
  fields.refuse_rest();
  check_ids(ids, "tokens", model.engine->info().vocab_size);
  std::string out;
  JsonWriter json(out);
  json.begin_object().member("prompt", model.tokenizer->decode(ids)).end_object();
  return out;
}

}  // namespace nibble::api::openai

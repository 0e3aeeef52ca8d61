#include "api/openai/chat_request.h"

#include <fmt/format.h>

#include <limits>

#include "api/errors.h"

namespace nibble::api::openai {
namespace {

constexpr NeutralField kNeutral[] = {
    {"functions", "[]"},
    {"function_call", "\"none\"", "\"auto\""},
    {"audio"},
    {"web_search_options"},
    {"verbosity", "\"medium\""},
    {"echo", "false"},
    {"add_generation_prompt", "true"},
    {"continue_final_message", "false"},
    {"add_special_tokens", "false"},
    {"chat_template"},
    {"documents", "[]"},
    {"suffix"},
    {"allowed_token_ids"},
    {"include_reasoning", "true"},
    {"mm_processor_kwargs", "{}"},
};

// Hints about how to compute the same answer.
constexpr std::string_view kIgnored[] = {"prediction"};

void read_modalities(Fields& body) {
  const Json* value = body.array("modalities");
  if (value && !(value->items.size() == 1 && value->items[0].is(Json::Kind::kString) &&
                 value->items[0].string == "text"))
    throw RequestError("modalities", "modalities: only [\"text\"] is supported",
                       "unsupported_parameter");
}

void read_response_format(Fields& body) {
  const Json* value = body.object("response_format");
  if (!value) return;
  const Json* type = value->find("type");
  if (!type || !type->is(Json::Kind::kString) || type->string != "text")
    throw RequestError(
        "response_format",
        fmt::format("response_format: only {{\"type\": \"text\"}} is supported, found type {}",
                    type ? type->raw.substr(0, 40) : "none"),
        "unsupported_parameter");
}

int read_max_tokens(Fields& body) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const auto current = body.integer("max_completion_tokens", 1, kMost);
  const auto former = body.integer("max_tokens", 1, kMost);
  if (current && former && *current != *former)
    throw RequestError(
        "max_tokens",
        fmt::format("max_tokens {} contradicts max_completion_tokens {}", *former, *current));
  return static_cast<int>(current.value_or(former.value_or(-1)));
}

void read_logprobs(Fields& body, SamplingParams& sampling) {
  const bool wanted = body.boolean("logprobs").value_or(false);
  const auto top = body.integer("top_logprobs", 0, kMaxLogprobs);
  if (top.value_or(0) > 0 && !wanted)
    throw RequestError("top_logprobs", "top_logprobs needs logprobs to be true");
  sampling.logprobs = wanted ? static_cast<int>(top.value_or(0)) : -1;
}

// Whether the request's tools are shown to the model.
bool read_tool_choice(Fields& body) {
  const Json* value = body.optional("tool_choice");
  if (!value) return true;
  if (value->is(Json::Kind::kString) && value->string == "auto") return true;
  if (value->is(Json::Kind::kString) && value->string == "none") return false;
  throw RequestError("tool_choice",
                     fmt::format("tool_choice: only \"none\" and \"auto\" are supported, found {}",
                                 value->raw.substr(0, 60)),
                     "unsupported_parameter");
}

void read_tool_fields(Fields& body, ChatBody& out) {
  const Json* array = body.array("tools");
  std::vector<text::Tool> tools;
  if (array) tools = read_tools(*array, "tools");
  if (read_tool_choice(body)) out.chat.tools = std::move(tools);
  out.one_tool_call = !body.boolean("parallel_tool_calls").value_or(true);
}

std::optional<bool> read_thinking_object(Fields& body) {
  const Json* value = body.object("thinking");
  if (!value) return std::nullopt;
  Fields fields(*value, "thinking");
  const Json& type = fields.required("type");
  fields.refuse_rest();
  if (type.is(Json::Kind::kString) && type.string == "enabled") return true;
  if (type.is(Json::Kind::kString) && type.string == "disabled") return false;
  throw RequestError(
      "thinking.type",
      fmt::format("thinking.type: expected enabled or disabled, found {}", type.raw.substr(0, 40)));
}

void check_last_message(const std::vector<text::Message>& messages) {
  const text::Role last = messages.back().role;
  if (last == text::Role::kAssistant || last == text::Role::kSystem)
    throw RequestError("messages",
                       "messages: the last message must come from the user or a tool; there is "
                       "nothing to answer after one of the system, the developer or the assistant");
}

}  // namespace

text::ThinkingSwitches read_thinking_switches(Fields& body) {
  text::ThinkingSwitches switches;
  if (const auto effort = body.string("reasoning_effort"))
    switches.reasoning_effort = std::string(*effort);
  switches.thinking = read_thinking_object(body);
  const Json* value = body.object("chat_template_kwargs");
  if (!value) return switches;
  Fields kwargs(*value, "chat_template_kwargs");
  const auto thinking = kwargs.boolean("thinking");
  const auto enable_thinking = kwargs.boolean("enable_thinking");
  if (thinking && enable_thinking && *thinking != *enable_thinking)
    throw RequestError("chat_template_kwargs",
                       "chat_template_kwargs: thinking and enable_thinking contradict each other");
  switches.kwargs_thinking = thinking ? thinking : enable_thinking;
  if (const auto effort = kwargs.string("reasoning_effort"))
    switches.kwargs_reasoning_effort = std::string(*effort);
  kwargs.refuse_rest();
  return switches;
}

ChatBody read_chat_body(const Json& root, const GenerationDefaults& defaults) {
  Fields body(root, "");
  ChatBody out;
  out.options = read_common(body, defaults);
  out.chat.messages = read_messages(body.required("messages"), "messages");
  check_last_message(out.chat.messages);
  read_tool_fields(body, out);
  out.switches = read_thinking_switches(body);
  out.max_tokens = read_max_tokens(body);
  read_logprobs(body, out.options.sampling);
  read_response_format(body);
  read_modalities(body);
  body.ignore(kIgnored);
  body.neutral(kNeutral);
  body.refuse_rest();
  return out;
}

}  // namespace nibble::api::openai

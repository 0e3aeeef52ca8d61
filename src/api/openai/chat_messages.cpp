#include <fmt/format.h>

#include <array>
#include <utility>

#include "api/errors.h"
#include "api/openai/chat_request.h"

namespace nibble::api::openai {
namespace {

// OpenAI's clients say developer where they used to say system. The grammar's own developer role is another thing: a turn of
// the user that vanishes once a later one follows.
constexpr std::array<std::pair<std::string_view, text::Role>, 6> kRoles = {{
    {"system", text::Role::kSystem},
    {"developer", text::Role::kSystem},
    {"user", text::Role::kUser},
    {"assistant", text::Role::kAssistant},
    {"tool", text::Role::kTool},
    {"latest_reminder", text::Role::kLatestReminder},
}};

text::Role read_role(Fields& message) {
  const Json& value = message.required("role");
  if (!value.is(Json::Kind::kString)) fail_kind(message.path("role"), "a string", value);
  for (const auto& [name, role] : kRoles)
    if (name == value.string) return role;
  throw RequestError(
      message.path("role"),
      fmt::format("{}: expected system, developer, user, assistant or tool, found {}",
                  message.path("role"), value.raw.substr(0, 40)));
}

// The encoder names parts it cannot show; only a tool's result may hold such, the user's own would be lost unseen.
text::ContentPart read_part(const Json& value, const std::string& path, text::Role role) {
  Fields fields(value, path);
  const Json& type = fields.required("type");
  if (!type.is(Json::Kind::kString)) fail_kind(fields.path("type"), "a string", type);
  text::ContentPart part;
  part.type = type.string;
  if (part.type == "text") {
    part.text = std::string(fields.string("text").value_or(""));
  } else if (role != text::Role::kTool) {
    throw RequestError(fields.path("type"),
                       fmt::format("{}: only \"text\" parts are supported, found {}",
                                   fields.path("type"), type.raw.substr(0, 40)));
  }
  return part;
}

std::vector<text::ContentPart> read_content(Fields& message, text::Role role) {
  const Json* value = message.optional("content");
  if (!value) {
    if (role == text::Role::kAssistant) return {};
    throw RequestError(message.path("content"),
                       fmt::format("{} is required", message.path("content")),
                       "missing_required_parameter");
  }
  if (value->is(Json::Kind::kString)) return {{"text", std::string(value->string)}};
  if (!value->is(Json::Kind::kArray))
    fail_kind(message.path("content"), "a string or an array of parts", *value);
  std::vector<text::ContentPart> parts;
  for (std::size_t i = 0; i < value->items.size(); ++i)
    parts.push_back(
        read_part(value->items[i], fmt::format("{}[{}]", message.path("content"), i), role));
  return parts;
}

text::ToolCall read_tool_call(const Json& value, const std::string& path) {
  Fields fields(value, path);
  static constexpr NeutralField kType[] = {{"type", "\"function\""}};
  static constexpr std::string_view kIgnored[] = {"index"};
  fields.neutral(kType);
  fields.ignore(kIgnored);
  text::ToolCall call;
  call.id = std::string(fields.string("id").value_or(""));
  Fields function(fields.required("function"), fields.path("function"));
  fields.refuse_rest();
  const Json& name = function.required("name");
  if (!name.is(Json::Kind::kString)) fail_kind(function.path("name"), "a string", name);
  call.name = name.string;
  if (const Json* arguments = function.optional("arguments")) {
    if (arguments->is(Json::Kind::kString))
      call.arguments = arguments->string;
    else if (arguments->is(Json::Kind::kObject))
      call.arguments = arguments->raw;
    else
      fail_kind(function.path("arguments"), "a string or an object", *arguments);
  }
  function.refuse_rest();
  return call;
}

void read_assistant_fields(Fields& message, text::Message& out) {
  if (const auto reasoning = message.string("reasoning_content"))
    out.reasoning_content = *reasoning;
  else
    out.reasoning_content = std::string(message.string("reasoning").value_or(""));
  const Json* calls = message.array("tool_calls");
  for (std::size_t i = 0; calls && i < calls->items.size(); ++i)
    out.tool_calls.push_back(
        read_tool_call(calls->items[i], fmt::format("{}[{}]", message.path("tool_calls"), i)));
}

// What OpenAI's client objects carry when an answer is put back into the history as it came.
constexpr NeutralField kNeutral[] = {
    {"refusal"},           {"audio"},
    {"annotations", "[]"}, {"function_call"},
    {"prefix", "false"},   {"task"},
    {"tool_calls", "[]"},  {"tool_call_id", "\"\""},
    {"reasoning", "\"\""}, {"reasoning_content", "\"\""},
};

text::Message read_message(const Json& value, const std::string& path) {
  Fields fields(value, path);
  text::Message message;
  message.role = read_role(fields);
  message.content = read_content(fields, message.role);
  message.name = std::string(fields.string("name").value_or(""));
  if (message.role == text::Role::kAssistant) {
    read_assistant_fields(fields, message);
    fields.neutral(std::span(kNeutral).first(6));
  } else {
    if (message.role == text::Role::kTool)
      message.tool_call_id = std::string(fields.string("tool_call_id").value_or(""));
    fields.neutral(message.role == text::Role::kTool ? std::span(kNeutral).first(7)
                                                     : std::span(kNeutral));
  }
  fields.refuse_rest();
  return message;
}

}  // namespace

std::vector<text::Message> read_messages(const Json& array, const std::string& path) {
  if (!array.is(Json::Kind::kArray)) fail_kind(path, "an array", array);
  if (array.items.empty())
    throw RequestError(path, fmt::format("{}: at least one message is needed", path));
  std::vector<text::Message> messages;
  messages.reserve(array.items.size());
  for (std::size_t i = 0; i < array.items.size(); ++i)
    messages.push_back(read_message(array.items[i], fmt::format("{}[{}]", path, i)));
  return messages;
}

std::vector<text::Tool> read_tools(const Json& array, const std::string& path) {
  std::vector<text::Tool> tools;
  for (std::size_t i = 0; i < array.items.size(); ++i) {
    Fields fields(array.items[i], fmt::format("{}[{}]", path, i));
    static constexpr NeutralField kType[] = {{"type", "\"function\""}};
    fields.neutral(kType);
    const Json& function = fields.required("function");
    fields.refuse_rest();
    Fields inner(function, fields.path("function"));
    const Json& name = inner.required("name");
    if (!name.is(Json::Kind::kString) || name.string.empty())
      throw RequestError(inner.path("name"),
                         fmt::format("{}: expected a name", inner.path("name")));
    (void)inner.string("description");
    (void)inner.object("parameters");
    if (inner.boolean("strict").value_or(false))
      throw RequestError(
          inner.path("strict"),
          fmt::format("{}: arguments cannot be constrained to the schema by this server",
                      inner.path("strict")),
          "unsupported_parameter");
    tools.push_back({std::string(function.raw)});
  }
  return tools;
}

}  // namespace nibble::api::openai

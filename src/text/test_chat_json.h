// Chat requests from the JSON of golden files and of tests/text: OpenAI's message shape.
#pragma once

#include <stdexcept>
#include <string>

#include "text/chat_encoder.h"
#include "text/python_json.h"

namespace nibble::text {

inline std::string text_or(const Json* value, const std::string& otherwise = "") {
  return value != nullptr && value->kind == Json::Kind::kString ? value->text : otherwise;
}

inline Role role_named(const std::string& name) {
  if (name == "system") return Role::kSystem;
  if (name == "developer") return Role::kDeveloper;
  if (name == "user") return Role::kUser;
  if (name == "assistant") return Role::kAssistant;
  if (name == "tool") return Role::kTool;
  if (name == "latest_reminder") return Role::kLatestReminder;
  throw std::runtime_error("unknown role " + name);
}

inline std::vector<Tool> tools_from_json(const Json* tools) {
  std::vector<Tool> out;
  if (tools == nullptr) return out;
  for (const Json& tool : tools->items) {
    const Json* function = tool.find("function");
    out.push_back({python_json(function == nullptr ? tool : *function)});
  }
  return out;
}

inline Message message_from_json(const Json& json) {
  Message out;
  out.role = role_named(text_or(json.find("role")));
  if (const Json* content = json.find("content")) {
    if (content->kind == Json::Kind::kString) out.content = {{"text", content->text}};
    for (const Json& part : content->items) {
      out.content.push_back({text_or(part.find("type")), text_or(part.find("text"))});
    }
  }
  out.reasoning_content = text_or(json.find("reasoning_content"));
  out.tool_call_id = text_or(json.find("tool_call_id"));
  out.task = text_or(json.find("task"));
  if (const Json* calls = json.find("tool_calls")) {
    for (const Json& call : calls->items) {
      const Json* function = call.find("function");
      const Json& from = function == nullptr ? call : *function;
      const Json* arguments = from.find("arguments");
      const bool is_object = arguments != nullptr && arguments->kind == Json::Kind::kObject;
      out.tool_calls.push_back({text_or(call.find("id")), text_or(from.find("name")),
                                is_object ? python_json(*arguments) : text_or(arguments)});
    }
  }
  out.tools = tools_from_json(json.find("tools"));
  const Json* format = json.find("response_format");
  if (format != nullptr && format->kind != Json::Kind::kNull)
    out.response_format = python_json(*format);
  const Json* without_eos = json.find("wo_eos");
  out.without_eos = without_eos != nullptr && without_eos->text == "true";
  return out;
}

// {"messages", "thinking_mode"?, "reasoning_effort"?, "drop_thinking"?}, or the list of messages
// alone.
inline ChatRequest request_from_json(const Json& json) {
  ChatRequest out;
  const Json* messages = json.kind == Json::Kind::kArray ? &json : json.find("messages");
  if (messages == nullptr) throw std::runtime_error("no messages");
  for (const Json& message : messages->items) out.messages.push_back(message_from_json(message));
  out.tools = tools_from_json(json.find("tools"));
  if (text_or(json.find("thinking_mode")) == "thinking")
    out.thinking.mode = ThinkingMode::kThinking;
  out.thinking.effort = text_or(json.find("reasoning_effort"));
  const Json* drop = json.find("drop_thinking");
  out.drop_thinking = drop == nullptr || drop->text != "false";
  return out;
}

}  // namespace nibble::text

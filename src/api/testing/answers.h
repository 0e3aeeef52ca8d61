// Reading the server's answers in tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api/json.h"

namespace nibble::api::testing {

inline JsonDocument parsed(const std::string& text) {
  Result<JsonDocument> document = JsonDocument::parse(text);
  if (!document) {
    ADD_FAILURE() << document.status().message << " in: " << text;
    document = JsonDocument::parse("{}");
  }
  return std::move(document).value();
}

// "choices.0.message.content" -> the value's decoded string, or its JSON text; "(absent)" when there is none.
inline std::string at(const Json& root, const std::string& path) {
  const Json* value = &root;
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string step = path.substr(begin, end - begin);
    if (value->is(Json::Kind::kArray)) {
      const std::size_t index = std::stoul(step);
      value = index < value->items.size() ? &value->items[index] : nullptr;
    } else {
      value = value->find(step);
    }
    if (!value) return "(absent)";
    begin = end + 1;
  }
  return std::string(value->is(Json::Kind::kString) ? value->string : value->raw);
}

inline std::string at(const std::string& json, const std::string& path) {
  const JsonDocument document = parsed(json);
  return at(document.root(), path);
}

// The data of each event; comments are skipped.
inline std::vector<std::string> sse_events(const std::string& body) {
  std::vector<std::string> events;
  std::size_t begin = 0;
  while (begin < body.size()) {
    const std::size_t end = body.find("\n\n", begin);
    EXPECT_NE(end, std::string::npos) << "a cut event: " << body.substr(begin);
    if (end == std::string::npos) break;
    const std::string event = body.substr(begin, end - begin);
    begin = end + 2;
    if (event.starts_with(":")) continue;
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    events.push_back(event.substr(6));
  }
  return events;
}

// A stream put together again, as a client does.
struct Joined {
  std::string role, reasoning, content, finish_reason;
  std::string tool_calls;  // "index id name arguments" a line
  std::string usage;       // JSON, of the chunk that has it
  std::string text;        // completions
  std::vector<std::string> logprobs;
  int chunks = 0;
  bool done = false;
};

inline Joined join_stream(const std::string& body) {
  Joined out;
  for (const std::string& event : sse_events(body)) {
    EXPECT_FALSE(out.done) << "after [DONE]: " << event;
    if (event == "[DONE]") {
      out.done = true;
      continue;
    }
    ++out.chunks;
    const JsonDocument document = parsed(event);
    const Json& root = document.root();
    const auto add = [&](std::string& to, const std::string& path) {
      const std::string value = at(root, path);
      if (value != "(absent)" && value != "null") to += value;
    };
    add(out.role, "choices.0.delta.role");
    add(out.reasoning, "choices.0.delta.reasoning_content");
    add(out.content, "choices.0.delta.content");
    add(out.finish_reason, "choices.0.finish_reason");
    add(out.text, "choices.0.text");
    add(out.usage, "usage");
    for (int i = 0; at(root, "choices.0.delta.tool_calls." + std::to_string(i)) != "(absent)";
         ++i) {
      const std::string call = "choices.0.delta.tool_calls." + std::to_string(i) + ".";
      out.tool_calls += at(root, call + "index") + " " + at(root, call + "function.name") + " " +
                        at(root, call + "function.arguments") + "\n";
    }
    for (int i = 0; at(root, "choices.0.logprobs.content." + std::to_string(i)) != "(absent)"; ++i)
      out.logprobs.push_back(at(root, "choices.0.logprobs.content." + std::to_string(i)));
  }
  return out;
}

}  // namespace nibble::api::testing

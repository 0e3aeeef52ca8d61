#include "bench/trace.h"

#include <fmt/format.h>

#include "api/json_writer.h"

namespace nibble::bench {
namespace {

constexpr int kTokenBytes = 4;
// Streams of random numbers, so that one option does not change what another one chose.
constexpr std::uint64_t kPrefixStream = 1, kConversationStream = 1000;

std::size_t nominal_bytes(int tokens) {
  return static_cast<std::size_t>(tokens) * kTokenBytes;
}

std::string message(std::string_view role, std::string_view content) {
  std::string out;
  api::JsonWriter json(out);
  json.begin_object().member("role", role).member("content", content).end_object();
  return out;
}

std::string tool_call(const std::string& id, std::string_view path) {
  std::string arguments, out;
  api::JsonWriter(arguments).begin_object().member("path", path).end_object();
  api::JsonWriter json(out);
  json.begin_object().member("role", "assistant").key("content").null();
  json.key("tool_calls").begin_array().begin_object();
  json.member("id", id).member("type", "function").key("function").begin_object();
  json.member("name", "read_file").member("arguments", arguments);
  json.end_object().end_object().end_array().end_object();
  return out;
}

std::string tool_result(const std::string& id, std::string_view content) {
  std::string out;
  api::JsonWriter json(out);
  json.begin_object().member("role", "tool").member("tool_call_id", id);
  json.member("content", content).end_object();
  return out;
}

std::vector<std::string> system_prompts(const TraceOptions& options, const TextSource& text) {
  std::vector<std::string> prompts;
  for (int i = 0; i < options.prefixes; ++i) {
    Random random(options.seed, kPrefixStream + static_cast<std::uint64_t>(i));
    prompts.push_back(
        message("system", fmt::format("You are assistant {}. ", i + 1) +
                              text.passage(random, nominal_bytes(options.prefix_tokens))));
  }
  return prompts;
}

Conversation single(std::vector<std::string> messages) {
  Conversation conversation;
  conversation.turns.push_back({messages.size(), 0.0});
  conversation.messages = std::move(messages);
  return conversation;
}

// After the task, a step of an agent is mostly a tool call and its result, now and then an answer and the next question.
Conversation agent(Random& random, const TraceOptions& options, const TextSource& text,
                   const std::string& system_prompt, int most_turns) {
  Conversation conversation;
  conversation.messages = {system_prompt, message("user", text.question(random))};
  conversation.turns.push_back({2, 0.0});
  const int turns = std::min(most_turns, random.between(options.turns.low, options.turns.high));
  for (int i = 1; i < turns; ++i) {
    if (random.below(4) > 0) {
      const std::string id = fmt::format("call_{}", i);
      const int length = random.between(options.prompt.low, options.prompt.high);
      conversation.messages.push_back(
          tool_call(id, fmt::format("notes/{}.txt", random.between(1, 99))));
      conversation.messages.push_back(tool_result(id, text.passage(random, nominal_bytes(length))));
    } else {
      conversation.messages.push_back(message("assistant", text.passage(random, 80)));
      conversation.messages.push_back(message("user", text.question(random)));
    }
    conversation.turns.push_back(
        {conversation.messages.size(), random.exponential(options.think_s)});
  }
  return conversation;
}

}  // namespace

std::string Conversation::messages_json(int turn) const {
  std::string out = "[";
  const std::size_t count = turns[static_cast<std::size_t>(turn)].messages;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out += ',';
    out += messages[i];
  }
  out += ']';
  return out;
}

std::vector<Conversation> make_trace(const TraceOptions& options, const TextSource& text) {
  std::vector<std::string> prompts;
  if (options.kind != TraceKind::kRandom) prompts = system_prompts(options, text);
  std::vector<Conversation> conversations;
  for (int left = options.requests; left > 0;) {
    Random random(options.seed, kConversationStream + conversations.size());
    const auto system_prompt = [&] { return prompts[random.below(prompts.size())]; };
    if (options.kind == TraceKind::kRandom) {
      const int length = random.between(options.prompt.low, options.prompt.high);
      const std::string passage = text.passage(random, nominal_bytes(length));
      conversations.push_back(single({message("user", passage + " " + text.question(random))}));
    } else if (options.kind == TraceKind::kSharedPrefix) {
      conversations.push_back(single({system_prompt(), message("user", text.question(random))}));
    } else {
      conversations.push_back(agent(random, options, text, system_prompt(), left));
    }
    left -= static_cast<int>(conversations.back().turns.size());
  }
  return conversations;
}

const char* trace_name(TraceKind kind) {
  switch (kind) {
    case TraceKind::kRandom:
      return "random";
    case TraceKind::kSharedPrefix:
      return "shared-prefix";
    case TraceKind::kAgent:
      return "agent";
  }
  return "";
}

std::size_t count_turns(const std::vector<Conversation>& conversations) {
  std::size_t turns = 0;
  for (const Conversation& conversation : conversations) turns += conversation.turns.size();
  return turns;
}

}  // namespace nibble::bench

// The requests of a run, made from a seed before the first one is sent: the same for every server they are sent to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/text_source.h"

namespace nibble::bench {

enum class TraceKind {
  kRandom,        // one message of its own text each
  kSharedPrefix,  // one of a few system prompts, then a question
  kAgent,  // conversations whose every request repeats the whole history: tool calls, their results, answers
};

// Lengths in nominal tokens of 4 bytes: what they are to the server, its usage says.
struct LengthRange {
  int low = 0;
  int high = 0;  // inclusive, at least low
};

struct TraceOptions {
  TraceKind kind = TraceKind::kRandom;
  std::uint64_t seed = 1;
  int requests = 100;
  LengthRange prompt{64, 256};  // random: the message; agent: what a tool gives back
  int prefixes = 4;             // shared-prefix, agent: different system prompts
  int prefix_tokens = 512;      // shared-prefix, agent: length of each
  LengthRange turns{4, 8};      // agent: requests of a conversation
  double think_s = 0.5;         // agent: mean pause before the next request (exponential)
};

struct Turn {
  std::size_t messages = 0;  // of its conversation: the first so many are sent
  double think_s = 0.0;      // to wait after the answer before; 0 for the first
};

// The assistant's messages in it are written beforehand, not what the server answered: else two servers, or two runs, would
// not be asked the same.
struct Conversation {
  std::vector<std::string> messages;  // JSON objects of chat completions
  std::vector<Turn> turns;

  // The JSON array that turn `turn` sends.
  std::string messages_json(int turn) const;
};

// Conversations with options.requests turns altogether; the last one is cut short where they do not come out even.
std::vector<Conversation> make_trace(const TraceOptions& options, const TextSource& text);

const char* trace_name(TraceKind kind);  // "random", "shared-prefix", "agent"

// Requests in a part of a trace.
std::size_t count_turns(const std::vector<Conversation>& conversations);

}  // namespace nibble::bench

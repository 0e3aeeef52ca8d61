// A request's messages as the turns that are rendered: tool results merged into user turns and put in order.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/status.h"
#include "text/chat_encoder.h"

namespace nibble::text {

// Thrown inside the encoder only; ChatEncoder::encode() turns it into its Result.
struct InvalidRequest {
  Status status;
};

[[noreturn]] void refuse(const std::string& param, const std::string& message);

// Refuses text that is not UTF-8.
void check_text(std::string_view text, const std::string& param);

std::string message_param(std::size_t index, std::string_view field);  // "messages[2].content"

// Content as text: parts joined by blank lines, parts that are no text named.
std::string content_text(const Message& message, std::size_t index);

// One message of the dialogue as it is rendered, and where it stood in the request.
struct Entry {
  const Message* message = nullptr;
  std::size_t index = 0;
};

struct Block {
  bool is_result = false;
  std::string text;
  std::string call_id;  // of a result
};

// A message after merging: neighbouring user messages and tool results have become blocks of one.
struct Turn {
  Role role = Role::kUser;
  Entry entry;                // for a merged user turn the first of them
  std::vector<Block> blocks;  // user
  std::string task;
};

// The request's messages; its own tools and response format are given to the first system message. `system` holds that
// changed message (or the one put in front) and must live as long as the entries.
std::vector<Entry> with_request_fields(const ChatRequest& request, Message& system);

// Merges. Then results stand in the order of the calls they answer, text blocks keep their places; unknown ids count as the
// first.
std::vector<Turn> make_turns(const std::vector<Entry>& entries);

bool is_user_like(Role role);  // user or developer

std::ptrdiff_t last_user(const std::vector<Turn>& turns);  // index of the last such turn, -1: none

}  // namespace nibble::text

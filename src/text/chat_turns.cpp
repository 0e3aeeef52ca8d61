#include "text/chat_turns.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "text/utf8.h"

namespace nibble::text {

void refuse(const std::string& param, const std::string& message) {
  throw InvalidRequest{{StatusCode::kInvalidArgument, param + ": " + message, param}};
}

void check_text(std::string_view text, const std::string& param) {
  if (const auto bad = first_invalid_utf8(text)) {
    refuse(param, fmt::format("invalid UTF-8 at byte {}", *bad));
  }
}

std::string message_param(std::size_t index, std::string_view field) {
  return fmt::format("messages[{}].{}", index, field);
}

std::string content_text(const Message& message, std::size_t index) {
  std::string out;
  for (std::size_t i = 0; i < message.content.size(); ++i) {
    const ContentPart& part = message.content[i];
    const std::string param = message_param(index, fmt::format("content[{}]", i));
    check_text(part.text, param);
    check_text(part.type, param);
    if (i > 0) out += "\n\n";
    out += part.type == "text" ? part.text : fmt::format("[Unsupported {}]", part.type);
  }
  return out;
}

std::vector<Entry> with_request_fields(const ChatRequest& request, Message& system) {
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < request.messages.size(); ++i) {
    entries.push_back({&request.messages[i], i});
  }
  if (request.tools.empty() && !request.response_format) return entries;
  const auto first = std::find_if(entries.begin(), entries.end(), [](const Entry& entry) {
    return entry.message->role == Role::kSystem;
  });
  if (first == entries.end()) {
    system.role = Role::kSystem;
    entries.insert(entries.begin(), {&system, 0});
  } else {
    system = *first->message;
    first->message = &system;
  }
  system.tools.insert(system.tools.end(), request.tools.begin(), request.tools.end());
  if (request.response_format) system.response_format = request.response_format;
  return entries;
}

namespace {

std::vector<Turn> merge(const std::vector<Entry>& entries) {
  std::vector<Turn> turns;
  for (const Entry& entry : entries) {
    const Message& message = *entry.message;
    const bool is_result = message.role == Role::kTool;
    if (!is_result && message.role != Role::kUser) {
      turns.push_back({message.role, entry, {}, message.task});
      continue;
    }
    Block block{is_result, content_text(message, entry.index), message.tool_call_id};
    const bool joins = !turns.empty() && turns.back().role == Role::kUser &&
                       (is_result || turns.back().task.empty());
    if (joins) {
      turns.back().blocks.push_back(std::move(block));
    } else {
      turns.push_back({Role::kUser, entry, {std::move(block)}, is_result ? "" : message.task});
    }
  }
  return turns;
}

void order_results(std::vector<Turn>& turns) {
  std::unordered_map<std::string, std::size_t> order;
  const auto place = [&](const Block& block) {
    const auto found = order.find(block.call_id);
    return found == order.end() ? std::size_t{0} : found->second;
  };
  for (Turn& turn : turns) {
    if (turn.role == Role::kAssistant && !turn.entry.message->tool_calls.empty()) {
      order.clear();
      for (std::size_t i = 0; i < turn.entry.message->tool_calls.size(); ++i) {
        const std::string& id = turn.entry.message->tool_calls[i].id;
        if (!id.empty()) order[id] = i;
      }
    } else if (turn.role == Role::kUser) {
      std::vector<Block> results;
      for (const Block& block : turn.blocks) {
        if (block.is_result) results.push_back(block);
      }
      std::stable_sort(results.begin(), results.end(),
                       [&](const Block& a, const Block& b) { return place(a) < place(b); });
      auto next = results.begin();
      for (Block& block : turn.blocks) {
        if (block.is_result) block = std::move(*next++);
      }
    }
  }
}

}  // namespace

std::vector<Turn> make_turns(const std::vector<Entry>& entries) {
  std::vector<Turn> turns = merge(entries);
  order_results(turns);
  return turns;
}

bool is_user_like(Role role) {
  return role == Role::kUser || role == Role::kDeveloper;
}

std::ptrdiff_t last_user(const std::vector<Turn>& turns) {
  for (auto i = static_cast<std::ptrdiff_t>(turns.size()) - 1; i >= 0; --i) {
    if (is_user_like(turns[static_cast<std::size_t>(i)].role)) return i;
  }
  return -1;
}

}  // namespace nibble::text

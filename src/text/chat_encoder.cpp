#include "text/chat_encoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "text/python_json.h"
#include "text/utf8.h"

namespace nibble::text {

namespace {

struct InvalidRequest {  // turned into the Result at encode()'s end
  Status status;
};

[[noreturn]] void refuse(const std::string& param, const std::string& message) {
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

Json read_json(std::string_view text, const std::string& param) {
  auto json = parse_json(text);
  if (!json) refuse(param, json.status().message);
  return std::move(json).value();
}

// Content as text: parts joined by blank lines, parts that are no text named.
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

// Ids with a run of plain text being collected: text between two control tokens is tokenised as
// one.
class Writer {
 public:
  explicit Writer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Text from the request: never a control token.
  void text(std::string_view text) { plain_ += text; }

  void control(TokenId id) {
    flush();
    ids_.push_back(id);
  }

  // Text from the checkpoint or from the grammar: control tokens spelled in it are meant.
  void literal(std::string_view text) {
    for (const Tokenizer::Part& part : tokenizer_.split_added(text)) {
      if (part.added) {
        control(*part.added);
      } else {
        plain_ += part.plain;
      }
    }
  }

  std::vector<TokenId> take() {
    flush();
    return std::move(ids_);
  }

 private:
  void flush() {
    if (plain_.empty()) return;
    const std::vector<TokenId> ids = tokenizer_.encode(plain_);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    plain_.clear();
  }

  const Tokenizer& tokenizer_;
  std::string plain_;
  std::vector<TokenId> ids_;
};

struct Block {
  bool is_result = false;
  std::string text;
  std::string call_id;  // of a result
};

// One message of the dialogue as it is rendered, and where it stood in the request.
struct Entry {
  const Message* message = nullptr;
  std::size_t index = 0;
};

// A message after merging: neighbouring user messages and tool results have become blocks of one.
struct Turn {
  Role role = Role::kUser;
  Entry entry;                // for a merged user turn the first of them
  std::vector<Block> blocks;  // user
  std::string task;
};

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

// Results stand in the order of the calls they answer, text blocks keep their places; unknown ids
// count as the first.
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

bool is_user_like(Role role) {
  return role == Role::kUser || role == Role::kDeveloper;
}

std::ptrdiff_t last_user(const std::vector<Turn>& turns) {
  for (auto i = static_cast<std::ptrdiff_t>(turns.size()) - 1; i >= 0; --i) {
    if (is_user_like(turns[static_cast<std::size_t>(i)].role)) return i;
  }
  return -1;
}

class Renderer {
 public:
  Renderer(const Tokenizer& tokenizer, const EncoderProfile& profile,
           const ChatEncoder::ControlIds& control, const Thinking& thinking)
      : profile_(profile), control_(control), tokenizer_(tokenizer), out_(tokenizer) {
    thinking_ = thinking.mode == ThinkingMode::kThinking;
    effort_ = thinking.effort;
  }

  std::vector<TokenId> render(const std::vector<Entry>& entries, bool drop_thinking) {
    std::vector<Turn> turns = merge(entries);
    order_results(turns);
    const bool has_tools = std::any_of(turns.begin(), turns.end(), [](const Turn& turn) {
      return !turn.entry.message->tools.empty();
    });
    dropping_ = thinking_ && drop_thinking && !has_tools;
    if (dropping_) {
      const std::ptrdiff_t user = last_user(turns);
      std::vector<Turn> kept;
      for (std::size_t i = 0; i < turns.size(); ++i) {
        if (static_cast<std::ptrdiff_t>(i) >= user || turns[i].role != Role::kDeveloper) {
          kept.push_back(std::move(turns[i]));
        }
      }
      turns = std::move(kept);
    }
    last_user_ = last_user(turns);
    out_.control(control_.bos);
    write_effort();
    for (std::size_t i = 0; i < turns.size(); ++i) {
      const Turn* before = i > 0 ? &turns[i - 1] : nullptr;
      write_turn(turns[i], static_cast<std::ptrdiff_t>(i), before);
      const bool ends = i + 1 == turns.size() || turns[i + 1].role == Role::kAssistant ||
                        turns[i + 1].role == Role::kLatestReminder;
      if (ends) write_transition(turns[i], static_cast<std::ptrdiff_t>(i));
    }
    return out_.take();
  }

 private:
  void write_effort() {
    if (!thinking_ || effort_.empty()) return;
    const std::vector<std::string> allowed = profile_.allowed_efforts();
    if (std::find(allowed.begin(), allowed.end(), effort_) == allowed.end()) {
      refuse("reasoning_effort", fmt::format("\"{}\" is not known to this model; allowed: {}",
                                             effort_, fmt::join(allowed, ", ")));
    }
    const auto found = profile_.effort_texts.find(effort_);
    if (found != profile_.effort_texts.end()) {
      out_.literal(found->second);
      return;
    }
    const bool has_no_text = effort_ == (profile_.kind == ProfileKind::kPreview ? "high" : "low");
    if (!has_no_text) {
      refuse("reasoning_effort",
             fmt::format("the checkpoint has no encoder text for \"{}\"", effort_));
    }
  }

  void write_turn(const Turn& turn, std::ptrdiff_t position, const Turn* before) {
    const Message& message = *turn.entry.message;
    const std::size_t index = turn.entry.index;
    switch (turn.role) {
      case Role::kSystem:
        out_.text(content_text(message, index));
        write_blocks(message);
        return;
      case Role::kDeveloper: {
        const std::string content = content_text(message, index);
        if (content.empty()) {
          refuse(message_param(index, "content"), "a developer message needs content");
        }
        out_.control(control_.user);
        out_.text(content);
        write_blocks(message);
        return;
      }
      case Role::kUser:
      case Role::kTool:
        out_.control(control_.user);
        for (std::size_t i = 0; i < turn.blocks.size(); ++i) {
          if (i > 0) out_.text("\n\n");
          const Block& block = turn.blocks[i];
          if (block.is_result) out_.text("<tool_result>");
          out_.text(block.text);
          if (block.is_result) out_.text("</tool_result>");
        }
        return;
      case Role::kLatestReminder:
        if (!control_.latest_reminder) {
          refuse(message_param(index, "role"), "this model has no token for a reminder");
        }
        out_.control(*control_.latest_reminder);
        out_.text(content_text(message, index));
        return;
      case Role::kAssistant:
        write_assistant(message, index, position, before);
        return;
    }
  }

  void write_assistant(const Message& message, std::size_t index, std::ptrdiff_t position,
                       const Turn* before) {
    const bool answers_task = before != nullptr && !before->task.empty();
    if (thinking_ && !answers_task && (!dropping_ || position > last_user_)) {
      check_text(message.reasoning_content, message_param(index, "reasoning_content"));
      out_.text(message.reasoning_content);
      out_.control(control_.think_end);
    }
    out_.text(content_text(message, index));
    if (!message.tool_calls.empty()) {
      out_.literal("\n\n<｜DSML｜tool_calls>\n");
      for (std::size_t i = 0; i < message.tool_calls.size(); ++i) {
        if (i > 0) out_.text("\n");
        write_call(message.tool_calls[i], message_param(index, fmt::format("tool_calls[{}]", i)));
      }
      out_.literal("\n</｜DSML｜tool_calls>");
    }
    if (!message.without_eos) out_.control(control_.eos);
  }

  void write_call(const ToolCall& call, const std::string& param) {
    check_text(call.name, param + ".name");
    out_.literal("<｜DSML｜invoke name=\"");
    out_.text(call.name);
    out_.text("\">\n");
    bool first = true;
    for (const JsonMember& member : arguments_of(call, param + ".arguments")) {
      if (!first) out_.text("\n");
      first = false;
      const bool is_string = member.value.kind == Json::Kind::kString;
      out_.literal("<｜DSML｜parameter name=\"");
      out_.text(member.key);
      out_.text(is_string ? "\" string=\"true\">" : "\" string=\"false\">");
      out_.text(is_string ? member.value.text : python_json(member.value));
      out_.literal("</｜DSML｜parameter>");
    }
    out_.literal("\n</｜DSML｜invoke>");
  }

  static std::vector<JsonMember> arguments_of(const ToolCall& call, const std::string& param) {
    if (call.arguments.empty()) return {};
    Json json = read_json(call.arguments, param);
    if (json.kind == Json::Kind::kNull) return {};
    if (json.kind == Json::Kind::kObject) return std::move(json.members);
    Json whole;
    whole.kind = Json::Kind::kString;
    whole.text = call.arguments;
    return {{"arguments", std::move(whole)}};
  }

  // Tools and response format, after a system or developer message's content.
  void write_blocks(const Message& message) {
    if (!message.tools.empty()) {
      if (profile_.tools_template.empty())
        refuse("tools", "the checkpoint has no encoder text for tools");
      std::string schemas;
      for (std::size_t i = 0; i < message.tools.size(); ++i) {
        if (i > 0) schemas += '\n';
        const Json json =
            read_json(message.tools[i].function_json, fmt::format("tools[{}].function", i));
        if (json.kind != Json::Kind::kObject) {
          refuse(fmt::format("tools[{}].function", i), "expected an object");
        }
        schemas += python_json(json);
      }
      out_.text("\n\n");
      write_template(profile_.tools_template, schemas);
    }
    if (message.response_format) {
      if (profile_.response_format_template.empty()) {
        refuse("response_format", "the checkpoint has no encoder text for a response format");
      }
      const Json json = read_json(*message.response_format, "response_format");
      out_.text("\n\n");
      write_template(profile_.response_format_template, python_json(json));
    }
  }

  // A text of the checkpoint with its placeholders filled in; `from_request` goes where schemas
  // belong.
  void write_template(std::string_view text, std::string_view from_request) {
    while (!text.empty()) {
      const std::size_t open = text.find('{');
      out_.literal(text.substr(0, open));
      if (open == std::string_view::npos) return;
      text.remove_prefix(open);
      const auto take = [&](std::string_view placeholder) {
        if (!text.starts_with(placeholder)) return false;
        text.remove_prefix(placeholder.size());
        return true;
      };
      if (take("{tool_schemas}") || take("{schema}")) {
        out_.text(from_request);
      } else if (take("{dsml_token}")) {
        out_.control(control_.dsml);
      } else if (take("{thinking_start_token}")) {
        out_.control(control_.think_start);
      } else if (take("{thinking_end_token}")) {
        out_.control(control_.think_end);
      } else {
        out_.text("{");
        text.remove_prefix(1);
      }
    }
  }

  void write_transition(const Turn& turn, std::ptrdiff_t position) {
    if (!turn.task.empty()) {
      const auto found = profile_.task_tokens.find(turn.task);
      const auto id =
          found == profile_.task_tokens.end() ? std::nullopt : tokenizer_.id_of(found->second);
      if (!id) {
        refuse(message_param(turn.entry.index, "task"),
               fmt::format("\"{}\" is not known to this model", turn.task));
      }
      if (turn.task == "action") {
        out_.control(control_.assistant);
        out_.control(thinking_ ? control_.think_start : control_.think_end);
      }
      out_.control(*id);
    } else if (is_user_like(turn.role)) {
      out_.control(control_.assistant);
      const bool opens = thinking_ && (!dropping_ || position >= last_user_);
      out_.control(opens ? control_.think_start : control_.think_end);
    }
  }

  const EncoderProfile& profile_;
  const ChatEncoder::ControlIds& control_;
  const Tokenizer& tokenizer_;
  Writer out_;
  bool thinking_ = false;
  std::string effort_;
  bool dropping_ = false;  // earlier turns lose their reasoning
  std::ptrdiff_t last_user_ = -1;
};

// The request's own tools and response format belong to its first system message; `system` holds
// the one they are added to.
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

}  // namespace

ChatEncoder::ChatEncoder(const Tokenizer& tokenizer, EncoderProfile profile)
    : tokenizer_(&tokenizer), profile_(std::move(profile)) {
  const auto need = [&](const char* token) {
    const auto id = tokenizer.id_of(token);
    if (!id) {
      throw CheckpointError(
          fmt::format("tokenizer.json: added_tokens: no \"{}\", which the {} chat encoder needs",
                      token, profile_name(profile_.kind)));
    }
    return *id;
  };
  control_.bos = need("<｜begin▁of▁sentence｜>");
  control_.eos = need("<｜end▁of▁sentence｜>");
  control_.user = need("<｜User｜>");
  control_.assistant = need("<｜Assistant｜>");
  control_.think_start = need("<think>");
  control_.think_end = need("</think>");
  control_.dsml = need("｜DSML｜");
  control_.latest_reminder = tokenizer.id_of("<｜latest_reminder｜>");
}

Result<std::vector<TokenId>> ChatEncoder::encode(const ChatRequest& request) const {
  if (request.messages.empty()) {
    return Status{StatusCode::kInvalidArgument, "messages: expected at least one", "messages"};
  }
  try {
    Message system;
    const std::vector<Entry> entries = with_request_fields(request, system);
    return Renderer(*tokenizer_, profile_, control_, request.thinking)
        .render(entries, request.drop_thinking);
  } catch (const InvalidRequest& invalid) {
    return invalid.status;
  }
}

}  // namespace nibble::text

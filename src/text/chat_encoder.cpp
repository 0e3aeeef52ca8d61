#include "text/chat_encoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "text/chat_turns.h"
#include "text/python_json.h"

namespace nibble::text {

namespace {

Json read_json(std::string_view text, const std::string& param) {
  auto json = parse_json(text);
  if (!json) refuse(param, json.status().message);
  return std::move(json).value();
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

class Renderer {
 public:
  Renderer(const Tokenizer& tokenizer, const EncoderProfile& profile,
           const ChatEncoder::ControlIds& control, const Thinking& thinking)
      : profile_(profile), control_(control), tokenizer_(tokenizer), out_(tokenizer) {
    thinking_ = thinking.mode == ThinkingMode::kThinking;
    effort_ = thinking.effort;
  }

  std::vector<TokenId> render(const std::vector<Entry>& entries, bool drop_thinking) {
    std::vector<Turn> turns = make_turns(entries);
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

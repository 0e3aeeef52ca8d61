#include "text/output_parser.h"

#include <algorithm>
#include <utility>

#include "text/dsml_tag.h"
#include "text/generated_call.h"
#include "text/python_json.h"
#include "text/utf8.h"

namespace nibble::text {

namespace {

constexpr std::size_t kMaxTagBytes = 4096;
constexpr std::size_t kMaxBlanks = 1024;  // held back after a block; more are given out as text

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}
bool is_blank(std::string_view text) {
  return std::all_of(text.begin(), text.end(), is_space);
}

// Takes a tag's beginning off the end of `text`: 0 when there is none, 1 for '<', 2 for '</'.
int take_tag_start(std::string& text) {
  const int length = text.ends_with("</") ? 2 : text.ends_with('<') ? 1 : 0;
  text.resize(text.size() - static_cast<std::size_t>(length));
  return length;
}

}  // namespace

void OutputDelta::append(OutputDelta&& next) {
  reasoning += next.reasoning;
  content += next.content;
  std::move(next.tool_calls.begin(), next.tool_calls.end(), std::back_inserter(tool_calls));
}

struct OutputParser::State {
  // Where the next byte belongs.
  enum class Place {
    kText,   // reasoning or content
    kBlock,  // inside tool_calls, between calls
    kCall,   // inside invoke, between parameters
    kValue,  // inside a parameter
    kTag,    // between a mark and its '>'
  };

  State(const ChatEncoder& encoder, const OutputParserOptions& options)
      : tokenizer(encoder.tokenizer()),
        control(encoder.control()),
        id_prefix(options.call_id_prefix),
        has_tools(!options.tools.empty()),
        in_reasoning(options.starts_in_reasoning) {
    for (const Tool& tool : options.tools) {
      const auto function = parse_json(tool.function_json);
      if (!function) continue;  // the encoder has refused it already
      ToolSchema schema(*function);
      std::string name = schema.name();
      schemas.emplace(std::move(name), std::move(schema));
    }
  }

  void push(TokenId id) {
    const bool is_switch = id == control.think_start || id == control.think_end;
    if (in_reasoning && !is_switch) ++reasoning_tokens;
    if (is_switch) {
      on_switch(id);
    } else if (id == control.dsml) {
      on_mark();
    } else if (!tokenizer.is_added(id)) {
      for (const char c : tokenizer.token_bytes(id)) on_byte(c);
    } else if (place == Place::kValue && !tokenizer.is_special(id)) {
      call.parameters.back().value += tokenizer.token_bytes(id);
    }
  }

  void finish() {
    if (place == Place::kTag) {
      // A tag cut by the end is markup, unless it could not have become one.
      if (may_become_dsml_tag(tag)) {
        place = tag_place;
        if (place == Place::kText) held.clear();
      } else {
        drop_tag();
      }
    }
    leave_call(false);
    leave_block();
    release_held();
    flush_channel();
  }

  // --- text
  // -------------------------------------------------------------------------------------------------------

  void emit(std::string_view bytes) {
    if (in_reasoning) {
      delta.reasoning += reasoning.push(bytes);
    } else {
      delta.content += content.push(bytes);
    }
  }

  // A character cut here will not be completed by what follows.
  void flush_channel() {
    delta.reasoning += reasoning.finish();
    delta.content += content.finish();
  }

  // Text that may belong to the start of a block: its blank line and '<' or '</'. After a block any
  // space may.
  bool may_start_block(std::string_view text) const {
    if (text.ends_with("</")) {
      text.remove_suffix(2);
    } else if (text.ends_with('<')) {
      text.remove_suffix(1);
    }
    if (after_block) return text.size() <= kMaxBlanks && is_blank(text);
    return text == "" || text == "\n" || text == "\n\n";
  }

  void on_text(char c) {
    if (!has_tools) {
      emit({&c, 1});
      return;
    }
    held += c;
    if (may_start_block(held)) return;
    after_block = false;
    std::size_t out = 0;
    while (!may_start_block(std::string_view(held).substr(out))) ++out;
    emit(std::string_view(held).substr(0, out));
    held.erase(0, out);
  }

  // What was held back is text after all; blanks after a block are dropped.
  void release_held() {
    if (!(after_block && is_blank(held))) emit(held);
    held.clear();
    after_block = false;
  }

  void on_byte(char c) {
    switch (place) {
      case Place::kText:
        on_text(c);
        return;
      case Place::kBlock:
      case Place::kCall:
        gap += c;
        return;
      case Place::kValue:
        call.parameters.back().value += c;
        return;
      case Place::kTag:
        if (c == '"') tag_in_quotes = !tag_in_quotes;
        if (c == '>' && !tag_in_quotes) {
          place = tag_place;
          on_tag(parse_dsml_tag(tag, tag_closes));
          return;
        }
        tag += c;
        if (tag.size() > kMaxTagBytes) drop_tag();
        return;
    }
  }

  void on_switch(TokenId id) {
    if (place == Place::kTag) drop_tag();
    if (place == Place::kValue) {  // files that speak of <think> are read and written by tools
      call.parameters.back().value += tokenizer.token_bytes(id);
      return;
    }
    leave_call(false);
    leave_block();
    release_held();
    flush_channel();
    in_reasoning = id == control.think_start;
  }

  // --- markup
  // -----------------------------------------------------------------------------------------------------

  // The DSML mark: with '<' or '</' in front it starts a tag.
  void on_mark() {
    if (!has_tools) {
      emit(tokenizer.token_bytes(control.dsml));
      return;
    }
    if (place == Place::kTag) drop_tag();
    std::string& before = place == Place::kText    ? held
                          : place == Place::kValue ? call.parameters.back().value
                                                   : gap;
    const int start = take_tag_start(before);
    if (start == 0) {  // a mark alone
      if (place == Place::kText) release_held();
      if (place == Place::kValue || place == Place::kCall) call.broken = true;
      return;
    }
    tag_place = place;
    tag_closes = start == 2;
    tag.clear();
    tag_in_quotes = false;
    place = Place::kTag;
  }

  // What was read as a tag is none: it stays as text, without the mark.
  void drop_tag() {
    place = tag_place;
    const std::string text = (tag_closes ? "</" : "<") + tag;
    stray(text);
  }

  // Text or an unknown tag where it does not belong.
  void stray(std::string_view text) {
    switch (place) {
      case Place::kText:
        release_held();
        emit(text);
        return;
      case Place::kBlock:
        gap += text;
        return;
      case Place::kCall:
        call.broken = true;
        gap += text;
        return;
      case Place::kValue:
        call.broken = true;
        call.parameters.back().value += text;
        return;
      case Place::kTag:
        return;
    }
  }

  // A complete tag; `place` is where it was found.
  void on_tag(const DsmlTag& found) {
    using Kind = DsmlTag::Kind;
    const bool in_call = place == Place::kCall || place == Place::kValue;
    if (place == Place::kValue) {
      if (found.kind == Kind::kParameter && found.closes) {
        place = Place::kCall;
        return;
      }
      if (found.kind == Kind::kOther) {
        stray((tag_closes ? "</" : "<") + tag + ">");
        return;
      }
      call.broken = true;  // the value's closing tag is missing
      place = Place::kCall;
    }
    if (found.kind == Kind::kInvoke && !found.closes) {
      leave_call(false);
      start_call(found.name);
    } else if (found.kind == Kind::kInvoke && in_call) {
      leave_call(true);
    } else if (found.kind == Kind::kParameter && !found.closes && in_call) {
      take_gap();
      call.parameters.push_back({found.name, found.is_string, ""});
      place = Place::kValue;
    } else if (found.kind == Kind::kToolCalls && !found.closes && !in_call) {
      if (place == Place::kText) enter_markup();
      in_block = true;
      place = Place::kBlock;
    } else if (found.kind == Kind::kToolCalls && found.closes) {
      leave_call(false);
      leave_block();
    } else if (found.closes && found.kind != Kind::kOther && !in_call) {
      // a closing tag of the grammar with nothing to close
    } else {
      stray((tag_closes ? "</" : "<") + tag + ">");
    }
  }

  // From text into markup: the blank line held back belongs to it.
  void enter_markup() {
    held.clear();
    after_block = false;
    flush_channel();
  }

  void start_call(const std::string& name) {
    if (place == Place::kText) enter_markup();
    emit_gap();
    call = GeneratedCall{};
    call.name = name;
    place = Place::kCall;
  }

  // Inside a call only blanks may stand between tags.
  void take_gap() {
    if (!is_blank(gap)) {
      call.stray += gap;
      call.broken = true;
    }
    gap.clear();
  }

  // Between calls other text is tolerated and given out.
  void emit_gap() {
    if (!is_blank(gap)) {
      emit(gap);
      flush_channel();
    }
    gap.clear();
  }

  // Ends the call, if one is open; `closed`: by its own tag.
  void leave_call(bool closed) {
    if (place != Place::kCall && place != Place::kValue) return;
    take_gap();
    const auto arguments = call.broken || !closed ? std::nullopt : arguments_json(call, schemas);
    if (arguments) {
      ParsedToolCall done;
      done.index = tool_calls++;
      done.id = id_prefix + std::to_string(done.index);
      done.name = lossy_utf8(call.name);
      done.arguments = *arguments;
      delta.tool_calls.push_back(std::move(done));
    } else {
      ++malformed_calls;
      emit(as_text(call, closed));
      flush_channel();
    }
    call = GeneratedCall{};
    place = in_block ? Place::kBlock : Place::kText;
    after_block = place == Place::kText;
  }

  // Ends the tool_calls block, if one is open.
  void leave_block() {
    if (place != Place::kBlock) return;
    emit_gap();
    in_block = false;
    place = Place::kText;
    after_block = true;
  }

  const Tokenizer& tokenizer;
  const ChatEncoder::ControlIds control;
  const std::string id_prefix;
  const bool has_tools;
  Schemas schemas;

  OutputDelta delta;  // since the last take
  Utf8Assembler reasoning;
  Utf8Assembler content;
  bool in_reasoning;
  Place place = Place::kText;
  bool in_block = false;     // inside tool_calls tags (a call may also stand alone)
  bool after_block = false;  // only blanks since the last block or call
  std::string held;          // kText: see may_start_block
  std::string gap;           // kBlock, kCall: bytes since the last tag
  GeneratedCall call;        // kCall, kValue: the last parameter is the open one

  Place tag_place = Place::kText;  // where the tag being read stands
  bool tag_closes = false;
  bool tag_in_quotes = false;
  std::string tag;  // since the mark

  int tool_calls = 0;
  int malformed_calls = 0;
  int reasoning_tokens = 0;
};

OutputParser::OutputParser(const ChatEncoder& encoder, const OutputParserOptions& options)
    : state_(std::make_unique<State>(encoder, options)) {}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

OutputDelta OutputParser::push(TokenId id) {
  state_->push(id);
  return std::exchange(state_->delta, {});
}

OutputDelta OutputParser::push(std::span<const TokenId> ids) {
  for (const TokenId id : ids) state_->push(id);
  return std::exchange(state_->delta, {});
}

OutputDelta OutputParser::finish() {
  state_->finish();
  return std::exchange(state_->delta, {});
}

int OutputParser::tool_calls() const {
  return state_->tool_calls;
}
int OutputParser::malformed_calls() const {
  return state_->malformed_calls;
}
int OutputParser::reasoning_tokens() const {
  return state_->reasoning_tokens;
}

}  // namespace nibble::text

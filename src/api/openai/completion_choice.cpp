#include "api/openai/completion_choice.h"

#include <algorithm>
#include <charconv>
#include <unordered_set>

#include "api/openai/token_text.h"

namespace nibble::api::openai {
namespace {

std::size_t count_characters(std::string_view utf8) {
  return static_cast<std::size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

void separate(std::string& list) {
  if (!list.empty()) list += ',';
}

}  // namespace

CompletionChoice::CompletionChoice(const text::Tokenizer& tokenizer, const CommonOptions& options,
                                   bool echo, const std::vector<TokenId>& prompt,
                                   std::function<void()> changed)
    : tokenizer_(tokenizer),
      options_(options),
      changed_(std::move(changed)),
      prompt_awaited_(echo && options.sampling.logprobs >= 0),
      stop_(options.stop),
      prompt_tokens_(static_cast<int>(prompt.size())) {
  if (!echo || prompt_awaited_) return;
  for (const TokenId id : prompt) show(assembler_.push(tokenizer_.token_bytes(id)));
}

void CompletionChoice::show(std::string piece) {
  characters_ += count_characters(piece);
  text_ += piece;
}

void CompletionChoice::on_event(Event&& event) {
  cached_tokens_ = event.usage.cached_tokens;
  if (prompt_awaited_ && !event.prompt.empty()) add_prompt(event.prompt);
  for (const GeneratedToken& token : event.tokens) {
    add_token(token);
    if (stop_.matched()) break;
  }
  if (stop_.matched()) {
    generation_.stop();
    end("stop");
  } else if (event.finished) {
    finish(event);
  }
  changed_();
}

void CompletionChoice::add_prompt(const std::vector<GeneratedToken>& tokens) {
  prompt_awaited_ = false;
  for (const GeneratedToken& token : tokens) {
    add_logprob(token);
    show(assembler_.push(tokenizer_.token_bytes(token.token)));
  }
}

void CompletionChoice::add_token(const GeneratedToken& token) {
  ++completion_tokens_;
  if (options_.sampling.logprobs >= 0) add_logprob(token);
  // Special tokens are no text, as in every server of this interface; the lists above name them.
  if (tokenizer_.is_special(token.token)) return;
  const std::string piece = assembler_.push(tokenizer_.token_bytes(token.token));
  characters_ += count_characters(piece);
  text_ += stop_.push(piece);
}

// The own token stands in the object beside the best ones, whether it is among them or not.
void CompletionChoice::add_logprob(const GeneratedToken& token) {
  separate(lists_.tokens);
  separate(lists_.logprobs);
  separate(lists_.top);
  separate(lists_.offsets);
  const auto text_of = [&](TokenId id) {
    return token_text(tokenizer_, id, options_.tokens_as_ids, "bytes:");
  };
  append_json_string(lists_.tokens, text_of(token.token));
  JsonWriter(lists_.offsets).number(static_cast<std::int64_t>(characters_));
  JsonWriter own(lists_.logprobs);
  JsonWriter top(lists_.top);
  if (!token.logprob) {  // the first token of a prompt follows nothing
    own.null();
    top.null();
    return;
  }
  own.number(printable_logprob(*token.logprob));
  std::unordered_set<std::string>
      keys;  // two tokens of one text would be one key twice: the likelier stays
  top.begin_object();
  const auto entry = [&](TokenId id, float logprob) {
    std::string key = text_of(id);
    if (!keys.insert(key).second) return;
    top.key(key).number(printable_logprob(logprob));
  };
  for (const TokenLogprob& other : token.top) entry(other.token, other.logprob);
  entry(token.token, *token.logprob);
  top.end_object();
}

void CompletionChoice::finish(const Event& event) {
  if (*event.finished == FinishReason::kError) {
    error_ = api_error(event.error);
  } else if (*event.finished == FinishReason::kCancelled) {
    error_ = api_error({StatusCode::kUnavailable, "the server is stopping", ""});
  } else {
    text_ += stop_.push(assembler_.finish());
    text_ += stop_.flush();
    completion_tokens_ = event.usage.completion_tokens;
  }
  end(*event.finished == FinishReason::kLength ? "length" : "stop");
}

void CompletionChoice::end(const char* reason) {
  finish_reason_ = reason;
  finished_ = true;
}

void CompletionChoice::take(JsonWriter& json) {
  json.member("text", text_).key("logprobs");
  if (options_.sampling.logprobs < 0) {
    json.null();
  } else {
    json.begin_object();
    json.key("text_offset").raw("[" + lists_.offsets + "]");
    json.key("token_logprobs").raw("[" + lists_.logprobs + "]");
    json.key("tokens").raw("[" + lists_.tokens + "]");
    json.key("top_logprobs").raw("[" + lists_.top + "]");
    json.end_object();
  }
  json.key("finish_reason");
  finished_ ? json.string(finish_reason_) : json.null();
  text_.clear();
  lists_ = {};
  end_taken_ = finished_;
}

}  // namespace nibble::api::openai

#include "api/openai/completion_choice.h"

#include <algorithm>
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

CompletionChoice::CompletionChoice(int index, const text::Tokenizer& tokenizer,
                                   const CommonOptions& options, bool echo,
                                   const std::vector<TokenId>& prompt,
                                   std::function<void()> changed)
    : Choice(index, std::move(changed)),
      tokenizer_(tokenizer),
      options_(options),
      prompt_awaited_(echo && options.sampling.logprobs >= 0),
      stop_(options.stop) {
  if (!echo || prompt_awaited_) return;
  for (const TokenId id : prompt) show(assembler_.push(tokenizer_.token_bytes(id)));
}

void CompletionChoice::show(std::string piece) {
  characters_ += count_characters(piece);
  text_ += piece;
}

void CompletionChoice::add_prompt(const std::vector<GeneratedToken>& tokens) {
  if (!prompt_awaited_) return;
  prompt_awaited_ = false;
  for (const GeneratedToken& token : tokens) {
    add_logprob(token);
    show(assembler_.push(tokenizer_.token_bytes(token.token)));
  }
}

bool CompletionChoice::add_token(const GeneratedToken& token) {
  if (options_.sampling.logprobs >= 0) add_logprob(token);
  // Special tokens are no text, as in every server of this interface; the lists above name them.
  if (tokenizer_.is_special(token.token)) return false;
  const std::string piece = assembler_.push(tokenizer_.token_bytes(token.token));
  characters_ += count_characters(piece);
  text_ += stop_.push(piece);
  return stop_.matched();
}

bool CompletionChoice::flush() {
  text_ += stop_.push(assembler_.finish());
  text_ += stop_.flush();
  return stop_.matched();
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

void CompletionChoice::take_chunks(std::vector<std::string>& objects) {
  const bool news = !text_.empty() || !lists_.tokens.empty() || (finished() && !end_taken_);
  if (!news) return;
  JsonWriter json(objects.emplace_back());
  write_whole(json);
  text_.clear();
  lists_ = {};
  end_taken_ = finished();
}

// finish_reason is null before the end.
void CompletionChoice::write_whole(JsonWriter& json) {
  json.begin_object().member("index", index()).member("text", text_).key("logprobs");
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
  finished() ? json.string(finish_reason()) : json.null();
  json.end_object();
}

}  // namespace nibble::api::openai

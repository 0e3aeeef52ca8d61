#include "audit/template_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

namespace nibble::audit {
namespace {

constexpr int kMaxEndlessStrings = 64;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Bytes of white space at `at`, as Python's \s sees it: a raw block may be opened with a no-break space.
std::size_t space_at(std::string_view text, std::size_t at) {
  constexpr std::array<std::string_view, 19> kWide = {
      "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81",
      "\xE2\x80\x82", "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86",
      "\xE2\x80\x87", "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8",
      "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"};
  if (at >= text.size()) return 0;
  const char c = text[at];
  if (c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F)) return 1;
  if (static_cast<unsigned char>(c) < 0x80) return 0;
  for (const std::string_view wide : kWide) {
    if (text.substr(at).starts_with(wide)) return wide.size();
  }
  return 0;
}

std::size_t skip_space(std::string_view text, std::size_t at) {
  while (const std::size_t bytes = space_at(text, at)) at += bytes;
  return at;
}

// Past "{% WORD %}" at `at`, with the signs Jinja allows there; nothing when it is something else.
std::optional<std::size_t> word_tag(std::string_view text, std::size_t at, std::string_view word,
                                    std::string_view end_signs) {
  if (!text.substr(at).starts_with("{%")) return std::nullopt;
  at += 2;
  if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
  at = skip_space(text, at);
  if (!text.substr(at).starts_with(word)) return std::nullopt;
  at = skip_space(text, at + word.size());
  if (at < text.size() && end_signs.find(text[at]) != std::string_view::npos) ++at;
  if (!text.substr(at).starts_with("%}")) return std::nullopt;
  return at + 2;
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  LexedTemplate run() {
    while (at_ < text_.size()) {
      const std::size_t tag = next_tag(at_);
      if (tag > at_) push(TokenKind::kText, std::string(text_.substr(at_, tag - at_)), at_);
      at_ = tag;
      if (at_ == text_.size()) break;
      if (text_[at_ + 1] == '#') {
        comment();
      } else if (const auto raw = word_tag(text_, at_, "raw", "-")) {
        raw_block(*raw);
      } else {
        at_ = read_tag(at_, text_.size());
      }
    }
    // After the others: joining their strings must not be disturbed.
    for (std::size_t i = 0; i < hidden_.size(); ++i)
      read_hidden(hidden_[i].first, hidden_[i].second);
    return std::move(lexed_);
  }

 private:
  void push(TokenKind kind, std::string text, std::size_t at, bool spelled = false) {
    // Tokens come almost in order, so lines are counted as they pass.
    if (at < line_at_) {
      line_ = 1;
      line_at_ = 0;
    }
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(line_at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    line_at_ = at;
    lexed_.tokens.push_back({kind, std::move(text), line_, spelled});
  }

  void broken(std::string problem) {
    if (lexed_.problem.empty()) lexed_.problem = std::move(problem);
  }

  std::size_t next_tag(std::size_t from) const {
    for (std::size_t brace = text_.find('{', from); brace != std::string_view::npos;
         brace = text_.find('{', brace + 1)) {
      if (brace + 1 < text_.size() &&
          (text_[brace + 1] == '{' || text_[brace + 1] == '%' || text_[brace + 1] == '#'))
        return brace;
    }
    return text_.size();
  }

  void comment() {
    const std::size_t end = text_.find("#}", at_ + 2);
    if (end == std::string_view::npos) broken("a comment without end");
    hidden_.emplace_back(at_ + 2, std::min(end, text_.size()));
    at_ = end == std::string_view::npos ? text_.size() : end + 2;
  }

  void raw_block(std::size_t begin) {
    for (std::size_t at = text_.find("{%", begin); at != std::string_view::npos;
         at = text_.find("{%", at + 1)) {
      if (const auto after = word_tag(text_, at, "endraw", "-+")) {
        hidden_.emplace_back(begin, at);
        at_ = *after;
        return;
      }
    }
    broken("a raw block without end");
    hidden_.emplace_back(begin, text_.size());
    at_ = text_.size();
  }

  // Tags alone, without comments and raw blocks, in a part of the text that was skipped.
  void read_hidden(std::size_t begin, std::size_t end) {
    in_hidden_ = true;
    for (std::size_t at = begin; at < end;) {
      const std::size_t tag = next_tag(at);
      if (tag >= end) break;
      at = text_[tag + 1] == '#' ? tag + 2 : read_tag(tag, end);
    }
    in_hidden_ = false;
  }

  // Reads the tag at `at`, at most to `end`; returns the place after it.
  std::size_t read_tag(std::size_t at, std::size_t end) {
    const std::string_view text = text_.substr(0, end);
    const bool block = text[at + 1] == '%';
    const std::string_view closing = block ? "%}" : "}}";
    push(TokenKind::kOpen, std::string(text.substr(at, 2)), at);
    at += 2;
    if (at < end && (text[at] == '-' || text[at] == '+')) ++at;
    int depth = 0;
    while (at < end) {
      if (const std::size_t space = space_at(text, at)) {
        at += space;
        continue;
      }
      if (depth == 0) {
        const bool sign = text[at] == '-' || (block && text[at] == '+');
        if (text.substr(at + (sign ? 1 : 0)).starts_with(closing)) {
          at += (sign ? 1 : 0) + 2;
          push(TokenKind::kClose, std::string(closing), at - 2);
          return at;
        }
      }
      at = read_token(text, at, depth);
    }
    if (!in_hidden_) broken("a tag without end");
    push(TokenKind::kClose, std::string(closing), std::min(at, text_.size()));
    return end;
  }

  std::size_t read_token(std::string_view text, std::size_t at, int& depth) {
    const char c = text[at];
    if (c == '\'' || c == '"') return read_string(text, at);
    if (is_word(c)) {
      std::size_t end = at;
      while (end < text.size() && is_word(text[end]) && space_at(text, end) == 0) ++end;
      push(is_digit(c) ? TokenKind::kNumber : TokenKind::kName,
           std::string(text.substr(at, end - at)), at);
      return end;
    }
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') depth = std::max(0, depth - 1);
    const std::string_view pair = text.substr(at, 2);
    const bool two = pair == "**" || pair == "//" || pair == "==" || pair == "!=" || pair == "<=" ||
                     pair == ">=";
    if (!two && std::string_view("+-*/%~[]{}().,:;|<>=").find(c) == std::string_view::npos &&
        !in_hidden_)
      broken(fmt::format("byte 0x{:02x} in a tag", static_cast<unsigned char>(c)));
    push(TokenKind::kOperator, std::string(text.substr(at, two ? 2 : 1)), at);
    return at + (two ? 2 : 1);
  }

  std::size_t read_string(std::string_view text, std::size_t at) {
    const char quote = text[at];
    std::size_t end = at + 1;
    while (end < text.size() && text[end] != quote) end += text[end] == '\\' ? 2 : 1;
    if (end >= text.size()) {
      // Not a string then. Going on after the quote looks at everything that follows; but each such quote costs a search to
      // the end, and a template with one is refused by Jinja anyway.
      if (!in_hidden_) broken("a string without end");
      return ++endless_strings_ > kMaxEndlessStrings ? text.size() : at + 1;
    }
    bool spelled = false;
    const std::string_view inside = text.substr(at + 1, end - at - 1);
    push(TokenKind::kString, decode(inside, spelled), at, spelled);
    lexed_.tokens.back().spelled = spelled;
    if (!in_hidden_ && inside.find('{') != std::string_view::npos)
      hidden_.emplace_back(at + 1, end);
    return end + 1;
  }

  // Python's escapes; `spelled` when one of them stands for a character that needs none.
  static std::string decode(std::string_view inside, bool& spelled) {
    std::string out;
    for (std::size_t i = 0; i < inside.size(); ++i) {
      if (inside[i] != '\\' || i + 1 == inside.size()) {
        out += inside[i];
        continue;
      }
      const char kind = inside[++i];
      std::uint32_t value = 0;
      if (kind == 'x' || kind == 'u' || kind == 'U') {
        const std::size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : 8;
        for (std::size_t d = 0;
             d < digits && i + 1 < inside.size() && hex_value(inside[i + 1]) >= 0; ++d)
          value = value << 4 | static_cast<std::uint32_t>(hex_value(inside[++i]));
      } else if (kind >= '0' && kind <= '7') {
        value = static_cast<std::uint32_t>(kind - '0');
        for (int d = 0;
             d < 2 && i + 1 < inside.size() && inside[i + 1] >= '0' && inside[i + 1] <= '7'; ++d)
          value = value << 3 | static_cast<std::uint32_t>(inside[++i] - '0');
      } else if (kind == 'N') {
        spelled = true;  // \N{LOW LINE}: no template of a chat spells characters by name
        continue;
      } else if (kind == '\n') {
        continue;
      } else {
        constexpr std::string_view kLetters = "abfnrtv";
        constexpr std::string_view kValues = "\a\b\f\n\r\t\v";
        const std::size_t letter = kLetters.find(kind);
        if (letter != std::string_view::npos) {
          out += kValues[letter];
        } else {
          if (kind != '\\' && kind != '\'' && kind != '"') out += '\\';
          out += kind;
        }
        continue;
      }
      if (value < 0x80 && is_word(static_cast<char>(value))) spelled = true;
      out += value < 0x80 ? static_cast<char>(value) : '?';  // no ASCII word holds the others
    }
    return out;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool in_hidden_ = false;
  int endless_strings_ = 0;
  int line_ = 1;
  std::size_t line_at_ = 0;
  std::vector<std::pair<std::size_t, std::size_t>> hidden_;
  LexedTemplate lexed_;
};

}  // namespace

LexedTemplate lex_template(std::string_view text) {
  return Lexer(text).run();
}

}  // namespace nibble::audit

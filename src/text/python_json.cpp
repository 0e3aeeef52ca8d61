#include "text/python_json.h"

#include <fmt/format.h>

#include <optional>
#include <unordered_map>

#include "text/utf8.h"

namespace nibble::text {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Json> parse() {
    if (const auto bad = first_invalid_utf8(text_)) return error_at(*bad, "invalid UTF-8");
    Json value;
    skip_space();
    if (!read_value(value, 0)) return error_at(at_, problem_);
    skip_space();
    if (at_ != text_.size()) return error_at(at_, "text after the value");
    return value;
  }

 private:
  static Status error_at(std::size_t at, std::string_view problem) {
    return {StatusCode::kInvalidArgument, fmt::format("not valid JSON at byte {}: {}", at, problem),
            ""};
  }

  bool fail(const char* problem) {
    problem_ = problem;
    return false;
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  bool read_value(Json& value, int depth) {
    switch (peek()) {
      case '{':
        return read_object(value, depth);
      case '[':
        return read_array(value, depth);
      case '"':
        value.kind = Json::Kind::kString;
        return read_string(value.text);
      case 't':
        value.kind = Json::Kind::kBool;
        return read_word("true", value.text);
      case 'f':
        value.kind = Json::Kind::kBool;
        return read_word("false", value.text);
      case 'n': {
        std::string word;
        value.kind = Json::Kind::kNull;
        return read_word("null", word);
      }
      default:
        value.kind = Json::Kind::kNumber;
        return read_number(value.text);
    }
  }

  bool read_word(std::string_view word, std::string& out) {
    if (text_.substr(at_, word.size()) != word) return fail("expected a value");
    at_ += word.size();
    out = word;
    return true;
  }

  bool read_digits() {
    const std::size_t start = at_;
    while (is_digit(peek())) ++at_;
    return at_ > start;
  }

  bool read_number(std::string& out) {
    const std::size_t start = at_;
    take('-');
    if (!is_digit(peek())) return fail("expected a value");
    if (!take('0')) read_digits();
    if (take('.') && !read_digits()) return fail("expected a digit");
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      if (!read_digits()) return fail("expected a digit");
    }
    out = text_.substr(start, at_ - start);
    return true;
  }

  bool read_string(std::string& out) {
    ++at_;  // the quote
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return true;
      }
      if (static_cast<unsigned char>(c) < 0x20) return fail("control character in a string");
      if (c == '\\') {
        if (!read_escape(out)) return false;
      } else {
        out += c;
        ++at_;
      }
    }
    return fail("unterminated string");
  }

  bool read_escape(std::string& out) {
    ++at_;  // the backslash
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
    const std::size_t simple = kNames.find(peek());
    if (simple != std::string_view::npos && at_ < text_.size()) {
      out += kValues[simple];
      ++at_;
      return true;
    }
    if (!take('u')) return fail("unknown escape");
    const auto first = read_hex();
    if (!first) return fail("expected four hex digits");
    char32_t c = *first;
    if (c >= 0xDC00 && c < 0xE000) return fail("lone surrogate escape");
    if (c >= 0xD800 && c < 0xDC00) {
      if (!take('\\') || !take('u')) return fail("lone surrogate escape");
      const auto second = read_hex();
      if (!second || *second < 0xDC00 || *second >= 0xE000) return fail("lone surrogate escape");
      c = 0x10000 + ((c - 0xD800) << 10) + (*second - 0xDC00);
    }
    append_code_point(out, c);
    return true;
  }

  std::optional<char32_t> read_hex() {
    char32_t value = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = peek();
      char32_t digit = 0;
      if (is_digit(c)) {
        digit = static_cast<char32_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        digit = static_cast<char32_t>(c - 'a' + 10);
      } else if (c >= 'A' && c <= 'F') {
        digit = static_cast<char32_t>(c - 'A' + 10);
      } else {
        return std::nullopt;
      }
      value = value << 4 | digit;
      ++at_;
    }
    return value;
  }

  bool read_array(Json& value, int depth) {
    value.kind = Json::Kind::kArray;
    if (depth == kMaxJsonDepth) return fail("nested too deep");
    ++at_;
    skip_space();
    if (take(']')) return true;
    while (true) {
      value.items.emplace_back();
      if (!read_value(value.items.back(), depth + 1)) return false;
      skip_space();
      if (take(']')) return true;
      if (!take(',')) return fail("expected ',' or ']'");
      skip_space();
    }
  }

  bool read_object(Json& value, int depth) {
    value.kind = Json::Kind::kObject;
    if (depth == kMaxJsonDepth) return fail("nested too deep");
    ++at_;
    skip_space();
    if (take('}')) return true;
    std::unordered_map<std::string, std::size_t> places;
    while (true) {
      std::string key;
      if (peek() != '"') return fail("expected a key in quotes");
      if (!read_string(key)) return false;
      skip_space();
      if (!take(':')) return fail("expected ':'");
      skip_space();
      Json member;
      if (!read_value(member, depth + 1)) return false;
      const auto [place, is_new] = places.emplace(key, value.members.size());
      if (is_new) {
        value.members.push_back({std::move(key), std::move(member)});
      } else {
        value.members[place->second].value = std::move(member);
      }
      skip_space();
      if (take('}')) return true;
      if (!take(',')) return fail("expected ',' or '}'");
      skip_space();
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  const char* problem_ = "";
};

void append_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

void append_value(std::string& out, const Json& value) {
  switch (value.kind) {
    case Json::Kind::kNull:
      out += "null";
      return;
    case Json::Kind::kBool:
    case Json::Kind::kNumber:
      out += value.text;
      return;
    case Json::Kind::kString:
      append_string(out, value.text);
      return;
    case Json::Kind::kArray:
      out += '[';
      for (std::size_t i = 0; i < value.items.size(); ++i) {
        if (i > 0) out += ", ";
        append_value(out, value.items[i]);
      }
      out += ']';
      return;
    case Json::Kind::kObject:
      out += '{';
      for (std::size_t i = 0; i < value.members.size(); ++i) {
        if (i > 0) out += ", ";
        append_string(out, value.members[i].key);
        out += ": ";
        append_value(out, value.members[i].value);
      }
      out += '}';
      return;
  }
}

}  // namespace

const Json* Json::find(std::string_view key) const {
  for (const JsonMember& member : members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

Result<Json> parse_json(std::string_view text) {
  return Parser(text).parse();
}

std::string python_json(const Json& value) {
  std::string out;
  append_value(out, value);
  return out;
}

std::string python_json_string(std::string_view utf8) {
  std::string out;
  append_string(out, utf8);
  return out;
}

}  // namespace nibble::text

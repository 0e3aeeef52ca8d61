#include "text/python_literals.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "text/utf8.h"

namespace nibble::text {

namespace {

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_name_part(char c) {
  return is_name_start(c) || (c >= '0' && c <= '9');
}

// Python reads CR LF and CR as LF, in literals too.
std::string with_unix_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out += '\n';
    }
  }
  return out;
}

struct Unreadable {
  const char* problem;
};

class Scanner {
 public:
  explicit Scanner(std::string_view source) : source_(source) {}

  void scan(PythonLiterals& out) {
    while (!at_end()) {
      // Here a line starts; a name in its first column starts a module-level statement.
      const std::size_t start = at_;
      const std::string name = read_name();
      if (peek() == '"' || peek() == '\'') {
        at_ = start;  // it was a string's prefix
      } else if (!name.empty()) {
        read_statement(name, out);
      }
      finish_statement();
    }
  }

  std::size_t line() const {
    return 1 + static_cast<std::size_t>(std::count(
                   source_.begin(), source_.begin() + static_cast<std::ptrdiff_t>(at_), '\n'));
  }

 private:
  struct StringToken {
    std::string value;
    bool usable = false;  // no bytes, no f-string, no escape that has no UTF-8
  };

  bool at_end() const { return at_ >= source_.size(); }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }

  std::string read_name() {
    const std::size_t start = at_;
    if (!is_name_start(peek())) return "";
    while (is_name_part(peek())) ++at_;
    return std::string(source_.substr(start, at_ - start));
  }

  // Blanks, comments and continuation lines; line ends too when `lines` is set (inside brackets).
  void skip_space(bool lines) {
    while (!at_end()) {
      const char c = peek();
      if (c == ' ' || c == '\t' || c == '\f' || (lines && c == '\n')) {
        ++at_;
      } else if (c == '\\' && peek(1) == '\n') {
        at_ += 2;
      } else if (c == '#') {
        while (!at_end() && peek() != '\n') ++at_;
      } else {
        return;
      }
    }
  }

  // After a name at the start of a line.
  void read_statement(const std::string& name, PythonLiterals& out) {
    const std::size_t start = at_;
    skip_space(false);
    if (peek() == ':' && !skip_annotation()) {
      at_ = start;
      return;
    }
    const bool assigns = peek() == '=' && peek(1) != '=';
    const bool changes = std::string_view("+-*/%&|^@<>").find(peek()) != std::string_view::npos &&
                         source_.substr(at_, 4).find('=') != std::string_view::npos;
    if (!assigns && !changes) return;
    out.strings.erase(name);
    out.dicts.erase(name);
    if (!assigns) return;
    ++at_;
    skip_space(false);
    if (peek() == '{') {
      std::map<std::string, std::string> dict;
      if (read_dict(dict) && ends_here()) {
        out.dicts[name] = std::move(dict);
        return;
      }
    } else if (const auto value = read_value(false, 0); value && ends_here()) {
      out.strings[name] = *value;
      return;
    }
    at_ = start;  // an expression of another kind: finish_statement() must see its brackets from
                  // the start
  }

  // From ':' to the '=' of the same statement; false when there is none (a bare annotation, a
  // `match` ...).
  bool skip_annotation() {
    int depth = 0;
    while (!at_end()) {
      const char c = peek();
      if (c == '=' && depth == 0) return true;
      if (c == '\n' && depth == 0) return false;
      if (c == '(' || c == '[' || c == '{') ++depth;
      if (c == ')' || c == ']' || c == '}') --depth;
      if (depth < 0 || depth > kMaxPythonDepth) return false;
      if (!skip_string()) ++at_;
    }
    return false;
  }

  bool ends_here() {
    skip_space(false);
    return at_end() || peek() == '\n' || peek() == ';';
  }

  // Adjacent string literals, or the same in parentheses.
  std::optional<std::string> read_value(bool lines, int depth) {
    skip_space(lines);
    if (peek() == '(') {
      if (depth == kMaxPythonDepth) return std::nullopt;
      ++at_;
      auto value = read_value(true, depth + 1);
      skip_space(true);
      if (!value || peek() != ')') return std::nullopt;
      ++at_;
      return value;
    }
    std::string joined;
    bool any = false;
    while (true) {
      skip_space(lines);
      StringToken token;
      if (!read_string(&token)) break;
      if (!token.usable) return std::nullopt;
      joined += token.value;
      any = true;
    }
    if (!any) return std::nullopt;
    return joined;
  }

  bool read_dict(std::map<std::string, std::string>& out) {
    ++at_;
    while (true) {
      skip_space(true);
      if (peek() == '}') {
        ++at_;
        return true;
      }
      const auto key = read_value(true, 0);
      skip_space(true);
      if (!key || peek() != ':') return false;
      ++at_;
      const auto value = read_value(true, 0);
      if (!value) return false;
      out[*key] = *value;
      skip_space(true);
      if (peek() == ',') {
        ++at_;
      } else if (peek() != '}') {
        return false;
      }
    }
  }

  // To the start of the next logical line: over strings, comments and brackets.
  void finish_statement() {
    int depth = 0;
    while (!at_end()) {
      const char c = peek();
      if (c == '\n' && depth == 0) {
        ++at_;
        return;
      }
      if (c == '(' || c == '[' || c == '{') {
        if (++depth > kMaxPythonDepth) throw Unreadable{"brackets nested too deep"};
      }
      if ((c == ')' || c == ']' || c == '}') && depth > 0) --depth;
      if (c == '#' || (c == '\\' && peek(1) == '\n')) {
        skip_space(false);
      } else if (!skip_string()) {
        ++at_;
      }
    }
    if (depth > 0) throw Unreadable{"a bracket is never closed"};
  }

  bool skip_string() { return read_string(nullptr); }

  // A string literal at the current place, prefix included; false when there is none. A name in
  // front of it that is no prefix is stepped over only by its letters, so `print"x"` cannot be
  // taken for one.
  bool read_string(StringToken* token) {
    std::size_t prefix = 0;
    while (prefix < 2 && is_name_part(peek(prefix))) ++prefix;
    const char quote = peek(prefix);
    if (quote != '"' && quote != '\'') return false;
    bool raw = false;
    bool usable = true;
    for (std::size_t i = 0; i < prefix; ++i) {
      const char c = static_cast<char>(peek(i) | 0x20);
      if (c != 'r' && c != 'u' && c != 'b' && c != 'f') return false;
      raw = raw || c == 'r';
      usable = usable && c != 'b' && c != 'f';
    }
    if (at_ > 0 && is_name_part(source_[at_ - 1]) && prefix > 0) return false;
    at_ += prefix;
    const bool triple = peek(1) == quote && peek(2) == quote;
    at_ += triple ? 3 : 1;
    std::string value;
    while (true) {
      if (at_end() || (!triple && peek() == '\n')) throw Unreadable{"a string is never closed"};
      const char c = peek();
      if (c == quote && (!triple || (peek(1) == quote && peek(2) == quote))) break;
      if (c == '\\') {
        usable = read_escape(raw, value) && usable;
      } else {
        value += c;
        ++at_;
      }
    }
    at_ += triple ? 3 : 1;
    if (token != nullptr) *token = {std::move(value), usable};
    return true;
  }

  // At a backslash. False: stepped over, but it has no value we can give.
  bool read_escape(bool raw, std::string& out) {
    ++at_;
    if (at_end()) throw Unreadable{"a string is never closed"};
    const char c = peek();
    ++at_;
    if (raw) {  // both characters stay; the backslash only keeps a quote from ending the string
      out += '\\';
      out += c;
      return true;
    }
    constexpr std::string_view kNames = "\\'\"abfnrtv";
    constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
    if (const std::size_t simple = kNames.find(c); simple != std::string_view::npos) {
      out += kValues[simple];
      return true;
    }
    switch (c) {
      case '\n':
        return true;
      case 'x':
        return read_number_escape(2, 16, out);
      case 'u':
        return read_number_escape(4, 16, out);
      case 'U':
        return read_number_escape(8, 16, out);
      case 'N':
        return false;
      default:
        break;
    }
    if (c >= '0' && c <= '7') {
      --at_;
      return read_number_escape(3, 8, out);
    }
    out += '\\';  // an unknown escape is both characters
    out += c;
    return true;
  }

  // Hexadecimal escapes have exactly `digits` digits, octal ones up to that many.
  bool read_number_escape(int digits, int base, std::string& out) {
    char32_t value = 0;
    int read = 0;
    for (; read < digits; ++read) {
      const char c = peek();
      const char lower = static_cast<char>(c | 0x20);
      int digit = -1;
      if (c >= '0' && c <= '9') digit = c - '0';
      if (lower >= 'a' && lower <= 'f') digit = lower - 'a' + 10;
      if (digit < 0 || digit >= base) break;
      value = value * static_cast<char32_t>(base) + static_cast<char32_t>(digit);
      ++at_;
    }
    if (base == 16 && read < digits) return false;
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return false;
    append_code_point(out, value);
    return true;
  }

  std::string_view source_;
  std::size_t at_ = 0;
};

}  // namespace

Result<PythonLiterals> parse_python_literals(std::string_view source) {
  if (source.size() > kMaxPythonBytes) {
    return Status{StatusCode::kInvalidArgument,
                  fmt::format("{} bytes, at most {} are read", source.size(), kMaxPythonBytes), ""};
  }
  if (const auto bad = first_invalid_utf8(source)) {
    return Status{StatusCode::kInvalidArgument, fmt::format("invalid UTF-8 at byte {}", *bad), ""};
  }
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (source.starts_with(kByteOrderMark)) source.remove_prefix(kByteOrderMark.size());
  const std::string lines = with_unix_lines(source);
  Scanner scanner(lines);
  PythonLiterals out;
  try {
    scanner.scan(out);
  } catch (const Unreadable& unreadable) {
    return Status{StatusCode::kInvalidArgument,
                  fmt::format("line {}: {}", scanner.line(), unreadable.problem), ""};
  }
  return out;
}

}  // namespace nibble::text

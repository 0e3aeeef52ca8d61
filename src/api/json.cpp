#include "api/json.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "text/utf8.h"

namespace nibble::api {
namespace {

namespace ondemand = simdjson::ondemand;

// Where and why; thrown inside this file only.
struct Failure {
  std::size_t offset;
  std::string reason;
};

bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The code unit of a \uXXXX whose backslash is at `at`; -1 when it is not one.
int unicode_escape(std::string_view body, std::size_t at) {
  if (at + 6 > body.size() || body[at] != '\\' || body[at + 1] != 'u') return -1;
  int unit = 0;
  for (std::size_t i = at + 2; i < at + 6; ++i) {
    const int digit = hex_digit(body[i]);
    if (digit < 0) return -1;
    unit = unit * 16 + digit;
  }
  return unit;
}

// Backslashes occur only inside strings, so the escapes can be walked without knowing where strings begin: in a body where
// that is not so, the parser proper finds the fault.
void check_surrogates(std::string_view body) {
  std::size_t at = body.find('\\');
  while (at != std::string_view::npos) {
    const int unit = unicode_escape(body, at);
    std::size_t length = unit < 0 ? 2 : 6;
    if (unit >= 0xD800 && unit <= 0xDFFF) {
      const int next = unicode_escape(body, at + 6);
      if (unit >= 0xDC00 || next < 0xDC00 || next > 0xDFFF)
        throw Failure{at, fmt::format("lone surrogate escape {}", body.substr(at, 6))};
      length = 12;
    }
    at = body.find('\\', at + length);
  }
}

// RFC 8259, section 6.
bool is_json_number(std::string_view text) {
  std::size_t i = 0;
  const auto digits = [&] {
    const std::size_t begin = i;
    while (i < text.size() && is_digit(text[i])) ++i;
    return i > begin;
  };
  if (i < text.size() && text[i] == '-') ++i;
  if (i < text.size() && text[i] == '0')
    ++i;
  else if (!digits())
    return false;
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (!digits()) return false;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (!digits()) return false;
  }
  return i == text.size();
}

std::string_view trim_right(std::string_view text) {
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Outside strings nothing but ASCII may stand, so the first quote or control character out of place tells.
std::string string_fault(std::string_view body, std::size_t& offset) {
  bool inside = false;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (!inside) {
      if (c == '"') inside = true, offset = i;
    } else if (c == '\\') {
      ++i;
    } else if (c == '"') {
      inside = false;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      offset = i;
      return fmt::format("control character 0x{:02x} inside a string must be escaped",
                         static_cast<unsigned>(c));
    }
  }
  return "this string has no end";
}

// Walks the whole document, so that nothing unchecked is skipped.
class Builder {
 public:
  Builder(std::string_view body, const JsonLimits& limits) : body_(body), limits_(limits) {}

  void build(ondemand::document& document, Json& root) {
    document_ = &document;
    ondemand::value value;
    // A scalar root has another type in simdjson; every body this server takes is an object or an array.
    const char first = document_start();
    if (first != '{' && first != '[') fail_at(0, "expected a JSON object");
    check(document.get_value().get(value));
    fill(value, root, 1);
    for (std::size_t end = offset_of(root.raw) + root.raw.size(); end < body_.size(); ++end)
      if (!is_blank(body_[end])) fail_at(end, "text after the end of the JSON value");
  }

 private:
  char document_start() const {
    for (const char c : body_)
      if (!is_blank(c)) return c;
    return '\0';
  }

  [[noreturn]] void fail_at(std::size_t offset, std::string reason) const {
    throw Failure{offset, std::move(reason)};
  }

  [[noreturn]] void fail(std::string reason) const {
    const char* place = nullptr;
    const bool known = document_->current_location().get(place) == simdjson::SUCCESS;
    fail_at(known ? std::min(static_cast<std::size_t>(place - body_.data()), body_.size())
                  : body_.size(),
            std::move(reason));
  }

  void check(simdjson::error_code error) const {
    if (error != simdjson::SUCCESS) fail("syntax error");
  }

  std::size_t offset_of(std::string_view view) const {
    return static_cast<std::size_t>(view.data() - body_.data());
  }

  void fill(ondemand::value& value, Json& out, int depth) {
    if (++values_ > limits_.values) fail(fmt::format("more than {} values", limits_.values));
    std::string_view token = value.raw_json_token();
    const std::size_t begin = offset_of(token);
    switch (token.empty() ? '\0' : token.front()) {
      case '{':
        fill_object(value, out, depth, begin);
        return;
      case '[':
        fill_array(value, out, depth, begin);
        return;
      case '"':
        fill_string(value, out, begin);
        return;
      default:
        fill_scalar(out, trim_right(token));
    }
  }

  void fill_object(ondemand::value& value, Json& out, int depth, std::size_t begin) {
    if (depth > limits_.depth)
      fail_at(begin, fmt::format("nested deeper than {} levels", limits_.depth));
    out.kind = Json::Kind::kObject;
    ondemand::object object;
    check(value.get_object().get(object));
    for (auto entry : object) {
      ondemand::field field;
      check(std::move(entry).get(field));
      std::string_view key;
      check(field.unescaped_key().get(key));
      Json& member = out.items.emplace_back();
      member.key = key;
      fill(field.value(), member, depth + 1);
    }
    out.raw = closed(begin, out, '}');
  }

  void fill_array(ondemand::value& value, Json& out, int depth, std::size_t begin) {
    if (depth > limits_.depth)
      fail_at(begin, fmt::format("nested deeper than {} levels", limits_.depth));
    out.kind = Json::Kind::kArray;
    ondemand::array array;
    check(value.get_array().get(array));
    for (auto entry : array) {
      ondemand::value item;
      check(std::move(entry).get(item));
      fill(item, out.items.emplace_back(), depth + 1);
    }
    out.raw = closed(begin, out, ']');
  }

  // The span from `begin` to the bracket that closes it, which follows the last child with only blanks between.
  std::string_view closed(std::size_t begin, const Json& out, char bracket) const {
    std::size_t end = begin + 1;
    if (!out.items.empty()) end = offset_of(out.items.back().raw) + out.items.back().raw.size();
    while (end < body_.size() && is_blank(body_[end])) ++end;
    if (end >= body_.size() || body_[end] != bracket)
      fail_at(std::min(end, body_.size()), "syntax error");
    return body_.substr(begin, end + 1 - begin);
  }

  void fill_string(ondemand::value& value, Json& out, std::size_t begin) {
    out.kind = Json::Kind::kString;
    if (value.get_string().get(out.string) != simdjson::SUCCESS)
      fail_at(begin, "invalid escape in this string");
    std::size_t end = begin + 1;
    while (end < body_.size() && body_[end] != '"') end += body_[end] == '\\' ? 2 : 1;
    out.raw = body_.substr(begin, end + 1 - begin);
  }

  // Scalars are judged by their spelling, which is kept; the iterator steps over what was not read.
  void fill_scalar(Json& out, std::string_view token) const {
    out.raw = token;
    if (token == "null")
      out.kind = Json::Kind::kNull;
    else if (token == "true" || token == "false")
      out.kind = Json::Kind::kBool;
    else if (is_json_number(token))
      out.kind = Json::Kind::kNumber;
    else
      fail_at(offset_of(token), "syntax error");
  }

  std::string_view body_;
  JsonLimits limits_;
  ondemand::document* document_ = nullptr;
  std::size_t values_ = 0;
};

}  // namespace

struct JsonDocument::State {
  simdjson::padded_string body;
  ondemand::parser parser;
  Json root;
};

JsonDocument::JsonDocument(std::unique_ptr<State> state) : state_(std::move(state)) {}
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;

const Json& JsonDocument::root() const {
  return state_->root;
}

Result<JsonDocument> JsonDocument::parse(std::string_view body, const JsonLimits& limits) {
  try {
    if (!simdjson::validate_utf8(body.data(), body.size())) {
      const std::size_t bad = text::first_invalid_utf8(body).value_or(body.size());
      NIBBLE_CHECK(bad < body.size(), "simdjson refuses as UTF-8 what the scan accepts, {} bytes",
                   body.size());
      throw Failure{
          bad, fmt::format("byte 0x{:02x} is not UTF-8", static_cast<unsigned char>(body[bad]))};
    }
    check_surrogates(body);
    auto state = std::make_unique<State>();
    state->body = simdjson::padded_string(body);
    const std::string_view padded(state->body.data(), state->body.size());
    ondemand::document document;
    switch (state->parser.iterate(state->body).get(document)) {
      case simdjson::SUCCESS:
        break;
      case simdjson::EMPTY:
        throw Failure{0, "the body is empty; expected a JSON object"};
      default: {
        std::size_t offset = 0;
        const std::string reason = string_fault(body, offset);
        throw Failure{offset, reason};
      }
    }
    Builder(padded, limits).build(document, state->root);
    return JsonDocument(std::move(state));
  } catch (const Failure& failure) {
    return Status{StatusCode::kInvalidArgument,
                  fmt::format("invalid JSON at {}: {}", describe_position(body, failure.offset),
                              failure.reason),
                  ""};
  }
}

const Json* Json::find(std::string_view name) const {
  for (auto member = items.rbegin(); member != items.rend(); ++member)
    if (member->key == name) return &*member;
  return nullptr;
}

std::optional<std::int64_t> Json::integer() const {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(raw.data(), raw.data() + raw.size(), value);
  if (error == std::errc() && end == raw.data() + raw.size()) return value;
  const std::optional<double> real = number();
  constexpr double kExact =
      9007199254740992.0;  // 2^53: beyond it a double no longer names one whole number
  if (!real || *real != std::floor(*real) || std::abs(*real) > kExact) return std::nullopt;
  return static_cast<std::int64_t>(*real);
}

std::optional<double> Json::number() const {
  double value = 0;
  const auto [end, error] = std::from_chars(raw.data(), raw.data() + raw.size(), value);
  if (error == std::errc::result_out_of_range) {
    // Too small is zero, too large is nothing; from_chars does not say which.
    const auto exponent = raw.find_first_of("eE");
    if (exponent != std::string_view::npos && raw[exponent + 1] == '-') return 0.0;
    return std::nullopt;
  }
  if (error != std::errc()) return std::nullopt;
  return value;
}

const char* json_kind_name(Json::Kind kind) {
  switch (kind) {
    case Json::Kind::kNull:
      return "null";
    case Json::Kind::kBool:
      return "a boolean";
    case Json::Kind::kNumber:
      return "a number";
    case Json::Kind::kString:
      return "a string";
    case Json::Kind::kArray:
      return "an array";
    case Json::Kind::kObject:
      return "an object";
  }
  return "unknown";
}

std::string describe_position(std::string_view body, std::size_t offset) {
  const std::string_view before = body.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t line_begin =
      before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const std::string_view in_line = before.substr(line_begin);
  const auto column =
      1 + std::count_if(in_line.begin(), in_line.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // not a continuation byte
      });
  return fmt::format("byte {} (line {}, column {})", offset, line, column);
}

}  // namespace nibble::api

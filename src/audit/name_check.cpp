#include "audit/name_check.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cstdint>

namespace nibble::audit {
namespace {

// The character at `at` of valid UTF-8, and moves past it.
std::uint32_t next_character(std::string_view text, std::size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at++]);
  if (lead < 0x80) return lead;
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  std::uint32_t value = lead & (0x3F >> more);
  for (int i = 0; i < more && at < text.size(); ++i)
    value = value << 6 | (static_cast<unsigned char>(text[at++]) & 0x3F);
  return value;
}

// Turns the direction of what follows, or takes no room.
bool is_invisible(std::uint32_t c) {
  return c == 0x00AD || c == 0x061C || c == 0x180E || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF ||
         (c >= 0xFFF9 && c <= 0xFFFB) || (c >= 0xE0000 && c <= 0xE007F);
}

}  // namespace

std::optional<std::string> name_problem(std::string_view name) {
  if (!simdjson::validate_utf8(name.data(), name.size())) return "is not UTF-8";
  for (std::size_t at = 0; at < name.size();) {
    const std::uint32_t c = next_character(name, at);
    if (c == 0x1B) return "holds a terminal's escape character";
    if (c < 0x20 || (c >= 0x7F && c < 0xA0))
      return fmt::format("holds the control character {:#04x}", c);
    if (is_invisible(c))
      return fmt::format("holds U+{:04X}, which is not seen or turns text around", c);
    if (c == '\\') return "holds a backslash";
  }
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.starts_with(' ') || part.ends_with(' ') || part.ends_with('.'))
      return "begins or ends with a blank, or ends with a dot";
    begin = end + 1;
  }
  return std::nullopt;
}

std::string case_key(std::string_view name) {
  std::string key(name);
  std::transform(key.begin(), key.end(), key.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return key;
}

bool is_ascii(std::string_view name) {
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string printable(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c >= 0x20 && c <= 0x7E) {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return text;
}

}  // namespace nibble::audit

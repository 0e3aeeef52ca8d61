#include "text/utf8.h"

#include <algorithm>

namespace nibble::text {

namespace {

constexpr char32_t kReplacement = 0xFFFD;

// What a lead byte promises: the sequence's length and the range its second byte must lie in (the
// Unicode standard's table of well-formed sequences; the narrow ranges exclude overlong forms,
// surrogates and values above U+10FFFF).
struct Lead {
  int bytes = 0;  // 0: no lead byte
  unsigned char second_min = 0x80;
  unsigned char second_max = 0xBF;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

// Bytes of `text`'s front that are a valid start of one sequence, and whether the sequence is
// complete.
struct Prefix {
  int bytes = 0;
  bool complete = false;
};

Prefix valid_prefix(std::string_view text) {
  const Lead lead = lead_of(static_cast<unsigned char>(text[0]));
  if (lead.bytes == 0) return {0, false};
  for (int i = 1; i < lead.bytes; ++i) {
    if (static_cast<std::size_t>(i) == text.size()) return {i, false};
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char low = i == 1 ? lead.second_min : 0x80;
    const unsigned char high = i == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) return {i, false};
  }
  return {lead.bytes, true};
}

}  // namespace

CodePoint decode_code_point(std::string_view text) {
  const Prefix prefix = valid_prefix(text);
  if (!prefix.complete) return {kReplacement, std::max(prefix.bytes, 1), false};
  const auto byte = [&](int i) { return static_cast<unsigned char>(text[i]); };
  constexpr unsigned char kLeadMask[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  char32_t value = byte(0) & kLeadMask[prefix.bytes];
  for (int i = 1; i < prefix.bytes; ++i) value = (value << 6) | (byte(i) & 0x3F);
  return {value, prefix.bytes, true};
}

void append_code_point(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

std::optional<std::size_t> first_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Prefix prefix = valid_prefix(text.substr(at));
    if (!prefix.complete) return at;
    at += static_cast<std::size_t>(prefix.bytes);
  }
  return std::nullopt;
}

std::string lossy_utf8(std::string_view bytes) {
  Utf8Assembler assembler;
  std::string out = assembler.push(bytes);
  out += assembler.finish();
  return out;
}

std::string Utf8Assembler::push(std::string_view bytes) {
  std::string joined;
  if (!held_.empty()) {
    joined = held_;
    joined += bytes;
    bytes = joined;
    held_.clear();
  }
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const Prefix prefix = valid_prefix(bytes);
    if (!prefix.complete && prefix.bytes > 0 &&
        static_cast<std::size_t>(prefix.bytes) == bytes.size()) {
      held_ = bytes;  // the next piece may complete it
      break;
    }
    const auto step = static_cast<std::size_t>(std::max(prefix.bytes, 1));
    if (prefix.complete) {
      out += bytes.substr(0, step);
    } else {
      append_code_point(out, kReplacement);
    }
    bytes.remove_prefix(step);
  }
  return out;
}

std::string Utf8Assembler::finish() {
  if (held_.empty()) return "";
  held_.clear();
  std::string out;
  append_code_point(out, kReplacement);
  return out;
}

}  // namespace nibble::text

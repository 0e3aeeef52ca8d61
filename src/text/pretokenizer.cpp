#include "text/pretokenizer.h"

#include "text/unicode_tables.h"
#include "text/utf8.h"

namespace nibble::text {

const std::string_view kSplitPatterns[kSplitPatternCount] = {
    R"(\p{N}{1,3})",
    "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
    R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*)"
    R"(|\s*[\r\n]+)"
    R"(|\s+(?!\S))"
    R"(|\s+)",
};

bool is_split_pattern(std::string_view pattern, std::size_t index) {
  std::string spelled;
  for (const char c : pattern) {
    if (c == '\r') {
      spelled += "\\r";
    } else if (c == '\n') {
      spelled += "\\n";
    } else {
      spelled += c;
    }
  }
  return index < kSplitPatternCount && spelled == kSplitPatterns[index];
}

namespace {

constexpr int kDigitGroup = 3;  // characters

struct Character {
  char32_t value = 0;
  std::size_t bytes = 0;  // 0: past the end
  std::uint8_t bits = 0;

  bool is(int class_mask) const { return (bits & class_mask) != 0; }
};

bool is_line_end(char32_t c) {
  return c == '\r' || c == '\n';
}
bool is_ascii_letter(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_ascii_punctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
         (c >= '{' && c <= '~');
}
bool is_cjk_or_kana(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
}

Character character_at(std::string_view text, std::size_t at) {
  if (at >= text.size()) return {};
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {byte, 1, class_bits(byte)};
  const CodePoint c = decode_code_point(text.substr(at));
  // An invalid byte stands alone, so that every cut keeps all bytes.
  if (!c.valid) return {c.value, 1, 0};
  return {c.value, static_cast<std::size_t>(c.bytes), class_bits(c.value)};
}

// End of the run of characters from `at` on for which `belongs` holds.
template <typename Belongs>
std::size_t run_end(std::string_view text, std::size_t at, Belongs belongs) {
  for (Character c = character_at(text, at); c.bytes != 0 && belongs(c);
       c = character_at(text, at)) {
    at += c.bytes;
  }
  return at;
}

std::size_t word_end(std::string_view text, std::size_t at) {
  return run_end(text, at, [](const Character& c) { return c.is(kLetter | kMark); });
}

std::size_t symbols_end(std::string_view text, std::size_t at) {
  at = run_end(text, at, [](const Character& c) { return c.is(kPunctuation | kSymbol); });
  return run_end(text, at, [](const Character& c) { return is_line_end(c.value); });
}

// `\s*[\r\n]+`, else `\s+(?!\S)`, else `\s+`, for whitespace at `at`.
std::size_t whitespace_end(std::string_view text, std::size_t at) {
  std::size_t after_line_end = 0;
  std::size_t last_start = at;
  std::size_t end = at;
  for (Character c = character_at(text, end); c.bytes != 0 && c.is(kWhitespace);
       c = character_at(text, end)) {
    last_start = end;
    end += c.bytes;
    if (is_line_end(c.value)) after_line_end = end;
  }
  if (after_line_end != 0) return after_line_end;
  if (end == text.size() || last_start == at) return end;
  return last_start;  // the last one belongs to what follows
}

// End of the third pattern's match that starts at `at`; `at` itself when none does.
std::size_t match_end(std::string_view text, std::size_t at) {
  const Character c = character_at(text, at);
  const Character next = character_at(text, at + c.bytes);
  if (is_ascii_punctuation(c.value) && is_ascii_letter(next.value)) {
    return run_end(text, at + c.bytes, [](const Character& l) { return is_ascii_letter(l.value); });
  }
  if (c.is(kLetter | kMark)) return word_end(text, at);
  if (c.is(kPunctuation | kSymbol)) return symbols_end(text, at);
  if (!is_line_end(c.value) && next.is(kLetter | kMark)) return word_end(text, at + c.bytes);
  if (c.value == ' ' && next.is(kPunctuation | kSymbol)) return symbols_end(text, at + c.bytes);
  if (c.is(kWhitespace)) return whitespace_end(text, at);
  return at;
}

// The third pattern over text[begin, end): matches and what lies between them.
void split_words(std::string_view text, std::size_t begin, std::size_t end,
                 std::vector<std::size_t>& ends) {
  const std::string_view part = text.substr(begin, end - begin);
  std::size_t unmatched = 0;  // start of the characters no match has claimed
  std::size_t at = 0;
  while (at < part.size()) {
    const std::size_t stop = match_end(part, at);
    if (stop == at) {
      at += character_at(part, at).bytes;
      continue;
    }
    if (unmatched < at) ends.push_back(begin + at);
    ends.push_back(begin + stop);
    at = unmatched = stop;
  }
  if (unmatched < part.size()) ends.push_back(end);
}

}  // namespace

void split_pieces(std::string_view text, std::vector<std::size_t>& ends) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t begin = at;
    const Character first = character_at(text, at);
    if (first.is(kNumber)) {
      for (int i = 0; i < kDigitGroup; ++i) {
        const Character c = character_at(text, at);
        if (c.bytes == 0 || !c.is(kNumber)) break;
        at += c.bytes;
      }
      ends.push_back(at);
      continue;
    }
    const bool cjk = is_cjk_or_kana(first.value);
    at = run_end(text, at, [&](const Character& c) {
      return !c.is(kNumber) && is_cjk_or_kana(c.value) == cjk;
    });
    split_words(text, begin, at, ends);
  }
}

}  // namespace nibble::text

// UTF-8: strict validation, and putting characters together from pieces that may cut them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace nibble::text {

struct CodePoint {
  char32_t value = 0;  // U+FFFD when !valid
  int bytes =
      1;  // how far to step: 1..4; for an invalid sequence the length of its maximal valid start
  bool valid = false;
};

// Decodes the code point at the front of `text` (not empty). Surrogates, overlong forms and values
// above U+10FFFF are invalid.
CodePoint decode_code_point(std::string_view text);

void append_code_point(std::string& out,
                       char32_t code_point);  // code_point is a Unicode scalar value

// Byte offset of the first byte that is not part of valid UTF-8; nothing when all of it is valid.
std::optional<std::size_t> first_invalid_utf8(std::string_view text);

// Each maximal invalid part becomes one U+FFFD, as Python's errors="replace" and Rust's
// from_utf8_lossy do.
std::string lossy_utf8(std::string_view bytes);

// Turns a byte stream that arrives in arbitrary pieces into pieces that are whole characters. The
// concatenation of all outputs is lossy_utf8() of the concatenated inputs, however they were cut: a
// character is held back until it is complete, one that never completes becomes one U+FFFD.
class Utf8Assembler {
 public:
  // Whole characters that became complete; may be empty.
  std::string push(std::string_view bytes);
  // Ends the stream: "" or one U+FFFD for a cut character. The assembler is then empty and usable
  // again.
  std::string finish();

 private:
  std::string held_;  // at most 3 bytes, a valid start of one character
};

}  // namespace nibble::text

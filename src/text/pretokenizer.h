// DeepSeek's pre-tokenizer: cuts text into the pieces that BPE works on, one at a time.
//
// The file describes it as three regular expressions, each applied to the pieces the one before
// left. They are written by hand here (a lookahead and Unicode classes rule out most engines), and
// recognised by comparing their texts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace nibble::text {

// The patterns implemented, in order, with CR and LF spelled \r and \n.
inline constexpr std::size_t kSplitPatternCount = 3;
extern const std::string_view kSplitPatterns[kSplitPatternCount];

// Whether `pattern` is the one at `index`, raw CR and LF characters counted as their escapes.
bool is_split_pattern(std::string_view pattern, std::size_t index);

// Appends the end offset of each piece, ascending; the last is text.size(). Nothing for empty text.
// Linear time. Bytes that are not UTF-8 are characters of no class.
void split_pieces(std::string_view text, std::vector<std::size_t>& ends);

}  // namespace nibble::text

// Reads a tokenizer.json and refuses what Tokenizer does not implement.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "nibble/types.h"
#include "text/added_tokens.h"
#include "text/bpe.h"

namespace nibble::text {

struct TokenizerSpec {
  std::vector<std::string> token_bytes;  // [highest id + 1]; "" where an id stands for nothing
  std::array<TokenId, 256> byte_ids{};   // the token of each single byte
  std::vector<Merge> merges;             // rank order; none gives an added token
  std::vector<AddedToken> added;
};

// Highest id a file may use, and its largest size: bounds on memory, far above published models.
inline constexpr TokenId kMaxTokenId = (1 << 22) - 1;
inline constexpr std::size_t kMaxTokenizerBytes = std::size_t{256} << 20;

// `name` stands for the file in messages. Throws CheckpointError naming the place, what was
// expected and what was found. Read and not used: truncation, padding, post_processor (no BOS is
// ever added), version.
TokenizerSpec parse_tokenizer_file(std::string_view json, const std::string& name);

}  // namespace nibble::text

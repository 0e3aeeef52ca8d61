#include "text/tokenizer.h"

#include <fmt/format.h>

#include <fstream>
#include <utility>

#include "base/check.h"
#include "nibble/status.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_file.h"
#include "text/utf8.h"

namespace nibble::text {

namespace {

constexpr std::uint8_t kSpecial = 1;
constexpr std::uint8_t kAdded = 2;

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) throw CheckpointError(fmt::format("{}: {}", path.string(), error.message()));
  if (size > kMaxTokenizerBytes) {
    throw CheckpointError(
        fmt::format("{}: {} bytes, at most {} are read", path.string(), size, kMaxTokenizerBytes));
  }
  std::string json(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(json.data(), static_cast<std::streamsize>(size))) {
    throw CheckpointError(fmt::format("{}: cannot be read", path.string()));
  }
  return parse(json, path.string());
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& name) {
  return Tokenizer(parse_tokenizer_file(json, name));
}

Tokenizer::Tokenizer(TokenizerSpec spec)
    : added_(std::make_unique<AddedTokens>(std::move(spec.added))),
      bpe_(std::make_unique<Bpe>(spec.byte_ids, spec.merges)) {
  offsets_.reserve(spec.token_bytes.size() + 1);
  offsets_.push_back(0);
  for (const std::string& token : spec.token_bytes) {
    bytes_ += token;
    offsets_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  }
  flags_.resize(spec.token_bytes.size(), 0);
  for (const AddedToken& token : added_->all()) {
    flags_[static_cast<std::size_t>(token.id)] =
        static_cast<std::uint8_t>(kAdded | (token.special ? kSpecial : 0));
  }
}

Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

void Tokenizer::encode_plain(std::string_view text, std::vector<TokenId>& out) const {
  std::vector<std::size_t> ends;
  ends.reserve(text.size() / 4 + 1);
  split_pieces(text, ends);
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    bpe_->encode(text.substr(begin, end - begin), out);
    begin = end;
  }
  NIBBLE_CHECK(begin == text.size(), "pieces end at {} of {}", begin, text.size());
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::vector<TokenId> out;
  encode_plain(text, out);
  return out;
}

std::vector<TokenId> Tokenizer::encode_with_control(std::string_view text) const {
  std::vector<TokenId> out;
  for (const Part& part : split_added(text)) {
    if (part.added) {
      out.push_back(*part.added);
    } else {
      encode_plain(part.plain, out);
    }
  }
  return out;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const auto index = static_cast<std::size_t>(id);
  return std::string_view(bytes_).substr(offsets_[index], offsets_[index + 1] - offsets_[index]);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (!skip_special || !is_special(id)) bytes += token_bytes(id);
  }
  return lossy_utf8(bytes);
}

std::optional<TokenId> Tokenizer::id_of(std::string_view token) const {
  return added_->id_of(token);
}

int Tokenizer::vocab_size() const {
  return static_cast<int>(flags_.size());
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && id < vocab_size() && (flags_[static_cast<std::size_t>(id)] & kSpecial) != 0;
}

bool Tokenizer::is_added(TokenId id) const {
  return id >= 0 && id < vocab_size() && (flags_[static_cast<std::size_t>(id)] & kAdded) != 0;
}

std::vector<Tokenizer::Part> Tokenizer::split_added(std::string_view text) const {
  return added_->split(text);
}

}  // namespace nibble::text

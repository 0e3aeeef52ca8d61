#include "audit/file_hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"

namespace nibble::audit {
namespace {

constexpr std::int64_t kPieceBytes = 1 << 20;

class Digest {
 public:
  explicit Digest(const EVP_MD* algorithm) : context_(EVP_MD_CTX_new()) {
    NIBBLE_CHECK(context_ && EVP_DigestInit_ex(context_.get(), algorithm, nullptr) == 1,
                 "libcrypto has no such digest");
  }

  void update(std::span<const std::byte> bytes) {
    const int ok = EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
    NIBBLE_CHECK(ok == 1, "EVP_DigestUpdate returned {}", ok);
  }

  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int length = 0;
    const int ok = EVP_DigestFinal_ex(context_.get(), digest.data(), &length);
    NIBBLE_CHECK(ok == 1, "EVP_DigestFinal_ex returned {}", ok);
    std::string text;
    for (unsigned int i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

}  // namespace

std::string hash_file(const checkpoint::File& file, HashKind kind,
                      const std::function<void(std::int64_t)>& advance) {
  Digest digest(kind == HashKind::kSha256 ? EVP_sha256() : EVP_sha1());
  if (kind == HashKind::kGitBlob) {
    const std::string prefix = fmt::format("blob {}", file.size());
    digest.update(std::as_bytes(std::span(prefix.c_str(), prefix.size() + 1)));  // with its NUL
  }
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(kPieceBytes, file.size())));
  for (std::int64_t at = 0; at < file.size();) {
    const std::int64_t bytes = std::min(kPieceBytes, file.size() - at);
    const std::span<std::byte> out = std::span(piece).first(static_cast<std::size_t>(bytes));
    file.read_at(at, out);
    digest.update(out);
    at += bytes;
    advance(bytes);
  }
  return digest.hex();
}

bool hash_kind_of(const std::string& hex, HashKind& kind) {
  if (hex.find_first_not_of("0123456789abcdef") != std::string::npos) return false;
  if (hex.size() != 64 && hex.size() != 40) return false;
  kind = hex.size() == 64 ? HashKind::kSha256 : HashKind::kGitBlob;
  return true;
}

}  // namespace nibble::audit

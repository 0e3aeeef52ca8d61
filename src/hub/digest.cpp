#include "hub/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace nibble::hub {

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Hasher::Hasher(const FileHash& expected, std::int64_t size) : context_(EVP_MD_CTX_new()) {
  const bool large = !expected.sha256.empty();
  const int ok = EVP_DigestInit_ex(context_, large ? EVP_sha256() : EVP_sha1(), nullptr);
  NIBBLE_CHECK(ok == 1, "EVP_DigestInit_ex returned {}", ok);
  if (large) return;
  const std::string head = fmt::format("blob {}", size);
  add(std::as_bytes(std::span(head.c_str(), head.size() + 1)));
}

Hasher::~Hasher() {
  EVP_MD_CTX_free(context_);
}

void Hasher::add(std::span<const std::byte> bytes) {
  const int ok = EVP_DigestUpdate(context_, bytes.data(), bytes.size());
  NIBBLE_CHECK(ok == 1, "EVP_DigestUpdate returned {}", ok);
}

std::string Hasher::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int length = 0;
  const int ok = EVP_DigestFinal_ex(context_, digest.data(), &length);
  NIBBLE_CHECK(ok == 1, "EVP_DigestFinal_ex returned {}", ok);
  std::string text;
  for (unsigned int i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace nibble::hub

#include "hub/digest.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "nibble/status.h"

namespace nibble::hub {
namespace {

constexpr std::size_t kBuffer_bytes = 1 << 20;

struct Descriptor {
  int fd;
  explicit Descriptor(int opened) : fd(opened) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

}  // namespace

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

std::optional<std::string> hash_file(const std::filesystem::path& path, const FileHash& expected,
                                     std::int64_t size, const std::function<bool()>& cancelled) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  const auto fail = [&] {
    throw Error(ExitCode::kFailed,
                fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno)));
  };
  if (file.fd < 0) fail();
  Hasher hasher(expected, size);
  std::vector<std::byte> buffer(kBuffer_bytes);
  while (size > 0) {
    if (cancelled && cancelled()) return std::nullopt;
    const auto most =
        static_cast<std::size_t>(std::min(size, static_cast<std::int64_t>(buffer.size())));
    const ssize_t got = read(file.fd, buffer.data(), most);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail();
    if (got == 0) break;
    hasher.add(std::span(buffer).first(static_cast<std::size_t>(got)));
    size -= got;
  }
  return hasher.hex();
}

}  // namespace nibble::hub

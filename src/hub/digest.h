// The two hashes a model hub names its files by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace nibble::hub {

// What a whole file must hash to. Large files (LFS) have a SHA-256 of their bytes; small ones the id git gives a blob:
// SHA-1 of "blob SIZE\0" and the bytes. One of the two is empty.
struct FileHash {
  std::string sha256;    // 64 lower-case hexadecimal digits
  std::string git_blob;  // 40

  const std::string& hex() const { return sha256.empty() ? git_blob : sha256; }
  const char* name() const { return sha256.empty() ? "git blob id" : "SHA-256"; }
  bool operator==(const FileHash&) const = default;
};

// True for `digits` lower-case hexadecimal digits.
bool is_hex(std::string_view text, std::size_t digits);

// One hash, fed piece by piece. One thread at a time.
class Hasher {
 public:
  // Of the same kind as `expected`, for a file of `size` bytes (a git blob id begins with the size).
  Hasher(const FileHash& expected, std::int64_t size);
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void add(std::span<const std::byte> bytes);
  std::string hex();  // ends the hash; call once

 private:
  evp_md_ctx_st* context_;
};

// Hexadecimal hash of a file's first `size` bytes, of the kind of `expected`. Nothing once `cancelled` (may be null) says so.
// Throws Error(kFailed) when the file cannot be read; one that ends early has another hash.
std::optional<std::string> hash_file(const std::filesystem::path& path, const FileHash& expected,
                                     std::int64_t size, const std::function<bool()>& cancelled);

}  // namespace nibble::hub

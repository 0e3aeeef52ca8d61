#include "audit/zip_listing.h"

#include <algorithm>
#include <string_view>

namespace nibble::audit {
namespace {

constexpr std::int64_t kEndRecordBytes = 22;
constexpr std::size_t kEntryBytes = 46;
constexpr std::size_t kMaxNames = 10'000;
constexpr std::int64_t kMaxDirectoryBytes = 4 << 20;

std::string_view view(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::uint32_t number(std::string_view text, std::size_t at, std::size_t bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = bytes; i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(text[at + i]);
  return value;
}

}  // namespace

std::optional<ZipDirectory> find_zip_directory(std::span<const std::byte> tail,
                                               std::int64_t file_bytes) {
  const std::string_view text = view(tail);
  const std::int64_t tail_begin = file_bytes - static_cast<std::int64_t>(text.size());
  for (std::size_t at = text.rfind("PK\x05\x06"); at != std::string_view::npos;
       at = at == 0 ? std::string_view::npos : text.rfind("PK\x05\x06", at - 1)) {
    if (text.size() - at < static_cast<std::size_t>(kEndRecordBytes)) continue;
    const std::int64_t bytes = number(text, at + 12, 4);
    const std::int64_t end = tail_begin + static_cast<std::int64_t>(at);
    // The directory ends where the record begins, whatever its own offset says: bytes in front of the archive shift it. A
    // zip64 archive has two records more in between, and then the sizes say 0xFFFFFFFF.
    const bool zip64 = bytes == 0xFFFFFFFF || number(text, at + 16, 4) == 0xFFFFFFFF;
    if (zip64) {
      if (at >= 20 && text.substr(at - 20, 4) == "PK\x06\x07") return ZipDirectory{end, 0};
      continue;
    }
    if (bytes > end) continue;
    if (bytes == 0 && number(text, at + 10, 2) != 0) continue;
    return ZipDirectory{end - bytes, bytes};
  }
  return std::nullopt;
}

std::vector<std::string> zip_names(std::span<const std::byte> directory) {
  const std::string_view text = view(directory);
  std::vector<std::string> names;
  std::size_t at = 0;
  while (names.size() < kMaxNames && text.size() - at >= kEntryBytes &&
         text.substr(at, 4) == "PK\x01\x02") {
    const std::size_t name_bytes = number(text, at + 28, 2);
    const std::size_t rest = number(text, at + 30, 2) + std::size_t{number(text, at + 32, 2)};
    if (name_bytes > text.size() - at - kEntryBytes) break;
    names.emplace_back(text.substr(at + kEntryBytes, name_bytes));
    at += kEntryBytes + name_bytes;
    if (rest > text.size() - at) break;
    at += rest;
  }
  return names;
}

std::optional<std::vector<std::string>> list_zip(const checkpoint::File& file) {
  if (file.size() < kEndRecordBytes) return std::nullopt;
  std::vector<std::byte> tail(static_cast<std::size_t>(std::min(file.size(), kZipTail_bytes)));
  file.read_at(file.size() - static_cast<std::int64_t>(tail.size()), tail);
  const auto place = find_zip_directory(tail, file.size());
  if (!place) return std::nullopt;
  std::vector<std::byte> directory(
      static_cast<std::size_t>(std::min(place->bytes, kMaxDirectoryBytes)));
  file.read_at(place->offset, directory);
  std::vector<std::string> names = zip_names(directory);
  // Four bytes alone occur by chance in 160 GB of weights; an end record whose directory is one does not.
  if (names.empty() && place->bytes > 0) return std::nullopt;
  return names;
}

}  // namespace nibble::audit

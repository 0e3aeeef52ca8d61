#include "audit/magic.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nibble::audit {
namespace {

using namespace std::string_literals;

Magic magic(const std::string& bytes) {
  return magic_of(std::as_bytes(std::span(bytes)));
}

std::string pe(std::uint8_t header_at, const std::string& signature) {
  std::string bytes(256, '\0');
  bytes.replace(0, 2, "MZ");
  bytes[60] = static_cast<char>(header_at);
  return bytes.replace(header_at, signature.size(), signature);
}

std::string tar() {
  std::string bytes(512, '\0');
  return bytes.replace(257, 5, "ustar");
}

TEST(Magic, KnowsFilesByTheirFirstBytes) {
  struct Row {
    std::string bytes;
    Magic magic;
  };
  const std::vector<Row> rows = {
      {"\x7F"
       "ELF\2\1\1"s,
       Magic::kElf},
      {pe(0x80, "PE\0\0"s), Magic::kPe},
      {pe(0x40, "NE"), Magic::kPe},
      {"\xFE\xED\xFA\xCE\0\0"s, Magic::kMachO},
      {"\xCF\xFA\xED\xFE"s, Magic::kMachO},
      {"\xCA\xFE\xBA\xBE\0\0\0\x02"s, Magic::kMachO},
      {"\0asm\1\0\0\0"s, Magic::kWasm},
      {"BC\xC0\xDE"s, Magic::kBitcode},
      {"dex\n035\0"s, Magic::kDex},
      {"!<arch>\n"s, Magic::kObjectArchive},
      {"\xCB\x0D\r\n"s + std::string(12, '\0'), Magic::kPyc},
      {"#!/bin/sh\n", Magic::kScript},
      {"PK\3\4"s, Magic::kZip},
      {"PK\5\6"s + std::string(18, '\0'), Magic::kZip},
      {tar(), Magic::kTar},
      {"7z\xBC\xAF\x27\x1C"s, Magic::kSevenZip},
      {"Rar!\x1A\x07\1\0"s, Magic::kRar},
      {"\x1F\x8B\x08"s, Magic::kCompressed},
      {"\xFD"
       "7zXZ\0"s,
       Magic::kCompressed},
      {"\x28\xB5\x2F\xFD"s, Magic::kCompressed},
      {"GGUF\3\0\0\0"s, Magic::kGguf},
      {"\x89HDF\r\n\x1A\n"s, Magic::kHdf5},
      {"\x93NUMPY\1\0"s, Magic::kNumpy},
      {"\x10\0\0\0\0\0\0\0{\"a\":1}"s, Magic::kSafetensors},
      {"version https://git-lfs.github.com/spec/v1\noid", Magic::kLfsPointer},
      {"\x89PNG\r\n\x1A\n"s, Magic::kPicture},
      {"RIFF\0\0\0\0WEBPVP8 "s, Magic::kPicture},
      {"%PDF-1.7", Magic::kPdf},
      {"# A model\n", Magic::kText},
      {"caf\xC3\xA9", Magic::kText},
      {"", Magic::kUnknown},
      {"\0\0\0\0"s, Magic::kUnknown},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(magic(row.bytes), row.magic)
        << magic_name(row.magic) << " is taken for " << magic_name(magic(row.bytes));
  }
}

TEST(Magic, OrdinaryTextIsNoProgram) {
  for (const char* text :
       {"MZ is how some programs begin.", "BZ", "P", "PK", "#", "GGU", "version 2", "Rar", "dex",
        "MZ0123456789012345678901234567890123456789012345678901234567"})
    EXPECT_EQ(magic(text), Magic::kText) << text;
}

TEST(Magic, AHeadersLengthMayLookLikeAnything) {
  // 0x8B1F and 0x2123 bytes of header: gzip and #! by the first two bytes.
  for (const char* first : {"\x1F\x8B", "#!"}) {
    const std::string bytes = first + std::string(6, '\0') + "{\"a\"";
    EXPECT_TRUE(looks_like_safetensors(std::as_bytes(std::span(bytes)))) << first;
    EXPECT_NE(magic(bytes), Magic::kSafetensors);
  }
  const std::string elf =
      "\x7F"
      "ELF\2\1\1\0{"s;
  EXPECT_FALSE(looks_like_safetensors(std::as_bytes(std::span(elf))));
}

TEST(Magic, EveryPrefixIsSafe) {
  const std::string bytes = pe(0xF0, "PE\0\0"s);
  for (std::size_t size = 0; size <= bytes.size(); ++size) magic(bytes.substr(0, size));
}

}  // namespace
}  // namespace nibble::audit

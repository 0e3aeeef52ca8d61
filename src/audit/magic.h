// What a file is by its first bytes, whatever it is called.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace nibble::audit {

enum class Magic {
  kUnknown,
  kText,  // no NUL in what was looked at, and nothing below
  // Machine code and what runs on a virtual machine.
  kElf,
  kPe,
  kMachO,  // or a Java class: both begin with 0xCAFEBABE
  kWasm,
  kBitcode,
  kPyc,
  kDex,
  kObjectArchive,
  kScript,  // #!
  // Containers.
  kZip,
  kTar,
  kSevenZip,
  kRar,
  kCompressed,  // gzip, bzip2, xz, zstd, lz4
  // Model formats.
  kGguf,
  kHdf5,
  kNumpy,
  kSafetensors,  // a plausible header length and an opening brace
  kLfsPointer,
  // Harmless.
  kPicture,
  kPdf,
};

inline constexpr std::size_t kMagicBytes = 4096;

// `head` is the beginning of the file, kMagicBytes of it or all there is. Any bytes.
Magic magic_of(std::span<const std::byte> head);

// Begins like a safetensors file. Ask this first of a file that is called one: its header's length may look like anything.
bool looks_like_safetensors(std::span<const std::byte> head);

// "an ELF executable or library", ...
std::string_view magic_name(Magic magic);

bool is_machine_code(Magic magic);  // kElf to kObjectArchive
bool is_container(Magic magic);     // kZip to kCompressed

}  // namespace nibble::audit

#include "audit/magic.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace nibble::audit {
namespace {

using namespace std::string_view_literals;

struct Signature {
  std::string_view bytes;
  Magic magic;
};

// At the first byte. Longer ones first where one begins like another.
constexpr std::array kSignatures = {
    Signature{"\x7F"
              "ELF"sv,
              Magic::kElf},
    Signature{"\xFE\xED\xFA\xCE"sv, Magic::kMachO},
    Signature{"\xFE\xED\xFA\xCF"sv, Magic::kMachO},
    Signature{"\xCE\xFA\xED\xFE"sv, Magic::kMachO},
    Signature{"\xCF\xFA\xED\xFE"sv, Magic::kMachO},
    Signature{"\xCA\xFE\xBA\xBE"sv, Magic::kMachO},
    Signature{"\xCA\xFE\xBA\xBF"sv, Magic::kMachO},
    Signature{"\0asm"sv, Magic::kWasm},
    Signature{"BC\xC0\xDE"sv, Magic::kBitcode},
    Signature{"dex\n03"sv, Magic::kDex},
    Signature{"!<arch>\n"sv, Magic::kObjectArchive},
    Signature{"#!"sv, Magic::kScript},
    Signature{"PK\x03\x04"sv, Magic::kZip},
    Signature{"PK\x05\x06"sv, Magic::kZip},
    Signature{"PK\x07\x08"sv, Magic::kZip},
    Signature{"7z\xBC\xAF\x27\x1C"sv, Magic::kSevenZip},
    Signature{"Rar!\x1A\x07"sv, Magic::kRar},
    Signature{"\x1F\x8B"sv, Magic::kCompressed},
    Signature{"BZh"sv, Magic::kCompressed},
    Signature{"\xFD"
              "7zXZ\0"sv,
              Magic::kCompressed},
    Signature{"\x28\xB5\x2F\xFD"sv, Magic::kCompressed},
    Signature{"\x04\x22\x4D\x18"sv, Magic::kCompressed},
    Signature{"GGUF"sv, Magic::kGguf},
    Signature{"GGML"sv, Magic::kGguf},
    Signature{"\x89HDF\r\n\x1A\n"sv, Magic::kHdf5},
    Signature{"\x93NUMPY"sv, Magic::kNumpy},
    Signature{"version https://git-lfs.github.com/spec/"sv, Magic::kLfsPointer},
    Signature{"version https://hawser.github.com/spec/"sv, Magic::kLfsPointer},
    Signature{"\x89PNG\r\n\x1A\n"sv, Magic::kPicture},
    Signature{"\xFF\xD8\xFF"sv, Magic::kPicture},
    Signature{"GIF8"sv, Magic::kPicture},
    Signature{"%PDF-"sv, Magic::kPdf},
};

std::uint64_t little_endian(std::string_view text, std::size_t at, int bytes) {
  std::uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(text[at + static_cast<std::size_t>(i)]);
  return value;
}

// "MZ" alone begins many a text; the offset at 60 leads to "PE\0\0", or to nothing within reach in a stub of DOS's.
bool is_pe(std::string_view text) {
  if (!text.starts_with("MZ") || text.size() < 64) return false;
  const std::uint64_t header = little_endian(text, 60, 4);
  if (header + 4 <= text.size())
    return text.substr(header, 2) == "PE" || text.substr(header, 2) == "NE";
  return text.substr(0, 64).find('\0') != std::string_view::npos;
}

bool is_safetensors(std::string_view text) {
  if (text.size() < 9 || text[8] != '{') return false;
  const std::uint64_t length = little_endian(text, 0, 8);
  return length >= 2 && length <= 100'000'000;
}

// The compiler's version, then "\r\n"; versions 3.0 to 3.15 lie between 3000 and 3700, 2.7 at 62211.
bool is_pyc(std::string_view text) {
  if (text.size() < 16 || text[2] != '\r' || text[3] != '\n') return false;
  const std::uint64_t version = little_endian(text, 0, 2);
  return (version >= 3000 && version < 3800) || (version >= 62000 && version < 62300);
}

bool is_picture(std::string_view text) {
  return text.starts_with("RIFF") && text.size() >= 12 && text.substr(8, 4) == "WEBP";
}

}  // namespace

Magic magic_of(std::span<const std::byte> head) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  for (const Signature& signature : kSignatures) {
    if (text.starts_with(signature.bytes)) return signature.magic;
  }
  if (is_pe(text)) return Magic::kPe;
  if (is_picture(text)) return Magic::kPicture;
  if (is_safetensors(text)) return Magic::kSafetensors;
  if (is_pyc(text)) return Magic::kPyc;
  if (text.size() >= 262 && text.substr(257, 5) == "ustar") return Magic::kTar;
  if (!text.empty() && text.find('\0') == std::string_view::npos) return Magic::kText;
  return Magic::kUnknown;
}

bool looks_like_safetensors(std::span<const std::byte> head) {
  return is_safetensors({reinterpret_cast<const char*>(head.data()), head.size()});
}

std::string_view magic_name(Magic magic) {
  switch (magic) {
    case Magic::kUnknown:
      return "data";
    case Magic::kText:
      return "text";
    case Magic::kElf:
      return "an ELF executable or library";
    case Magic::kPe:
      return "a Windows executable or library";
    case Magic::kMachO:
      return "a Mach-O executable or a Java class";
    case Magic::kWasm:
      return "a WebAssembly module";
    case Magic::kBitcode:
      return "LLVM bitcode";
    case Magic::kPyc:
      return "compiled Python";
    case Magic::kDex:
      return "Dalvik bytecode";
    case Magic::kObjectArchive:
      return "an archive of object files";
    case Magic::kScript:
      return "a script";
    case Magic::kZip:
      return "a zip archive";
    case Magic::kTar:
      return "a tar archive";
    case Magic::kSevenZip:
      return "a 7z archive";
    case Magic::kRar:
      return "a RAR archive";
    case Magic::kCompressed:
      return "a compressed file";
    case Magic::kGguf:
      return "a GGUF or GGML model";
    case Magic::kHdf5:
      return "an HDF5 file";
    case Magic::kNumpy:
      return "a NumPy array";
    case Magic::kSafetensors:
      return "a safetensors file";
    case Magic::kLfsPointer:
      return "a Git LFS pointer";
    case Magic::kPicture:
      return "a picture";
    case Magic::kPdf:
      return "a PDF";
  }
  return "data";
}

bool is_machine_code(Magic magic) {
  return magic >= Magic::kElf && magic <= Magic::kObjectArchive;
}

bool is_container(Magic magic) {
  return magic >= Magic::kZip && magic <= Magic::kCompressed;
}

}  // namespace nibble::audit

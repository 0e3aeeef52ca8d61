// Any bytes as the hub's two JSON answers and its Link header: refused with CheckpointError, or files that may be written
// below a snapshot folder.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "hub/listing.h"
#include "hub/repo.h"
#include "nibble/status.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nibble::hub;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    std::vector<HubFile> files;
    parse_tree_page("fuzz", text, files);
    check_paths_together("fuzz", files);
    for (const HubFile& file : files) {
      const std::filesystem::path path(file.path);
      if (path.is_absolute() || path.lexically_normal() != path) std::abort();
      if (path.begin()->string() == ".." || file.path.find('\0') != std::string::npos) std::abort();
      if (file.size < 0 || file.size > kMaxFileBytes) std::abort();
      const FileHash& hash = file.hash;
      if (is_hex(hash.sha256, 64) == is_hex(hash.git_blob, 40)) std::abort();
    }
  } catch (const nibble::CheckpointError&) {
  }
  try {
    if (!is_commit(parse_commit("fuzz", text))) std::abort();
  } catch (const nibble::CheckpointError&) {
  }
  if (next_link(text).find('>') != std::string::npos) std::abort();
  return 0;
}

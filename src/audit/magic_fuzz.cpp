// Any bytes as a file's first or last bytes: nothing is read outside them, and what is found keeps its promises.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "audit/expected_hashes.h"
#include "audit/file_check.h"
#include "audit/magic.h"
#include "audit/pickle_walk.h"
#include "audit/zip_listing.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nibble::audit;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (magic_name(magic_of(bytes.first(std::min(size, kMagicBytes)))).empty()) std::abort();
  const PickleWalk walk = walk_pickle(bytes);
  if (!std::all_of(walk.imports.begin(), walk.imports.end(),
                   [](char c) { return c >= ' ' && c <= '~'; }))
    std::abort();
  if (const auto place = find_zip_directory(bytes, static_cast<std::int64_t>(size)))
    if (place->offset < 0 || place->bytes < 0 ||
        place->offset + place->bytes > static_cast<std::int64_t>(size))
      std::abort();
  zip_names(bytes);
  std::vector<Finding> findings;
  parse_lock({reinterpret_cast<const char*>(data), size}, findings);
  parse_hub_metadata({reinterpret_cast<const char*>(data), size});

  // And as each kind of file, with messages that a terminal can take.
  const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0 || write(fd, data, size) != static_cast<ssize_t>(size)) std::abort();
  const nibble::checkpoint::File file(fd, "fuzz");
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "config.json",
                           "chat_template.jinja", "notes", "x.bin"}) {
    std::vector<Finding> found;
    check_file(name, file, found);
    for (const Finding& finding : found) {
      for (const std::string* text : {&finding.message, &finding.where}) {
        if (!std::all_of(text->begin(), text->end(), [](char c) { return c >= ' ' && c <= '~'; }))
          std::abort();
      }
    }
  }
  return 0;
}

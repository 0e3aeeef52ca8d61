// Any bytes as nibble.lock.json: refused with CheckpointError, or a lock that survives being written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "hub/lock_file.h"
#include "hub/repo.h"
#include "nibble/status.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nibble::hub;
  LockFile lock;
  try {
    lock = parse_lock_file("fuzz", {reinterpret_cast<const char*>(data), size});
  } catch (const nibble::CheckpointError&) {
    return 0;
  }
  // OWNER/NAME is ours to write; anything else has no business in the text.
  if (!is_commit(lock.commit)) std::abort();
  if (!parse_repo_name(lock.repo)) lock.repo = "a/b";
  const LockFile again = parse_lock_file("fuzz", lock_file_text(lock));
  if (again.files.size() != lock.files.size() || again.repo != lock.repo) std::abort();
  for (const auto& [path, file] : lock.files) {
    const HubFile& other = again.files.at(path);
    if (!path_problem(path).empty() || other.size != file.size || other.hash != file.hash)
      std::abort();
  }
  return 0;
}

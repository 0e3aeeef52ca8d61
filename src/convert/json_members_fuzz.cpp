// config.json is rewritten member by member: whatever is accepted must come out as text that is
// accepted again, with the same members.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "convert/json_text.h"
#include "nibble/status.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  nibble::convert::JsonMembers members;
  try {
    members = nibble::convert::parse_members(text, "config.json");
  } catch (const nibble::CheckpointError&) {
    return 0;
  }
  const auto again = nibble::convert::parse_members(nibble::convert::json_object(members), "again");
  NIBBLE_CHECK(again == members, "{} members, then {}", members.size(), again.size());
  return 0;
}

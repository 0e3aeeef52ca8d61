// Names from a checkpoint, made safe to print: a tensor or file name may hold anything, terminal
// escapes included.
#pragma once

#include <string>
#include <string_view>

namespace nibble::checkpoint {

// 'name' with everything outside printable ASCII as \xNN, cut after 160 characters.
std::string quote(std::string_view name);

}  // namespace nibble::checkpoint

// Flags that users type elsewhere and that have no meaning here.
#pragma once

#include <CLI/CLI.hpp>

namespace nibble::cli {

// Accepts them on `command`; each one given is a line on stderr that says why it is ignored.
void accept_foreign_flags(CLI::App& command);

}  // namespace nibble::cli

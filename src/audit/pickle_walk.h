// Is this a pickle? Python's pickle is a program for a stack machine, and some of its instructions call any function. Weights in
// that form run code when they are loaded; nibble never loads them, and only wants to know one when it sees it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace nibble::audit {

inline constexpr std::size_t kPickleWindow_bytes = 64 << 10;

struct PickleWalk {
  bool is_pickle = false;
  // The first name that the program imports ("posix system"), printable; empty: none was seen.
  std::string imports;
};

// Steps through the instructions without doing any of them, keeping only the number of values on the stack. `head` is the
// beginning of the file, kPickleWindow_bytes of it or all there is. A pickle is: a program that imports something and calls it,
// whatever comes after; one that imports something and reaches its STOP; or, after the instruction PROTO 2 to 5 that binary
// pickles begin with, any program that holds together to its STOP or the window's end. Prose does none of that.
PickleWalk walk_pickle(std::span<const std::byte> head);

}  // namespace nibble::audit

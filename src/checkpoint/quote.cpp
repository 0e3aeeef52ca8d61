#include "checkpoint/quote.h"

#include <fmt/format.h>

namespace nibble::checkpoint {

std::string quote(std::string_view name) {
  constexpr std::size_t kLongest = 160;
  std::string text = "'";
  for (const char c : name.substr(0, kLongest)) {
    if (c >= 0x20 && c <= 0x7E) {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (name.size() > kLongest) text += fmt::format("...({} characters)", name.size());
  return text + "'";
}

}  // namespace nibble::checkpoint

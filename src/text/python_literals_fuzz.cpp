// Any source: values are valid UTF-8 and no longer than it; the encoder is found or not, never more.
#include <cstdint>

#include "base/check.h"
#include "text/encoder_profile.h"
#include "text/python_literals.h"
#include "text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nibble::text;
  const std::string source(reinterpret_cast<const char*>(data), size);
  if (const auto literals = parse_python_literals(source)) {
    std::size_t bytes = 0;
    const auto check = [&](const std::string& text) {
      NIBBLE_CHECK(!first_invalid_utf8(text), "{}", text);
      bytes += text.size();
    };
    for (const auto& [name, value] : literals->strings) check(value);
    for (const auto& [name, dict] : literals->dicts) {
      for (const auto& [key, value] : dict) check(key + value);
    }
    NIBBLE_CHECK(bytes <= size, "{} bytes of values from {}", bytes, size);
  }
  const EncoderLookup lookup = read_encoder(source, "e.py");
  NIBBLE_CHECK(lookup.profile.has_value() == (lookup.note.rfind("no chat encoder", 0) != 0), "{}",
               lookup.note);
  return 0;
}

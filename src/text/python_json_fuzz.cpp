// Whatever is accepted is written so that reading it again gives the same text.
#include <cstdint>

#include "base/check.h"
#include "text/python_json.h"
#include "text/tool_schema.h"
#include "text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nibble::text;
  const auto json = parse_json({reinterpret_cast<const char*>(data), size});
  if (!json) return 0;
  const std::string text = python_json(*json);
  NIBBLE_CHECK(!first_invalid_utf8(text), "{}", text);
  const auto again = parse_json(text);
  NIBBLE_CHECK(again.ok(), "{}", text);
  NIBBLE_CHECK(python_json(*again) == text, "{} became {}", text, python_json(*again));
  const ToolSchema schema(*json);
  schema.allows("a", *json);
  return 0;
}

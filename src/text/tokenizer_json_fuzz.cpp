// Any file is refused with a CheckpointError, or gives a tokenizer that keeps every byte and makes no control tokens.
#include <cstdint>

#include "base/check.h"
#include "nibble/status.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace nibble::text;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  try {
    const Tokenizer tokenizer = Tokenizer::parse(json, "t");
    const std::string_view text = json.substr(0, 300);
    std::string back;
    for (const nibble::TokenId id : tokenizer.encode(text)) {
      NIBBLE_CHECK(!tokenizer.is_added(id), "token {}", id);
      back += tokenizer.token_bytes(id);
    }
    NIBBLE_CHECK(back == text, "{} became {}", text, back);
    std::string with_control;
    for (const nibble::TokenId id : tokenizer.encode_with_control(text))
      with_control += tokenizer.token_bytes(id);
    NIBBLE_CHECK(with_control == text, "{} became {}", text, with_control);
  } catch (const nibble::CheckpointError&) {
  }
  return 0;
}

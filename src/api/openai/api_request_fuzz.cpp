// Bodies of any bytes through every request reader: they are read or refused with a 400, and nothing else happens.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "api/errors.h"
#include "api/json_writer.h"
#include "api/openai/chat_request.h"
#include "api/openai/completion_request.h"

namespace {

using nibble::api::Json;

template <typename Read>
void expect_read_or_refused(Read read) {
  try {
    (void)read();
  } catch (const nibble::api::RequestError& error) {
    if (error.error().http_status != 400 || error.error().message.empty()) std::abort();
    // What is answered must be JSON, whatever of the body it quotes.
    if (!nibble::api::JsonDocument::parse(nibble::api::error_json(error.error()))) std::abort();
  }
}

// Every value's own text is a part of the body that reads as the same kind.
void check_spans(const Json& value, std::string_view body) {
  const bool inside = value.raw.data() >= body.data() &&
                      value.raw.data() + value.raw.size() <= body.data() + body.size();
  if (!inside && !value.raw.empty()) std::abort();
  for (const Json& item : value.items) check_spans(item, value.raw);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto document = nibble::api::JsonDocument::parse(body, {.depth = 128, .values = 10000});
  if (!document) {
    if (!document.status().message.starts_with("invalid JSON at byte ")) std::abort();
    return 0;
  }
  const Json& root = document->root();
  check_spans(root, root.raw);
  // Reading a value's own text again gives its text again.
  const auto again = nibble::api::JsonDocument::parse(root.raw, {.depth = 128, .values = 10000});
  if (!again || again->root().raw != root.raw) std::abort();
  const nibble::api::GenerationDefaults defaults;
  expect_read_or_refused(
      [&] { return nibble::api::openai::read_chat_body(root, defaults).max_tokens; });
  expect_read_or_refused(
      [&] { return nibble::api::openai::read_completion_body(root, defaults).max_tokens; });
  return 0;
}

// Any ids: the deltas joined do not depend on the cuts, are valid UTF-8, arguments are JSON objects.
#include <cstdint>

#include "base/check.h"
#include "text/output_parser.h"
#include "text/python_json.h"
#include "text/test_tokenizer.h"

namespace {

using namespace nibble::text;

std::string joined(const ChatEncoder& encoder, const OutputParserOptions& options,
                   const std::vector<nibble::TokenId>& ids, std::size_t step) {
  OutputParser parser(encoder, options);
  OutputDelta all;
  for (std::size_t at = 0; at < ids.size(); at += step) {
    all.append(parser.push(std::span(ids).subspan(at, std::min(step, ids.size() - at))));
  }
  all.append(parser.finish());
  NIBBLE_CHECK(!first_invalid_utf8(all.content + all.reasoning), "{} {}", all.content,
               all.reasoning);
  std::string out = all.reasoning + '\0' + all.content;
  for (const ParsedToolCall& call : all.tool_calls) {
    const auto json = parse_json(call.arguments);
    NIBBLE_CHECK(json.ok() && json->kind == Json::Kind::kObject, "{}", call.arguments);
    out += '\0' + call.id + ' ' + call.name + ' ' + call.arguments;
  }
  return out;
}

}  // namespace

// The first byte chooses the options. Bytes from 0xF8 on are control tokens, the others themselves.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Tokenizer kTokenizer = test_tokenizer();
  static const ChatEncoder kEncoder(kTokenizer, EncoderProfile{});
  if (size == 0) return 0;
  OutputParserOptions options;
  options.starts_in_reasoning = (data[0] & 1) != 0;
  if ((data[0] & 2) == 0) {
    options.tools = {
        {R"({"name": "f", "parameters": {"properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}})"}};
  }
  std::vector<nibble::TokenId> ids;
  for (std::size_t i = 1; i < size; ++i) {
    constexpr const char* kControl[] = {
        "｜DSML｜", "<think>",  "</think>", "<｜User｜>", "<｜end▁of▁sentence｜>",
        "｜DSML｜", "｜DSML｜", "｜DSML｜"};
    ids.push_back(data[i] >= 0xF8 ? *kTokenizer.id_of(kControl[data[i] - 0xF8]) : 3 + data[i]);
  }
  const std::string single = joined(kEncoder, options, ids, 1);
  const std::string grouped = joined(kEncoder, options, ids, 2 + size % 7);
  NIBBLE_CHECK(single == grouped, "{} and {}", single, grouped);
  return 0;
}

// The bundled model's own examples: models/tiny/encoding/tests/NAME.json renders to NAME.txt.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "text/test_chat_json.h"

namespace nibble::text {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(TinyGolden, EveryExampleRendersAsItsText) {
  const std::filesystem::path model = std::string(NIBBLE_SOURCE_DIR) + "/models/tiny";
  const Tokenizer tokenizer = Tokenizer::load(model / "tokenizer.json");
  const EncoderLookup lookup = find_encoder(model);
  ASSERT_TRUE(lookup.profile) << lookup.note;
  const ChatEncoder encoder(tokenizer, *lookup.profile);
  int examples = 0;
  if (std::filesystem::is_directory(model / "encoding" / "tests")) {
    for (const auto& entry : std::filesystem::directory_iterator(model / "encoding" / "tests")) {
      if (entry.path().extension() != ".json") continue;
      ++examples;
      SCOPED_TRACE(entry.path().filename().string());
      const auto json = parse_json(read_file(entry.path()));
      ASSERT_TRUE(json.ok()) << json.status().message;
      const std::string expected =
          read_file(std::filesystem::path(entry.path()).replace_extension(".txt"));
      const auto ids = encoder.encode(request_from_json(*json));
      ASSERT_TRUE(ids.ok()) << ids.status().message;
      EXPECT_EQ(tokenizer.decode(*ids), expected);
      EXPECT_EQ(*ids, tokenizer.encode_with_control(expected));
    }
  }
  if (examples == 0 && !std::filesystem::exists(model / "model.safetensors.index.json")) {
    GTEST_SKIP() << "models/tiny is not complete yet";
  }
  EXPECT_GT(examples, 0) << "models/tiny/encoding/tests holds no example";
}

}  // namespace
}  // namespace nibble::text

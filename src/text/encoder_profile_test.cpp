#include "text/encoder_profile.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "nibble/status.h"
#include "text/test_encoders.h"

namespace nibble::text {
namespace {

TEST(EncoderProfile, PreviewAnd0731AreToldApartByTheFile) {
  const EncoderLookup preview = read_encoder(kPreviewEncoder, "encoding_dsv4.py");
  ASSERT_TRUE(preview.profile) << preview.note;
  EXPECT_EQ(preview.profile->kind, ProfileKind::kPreview);
  EXPECT_EQ(preview.profile->effort_texts,
            (std::map<std::string, std::string>{{"max", "Think hard.\n\n"}}));
  EXPECT_EQ(preview.profile->task_tokens.size(), 2u);
  EXPECT_FALSE(preview.profile->deepseek_texts);
  EXPECT_EQ(preview.note, "chat encoder preview from encoding_dsv4.py");

  const EncoderLookup newer = read_encoder(k0731Encoder, "encoding_dsv4.py");
  ASSERT_TRUE(newer.profile) << newer.note;
  EXPECT_EQ(newer.profile->kind, ProfileKind::k0731);
  EXPECT_EQ(newer.profile->effort_texts,
            (std::map<std::string, std::string>{{"high", "Think hard.\n\n"},
                                                {"max", "Think harder.\n\n"}}));
}

TEST(EncoderProfile, OtherFilesAreUnknown) {
  const auto note = [](std::string source, const std::string& from, const std::string& to) {
    const std::size_t at = source.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    const EncoderLookup lookup = read_encoder(source.replace(at, from.size(), to), "e.py");
    EXPECT_FALSE(lookup.profile) << from << " -> " << to;
    return lookup.note;
  };
  EXPECT_EQ(note(kPreviewEncoder, "\"tool_calls\"", "\" calls\""),
            "no chat encoder: e.py holds another grammar: tool_calls_block_name is \" calls\", "
            "expected \"tool_calls\"");
  EXPECT_EQ(note(kPreviewEncoder, "\"<｜User｜>\"", "\"<|user|>\""),
            "no chat encoder: e.py holds another grammar: USER_SP_TOKEN is \"<|user|>\", expected "
            "\"<｜User｜>\"");
  EXPECT_EQ(note(kPreviewEncoder, "{tool_schemas}", "{schemas}"),
            "no chat encoder: e.py has no TOOLS_TEMPLATE with {tool_schemas}");
  EXPECT_EQ(note(kPreviewEncoder, "REASONING_EFFORT_MAX", "OTHER"),
            "no chat encoder: e.py has no reasoning effort texts");
  EXPECT_EQ(note(kPreviewEncoder, "dsml_token = ", "dsml_token = '''"),
            "no chat encoder: e.py: line 41: a string is never closed");
}

TEST(EncoderProfile, ForcedProfileTakesTheTextsThereAre) {
  const EncoderLookup lookup = read_encoder(k0731Encoder, "e.py", "preview");
  ASSERT_TRUE(lookup.profile);
  EXPECT_EQ(lookup.profile->kind, ProfileKind::kPreview);
  EXPECT_NE(lookup.profile->tools_template, "");
  EXPECT_TRUE(lookup.profile->effort_texts.empty());
  EXPECT_THROW(read_encoder(k0731Encoder, "e.py", "v5"), Error);
}

class EncoderFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ =
        std::filesystem::temp_directory_path() / ("nibble_encoder_" + std::to_string(getpid()));
    std::filesystem::create_directories(model_ / "encoding");
  }
  void TearDown() override { std::filesystem::remove_all(model_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(model_ / "encoding" / name) << text;
  }
  std::filesystem::path model_;
};

TEST_F(EncoderFolder, TheFirstFileThatIsAnEncoderCounts) {
  write("a_helper.py", "import os\n");
  write("encoding_dsv4.py", k0731Encoder);
  write("readme.txt", kPreviewEncoder);
  const EncoderLookup lookup = find_encoder(model_);
  ASSERT_TRUE(lookup.profile) << lookup.note;
  EXPECT_EQ(lookup.profile->kind, ProfileKind::k0731);
  EXPECT_EQ(lookup.profile->source, (model_ / "encoding" / "encoding_dsv4.py").string());
  EXPECT_EQ(find_encoder(model_, "preview").profile->kind, ProfileKind::kPreview);
}

TEST_F(EncoderFolder, NothingThereIsNoError) {
  EXPECT_FALSE(find_encoder(model_).profile);
  EXPECT_NE(find_encoder(model_).note.find("holds no readable .py file"), std::string::npos);
  EXPECT_FALSE(find_encoder(model_ / "nowhere").profile);
  write("a.py", "A = '");
  EXPECT_NE(find_encoder(model_).note.find("a.py: line 1: a string is never closed"),
            std::string::npos);
  const EncoderLookup forced = find_encoder(model_, "0731");
  ASSERT_TRUE(forced.profile);
  EXPECT_EQ(forced.profile->kind, ProfileKind::k0731);
  EXPECT_TRUE(forced.profile->tools_template.empty());
  try {
    find_encoder(model_ / "nowhere", "jinja");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kUsage);
    EXPECT_STREQ(error.what(), "--encoder jinja: expected preview or 0731");
  }
}

TEST(EncoderProfile, TheBundledModelHasThePreviewGrammar) {
  const EncoderLookup lookup = find_encoder(std::string(NIBBLE_SOURCE_DIR) + "/models/tiny");
  ASSERT_TRUE(lookup.profile) << lookup.note;
  EXPECT_EQ(lookup.profile->kind, ProfileKind::kPreview);
  EXPECT_TRUE(lookup.profile->task_tokens.empty());
  EXPECT_NE(lookup.profile->response_format_template, "");
}

// Field case 8: every spelling, for both profiles.
TEST(Thinking, EverySpellingGivesTheSame) {
  EncoderProfile preview;
  EncoderProfile newer;
  newer.kind = ProfileKind::k0731;
  const struct {
    const EncoderProfile& profile;
    const char* effort;
    ThinkingMode mode;
    const char* expected;
  } kCases[] = {
      {preview, "none", ThinkingMode::kChat, ""},
      {preview, "high", ThinkingMode::kThinking, "high"},
      {preview, "max", ThinkingMode::kThinking, "max"},
      {preview, "xhigh", ThinkingMode::kThinking, "max"},
      {newer, "none", ThinkingMode::kChat, ""},
      {newer, "low", ThinkingMode::kThinking, "low"},
      {newer, "high", ThinkingMode::kThinking, "high"},
      {newer, "max", ThinkingMode::kThinking, "max"},
      {newer, "xhigh", ThinkingMode::kThinking, "max"},
  };
  for (const auto& c : kCases) {
    ThinkingSwitches top;
    top.reasoning_effort = c.effort;
    ThinkingSwitches kwargs;
    kwargs.kwargs_reasoning_effort = c.effort;
    ThinkingSwitches both = top;
    both.kwargs_reasoning_effort = c.effort;
    both.thinking = both.kwargs_thinking = c.mode == ThinkingMode::kThinking;
    for (const ThinkingSwitches& switches : {top, kwargs, both}) {
      const auto thinking = resolve_thinking(c.profile, switches);
      ASSERT_TRUE(thinking.ok()) << thinking.status().message;
      EXPECT_EQ(thinking->mode, c.mode) << c.effort;
      EXPECT_EQ(thinking->effort, c.expected);
    }
  }
  EXPECT_EQ(resolve_thinking(preview, {})->mode, ThinkingMode::kChat);
  ThinkingSwitches on;
  on.thinking = true;
  EXPECT_EQ(resolve_thinking(preview, on)->mode, ThinkingMode::kThinking);
  EXPECT_EQ(resolve_thinking(preview, on)->effort, "");
}

TEST(Thinking, UnknownAndContradictingSwitchesAreRefused) {
  EncoderProfile preview;
  EncoderProfile newer;
  newer.kind = ProfileKind::k0731;
  ThinkingSwitches switches;
  switches.reasoning_effort = "low";
  auto result = resolve_thinking(preview, switches);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().message,
            "reasoning_effort \"low\" is not known to this model; allowed: none, high, max, xhigh");
  EXPECT_EQ(result.status().param, "reasoning_effort");
  switches.reasoning_effort = "medium";
  result = resolve_thinking(newer, switches);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().message,
            "reasoning_effort \"medium\" is not known to this model; allowed: none, low, high, "
            "max, xhigh");

  switches.reasoning_effort = "high";
  switches.thinking = false;
  result = resolve_thinking(newer, switches);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().message, "thinking (disabled) contradicts reasoning_effort (high)");
  switches.reasoning_effort = "none";
  switches.thinking = true;
  EXPECT_FALSE(resolve_thinking(newer, switches).ok());
  switches = {};
  switches.reasoning_effort = "high";
  switches.kwargs_reasoning_effort = "max";
  result = resolve_thinking(newer, switches);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().param, "chat_template_kwargs.reasoning_effort");
  switches = {};
  switches.thinking = true;
  switches.kwargs_thinking = false;
  EXPECT_FALSE(resolve_thinking(newer, switches).ok());
}

}  // namespace
}  // namespace nibble::text

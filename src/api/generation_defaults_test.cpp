#include "api/generation_defaults.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "nibble/status.h"

namespace nibble::api {
namespace {

class GenerationDefaultsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / "nibble_generation_defaults";
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  GenerationDefaults read(const std::string& json) {
    std::ofstream(folder_ / "generation_config.json") << json;
    return read_generation_defaults(folder_);
  }
  // The message of the refusal.
  std::string refusal(const std::string& json) {
    try {
      read(json);
      return "accepted";
    } catch (const CheckpointError& error) {
      return error.what();
    }
  }

  std::filesystem::path folder_;
};

TEST_F(GenerationDefaultsTest, WithoutAFileNothingIsCut) {
  const SamplingParams sampling = read_generation_defaults(folder_).sampling;
  EXPECT_EQ(sampling.temperature, 1.0f);
  EXPECT_TRUE(sampling.top_p == 1.0f && sampling.top_k == 0 && sampling.min_p == 0.0f);
  EXPECT_EQ(sampling.repetition_penalty, 1.0f);
}

TEST_F(GenerationDefaultsTest, EveryKey) {
  const GenerationDefaults defaults = read(
      R"({"do_sample":true,"temperature":0.6,"top_p":0.95,"top_k":20,"min_p":0.05,"repetition_penalty":1.1})");
  EXPECT_EQ(defaults.sampling.temperature, 0.6f);
  EXPECT_EQ(defaults.sampling.top_p, 0.95f);
  EXPECT_EQ(defaults.sampling.top_k, 20);
  EXPECT_EQ(defaults.sampling.min_p, 0.05f);
  EXPECT_EQ(defaults.sampling.repetition_penalty, 1.1f);
  EXPECT_TRUE(defaults.notes.empty());
  EXPECT_EQ(read(R"({"top_k":-1,"min_p":null})").sampling.top_k, 0);
}

TEST_F(GenerationDefaultsTest, DoSampleFalseIsGreedy) {
  EXPECT_EQ(read(R"({"do_sample":false,"temperature":0.6})").sampling.temperature, 0.0f);
}

TEST_F(GenerationDefaultsTest, NamesWhatItDoesNotFollow) {
  const GenerationDefaults defaults = read(R"({"typical_p":0.5,"num_beams":1})");
  ASSERT_EQ(defaults.notes.size(), 1u);
  EXPECT_NE(defaults.notes[0].find("typical_p 0.5"), std::string::npos);
}

TEST_F(GenerationDefaultsTest, RefusesByKey) {
  for (const char* key : {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"})
    for (const char* value : {"-2", "\"1\"", "1e400"})
      EXPECT_NE(refusal(std::string("{\"") + key + "\":" + value + "}").find(key),
                std::string::npos)
          << key << " " << value;
  EXPECT_NE(refusal("[]").find("expected a JSON object"), std::string::npos);
}

}  // namespace
}  // namespace nibble::api

// Whole audits, in the process: many threads, damaged files beside whole ones, progress.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "audit/audit.h"
#include "base/sha256.h"
#include "checkpoint/testing/mini_checkpoint.h"
#include "nibble/status.h"

namespace nibble::audit {
namespace {

using checkpoint::testing::safetensors_bytes;
using checkpoint::testing::TempFolder;

std::map<std::string, std::string> verdicts(const Report& report) {
  std::map<std::string, std::string> verdicts;
  for (const FileReport& file : report.files) verdicts[file.name] = verdict(file);
  return verdicts;
}

// 40 shards of a megabyte with a lock file; every seventh is not what the lock says.
void write_many(const TempFolder& folder) {
  folder.write("config.json", "{}");
  folder.write("tokenizer.json", "{}");
  std::string lock;
  for (int i = 0; i < 40; ++i) {
    const std::string name = "part" + std::to_string(i) + ".safetensors";
    std::string bytes = safetensors_bytes(
        {{"t" + std::to_string(i), "U8", {1 << 20}, std::string(1 << 20, static_cast<char>(i))}});
    lock += ",\"" + name + R"(":{"size":)" + std::to_string(bytes.size()) + R"(,"sha256":")" +
            sha256_hex(std::as_bytes(std::span(bytes))) + "\"}";
    if (i % 7 == 0) bytes.back() = 'x';
    folder.write(name, bytes);
  }
  folder.write("nibble.lock.json", R"({"version":1,"files":{)" + lock.substr(1) + "}}");
}

TEST(AuditRun, IsTheSameWithAnyNumberOfThreads) {
  const TempFolder folder;
  write_many(folder);
  std::map<std::string, std::string> expected;
  for (int i = 0; i < 40; ++i)
    expected["part" + std::to_string(i) + ".safetensors"] = i % 7 == 0 ? "hash_mismatch" : "ok";
  expected["config.json"] = expected["tokenizer.json"] = "not_in_lock";
  expected["nibble.lock.json"] = "ok";
  for (const int threads : {1, 2, 3, 8, 64}) {
    Options options;
    options.threads = threads;
    double last = 0;
    const Report report = audit(folder.path(), options, [&](double fraction) {
      EXPECT_GE(fraction, last);
      EXPECT_LE(fraction, 1.0);
      last = fraction;
    });
    EXPECT_EQ(verdicts(report), expected) << threads;
    EXPECT_TRUE(refused(report));
  }
}

TEST(AuditRun, OneDamagedFileDoesNotStopTheOthers) {
  const TempFolder folder;
  folder.write("a.safetensors", "short");
  folder.write("b.safetensors", safetensors_bytes("{\"x\":"));
  folder.write("c.safetensors", safetensors_bytes({checkpoint::testing::f32("x", {1}, {1})}));
  folder.write("config.json", "{");
  folder.write("tokenizer.json", "{}");
  const std::map<std::string, std::string> expected = {{"a.safetensors", "truncated"},
                                                       {"b.safetensors", "safetensors_broken"},
                                                       {"c.safetensors", "ok"},
                                                       {"config.json", "json_broken"},
                                                       {"tokenizer.json", "ok"}};
  EXPECT_EQ(verdicts(audit(folder.path(), {}, nullptr)), expected);
}

TEST(AuditRun, AllowedCodesAreNotes) {
  const TempFolder folder;
  folder.write("model.safetensors", safetensors_bytes({checkpoint::testing::f32("x", {1}, {1})}));
  folder.write("config.json", R"({"auto_map":{"AutoModel":"m.M"}})");
  folder.write("tokenizer.json", "{}");
  EXPECT_TRUE(refused(audit(folder.path(), {}, nullptr)));
  Options options;
  options.allowed = {Code::kAutoMap};
  const Report report = audit(folder.path(), options, nullptr);
  EXPECT_FALSE(refused(report));
  EXPECT_EQ(verdicts(report).at("config.json"), "auto_map");
}

TEST(AuditRun, NeedsAFolder) {
  const TempFolder folder;
  folder.write("file", "");
  EXPECT_THROW(audit(folder / "file", {}, nullptr), CheckpointError);
  EXPECT_THROW(audit(folder / "nowhere", {}, nullptr), CheckpointError);
}

}  // namespace
}  // namespace nibble::audit

// The small parts: names, file kinds, hashes, lock files, zip directories, JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "audit/expected_hashes.h"
#include "audit/file_hash.h"
#include "audit/file_kind.h"
#include "audit/json_walk.h"
#include "audit/name_check.h"
#include "audit/zip_listing.h"
#include "base/sha256.h"

namespace nibble::audit {
namespace {

using namespace std::string_literals;
using ::testing::ElementsAre;

checkpoint::File memory_file(const std::string& bytes) {
  const int fd = memfd_create("audit_test", MFD_CLOEXEC);
  EXPECT_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  return {fd, "memory"};
}

TEST(NameCheck, ProblemsAndPrinting) {
  for (const char* good :
       {"config.json", "a b.txt", "encoding/tests/x.json", "架构.png", ".gitattributes"})
    EXPECT_FALSE(name_problem(good)) << good;
  for (const char* bad : {"a\nb", "\x1b[2J", "a\x7f", "a\\b", "caf\xe9", "a\u202eb", "a\u200bb",
                          "\u0085", "a ", " a", "d /x", "a.", "sub./x", "\ufeff"})
    EXPECT_TRUE(name_problem(bad)) << printable(bad);
  EXPECT_EQ(printable("a\x1b\xc3\xa9"), "a\\x1b\\xc3\\xa9");
  EXPECT_EQ(case_key("Config.JSON"), "config.json");
}

TEST(FileKind, ByName) {
  EXPECT_EQ(kind_of("encoding/encoding_dsv4.py"), FileKind::kEncoder);
  EXPECT_EQ(kind_of("encoding/tests/x.py"), FileKind::kPython);
  EXPECT_EQ(kind_of("inference/model.py"), FileKind::kPython);
  EXPECT_EQ(kind_of("PYTORCH_MODEL.BIN"), FileKind::kPickle);
  EXPECT_EQ(kind_of("sub/nibble.lock.json"), FileKind::kJson);
  EXPECT_EQ(kind_of("LICENSE-MODEL"), FileKind::kDocument);
  EXPECT_EQ(kind_of(".cache/huggingface/download/config.json.metadata"), FileKind::kHubMetadata);
  EXPECT_EQ(kind_of("config.json.metadata"), FileKind::kUnknown);
  EXPECT_TRUE(matters("config.json"));
  EXPECT_FALSE(matters("inference/config.json"));
}

TEST(FileHash, AsGitAndTheHubsDo) {
  const auto ignore = [](std::int64_t) {};
  // `printf 'hello\n' | git hash-object --stdin`, and of nothing.
  EXPECT_EQ(hash_file(memory_file("hello\n"), HashKind::kGitBlob, ignore),
            "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(hash_file(memory_file(""), HashKind::kGitBlob, ignore),
            "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  const std::string large(3'500'000, 'x');
  std::int64_t bytes = 0;
  EXPECT_EQ(
      hash_file(memory_file(large), HashKind::kSha256, [&](std::int64_t more) { bytes += more; }),
      sha256_hex(std::as_bytes(std::span(large))));
  EXPECT_EQ(bytes, 3'500'000);
}

TEST(Lock, ReadsWhatPullWrites) {
  std::vector<Finding> findings;
  const std::string sha(64, 'a'), blob(40, 'b');
  const LockFile lock = parse_lock(
      R"({"version":1,"repo":"o/n","revision":"c","more":[1],"files":{"a.safetensors":{"size":7,"sha256":")" +
          sha + R"("},"encoding/x.py":{"size":0,"git_blob":")" + blob + R"(","more":{}}}})",
      findings);
  EXPECT_TRUE(findings.empty());
  ASSERT_EQ(lock.size(), 2u);
  EXPECT_EQ(lock.at("a.safetensors").size, 7);
  EXPECT_EQ(lock.at("a.safetensors").hash->hex, sha);
  EXPECT_EQ(lock.at("encoding/x.py").hash->kind, HashKind::kGitBlob);
}

TEST(Lock, SaysWhatIsWrong) {
  for (const std::string& text :
       {"{}"s, "[]"s, "x"s, "{\"version\":1}"s, "{\"version\":2,\"files\":{}}"s,
        "{\"version\":1,\"files\":[]}"s, "{\"version\":1,\"files\":{}} {}"s,
        "{\"version\":1,\"files\":{\"a\":1}}"s,
        "{\"version\":1,\"files\":{\"a\":{\"size\":\"7\"}}}"s,
        "{\"version\":1,\"files\":{\"a\":{\"sha256\":\"ABCD\"}}}"s,
        "{\"version\":1,\"files\":{\"a\":{},\"a\":{}}}"s, "{\"version\":1,\"files\":{\"a\":{}"s}) {
    std::vector<Finding> findings;
    parse_lock(text, findings);
    ASSERT_FALSE(findings.empty()) << text;
    EXPECT_EQ(findings[0].code, Code::kLockBroken) << text;
  }
  for (const char* name : {"../x", "/x", "a/../b", "a//b", "", "a\\\\b", "a\\u0000"}) {
    std::vector<Finding> findings;
    parse_lock(R"({"version":1,"files":{")"s + name + R"(":{"size":1}}})", findings);
    ASSERT_EQ(findings.size(), 1u) << name;
    EXPECT_EQ(findings[0].code, Code::kPathTraversal) << name;
  }
}

TEST(HubMetadata, TakesTheTag) {
  const std::string sha(64, 'a');
  EXPECT_EQ(parse_hub_metadata("rev\n" + sha + "\n17.5\n")->hex, sha);
  EXPECT_EQ(parse_hub_metadata("rev\nW/\"" + sha + "\"\n")->hex, sha);
  EXPECT_EQ(parse_hub_metadata("rev\n" + sha.substr(24) + "\n")->kind, HashKind::kGitBlob);
  for (const char* text : {"", "rev", "rev\n", "rev\n\"abc\"\n", "rev\nno hash at all\n"})
    EXPECT_FALSE(parse_hub_metadata(text)) << text;
}

std::string zip_entry(const std::string& name) {
  std::string entry = "PK\1\2" + std::string(42, '\0');
  entry[28] = static_cast<char>(name.size());
  return entry + name;
}

std::string zip_end(std::size_t directory_bytes, int entries) {
  std::string end = "PK\5\6" + std::string(18, '\0');
  end[10] = static_cast<char>(entries);
  end[12] = static_cast<char>(directory_bytes & 0xFF);
  end[13] = static_cast<char>(directory_bytes >> 8);
  return end;
}

TEST(ZipListing, ReadsTheDirectory) {
  const std::string directory = zip_entry("a/data.pkl") + zip_entry("b");
  const std::string zip =
      "anything in front" + directory + zip_end(directory.size(), 2) + "a comment";
  EXPECT_THAT(*list_zip(memory_file(zip)), ElementsAre("a/data.pkl", "b"));
  EXPECT_FALSE(list_zip(memory_file("no zip at all, but longer than a record")));
  EXPECT_FALSE(list_zip(memory_file("PK\5\6")));
  EXPECT_FALSE(list_zip(memory_file("weights" + zip_end(60000, 2))))
      << "a directory longer than the file";
  EXPECT_FALSE(list_zip(memory_file(std::string(100, 'w') + zip_end(90, 2))))
      << "a directory that is none";
}

std::vector<std::string> shown(std::string_view text) {
  std::vector<std::string> shown;
  const auto problem = walk_json(text, [&](const JsonPath& path, std::string_view value) {
    shown.push_back(path_text(path) + "=" + std::string(value));
  });
  if (problem) shown.push_back(std::string(name_of(problem->code)));
  return shown;
}

TEST(JsonWalk, ShowsEveryString) {
  EXPECT_THAT(shown(R"({"a":"x","b":[1,{"c":"y"},"z",null,true],"a":"again","d\u005f":"\u0041"})"),
              ElementsAre("a=x", "b[1].c=y", "b[2]=z", "a=again", "d_=A"));
}

TEST(JsonWalk, ReadsToTheLastByte) {
  for (const char* text : {"", "x", "1", "\"x\"", "{", "{\"a\":}", "{\"a\":tru}", "{\"a\":nul}",
                           "{\"a\":1x}", "[1,]", "{\"a\":1} 2", "{\"a\":\"\\ud83d\"}", "[1e400]"})
    EXPECT_THAT(shown(text), ElementsAre("json_broken")) << text;
  EXPECT_THAT(shown("{\"a\":\"\xff\"}"), ElementsAre("invalid_utf8"));
  EXPECT_THAT(shown(std::string(100, '[')), ElementsAre("json_nested"));
  EXPECT_THAT(shown(std::string(60, '[') + std::string(60, ']')), ElementsAre());
}

}  // namespace
}  // namespace nibble::audit

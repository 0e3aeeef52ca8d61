#include "hub/cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/folder.h"
#include "checkpoint/testing/mini_checkpoint.h"
#include "hub/lock_file.h"
#include "hub/partial_file.h"
#include "nibble/status.h"

namespace nibble::hub {
namespace {

namespace fs = std::filesystem;
using checkpoint::testing::TempFolder;

const std::string kCommit(40, 'c');

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(RepoCache, LinksAreRelativeAndReadable) {
  const TempFolder folder;
  const RepoCache cache(folder.path(), *parse_repo_name("a/b"));
  folder.write("models--a--b/blobs/0123", "top");
  folder.write("models--a--b/blobs/4567", "below");
  cache.link(kCommit, "config.json", "4567");
  cache.link(kCommit, "config.json", "0123");  // again, elsewhere
  cache.link(kCommit, "encoding/x/y.py", "4567");
  const fs::path snapshot = cache.snapshot(kCommit);
  EXPECT_EQ(fs::read_symlink(snapshot / "config.json"), "../../blobs/0123");
  EXPECT_EQ(fs::read_symlink(snapshot / "encoding/x/y.py"), "../../../../blobs/4567");
  EXPECT_EQ(checkpoint::Folder(snapshot.string()).read_text("config.json", 10), "top");
  std::ifstream below(snapshot / "encoding/x/y.py");
  std::string word;
  EXPECT_TRUE(below >> word);
  EXPECT_EQ(word, "below");
}

TEST(RepoCache, RevisionsNameSnapshots) {
  const TempFolder folder;
  const RepoCache branch(folder.path(), *parse_repo_name("a/b@refs/pr/1"));
  EXPECT_FALSE(branch.cached_snapshot());
  branch.write_ref(kCommit);
  EXPECT_EQ(branch.cached_commit(), kCommit);
  EXPECT_FALSE(branch.cached_snapshot()) << "no such folder yet";
  fs::create_directories(branch.snapshot(kCommit));
  EXPECT_EQ(branch.cached_snapshot(), branch.snapshot(kCommit));
  const RepoCache pinned(folder.path(), *parse_repo_name("a/b@" + kCommit));
  EXPECT_EQ(pinned.cached_snapshot(), branch.snapshot(kCommit));
  EXPECT_FALSE(RepoCache(folder.path(), *parse_repo_name("a/b")).cached_snapshot());
}

TEST(RepoCache, ARefThatWalksIsNotFollowed) {
  const TempFolder folder;
  const RepoCache cache(folder.path(), *parse_repo_name("a/b"));
  for (const char* ref : {"../../..", "..", "/etc", "", " "}) {
    folder.write("models--a--b/refs/main", ref);
    EXPECT_FALSE(cache.cached_snapshot()) << ref;
  }
}

TEST(RepoCache, SaysWhatCouldBeDeleted) {
  const TempFolder folder;
  const RepoCache cache(folder.path(), *parse_repo_name("a/b"));
  folder.write("models--old--one/blobs/x", std::string(100'000, 'x'));
  folder.write("datasets--some--data/blobs/x", std::string(300'000, 'x'));
  folder.write("models--a--b/blobs/keep", std::string(500'000, 'x'));
  folder.write("models--a--b/blobs/keep.nibble-incomplete", std::string(500'000, 'x'));
  folder.write("models--a--b/blobs/other", std::string(200'000, 'x'));
  folder.write("version.txt", "1");
  const auto found = removable(cache, {"keep"});
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].what, "datasets some/data");
  EXPECT_EQ(found[1].what, "a/b: files of other revisions");
  EXPECT_EQ(found[2].what, "old/one");
  EXPECT_GE(found[1].bytes, 200'000);
  EXPECT_LT(found[1].bytes, 300'000);
}

TEST(PartialFile, RemembersWhatIsThere) {
  const TempFolder folder;
  const std::string blob = folder / "blob";
  {
    PartialFile file(blob, 100, PartialFile::Start::kResume);
    EXPECT_FALSE(file.resumed());
    EXPECT_EQ(file.missing(60), (std::vector<ByteRange>{{0, 60}, {60, 100}}));
    file.begin("\"tag\"");
    file.write(10, bytes_of("0123456789"));
    file.note({10, 20});
    file.write(40, bytes_of("0123456789"));
    file.note({40, 50});
    file.write(20, bytes_of("01234"));
    file.note({20, 25});
  }
  PartialFile file(blob, 100, PartialFile::Start::kResume);
  EXPECT_TRUE(file.resumed());
  EXPECT_EQ(file.etag(), "\"tag\"");
  EXPECT_EQ(file.missing(1000), (std::vector<ByteRange>{{0, 10}, {25, 40}, {50, 100}}));
  EXPECT_EQ(file.present_bytes(), 25);
}

TEST(PartialFile, StartsAfreshWhereItCannotBeSure) {
  const TempFolder folder;
  const std::string blob = folder / "blob";
  const auto leave = [&](const std::string& etag) {
    PartialFile file(blob, 100, PartialFile::Start::kAfresh);
    file.begin(etag);
    file.write(0, bytes_of("0123456789"));
    file.note({0, 10});
  };
  const auto resumes = [&](std::int64_t size) {
    return PartialFile(blob, size, PartialFile::Start::kResume).resumed();
  };
  leave("");  // the server has no entity tag: nothing to compare with
  EXPECT_FALSE(resumes(100));
  leave("\"tag\"");
  EXPECT_FALSE(resumes(101)) << "another size";
  leave("\"tag\"");
  fs::resize_file(blob + ".nibble-incomplete", 5);
  EXPECT_FALSE(resumes(100)) << "shorter than noted";
  leave("\"tag\"");
  std::ofstream(blob + ".nibble-parts", std::ios::app) << "20 9";  // was being written
  EXPECT_TRUE(resumes(100));
  leave("\"tag\"");
  std::ofstream(blob + ".nibble-parts", std::ios::app) << "-1 9\n";
  EXPECT_FALSE(resumes(100));
}

TEST(PartialFile, AnAbandonedOneDoesNotWriteIntoItsSuccessor) {
  const TempFolder folder;
  const std::string blob = folder / "blob";
  PartialFile before(blob, 4, PartialFile::Start::kAfresh);
  before.begin("\"1\"");
  PartialFile after(blob, 4, PartialFile::Start::kAfresh);
  after.begin("\"2\"");
  after.write(0, bytes_of("good"));
  before.write(0, bytes_of("evil"));
  after.note({0, 4});
  before.note({0, 4});
  const FileHash git{"", "0000000000000000000000000000000000000000"};
  // git hash-object of a file that holds "good".
  EXPECT_EQ(after.hash(git, nullptr), "476e93d5714117cb50143dbe653f4b2b5a1d4b18");
  after.finish();
  std::ifstream file(blob);
  std::string word;
  EXPECT_TRUE(file >> word);
  EXPECT_EQ(word, "good");
}

TEST(LockFile, ReadsWhatItWrites) {
  LockFile lock{"a/b", kCommit, {}};
  lock.files["config.json"] = {"config.json", 3, {"", std::string(40, '1')}};
  lock.files["x \"y\".json"] = {"x \"y\".json", 0, {std::string(64, 'a'), ""}};
  const LockFile read = parse_lock_file("lock", lock_file_text(lock));
  EXPECT_EQ(read.repo, "a/b");
  EXPECT_EQ(read.commit, kCommit);
  ASSERT_EQ(read.files.size(), 2U);
  for (const auto& [path, file] : lock.files) {
    EXPECT_EQ(read.files.at(path).size, file.size);
    EXPECT_EQ(read.files.at(path).hash, file.hash);
  }
  EXPECT_NO_THROW(parse_lock_file("lock", lock_file_text({"a/b", kCommit, {}})));
}

TEST(LockFile, RefusesTheRest) {
  // @: what stands before "files", #: a SHA-256.
  const auto spelled = [](std::string text) {
    const std::string head =
        fmt::format(R"({{"version": 1, "repo": "a/b", "revision": "{}", "files": )", kCommit);
    if (text.starts_with('@')) text.replace(0, 1, head);
    if (const auto at = text.find('#'); at != std::string::npos)
      text.replace(at, 1, std::string(64, 'a'));
    return text;
  };
  EXPECT_NO_THROW(parse_lock_file("lock", spelled(R"(@{"x": {"size": 1, "sha256": "#"}}})")));
  for (const char* form :
       {"{}", "[]", "@[]}", R"(@{"../x": {"size": 1, "sha256": "#"}}})",
        R"(@{"x": {"size": -1, "sha256": "#"}}})", R"(@{"x": {"size": 1}}})",
        R"(@{"x": {"size": 1, "sha256": "abc"}}})",
        R"(@{"x": {"size": 1, "sha256": "#"}, "x": {"size": 1, "sha256": "#"}}})", R"(@{}} x)",
        R"(@{}, "version": 2})"}) {
    const std::string text = spelled(form);
    EXPECT_THROW(parse_lock_file("lock", text), CheckpointError) << text;
  }
}

}  // namespace
}  // namespace nibble::hub

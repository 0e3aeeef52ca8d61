#include "hub/repo.h"

#include <gtest/gtest.h>

#include "hub/listing.h"
#include "hub/selection.h"

namespace nibble::hub {
namespace {

TEST(RepoName, Parses) {
  const auto name = parse_repo_name("deepseek-ai/DeepSeek-V4-Flash");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->id, "deepseek-ai/DeepSeek-V4-Flash");
  EXPECT_EQ(name->revision, "main");
  EXPECT_EQ(name->folder(), "models--deepseek-ai--DeepSeek-V4-Flash");
  EXPECT_EQ(name->text(), "deepseek-ai/DeepSeek-V4-Flash");
  const auto pinned = parse_repo_name("a/b@refs/pr/7");
  ASSERT_TRUE(pinned);
  EXPECT_EQ(pinned->revision, "refs/pr/7");
  EXPECT_EQ(pinned->text(), "a/b@refs/pr/7");
}

TEST(RepoName, RefusesWhatIsNoneOrCouldWalkTheDisk) {
  for (const char* text :
       {"",        "a",          "a/",     "/a",      "a/b/c",    "../b",    "a/..",
        "a/.b",    ".a/b",       "-a/b",   "a--b/c",  "a/b--c",   "a b/c",   "a/b@",
        "a/b@..",  "a/b@x/../y", "a/b@/x", "a/b@x/",  "a/b@x//y", "a/b@.x",  "a/b@-x",
        "a/b@x@y", "a/b@x y",    "a/b\n",  "a/b@x\n", "a\\b/c",   "a/b@x\\y"})
    EXPECT_FALSE(parse_repo_name(text)) << text;
  EXPECT_FALSE(parse_repo_name(std::string("a/b\0c", 5)));
  EXPECT_FALSE(parse_repo_name("a/" + std::string(97, 'x')));
  EXPECT_FALSE(parse_repo_name("a/b@" + std::string(256, 'x')));
}

TEST(RepoName, KnowsCommits) {
  EXPECT_TRUE(is_commit(std::string(40, 'a')));
  EXPECT_FALSE(is_commit(std::string(39, 'a')));
  EXPECT_FALSE(is_commit(std::string(40, 'A')));
  EXPECT_FALSE(is_commit(std::string(39, 'a') + "/"));
}

TEST(Selection, TakesWhatAModelIsMadeOf) {
  const Selection own;
  for (const char* path : {"config.json", "model-00001-of-00046.safetensors", "LICENSE",
                           "LICENSE.txt", "README.md", "encoding/encoding_dsv4.py"})
    EXPECT_TRUE(is_selected(own, path)) << path;
  for (const char* path : {"pytorch_model.bin", "inference/model.py", "original/x.safetensors",
                           "modeling.py", "encoding/sub/x.py", ".gitattributes", "assets/a.png"})
    EXPECT_FALSE(is_selected(own, path)) << path;
}

TEST(Selection, TakesMoreWhereAsked) {
  const Selection more{false, {"inference/*", "*.jinja"}};
  EXPECT_TRUE(is_selected(more, "inference/kernels/a.py"));
  EXPECT_TRUE(is_selected(more, "chat_template.jinja"));
  EXPECT_TRUE(is_selected(more, "config.json"));
  EXPECT_FALSE(is_selected(more, "x.bin"));
  EXPECT_TRUE(is_selected(Selection{true, {}}, "x.bin"));
  EXPECT_FALSE(is_selected(Selection{true, {}}, "nibble.lock.json"));
  EXPECT_FALSE(is_selected(Selection{true, {}}, "a/NIBBLE.LOCK.JSON"));
}

TEST(Link, FindsTheNextPage) {
  EXPECT_EQ(next_link("<https://h/x?cursor=1>; rel=\"next\""), "https://h/x?cursor=1");
  EXPECT_EQ(next_link("</a>; rel=\"prev\", </b>; rel=\"next\""), "/b");
  EXPECT_EQ(next_link("</b>; rel=next"), "/b");
  for (const char* header : {"", "</a>; rel=\"prev\"", "<", "<x", "rel=\"next\"", "x"})
    EXPECT_EQ(next_link(header), "") << header;
}

}  // namespace
}  // namespace nibble::hub

#include "hub/url.h"

#include <gtest/gtest.h>

namespace nibble::hub {
namespace {

TEST(Url, ParsesWhatAHubUses) {
  const auto url = parse_url("HTTPS://Hub.Example:443/a/b?c=d#e");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->origin(), "https://hub.example");
  EXPECT_EQ(url->text(), "https://hub.example/a/b?c=d");
  EXPECT_EQ(parse_url("http://127.0.0.1:8080")->text(), "http://127.0.0.1:8080/");
  EXPECT_EQ(parse_url("http://[::1]:80/x")->origin(), "http://[::1]");
  EXPECT_EQ(parse_url("http://h?q=1")->target, "/?q=1");
}

TEST(Url, RefusesWhatTwoParsersCouldReadDifferently) {
  for (const char* text :
       {"", "x", "http://", "http:///x", "ftp://h/", "file:///etc/passwd", "javascript:x",
        "http://user@h/", "http://user:word@h/", "http://h\\@evil/", "http://h /", "http://h/\n",
        "http://h/a b", "http://:80/", "http://h%40evil/", "http://\xc3\xa4/"})
    EXPECT_FALSE(parse_url(text)) << text;
}

TEST(Url, OriginsAreEqualOnlyForOneSchemeHostAndPort) {
  const std::string hub = parse_url("https://hub.example/x")->origin();
  EXPECT_EQ(parse_url("https://HUB.example:443/y")->origin(), hub);
  for (const char* other : {"http://hub.example/", "https://hub.example:8443/",
                            "https://hub.example.evil/", "https://evil/hub.example"})
    EXPECT_NE(parse_url(other)->origin(), hub) << other;
}

TEST(Url, ResolvesLocations) {
  const Url base = *parse_url("https://h:1/a/b/c?q");
  EXPECT_EQ(resolve_url(base, "http://x/y")->text(), "http://x/y");
  EXPECT_EQ(resolve_url(base, "//x/y")->text(), "https://x/y");
  EXPECT_EQ(resolve_url(base, "/y")->text(), "https://h:1/y");
  EXPECT_EQ(resolve_url(base, "y?z")->text(), "https://h:1/a/b/y?z");
  EXPECT_EQ(resolve_url(base, "?z")->text(), "https://h:1/a/b/c?z");
  EXPECT_EQ(resolve_url(base, "/y?u=http://x/")->text(), "https://h:1/y?u=http://x/");
  for (const char* location : {"", "ftp://x/", "mailto:x", "http://u:p@x/", "/a b"})
    EXPECT_FALSE(resolve_url(base, location)) << location;
}

TEST(Url, EncodesEveryByteThatMeansSomething) {
  EXPECT_EQ(percent_encode("a/b-._~Z9", true), "a/b-._~Z9");
  EXPECT_EQ(percent_encode("refs/pr/1", false), "refs%2Fpr%2F1");
  EXPECT_EQ(percent_encode("a b?#%&\xc3\xa4", true), "a%20b%3F%23%25%26%C3%A4");
}

}  // namespace
}  // namespace nibble::hub

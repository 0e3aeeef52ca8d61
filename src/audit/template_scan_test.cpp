// The corpus (tools/audit_corpus/templates.py) holds most attacks; here is what the scanner says about them, and where the lexer
// could be led astray.
#include "audit/template_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <vector>

#include "audit/template_lexer.h"

namespace nibble::audit {
namespace {

using namespace std::string_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> words(std::string_view text) {
  std::vector<std::string> words;
  for (const Token& token : lex_template(text).tokens) words.push_back(token.text);
  return words;
}

std::string problem(std::string_view text) {
  return lex_template(text).problem;
}

TEST(TemplateLexer, CutsTagsAsJinjaDoes) {
  EXPECT_THAT(words("a{{ b.c }}d"), ElementsAre("a", "{{", "b", ".", "c", "}}", "d"));
  EXPECT_THAT(words("{%- set x = 1 -%}"), ElementsAre("{%", "set", "x", "=", "1", "%}"));
  EXPECT_THAT(words("{%+ if a +%}"), ElementsAre("{%", "if", "a", "%}"));
  EXPECT_THAT(words("{{ {'a': {}}}}"), ElementsAre("{{", "{", "a", ":", "{", "}", "}", "}}"));
  EXPECT_THAT(words("{{ '}}' }}"), ElementsAre("{{", "}}", "}}"));
  EXPECT_THAT(words("{{ a }} }} {{ b }}"), ElementsAre("{{", "a", "}}", " }} ", "{{", "b", "}}"));
  EXPECT_THAT(words("{ { % { a"), ElementsAre("{ { % { a"));
  EXPECT_THAT(words("{{ a // b ** c != d }}"),
              ElementsAre("{{", "a", "//", "b", "**", "c", "!=", "d", "}}"));
}

TEST(TemplateLexer, DecodesStrings) {
  EXPECT_THAT(words(R"({{ 'a\'b' "c\"d" '\n\t\\' '\x41\u0042\103' '\q' }})"),
              ElementsAre("{{", "a'b", "c\"d", "\n\t\\", "ABC", "\\q", "}}"));
}

TEST(TemplateLexer, SkipsCommentsAndRawBlocksAndLooksIntoThemLast) {
  EXPECT_THAT(words("a{# {{ b }} #}c{{ d }}"),
              ElementsAre("a", "c", "{{", "d", "}}", "{{", "b", "}}"));
  EXPECT_THAT(words("{% raw %}{{ a }}{% endraw %}b"), ElementsAre("b", "{{", "a", "}}"));
  EXPECT_THAT(words("{%- raw -%}x{%+endraw+%}b"), ElementsAre("b"));
  EXPECT_THAT(words("{%\xE3\x80\x80raw\xC2\xA0%}{#{% endraw %}b"), ElementsAre("b"));
  // No raw blocks in Jinja's eyes.
  EXPECT_THAT(words("{% rawx %}b"), ElementsAre("{%", "rawx", "%}", "b"));
}

TEST(TemplateLexer, SaysWhatIsBroken) {
  EXPECT_EQ(problem("{{ a }}{% b %}{# c #}"), "");
  EXPECT_THAT(problem("{{ a"), HasSubstr("tag without end"));
  EXPECT_THAT(problem("{{ a %}"), HasSubstr("tag without end"));
  EXPECT_THAT(problem("{# a"), HasSubstr("comment without end"));
  EXPECT_THAT(problem("{% raw %} a {% endrow %}"), HasSubstr("raw block without end"));
  EXPECT_THAT(problem("{{ 'a }}"), HasSubstr("string without end"));
  EXPECT_THAT(problem("{{ a ! b }}"), HasSubstr("byte 0x21"));
}

TEST(TemplateLexer, IsLinear) {
  // Each of these once cost a search to the end for every byte, or would have: minutes where it takes milliseconds.
  constexpr double kLimit_s = 10;
  for (const std::string& piece : {"{{ "s, "{% raw %}"s, "{# "s, "\\'"s, "{{ '{{ "s, "'\""s,
                                   "{%  "s, "__"s, "{{'_'"s, "{% for "s, "{{ x.y }}"s}) {
    std::string text = "{{ '";
    while (text.size() < 500'000) text += piece;
    const std::clock_t begin = std::clock();
    scan_template(text);
    scan_template(std::string_view(text).substr(4));
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, kLimit_s) << piece;
  }
}

std::vector<std::string> reasons(std::string_view text) {
  std::vector<std::string> reasons;
  for (const TemplateHit& hit : scan_template(text).hits) reasons.push_back(hit.why);
  return reasons;
}

TEST(TemplateScan, SaysWhatItFoundAndWhere) {
  const TemplateScan scan = scan_template("{{ a }}\n\n{{ b\n .__class__ }}{% include 'x' %}");
  ASSERT_EQ(scan.hits.size(), 2u);
  EXPECT_EQ(scan.hits[0].code, Code::kTemplateAttributeWalk);
  EXPECT_EQ(scan.hits[0].line, 4);
  EXPECT_EQ(scan.hits[0].why, "attribute '__class__'");
  EXPECT_EQ(scan.hits[1].code, Code::kTemplateImport);
  EXPECT_EQ(scan.problem, "");
}

TEST(TemplateScan, NamesTheKind) {
  EXPECT_THAT(reasons("{{ x|attr('a') }}"), ElementsAre("the attr filter"));
  EXPECT_THAT(reasons("{{ x['\\x5fa'] }}"), ElementsAre(HasSubstr("with escapes")));
  EXPECT_THAT(reasons("{% set a = '__cl' %}{% set b = 'ass__' %}"),
              ElementsAre("its strings, put together, spell __class__"));
  EXPECT_THAT(reasons("{% set b = 'ass__' %}{% set a = '__cl' %}"),
              ElementsAre(HasSubstr("two ends of a name")));
  EXPECT_THAT(reasons("{{ x['__ssalc__'] }}"),
              ::testing::Contains(HasSubstr("__class__ backwards")));
  EXPECT_THAT(reasons("{{ lipsum }}"), ElementsAre(HasSubstr("lipsum")));
}

TEST(TemplateScan, OwnNamesAndProseAreFine) {
  for (const char* text :
       {"{% for request in requests %}{{ request.text }}{% endfor %}",
        "{{ 'begin with __init__ here' }}", "{{ 'call __init__ ' ~ name ~ ' and __class__ too' }}",
        "{{ 'use __init__ now' if tools else 'do not use __init__' }}", "text with __class__ in it",
        "{{ name.split('__')[0] }}{{ x | replace('_', '-') }}", "{{ messages[::-1] }}",
        "{{ cycler('a', 'b') }}", "{{ self_harm }}{{ request_id }}", "{{ '-' * 40 }}"})
    EXPECT_THAT(reasons(text), IsEmpty()) << text;
}

TEST(TemplateScan, KeepsTheReportShort) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "{{ a._x" + std::to_string(i) + " }}{{ a._x1 }}";
  EXPECT_EQ(scan_template(text).hits.size(), kMaxTemplateHits);
}

}  // namespace
}  // namespace nibble::audit

#include "audit/codes.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <string>

namespace nibble::audit {
namespace {

TEST(Codes, AreDistinctAndFoundByName) {
  std::set<std::string_view> names;
  for (const CodeInfo& code : all_codes()) {
    EXPECT_TRUE(names.insert(code.name).second) << code.name;
    EXPECT_EQ(name_of(code.code), code.name);
    EXPECT_EQ(severity_of(code.code), code.severity);
    ASSERT_TRUE(code_named(code.name)) << code.name;
    EXPECT_EQ(*code_named(code.name), code.code);
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Code::kHashSkipped) + 1)
      << "a code without a row";
  EXPECT_FALSE(code_named("ok"));
  EXPECT_FALSE(code_named(""));
}

// docs/audit.md: | `code` | severity | ...
TEST(Codes, AreDocumentedWithTheirSeverity) {
  std::ifstream docs(NIBBLE_SOURCE_DIR "/docs/audit.md");
  std::map<std::string, std::string> documented;
  for (std::string line; std::getline(docs, line);) {
    if (!line.starts_with("| `") || line.starts_with("| `--")) continue;
    const std::size_t name_end = line.find('`', 3);
    const std::size_t severity = line.find("| ", name_end) + 2;
    documented[line.substr(3, name_end - 3)] =
        line.substr(severity, line.find(" |", severity) - severity);
  }
  EXPECT_EQ(documented.erase("ok"), 1u);
  for (const CodeInfo& code : all_codes()) {
    const auto row = documented.find(std::string(code.name));
    ASSERT_NE(row, documented.end()) << code.name << " is not in docs/audit.md";
    EXPECT_TRUE(row->second.starts_with(code.severity == Severity::kRefusal ? "refusal" : "note"))
        << code.name << ": " << row->second;
    documented.erase(row);
  }
  EXPECT_TRUE(documented.empty()) << documented.begin()->first << " is in docs/audit.md only";
}

}  // namespace
}  // namespace nibble::audit

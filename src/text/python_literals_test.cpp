#include "text/python_literals.h"

#include <gtest/gtest.h>

#include <fstream>

namespace nibble::text {
namespace {

using Strings = std::map<std::string, std::string>;

Strings strings(std::string_view source) {
  const auto literals = parse_python_literals(source);
  if (!literals) return {{"error", literals.status().message}};
  return literals->strings;
}

TEST(PythonLiterals, EveryKindOfString) {
  EXPECT_EQ(strings("A = 'x'\nB = \"it's\"\n"), (Strings{{"A", "x"}, {"B", "it's"}}));
  EXPECT_EQ(strings("A = '''x\n'y' \"z\"\n'''"), (Strings{{"A", "x\n'y' \"z\"\n"}}));
  EXPECT_EQ(strings("A = \"\"\"\n\\\"\"\"end\"\"\""), (Strings{{"A", "\n\"\"\"end"}}));
  EXPECT_EQ(strings(R"(A = '\n\t\\\'\"\a\b\f\v\x41\u00e9\U0001F600\101\0\q')"),
            (Strings{{"A", std::string("\n\t\\'\"\a\b\f\vAé😀A\0\\q", 20)}}));
  EXPECT_EQ(strings(R"(A = r'\n\'x')"), (Strings{{"A", R"(\n\'x)"}}));
  EXPECT_EQ(strings(R"(A = R"\d" u'\u0041' 'c')"), (Strings{{"A", "\\dAc"}}));
  EXPECT_EQ(strings("A = ('a'  # one\n     \"b\"\n\n     'c')\nB = 'd' \\\n  'e'\n"),
            (Strings{{"A", "abc"}, {"B", "de"}}));
  EXPECT_EQ(strings("A = (('x'))\n"), (Strings{{"A", "x"}}));
  EXPECT_EQ(strings("A = 'one \\\ntwo'\n"), (Strings{{"A", "one two"}}));
  EXPECT_EQ(strings("A: str = 'x'\nB: Dict[str, List[int]] = 'y'; C = 1\n"),
            (Strings{{"A", "x"}, {"B", "y"}}));
  EXPECT_EQ(strings("A = 'a\\r'\r\nB = '''x\r\ny\rz'''\r"),
            (Strings{{"A", "a\r"}, {"B", "x\ny\nz"}}));
  EXPECT_EQ(strings("\xEF\xBB\xBFnaïve = 'ü｜'"), (Strings{{"naïve", "ü｜"}}));
}

TEST(PythonLiterals, EverythingElseIsSteppedOver) {
  EXPECT_EQ(
      strings(
          "import os\n"
          "'''doc: A = 'no' '''\n"
          "# A = 'no'\n"
          "def f(x: str = 'no') -> str:\n"
          "    A = 'no'\n"
          "    return '''\nA = 'no'\n'''\n"
          "class C:\n    A = 'no'\n"
          "G = [\n'no',\nA := 'no',\n]\n"
          "H = ('a',\n'b')\n"
          "I = {\n'A': 'no',\n'k': [1],\n}\n"
          "J = 'a' + K\n"
          "L = b'a'\nM = f'{x}'\nN = '\\N{BULLET}'\nO = '\\ud800'\nP = 'a'.upper()\nQ = 'a' % x\n"
          "R = S = 'a'\nT = f('a')\nif A == 'no':\n    pass\nx.A = 'no'\nA['k'] = 'no'\n"
          "\\\nU = 'continued'\n"
          "Z = 'yes'"),
      (Strings{{"Z", "yes"}}));
}

TEST(PythonLiterals, TheLastAssignmentCounts) {
  EXPECT_EQ(strings("A = 'x'\nA = 'y'\n"), (Strings{{"A", "y"}}));
  EXPECT_EQ(strings("A = 'x'\nA += 'y'\nB = 'x'\nB = f()\nC = 'x'\nC: str\n"),
            (Strings{{"C", "x"}}));
}

TEST(PythonLiterals, Dicts) {
  const auto literals = parse_python_literals(
      "D: Dict[str, str] = {\n  'low': '',\n  \"high\": (\n    'a'\n    'b'\n  ),  # note\n  "
      "'max': '''c'''\n}\n"
      "E = {}\nF = {'a': 1}\nG = {'a': 'b', **D}\nH = {'a', 'b'}\nI = {'a': {'b': 'c'}}\n");
  ASSERT_TRUE(literals.ok());
  const std::map<std::string, Strings> expected = {
      {"D", {{"low", ""}, {"high", "ab"}, {"max", "c"}}}, {"E", {}}};
  EXPECT_EQ(literals->dicts, expected);
  EXPECT_TRUE(literals->strings.empty());
}

TEST(PythonLiterals, DamageIsRefusedWithItsLine) {
  const auto error = [](const std::string& source) {
    const auto literals = parse_python_literals(source);
    return literals ? std::string("accepted") : literals.status().message;
  };
  EXPECT_EQ(error("A = 'x'\nB = 'y\n"), "line 2: a string is never closed");
  EXPECT_EQ(error("A = '''x\n\n"), "line 3: a string is never closed");
  EXPECT_EQ(error("A = '\\"), "line 1: a string is never closed");
  EXPECT_EQ(error("A = (\n'x'\n"), "line 3: a bracket is never closed");
  EXPECT_EQ(error("\n" + std::string(100'000, '(')), "line 2: brackets nested too deep");
  EXPECT_EQ(error("A = " + std::string(100'000, '(') + "'x'"), "line 1: brackets nested too deep");
  EXPECT_EQ(error("A = 'x\xFF'"), "invalid UTF-8 at byte 6");
  EXPECT_EQ(error(std::string(kMaxPythonBytes + 1, '\n')),
            "1048577 bytes, at most 1048576 are read");
}

}  // namespace
}  // namespace nibble::text

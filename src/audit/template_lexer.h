// The words of a Jinja template. What is text, comment, raw block or tag is decided as Jinja's own lexer decides it (Jinja 3,
// default delimiters, no line statements): a scanner that disagrees about where a string ends can be led past anything.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nibble::audit {

enum class TokenKind {
  kText,    // between the tags
  kOpen,    // {{ or {%
  kClose,   // }} or %}
  kName,    // identifiers and keywords
  kString,  // decoded
  kNumber,
  kOperator,  // one character, but for ** // == != <= >=
};

struct Token {
  TokenKind kind;
  std::string text;
  int line = 1;
  bool spelled = false;  // kString: an escape stands for a letter, digit or underscore ("\x5f")
};

struct LexedTemplate {
  std::vector<Token> tokens;
  std::string problem;  // why Jinja would refuse the template; empty: it would lex
};

// Any bytes. What stands in comments, raw blocks and strings cannot run, but is lexed too wherever it looks like a tag, so that a
// mistake here hides nothing; those tags come after the others. Linear in the text's size.
LexedTemplate lex_template(std::string_view text);

}  // namespace nibble::audit

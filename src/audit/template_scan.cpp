#include "audit/template_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <unordered_set>

#include "audit/template_lexer.h"
#include "base/check.h"
#include "checkpoint/quote.h"

namespace nibble::audit {
namespace {

using checkpoint::quote;

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// __WORD__ of these leads from any object to the interpreter.
constexpr std::array<std::string_view, 40> kDunders = {
    "class",     "globals", "init",    "mro",          "subclasses",    "builtins",   "builtin",
    "import",    "base",    "bases",   "getattribute", "getattr",       "dict",       "reduce",
    "reduce_ex", "call",    "self",    "func",         "code",          "closure",    "wrapped",
    "getitem",   "loader",  "spec",    "new",          "del",           "kwdefaults", "defaults",
    "setattr",   "delattr", "module",  "subclasshook", "init_subclass", "get",        "set_name",
    "enter",     "exit",    "prepare", "path",         "annotations"};
// The same without underscores in front.
constexpr std::array<std::string_view, 20> kInternals = {
    "mro",          "f_globals", "f_builtins", "f_locals", "f_back",   "f_code",   "gi_frame",
    "gi_code",      "cr_frame",  "cr_code",    "ag_frame", "ag_code",  "tb_frame", "tb_next",
    "func_globals", "func_code", "im_func",    "im_self",  "im_class", "co_code"};
constexpr std::array<std::string_view, 13> kMethods = {
    "popen",       "Popen", "system",      "check_output",  "eval",        "exec",   "spawn",
    "load_module", "execv", "from_object", "import_module", "from_pyfile", "getattr"};
constexpr std::array<std::string_view, 7> kFunctions = {"eval",    "exec",   "getattr", "globals",
                                                        "compile", "locals", "setattr"};
constexpr std::array<std::string_view, 7> kModules = {"os",  "subprocess", "builtins", "importlib",
                                                      "sys", "posix",      "pty"};
constexpr std::array<std::string_view, 5> kPayloads = {"import os", "import subprocess",
                                                       "os.system", "os.popen", "import sys"};
constexpr std::array<std::string_view, 4> kImports = {"import", "include", "extends", "from"};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// The first __word__ of the list in `text` (lower case), read forwards or backwards.
std::string dunder_in(std::string_view text) {
  for (std::size_t at = text.find("__"); at != std::string_view::npos;
       at = text.find("__", at + 1)) {
    for (const std::string_view word : kDunders) {
      const std::string_view rest = text.substr(at + 2);
      if (rest.starts_with(word) && rest.substr(word.size()).starts_with("__"))
        return fmt::format("__{}__", word);
      if (rest.size() > word.size() && std::equal(word.rbegin(), word.rend(), rest.begin()) &&
          rest.substr(word.size()).starts_with("__"))
        return fmt::format("__{}__ backwards", word);
    }
  }
  return {};
}

bool has_space(std::string_view text) {
  return text.find_first_of(" \t\n\r") != std::string_view::npos;
}

bool is_whole_dunder(std::string_view text) {
  return text.size() > 4 && text.starts_with("__") && text.ends_with("__") && !has_space(text) &&
         text.find_first_not_of('_') != std::string_view::npos;
}

bool is_name(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool only_underscores(std::string_view text) {
  return !text.empty() && text.find_first_not_of('_') == std::string_view::npos;
}

class Scanner {
 public:
  explicit Scanner(const LexedTemplate& lexed) : tokens_(lexed.tokens) {}

  std::vector<TemplateHit> run() {
    note_assigned_names();
    for (at_ = 0; at_ < tokens_.size(); ++at_) {
      const Token& token = tokens_[at_];
      switch (token.kind) {
        case TokenKind::kOpen:
          brackets_.clear();
          block_ = token.text == "{%";
          break;
        case TokenKind::kText:
          remember_text(token);
          break;
        case TokenKind::kOperator:
          if (token.text == "(" || token.text == "[" || token.text == "{")
            brackets_.push_back(token.text[0]);
          if ((token.text == ")" || token.text == "]" || token.text == "}") && !brackets_.empty())
            brackets_.pop_back();
          break;
        case TokenKind::kName:
          look_at_name(token);
          break;
        case TokenKind::kString:
          look_at_string(token);
          break;
        case TokenKind::kNumber:
        case TokenKind::kClose:
          break;
      }
    }
    if (const std::string found = dunder_in(joined_); !found.empty())
      hit(1, fmt::format("its strings, put together, spell {}", found));
    else if (head_line_ > 0 && tail_line_ > 0)
      hit(std::max(head_line_, tail_line_),
          "strings that are the two ends of a name between underscores");
    return std::move(hits_);
  }

 private:
  void hit(int line, std::string why, Code code = Code::kTemplateAttributeWalk) {
    const bool known =
        std::any_of(hits_.begin(), hits_.end(), [&](const TemplateHit& h) { return h.why == why; });
    if (!known && hits_.size() < kMaxTemplateHits) hits_.push_back({code, line, std::move(why)});
  }

  bool is(std::size_t at, TokenKind kind, std::string_view text) const {
    return at < tokens_.size() && tokens_[at].kind == kind && tokens_[at].text == text;
  }
  bool op_before(std::string_view text) const {
    return at_ > 0 && is(at_ - 1, TokenKind::kOperator, text);
  }
  bool op_after(std::string_view text) const { return is(at_ + 1, TokenKind::kOperator, text); }
  bool name_at(int offset, std::string_view text) const {
    return (offset > 0 || at_ > 0) &&
           is(at_ + static_cast<std::size_t>(offset), TokenKind::kName, text);
  }
  bool edge_before() const { return at_ > 0 && tokens_[at_ - 1].kind == TokenKind::kOpen; }
  bool edge_after() const {
    return at_ + 1 >= tokens_.size() || tokens_[at_ + 1].kind == TokenKind::kClose;
  }

  // {% set NAME, {% for NAME, a macro's arguments: what a template names itself is its own.
  void note_assigned_names() {
    for (std::size_t i = 0; i + 2 < tokens_.size(); ++i) {
      if (!is(i, TokenKind::kOpen, "{%") || tokens_[i + 1].kind != TokenKind::kName) continue;
      const std::string& word = tokens_[i + 1].text;
      if (word != "set" && word != "for" && word != "macro") continue;
      for (std::size_t j = i + 2; j < tokens_.size() && tokens_[j].kind != TokenKind::kClose; ++j) {
        if (is(j, TokenKind::kName, "in") || is(j, TokenKind::kOperator, "=")) break;
        if (tokens_[j].kind == TokenKind::kName) assigned_.insert(tokens_[j].text);
      }
    }
  }

  void look_at_name(const Token& token) {
    const std::string& name = token.text;
    const bool attribute = op_before(".");
    if (at_ > 0 && is(at_ - 1, TokenKind::kOpen, "{%") && is_one_of(kImports, name))
      return hit(token.line, fmt::format("{{% {} %}}: another template", name),
                 Code::kTemplateImport);
    if (attribute && (name[0] == '_' || is_one_of(kInternals, name)))
      return hit(token.line, fmt::format("attribute {}", quote(name)));
    if (name.size() > 2 && name.starts_with("__"))
      return hit(token.line, fmt::format("name {}", quote(name)));
    const bool filter = op_before("|") || (at_ > 1 && is(at_ - 1, TokenKind::kName, "filter") &&
                                           is(at_ - 2, TokenKind::kOpen, "{%"));
    if (filter && name == "attr") return hit(token.line, "the attr filter");
    if (filter && name == "string" && op_after("|") && is(at_ + 2, TokenKind::kName, "list"))
      return hit(token.line, "string|list, which picks characters from any object");
    if (op_after("(") && (attribute ? is_one_of(kMethods, name)
                                    : is_one_of(kFunctions, name) && !assigned_.contains(name)))
      return hit(token.line, fmt::format("a call of {}", quote(name)));
    if (attribute || filter || assigned_.contains(name)) return;
    const bool taken_from = op_after(".") || op_after("[") || op_after("|");
    const bool global = name == "cycler" || name == "joiner" || name == "request" || name == "self";
    if (name == "lipsum" || (global && taken_from) || (name == "self" && op_after("~")))
      hit(token.line, fmt::format("{}: Jinja's or the host's own object", name));
  }

  // Text that is printed as it stands can become a string through {% set x %}...{% endset %} or a macro.
  void remember_text(const Token& token) {
    constexpr std::size_t kLongestName = 24;
    std::string_view text = token.text;
    const std::size_t first = text.find_first_not_of(" \t\n\r");
    if (first == std::string_view::npos) return;
    text = text.substr(first, text.find_last_not_of(" \t\n\r") - first + 1);
    if (text.size() <= kLongestName && !has_space(text)) joined_ += lower(text);
  }

  void look_at_string(const Token& token) {
    const std::string text = lower(token.text);
    const bool glued_before = op_before("~") || op_before("+");
    const bool glued_after = op_after("~") || op_after("+");
    // Printed prose ({{ "call __init__ first" }}) goes nowhere else.
    const bool printed_before = edge_before() || glued_before || name_at(-1, "else");
    const bool printed_after =
        edge_after() || glued_after || name_at(1, "if") || name_at(1, "else");
    const bool prose =
        has_space(text) && brackets_.empty() && printed_before && printed_after && !block_;
    if (token.spelled)
      hit(token.line, "a string that spells letters, digits or underscores with escapes");
    if (prose) return;
    joined_ += text;
    if (const std::string found = dunder_in(text); !found.empty())
      hit(token.line, fmt::format("a string with {}", found));
    if (is_name(text) && !is_whole_dunder(text)) {
      if (text.starts_with("__") && text.size() > 2 && text[2] != '_') head_line_ = token.line;
      if (text.ends_with("__") && text.size() > 2 && text[text.size() - 3] != '_')
        tail_line_ = token.line;
    }
    const bool inner = !brackets_.empty();
    if (inner && is_one_of(kInternals, text))
      hit(token.line, fmt::format("the string {} as a name", quote(text)));
    if (is_whole_dunder(text) && (inner || op_after("|")))
      hit(token.line, fmt::format("the string {} as a name", quote(text)));
    const bool multiplied = op_before("*") || op_after("*");
    if (only_underscores(text) &&
        (multiplied || (text.size() > 1 && (glued_before || glued_after)) ||
         (inner && brackets_.back() == '[' && (glued_before || glued_after))))
      hit(token.line, "underscores put together with other text");
    if (inner && brackets_.back() == '[' && (glued_before || glued_after) &&
        (text.starts_with("_") || text.ends_with("__")))
      hit(token.line, "a subscript put together from pieces with underscores");
    if (text.find("%c") != std::string::npos || text.find(":c}") != std::string::npos)
      hit(token.line, "a string made from character codes");
    const std::size_t field = text.find('{');
    if (field != std::string::npos &&
        (text.find("._", field) != std::string::npos ||
         text.find("[_", field) != std::string::npos) &&
        (op_after(".") || op_after("|")))
      hit(token.line, "a format string that walks attributes");
    if (inner && brackets_.back() == '[' && op_before("[") && op_after("]") &&
        is_one_of(kModules, text))
      hit(token.line, fmt::format("the module {}", quote(text)));
    if (inner && text == "attr" && op_before("(") && at_ > 1 &&
        is(at_ - 2, TokenKind::kName, "map"))
      hit(token.line, "the attr filter");
    if (inner && std::any_of(kPayloads.begin(), kPayloads.end(), [&](std::string_view payload) {
          return text.find(payload) != std::string::npos;
        }))
      hit(token.line, "Python code in a string that is passed on");
  }

  const std::vector<Token>& tokens_;
  std::size_t at_ = 0;
  bool block_ = false;          // in {% %}
  std::vector<char> brackets_;  // open ones of the tag
  std::unordered_set<std::string> assigned_;
  std::string joined_;  // every string that could become a name, in order, lower case
  int head_line_ = 0;   // of a string like "__cl", and of one like "ass__"; 0: none
  int tail_line_ = 0;
  std::vector<TemplateHit> hits_;
};

}  // namespace

TemplateScan scan_template(std::string_view text) {
  NIBBLE_CHECK(text.size() <= kMaxTemplateBytes, "{} bytes", text.size());
  const LexedTemplate lexed = lex_template(text);
  return {Scanner(lexed).run(), lexed.problem};
}

}  // namespace nibble::audit

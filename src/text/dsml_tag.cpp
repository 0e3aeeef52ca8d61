#include "text/dsml_tag.h"

#include <map>
#include <optional>

namespace nibble::text {

namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr struct {
  std::string_view word;
  DsmlTag::Kind kind;
} kWords[] = {
    {"tool_calls", DsmlTag::Kind::kToolCalls},
    {"invoke", DsmlTag::Kind::kInvoke},
    {"parameter", DsmlTag::Kind::kParameter},
};

void skip_space(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
}

// key="value" pairs up to the end; nothing when anything else stands there.
std::optional<std::map<std::string, std::string>> parse_attributes(std::string_view text) {
  std::map<std::string, std::string> out;
  for (skip_space(text); !text.empty(); skip_space(text)) {
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    std::string_view key = text.substr(0, equals);
    key = key.substr(0, key.find_last_not_of(kSpace) + 1);
    text.remove_prefix(equals + 1);
    skip_space(text);
    if (key.empty() || key.find_first_of(kSpace) != std::string_view::npos ||
        !text.starts_with('"')) {
      return std::nullopt;
    }
    const std::size_t end = text.find('"', 1);
    if (end == std::string_view::npos) return std::nullopt;
    if (!out.emplace(key, text.substr(1, end - 1)).second) return std::nullopt;
    text.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace

DsmlTag parse_dsml_tag(std::string_view text, bool closes) {
  skip_space(text);
  const std::string_view word = text.substr(0, text.find_first_of(kSpace));
  DsmlTag tag;
  tag.closes = closes;
  for (const auto& known : kWords) {
    if (word == known.word) tag.kind = known.kind;
  }
  text.remove_prefix(word.size());
  const auto attributes = parse_attributes(text);
  const auto other = [&] {
    tag.kind = DsmlTag::Kind::kOther;
    return tag;
  };
  if (!attributes) return other();
  if (closes || tag.kind == DsmlTag::Kind::kToolCalls) return attributes->empty() ? tag : other();
  const auto name = attributes->find("name");
  if (name == attributes->end() || name->second.empty()) return other();
  tag.name = name->second;
  if (tag.kind == DsmlTag::Kind::kParameter) {
    const auto flag = attributes->find("string");
    if (flag == attributes->end() || (flag->second != "true" && flag->second != "false")) {
      return other();
    }
    tag.is_string = flag->second == "true";
  }
  return tag;
}

bool may_become_dsml_tag(std::string_view text) {
  skip_space(text);
  const std::string_view word = text.substr(0, text.find_first_of(kSpace));
  for (const auto& known : kWords) {
    if (word == known.word || (word.size() == text.size() && known.word.starts_with(word)))
      return true;
  }
  return false;
}

}  // namespace nibble::text

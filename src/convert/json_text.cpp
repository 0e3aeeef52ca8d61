#include "convert/json_text.h"

#include <fmt/format.h>
#include <simdjson.h>

#include "checkpoint/json_guard.h"
#include "nibble/status.h"

namespace nibble::convert {

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out.append({'\\', c});
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + '"';
}

std::string json_object(const JsonMembers& members, int indent) {
  if (members.empty()) return "{}";
  std::string out = "{";
  for (const auto& [key, value] : members) {
    out += out.size() == 1 ? "\n" : ",\n";
    out += fmt::format("{:{}}{}: {}", "", indent + 2, json_string(key), value);
  }
  return out + fmt::format("\n{:{}}}}", "", indent);
}

std::string json_array(const std::vector<std::string>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

JsonMembers parse_members(std::string_view text, const std::string& file) {
  namespace json = simdjson::ondemand;
  const auto check = [&](simdjson::error_code error) {
    if (error)
      throw CheckpointError(
          fmt::format("{}: broken JSON ({})", file, simdjson::error_message(error)));
  };
  if (const auto problem = checkpoint::json_problem(text))
    throw CheckpointError(fmt::format("{}: {}", file, *problem));
  const simdjson::padded_string padded(text);
  // On-Demand hands out raw text without looking into it, so the whole is checked first.
  simdjson::dom::parser whole;
  check(whole.parse(padded).error());
  json::parser parser;
  json::document document;
  json::object root;
  check(parser.iterate(padded).get(document));
  check(document.get_object().get(root));
  JsonMembers members;
  for (auto entry : root) {
    json::field field;
    check(std::move(entry).get(field));
    std::string_view key, value;
    check(field.unescaped_key().get(key));
    std::string name(
        key);  // before the value is walked: the key lives in the parser's scratch space
    check(simdjson::to_json_string(field.value()).get(value));
    const auto end = value.find_last_not_of(" \t\r\n");
    members.emplace_back(std::move(name), std::string(value.substr(0, end + 1)));
  }
  return members;
}

}  // namespace nibble::convert

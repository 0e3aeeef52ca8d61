#include "audit/json_walk.h"

#include <fmt/format.h>
#include <simdjson.h>

#include "audit/name_check.h"
#include "checkpoint/json_guard.h"

namespace nibble::audit {
namespace {

namespace json = simdjson::ondemand;

struct Broken {
  simdjson::error_code error;
};

void check(simdjson::error_code error) {
  if (error) throw Broken{error};
}

// Recursion is bounded by checkpoint::kMaxJsonDepth, which is asked first.
class Walker {
 public:
  explicit Walker(const std::function<void(const JsonPath&, std::string_view)>& show)
      : show_(show) {}

  void walk(json::value value) {
    json::json_type type{};
    check(value.type().get(type));
    switch (type) {
      case json::json_type::object:
        return walk_object(value);
      case json::json_type::array:
        return walk_array(value);
      case json::json_type::string: {
        std::string_view text;
        check(value.get_string().get(text));
        return show_(path_, text);
      }
      case json::json_type::number: {
        double number = 0;
        return check(value.get_double().get(number));
      }
      case json::json_type::boolean: {
        bool truth = false;
        return check(value.get_bool().get(truth));
      }
      case json::json_type::null:
        if (!value.raw_json_token().starts_with("null")) throw Broken{simdjson::N_ATOM_ERROR};
        bool unused = false;
        return check(value.is_null().get(unused));
    }
  }

 private:
  void walk_object(json::value value) {
    json::object object;
    check(value.get_object().get(object));
    for (auto entry : object) {
      json::field field;
      check(std::move(entry).get(field));
      std::string_view key;
      check(field.unescaped_key().get(key));
      path_.emplace_back(key);
      walk(field.value());
      path_.pop_back();
    }
  }

  void walk_array(json::value value) {
    json::array array;
    check(value.get_array().get(array));
    std::size_t place = 0;
    for (auto entry : array) {
      json::value element;
      check(entry.get(element));
      path_.push_back(fmt::format("[{}]", place++));
      walk(element);
      path_.pop_back();
    }
  }

  const std::function<void(const JsonPath&, std::string_view)>& show_;
  JsonPath path_;
};

JsonProblem problem_of(simdjson::error_code error) {
  const std::string message = fmt::format("broken JSON ({})", simdjson::error_message(error));
  if (error == simdjson::UTF8_ERROR)
    return {Code::kInvalidUtf8, "expected UTF-8, found other bytes"};
  return {Code::kJsonBroken, message};
}

}  // namespace

std::string path_text(const JsonPath& path) {
  constexpr std::size_t kLongest = 160;
  std::string text;
  for (const std::string& part : path) {
    if (!text.empty() && !part.starts_with('[')) text += '.';
    text += printable(std::string_view(part).substr(0, kLongest));
  }
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

std::optional<JsonProblem> walk_json(
    std::string_view text, const std::function<void(const JsonPath&, std::string_view)>& show) {
  if (const auto problem = checkpoint::json_problem(text))
    return JsonProblem{Code::kJsonNested, *problem};
  const simdjson::padded_string padded(text);
  json::parser parser;
  json::document document;
  if (const auto error = parser.iterate(padded).get(document)) return problem_of(error);
  try {
    json::json_type type{};
    check(document.type().get(type));
    if (type != json::json_type::object && type != json::json_type::array)
      return JsonProblem{Code::kJsonBroken, "expected an object, found a single value"};
    json::value root;
    check(document.get_value().get(root));
    Walker(show).walk(root);
  } catch (const Broken& broken) {
    return problem_of(broken.error);
  }
  if (checkpoint::has_more(document))
    return JsonProblem{Code::kJsonBroken, "there is text after the end of the value"};
  return std::nullopt;
}

}  // namespace nibble::audit

// Reads the members of one JSON object by name and type, and leaves none unread: what is neither understood nor known to
// be without effect is refused by name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/json.h"

namespace nibble::api::openai {

// A member that this server takes only with values that ask for nothing; none: only null. Each value is JSON text: numbers
// are compared as numbers, `[]` and `{}` mean empty, other values literally.
struct NeutralField {
  std::string_view name;
  std::string_view value = {};
  std::string_view other_value = {};
};

// Every method throws RequestError (400) with the member's path. JSON null counts as absent, as OpenAI's clients send it.
class Fields {
 public:
  // `path` names the object in messages: "" for the body, else "messages[2]". `object` must outlive this.
  Fields(const Json& object, std::string path);

  const Json* optional(std::string_view name);
  const Json& required(std::string_view name);

  std::optional<bool> boolean(std::string_view name);
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t low,
                                      std::int64_t high);                        // both inclusive
  std::optional<double> number(std::string_view name, double low, double high);  // both inclusive
  std::optional<std::string_view> string(std::string_view name);
  const Json* array(std::string_view name);
  const Json* object(std::string_view name);

  void neutral(std::span<const NeutralField> fields);
  void ignore(std::span<const std::string_view> names);
  // Throws for the first member nothing above has asked for.
  void refuse_rest() const;

  std::string path(std::string_view name) const;

 private:
  const Json& object_;
  std::string path_;
  std::vector<bool> read_;  // as object_.items
};

[[noreturn]] void fail_kind(const std::string& path, std::string_view expected, const Json& found);

}  // namespace nibble::api::openai

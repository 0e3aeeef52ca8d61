// The few things about URLs that decide where a secret may go.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace nibble::hub {

struct Url {
  std::string scheme;     // "http" or "https"
  std::string authority;  // host, lower case, with the port where it is not the scheme's own
  std::string target;     // path and query, starts with '/'

  std::string origin() const { return scheme + "://" + authority; }
  std::string text() const { return origin() + target; }
};

// An absolute http or https URL. Nothing for anything else, for one that holds a user name or password, and for one with
// blanks or control characters. A fragment is dropped.
std::optional<Url> parse_url(std::string_view text);

// Where a Location header leads, relative to the page it came with: absolute, //host/path, /path, ?query or a relative path.
std::optional<Url> resolve_url(const Url& base, std::string_view location);

// Everything but letters, digits and -._~ as %XX; a slash too unless keep_slashes.
std::string percent_encode(std::string_view text, bool keep_slashes);

}  // namespace nibble::hub

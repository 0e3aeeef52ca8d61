#include "hub/url.h"

#include <fmt/format.h>

#include <algorithm>

namespace nibble::hub {
namespace {

bool is_alnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// A host name or address, and perhaps a port. libcurl parses the URL again: a character that the two might read differently
// ('@' above all) is refused.
bool is_authority(std::string_view text) {
  const bool bracketed = text.starts_with('[');
  const auto allowed = [&](char c) {
    return is_alnum(c) || c == '.' || c == '-' || c == '_' || c == ':' ||
           (bracketed && (c == '[' || c == ']'));
  };
  return !text.empty() && text.front() != ':' && std::all_of(text.begin(), text.end(), allowed);
}

}  // namespace

std::optional<Url> parse_url(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7F || c == '\\') return std::nullopt;
  const auto colon = text.find("://");
  if (colon == std::string_view::npos) return std::nullopt;
  Url url;
  url.scheme = lower(text.substr(0, colon));
  if (url.scheme != "http" && url.scheme != "https") return std::nullopt;
  text.remove_prefix(colon + 3);
  const std::string_view authority = text.substr(0, text.find_first_of("/?#"));
  if (!is_authority(authority)) return std::nullopt;
  url.authority = lower(authority);
  const std::string own_port = url.scheme == "http" ? ":80" : ":443";
  if (url.authority.ends_with(own_port))
    url.authority.resize(url.authority.size() - own_port.size());
  std::string_view target = text.substr(authority.size());
  target = target.substr(0, target.find('#'));
  url.target = target.starts_with('/') ? std::string(target) : "/" + std::string(target);
  return url;
}

std::optional<Url> resolve_url(const Url& base, std::string_view location) {
  if (location.empty()) return std::nullopt;
  if (location.starts_with("//")) return parse_url(base.scheme + ":" + std::string(location));
  if (location.starts_with('/')) return parse_url(base.origin() + std::string(location));
  if (location.substr(0, location.find_first_of("/?#")).find(':') != std::string_view::npos)
    return parse_url(location);
  std::string path = base.target.substr(0, base.target.find('?'));
  if (!location.starts_with('?')) path.resize(path.rfind('/') + 1);
  return parse_url(base.origin() + path + std::string(location));
}

std::string percent_encode(std::string_view text, bool keep_slashes) {
  std::string out;
  for (const char c : text) {
    if (is_alnum(c) || c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keep_slashes))
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace nibble::hub

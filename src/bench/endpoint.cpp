#include <fmt/format.h>

#include <algorithm>

#include "bench/http_client.h"
#include "nibble/status.h"

namespace nibble::bench {

std::string Endpoint::authority() const {
  const bool brackets = host.find(':') != std::string::npos;
  return fmt::format("{}:{}", brackets ? "[" + host + "]" : host, port);
}

std::string Endpoint::text() const {
  return "http://" + authority() + path;
}

Endpoint parse_endpoint(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  const auto refuse = [&](const char* what) {
    throw Error(ExitCode::kUsage, fmt::format("{}: {}; expected http://HOST[:PORT]", url, what));
  };
  if (url.starts_with("https://")) refuse("https is not spoken here");
  if (!url.starts_with(kScheme)) refuse("no http:// URL");
  std::string_view rest = std::string_view(url).substr(kScheme.size());
  Endpoint endpoint;
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  endpoint.path = std::string(rest.substr(slash));
  const auto drop_slashes = [&] {
    while (endpoint.path.ends_with('/')) endpoint.path.pop_back();
  };
  drop_slashes();
  if (endpoint.path.ends_with("/v1")) endpoint.path.resize(endpoint.path.size() - 3);
  drop_slashes();
  std::string_view authority = rest.substr(0, slash);
  std::size_t host_end = authority.rfind(':');
  if (authority.starts_with('[')) {
    const std::size_t bracket = authority.find(']');
    if (bracket == std::string_view::npos) refuse("no ] after the address");
    endpoint.host = std::string(authority.substr(1, bracket - 1));
    authority.remove_prefix(bracket + 1);
    host_end = authority.starts_with(':') ? 0 : std::string_view::npos;
  } else {
    endpoint.host = std::string(authority.substr(0, host_end));
  }
  endpoint.port =
      host_end == std::string_view::npos ? "80" : std::string(authority.substr(host_end + 1));
  const bool number = !endpoint.port.empty() && endpoint.port.size() <= 5 &&
                      std::all_of(endpoint.port.begin(), endpoint.port.end(),
                                  [](char c) { return c >= '0' && c <= '9'; });
  if (endpoint.host.empty() || endpoint.host.find('@') != std::string::npos) refuse("no host");
  if (!number) refuse("the port is no number");
  return endpoint;
}

}  // namespace nibble::bench

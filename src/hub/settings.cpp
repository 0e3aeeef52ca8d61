#include "hub/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "nibble/status.h"

namespace nibble::hub {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultEndpoint = "https://huggingface.co";
constexpr std::streamsize kLongestToken = 4096;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string trimmed(std::string text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && blank(text.back())) text.pop_back();
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), blank));
  return text;
}

fs::path home() {
  const std::string folder = variable("HOME");
  return folder.empty() ? fs::path("/") : fs::path(folder);
}

// The value as a path, "~/" being the home folder.
std::optional<fs::path> path_variable(const char* name) {
  const std::string value = variable(name);
  if (value.empty()) return std::nullopt;
  if (value.starts_with("~/")) return home() / value.substr(2);
  return fs::path(value);
}

fs::path hub_home() {
  if (const auto folder = path_variable("HF_HOME")) return *folder;
  return path_variable("XDG_CACHE_HOME").value_or(home() / ".cache") / "huggingface";
}

// A line break in it would add a header to each request.
std::string checked_token(std::string token, const std::string& where) {
  const auto printable = [](char c) { return c > 0x20 && c < 0x7F; };
  if (!std::all_of(token.begin(), token.end(), printable))
    throw Error(ExitCode::kUsage,
                fmt::format("{}: the token has blanks, control characters or characters outside "
                            "ASCII in it",
                            where));
  return token;
}

std::string read_token() {
  if (std::string token = trimmed(variable("HF_TOKEN")); !token.empty())
    return checked_token(std::move(token), "HF_TOKEN");
  const fs::path path = path_variable("HF_TOKEN_PATH").value_or(hub_home() / "token");
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  std::ifstream file(path);
  std::string token(static_cast<std::size_t>(kLongestToken), '\0');
  file.read(token.data(), kLongestToken);
  token.resize(static_cast<std::size_t>(file.gcount()));
  return checked_token(trimmed(std::move(token)), path.string());
}

bool is_true(std::string value) {
  for (char& c : value)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return value == "1" || value == "on" || value == "yes" || value == "true";
}

}  // namespace

fs::path hub_cache_folder() {
  return path_variable("HF_HUB_CACHE").value_or(hub_home() / "hub");
}

Settings settings_from_environment() {
  Settings settings;
  const std::string text = trimmed(variable("HF_ENDPOINT"));
  const auto endpoint = parse_url(text.empty() ? kDefaultEndpoint : text);
  if (!endpoint || endpoint->target.find('?') != std::string::npos)
    throw Error(ExitCode::kUsage,
                fmt::format("HF_ENDPOINT: expected an http or https address without user name and "
                            "query, like {}",
                            kDefaultEndpoint));
  settings.endpoint = *endpoint;
  while (settings.endpoint.target.ends_with('/')) settings.endpoint.target.pop_back();
  settings.token = read_token();
  settings.cache = hub_cache_folder();
  settings.ca_file = variable("SSL_CERT_FILE");
  if (settings.ca_file.empty()) settings.ca_file = variable("CURL_CA_BUNDLE");
  settings.offline = is_true(variable("HF_HUB_OFFLINE"));
  return settings;
}

}  // namespace nibble::hub

// HTTP/1.1 as values: what a route receives and returns, and how a response's bytes are written.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nibble::api {

struct HttpRequest {
  std::string method;  // "GET", as sent
  std::string path;    // percent-decoded, without the query
  std::string authorization;
  std::string content_type;
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";  // empty: none is sent
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

// How the end of a body is known to the client.
enum class Framing { kLength, kChunked, kUntilClose };

struct HeadOptions {
  Framing framing = Framing::kLength;
  std::size_t length_bytes = 0;  // kLength
  bool keep_alive = true;
};

// Status line, headers, blank line.
void append_response_head(std::string& out, const HttpResponse& response,
                          const HeadOptions& options);

// One chunk of chunked transfer coding; an empty `data` writes nothing (it would end the body).
void append_chunk(std::string& out, std::string_view data);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

// One server-sent event; `data` is a single line.
void append_sse_event(std::string& out, std::string_view data);
// A line every SSE client skips; keeps proxies from giving up.
inline constexpr std::string_view kSseComment = ": waiting\n\n";

// The path of an origin-form or absolute-form request target, percent-decoded; nothing when an escape is damaged.
std::optional<std::string> path_of_target(std::string_view target);

}  // namespace nibble::api

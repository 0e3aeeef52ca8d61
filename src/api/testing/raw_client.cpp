#include "api/testing/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <utility>

namespace nibble::api::testing {
namespace {

constexpr int kPatience_ms = 20000;  // no test waits longer for a byte

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

RawClient::RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error("connect failed");
}

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

bool RawClient::fill() {
  pollfd waiting{socket_, POLLIN, 0};
  if (::poll(&waiting, 1, kPatience_ms) <= 0) return false;
  char chunk[16384];
  const ssize_t got = ::recv(socket_, chunk, sizeof chunk, 0);
  if (got <= 0) return false;
  buffer_.append(chunk, static_cast<std::size_t>(got));
  return true;
}

std::string RawClient::read_until(std::string_view text) {
  std::size_t at = 0;
  while ((at = buffer_.find(text)) == std::string::npos)
    if (!fill()) return "";
  std::string out = buffer_.substr(0, at);
  buffer_.erase(0, at);
  return out;
}

RawResponse RawClient::read_response(bool head) {
  RawResponse response;
  std::string block = read_until("\r\n\r\n");
  if (block.empty()) return response;
  buffer_.erase(0, 4);
  std::size_t line = block.find("\r\n");
  response.status = std::stoi(block.substr(9, 3));
  while (line != std::string::npos) {
    const std::size_t begin = line + 2;
    line = block.find("\r\n", begin);
    const std::string field = block.substr(begin, line == std::string::npos ? line : line - begin);
    const std::size_t colon = field.find(": ");
    response.headers[lower(field.substr(0, colon))] = field.substr(colon + 2);
  }
  if (head || response.status == 204 || response.status == 100) {
    response.complete = true;
  } else if (const auto length = response.headers.find("content-length");
             length != response.headers.end()) {
    const std::size_t bytes = std::stoul(length->second);
    while (buffer_.size() < bytes)
      if (!fill()) return response;
    response.body = buffer_.substr(0, bytes);
    buffer_.erase(0, bytes);
    response.complete = true;
  } else if (response.headers.count("transfer-encoding")) {
    while (true) {
      const std::string size = read_until("\r\n");
      if (size.empty()) return response;
      const std::size_t bytes = std::stoul(size, nullptr, 16);
      constexpr std::size_t begin = 2;  // the line's end
      while (buffer_.size() < begin + bytes + 2)
        if (!fill()) return response;
      response.body += buffer_.substr(begin, bytes);
      buffer_.erase(0, begin + bytes + 2);
      if (bytes == 0) break;
    }
    response.complete = true;
  } else {
    while (fill()) {
    }
    response.body = std::exchange(buffer_, "");
    response.complete = true;
  }
  return response;
}

bool RawClient::closed_within(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd waiting{socket_, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) continue;
    char chunk[4096];
    if (::recv(socket_, chunk, sizeof chunk, 0) <= 0) return true;
  }
}

RawResponse RawClient::get(const std::string& path) {
  send("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
  return read_response();
}

RawResponse RawClient::post(const std::string& path, const std::string& body,
                            const std::string& more_headers) {
  send(post_text(path, body, more_headers));
  return read_response();
}

void RawClient::shutdown_write() {
  ::shutdown(socket_, SHUT_WR);
}

void RawClient::close() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

void RawClient::reset() {
  const linger hard{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  close();
}

std::string post_text(const std::string& path, const std::string& body,
                      const std::string& more_headers) {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
         more_headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace nibble::api::testing

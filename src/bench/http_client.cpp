#include "bench/http_client.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <charconv>
#include <chrono>
#include <deque>
#include <optional>

#include "nibble/status.h"

namespace nibble::bench {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

using Clock = std::chrono::steady_clock;
using Executor = asio::io_context::executor_type;
using Socket = asio::basic_stream_socket<tcp, Executor>;
using Timer = asio::basic_waitable_timer<Clock, asio::wait_traits<Clock>, Executor>;

Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

// A server may have closed a connection while nobody used it; what it said then would be taken for the next answer.
bool still_silent(Socket& socket) {
  char byte = 0;
  const auto got = ::recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

}  // namespace

struct EventLoop::State {
  asio::io_context io{1};
  Clock::time_point begin = Clock::now();
};

EventLoop::EventLoop() : state_(std::make_unique<State>()) {}
EventLoop::~EventLoop() = default;

double EventLoop::now_s() const {
  return std::chrono::duration<double>(Clock::now() - state_->begin).count();
}

void EventLoop::at(double time_s, std::function<void()> work) {
  auto timer = std::make_shared<Timer>(state_->io.get_executor());
  timer->expires_at(state_->begin + seconds(time_s));
  timer->async_wait([timer, work = std::move(work)](error_code) { work(); });
}

void EventLoop::run() {
  state_->io.restart();
  state_->io.run();
}

struct HttpClient::State : std::enable_shared_from_this<HttpClient::State> {
  class Exchange;

  State(EventLoop& given, Endpoint where, int most)
      : loop(given), endpoint(std::move(where)), max_connections(most) {}

  void start(HttpCall call, Clock::time_point deadline);
  void ended(std::optional<Socket> reusable);

  EventLoop& loop;
  Endpoint endpoint;
  int max_connections;
  tcp::resolver::results_type addresses;
  std::vector<Socket> idle;
  int active = 0;
  std::deque<std::pair<HttpCall, Clock::time_point>> waiting;
  bool closed = false;
};

// One call. Keeps itself alive through the handlers that are under way.
class HttpClient::State::Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(std::shared_ptr<State> client, HttpCall call, Clock::time_point deadline)
      : client_(std::move(client)),
        socket_(client_->loop.state().io),
        timer_(client_->loop.state().io.get_executor()),
        call_(std::move(call)) {
    timer_.expires_at(deadline);
    request_ = fmt::format(
        "{} {}{} HTTP/1.1\r\nHost: {}\r\nAccept: */*\r\nUser-Agent: nibble-bench\r\n", call_.method,
        client_->endpoint.path, call_.path, client_->endpoint.authority());
    if (!call_.bearer.empty()) request_ += "Authorization: Bearer " + call_.bearer + "\r\n";
    if (!call_.body.empty())
      request_ += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n",
                              call_.body.size());
    request_ += "\r\n";
    request_ += call_.body;
  }

  void start() {
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (error) return;
      self->finish(HttpOutcome::kTimeout, "no end within the time limit");
    });
    while (!client_->idle.empty()) {
      socket_ = std::move(client_->idle.back());
      client_->idle.pop_back();
      if (!still_silent(socket_)) continue;
      reused_ = true;
      return write();
    }
    connect();
  }

 private:
  void connect() {
    reused_ = false;
    socket_ = Socket(client_->loop.state().io);
    asio::async_connect(socket_, client_->addresses,
                        [self = shared_from_this()](error_code error, const tcp::endpoint&) {
                          if (self->over_) return;
                          if (error == asio::error::connection_refused)
                            return self->finish(HttpOutcome::kRefused, error.message());
                          if (error)
                            return self->finish(HttpOutcome::kUnreachable, error.message());
                          error_code ignored;
                          self->socket_.set_option(tcp::no_delay(true), ignored);
                          self->write();
                        });
  }

  void write() {
    parser_.emplace();
    parser_->body_limit(boost::none);
    parser_->eager(true);
    asio::async_write(socket_, asio::buffer(request_),
                      [self = shared_from_this()](error_code error, std::size_t) {
                        // An answer may be there although the request was not read to its end: reading tells.
                        if (!self->over_ && !error) self->sent_ = true;
                      });
    read();
  }

  void read() {
    socket_.async_read_some(asio::buffer(chunk_),
                            [self = shared_from_this()](error_code error, std::size_t bytes) {
                              if (self->over_) return;
                              error ? self->broken(error) : self->take(bytes);
                            });
  }

  void broken(error_code error) {
    if (reused_ && !answered_) return connect();
    error_code ignored;
    if (error == asio::error::eof && answered_) parser_->put_eof(ignored);
    if (parser_->is_done()) return finish(HttpOutcome::kComplete, "");
    finish(HttpOutcome::kClosed,
           error == asio::error::eof ? "the server closed the connection" : error.message());
  }

  void take(std::size_t bytes) {
    answered_ = true;
    pending_.append(chunk_.data(), bytes);
    while (!pending_.empty() && !parser_->is_done()) {
      error_code error;
      const std::size_t used = parser_->put(asio::buffer(pending_), error);
      pending_.erase(0, used);
      deliver();
      if (over_) return;
      if (error == http::error::need_more) break;
      if (error) return finish(HttpOutcome::kDamaged, error.message());
    }
    parser_->is_done() ? finish(HttpOutcome::kComplete, "") : read();
  }

  void deliver() {
    std::string& body = parser_->get().body();
    if (body.empty()) return;
    if (call_.on_body) call_.on_body(status(), body);
    body.clear();
  }

  int status() const {
    return parser_ && parser_->is_header_done() ? parser_->get().result_int() : 0;
  }

  int retry_after_s() const {
    if (status() == 0) return 0;
    const auto text = parser_->get()[http::field::retry_after];
    int value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  }

  void finish(HttpOutcome outcome, std::string message) {
    if (over_) return;
    over_ = true;
    HttpResult result{outcome, status(), retry_after_s(), std::move(message)};
    const bool reusable =
        outcome == HttpOutcome::kComplete && parser_->keep_alive() && pending_.empty() && sent_;
    timer_.cancel();
    std::optional<Socket> keep;
    if (reusable) keep = std::move(socket_);
    error_code ignored;
    socket_.close(ignored);
    const std::shared_ptr<State> client = client_;
    if (!client->closed) call_.on_end(result);
    client->ended(std::move(keep));
  }

  std::shared_ptr<State> client_;
  Socket socket_;
  Timer timer_;
  HttpCall call_;
  std::string request_;
  std::optional<http::response_parser<http::string_body>> parser_;
  std::array<char, 16 << 10> chunk_;
  std::string pending_;    // read, not yet parsed
  bool reused_ = false;    // the connection served another call before
  bool sent_ = false;      // the request, to its last byte
  bool answered_ = false;  // at least a byte came back
  bool over_ = false;
};

void HttpClient::State::start(HttpCall call, Clock::time_point deadline) {
  ++active;
  std::make_shared<Exchange>(shared_from_this(), std::move(call), deadline)->start();
}

void HttpClient::State::ended(std::optional<Socket> reusable) {
  --active;
  if (closed) return;
  if (reusable) idle.push_back(std::move(*reusable));
  if (waiting.empty()) return;
  auto [call, deadline] = std::move(waiting.front());
  waiting.pop_front();
  start(std::move(call), deadline);
}

HttpClient::HttpClient(EventLoop& loop, Endpoint endpoint, int max_connections)
    : state_(std::make_shared<State>(loop, std::move(endpoint), max_connections)) {
  tcp::resolver resolver(loop.state().io);
  error_code error;
  const Endpoint& where = state_->endpoint;
  state_->addresses = resolver.resolve(where.host, where.port, error);
  if (error) throw Error(ExitCode::kFailed, fmt::format("{}: {}", where.text(), error.message()));
}

HttpClient::~HttpClient() {
  state_->closed = true;
  state_->waiting.clear();
  state_->idle.clear();
}

void HttpClient::send(HttpCall call) {
  const Clock::time_point deadline = Clock::now() + seconds(call.timeout_s);
  if (state_->active < state_->max_connections)
    state_->start(std::move(call), deadline);
  else
    state_->waiting.emplace_back(std::move(call), deadline);
}

}  // namespace nibble::bench

#include "api/connection.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <string>

#include "api/errors.h"
#include "base/log.h"

namespace nibble::api {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

using Executor = asio::io_context::executor_type;
template <typename T>
using Task = asio::awaitable<T, Executor>;
using Timer = asio::basic_waitable_timer<Clock, asio::wait_traits<Clock>, Executor>;
constexpr asio::as_tuple_t<asio::use_awaitable_t<Executor>> kAsTuple;

constexpr std::size_t kReadBytes = 16 << 10;
constexpr Clock::time_point kNever = Clock::time_point::max();

// A peer that vanished without a word is noticed by the kernel after about half a minute.
void set_socket_options(TcpSocket& socket) {
  error_code ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  const auto set = [&](int name, int value) {
    (void)::setsockopt(socket.native_handle(), IPPROTO_TCP, name, &value, sizeof value);
  };
  set(TCP_KEEPIDLE, 15);
  set(TCP_KEEPINTVL, 5);
  set(TCP_KEEPCNT, 3);
  set(TCP_USER_TIMEOUT, 30000);
}

ApiError parse_error(const error_code& error, const ConnectionLimits& limits) {
  if (error == http::error::body_limit)
    return {413, "the body is larger than " + std::to_string(limits.body_bytes) + " bytes", "",
            "request_too_large"};
  if (error == http::error::header_limit)
    return {431, "the headers are larger than " + std::to_string(limits.header_bytes) + " bytes",
            "", "headers_too_large"};
  return {400, "this is not HTTP/1.1: " + error.message(), "", "bad_http"};
}

class CoroutineConnection final : public Connection,
                                  public std::enable_shared_from_this<CoroutineConnection> {
 public:
  CoroutineConnection(TcpSocket socket, Service& service, const ConnectionLimits& limits,
                      std::function<void(Connection*)> ended)
      : socket_(std::move(socket)),
        wake_(socket_.get_executor()),
        service_(service),
        limits_(limits),
        ended_(std::move(ended)) {}

  void start() override {
    set_socket_options(socket_);
    asio::co_spawn(
        socket_.get_executor(), [self = shared_from_this()] { return self->run(); },
        [self = shared_from_this()](std::exception_ptr failure) { self->finish(failure); });
  }

  void tick(Clock::time_point now) override {
    if (phase_ == Phase::kStream) return notify();  // it may owe a comment line
    if (now < deadline_) return;
    timed_out_ = true;
    // A coroutine that waits for the socket to take bytes hears of nothing else.
    if (phase_ == Phase::kWrite) close();
    notify();
  }

  bool busy() const override { return phase_ >= Phase::kBody && phase_ <= Phase::kWrite; }

  void drain() override {
    draining_ = true;
    if (!busy()) timed_out_ = true;
    notify();
  }

  void abandon(const char* reason) override {
    abandoned_ = reason;
    notify();
  }

  void close() override {
    error_code ignored;
    socket_.close(ignored);
    peer_gone_ = true;
  }

 private:
  enum class Phase { kIdle, kHeader, kBody, kAnswer, kStream, kWrite, kLinger };

  struct Incoming {
    HttpRequest request;
    bool keep_alive = false;
    bool http11 = true;
    std::optional<ApiError> refused;
  };

  Task<void> run() {
    while (!draining_) {
      std::optional<Incoming> incoming = co_await read_request();
      if (!incoming) co_return;
      const bool head_only = incoming->request.method == "HEAD";
      if (incoming->refused) {
        const HttpResponse response = error_response(*incoming->refused);
        co_await write_response(response, false, head_only);
        break;
      }
      const bool reusable = co_await answer(*incoming, head_only);
      if (!reusable) break;
    }
    co_await linger();
  }

  void finish(std::exception_ptr failure) {
    try {
      if (failure) std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      spdlog::error("a connection failed: {}", error.what());
    }
    close();
    call_.reset();
    ended_(this);
  }

  // --- waiting -----------------------------------------------------------------------------------------------------------

  // g++ 12 destroys twice what braces make inside an expression with co_await: such values get a name first.

  // Whatever happens to the connection calls this; the coroutine looks at the state before it waits, and only this thread
  // changes it, so no change is missed.
  void notify() { wake_.cancel(); }

  Task<void> wait() {
    wake_.expires_at(kNever);
    co_await wake_.async_wait(kAsTuple);
  }

  void enter(Phase phase, Clock::time_point deadline = kNever) {
    phase_ = phase;
    deadline_ = deadline;
    timed_out_ = false;
  }

  // --- reading -----------------------------------------------------------------------------------------------------------

  // Keeps one read outstanding, so that a client that leaves is noticed at once whatever else is going on.
  void pump() {
    if (reading_ || peer_gone_ || buffer_.size() >= limits_.read_ahead_bytes) return;
    reading_ = true;
    socket_.async_read_some(asio::buffer(chunk_),
                            [self = shared_from_this()](error_code error, std::size_t bytes) {
                              self->reading_ = false;
                              if (error) {
                                self->peer_gone_ = true;
                              } else {
                                self->buffer_.append(self->chunk_.data(), bytes);
                                self->pump();
                              }
                              self->notify();
                            });
  }

  // False: nothing more will come, or not in time.
  Task<bool> read_more() {
    const std::size_t before = buffer_.size();
    pump();
    while (buffer_.size() == before && !peer_gone_ && !timed_out_) co_await wait();
    co_return buffer_.size() > before;
  }

  // Nothing: the connection is to be closed without a word.
  Task<std::optional<Incoming>> read_request() {
    enter(Phase::kIdle, Clock::now() + limits_.idle_timeout);
    if (buffer_.empty() && !co_await read_more()) co_return std::nullopt;
    http::request_parser<http::string_body> parser;
    parser.header_limit(static_cast<std::uint32_t>(limits_.header_bytes));
    parser.body_limit(limits_.body_bytes);
    Incoming incoming;
    enter(Phase::kHeader, Clock::now() + limits_.header_timeout);
    if (!co_await parse(parser, incoming, [&] { return parser.is_header_done(); }))
      co_return std::nullopt;
    if (incoming.refused) co_return incoming;
    enter(Phase::kBody, Clock::now() + limits_.body_timeout);
    if (boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      const bool written = co_await write("HTTP/1.1 100 Continue\r\n\r\n");
      if (!written) co_return std::nullopt;
    }
    enter(Phase::kBody, Clock::now() + limits_.body_timeout);
    if (!co_await parse(parser, incoming, [&] { return parser.is_done(); })) co_return std::nullopt;
    if (!incoming.refused) fill(parser.get(), incoming);
    co_return incoming;
  }

  // Feeds the parser until `done`; false as read_request() without result.
  template <typename Parser, typename Done>
  Task<bool> parse(Parser& parser, Incoming& incoming, Done done) {
    while (!done()) {
      error_code error = http::error::need_more;
      if (!buffer_.empty()) {
        const std::size_t used = parser.put(asio::buffer(buffer_), error);
        buffer_.erase(0, used);
      }
      if (error == http::error::need_more) {
        if (co_await read_more()) continue;
        if (!timed_out_ || draining_) co_return false;
        incoming.refused = ApiError{408, "the request did not arrive in time", "", "timeout"};
        co_return true;
      }
      if (error) {
        incoming.refused = parse_error(error, limits_);
        co_return true;
      }
    }
    co_return true;
  }

  static void fill(http::request<http::string_body>& message, Incoming& incoming) {
    incoming.keep_alive = message.keep_alive();
    incoming.http11 = message.version() >= 11;
    incoming.request.method = std::string(message.method_string());
    incoming.request.authorization = std::string(message[http::field::authorization]);
    incoming.request.content_type = std::string(message[http::field::content_type]);
    incoming.request.body = std::move(message.body());
    const auto target = message.target();
    if (auto path = path_of_target({target.data(), target.size()}))
      incoming.request.path = std::move(*path);
    else
      incoming.refused =
          ApiError{400, "the request target holds a damaged % escape", "", "bad_http"};
  }

  // --- answering ---------------------------------------------------------------------------------------------------------

  // True: the connection may take another request.
  Task<bool> answer(Incoming& incoming, bool head_only) {
    enter(Phase::kAnswer);
    std::optional<Reply> reply;
    service_.handle(std::move(incoming.request), [self = shared_from_this(), &reply](Reply made) {
      reply = std::move(made);
      self->notify();
    });
    pump();
    // The service always answers, so `reply` outlives its use there.
    while (!reply) co_await wait();
    const bool keep_alive = incoming.keep_alive;
    if (const auto* response = std::get_if<HttpResponse>(&*reply)) {
      const bool reusable = co_await write_response(*response, keep_alive, head_only);
      co_return reusable;
    }
    call_ = std::move(std::get<std::unique_ptr<Call>>(*reply));
    call_->on_progress([this] { notify(); });
    bool reusable = false;
    if (call_->streams())
      reusable = co_await stream(keep_alive, incoming.http11);
    else
      reusable = co_await complete(keep_alive);
    call_.reset();
    co_return reusable;
  }

  Task<bool> complete(bool keep_alive) {
    while (!call_->finished() && !peer_gone_ && !abandoned_) co_await wait();
    if (!call_->finished()) {
      call_->abandon(abandoned_ ? abandoned_ : "the client left");
      if (peer_gone_) co_return false;
    }
    HttpResponse response = call_->finished() ? call_->response() : stopped_response();
    const bool reusable = co_await write_response(response, keep_alive && !abandoned_, false);
    co_return reusable;
  }

  Task<bool> stream(bool keep_alive, bool http11) {
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    HeadOptions options;
    options.framing = http11 ? Framing::kChunked : Framing::kUntilClose;
    options.keep_alive = keep_alive && http11 && !stopping();
    std::string bytes;
    append_response_head(bytes, head, options);
    enter(Phase::kStream);
    bool open = co_await write(bytes);
    while (open && !peer_gone_ && !abandoned_ && !call_->overflowed()) {
      std::string events = call_->take_events();
      if (events.empty()) {
        if (call_->finished()) break;
        if (Clock::now() - last_write_ < limits_.comment_interval) {
          co_await wait();
          continue;
        }
        events = kSseComment;
      }
      bytes = framed(std::move(events), http11);
      open = co_await write(bytes);
    }
    if (!open || peer_gone_ || call_->overflowed()) {
      call_->abandon("the client left");
      // Not the end of a body: the client must see that something is missing.
      close();
      co_return false;
    }
    if (abandoned_) {
      call_->abandon(abandoned_);
      bytes = framed(last_words(), http11);
      open = co_await write(bytes);
    }
    if (http11 && open) open = co_await write(kLastChunk);
    const bool reusable = open && options.keep_alive && !abandoned_;
    co_return reusable;
  }

  static std::string framed(std::string events, bool http11) {
    if (!http11) return events;
    std::string chunk;
    append_chunk(chunk, events);
    return chunk;
  }

  ApiError stopped_error() const { return {503, abandoned_, "", "draining"}; }
  HttpResponse stopped_response() const { return error_response(stopped_error()); }

  std::string last_words() const {
    std::string events;
    append_sse_event(events, error_json(stopped_error()));
    append_sse_event(events, "[DONE]");
    return events;
  }

  // --- writing -----------------------------------------------------------------------------------------------------------

  Task<bool> write(std::string_view bytes) {
    const Phase before = phase_;
    while (!bytes.empty()) {
      enter(Phase::kWrite, Clock::now() + limits_.write_timeout);
      const auto [error, written] =
          co_await socket_.async_write_some(asio::buffer(bytes.data(), bytes.size()), kAsTuple);
      if (error) co_return false;
      bytes.remove_prefix(written);
    }
    last_write_ = Clock::now();
    enter(before);
    co_return true;
  }

  // True: written whole, and the connection stays.
  Task<bool> write_response(const HttpResponse& response, bool keep_alive, bool head_only) {
    HeadOptions options;
    options.keep_alive = keep_alive && !stopping();
    options.length_bytes = response.body.size();
    std::string bytes;
    append_response_head(bytes, response, options);
    if (!head_only) bytes += response.body;
    const bool written = co_await write(bytes);
    co_return written&& options.keep_alive;
  }

  // Closing with unread bytes would reset the connection, and the client might lose the answer it has not read yet.
  Task<void> linger() {
    enter(Phase::kLinger, Clock::now() + limits_.linger_timeout);
    error_code ignored;
    socket_.shutdown(asio::socket_base::shutdown_send, ignored);
    while (!peer_gone_ && !timed_out_) {
      buffer_.clear();
      pump();
      co_await wait();
    }
  }

  bool stopping() const { return draining_ || service_.state() == Service::State::kDraining; }

  TcpSocket socket_;
  Timer wake_;
  Service& service_;
  const ConnectionLimits& limits_;
  std::function<void(Connection*)> ended_;

  Phase phase_ = Phase::kIdle;
  Clock::time_point deadline_ = kNever;
  Clock::time_point last_write_{};
  bool timed_out_ = false;
  bool draining_ = false;
  const char* abandoned_ = nullptr;  // why

  std::unique_ptr<Call> call_;
  std::string buffer_;  // read, not yet consumed
  std::array<char, kReadBytes> chunk_;
  bool reading_ = false;
  bool peer_gone_ = false;
};

}  // namespace

std::shared_ptr<Connection> make_connection(TcpSocket socket, Service& service,
                                            const ConnectionLimits& limits,
                                            std::function<void(Connection*)> ended) {
  return std::make_shared<CoroutineConnection>(std::move(socket), service, limits,
                                               std::move(ended));
}

}  // namespace nibble::api

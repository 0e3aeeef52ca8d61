#include "api/server.h"

#include <fmt/format.h>

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <thread>
#include <unordered_map>

#include "api/connection.h"
#include "api/errors.h"
#include "base/log.h"

namespace nibble::api {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

using Executor = asio::io_context::executor_type;
using Acceptor = asio::basic_socket_acceptor<tcp, Executor>;
using Timer = asio::basic_waitable_timer<Clock, asio::wait_traits<Clock>, Executor>;
constexpr asio::as_tuple_t<asio::use_awaitable_t<Executor>> kAsTuple;

constexpr std::chrono::milliseconds kAcceptPause{
    100};  // when the process is out of file descriptors
constexpr std::chrono::milliseconds kFarewell{
    2000};  // for telling clients that their request was cut off
constexpr std::chrono::milliseconds kLoadPatience{1000};  // for a loader that was asked to stop

tcp::endpoint resolve(asio::io_context& io, const std::string& host, int port) {
  error_code error;
  const asio::ip::address address = asio::ip::make_address(host, error);
  const auto number = static_cast<asio::ip::port_type>(port);
  if (!error) return {address, number};
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(host, "", tcp::resolver::passive, error);
  if (error || found.empty())
    throw Error(ExitCode::kFailed, fmt::format("cannot listen on {}: {}", host, error.message()));
  return {found.begin()->endpoint().address(), number};
}

void listen_on(Acceptor& acceptor, asio::io_context& io, const ServerOptions& options) {
  const tcp::endpoint endpoint = resolve(io, options.host, options.port);
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(1024, error);
  if (!error) return;
  if (error == asio::error::address_in_use)
    throw Error(
        ExitCode::kFailed,
        fmt::format("port {} of {} is in use by another program; choose another one with --port",
                    options.port, options.host));
  throw Error(ExitCode::kFailed, fmt::format("cannot listen on port {} of {}: {}", options.port,
                                             options.host, error.message()));
}

}  // namespace

struct Server::State {
  explicit State(ServerOptions given)
      : options(std::move(given)),
        acceptor(io.get_executor()),
        signals(io.get_executor()),
        ticker(io.get_executor()),
        service(options.service,
                [this](std::function<void()> work) { asio::post(io, std::move(work)); }) {}

  asio::awaitable<void, Executor> accept_loop();
  void admit(TcpSocket socket);
  void watch_signals();
  void tick_later();
  void tick();
  void stop_asked();
  void begin_stop(Clock::duration patience);
  void check_drained();
  void cut_off();
  void end();
  void loading_thread(const LoadModel& load);
  void join_loader();

  ServerOptions options;
  asio::io_context io{1};
  Acceptor acceptor;
  asio::basic_signal_set<Executor> signals;
  Timer ticker;
  Service service;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;
  ServerEvents events;

  bool stopping = false;
  bool cut = false;
  Clock::time_point stop_deadline;

  std::atomic<bool> cancel_load{false};
  std::atomic<bool> loader_done{false};
  std::exception_ptr failure;  // of the loader or the engine; io thread
  std::jthread loader;         // last: joins first
};

Server::Server(ServerOptions options) : state_(std::make_unique<State>(std::move(options))) {
  listen_on(state_->acceptor, state_->io, state_->options);
}

Server::~Server() {
  // Whatever still waits refers to connections and the service: it goes before them.
  state_->cancel_load = true;
}

int Server::port() const {
  return state_->acceptor.local_endpoint().port();
}

std::string Server::url() const {
  const tcp::endpoint endpoint = state_->acceptor.local_endpoint();
  const std::string host = endpoint.address().to_string();
  const char* bracket = endpoint.address().is_v6() ? "[]" : "";
  return fmt::format("http://{:.1}{}{}:{}", bracket, host, *bracket ? bracket + 1 : "",
                     endpoint.port());
}

void Server::stop() {
  asio::post(state_->io, [state = state_.get()] { state->stop_asked(); });
}

void Server::run(LoadModel load, ServerEvents events) {
  State& state = *state_;
  state.events = std::move(events);
  asio::co_spawn(state.io, state.accept_loop(), asio::detached);
  state.watch_signals();
  state.tick_later();
  state.loader = std::jthread([&state, load = std::move(load)] { state.loading_thread(load); });
  state.io.run();
  error_code ignored;
  state.acceptor.close(ignored);
  for (const auto& [key, connection] : state.connections) connection->close();
  state.join_loader();
  if (state.failure) std::rethrow_exception(state.failure);
}

void Server::State::loading_thread(const LoadModel& load) {
  const auto progress = [this](double fraction) {
    if (cancel_load) throw LoadCancelled{};
    asio::post(io, [this, fraction] { service.set_progress(fraction); });
  };
  try {
    auto model = std::make_shared<std::unique_ptr<ServedModel>>(load(progress));
    asio::post(io, [this, model] {
      service.set_model(std::move(*model));
      if (!stopping && events.ready) events.ready(service.model());
    });
  } catch (const LoadCancelled&) {
  } catch (...) {
    asio::post(io, [this, thrown = std::current_exception()] {
      failure = thrown;
      end();
    });
  }
  loader_done = true;
}

// A loader is asked to stop through its progress calls; when it makes none for too long, the process may want to leave.
void Server::State::join_loader() {
  cancel_load = true;
  const Clock::time_point patience = Clock::now() + kLoadPatience;
  while (!loader_done && Clock::now() < patience)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  if (!loader_done && events.leave) events.leave();
  loader.join();
}

asio::awaitable<void, Executor> Server::State::accept_loop() {
  while (acceptor.is_open()) {
    auto [error, socket] = co_await acceptor.async_accept(kAsTuple);
    if (!error) {
      admit(std::move(socket));
    } else if (error == asio::error::no_descriptors || error == asio::error::no_memory) {
      Timer pause(io.get_executor(), kAcceptPause);
      co_await pause.async_wait(kAsTuple);
    }
  }
}

void Server::State::admit(TcpSocket socket) {
  if (connections.size() >= static_cast<std::size_t>(options.max_connections)) {
    const HttpResponse refusal = error_response({503, "too many connections", "", "unavailable"});
    std::string bytes;
    append_response_head(bytes, refusal, {Framing::kLength, refusal.body.size(), false});
    bytes += refusal.body;
    error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(bytes), ignored);
    return;
  }
  auto connection =
      make_connection(std::move(socket), service, options.limits, [this](Connection* ended) {
        connections.erase(ended);
        check_drained();
      });
  connections.emplace(connection.get(), connection);
  connection->start();
}

void Server::State::watch_signals() {
  error_code ignored;
  signals.add(SIGINT, ignored);
  signals.add(SIGTERM, ignored);
  signals.async_wait([this](error_code error, int) {
    if (error) return;
    watch_signals();
    stop_asked();
  });
}

void Server::State::tick_later() {
  ticker.expires_after(options.tick);
  ticker.async_wait([this](error_code error) {
    if (error) return;
    tick();
    tick_later();
  });
}

void Server::State::tick() {
  const Clock::time_point now = Clock::now();
  service.tick(now);
  for (const auto& [key, connection] : connections) connection->tick(now);
  if (const std::string lost = service.failure(); !lost.empty() && !failure) {
    failure = std::make_exception_ptr(DeviceLost(lost));
    if (!stopping) begin_stop(kFarewell);
  }
  if (!stopping) return;
  check_drained();
  if (now < stop_deadline) return;
  cut ? end() : cut_off();
}

void Server::State::stop_asked() {
  if (stopping) {
    if (events.leave) events.leave();
    end();
    return;
  }
  begin_stop(options.drain_timeout);
  spdlog::info("stopping: {} requests are running, they have {} s", service.active(),
               std::chrono::duration_cast<std::chrono::seconds>(options.drain_timeout).count());
  check_drained();
}

void Server::State::begin_stop(Clock::duration patience) {
  stopping = true;
  cancel_load = true;
  stop_deadline = Clock::now() + patience;
  service.drain();
  for (const auto& [key, connection] : connections) connection->drain();
}

void Server::State::check_drained() {
  if (!stopping || service.active() > 0) return;
  for (const auto& [key, connection] : connections)
    if (connection->busy()) return;
  end();
}

void Server::State::cut_off() {
  cut = true;
  stop_deadline = Clock::now() + kFarewell;
  spdlog::warn("stopping: the time is over for {} requests", service.active());
  for (const auto& [key, connection] : connections) connection->abandon("the server is stopping");
}

void Server::State::end() {
  io.stop();
}

}  // namespace nibble::api

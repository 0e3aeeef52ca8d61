// One client's connection: reads requests, has them answered, writes answers and streams.
#pragma once

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>

#include "api/server.h"

namespace nibble::api {

using TcpSocket =
    boost::asio::basic_stream_socket<boost::asio::ip::tcp, boost::asio::io_context::executor_type>;

// Lives on the io thread. Keeps itself alive until the connection has ended.
class Connection {
 public:
  virtual ~Connection() = default;

  virtual void start() = 0;
  // Closes when a timeout is over; wakes a stream that owes its client a sign of life.
  virtual void tick(Clock::time_point now) = 0;
  // A request is being read, answered or written.
  virtual bool busy() const = 0;
  // No further request is taken; ends at once when idle.
  virtual void drain() = 0;
  // Ends what is running, with `reason` in the log, and closes when its client has been told.
  virtual void abandon(const char* reason) = 0;
  // Closes without a word.
  virtual void close() = 0;
};

// `service` and `limits` must outlive the connection. `ended` is called once, last.
std::shared_ptr<Connection> make_connection(TcpSocket socket, Service& service,
                                            const ConnectionLimits& limits,
                                            std::function<void(Connection*)> ended);

}  // namespace nibble::api

#include "hub/http_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <utility>

#include "checkpoint/quote.h"
#include "hub/curl_library.h"
#include "nibble/status.h"

namespace nibble::hub {
namespace {

constexpr int kMaxRedirects = 5;
constexpr std::size_t kMaxHeaders = 200;
constexpr std::size_t kLongestHeader = 16384;
constexpr long kStall_bytes_per_s = 100;
constexpr long kReceiveBuffer_bytes = 262144;

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

std::optional<std::int64_t> to_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || number < 0)
    return std::nullopt;
  return number;
}

std::string find(const Headers& headers, const std::string& name) {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string() : found->second;
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

template <typename Value>
void set(CURL* handle, CURLoption option, Value value) {
  if (const CURLcode code = curl().easy_setopt(handle, option, value); code != CURLE_OK)
    throw Error(ExitCode::kFailed,
                fmt::format("libcurl refuses option {}: {}", static_cast<int>(option),
                            curl().easy_strerror(code)));
}

class HeaderList {
 public:
  HeaderList() = default;
  ~HeaderList() { curl().slist_free_all(list_); }
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  void add(const std::string& line) { list_ = curl().slist_append(list_, line.c_str()); }
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

}  // namespace

std::string ResponseHead::header(const std::string& name) const {
  return find(headers, name);
}

std::string ResponseHead::hub_header(const std::string& name) const {
  return find(hub_headers, name);
}

std::int64_t ResponseHead::content_length() const {
  return to_number(header("content-length")).value_or(-1);
}

std::string ResponseHead::etag() const {
  return header("etag");
}

std::optional<ResponseHead::Part> ResponseHead::content_range() const {
  const std::string text = header("content-range");
  const auto dash = text.find('-');
  const auto slash = text.find('/');
  if (!text.starts_with("bytes ") || dash == std::string::npos || slash == std::string::npos ||
      slash < dash)
    return std::nullopt;
  const std::string_view view(text);
  const auto first = to_number(view.substr(6, dash - 6));
  const auto last = to_number(view.substr(dash + 1, slash - dash - 1));
  const auto total = to_number(view.substr(slash + 1));
  if (!first || !last || !total || *last < *first || *last >= *total) return std::nullopt;
  return Part{{*first, *last + 1}, *total};
}

// One request on one handle; what libcurl's callbacks see.
struct HttpClient::Exchange {
  const HttpClient& client;
  const GetRequest& request;
  const Headers* hub_headers;  // null: this answer is the hub's own
  GetResult result;
  bool head_done = false;
  bool stopped = false;
  bool too_long = false;
  std::int64_t body_bytes = 0;
  std::exception_ptr failure;

  // A status line begins a new head (after "100 Continue", for instance).
  void header_line(std::string_view line) {
    if (line.starts_with("HTTP/")) {
      result.head.headers.clear();
      const auto blank = line.find(' ');
      const auto code =
          blank == std::string_view::npos ? std::nullopt : to_number(line.substr(blank + 1, 3));
      result.head.status = static_cast<int>(code.value_or(0));
      return;
    }
    const auto colon = line.find(':');
    if (colon == std::string_view::npos || line.size() > kLongestHeader ||
        result.head.headers.size() >= kMaxHeaders)
      return;
    std::string name(line.substr(0, colon));
    for (char& c : name)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    result.head.headers[std::move(name)] = trimmed(line.substr(colon + 1));
  }

  // Once the headers are complete; also called for an answer without a body.
  bool accept_head() {
    if (head_done) return true;
    head_done = true;
    result.head.hub_headers = hub_headers ? *hub_headers : result.head.headers;
    if (is_redirect(result.head.status) || !request.on_head) return true;
    stopped = !request.on_head(result.head);
    return !stopped;
  }

  bool body_piece(std::span<const std::byte> bytes) {
    if (!accept_head()) return false;
    body_bytes += static_cast<std::int64_t>(bytes.size());
    if (body_bytes > request.max_body_bytes) {
      too_long = true;
      return false;
    }
    if (is_redirect(result.head.status)) return true;  // not what was asked for
    if (request.on_body) {
      stopped = !request.on_body(bytes);
      return !stopped;
    }
    result.body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return true;
  }

  static std::size_t on_header(char* data, std::size_t, std::size_t size, void* self) {
    static_cast<Exchange*>(self)->header_line({data, size});
    return size;
  }

  // An exception must not pass through C code: it is kept, and thrown again afterwards.
  static std::size_t on_data(char* data, std::size_t, std::size_t size, void* self) {
    auto& exchange = *static_cast<Exchange*>(self);
    try {
      return exchange.body_piece(std::as_bytes(std::span(data, size))) ? size : 0;
    } catch (...) {
      exchange.failure = std::current_exception();
      return 0;
    }
  }

  static int on_tick(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Exchange*>(self)->client.cancelled() ? 1 : 0;
  }
};

HttpClient::HttpClient(ClientOptions options) : options_(std::move(options)) {}

HttpClient::~HttpClient() {
  for (void* handle : idle_) curl().easy_cleanup(handle);
}

void* HttpClient::take_handle() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      void* handle = idle_.back();
      idle_.pop_back();
      return handle;
    }
  }
  CURL* handle = curl().easy_init();
  if (handle == nullptr) throw Error(ExitCode::kFailed, "libcurl cannot be started");
  return handle;
}

void HttpClient::give_handle(void* handle) {
  curl().easy_reset(handle);  // options go, connections stay
  const std::lock_guard lock(mutex_);
  idle_.push_back(handle);
}

GetResult HttpClient::get(const GetRequest& request) {
  Url url = request.url;
  Headers hub_headers;
  bool away = false;  // a redirect has led to another host
  for (int redirects = 0;; ++redirects) {
    GetResult result = get_once(request, url, away ? &hub_headers : nullptr);
    if (result.outcome != GetOutcome::kComplete || !is_redirect(result.head.status)) return result;
    const auto refuse = [&](const std::string& problem) {
      result.outcome = GetOutcome::kRefused;
      result.problem = problem;
      return std::move(result);
    };
    const std::string location = result.head.header("location");
    const auto target = resolve_url(url, location);
    if (!target) return refuse("redirected to " + checkpoint::quote(location));
    if (url.scheme == "https" && target->scheme != "https")
      return refuse("redirected from https to " + checkpoint::quote(target->origin()));
    if (redirects == kMaxRedirects)
      return refuse(fmt::format("redirected more than {} times", kMaxRedirects));
    if (!away) {
      // The hub describes the file in the headers of the redirect, whether or not it leads to another host.
      for (auto& [name, value] : result.head.headers) hub_headers[name] = value;
      away = hub_headers.contains("x-linked-etag") || target->origin() != url.origin();
    }
    url = *target;
  }
}

GetResult HttpClient::get_once(const GetRequest& request, const Url& url,
                               const Headers* hub_headers) {
  const CurlLibrary& library = curl();
  Exchange exchange{*this, request, hub_headers, {}, false, false, false, 0, nullptr};
  exchange.result.head.url = url;
  HeaderList headers;
  if (!options_.token.empty() && url.origin() == options_.endpoint.origin())
    headers.add("Authorization: Bearer " + options_.token);
  if (request.range)
    headers.add(fmt::format("Range: bytes={}-{}", request.range->begin, request.range->end - 1));
  if (!request.if_range.empty()) headers.add("If-Range: " + request.if_range);

  CURL* handle = take_handle();
  const std::string address = url.text();
  CURLcode code = CURLE_OK;
  try {
    set(handle, CURLOPT_URL, address.c_str());
    set(handle, CURLOPT_HTTPHEADER, headers.get());
    set(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    set(handle, CURLOPT_USERAGENT, "nibble");
    if (!options_.ca_file.empty()) set(handle, CURLOPT_CAINFO, options_.ca_file.c_str());
    set(handle, CURLOPT_NOSIGNAL, 1L);
    set(handle, CURLOPT_FOLLOWLOCATION, 0L);
    set(handle, CURLOPT_TCP_KEEPALIVE, 1L);
    // A wish: a handle whose last transfer failed early still holds its buffer, and libcurl then refuses a new size.
    (void)library.easy_setopt(handle, CURLOPT_BUFFERSIZE, kReceiveBuffer_bytes);
    set(handle, CURLOPT_CONNECTTIMEOUT, static_cast<long>(options_.stall_limit_s));
    set(handle, CURLOPT_LOW_SPEED_LIMIT, kStall_bytes_per_s);
    set(handle, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options_.stall_limit_s));
    set(handle, CURLOPT_TIMEOUT, static_cast<long>(request.total_timeout_s));
    set(handle, CURLOPT_HEADERFUNCTION, &Exchange::on_header);
    set(handle, CURLOPT_HEADERDATA, static_cast<void*>(&exchange));
    set(handle, CURLOPT_WRITEFUNCTION, &Exchange::on_data);
    set(handle, CURLOPT_WRITEDATA, static_cast<void*>(&exchange));
    set(handle, CURLOPT_NOPROGRESS, 0L);
    set(handle, CURLOPT_XFERINFOFUNCTION, &Exchange::on_tick);
    set(handle, CURLOPT_XFERINFODATA, static_cast<void*>(&exchange));
    code = library.easy_perform(handle);
    curl_off_t wait_s = 0;
    library.easy_getinfo(handle, CURLINFO_RETRY_AFTER, &wait_s);
    exchange.result.retry_after_s = static_cast<int>(std::clamp<curl_off_t>(wait_s, 0, 86400));
  } catch (...) {
    give_handle(handle);
    throw;
  }
  give_handle(handle);
  if (exchange.failure) std::rethrow_exception(exchange.failure);

  GetResult& result = exchange.result;
  if (code == CURLE_OK && result.head.status != 0) exchange.accept_head();  // may have no body
  if (exchange.stopped) {
    result.outcome = GetOutcome::kStopped;
  } else if (exchange.too_long) {
    result.outcome = GetOutcome::kTooLong;
  } else if (code == CURLE_ABORTED_BY_CALLBACK) {
    result.outcome = GetOutcome::kCancelled;
  } else if (code == CURLE_OK && result.head.status != 0) {
    result.outcome = GetOutcome::kComplete;
  } else if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
    result.outcome = GetOutcome::kRefused;
    result.problem = fmt::format("is not trusted: {}", library.easy_strerror(code));
  } else {
    result.outcome = GetOutcome::kBroken;
    result.problem = code == CURLE_OK ? "no HTTP answer" : library.easy_strerror(code);
  }
  return std::move(result);
}

}  // namespace nibble::hub

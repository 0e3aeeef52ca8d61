#include "api/service.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <span>

#include "api/errors.h"
#include "api/json_writer.h"
#include "api/openai/answer_call.h"
#include "api/page.h"
#include "base/log.h"
#include "base/sha256.h"

namespace nibble::api {
namespace {

constexpr std::string_view kResetPath = "/reset_prefix_cache";
constexpr std::string_view kPostPaths[] = {"/v1/chat/completions", "/v1/completions", "/tokenize",
                                           "/detokenize", kResetPath};
constexpr const char* kGetPaths[] = {"/live", "/ready", "/health", "/metrics", "/v1/models"};
constexpr std::string_view kModelPrefix = "/v1/models/";

bool is_post_path(std::string_view path) {
  return std::find(std::begin(kPostPaths), std::end(kPostPaths), path) != std::end(kPostPaths);
}

bool is_get_path(std::string_view path) {
  return std::find(std::begin(kGetPaths), std::end(kGetPaths), path) != std::end(kGetPaths) ||
         path.starts_with(kModelPrefix) || find_page_asset(path) != nullptr;
}

// Probes, metrics and the page itself are open; they show no text of anybody.
bool needs_key(std::string_view path) {
  return path.starts_with("/v1/") || is_post_path(path);
}

// Compares digests, so that neither content nor length of the key shows in the time taken.
bool same_key(const std::string& authorization, const std::string& key) {
  constexpr std::string_view kScheme = "Bearer ";
  if (authorization.size() < kScheme.size()) return false;
  for (std::size_t i = 0; i < kScheme.size(); ++i)
    if ((authorization[i] | 0x20) != (kScheme[i] | 0x20)) return false;
  const auto digest = [](std::string_view text) {
    return sha256_hex(std::as_bytes(std::span(text)));
  };
  const std::string given = digest(std::string_view(authorization).substr(kScheme.size()));
  const std::string expected = digest(key);
  return CRYPTO_memcmp(given.data(), expected.data(), expected.size()) == 0;
}

bool is_json(std::string_view content_type) {
  constexpr std::string_view kJson = "application/json";
  if (content_type.size() < kJson.size()) return false;
  for (std::size_t i = 0; i < kJson.size(); ++i)
    if (std::tolower(static_cast<unsigned char>(content_type[i])) != kJson[i]) return false;
  return content_type.size() == kJson.size() || content_type[kJson.size()] == ';' ||
         content_type[kJson.size()] == ' ';
}

HttpResponse json_response(int status, std::string body) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

HttpResponse method_not_allowed(const HttpRequest& request, const char* allowed) {
  HttpResponse response = error_response(
      {405, fmt::format("{} does not know {}; use {}", request.path, request.method, allowed), "",
       "method_not_allowed"});
  response.headers.emplace_back("Allow", allowed);
  return response;
}

}  // namespace

Service::Service(ServiceOptions options, PostToIo post)
    : options_(std::move(options)),
      post_(std::move(post)),
      metrics_(options_.model_name),
      started_s_(static_cast<std::int64_t>(std::time(nullptr))),
      workers_(options_.prepare_threads) {}

Service::~Service() {
  *alive_ = false;
}

void Service::set_model(std::unique_ptr<ServedModel> model) {
  model_ = std::move(model);
  client_ = std::make_unique<EngineClient>(*model_->engine, metrics_, post_);
  progress_ = 1.0;
  if (state_ == State::kLoading) state_ = State::kReady;
}

void Service::handle(HttpRequest request, std::function<void(Reply)> done) {
  if (auto refusal = refuse_early(request)) return done(std::move(*refusal));
  if (request.method == "GET" || request.method == "HEAD") return done(answer_get(request.path));
  if (state_ != State::kReady) return done(unavailable());
  if (request.path == kResetPath) {
    model_->engine->reset_prefix_cache();
    return done(json_response(200, R"({"status":"ok"})"));
  }
  prepare(std::move(request), std::move(done));
}

std::optional<HttpResponse> Service::refuse_early(const HttpRequest& request) const {
  const bool post_path = is_post_path(request.path);
  if (!post_path && !is_get_path(request.path) && request.path != "*")
    return error_response(
        {404, fmt::format("there is nothing at {}", request.path), "", "not_found"});
  const char* allowed = post_path ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
  if (request.method == "OPTIONS") {
    // No cross-origin permission: a page from elsewhere must not use this server through its visitor's browser.
    HttpResponse response;
    response.status = 204;
    response.content_type.clear();
    response.headers.emplace_back("Allow", allowed);
    return response;
  }
  const bool get = request.method == "GET" || request.method == "HEAD";
  if (post_path ? request.method != "POST" : !get) return method_not_allowed(request, allowed);
  if (!options_.api_key.empty() && needs_key(request.path) &&
      !same_key(request.authorization, options_.api_key)) {
    HttpResponse response =
        error_response({401, "missing or wrong API key; send it as Authorization: Bearer KEY", "",
                        "invalid_api_key"});
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
    return response;
  }
  // Also keeps pages from elsewhere out: a browser sends this type only after asking with OPTIONS.
  if (post_path && request.path != kResetPath && !is_json(request.content_type))
    return error_response(
        {415, "expected Content-Type: application/json", "", "unsupported_media_type"});
  return std::nullopt;
}

HttpResponse Service::answer_get(const std::string& path) const {
  if (path == "/live") return live();
  if (path == "/health" || path == "/ready") return health();
  if (path == "/metrics") {
    HttpResponse response =
        json_response(200, metrics_.text(model_ ? model_->engine->stats() : EngineStats{}));
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    return response;
  }
  if (path.starts_with("/v1/models")) {
    if (state_ != State::kReady) return unavailable();
    if (path.starts_with(kModelPrefix) && path.substr(kModelPrefix.size()) != options_.model_name)
      return error_response({404,
                             fmt::format("the model '{}' does not exist; this server has '{}'",
                                         path.substr(kModelPrefix.size()), options_.model_name),
                             "model", "model_not_found"});
    HttpResponse response = models();
    if (path.starts_with(kModelPrefix)) {
      // The list's only element.
      const std::size_t begin = response.body.find('[') + 1;
      response.body = response.body.substr(begin, response.body.rfind(']') - begin);
    }
    return response;
  }
  return page_response(*find_page_asset(path));
}

Service::Prepare Service::prepare_for(const std::string& path) const {
  const ServedModel& model = *model_;
  const std::string& name = options_.model_name;
  if (path == "/v1/chat/completions")
    return [&](const std::string& body) -> Prepared {
      return openai::prepare_chat(body, model, name);
    };
  if (path == "/v1/completions")
    return [&](const std::string& body) -> Prepared {
      return openai::prepare_completion(body, model, name);
    };
  if (path == "/tokenize")
    return [&](const std::string& body) -> Prepared {
      return openai::answer_tokenize(body, model, name);
    };
  return [&](const std::string& body) -> Prepared {
    return openai::answer_detokenize(body, model, name);
  };
}

// The route wrapper: a request at fault is answered as such, anything else that goes wrong is a 500 for this request alone.
void Service::prepare(HttpRequest request, std::function<void(Reply)> done) {
  ++preparing_;
  const Clock::time_point arrived = Clock::now();
  workers_.run([this, arrived, alive = alive_, post = post_, work = prepare_for(request.path),
                body = std::move(request.body), done = std::move(done)]() mutable {
    Prepared prepared;
    try {
      prepared = work(body);
    } catch (const RequestError& error) {
      prepared = error_response(error.error());
    } catch (const std::exception& error) {
      spdlog::error("a request could not be prepared: {}", error.what());
      prepared = error_response(
          {500, "the server failed to read this request; see its log", "", "internal"});
    }
    auto result = std::make_shared<Prepared>(std::move(prepared));
    post([this, arrived, alive, result, done = std::move(done)] {
      if (!*alive) return;
      --preparing_;
      done(start(std::move(*result), arrived));
    });
  });
}

Reply Service::start(Prepared prepared, Clock::time_point arrived) {
  if (auto* response = std::get_if<HttpResponse>(&prepared)) return std::move(*response);
  if (auto* body = std::get_if<std::string>(&prepared)) return json_response(200, std::move(*body));
  if (state_ != State::kReady) return unavailable();
  const auto start_call = [&](auto& plan) {
    return openai::AnswerCall::start(*client_, *model_, options_.model_name, std::move(plan),
                                     arrived, options_.stream_buffer_bytes);
  };
  auto* chat = std::get_if<openai::ChatPlan>(&prepared);
  auto call = chat ? start_call(*chat) : start_call(std::get<openai::CompletionPlan>(prepared));
  if (!call) return error_response(api_error(call.status()));
  return std::move(call).value();
}

HttpResponse Service::health() const {
  std::string body;
  JsonWriter json(body);
  json.begin_object();
  int status = 200;
  if (state_ == State::kLoading) {
    status = 503;
    json.member("status", "loading").key("progress").number(progress_);
  } else if (state_ == State::kDraining) {
    status = 503;
    json.member("status", "draining").key("active").number(static_cast<std::uint64_t>(active()));
  } else if (stalled_) {
    status = 503;
    json.member("status", "stalled");
  } else {
    json.member("status", "ok");
  }
  json.member("model", options_.model_name).end_object();
  HttpResponse response = json_response(status, std::move(body));
  if (status == 503) response.headers.emplace_back("Retry-After", "2");
  response.headers.emplace_back("Cache-Control", "no-store");
  return response;
}

HttpResponse Service::live() const {
  if (!stalled_) return json_response(200, R"({"status":"alive"})");
  const auto idle =
      std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - *stuck_since_).count();
  std::string body;
  JsonWriter(body)
      .begin_object()
      .member("status", "stalled")
      .member("cause", fmt::format("the engine has made no step for {} s while requests run", idle))
      .end_object();
  return json_response(503, std::move(body));
}

HttpResponse Service::models() const {
  std::string body;
  JsonWriter json(body);
  json.begin_object().member("object", "list").key("data").begin_array().begin_object();
  json.member("id", options_.model_name).member("object", "model").member("created", started_s_);
  json.member("owned_by", "nibble").member("root", options_.model_name).key("parent").null();
  json.member("max_model_len", client_->info().max_model_len);
  json.end_object().end_array().end_object();
  return json_response(200, std::move(body));
}

HttpResponse Service::unavailable() const {
  if (state_ == State::kDraining)
    return error_response({503, "the server is stopping", "", "draining"});
  return error_response({503,
                         fmt::format("the model is still loading ({:.0f} %)", progress_ * 100.0),
                         "", "loading"});
}

void Service::tick(Clock::time_point now) {
  if (!model_) return;
  const EngineStats stats = model_->engine->stats();
  if (stats.running == 0 || stats.steps != last_steps_) {
    if (stalled_) spdlog::warn("the engine makes steps again");
    stuck_since_.reset();
    stalled_ = false;
  } else {
    if (!stuck_since_) stuck_since_ = now;
    if (!stalled_ && now - *stuck_since_ > options_.stall_limit) {
      stalled_ = true;
      spdlog::error("the engine has made no step for {} s while {} requests run",
                    std::chrono::duration_cast<std::chrono::seconds>(now - *stuck_since_).count(),
                    stats.running);
    }
  }
  last_steps_ = stats.steps;
}

}  // namespace nibble::api

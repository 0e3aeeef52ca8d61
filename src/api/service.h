// The routes: what each path answers, in every state of the server.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "api/call.h"
#include "api/engine_client.h"
#include "api/http.h"
#include "api/metrics.h"
#include "api/openai/prepare.h"
#include "api/served_model.h"
#include "api/workers.h"

namespace nibble::api {

struct ServiceOptions {
  std::string model_name;                     // what "model" must be in requests
  std::string api_key;                        // empty: none is asked for
  std::size_t stream_buffer_bytes = 1 << 20;  // unread text of one stream before it is given up
  int prepare_threads = 2;
  Clock::duration stall_limit =
      std::chrono::minutes(5);  // no step for so long while requests run: /live is 503
};

// What a route answers: a complete response, or a call that is being generated.
using Reply = std::variant<HttpResponse, std::unique_ptr<Call>>;

// Lives on the io thread.
class Service {
 public:
  enum class State { kLoading, kReady, kDraining };

  Service(ServiceOptions options, PostToIo post);
  ~Service();

  void set_progress(double fraction) { progress_ = fraction; }  // while loading, 0..1
  void set_model(std::unique_ptr<ServedModel> model);           // ready from now on
  void drain() { state_ = State::kDraining; }  // answers 503 to whatever would start work
  State state() const { return state_; }
  const ServedModel& model() const { return *model_; }  // after set_model()

  // `done` is called once: before handle() returns, or later from the io thread.
  void handle(HttpRequest request, std::function<void(Reply)> done);

  // To be called about once a second: watches over the engine's progress.
  void tick(Clock::time_point now);

  // Engine::failure(), empty without an engine.
  std::string failure() const { return model_ ? model_->engine->failure() : ""; }

  // Requests being prepared or generated.
  std::size_t active() const { return preparing_ + (client_ ? client_->active() : 0); }

 private:
  using Prepared =
      std::variant<openai::ChatPlan, openai::CompletionPlan, std::string, HttpResponse>;
  using Prepare = std::function<Prepared(const std::string& body)>;

  std::optional<HttpResponse> refuse_early(const HttpRequest& request) const;
  HttpResponse answer_get(const std::string& path) const;
  Prepare prepare_for(const std::string& path) const;
  void prepare(HttpRequest request, std::function<void(Reply)> done);
  Reply start(Prepared prepared, Clock::time_point arrived);

  HttpResponse health() const;
  HttpResponse live() const;
  HttpResponse models() const;
  HttpResponse unavailable() const;

  ServiceOptions options_;
  PostToIo post_;
  Metrics metrics_;
  State state_ = State::kLoading;
  double progress_ = 0.0;
  std::unique_ptr<ServedModel> model_;
  std::unique_ptr<EngineClient> client_;
  std::int64_t started_s_ = 0;  // Unix time; "created" of the model

  std::uint64_t last_steps_ = 0;
  std::optional<Clock::time_point> stuck_since_;
  bool stalled_ = false;

  std::size_t preparing_ = 0;
  std::shared_ptr<bool> alive_ =
      std::make_shared<bool>(true);  // for what is posted back after the end
  Workers workers_;                  // last: joins before what its jobs read goes
};

}  // namespace nibble::api

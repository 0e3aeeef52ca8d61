#include "bench/load.h"

#include <algorithm>
#include <memory>

#include "api/json_writer.h"
#include "bench/sse_reader.h"

namespace nibble::bench {
namespace {

constexpr int kRefusalsToGiveUp = 3;
constexpr double kRetryPause_s = 0.5;  // without a Retry-After
constexpr std::uint64_t kArrivalStream = 1, kSamplingStream = 2;

const char* kind_of(HttpOutcome outcome) {
  switch (outcome) {
    case HttpOutcome::kComplete:
      return "";
    case HttpOutcome::kRefused:
      return "connection refused";
    case HttpOutcome::kUnreachable:
      return "no connection";
    case HttpOutcome::kClosed:
      return "connection lost";
    case HttpOutcome::kTimeout:
      return "timeout";
    case HttpOutcome::kDamaged:
      return "damaged answer";
  }
  return "";
}

class LoadRun {
 public:
  LoadRun(const Target& target, const LoadOptions& options,
          std::span<const Conversation> conversations,
          const std::function<void(std::size_t)>& progress)
      : target_(target),
        options_(options),
        conversations_(conversations),
        progress_(progress),
        client_(loop_, target.endpoint, options.max_connections) {}

  LoadResult run() {
    if (options_.rate > 0.0) {
      schedule_arrivals();
    } else {
      for (int i = 0; i < options_.concurrency; ++i) start_next();
    }
    loop_.run();
    for (const RequestRecord& record : result_.records)
      result_.duration_s = std::max(result_.duration_s, record.end_s);
    result_.duration_s -= first_start_s_;
    return std::move(result_);
  }

 private:
  // One request on its way: lives in the handlers of its call.
  struct Flight {
    explicit Flight(EventLoop& loop)
        : recorder(record),
          sse([this, &loop](std::string_view data) { recorder.on_event(data, loop.now_s()); }) {}

    RequestRecord record;
    StreamRecorder recorder;
    SseReader sse;
    std::string error_body;
    double deadline_s = 0.0;
  };

  void schedule_arrivals() {
    std::size_t turns = 0;
    for (const Conversation& conversation : conversations_) turns += conversation.turns.size();
    const double mean_gap_s =
        static_cast<double>(turns) / static_cast<double>(conversations_.size()) / options_.rate;
    Random random(options_.seed, kArrivalStream);
    double due_s = loop_.now_s();
    for (std::size_t i = 0; i < conversations_.size(); ++i) {
      loop_.at(due_s, [this, i, due_s] { start(i, 0, due_s); });
      due_s += random.exponential(mean_gap_s);
    }
  }

  void start_next() {
    // Goes on past a conversation that is not sent because the server is gone: nothing else would.
    do {
      if (next_ == conversations_.size()) return;
      start(next_++, 0, loop_.now_s());
    } while (gone_);
  }

  void start(std::size_t conversation, int turn, double due_s) {
    if (gone_) {
      result_.unsent += static_cast<int>(conversations_[conversation].turns.size()) - turn;
      return;
    }
    if (first_start_s_ < 0.0) first_start_s_ = due_s;
    auto flight = std::make_shared<Flight>(loop_);
    flight->record.conversation = static_cast<int>(conversation);
    flight->record.turn = turn;
    flight->record.start_s = due_s;
    flight->deadline_s = due_s + options_.timeout_s;
    send(flight);
  }

  void send(const std::shared_ptr<Flight>& flight) {
    const RequestRecord& record = flight->record;
    HttpCall call;
    call.method = "POST";
    call.path = "/v1/chat/completions";
    call.bearer = target_.api_key;
    call.timeout_s = flight->deadline_s - loop_.now_s();
    const Conversation& conversation =
        conversations_[static_cast<std::size_t>(record.conversation)];
    const std::uint64_t request_number = static_cast<std::uint64_t>(record.conversation) * 1000 +
                                         static_cast<std::uint64_t>(record.turn);
    // OpenAI's clients send seeds as signed numbers.
    const std::uint64_t seed = Random(options_.seed + request_number, kSamplingStream).next() >> 33;
    call.body = request_body(target_, options_, conversation.messages_json(record.turn), seed);
    call.on_body = [flight](int status, std::string_view bytes) {
      if (status == 200)
        flight->sse.push(bytes);
      else
        flight->error_body += bytes;
    };
    call.on_end = [this, flight](const HttpResult& result) { ended(flight, result); };
    client_.send(std::move(call));
  }

  void ended(const std::shared_ptr<Flight>& flight, const HttpResult& result) {
    RequestRecord& record = flight->record;
    const bool complete = result.outcome == HttpOutcome::kComplete;
    if (complete && (result.status == 429 || result.status == 503)) {
      ++record.rejected;
      const double pause_s = result.retry_after_s > 0 ? result.retry_after_s : kRetryPause_s;
      if (options_.retry && loop_.now_s() + pause_s < flight->deadline_s) {
        flight->error_body.clear();
        return loop_.at(loop_.now_s() + pause_s, [this, flight] { send(flight); });
      }
    }
    if (!complete) {
      record.error = kind_of(result.outcome);
      record.message = result.message;
    } else if (result.status != 200) {
      record_http_error(record, result.status, flight->error_body);
    }
    flight->recorder.finish(loop_.now_s());
    refusals_ = result.outcome == HttpOutcome::kRefused ? refusals_ + 1 : 0;
    gone_ = gone_ || refusals_ >= kRefusalsToGiveUp;
    const auto conversation = static_cast<std::size_t>(record.conversation);
    const int turn = record.turn + 1;
    result_.records.push_back(std::move(record));
    if (progress_) progress_(result_.records.size());
    go_on(conversation, turn);
  }

  // The conversation's next turn, or, in a closed loop, the next conversation.
  void go_on(std::size_t conversation, int turn) {
    const std::vector<Turn>& turns = conversations_[conversation].turns;
    if (static_cast<std::size_t>(turn) < turns.size()) {
      const double due_s = loop_.now_s() + turns[static_cast<std::size_t>(turn)].think_s;
      loop_.at(due_s, [this, conversation, turn, due_s] { start(conversation, turn, due_s); });
    } else if (options_.rate <= 0.0) {
      // Not from here: a server that is gone would have the whole trace on the stack.
      loop_.at(loop_.now_s(), [this] { start_next(); });
    }
  }

  const Target& target_;
  const LoadOptions& options_;
  std::span<const Conversation> conversations_;
  const std::function<void(std::size_t)>& progress_;
  EventLoop loop_;
  HttpClient client_;
  LoadResult result_;
  std::size_t next_ = 0;  // closed loop: the conversation to start next
  double first_start_s_ = -1.0;
  int refusals_ = 0;  // on end
  bool gone_ = false;
};

}  // namespace

LoadResult run_load(const Target& target, const LoadOptions& options,
                    std::span<const Conversation> conversations,
                    const std::function<void(std::size_t)>& progress) {
  if (conversations.empty()) return {};
  return LoadRun(target, options, conversations, progress).run();
}

std::string request_body(const Target& target, const LoadOptions& options,
                         const std::string& messages_json, std::uint64_t seed) {
  std::string body;
  api::JsonWriter json(body);
  json.begin_object().member("model", target.model).key("messages").raw(messages_json);
  json.member("max_tokens", options.max_tokens).key("temperature").number(options.temperature);
  if (options.temperature > 0.0) json.key("seed").number(seed);
  if (options.ignore_eos) json.member("ignore_eos", true);
  json.member("stream", true);
  if (!target.stream_options.empty()) json.key("stream_options").raw(target.stream_options);
  json.end_object();
  return body;
}

}  // namespace nibble::bench

#include "api/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <vector>

namespace nibble::api {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets kFirstTokenSeconds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25, 0.5,
                                    0.75,  1.0,   2.5,  5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0};
const Buckets kTokenGapSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                                  0.2,   0.3,    0.4,   0.5,  0.75,  1.0,  2.5,   5.0, 10.0};

prometheus::MetricFamily family(const std::string& name, const std::string& help,
                                prometheus::MetricType type, const std::string& model_name,
                                double value) {
  prometheus::ClientMetric metric;
  metric.label.push_back({"model_name", model_name});
  metric.gauge.value = value;
  metric.counter.value = value;
  prometheus::MetricFamily out;
  out.name = name;
  out.help = help;
  out.type = type;
  out.metric.push_back(std::move(metric));
  return out;
}

prometheus::MetricFamily pages(const EngineStats& stats, const std::string& model_name) {
  prometheus::MetricFamily out = family("nibble:pages", "Pages of 256 tokens, by owner",
                                        prometheus::MetricType::Gauge, model_name, 0.0);
  const prometheus::ClientMetric one = out.metric.front();
  out.metric.clear();
  const auto put = [&](const char* owner, int count) {
    prometheus::ClientMetric metric = one;
    metric.label.push_back({"pool", "kv"});
    metric.label.push_back({"owner", owner});
    metric.gauge.value = count;
    out.metric.push_back(std::move(metric));
  };
  put("free", stats.pages_free);
  put("sequences", stats.pages_sequences);
  put("prefix_cache", stats.pages_prefix_cache);
  put("host", stats.pages_host);
  return out;
}

}  // namespace

struct Metrics::State {
  explicit State(const std::string& name)
      : model_name(name),
        first_token(prometheus::BuildHistogram()
                        .Name("vllm:time_to_first_token_seconds")
                        .Help("Seconds from a complete request to its first generated token")
                        .Register(registry)
                        .Add({{"model_name", name}}, kFirstTokenSeconds)),
        token_gap(prometheus::BuildHistogram()
                      .Name("vllm:inter_token_latency_seconds")
                      .Help("Seconds between generated tokens of a request; a step that gives "
                            "several counts each")
                      .Register(registry)
                      .Add({{"model_name", name}}, kTokenGapSeconds)),
        cancelled(
            prometheus::BuildCounter()
                .Name("nibble:requests_cancelled_total")
                .Help("Requests ended before their end: the client left, or the server stopped")
                .Register(registry)
                .Add({{"model_name", name}})) {}

  std::string model_name;
  prometheus::Registry registry;
  prometheus::Histogram& first_token;
  prometheus::Histogram& token_gap;
  prometheus::Counter& cancelled;
};

Metrics::Metrics(const std::string& model_name) : state_(std::make_unique<State>(model_name)) {}
Metrics::~Metrics() = default;

void Metrics::observe_first_token(double seconds) {
  state_->first_token.Observe(seconds);
}

void Metrics::observe_tokens(double seconds, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) state_->token_gap.Observe(seconds);
}

void Metrics::count_cancelled() {
  state_->cancelled.Increment();
}

std::string Metrics::text(const EngineStats& stats) const {
  using prometheus::MetricType;
  std::vector<prometheus::MetricFamily> families = state_->registry.Collect();
  const auto put = [&](const char* name, const char* help, MetricType type, double value) {
    families.push_back(family(name, help, type, state_->model_name, value));
  };
  const auto count = [](std::uint64_t value) { return static_cast<double>(value); };
  put("vllm:num_requests_running", "Requests in the batch", MetricType::Gauge, stats.running);
  put("vllm:num_requests_waiting", "Requests in the queue", MetricType::Gauge, stats.waiting);
  put("vllm:kv_cache_usage_perc", "Share of the cache in use, 1 is all of it", MetricType::Gauge,
      stats.kv_usage);
  put("vllm:prompt_tokens_total", "Prompt tokens taken in, computed or found", MetricType::Counter,
      count(stats.prompt_tokens + stats.cached_tokens));
  put("vllm:prefix_cache_hits_total", "Prompt tokens taken from the prefix cache",
      MetricType::Counter, count(stats.cached_tokens));
  put("vllm:num_preemptions_total", "Sequences put back into the queue for want of pages",
      MetricType::Counter, count(stats.preemptions));
  put("vllm:generation_tokens_total", "Tokens generated", MetricType::Counter,
      count(stats.generated_tokens));
  put("nibble:draft_tokens_total", "Tokens drafted", MetricType::Counter,
      count(stats.drafted_tokens));
  put("nibble:draft_tokens_accepted_total", "Drafted tokens that were kept", MetricType::Counter,
      count(stats.accepted_tokens));
  put("nibble:steps_total", "Steps of the engine", MetricType::Counter, count(stats.steps));
  put("nibble:step_seconds_total", "Seconds spent in steps", MetricType::Counter,
      stats.step_seconds);
  put("nibble:scheduler_seconds_total", "Of these, the scheduler's own, outside the model",
      MetricType::Counter, stats.step_seconds - stats.model_seconds);
  put("nibble:snapshots", "Places where a prefix can be taken up", MetricType::Gauge,
      stats.snapshots);
  put("nibble:snapshot_bytes", "Host memory of the snapshots", MetricType::Gauge,
      static_cast<double>(stats.snapshot_bytes));
  families.push_back(pages(stats, state_->model_name));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace nibble::api

// Times the CPU backend's ops at the bundled model's shapes. Each line: median and best time, bytes of
// weights and cache read, FLOPs, and the share of the floor: the larger of bytes / bandwidth and
// FLOPs / rate, both measured in this run, over the median time.
//
//   ops_bench [--threads N] [--rows 1,64] [--context 500] [--filter linear] [--backend cpu|ref]
//             [--exact] [--ms 100]
//
// Weights are kept in as many copies as a model has layers or experts, and taken in turn, so that
// they come from where a model's weights come from and not from the first-level cache.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "machine_ceilings.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/ref/ref_backend.h"

namespace nibble::bench {
namespace {

using ops::Matrix;
using quant::Format;
using tensor::DType;
using tensor::View;

// models/tiny/config.json
constexpr std::int64_t kD = 256, kHeads = 4, kHd = 512, kQueryRank = 128, kGroups = 2,
                       kGroupRank = 128;
constexpr std::int64_t kIndexHeads = 4, kIndexWidth = 128, kTopk = 32, kWindow = 128, kPairs = 32;
constexpr std::int64_t kHc = 4, kExperts = 16, kChosen = 2, kInner = 128, kVocab = 2560;
constexpr std::int64_t kModelBytes = 22 << 20;

struct Options {
  int threads = available_cpus();
  std::vector<int> rows = {1, 2, 64, 512};
  int context = 500;
  std::string filter, backend = "cpu";
  bool exact = false;
  int ms = 100;
};

// One op at one shape. `run(i)` does it with the i-th copy of its weights.
struct Line {
  std::string name;
  double bytes = 0.0, flops = 0.0;
  int copies = 1;
  double per_step = 0.0;  // how often a decode step of the model does it
  std::function<void(int copy)> run = {};
};

class Bench {
 public:
  Bench(const Options& options, ops::Backend& backend, ThreadPool& pool)
      : options_(options),
        b_(backend),
        small_(measure_ceilings(pool, kModelBytes)),
        large_(measure_ceilings(pool, 256 << 20)) {
    fmt::print("{}; {}\n", b_.description(),
               options.exact ? "exact, fp32 rows" : "release, FP8 rows");
    fmt::print(
        "ceilings: {:.1f} GB/s from a buffer of the model's {} MB, {:.1f} GB/s from 256 MB, "
        "{:.1f} GFLOP/s\n",
        small_.read_bytes_per_s / 1e9, kModelBytes >> 20, large_.read_bytes_per_s / 1e9,
        small_.flops / 1e9);
    fmt::print("{:<46} {:>10} {:>10} {:>10} {:>10} {:>7}\n", "op", "us", "best", "KB", "MFLOP",
               "floor");
  }

  void run_all() {
    for (const int n : options_.rows) {
      step_us_ = best_step_us_ = 0.0;
      matrices(n);
      experts(n);
      streams(n);
      attention(n);
      if (options_.filter.empty())
        fmt::print("{:<46} {:>10.1f} {:>10.1f}   the ops of a step of {} row{}: {:.0f} tokens/s\n",
                   "all layers", step_us_, best_step_us_, n, n == 1 ? "" : "s", 1e6 * n / step_us_);
    }
  }

 private:
  // Times `line` and prints it.
  void measure(const Line& line) {
    if (line.name.find(options_.filter) == std::string::npos) return;
    std::vector<double> times;
    int copy = 0;
    const auto start = std::chrono::steady_clock::now();
    const auto enough = start + std::chrono::milliseconds(options_.ms);
    for (int i = 0; i < 3; ++i) line.run(copy++ % line.copies);  // buffers grow, caches fill
    do {
      const auto begin = std::chrono::steady_clock::now();
      line.run(copy++ % line.copies);
      const auto end = std::chrono::steady_clock::now();
      times.push_back(std::chrono::duration<double>(end - begin).count());
    } while (times.size() < 5 || std::chrono::steady_clock::now() < enough);
    std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2),
                     times.end());
    const double median = times[times.size() / 2];
    const double floor = std::max(line.bytes / small_.read_bytes_per_s, line.flops / small_.flops);
    const double best = *std::min_element(times.begin(), times.end());
    fmt::print("{:<46} {:>10.2f} {:>10.2f} {:>10.1f} {:>10.3f} {:>6.0f}%\n", line.name,
               median * 1e6, best * 1e6, line.bytes / 1024.0, line.flops / 1e6,
               100.0 * floor / median);
    best_step_us_ += line.per_step * best * 1e6;
    step_us_ += line.per_step * median * 1e6;
  }

  View f32(const tensor::Shape& shape, float deviation = 1.0f) {
    std::normal_distribution<float> draw(0.0f, deviation);
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    for (float& x : values) x = draw(random_);
    return b_.upload(std::span<const float>(values), shape);
  }

  Matrix matrix(Format format, std::int64_t rows, std::int64_t cols) {
    std::normal_distribution<float> draw(0.0f, 1.0f / std::sqrt(static_cast<float>(cols)));
    std::vector<float> values(static_cast<std::size_t>(rows * cols));
    for (float& x : values) x = draw(random_);
    return b_.upload(quant::encode_matrix(format, rows, cols, values));
  }

  std::vector<Matrix> copies(Format format, std::int64_t rows, std::int64_t cols, int count) {
    std::vector<Matrix> out;
    for (int i = 0; i < count; ++i) out.push_back(matrix(format, rows, cols));
    return out;
  }

  static double matrix_bytes(const Matrix& m) {
    return static_cast<double>(quant::data_bytes(m.format, m.rows, m.cols) +
                               quant::scale_bytes(m.format, m.rows, m.cols));
  }

  void linear(const char* what, Format format, std::int64_t rows, std::int64_t cols, int n,
              bool quantize, double per_step) {
    const int count = static_cast<int>(std::clamp<std::int64_t>(
        kModelBytes / std::max<std::int64_t>(1, quant::data_bytes(format, rows, cols)), 1, 64));
    auto weights = std::make_shared<std::vector<Matrix>>(copies(format, rows, cols, count));
    const View x = f32({n, cols}), y = f32({n, rows});
    Line line{
        fmt::format("linear {} {} [{}, {}] n={}", what, quant::format_name(format), rows, cols, n)};
    line.bytes = matrix_bytes(weights->front());
    line.flops = 2.0 * static_cast<double>(rows * cols * n);
    line.copies = count;
    line.per_step = per_step;
    line.run = [=, this](int i) {
      b_.linear({x, (*weights)[static_cast<std::size_t>(i)], y, quantize, true});
    };
    measure(line);
  }

  void matrices(int n) {
    linear("wq_a", Format::kFp8Block128, kQueryRank, kD, n, true, 6);
    linear("wq_b", Format::kFp8Block128, kHeads * kHd, kQueryRank, n, true, 6);
    linear("wkv", Format::kFp8Block128, kHd, kD, n, true, 6);
    linear("wo_b", Format::kFp8Block128, kD, kGroups * kGroupRank, n, true, 6);
    linear("csa compressor", Format::kBF16, 2 * kHd, kD, n, false, 2 * 3);
    linear("hca compressor", Format::kBF16, kHd, kD, n, false, 2 * 2);
    linear("index compressor", Format::kBF16, 2 * kIndexWidth, kD, n, false, 2 * 3);
    linear("index wq_b", Format::kFp8Block128, kIndexHeads * kIndexWidth, kQueryRank, n, true, 3);
    linear("index weights", Format::kBF16, kIndexHeads, kD, n, false, 3);
    linear("head", Format::kBF16, kVocab, kD, 1, false, 1);
    const std::int64_t cols = kHeads * kHd / kGroups;
    auto weights = std::make_shared<std::vector<Matrix>>(
        copies(Format::kFp8Block128, kGroups * kGroupRank, cols, 64));
    const View x = f32({n, kGroups * cols}), y = f32({n, kGroups * kGroupRank});
    Line line{
        fmt::format("grouped_linear wo_a FP8 {} x [{}, {}] n={}", kGroups, kGroupRank, cols, n)};
    line.bytes = matrix_bytes(weights->front());
    line.flops = 2.0 * static_cast<double>(kGroups * kGroupRank * cols * n);
    line.copies = 64;
    line.per_step = 6;
    line.run = [=, this](int i) {
      b_.grouped_linear({x, (*weights)[static_cast<std::size_t>(i)], kGroups, y});
    };
    measure(line);
  }

  void experts(int n) {
    constexpr std::int64_t kLayers = 6;
    struct Layer {
      Matrix gate;
      std::vector<ops::ExpertWeights> routed;
      ops::ExpertWeights shared;
    };
    const auto expert = [&](Format format) {
      return ops::ExpertWeights{matrix(format, kInner, kD), matrix(format, kInner, kD),
                                matrix(format, kD, kInner)};
    };
    auto layers = std::make_shared<std::vector<Layer>>();
    for (int l = 0; l < kLayers; ++l) {
      Layer layer{matrix(Format::kBF16, kExperts, kD), {}, expert(Format::kFp8Block128)};
      for (int e = 0; e < kExperts; ++e) layer.routed.push_back(expert(Format::kMxfp4));
      layers->push_back(std::move(layer));
    }
    const View x = f32({n, kD}), y = f32({n, kD}), bias = f32({kExperts}, 0.1f);
    const View experts = b_.allocate(DType::kI32, {n, kChosen}), weights = f32({n, kChosen});
    Line route{fmt::format("route {} of {} n={}", kChosen, kExperts, n)};
    route.bytes = matrix_bytes(layers->front().gate);
    route.flops = 2.0 * kExperts * kD * n;
    route.copies = kLayers;
    route.per_step = 6;
    route.run = [=, this](int i) {
      b_.route(
          {x, (*layers)[static_cast<std::size_t>(i)].gate, bias, {}, {}, 1.5f, experts, weights});
    };
    measure(route);
    route.run(0);
    Line line{fmt::format("routed_experts MXFP4 + FP8 n={}", n)};
    const double touched = std::min<double>(kExperts, n * kChosen);
    const auto bytes_of = [](const ops::ExpertWeights& e) {
      return matrix_bytes(e.w1) + matrix_bytes(e.w2) + matrix_bytes(e.w3);
    };
    line.bytes =
        touched * bytes_of(layers->front().routed.front()) + bytes_of(layers->front().shared);
    line.flops = 2.0 * 3.0 * kInner * kD * (kChosen + 1) * n;
    line.copies = kLayers;
    line.per_step = 6;
    line.run = [=, this](int i) {
      const Layer& layer = (*layers)[static_cast<std::size_t>(i)];
      b_.routed_experts({x, experts, weights, layer.routed, layer.shared, 10.0f, y});
    };
    measure(line);
  }

  void streams(int n) {
    constexpr std::int64_t kSites = 12, kMixes = (2 + kHc) * kHc;
    std::vector<ops::HcSite> sites;
    for (int i = 0; i < kSites; ++i)
      sites.push_back({f32({kMixes, kHc * kD}, 0.02f), f32({kMixes}), f32({3}, 0.3f)});
    const View streams = f32({n, kHc, kD}), out = f32({n, kD}, 0.1f), y = f32({n, kD}),
               norm = f32({kD});
    const View post = b_.allocate(DType::kF32, {n, kHc}),
               comb = b_.allocate(DType::kF32, {n, kHc, kHc});
    Line line{fmt::format("hc_boundary [{}, {}] n={}", kHc, kD, n)};
    line.bytes = 4.0 * kMixes * kHc * kD + 8.0 * kHc * kD * n;
    line.flops = 2.0 * n * (kMixes * kHc * kD + kHc * (kHc + 2) * kD);
    line.copies = kSites;
    line.per_step = 12;
    line.run = [=, this](int i) {
      b_.hc_boundary({streams,
                      {out, post, comb},
                      sites[static_cast<std::size_t>(i)],
                      norm,
                      {1e-6f, 1e-6f, 20},
                      y});
    };
    measure(line);
    std::vector<TokenId> ids;
    for (int i = 0; i < n; ++i) ids.push_back(i * 37 % kVocab);
    const Matrix table = matrix(Format::kBF16, kVocab, kD);
    Line embed{fmt::format("embed [{}, {}] n={}", kVocab, kD, n)};
    embed.bytes = 2.0 * kD * n;
    embed.per_step = 1;
    embed.run = [=, this](int) { b_.embed({ids, table, streams}); };
    measure(embed);
    const View x = f32({n, kQueryRank}), weight = f32({kQueryRank});
    Line rms{fmt::format("rms_norm {} n={}", kQueryRank, n)};
    rms.bytes = 8.0 * kQueryRank * n;
    rms.flops = 3.0 * kQueryRank * n;
    rms.per_step = 6;
    rms.run = [=, this](int) { b_.rms_norm({x, weight, 1e-6f, x}); };
    measure(rms);
  }

  template <typename Pool>
  Pool allocated(Pool pool) {
    pool.data = static_cast<std::byte*>(b_.allocate(DType::kU8, {pool.bytes()}).data);
    return pool;
  }
  // Rows, or pages of ratio `ratio`, stored from zeros.
  ops::RowPool rows(ops::RowFormat format, int width, std::int64_t count) {
    const ops::RowPool out = allocated(ops::RowPool{nullptr, format, width, 1, count});
    fill(out);
    return out;
  }
  ops::PagedPool pages(ops::RowFormat format, int width, int context, int ratio) {
    const ops::PagedPool out = allocated(
        ops::PagedPool{nullptr, format, width, page_count(context), ops::kPageTokens / ratio});
    fill({out.data, format, width, 1, out.pages * out.rows_per_page});
    return out;
  }
  static std::int64_t page_count(int context) {
    return (context + ops::kPageTokens - 1) / ops::kPageTokens;
  }
  void fill(const ops::RowPool& to) {
    const auto count = static_cast<std::int32_t>(to.rows_per_slot);
    const std::vector<TokenId> ids(static_cast<std::size_t>(count), 0);
    const std::vector<ops::Segment> all{{0, count, 0, 0}};
    b_.window_insert({{ids, all}, f32({count, to.width}), f32({to.width}), 1e-6f, {}, to, to});
  }

  // `n` rows that end a sequence of `context` tokens, all of its rows and entries filled.
  void attention(int n) {
    const int context = std::max(options_.context, n), start = context - n;
    const ops::RowFormat format = b_.numerics().kv_rows, index_format = b_.numerics().index_rows;
    const ops::RowPool window = rows(format, kHd, kWindow + ops::kDraftSlack),
                       step = rows(format, kHd, n);
    const ops::PagedPool csa = pages(format, kHd, context, 4),
                         hca = pages(format, kHd, context, 128),
                         keys = pages(index_format, kIndexWidth, context, 4);
    std::vector<float> frequencies;
    for (int i = 0; i < kPairs; ++i)
      frequencies.push_back(std::pow(10000.0f, -static_cast<float>(i) / kPairs));
    const ops::RopeTable rope{b_.upload(std::span<const float>(frequencies), {kPairs}).f32(),
                              kPairs};
    const View kv_norm = f32({kHd}), key_norm = f32({kIndexWidth});
    auto ids = std::make_shared<std::vector<TokenId>>(static_cast<std::size_t>(n), 0);
    auto segments =
        std::make_shared<std::vector<ops::Segment>>(std::vector<ops::Segment>{{0, n, 0, start}});
    auto table = std::make_shared<std::vector<std::int32_t>>();
    for (std::int64_t page = page_count(context); page-- > 0;)
      table->push_back(static_cast<std::int32_t>(page));
    const ops::Batch batch{*ids, *segments, *table};
    const auto keep = [&](auto function) {  // the batch lives as long as the line
      return [=](int) {
        (void)ids;
        (void)segments;
        (void)table;
        function();
      };
    };
    const View q = f32({n, kHeads, kHd}), o = f32({n, kHeads, kHd}), sink = f32({kHeads}),
               kv = f32({n, kHd});
    Line norm{fmt::format("query_norm_rope n={}", n)};
    norm.bytes = 8.0 * kHeads * kHd * n;
    norm.flops = 3.0 * kHeads * kHd * n;
    norm.per_step = 6;
    norm.run = keep([=, this] { b_.query_norm_rope({batch, q, 1e-6f, rope}); });
    measure(norm);
    Line insert{fmt::format("window_insert n={}", n)};
    insert.bytes = static_cast<double>(row_bytes(format, kHd)) * n;
    insert.flops = 3.0 * kHd * n;
    insert.per_step = 6;
    insert.run = keep([=, this] {
      b_.window_insert({batch, kv, kv_norm, 1e-6f, rope, step, window});
      b_.window_commit({batch, step, window});
    });
    measure(insert);

    compressor("compress CSA", n, batch, keep, 4, true, csa, kv_norm, rope, 3);
    compressor("compress HCA", n, batch, keep, 128, false, hca, kv_norm, rope, 2);
    compressor("compress index", n, batch, keep, 4, true, keys, key_norm, rope, 3);

    const View index_q = f32({n, kIndexHeads, kIndexWidth}), index_weights = f32({n, kIndexHeads});
    const View selected = b_.allocate(DType::kI32, {n, kTopk});
    double visible = 0.0, window_keys = 0.0, hca_keys = 0.0;
    for (int t = start; t < context; ++t) {
      visible += (t + 1) / 4;
      hca_keys += (t + 1) / 128;
      window_keys += std::min<std::int64_t>(t + 1, kWindow);
    }
    Line select{fmt::format("index_select {} of {} n={}", kTopk, context / 4, n)};
    select.bytes = static_cast<double>(row_bytes(index_format, kIndexWidth)) * visible;
    select.flops = 2.0 * kIndexHeads * kIndexWidth * visible;
    select.per_step = 3;
    select.run = keep([=, this] {
      b_.index_select({batch, index_q, index_weights, rope, 4, keys, kTopk, selected});
    });
    measure(select);
    select.run(0);

    const auto attend = [&](const char* what, const ops::PagedPool& entries, int ratio, bool chosen,
                            double key_count, double per_step) {
      Line line{fmt::format("sparse_attention {} {} keys n={}", what,
                            static_cast<int>(key_count / n), n)};
      line.bytes = static_cast<double>(row_bytes(format, kHd)) * key_count;
      line.flops = 4.0 * kHeads * kHd * key_count;
      line.per_step = per_step;
      line.run = keep([=, this] {
        b_.sparse_attention({batch, q, step, window, kWindow, entries, ratio,
                             chosen ? selected : View{}, sink,
                             1.0f / std::sqrt(static_cast<float>(kHd)), rope, o});
      });
      measure(line);
    };
    attend("sliding", {}, 0, false, window_keys, 1);
    attend("HCA", hca, 128, false, window_keys + hca_keys, 2);
    attend("CSA", csa, 4, true, window_keys + std::min<double>(visible, kTopk * n), 3);
  }

  template <typename Keep>
  void compressor(const char* what, int n, const ops::Batch& batch, const Keep& keep, int ratio,
                  bool overlap, const ops::PagedPool& entries, const View& norm,
                  const ops::RopeTable& rope, double per_step) {
    const int stored = entries.width * (overlap ? 2 : 1);
    ops::StatePool state;
    state.slots = 1;
    state.ring = 2 * ratio + ops::kDraftSlack;
    state.width = stored;
    state.values = b_.allocate(DType::kF32, {state.ring, stored}).f32();
    state.gates = b_.allocate(DType::kF32, {state.ring, stored}).f32();
    const View values = f32({n, stored}), gates = f32({n, stored}), ape = f32({ratio, stored});
    // A single row closes an entry in one step of `ratio`: the positions of this line do not, except
    // by chance.
    Line line{fmt::format("{} n={}", what, n)};
    line.bytes = 8.0 * stored * n;
    line.per_step = per_step;
    line.run = keep([=, this] {
      b_.compress({batch, values, gates, ape, norm, 1e-6f, rope, ratio, overlap, state, entries});
    });
    measure(line);
  }

  const Options& options_;
  ops::Backend& b_;
  Ceilings small_, large_;
  std::mt19937 random_{1};
  double step_us_ = 0.0, best_step_us_ = 0.0;
};

int run(int argc, char** argv) {
  Options options;
  CLI::App app{"Times the ops at the bundled model's shapes."};
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber);
  app.add_option("--rows", options.rows, "rows of a step")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--context", options.context, "tokens of the sequence")
      ->check(CLI::PositiveNumber);
  app.add_option("--filter", options.filter, "only lines that contain this");
  app.add_option("--backend", options.backend)->check(CLI::IsMember({"cpu", "ref"}));
  app.add_flag("--exact", options.exact, "fp32 activations and rows instead of the release's");
  app.add_option("--ms", options.ms, "time for each line")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  ops::Numerics numerics;
  if (!options.exact) numerics = {true, ops::RowFormat::kFp8Nope, ops::RowFormat::kFp4Index};
  ThreadPool pool(options.threads);
  std::unique_ptr<ops::Backend> backend;
  if (options.backend == "ref")
    backend = std::make_unique<ops::ref::RefBackend>(numerics);
  else
    backend = std::make_unique<ops::cpu::CpuBackend>(numerics, pool);
  Bench(options, *backend, pool).run_all();
  return 0;
}

}  // namespace
}  // namespace nibble::bench

int main(int argc, char** argv) {
  return nibble::bench::run(argc, argv);
}

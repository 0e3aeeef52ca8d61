// How near to the read rate do the Hopper kernels stream their weights?
//
//   stream_bench [experts|linear|layer ...] [--repeats N] [--tokens N]
//
// V4-Flash shapes, random weights made on the device in the order of ops/cuda/tiles.h. Every figure is the median over replays
// of a CUDA graph that goes through more copies of the weights than the L2 holds; bytes are those of the distinct weights, the
// share is of the read rate measured in the same run.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cuda_check.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/tiles.h"

namespace nibble::bench {
namespace {

using ops::Layout;
using ops::Matrix;
using quant::Format;

__device__ std::uint32_t mix(std::uint64_t x) {
  x ^= x >> 31;
  x *= 0x9E3779B97F4A7C15ull;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93ull;
  return static_cast<std::uint32_t>(x >> 32);
}

// Words of bricks: codes of every kind but NaN, scales over a few powers of two.
__global__ void make_tiles(std::uint32_t* words, std::int64_t count, Format format,
                           std::uint64_t seed) {
  const int brick = ops::cuda::brick_bytes(format) / 4;
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const std::uint32_t bits = mix(seed * 0x100000001B3ull + i);
    const int at = static_cast<int>(i % brick);
    if (format == Format::kMxfp4)
      words[i] = at < 256 ? bits : (bits & 0x3333u) + 0x5555u + (115u << 23);
    else if (format == Format::kFp8Block128)
      words[i] = at < 512 ? bits & 0xBFBFBFBFu : __float_as_uint(0x1p-6f);
    else
      words[i] = (bits & 0x81FF81FFu) | 0x3C003C00u;
  }
}

__global__ void make_values(float* values, std::int64_t count, float scale, std::uint64_t seed) {
  for (std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    float sum = 0.0f;
    for (int k = 0; k < 4; ++k)
      sum += static_cast<float>(mix(seed + 4 * i + k) >> 8) * 0x1p-24f - 0.5f;
    values[i] = __uint_as_float(__float_as_uint(sum * scale) & 0xFFFF0000u);  // on the bf16 grid
  }
}

__global__ void __launch_bounds__(512) read_all(const uint4* data, std::int64_t count, uint4* out) {
  uint4 sum = make_uint4(0, 0, 0, 0);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t i = blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x;
  for (; i + 7 * step < count; i += 8 * step) {
    uint4 v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = __ldcs(data + i + k * step);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum.x ^= v[k].x, sum.y ^= v[k].y, sum.z ^= v[k].z, sum.w ^= v[k].w;
  }
  if ((sum.x & sum.y & sum.z & sum.w) == 0x12345678u) *out = sum;
}

std::uint64_t next_seed = 1;

float* values(std::int64_t count, float scale) {
  float* p = nullptr;
  CUDA_CHECK(cudaMalloc(&p, count * sizeof(float)));
  make_values<<<264, 512>>>(p, count, scale, next_seed++ << 40);
  return p;
}

Matrix matrix(Format format, std::int64_t rows, std::int64_t cols, std::byte*& memory) {
  const std::int64_t bytes = ops::cuda::tile_bytes(format, rows, cols);
  Matrix m{format, rows, cols, memory};
  m.layout = Layout::kTiles;
  make_tiles<<<528, 512>>>(reinterpret_cast<std::uint32_t*>(memory), bytes / 4, format,
                           next_seed++);
  memory += bytes;
  return m;
}

class Bench {
 public:
  Bench(int repeats, std::int64_t tokens) : repeats_(repeats), tokens_(tokens) {
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    CUDA_CHECK(cudaEventCreate(&begin_));
    CUDA_CHECK(cudaEventCreate(&end_));
    CUDA_CHECK(cudaMalloc(&memory_, kMemory));
    CUDA_CHECK(cudaMalloc(&workspace_, 64 << 20));
    make_tiles<<<528, 512>>>(reinterpret_cast<std::uint32_t*>(memory_), kMemory / 4, Format::kBF16,
                             7);
    const std::int64_t bytes = 4ll << 30;
    std::byte* out = memory_ + kMemory - 64;
    for (const int blocks : {264, 396, 528, 792})
      read_rate_ = std::max(read_rate_, bytes / 1e3 / time(1, [&](int) {
                                          read_all<<<blocks, 512, 0, stream_>>>(
                                              reinterpret_cast<const uint4*>(memory_), bytes / 16,
                                              reinterpret_cast<uint4*>(out));
                                        }));
    std::printf("read rate %.0f GB/s\n", read_rate_);
  }

  // us of one of `steps` launches `run(step)` in a graph; the median of replays.
  double time(int steps, const std::function<void(int)>& run) {
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < steps; ++i) run(i);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    std::vector<float> times;
    for (int i = 0; i < repeats_ + 2; ++i) {
      CUDA_CHECK(cudaEventRecord(begin_, stream_));
      CUDA_CHECK(cudaGraphLaunch(exec, stream_));
      CUDA_CHECK(cudaEventRecord(end_, stream_));
      CUDA_CHECK(cudaEventSynchronize(end_));
      float ms = 0.0f;
      CUDA_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
      if (i >= 2) times.push_back(ms);
    }
    CUDA_CHECK(cudaGraphExecDestroy(exec));
    CUDA_CHECK(cudaGraphDestroy(graph));
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] * 1e3 / steps;
  }

  void print(const char* what, std::int64_t n, double us, double bytes) const {
    std::printf("%-28s %4lld  %8.2f us  %8.2f MB  %6.0f GB/s  %5.1f %%  floor %7.2f\n", what,
                static_cast<long long>(n), us, bytes / 1e6, bytes / us / 1e3,
                100.0 * bytes / us / 1e3 / read_rate_, bytes / read_rate_ / 1e3);
    std::fflush(stdout);
  }

  void linear(const char* what, Format format, std::int64_t rows, std::int64_t cols, int groups,
              bool fp8_input);
  void projections();
  void experts();

 private:
  static constexpr std::int64_t kMemory = 16ll << 30;

  // Of these, the one that was asked for.
  std::vector<std::int64_t> tokens(std::initializer_list<std::int64_t> all) const {
    return tokens_ > 0 ? std::vector{tokens_} : std::vector(all);
  }

  int repeats_;
  std::int64_t tokens_;  // 0: all
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  std::byte* memory_ = nullptr;
  std::byte* workspace_ = nullptr;
  double read_rate_ = 0.0;
};

void Bench::linear(const char* what, Format format, std::int64_t rows, std::int64_t cols,
                   int groups, bool fp8_input) {
  const std::int64_t bytes = ops::cuda::tile_bytes(format, rows, cols);
  const int copies = static_cast<int>(std::clamp<std::int64_t>((600ll << 20) / bytes, 4, 128));
  std::byte* at = memory_;
  std::vector<Matrix> w;
  for (int i = 0; i < copies; ++i) w.push_back(matrix(format, rows, cols, at));
  float* x = values(64 * groups * cols, 1.0f);
  float* y = values(64 * rows, 1.0f);
  for (const std::int64_t n : tokens({1, 4, 16, 64})) {
    print(what, n,
          time(copies,
               [&](int i) {
                 ops::cuda::launch_streamed_linear(
                     {x, w[static_cast<std::size_t>(i)], groups, y, fp8_input, true, workspace_}, n,
                     stream_);
               }),
          static_cast<double>(bytes));
  }
  CUDA_CHECK(cudaFree(x));
  CUDA_CHECK(cudaFree(y));
}

// The five projections of an attention layer one after the other, each reading what the one before wrote where shapes allow.
void Bench::projections() {
  struct Layer {
    Matrix wq_a, wkv, wq_b, wo_a, wo_b;
  };
  std::vector<Layer> layers;
  std::byte* at = memory_;
  for (int i = 0; i < 10; ++i)
    layers.push_back({matrix(Format::kFp8Block128, 1024, 4096, at),
                      matrix(Format::kFp8Block128, 512, 4096, at),
                      matrix(Format::kFp8Block128, 32768, 1024, at),
                      matrix(Format::kFp8Block128, 8192, 4096, at),
                      matrix(Format::kFp8Block128, 4096, 8192, at)});
  const double bytes = static_cast<double>(at - memory_) / 10;
  float *x = values(64 * 4096, 1.0f), *q = values(64 * 1024, 1.0f), *kv = values(64 * 512, 1.0f),
        *heads = values(64 * 32768, 1.0f), *o = values(64 * 8192, 1.0f);
  for (const std::int64_t n : tokens({1, 4, 16, 64})) {
    print("attention projections", n,
          time(10,
               [&](int i) {
                 const Layer& l = layers[static_cast<std::size_t>(i)];
                 const auto run = [&](const Matrix& w, int groups, const float* in, float* out,
                                      bool fp8) {
                   ops::cuda::launch_streamed_linear({in, w, groups, out, fp8, true, workspace_}, n,
                                                     stream_);
                 };
                 run(l.wq_a, 1, x, q, true);
                 run(l.wkv, 1, x, kv, true);
                 run(l.wq_b, 1, q, heads, true);
                 run(l.wo_a, 8, heads, o, false);
                 run(l.wo_b, 1, o, x, true);
               }),
          bytes);
  }
  for (float* p : {x, q, kv, heads, o}) CUDA_CHECK(cudaFree(p));
}

void Bench::experts() {
  constexpr std::int64_t kD = 4096, kInner = 2048;
  constexpr int kExperts = 256, kChosen = 6, kLayers = 4;
  struct Layer {
    Matrix gate;
    ops::cuda::ExpertMatrices shared;
    ops::cuda::ExpertMatrices* routed;
  };
  std::vector<Layer> layers;
  std::byte* at = memory_;
  const auto expert = [&](Format f) {
    const Matrix w1 = matrix(f, kInner, kD, at), w3 = matrix(f, kInner, kD, at),
                 w2 = matrix(f, kD, kInner, at);
    return ops::cuda::ExpertMatrices{w1, w3, w2};
  };
  for (int l = 0; l < kLayers; ++l) {
    std::vector<ops::cuda::ExpertMatrices> host;
    for (int e = 0; e < kExperts; ++e) host.push_back(expert(Format::kMxfp4));
    Layer layer{matrix(Format::kBF16, kExperts, kD, at), expert(Format::kFp8Block128), nullptr};
    CUDA_CHECK(cudaMalloc(&layer.routed, host.size() * sizeof(host[0])));
    CUDA_CHECK(cudaMemcpy(layer.routed, host.data(), host.size() * sizeof(host[0]),
                          cudaMemcpyHostToDevice));
    layers.push_back(layer);
  }
  const double expert_bytes =
                   3.0 * static_cast<double>(ops::cuda::tile_bytes(Format::kMxfp4, kInner, kD)),
               shared_bytes = 3.0 * static_cast<double>(
                                        ops::cuda::tile_bytes(Format::kFp8Block128, kInner, kD)),
               gate_bytes = static_cast<double>(ops::cuda::tile_bytes(Format::kBF16, kExperts, kD));
  std::mt19937_64 random(5);
  float *y = values(256 * kD, 1.0f), *logits = values(256 * kExperts, 1.0f),
        *bias = values(kExperts, 0.01f), *weights = values(256 * kChosen, 1.0f);
  for (const std::int64_t n : tokens({1, 2, 4, 8, 16, 32, 64, 128, 256})) {
    constexpr int kSteps = 16;  // each with tokens of its own
    std::vector<float*> x(kSteps);
    for (float*& p : x) p = values(n * kD, 1.0f);
    std::vector<std::int32_t*> ids(kSteps);
    double distinct = 0.0;
    for (auto& p : ids) {
      std::vector<std::int32_t> host;
      for (std::int64_t t = 0; t < n; ++t) {
        std::set<std::int32_t> of_token;
        while (of_token.size() < kChosen)
          of_token.insert(static_cast<std::int32_t>(random() % kExperts));
        host.insert(host.end(), of_token.begin(), of_token.end());
      }
      distinct +=
          static_cast<double>(std::set<std::int32_t>(host.begin(), host.end()).size()) / kSteps;
      CUDA_CHECK(cudaMalloc(&p, host.size() * 4));
      CUDA_CHECK(cudaMemcpy(p, host.data(), host.size() * 4, cudaMemcpyHostToDevice));
    }
    std::byte* workspace = nullptr;
    const auto args = [&](int i) {
      const Layer& l = layers[static_cast<std::size_t>(i % kLayers)];
      return ops::cuda::Experts{x[static_cast<std::size_t>(i)],
                                nullptr,
                                ids[static_cast<std::size_t>(i)],
                                weights,
                                l.routed,
                                l.shared,
                                nullptr,
                                nullptr,
                                y,
                                kD,
                                kInner,
                                10.0f,
                                kChosen,
                                kExperts,
                                true};
    };
    CUDA_CHECK(cudaMalloc(&workspace, ops::cuda::expert_workspace_bytes(args(0), n)));
    const auto run = [&](int i) {
      ops::cuda::launch_streamed_experts(args(i), Format::kMxfp4, n, workspace, stream_);
    };
    print("experts + shared", n, time(kSteps, run), distinct * expert_bytes + shared_bytes);
    // The router's choice here is its own work; the experts go on with the drawn ids, whose number is known.
    std::int32_t* chosen = nullptr;
    float* chosen_weights = nullptr;
    CUDA_CHECK(cudaMalloc(&chosen, n * kChosen * 4));
    CUDA_CHECK(cudaMalloc(&chosen_weights, n * kChosen * 4));
    print("router + experts + shared", n,
          time(kSteps,
               [&](int i) {
                 const Layer& l = layers[static_cast<std::size_t>(i % kLayers)];
                 ops::cuda::launch_streamed_linear(
                     {x[static_cast<std::size_t>(i)], l.gate, 1, logits, false, false, workspace_},
                     n, stream_);
                 ops::cuda::launch_choose({x[static_cast<std::size_t>(i)], logits, l.gate, bias,
                                           nullptr, nullptr, 1.5f, chosen, chosen_weights, kChosen},
                                          n, stream_);
                 run(i);
               }),
          distinct * expert_bytes + shared_bytes + gate_bytes);
    for (float* p : x) CUDA_CHECK(cudaFree(p));
    for (auto* p : ids) CUDA_CHECK(cudaFree(p));
    CUDA_CHECK(cudaFree(workspace));
    CUDA_CHECK(cudaFree(chosen));
    CUDA_CHECK(cudaFree(chosen_weights));
  }
}

}  // namespace
}  // namespace nibble::bench

int main(int argc, char** argv) {
  using nibble::quant::Format;
  std::set<std::string> what;
  int repeats = 15, tokens = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--repeats" && i + 1 < argc)
      repeats = std::atoi(argv[++i]);
    else if (std::string(argv[i]) == "--tokens" && i + 1 < argc)
      tokens = std::atoi(argv[++i]);
    else
      what.insert(argv[i]);
  }
  const auto asked = [&](const char* name) { return what.empty() || what.contains(name); };
  nibble::bench::Bench bench(repeats, tokens);
  if (asked("linear")) {
    bench.linear("wq_a fp8", Format::kFp8Block128, 1024, 4096, 1, true);
    bench.linear("wkv fp8", Format::kFp8Block128, 512, 4096, 1, true);
    bench.linear("wq_b fp8", Format::kFp8Block128, 32768, 1024, 1, true);
    bench.linear("indexer.wq_b fp8", Format::kFp8Block128, 8192, 1024, 1, true);
    bench.linear("wo_a fp8 x bf16", Format::kFp8Block128, 8192, 4096, 8, false);
    bench.linear("wo_b fp8", Format::kFp8Block128, 4096, 8192, 1, true);
    bench.linear("gate bf16", Format::kBF16, 256, 4096, 1, false);
    bench.linear("compressor bf16", Format::kBF16, 1024, 4096, 1, false);
    bench.linear("head bf16", Format::kBF16, 129280, 4096, 1, false);
  }
  if (asked("layer")) bench.projections();
  if (asked("experts")) bench.experts();
  return 0;
}

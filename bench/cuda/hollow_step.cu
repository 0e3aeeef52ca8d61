// What would a decode step of DeepSeek-V4-Flash cost if arithmetic were free?
//
// A CUDA graph with the launches of a full-width model of 38 of its 43 layers (what one 141-GB device holds), each of which
// streams the bytes its kernel would read and computes nothing: weights through a ring of bulk copies, then the activations of
// the launch before it. What remains above bytes / bandwidth is the price of the layout: launches, hand-offs, and weights that
// cannot be fetched ahead because the router has not spoken yet. Three layouts, with and without programmatic dependent launch.
//
//   hollow_step [--layers N] [--repeats N]
//
// Bytes: deepseek-v4.md sections 7.2 and 9.1. Every run first counts the chunks that arrive and compares them with the schedule.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cuda_check.cuh"

namespace nibble::bench {
namespace {

constexpr std::int64_t kChunk = 16384;  // one bulk copy
constexpr int kStages =
    5;  // 80 KB in flight a block; two blocks fit on an SM, so a successor can fill its ring
constexpr int kThreads = 160;  // four warps that consume, one that produces

// A run of chunks. Each block takes its share of every launch's early extents, then of its late ones.
struct Extent {
  const std::byte* data;
  int chunks;
};

struct LaunchArgs {
  const Extent*
      early;  // may be fetched before the previous launch has finished: weights known in advance
  const Extent* late;  // only after it: routed experts, cached rows
  int early_extents, late_extents;
  int early_chunks, late_chunks;
  const uint4* activations;  // written by the previous launch
  uint4* output;
  int activation_vectors;           // 16 bytes each, read by every block
  unsigned long long* chunk_count;  // null when timing
};

__device__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

__device__ void barrier_init(std::uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ void barrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ void barrier_expect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ void barrier_wait(std::uint32_t barrier, std::uint32_t phase) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again_%=;\n}" ::"r"(barrier),
      "r"(phase)
      : "memory");
}
__device__ void bulk_copy(std::uint32_t to, const std::byte* from, std::uint32_t bytes,
                          std::uint32_t barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
__device__ std::uint64_t evict_first() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

struct Ring {
  std::byte* stages;
  std::uint32_t full, empty;  // shared addresses of kStages barriers each
  int stage = 0;
  std::uint32_t phase = 0;

  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// The block's share [chunks * i / blocks, chunks * (i + 1) / blocks) of a list of extents.
__device__ void produce(Ring& ring, const Extent* extents, int count, int chunks,
                        std::uint64_t policy) {
  std::int64_t begin = std::int64_t{chunks} * blockIdx.x / gridDim.x;
  const std::int64_t end = std::int64_t{chunks} * (blockIdx.x + 1) / gridDim.x;
  std::int64_t first = 0;
  for (int e = 0; e < count && begin < end; ++e) {
    const Extent extent = extents[e];
    for (; begin < end && begin < first + extent.chunks; ++begin) {
      barrier_wait(ring.empty + 8 * ring.stage, ring.phase ^ 1);
      barrier_expect(ring.full + 8 * ring.stage, kChunk);
      bulk_copy(shared_address(ring.stages + ring.stage * kChunk),
                extent.data + (begin - first) * kChunk, kChunk, ring.full + 8 * ring.stage, policy);
      ring.advance();
    }
    first += extent.chunks;
  }
}

__device__ int share(int chunks) {
  return static_cast<int>(std::int64_t{chunks} * (blockIdx.x + 1) / gridDim.x -
                          std::int64_t{chunks} * blockIdx.x / gridDim.x);
}

template <bool kDependent>
__global__ void __launch_bounds__(kThreads, 2) stream(const LaunchArgs p) {
  extern __shared__ __align__(128) std::byte s_ring[];
  __shared__ __align__(8) std::uint64_t s_barriers[2 * kStages];
  Ring ring{s_ring, shared_address(s_barriers), shared_address(s_barriers + kStages)};
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(ring.full + 8 * i, 1);
      barrier_init(ring.empty + 8 * i, 4);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  // At once: the successor's ring fills while this one drains (two blocks on an SM; the third waits for room).
  if constexpr (kDependent) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  __syncthreads();
  if (warp == 4) {
    if (lane != 0) return;
    const std::uint64_t policy = evict_first();
    produce(ring, p.early, p.early_extents, p.early_chunks, policy);
    if constexpr (kDependent) asm volatile("griddepcontrol.wait;" ::: "memory");
    produce(ring, p.late, p.late_extents, p.late_chunks, policy);
    return;
  }
  if constexpr (kDependent) asm volatile("griddepcontrol.wait;" ::: "memory");
  uint4 sum = make_uint4(0, 0, 0, 0);
  for (int i = threadIdx.x; i < p.activation_vectors; i += 128) {
    const uint4 v = __ldcg(p.activations + i);
    sum.x ^= v.x, sum.y ^= v.y, sum.z ^= v.z, sum.w ^= v.w;
  }
  const int chunks = share(p.early_chunks) + share(p.late_chunks);
  for (int c = 0; c < chunks; ++c) {
    barrier_wait(ring.full + 8 * ring.stage, ring.phase);
    sum.x ^= *reinterpret_cast<const std::uint32_t*>(ring.stages + ring.stage * kChunk +
                                                     threadIdx.x * 128);
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.empty + 8 * ring.stage);
    ring.advance();
  }
  for (int i = blockIdx.x * 128 + threadIdx.x; i < p.activation_vectors; i += gridDim.x * 128)
    p.output[i] = sum;
  if (p.chunk_count && threadIdx.x == 0)
    atomicAdd(p.chunk_count, static_cast<unsigned long long>(chunks));
}

__global__ void fill(std::uint32_t* words, std::int64_t count, std::uint32_t seed) {
  for (std::int64_t i = blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x) {
    std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761u + seed;
    x ^= x >> 15;
    words[i] = x * 2246822519u;
  }
}

// --- the model's bytes (deepseek-v4.md 7.2; scales of FP8 blocks, 1/16384 of the weights, are left out) -----------------------

constexpr std::int64_t kHcFn = 24 * 16384 * 4;
constexpr std::int64_t kWqaWkv = (1024 + 512) * 4096, kWqb = 32768 * 1024, kWoa = 8192 * 4096,
                       kWob = 4096 * 8192;
constexpr std::int64_t kCsaCompressor = 2 * 1024 * 4096 * 2,
                       kIndexCompressor = 2 * 256 * 4096 * 2 + 64 * 4096 * 2,
                       kIndexWqb = 8192 * 1024, kHcaCompressor = 2 * 512 * 4096 * 2;
constexpr std::int64_t kGate = 256 * 4096 * 2, kSharedGateUp = 2 * 2048 * 4096,
                       kSharedDown = 4096 * 2048;
constexpr std::int64_t kExpertGateUp = 8912896, kExpertDown = 4456448;  // with E8M0 scales
constexpr std::int64_t kHead = 129280ll * 4096 * 2;
constexpr int kExperts = 256, kTopk = 6;
constexpr int kContext = 4096;

enum class LayerKind { kSliding, kCsa, kHca };

struct Layer {
  LayerKind kind;
  std::byte* dense;
  std::byte* experts;
  std::set<int> chosen;
};

constexpr std::int64_t round_up(std::int64_t bytes) {
  return (bytes + kChunk - 1) / kChunk * kChunk;
}

// One launch in the making: bytes of the layer's dense region (fetched early), the experts' part, cached rows.
struct LaunchPlan {
  const char* name;
  std::int64_t dense = 0;
  std::int64_t expert_bytes = 0, expert_offset = 0;  // of each chosen expert
  std::int64_t rows = 0;                             // of the cache, late
};

constexpr const char* kLayouts[] = {"separate", "fused", "fewest"};

std::vector<LaunchPlan> layer_launches(int layout, LayerKind kind, int batch) {
  const bool csa = kind == LayerKind::kCsa, hca = kind == LayerKind::kHca;
  const std::int64_t down = kExpertGateUp;  // the down part lies behind gate and up
  const std::int64_t first = kWqaWkv + (csa   ? kCsaCompressor + kIndexCompressor
                                        : hca ? kHcaCompressor
                                              : 0);
  const std::int64_t second = kWqb + (csa ? kIndexWqb : 0);
  const std::int64_t index_keys = csa ? std::int64_t{batch} * (kContext / 4) * 68 : 0;
  const std::int64_t rows = std::int64_t{batch} *
                            (128 + (csa   ? 512
                                    : hca ? kContext / 128
                                          : 0)) *
                            584;
  std::vector<LaunchPlan> out;
  const auto add = [&](const LaunchPlan& plan) { out.push_back(plan); };
  if (layout == 0) {
    add({"boundary", kHcFn});
    add({"boundary end"});
    add({"wq_a, wkv, compressors", first});
    add({"wq_b", second});
    add({"rope, insert"});
    if (csa) add({"index scores", 0, 0, 0, index_keys});
    if (csa) add({"top-k"});
    add({"attention", 0, 0, 0, rows});
    add({"merge"});
    add({"wo_a", kWoa});
    add({"wo_b", kWob});
    add({"boundary", kHcFn});
    add({"boundary end"});
    add({"gate", kGate});
    add({"route"});
    add({"gate and up", kSharedGateUp, kExpertGateUp, 0});
    add({"down", kSharedDown, kExpertDown, down});
    add({"sum of experts"});
  } else if (layout == 1) {
    add({"boundary", kHcFn});
    add({"wq_a, wkv, compressors", first});
    add({"wq_b", second});
    if (csa) add({"insert, index scores", 0, 0, 0, index_keys});
    add({"attention", 0, 0, 0, rows});
    add({"merge, wo_a", kWoa});
    add({"wo_b", kWob});
    add({"boundary, route", kHcFn + kGate});
    add({"gate and up", kSharedGateUp, kExpertGateUp, 0});
    add({"down", kSharedDown, kExpertDown, down});
  } else {
    add({"boundary, wq_a", kHcFn + first});
    add({"wq_b, scores", second, 0, 0, index_keys});
    add({"attention", 0, 0, 0, rows});
    add({"wo_a, wo_b", kWoa + kWob});
    add({"boundary, route", kHcFn + kGate});
    add({"experts", kSharedGateUp + kSharedDown, kExpertGateUp + kExpertDown, 0});
  }
  return out;
}

class Step {
 public:
  Step(std::vector<Layer>& layers, std::byte* head, std::byte* rows, int layout, int batch,
       int blocks)
      : rows_(rows), batch_(batch), blocks_(blocks) {
    for (Layer& layer : layers) {
      std::int64_t offset = 0;
      for (const LaunchPlan& plan : layer_launches(layout, layer.kind, batch))
        add(layer, plan, offset);
    }
    Layer none{LayerKind::kSliding, head, nullptr, {}};
    std::int64_t offset = 0;
    add(none, {"head", kHead}, offset);
    CUDA_CHECK(cudaMalloc(&device_extents_, extents_.size() * sizeof(Extent)));
    CUDA_CHECK(cudaMemcpy(device_extents_, extents_.data(), extents_.size() * sizeof(Extent),
                          cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMalloc(&activations_, 2 * kActivationBytes));
    CUDA_CHECK(cudaMemset(activations_, 1, 2 * kActivationBytes));
  }
  ~Step() {
    cudaFree(device_extents_);
    cudaFree(activations_);
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  std::int64_t bytes() const { return chunks_ * kChunk; }
  std::int64_t chunks() const { return chunks_; }
  std::size_t launches() const { return launches_.size(); }

  void enqueue(cudaStream_t stream_handle, bool dependent, unsigned long long* chunk_count) {
    for (std::size_t i = 0; i < launches_.size(); ++i) {
      LaunchArgs args = launches_[i].args;
      args.early = device_extents_ + launches_[i].first_early;
      args.late = device_extents_ + launches_[i].first_late;
      args.activations = reinterpret_cast<const uint4*>(activations_ + (i % 2) * kActivationBytes);
      args.output = reinterpret_cast<uint4*>(activations_ + (1 - i % 2) * kActivationBytes);
      // What a block of a streaming product needs: its K range of every token. 2 KB a token stands for a quarter of 4096 bf16.
      args.activation_vectors = std::min<int>(batch_ * 2048, kActivationBytes) / 16;
      args.chunk_count = chunk_count;
      cudaLaunchConfig_t config{};
      config.gridDim = dim3(static_cast<unsigned>(blocks_));
      config.blockDim = dim3(kThreads);
      config.dynamicSmemBytes = kStages * kChunk;
      config.stream = stream_handle;
      cudaLaunchAttribute attribute{};
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
      config.attrs = &attribute;
      config.numAttrs = dependent ? 1 : 0;
      if (dependent)
        CUDA_CHECK(cudaLaunchKernelEx(&config, stream<true>, args));
      else
        CUDA_CHECK(cudaLaunchKernelEx(&config, stream<false>, args));
    }
  }

 private:
  static constexpr int kActivationBytes = 1 << 17;
  struct Launch {
    LaunchArgs args{};
    std::size_t first_early = 0, first_late = 0;
  };

  void add(Layer& layer, const LaunchPlan& plan, std::int64_t& offset) {
    Launch launch;
    const auto extent = [&](const std::byte* data, std::int64_t bytes) {
      const int chunks = static_cast<int>(round_up(bytes) / kChunk);
      extents_.push_back({data, chunks});
      chunks_ += chunks;
      return chunks;
    };
    launch.first_early = extents_.size();
    if (plan.dense > 0) {
      launch.args.early_chunks = extent(layer.dense + offset, plan.dense);
      launch.args.early_extents = 1;
      offset += round_up(plan.dense);
    }
    launch.first_late = extents_.size();
    if (plan.rows > 0) {
      launch.args.late_chunks += extent(rows_, plan.rows);
      ++launch.args.late_extents;
    }
    if (plan.expert_bytes > 0)
      for (const int expert : layer.chosen) {
        launch.args.late_chunks +=
            extent(layer.experts + expert * (kExpertGateUp + kExpertDown) + plan.expert_offset,
                   plan.expert_bytes);
        ++launch.args.late_extents;
      }
    launches_.push_back(launch);
  }

  std::byte* rows_;
  int batch_, blocks_;
  std::int64_t chunks_ = 0;
  std::vector<Launch> launches_;
  std::vector<Extent> extents_;
  Extent* device_extents_ = nullptr;
  std::byte* activations_ = nullptr;
};

double median_ms(cudaGraphExec_t graph, cudaStream_t stream_handle, int repeats) {
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < repeats + 3; ++i) {
    CUDA_CHECK(cudaEventRecord(begin, stream_handle));
    CUDA_CHECK(cudaGraphLaunch(graph, stream_handle));
    CUDA_CHECK(cudaEventRecord(end, stream_handle));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0.0f;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 3) times.push_back(ms);
  }
  CUDA_CHECK(cudaEventDestroy(begin));
  CUDA_CHECK(cudaEventDestroy(end));
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

template <typename Enqueue>
double time_graph(cudaStream_t stream_handle, int repeats, Enqueue enqueue) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CUDA_CHECK(cudaStreamBeginCapture(stream_handle, cudaStreamCaptureModeGlobal));
  enqueue();
  CUDA_CHECK(cudaStreamEndCapture(stream_handle, &graph));
  CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  const double ms = median_ms(executable, stream_handle, repeats);
  CUDA_CHECK(cudaGraphExecDestroy(executable));
  CUDA_CHECK(cudaGraphDestroy(graph));
  return ms;
}

std::byte* allocate(std::int64_t bytes, std::uint32_t seed) {
  void* p = nullptr;
  const cudaError_t error = cudaMalloc(&p, static_cast<std::size_t>(bytes));
  if (error != cudaSuccess) {
    std::fprintf(stderr, "cannot allocate %.1f GB: %s; try fewer --layers\n",
                 static_cast<double>(bytes) * 1e-9, cudaGetErrorString(error));
    std::exit(1);
  }
  fill<<<1024, 256>>>(static_cast<std::uint32_t*>(p), bytes / 4, seed);
  CUDA_CHECK(cudaGetLastError());
  return static_cast<std::byte*>(p);
}

int run(int layer_count, int repeats) {
  cudaDeviceProp device{};
  CUDA_CHECK(cudaGetDeviceProperties(&device, 0));
  const int blocks = device.multiProcessorCount;
  CUDA_CHECK(cudaFuncSetAttribute(stream<true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  kStages * kChunk));
  CUDA_CHECK(cudaFuncSetAttribute(stream<false>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  kStages * kChunk));
  cudaStream_t stream_handle;
  CUDA_CHECK(cudaStreamCreate(&stream_handle));

  const std::int64_t dense_bytes = 2 * round_up(kHcFn) +
                                   round_up(kWqaWkv + kCsaCompressor + kIndexCompressor) +
                                   round_up(kWqb + kIndexWqb) + kWoa + kWob + 2 * round_up(kGate) +
                                   kSharedGateUp + kSharedDown + 8 * kChunk;
  std::vector<Layer> layers;
  for (int i = 0; i < layer_count; ++i) {
    const LayerKind kind = i < 2        ? LayerKind::kSliding
                           : i % 2 == 0 ? LayerKind::kCsa
                                        : LayerKind::kHca;
    layers.push_back(
        {kind,
         allocate(dense_bytes, static_cast<std::uint32_t>(i)),
         allocate(kExperts * (kExpertGateUp + kExpertDown), static_cast<std::uint32_t>(1000 + i)),
         {}});
  }
  std::byte* head = allocate(round_up(kHead), 7);
  std::byte* rows = allocate(256ll * 1024 * 1024, 8);
  CUDA_CHECK(cudaDeviceSynchronize());

  // The ceiling: the same kernel, one launch over 20 GB of expert weights.
  std::vector<Extent> all;
  int all_chunks = 0;
  for (int i = 0; i < std::min(layer_count, 6); ++i) {
    all.push_back({layers[static_cast<std::size_t>(i)].experts,
                   static_cast<int>(kExperts * (kExpertGateUp + kExpertDown) / kChunk)});
    all_chunks += all.back().chunks;
  }
  Extent* device_all = nullptr;
  CUDA_CHECK(cudaMalloc(&device_all, all.size() * sizeof(Extent)));
  CUDA_CHECK(
      cudaMemcpy(device_all, all.data(), all.size() * sizeof(Extent), cudaMemcpyHostToDevice));
  const double ceiling_ms = time_graph(stream_handle, repeats, [&] {
    LaunchArgs args{};
    args.early = device_all;
    args.early_extents = static_cast<int>(all.size());
    args.early_chunks = all_chunks;
    stream<false><<<2 * blocks, kThreads, kStages * kChunk, stream_handle>>>(args);
    CUDA_CHECK(cudaGetLastError());
  });
  const double ceiling = static_cast<double>(all_chunks) * kChunk / (ceiling_ms * 1e-3);
  const double empty_ms = time_graph(stream_handle, repeats, [&] {
    for (int i = 0; i < 400; ++i)
      stream<false><<<blocks, kThreads, kStages * kChunk, stream_handle>>>(LaunchArgs{});
  });
  std::printf(
      "%s, %d SMs; read ceiling %.2f TB/s (one launch, %.1f GB); an empty launch in a graph %.2f "
      "us\n",
      device.name, blocks, ceiling * 1e-12, static_cast<double>(all_chunks) * kChunk * 1e-9,
      empty_ms * 1e3 / 400);
  std::printf("%d layers and the head, context %d\n\n", layer_count, kContext);
  std::printf("%5s  %-9s %-4s %8s %9s %9s %9s %7s %12s\n", "batch", "layout", "PDL", "launches",
              "GB", "floor ms", "step ms", "share", "us a launch");
  unsigned long long* counter = nullptr;
  CUDA_CHECK(cudaMalloc(&counter, sizeof *counter));
  for (const int batch : {1, 4, 16, 64}) {
    std::mt19937 random(static_cast<unsigned>(batch));
    for (Layer& layer : layers) {
      layer.chosen.clear();
      for (int token = 0; token < batch; ++token) {
        std::set<int> six;
        while (six.size() < kTopk) six.insert(static_cast<int>(random() % kExperts));
        layer.chosen.insert(six.begin(), six.end());
      }
    }
    for (int layout = 0; layout < 3; ++layout) {
      Step step(layers, head, rows, layout, batch, blocks);
      for (const bool dependent : {true, false}) {
        CUDA_CHECK(cudaMemset(counter, 0, sizeof *counter));
        step.enqueue(stream_handle, dependent, counter);
        unsigned long long arrived = 0;
        CUDA_CHECK(cudaStreamSynchronize(stream_handle));
        CUDA_CHECK(cudaMemcpy(&arrived, counter, sizeof arrived, cudaMemcpyDeviceToHost));
        if (arrived != static_cast<unsigned long long>(step.chunks())) {
          std::fprintf(stderr, "%llu chunks arrived, the schedule has %lld\n", arrived,
                       static_cast<long long>(step.chunks()));
          return 1;
        }
        const double ms = time_graph(stream_handle, repeats,
                                     [&] { step.enqueue(stream_handle, dependent, nullptr); });
        const double floor_ms = static_cast<double>(step.bytes()) / ceiling * 1e3;
        std::printf("%5d  %-9s %-4s %8zu %9.2f %9.3f %9.3f %6.1f%% %12.2f\n", batch,
                    kLayouts[layout], dependent ? "yes" : "no", step.launches(),
                    static_cast<double>(step.bytes()) * 1e-9, floor_ms, ms, 100.0 * floor_ms / ms,
                    (ms - floor_ms) * 1e3 / static_cast<double>(step.launches()));
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace nibble::bench

int main(int argc, char** argv) {
  int layers = 38, repeats = 30;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    const int value = i + 1 < argc ? std::atoi(argv[i + 1]) : 0;
    if (value < 1 || (flag != "--layers" && flag != "--repeats")) {
      std::fprintf(stderr, "usage: hollow_step [--layers N] [--repeats N]\n");
      return 2;
    }
    (flag == "--layers" ? layers : repeats) = value;
  }
  return nibble::bench::run(layers, repeats);
}

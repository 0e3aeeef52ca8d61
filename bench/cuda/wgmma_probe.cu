// Does a product's bit pattern depend on which tensor-core instruction made it?
//
// One row of an answer may be computed alone (N = 8) or among 256 others, with the weights on the M side or on the N side, with
// operands in registers or in shared memory. nibble promises the same bits (design.md, section 4), so a tile or instruction may
// serve another batch size only where this probe finds no difference. It compares fp32 accumulators bit by bit over random
// operands: e4m3 and bf16, wide exponents, sums over several instructions.
//
//   wgmma_probe [--trials N]      prints one line a comparison; exit 1 if CUDA fails
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda_check.cuh"

#include "wgmma_forms.cuh"

namespace nibble::bench {
namespace {

constexpr int kRows = 64;       // of A: the M of one wgmma
constexpr int kCols = 256;      // of B: the largest N
constexpr int kStepBytes = 32;  // of K in one instruction, for both types

enum class Type { kE4m3, kBf16 };
enum class Side { kRegister, kShared };

struct Args {
  const std::uint8_t* a;  // [64][K] row-major, K x element bytes a row
  const std::uint8_t* b;  // [256][K] row-major
  float* d;               // [64][256]
  int steps;              // K / elements a step
  int promote;  // steps summed inside the tensor core before fp32 addition outside; 0: all
};

// Stages one k-step of `rows` rows in core-matrix order: 256 bytes a group of eight rows, the second 16 bytes of K at 128.
__device__ void stage(const std::uint8_t* source, int rows, int row_bytes, int step,
                      std::uint8_t* shared) {
  for (int i = threadIdx.x; i < rows * 2; i += blockDim.x) {
    const int row = i / 2, half = i % 2;
    const auto* from = reinterpret_cast<const uint4*>(
        source + static_cast<std::int64_t>(row) * row_bytes + step * kStepBytes + half * 16);
    *reinterpret_cast<uint4*>(shared + (row / 8) * 256 + half * 128 + (row % 8) * 16) = *from;
  }
}

template <Type kType, Side kSide, int kN>
__global__ void __launch_bounds__(128) product(Args p) {
  __shared__ __align__(128) std::uint8_t s_a[kRows * kStepBytes];
  __shared__ __align__(128) std::uint8_t s_b[kN * kStepBytes];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int row_bytes = p.steps * kStepBytes, first_col = blockIdx.x * kN;
  float r_d[kN / 2], r_sum[kN / 2];
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) r_d[i] = r_sum[i] = 0.0f;
  for (int step = 0; step < p.steps; ++step) {
    __syncthreads();
    stage(p.a, kRows, row_bytes, step, s_a);
    stage(p.b + static_cast<std::int64_t>(first_col) * row_bytes, kN, row_bytes, step, s_b);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    // The fragment of a warp's 16 rows: words (g, 4t..), (g + 8, 4t..), (g, 16 + 4t..), (g + 8, 16 + 4t..), in bytes of K.
    std::uint32_t r_a[4];
    for (int i = 0; i < 4; ++i) {
      const int row = 16 * warp + g + 8 * (i % 2);
      r_a[i] = *reinterpret_cast<const std::uint32_t*>(s_a + (row / 8) * 256 + (i / 2) * 128 +
                                                       (row % 8) * 16 + 4 * t);
    }
    const bool fresh = p.promote > 0 && step % p.promote == 0;
    if (fresh) {
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) {
        r_sum[i] += r_d[i];
        r_d[i] = 0.0f;
      }
    }
    const auto address = [](const void* s) {
      return static_cast<std::uint32_t>(__cvta_generic_to_shared(s));
    };
    const std::uint64_t desc_a = wgmma_descriptor(address(s_a)),
                        desc_b = wgmma_descriptor(address(s_b));
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    if constexpr (kType == Type::kE4m3) {
      if constexpr (kSide == Side::kRegister)
        wgmma_e4m3(r_d, r_a, desc_b, 1);
      else
        wgmma_e4m3(r_d, desc_a, desc_b, 1);
    } else {
      if constexpr (kSide == Side::kRegister)
        wgmma_bf16(r_d, r_a, desc_b, 1);
      else
        wgmma_bf16(r_d, desc_a, desc_b, 1);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) {
    const int row = 16 * warp + g + 8 * ((i / 2) % 2),
              col = first_col + 8 * (i / 4) + 2 * t + i % 2;
    p.d[row * kCols + col] = p.promote > 0 ? r_sum[i] + r_d[i] : r_d[i];
  }
}

// The same product by mma.sync, one warp for 16 rows x 8 columns: m16n8k16 (bf16) or m16n8k32 (e4m3).
template <Type kType>
__global__ void __launch_bounds__(32) product_mma(Args p) {
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4, row_bytes = p.steps * kStepBytes;
  const int row = 16 * blockIdx.y + g, col = 8 * blockIdx.x + g;
  float d[4] = {}, sum[4] = {};
  for (int step = 0; step < p.steps; ++step) {
    const auto word = [&](const std::uint8_t* m, int r, int byte) {
      return *reinterpret_cast<const std::uint32_t*>(m + static_cast<std::int64_t>(r) * row_bytes +
                                                     step * kStepBytes + byte);
    };
    const std::uint32_t a0 = word(p.a, row, 4 * t), a1 = word(p.a, row + 8, 4 * t),
                        a2 = word(p.a, row, 16 + 4 * t), a3 = word(p.a, row + 8, 16 + 4 * t),
                        b0 = word(p.b, col, 4 * t), b1 = word(p.b, col, 16 + 4 * t);
    if (p.promote > 0 && step % p.promote == 0)
      for (int i = 0; i < 4; ++i) {
        sum[i] += d[i];
        d[i] = 0.0f;
      }
    if constexpr (kType == Type::kBf16)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
          "{%8,%9}, {%0,%1,%2,%3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
      asm volatile(
          "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
          "{%8,%9}, {%0,%1,%2,%3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
  for (int i = 0; i < 4; ++i)
    p.d[(row + 8 * (i / 2)) * kCols + 8 * blockIdx.x + 2 * t + i % 2] =
        p.promote > 0 ? sum[i] + d[i] : d[i];
}

struct Buffers {
  std::uint8_t *a, *b, *bt;  // bt: B's first 64 rows and A as the N side
  float* d;
};

using Answer = std::vector<float>;

Answer fetch(const Buffers& buffers) {
  Answer out(static_cast<std::size_t>(kRows) * kCols);
  CUDA_CHECK(cudaGetLastError());
  CUDA_CHECK(cudaMemcpy(out.data(), buffers.d, out.size() * sizeof(float), cudaMemcpyDeviceToHost));
  return out;
}

void poison(const Buffers& buffers) {
  CUDA_CHECK(cudaMemset(buffers.d, 0xFF, sizeof(float) * kRows * kCols));  // NaN
}

template <Type kType, Side kSide, int kN>
Answer by_wgmma(const Buffers& buffers, Args args) {
  poison(buffers);
  product<kType, kSide, kN><<<kCols / kN, 128>>>(args);
  return fetch(buffers);
}

template <Type kType>
Answer by_mma(const Buffers& buffers, Args args) {
  poison(buffers);
  product_mma<kType><<<dim3(kCols / 8, kRows / 16), 32>>>(args);
  return fetch(buffers);
}

struct Tally {
  std::string name;
  long long compared = 0, different = 0;
  double worst = 0.0;  // |difference| / sum of |products|, as a multiple of 2^-24

  void add(const Answer& x, const Answer& y, const std::vector<double>& magnitude) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      ++compared;
      if (std::memcmp(&x[i], &y[i], sizeof(float)) == 0) continue;
      ++different;
      worst = std::fmax(
          worst, std::fabs(double{x[i]} - double{y[i]}) / std::fmax(magnitude[i], 1e-300) * 0x1p24);
    }
  }
};

template <Type kType>
struct Operands {
  static constexpr int kElement = kType == Type::kE4m3 ? 1 : 2;
  std::vector<std::uint8_t> bytes;
  std::vector<double> values;

  // Codes with random signs and mantissas; exponents spread over `binades` powers of two.
  Operands(int rows, int k, int binades, std::mt19937& random) {
    for (int i = 0; i < rows * k; ++i) {
      const unsigned bits = random();
      if constexpr (kType == Type::kE4m3) {
        const unsigned exponent =
            7 + (bits >> 8) % static_cast<unsigned>(binades) - static_cast<unsigned>(binades) / 2;
        const unsigned code = (bits & 0x87u) | exponent << 3;
        bytes.push_back(static_cast<std::uint8_t>(code));
        const double magnitude = std::ldexp(1.0 + (code & 7) / 8.0, static_cast<int>(exponent) - 7);
        values.push_back(code & 0x80 ? -magnitude : magnitude);
      } else {
        const unsigned exponent =
            127 + (bits >> 8) % static_cast<unsigned>(binades) - static_cast<unsigned>(binades) / 2;
        const unsigned code = (bits & 0x7Fu) | exponent << 7 | (bits & 0x80u) << 8;
        bytes.push_back(static_cast<std::uint8_t>(code));
        bytes.push_back(static_cast<std::uint8_t>(code >> 8));
        const double magnitude =
            std::ldexp(1.0 + (code & 127) / 128.0, static_cast<int>(exponent) - 127);
        values.push_back(code & 0x8000 ? -magnitude : magnitude);
      }
    }
  }

  // Elements of K in another order: within every step, or the steps themselves backwards.
  std::vector<std::uint8_t> permuted(int rows, int k, bool within_step) const {
    const int per_step = kStepBytes / kElement, steps = k / per_step;
    std::vector<std::uint8_t> out(bytes.size());
    for (int r = 0; r < rows; ++r)
      for (int i = 0; i < k; ++i) {
        const int step = i / per_step, j = i % per_step;
        const int to = within_step ? step * per_step + (j * 7 + 3) % per_step
                                   : (steps - 1 - step) * per_step + j;
        std::memcpy(&out[static_cast<std::size_t>(r * k + to) * kElement],
                    &bytes[static_cast<std::size_t>(r * k + i) * kElement], kElement);
      }
    return out;
  }
};

void upload(std::uint8_t* to, const std::vector<std::uint8_t>& from) {
  CUDA_CHECK(cudaMemcpy(to, from.data(), from.size(), cudaMemcpyHostToDevice));
}

template <Type kType>
void probe(const char* type_name, int steps, int promote, int binades, int trials,
           const Buffers& buffers) {
  const int k = steps * kStepBytes / Operands<kType>::kElement;
  std::mt19937 random(static_cast<unsigned>(steps * 131 + promote * 17 + binades));
  std::vector<Tally> tallies;
  for (const char* name :
       {"the same again", "A from shared memory, N = 8", "N = 16", "N = 32", "N = 64", "N = 128",
        "N = 256", "N = 256, A from shared memory", "roles of A and B exchanged", "mma.sync",
        "K permuted inside each instruction", "instructions in reverse order"})
    tallies.push_back({name});
  double worst_error = 0.0;
  for (int trial = 0; trial < trials; ++trial) {
    const Operands<kType> a(kRows, k, binades, random), b(kCols, k, binades, random);
    upload(buffers.a, a.bytes);
    upload(buffers.b, b.bytes);
    const Args args{buffers.a, buffers.b, buffers.d, steps, promote};
    const Answer base = by_wgmma<kType, Side::kRegister, 8>(buffers, args);
    std::vector<double> magnitude(base.size());
    for (int m = 0; m < kRows; ++m)
      for (int n = 0; n < kCols; ++n) {
        double exact = 0.0, sum = 0.0;
        for (int i = 0; i < k; ++i) {
          const double product = a.values[static_cast<std::size_t>(m * k + i)] *
                                 b.values[static_cast<std::size_t>(n * k + i)];
          exact += product;
          sum += std::fabs(product);
        }
        const auto at = static_cast<std::size_t>(m * kCols + n);
        magnitude[at] = sum;
        worst_error = std::fmax(worst_error, std::fabs(double{base[at]} - exact) / sum * 0x1p24);
      }
    int next = 0;
    const auto against = [&](const Answer& other) {
      tallies[static_cast<std::size_t>(next++)].add(base, other, magnitude);
    };
    against(by_wgmma<kType, Side::kRegister, 8>(buffers, args));
    against(by_wgmma<kType, Side::kShared, 8>(buffers, args));
    against(by_wgmma<kType, Side::kRegister, 16>(buffers, args));
    against(by_wgmma<kType, Side::kRegister, 32>(buffers, args));
    against(by_wgmma<kType, Side::kRegister, 64>(buffers, args));
    against(by_wgmma<kType, Side::kRegister, 128>(buffers, args));
    against(by_wgmma<kType, Side::kRegister, 256>(buffers, args));
    against(by_wgmma<kType, Side::kShared, 256>(buffers, args));
    {
      // B's rows on the M side, 64 at a time; A's 64 rows are the first 64 columns.
      Answer exchanged = base;
      for (int part = 0; part < kCols / kRows; ++part) {
        Args turned = args;
        turned.a = buffers.b + static_cast<std::int64_t>(part) * kRows * steps * kStepBytes;
        turned.b = buffers.bt;
        CUDA_CHECK(cudaMemset(buffers.bt, 0, static_cast<std::size_t>(kCols) * steps * kStepBytes));
        CUDA_CHECK(cudaMemcpy(buffers.bt, buffers.a, a.bytes.size(), cudaMemcpyDeviceToDevice));
        const Answer got = by_wgmma<kType, Side::kRegister, 64>(buffers, turned);
        for (int m = 0; m < kRows; ++m)
          for (int n = 0; n < kRows; ++n)
            exchanged[static_cast<std::size_t>(m * kCols + part * kRows + n)] =
                got[static_cast<std::size_t>(n * kCols + m)];
      }
      against(exchanged);
    }
    against(by_mma<kType>(buffers, args));
    for (const bool within : {true, false}) {
      upload(buffers.a, a.permuted(kRows, k, within));
      upload(buffers.b, b.permuted(kCols, k, within));
      against(by_wgmma<kType, Side::kRegister, 8>(buffers, args));
    }
  }
  std::printf(
      "\n%s, K = %d, %s, exponents over %d binades; error against exact sums: %.1f x 2^-24 of sum "
      "|a b|\n",
      type_name, k,
      promote > 0
          ? (std::to_string(promote) + " instructions before an fp32 addition outside").c_str()
          : "all in one accumulator",
      binades, worst_error);
  for (const Tally& tally : tallies)
    std::printf("  %-36s %s  %lld of %lld differ, by at most %.1f x 2^-24\n", tally.name.c_str(),
                tally.different == 0 ? "same bits" : "DIFFERENT", tally.different, tally.compared,
                tally.worst);
}

int run(int trials) {
  constexpr int kMaxSteps = 64;
  Buffers buffers{};
  CUDA_CHECK(cudaMalloc(&buffers.a, kRows * kMaxSteps * kStepBytes));
  CUDA_CHECK(cudaMalloc(&buffers.b, kCols * kMaxSteps * kStepBytes));
  CUDA_CHECK(cudaMalloc(&buffers.bt, kCols * kMaxSteps * kStepBytes));
  CUDA_CHECK(cudaMalloc(&buffers.d, sizeof(float) * kRows * kCols));
  std::printf("Compared with: wgmma, A from registers, N = 8. %d trials of 64 x 256 sums each.\n",
              trials);
  probe<Type::kE4m3>("e4m3", 1, 0, 4, trials, buffers);
  probe<Type::kE4m3>("e4m3", 4, 0, 8, trials, buffers);
  probe<Type::kE4m3>("e4m3", 32, 4, 8, trials, buffers);
  probe<Type::kE4m3>("e4m3", 32, 0, 14, trials, buffers);
  probe<Type::kBf16>("bf16", 1, 0, 8, trials, buffers);
  probe<Type::kBf16>("bf16", 8, 0, 24, trials, buffers);
  probe<Type::kBf16>("bf16", 64, 8, 24, trials, buffers);
  probe<Type::kBf16>("bf16", 64, 0, 60, trials, buffers);
  return 0;
}

}  // namespace
}  // namespace nibble::bench

int main(int argc, char** argv) {
  int trials = 20;
  if (argc == 3 && std::string(argv[1]) == "--trials") trials = std::atoi(argv[2]);
  if (argc != 1 && (argc != 3 || trials < 1)) {
    std::fprintf(stderr, "usage: wgmma_probe [--trials N]\n");
    return 2;
  }
  return nibble::bench::run(trials);
}

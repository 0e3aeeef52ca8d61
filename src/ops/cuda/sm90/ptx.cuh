// Hopper's instructions behind names. Everything that exists on sm_90a alone is empty elsewhere: the launchers never run it there.
#pragma once

#include <cstddef>
#include <cstdint>

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define NIBBLE_SM90 1
#endif

namespace nibble::ops::cuda::sm90 {

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}
__device__ inline uint4 load_shared128(std::uint32_t a) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(a));
  return v;
}
__device__ inline std::uint32_t load_shared32(std::uint32_t a) {
  std::uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(a));
  return v;
}
__device__ inline float2 load_shared_float2(std::uint32_t a) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(a));
  return v;
}
// __byte_perm masks its selector at a cost of one instruction; this one takes it as it is.
__device__ inline std::uint32_t permute(std::uint32_t low, std::uint32_t high,
                                        std::uint32_t selector) {
  std::uint32_t d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(low), "r"(high), "r"(selector));
  return d;
}

// --- barriers in shared memory, and copies that complete on them --------------------------------------------------------------

__device__ inline void barrier_init(std::uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ inline void barrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// After all lanes' accesses.
__device__ inline void warp_arrive(std::uint32_t barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

#ifdef NIBBLE_SM90

__device__ inline void barriers_visible() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void barrier_expect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ inline void barrier_wait(std::uint32_t barrier, std::uint32_t phase) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again_%=;\n}" ::"r"(barrier),
      "r"(phase)
      : "memory");
}
__device__ inline void bulk_copy(std::uint32_t to, const std::byte* from, std::uint32_t bytes,
                                 std::uint32_t barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
__device__ inline std::uint64_t evict_first() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// 16 bytes of global memory to shared memory, by this thread's own copies_wait().
__device__ inline void copy16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void copies_wait() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}
// Ordinary stores to shared memory, to be read by the tensor cores after a barrier.
__device__ inline void fence_for_tensor_core() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// --- clusters -----------------------------------------------------------------------------------------------------------------

__device__ inline int cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same place in another block's shared memory.
__device__ inline std::uint32_t cluster_address(std::uint32_t address, int rank) {
  std::uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
__device__ inline void cluster_barrier_arrive(std::uint32_t there) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there)
               : "memory");
}
__device__ inline void cluster_barrier_wait(std::uint32_t barrier, std::uint32_t phase) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again_%=:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again_%=;\n}" ::"r"(barrier),
      "r"(phase)
      : "memory");
}
__device__ inline float cluster_load(std::uint32_t there) {
  float v;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(there));
  return v;
}

// --- programmatic dependent launch --------------------------------------------------------------------------------------------

// The kernels before this one have finished and their results are visible.
__device__ inline void wait_for_predecessor() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ inline void let_successor_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// --- wgmma: D[64, N] (+)= A[64, 32] B[32, N], E4M3, A in registers, B in shared memory -----------------------------------------

__device__ inline void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kLeft>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// B as the lower half of its descriptor: core matrices of 8 tokens x 16 bytes, those of the next tokens behind them (128 bytes, the
// upper half), and the instruction's second 16 columns kTokens of them further on. In a cluster an address also holds the block.
template <int kTokens>
__device__ inline std::uint32_t wgmma_descriptor(std::uint32_t address) {
  return (address & 0x3FFFF) >> 4 | static_cast<std::uint32_t>(kTokens) << 16;
}
__device__ inline void wgmma_e4m3(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b,
                                  bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b64 b;\n"
      "setp.ne.b32 p, %9, 0;\n"
      "mov.b64 b, {%8, 8};\n"
      "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "b, p, 1, 1;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(static_cast<int>(accumulate)));
}
__device__ inline void wgmma_e4m3(float (&d)[8], const std::uint32_t (&a)[4], std::uint32_t b,
                                  bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b64 b;\n"
      "setp.ne.b32 p, %13, 0;\n"
      "mov.b64 b, {%12, 8};\n"
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7}, "
      "{%8, %9, %10, %11}, b, p, 1, 1;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "r"(static_cast<int>(accumulate)));
}

// --- mma.sync: D[16, 8] += A[16, 16] B[16, 8], bf16 ---------------------------------------------------------------------------

__device__ inline void mma_bf16(float* d, std::uint32_t a0, std::uint32_t a1, std::uint32_t a2,
                                std::uint32_t a3, std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ inline std::uint32_t multiply_bf16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}
// Two floats as E4M3, to nearest even, saturated; `low` in bits 7-0.
__device__ inline std::uint32_t e4m3_pair(float low, float high) {
  std::uint16_t d;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(d) : "f"(high), "f"(low));
  return d;
}
// Two floats as bf16, to nearest even.
__device__ inline std::uint32_t bf16_pair(float low, float high) {
  std::uint32_t d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}

#endif

}  // namespace nibble::ops::cuda::sm90

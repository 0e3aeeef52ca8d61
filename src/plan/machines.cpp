#include "plan/machines.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>

#include "base/thread_pool.h"
#include "nibble/status.h"
#include "ops/cpu/isa.h"

namespace nibble::plan {
namespace {

using ops::Arch;

constexpr std::int64_t kMiB = 1 << 20;

// One dependent kernel inside a CUDA graph, with programmatic dependent launch, measured on an H200: an empty node 0.66 us
// (0.77 without PDL), a streaming kernel 1.5 to 1.9 us from the end of its predecessor to its own full speed. 1.6 us covers
// both. Not measured on the other GPUs: taken over.
constexpr double kLaunch_s = 1.6e-6;

// Of a GPU's memory: an H200's driver hands out 99.6 % of it once a context exists (context 552 MB, measured); the rest is
// left to code, communication buffers and the ends of pages.
constexpr double kUsable = 0.95;

// Sources. "measured": on that card. "data sheet": the vendor's, dense figures (half of those "with sparsity").
constexpr auto kMachines = std::to_array<Machine>({
    // cuMemGetInfo on an H200, driver 580: 150,109,880,320 bytes (nvidia-smi: 143,771 MiB, 616 of them reserved).
    // Data sheet: 4.8 TB/s, 989 / 1979 TFLOP/s, NVLink 4 450 GB/s a direction.
    // Measured: read-only stream 4.5 TB/s (copy 4.21), bf16 products 790 TFLOP/s, all-reduce slope 360 GB/s with 0.4 us
    // exposed at 8 KB when pushed by the producer.
    {.kind = "h200",
     .arch = Arch::kSm90a,
     .capacity_bytes = 150'109'880'320,
     .usable = kUsable,
     .bandwidth = 4.8e12,
     .read_share = 4.5 / 4.8,
     .bf16 = 989e12,
     .fp8 = 1979e12,
     .fp4 = 0.0,
     .tensor_share = 790.0 / 989.0,
     .link = {"NVLink 4", 360e9, 0.4e-6},
     .launch_s = kLaunch_s,
     .source = "memory, read and product rates, link and launches measured on H200s; nominal rates "
               "from the data sheet"},
    // nvidia-smi: 81,559 MiB. Data sheet (SXM): 3.35 TB/s; tensor cores and NVLink as the H200's. Measured shares: the
    // H200's, same chip.
    {.kind = "h100",
     .arch = Arch::kSm90a,
     .capacity_bytes = 81'559 * kMiB,
     .usable = kUsable,
     .bandwidth = 3.35e12,
     .read_share = 4.5 / 4.8,
     .bf16 = 989e12,
     .fp8 = 1979e12,
     .fp4 = 0.0,
     .tensor_share = 790.0 / 989.0,
     .link = {"NVLink 4", 360e9, 0.4e-6},
     .launch_s = kLaunch_s,
     .source = "SXM data sheet, memory as nvidia-smi shows it; shares of the nominal rates as "
               "measured on the H200"},
    // Public report of the device query: 178.35 GiB visible, 7680 bits at 3996 MHz, so 7.67 TB/s. Data sheet: 2.25 / 4.5 /
    // 9 PFLOP/s dense, NVLink 5 900 GB/s a direction. Shares: the H200's, not measured here.
    {.kind = "b200",
     .arch = Arch::kSm100a,
     .capacity_bytes = 191'501'000'000,
     .usable = kUsable,
     .bandwidth = 7.67e12,
     .read_share = 4.5 / 4.8,
     .bf16 = 2.25e15,
     .fp8 = 4.5e15,
     .fp4 = 9e15,
     .tensor_share = 790.0 / 989.0,
     .link = {"NVLink 5", 720e9, 0.4e-6},
     .launch_s = kLaunch_s,
     .source = "data sheet and public device queries; shares of the nominal rates assumed to be "
               "the H200's"},
    // nvidia-smi: 97,887 MiB. Data sheet: 1792 GB/s, 4000 TOPS FP4 sparse, so 500 / 1000 / 2000 TFLOP/s dense, PCIe 5 x16.
    // Reported measurements: 1460 GB/s copy, 392 bf16 and 750 FP8 TFLOP/s. The link's 50 of 63 GB/s and its 6 us are
    // assumptions.
    {.kind = "rtx-pro-6000",
     .arch = Arch::kSm120f,
     .capacity_bytes = 97'887 * kMiB,
     .usable = kUsable,
     .bandwidth = 1.792e12,
     .read_share = 1460.0 / 1792.0,
     .bf16 = 500e12,
     .fp8 = 1000e12,
     .fp4 = 2000e12,
     .tensor_share = 0.75,
     .link = {"PCIe 5 x16", 50e9, 6e-6},
     .launch_s = kLaunch_s,
     .source =
         "data sheet; memory and product rates as reported for this card; link latency assumed"},
    // nvidia-smi: 32,607 MiB. The vendor's architecture paper: 1792 GB/s, with fp32 accumulation 209.5 / 419 / 1676
    // TFLOP/s dense. Shares: the RTX PRO 6000's, same chip. GeForce drivers give no peer access: messages pass through
    // host memory, half the link's rate and 20 us are assumptions.
    {.kind = "rtx-5090",
     .arch = Arch::kSm120f,
     .capacity_bytes = 32'607 * kMiB,
     .usable = kUsable,
     .bandwidth = 1.792e12,
     .read_share = 1460.0 / 1792.0,
     .bf16 = 209.5e12,
     .fp8 = 419e12,
     .fp4 = 1676e12,
     .tensor_share = 0.75,
     .link = {"PCIe 5 x16 through the host", 25e9, 20e-6},
     .launch_s = kLaunch_s,
     .source =
         "data sheet; shares as reported for the RTX PRO 6000; link without peer access assumed"},
    // 128 GB shared with the CPU: public reports show 119.7 GiB to CUDA, of which a freshly booted system leaves about
    // 102 GiB (0.85). 273 GB/s, read 231 to 234 reported (0.85). 1 PFLOP/s FP4 sparse, so 125 / 250 / 500 dense; about
    // 100 bf16 reported (0.8). Two are joined by 200 Gb/s Ethernet: 25 GB/s, of which 22, and 20 us are assumptions.
    {.kind = "dgx-spark",
     .arch = Arch::kSm120f,
     .capacity_bytes = 128'500'000'000,
     .usable = 0.85,
     .bandwidth = 273e9,
     .read_share = 0.85,
     .bf16 = 125e12,
     .fp8 = 250e12,
     .fp4 = 500e12,
     .tensor_share = 0.8,
     .link = {"200 Gb/s Ethernet", 22e9, 20e-6},
     .launch_s = kLaunch_s,
     .source =
         "data sheet; memory left to CUDA and its read rate as publicly reported; link assumed"},
    // Rates a core: 118 GFLOP/s fp32 with AVX2 and 25.8 GB/s read by one core alone, measured on a 2-core EPYC virtual
    // machine by bench/machine_ceilings; several cores share that, so half. 307 GB/s (8 channels of
    // DDR5-4800) is the most it grows to. Handing work to a thread: 0.5 us (ops/cpu). find_machine() fills in this
    // machine's memory and cores.
    {.kind = "cpu",
     .arch = Arch::kCpuPortable,
     .capacity_bytes = 0,
     .usable = 0.9,
     .bandwidth = 25.8e9,
     .read_share = 0.5,
     .bf16 = 118e9,
     .fp8 = 118e9,
     .fp4 = 118e9,
     .tensor_share = 0.8,
     .link = {"none", 1.0, 0.0},
     .launch_s = 0.5e-6,
     .source = "this machine's memory and cores; rates a core as measured on one EPYC"},
});

// Of this machine, or of the container that this process runs in.
std::int64_t host_memory_bytes() {
  std::int64_t bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  std::ifstream limit("/sys/fs/cgroup/memory.max");  // a number or "max"
  if (std::int64_t most = 0; limit >> most && most > 0) bytes = std::min(bytes, most);
  return bytes;
}

Machine this_machine(Machine cpu) {
  const double cores = available_cpus();
  if (ops::cpu::detect_isa() == ops::cpu::Isa::kAvx2) cpu.arch = Arch::kCpuAvx2;
  cpu.capacity_bytes = host_memory_bytes();
  cpu.bandwidth = std::min(cpu.bandwidth * cores, 307e9);
  for (double* rate : {&cpu.bf16, &cpu.fp8, &cpu.fp4}) *rate *= cores;
  return cpu;
}

}  // namespace

std::optional<Machine> find_machine(std::string_view kind) {
  const auto found = std::ranges::find(kMachines, kind, &Machine::kind);
  if (found == kMachines.end()) return std::nullopt;
  return kind == "cpu" ? this_machine(*found) : *found;
}

std::string machine_kinds() {
  std::string kinds;
  for (const Machine& machine : kMachines)
    kinds += (kinds.empty() ? "" : ", ") + std::string(machine.kind);
  return kinds;
}

GpuRequest parse_gpu(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const auto machine = find_machine(kind);
  if (!machine)
    throw Error(ExitCode::kUsage,
                fmt::format("--gpu {}: no kind '{}' in the table; known kinds: {}", text, kind,
                            machine_kinds()));
  int count = 1;
  if (colon != std::string::npos) {
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data() + colon + 1, end, count);
    if (parsed.ec != std::errc() || parsed.ptr != end || count < 1 || count > kMaxGpus)
      throw Error(ExitCode::kUsage, fmt::format("--gpu {}: expected a count of 1 to {} after the "
                                                "colon, found '{}'",
                                                text, kMaxGpus, text.substr(colon + 1)));
  }
  if (kind == "cpu" && count != 1)
    throw Error(ExitCode::kUsage,
                fmt::format("--gpu {}: cpu is this one machine, expected cpu or cpu:1", text));
  return {*machine, count};
}

}  // namespace nibble::plan

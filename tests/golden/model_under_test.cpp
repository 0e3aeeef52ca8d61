#include "golden/model_under_test.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <span>

#include "base/check.h"
#include "engine/backend_choice.h"
#include "nibble/status.h"

namespace nibble::testing {
namespace {

template <typename T>
void append_rows(std::vector<std::vector<T>>& out, const T* data, std::int64_t rows,
                 std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r)
    out.emplace_back(data + r * width, data + (r + 1) * width);
}

// A view's elements on the host, wherever the backend keeps them.
template <typename T>
std::vector<T> fetch(ops::Backend& backend, const tensor::View& view) {
  std::vector<T> out(static_cast<std::size_t>(view.shape.elements()));
  backend.download(view, std::as_writable_bytes(std::span(out)));
  return out;
}

std::int64_t row_width(const tensor::View& view) {
  return view.shape.elements() / std::max<std::int64_t>(1, view.shape[0]);
}

}  // namespace

ScratchFolder::ScratchFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "nibble-test-XXXXXX").string();
  NIBBLE_CHECK(mkdtemp(pattern.data()) != nullptr, "mkdtemp {}", pattern);
  path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

bool has_device(DeviceKind device) {
  if (device != DeviceKind::kCuda) return true;
  try {
    return engine::resolve_device(DeviceKind::kAuto) == DeviceKind::kCuda;
  } catch (const Error&) {
    return false;
  }
}

const char* device_name(DeviceKind device) {
  return device == DeviceKind::kRef ? "ref" : device == DeviceKind::kCpu ? "cpu" : "cuda";
}

std::unique_ptr<engine::ModelRunner> load_random(const ScratchFolder& folder,
                                                 const RandomCheckpointSpec& spec,
                                                 DeviceKind device, Activations activations,
                                                 int slots) {
  write_random_checkpoint(folder.path(), spec);
  EngineOptions options;
  options.model_dir = folder.path().string();
  options.device = device;
  options.activations = activations;
  options.threads = 2;
  options.max_model_len = 1024;
  options.prefill_chunk = 700;
  return engine::ModelRunner::load(options, slots, nullptr);
}

std::vector<std::int32_t> all_pages(const engine::ModelRunner& runner) {
  std::vector<std::int32_t> pages(static_cast<std::size_t>(runner.limits().pages));
  std::iota(pages.rbegin(), pages.rend(), 0);
  return pages;
}

Trace run(engine::ModelRunner& runner, const std::vector<TokenId>& ids, const RunOptions& options) {
  Trace trace;
  ops::Backend& backend = runner.backend();
  const auto append_floats = [&](std::vector<std::vector<float>>& out, const tensor::View& v) {
    append_rows(out, fetch<float>(backend, v).data(), v.shape[0], row_width(v));
  };
  const auto append_ints = [&](std::vector<std::vector<std::int32_t>>& out, const tensor::View& v) {
    append_rows(out, fetch<std::int32_t>(backend, v).data(), v.shape[0], row_width(v));
  };
  model::Taps taps;
  taps.streams = [&](int layer, const tensor::View& v) { append_floats(trace.streams[layer], v); };
  taps.selected = [&](int layer, const tensor::View& v) { append_ints(trace.selected[layer], v); };
  taps.routed = [&](int layer, const tensor::View& experts, const tensor::View& weights) {
    append_ints(trace.experts[layer], experts);
    append_floats(trace.expert_weights[layer], weights);
  };
  const std::vector<std::int32_t> pages = all_pages(runner);
  const int total = static_cast<int>(ids.size());
  const int chunk = options.chunk > 0 ? options.chunk : total;
  for (int begin = 0; begin < total; begin += chunk) {
    const int rows = std::min(chunk, total - begin);
    const std::array segments{ops::Segment{0, rows, 0, begin}};
    runner.model().forward(
        {std::span(ids).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(rows)),
         segments, pages},
        runner.cache(), taps);
    append_floats(trace.logits, runner.model().logits(0, rows));
    if (!options.drafter) continue;
    // The last row's follower is not part of the prompt: its token is 0, as in the golden files'
    // convention for that row.
    std::vector<TokenId> next(ids.begin() + begin + 1,
                              ids.begin() + std::min(begin + rows + 1, total));
    next.resize(static_cast<std::size_t>(rows), 0);
    runner.model().forward_mtp({next, segments}, runner.cache(), runner.model().streams(rows));
    const tensor::View streams = runner.model().mtp_streams(rows);
    append_floats(trace.mtp1_streams, streams);
    append_floats(trace.mtp1_logits, runner.model().mtp_logits(streams));
  }
  return trace;
}

std::vector<TokenId> greedy(engine::ModelRunner& runner, const std::vector<TokenId>& ids,
                            int count) {
  const std::vector<std::int32_t> pages = all_pages(runner);
  std::vector<TokenId> all = ids, out;
  int done = 0;
  while (static_cast<int>(out.size()) < count) {
    const int rows = static_cast<int>(all.size()) - done;
    const std::array segments{ops::Segment{0, rows, 0, done}};
    runner.forward({std::span(all).subspan(static_cast<std::size_t>(done)), segments, pages});
    const std::span<const float> logits = runner.logits(rows - 1, 1);
    done += rows;
    out.push_back(
        static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    all.push_back(out.back());
  }
  return out;
}

}  // namespace nibble::testing

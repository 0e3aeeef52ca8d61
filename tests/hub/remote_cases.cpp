// Looks at a checkpoint that is not here, as `inspect` does (test_remote.py):
//
//   remote_cases MODEL [--bytes]
//
// Prints a line a tensor: name, dtype, bytes, and with --bytes its first 16 in hexadecimal. What goes wrong is printed as the
// executable prints it, and is the exit status.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "checkpoint/checkpoint.h"
#include "cli/model_path.h"
#include "nibble/status.h"
#include "tensor/dtype.h"

namespace {

using namespace nibble;

void look(const std::string& model, bool bytes) {
  cli::ModelFiles files = cli::open_model_files(model);
  fmt::print("model {} {} {}\n", files.name, files.local ? "local" : "remote",
             files.pull_bytes.value_or(-1));
  fmt::print("config {}\n", files.folder.read_text("config.json", 1 << 20));
  const auto checkpoint = checkpoint::Checkpoint::open(std::move(files.folder));
  for (const checkpoint::CheckpointTensor& tensor : checkpoint.tensors()) {
    fmt::print("{} {} {}", tensor.name, tensor::dtype_name(tensor.dtype), tensor.bytes);
    if (bytes) {
      std::array<std::byte, 16> first{};
      const auto size = static_cast<std::size_t>(std::min<std::int64_t>(16, tensor.bytes));
      checkpoint.read(tensor, 0, std::span(first).first(size));
      fmt::print(" ");
      for (std::size_t i = 0; i < size; ++i) fmt::print("{:02x}", std::to_integer<int>(first[i]));
    }
    fmt::print("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    look(argc > 1 ? argv[1] : "", argc > 2);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "nibble: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}

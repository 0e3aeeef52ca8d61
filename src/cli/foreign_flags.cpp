#include "cli/foreign_flags.h"

#include <iostream>
#include <string>

namespace nibble::cli {
namespace {

struct ForeignFlag {
  const char* names;
  bool takes_value;
  const char* reason;
};

constexpr ForeignFlag kForeign[] = {
    {"--trust-remote-code", false, "nothing from a checkpoint is ever run"},
    {"--tp,--tp-size,--tensor-parallel-size", true, "this version serves from one CPU"},
    {"--pipeline-parallel-size,--pp,--pp-size", true, "this version serves from one CPU"},
    {"--data-parallel-size,--dp,--dp-size", true, "this version serves from one CPU"},
    {"--gpu-memory-utilization,--mem-fraction-static", true,
     "memory is what the model, --max-total-tokens and --max-num-seqs need"},
    {"--dtype", true, "formats are read from the tensors; see --activations and --kv-dtype"},
    {"--quantization,-q", true, "formats are read from the tensors"},
    {"--kv-cache-dtype", true, "say --kv-dtype"},
    {"--disable-log-requests", false, "requests are not logged"},
    {"--enable-prefix-caching", false, "the prefix cache is always on; see --prefix-cache-mib"},
    {"--no-enable-prefix-caching,--disable-radix-cache", false, "say --prefix-cache-mib 0"},
    {"--reasoning-parser", true, "the parser follows the checkpoint's encoder"},
    {"--tool-call-parser", true, "the parser follows the checkpoint's encoder"},
    {"--enable-auto-tool-choice", false, "tools are always available"},
    {"--chat-template", true, "chats are rendered by the checkpoint's encoder; see --encoder"},
};

}  // namespace

void accept_foreign_flags(CLI::App& command) {
  for (const ForeignFlag& flag : kForeign) {
    const std::string names = flag.names;
    const std::string name = names.substr(0, names.find(','));
    const std::string line = "nibble: " + name +
                             (name == names ? "" : " (or another spelling of it)") +
                             " is ignored: " + flag.reason + "\n";
    const auto say = [line](const CLI::results_t&) {
      std::cerr << line;
      return true;
    };
    CLI::Option* option =
        command.add_option(flag.names, say, "ignored: " + std::string(flag.reason));
    option->expected(flag.takes_value ? 1 : 0)->group("Accepted and ignored");
  }
}

}  // namespace nibble::cli
